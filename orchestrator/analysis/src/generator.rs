//! Whether the load generator, and not the storage, may have limited a case's figures.

use crate::case::{WorkerFinished, WorkerInput};
use crate::export::{Generator, GeneratorFinding, GeneratorUse};
use crate::open_loop;

/// An engine thread that used more of its CPU than this may limit the result; not in an open loop that keeps its time, which polls.
pub(crate) const THREAD_CPU_LIMIT: f64 = 0.9;

/// Share of the worker's CPU time that the hypervisor may take.
pub(crate) const STEAL_LIMIT: f64 = 0.05;

/// CPU time of io-wq workers that is no more than the occasional request, CPUs.
pub(crate) const IO_WQ_LIMIT: f64 = 0.005;

/// The verdict over the workers that reported their end; none where none did.
pub(crate) fn verdict(workers: &[WorkerInput]) -> Option<Generator> {
    if workers.iter().all(|worker| worker.finished.is_none()) {
        return None;
    }
    let findings: Vec<GeneratorFinding> = workers.iter().flat_map(findings).collect();
    Some(Generator { may_limit: !findings.is_empty(), findings })
}

/// What one worker's generator used.
pub(crate) fn used(finished: &WorkerFinished) -> GeneratorUse {
    GeneratorUse { thread_cpu: finished.thread_cpu.clone(), io_wq_cpu: finished.io_wq_cpu, steal: finished.steal }
}

/// What was beyond its limit on one worker.
pub(crate) fn findings(worker: &WorkerInput) -> Vec<GeneratorFinding> {
    let Some(finished) = &worker.finished else { return Vec::new() };
    let finding = |kind: &str, thread, value| GeneratorFinding {
        worker: worker.worker.clone(),
        kind: kind.to_owned(),
        thread,
        value,
    };
    let polls = open_loop::keeps_time(finished);
    let threads = (0..).zip(&finished.thread_cpu).filter(|(_, cpu)| !polls && **cpu > THREAD_CPU_LIMIT);
    let mut all: Vec<GeneratorFinding> =
        threads.map(|(thread, cpu)| finding("thread-cpu", Some(thread), *cpu)).collect();
    all.extend(finished.steal.filter(|steal| *steal > STEAL_LIMIT).map(|steal| finding("steal", None, steal)));
    if finished.io_wq_cpu > IO_WQ_LIMIT {
        all.push(finding("io-wq", None, finished.io_wq_cpu));
    }
    all
}

/// One worker's findings for a person; none where there is none.
pub(crate) fn warning(worker: &WorkerInput) -> Option<String> {
    let findings: Vec<String> = findings(worker).iter().map(words).collect();
    let findings = findings.join(", ");
    (!findings.is_empty()).then(|| format!("the load generator, not the storage, may limit this figure: {findings}"))
}

fn words(finding: &GeneratorFinding) -> String {
    let percent = finding.value * 100.0;
    match (finding.thread, finding.kind.as_str()) {
        (Some(thread), _) => format!("engine thread {thread} used {percent:.0} % of its CPU"),
        (None, "steal") => format!("the hypervisor took {percent:.0} % of the CPU time"),
        (None, _) => {
            format!(
                "kernel worker threads (io-wq) did I/O that was not done inline, and used {:.2} CPUs",
                finding.value
            )
        }
    }
}
