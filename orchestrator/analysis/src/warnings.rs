//! What the reader of a case's figures must know, beside the verdict.

use std::collections::BTreeMap;

use worker_protocol::{DiskFinished, OpTotals};

use crate::case::{CaseInput, WorkerFinished, WorkerInput};
use crate::throughput::to_f64;
use crate::totals::micros;

/// Requests that reached the device may differ from our I/Os by this share before a warning says so.
pub(crate) const DEVICE_REQUEST_TOLERANCE: f64 = 0.001;

/// An engine thread that used more of its CPU than this limits the result.
pub(crate) const GENERATOR_CPU_LIMIT: f64 = 0.9;

/// Share of the worker's CPUs that the hypervisor may take before a warning says so.
pub(crate) const STEAL_LIMIT: f64 = 0.05;

/// Workers or disks that a warning names before it only counts them.
const NAMED: usize = 4;

/// Beside every figure of a case that reads what was never written.
const UNWRITTEN: &str = "bytes that were never written are read: storage may answer such reads without touching a device, so no figure \
    of this case says anything about reading data";

/// All warnings of a case, the gravest kind first; equal ones of several workers or disks are one.
pub(crate) fn warnings(input: &CaseInput) -> Vec<String> {
    let mut said = Said::default();
    for worker in &input.workers {
        for disk in worker.finished.iter().flat_map(|finished| &finished.disks) {
            disk_warnings(worker, disk, &mut said);
        }
        engine_warnings(worker, &mut said);
        if let Some(finished) = &worker.finished {
            load_warnings(worker, finished, &mut said);
        }
    }
    let unwritten = input.reads_unwritten.then(|| UNWRITTEN.to_owned());
    unwritten.into_iter().chain(said.into_lines()).collect()
}

/// Texts in the order first said, each with who said it.
#[derive(Default)]
struct Said {
    order: Vec<String>,
    by: BTreeMap<String, Vec<String>>,
}

impl Said {
    fn say(&mut self, who: impl Into<String>, text: impl Into<String>) {
        let text = text.into();
        let by = self.by.entry(text.clone()).or_default();
        if by.is_empty() {
            self.order.push(text);
        }
        by.push(who.into());
    }

    fn into_lines(self) -> impl Iterator<Item = String> {
        let Self { order, by } = self;
        order.into_iter().map(move |text| format!("{}: {text}", names(by.get(&text).map_or(&[], Vec::as_slice))))
    }
}

fn names(all: &[String]) -> String {
    let named = all.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{named} and {} more", all.len() - NAMED) } else { named }
}

fn disk_warnings(worker: &WorkerInput, disk: &DiskFinished, said: &mut Said) {
    let who = || format!("{}/{}", worker.worker, disk.serial);
    let failed = disk.ops.read.errors.saturating_add(disk.ops.write.errors);
    if failed > 0 {
        said.say(who(), format!("{failed} I/Os failed or were short{}", error_kinds(disk)));
    }
    for (name, ops, requests) in device_requests(disk) {
        if let Some(text) = request_difference(name, ops, requests) {
            said.say(who(), text);
        }
    }
    for stall in &disk.stalls {
        let (start, length) = (signed_seconds(stall.start_ns), to_f64(stall.length_ns) / 1e9);
        said.say(who(), format!("no I/O completed for {length:.1} s from {start:.1} s after the start of the window"));
    }
    let slowest = disk.ops.read.max_ns.max(disk.ops.write.max_ns);
    if disk.unfinished > 0 && disk.oldest_unfinished_ns > slowest {
        let age = micros(disk.oldest_unfinished_ns) / 1e3;
        said.say(
            who(),
            format!(
                "an I/O in flight at the end of the window had waited {age:.1} ms, longer than any that is counted"
            ),
        );
    }
    if let Some(pacing) = disk.pacing.filter(|pacing| pacing.missed > 0 || pacing.late > 0) {
        let (lag, of) = (micros(pacing.largest_lag_ns) / 1e3, pacing.intended);
        said.say(
            who(),
            format!(
                "the rate was not kept: {} of {of} I/Os started late (by up to {lag:.1} ms), {} not at all",
                pacing.late, pacing.missed
            ),
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person to read")]
fn signed_seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

fn error_kinds(disk: &DiskFinished) -> String {
    let kinds: Vec<String> = disk.errors.iter().map(|errors| format!("{} {}", errors.count, errors.kind)).collect();
    let offset = disk.errors.iter().find_map(|errors| errors.first_offsets.first());
    let first = offset.map(|offset| format!(", the first at byte {offset}")).unwrap_or_default();
    if kinds.is_empty() { first } else { format!(" ({}{first})", kinds.join(", ")) }
}

fn device_requests(disk: &DiskFinished) -> impl Iterator<Item = (&'static str, &OpTotals, u64)> {
    disk.device
        .into_iter()
        .flat_map(|device| [("read", &disk.ops.read, device.reads), ("write", &disk.ops.write, device.writes)])
}

fn request_difference(name: &str, ops: &OpTotals, requests: u64) -> Option<String> {
    let ios = ops.count.saturating_add(ops.errors);
    let share = to_f64(requests.abs_diff(ios)) / to_f64(ios.max(1));
    (share > DEVICE_REQUEST_TOLERANCE).then(|| {
        let percent = share * 100.0;
        format!("the device completed {requests} {name} requests for {ios} {name}s ({percent:.1} % apart): merged, split, or not ours alone")
    })
}

fn engine_warnings(worker: &WorkerInput, said: &mut Said) {
    let Some(engine) = &worker.engine else { return };
    for disk in engine.disks.iter().filter(|disk| !disk.direct) {
        said.say(
            format!("{}/{}", worker.worker, disk.serial),
            "no O_DIRECT: the page cache is measured, not the storage alone",
        );
    }
    for warning in &engine.warnings {
        said.say(&worker.worker, warning);
    }
}

fn load_warnings(worker: &WorkerInput, finished: &WorkerFinished, said: &mut Said) {
    let name = &worker.worker;
    let busiest = finished.thread_cpu.iter().copied().fold(0.0, f64::max);
    if busiest > GENERATOR_CPU_LIMIT {
        said.say(
            name,
            format!("the load generator limits the result: an engine thread used {:.0} % of its CPU", busiest * 100.0),
        );
    }
    if let Some(steal) = finished.steal.filter(|steal| *steal > STEAL_LIMIT) {
        said.say(name, format!("the hypervisor took {:.0} % of the worker's CPU time", steal * 100.0));
    }
    let reported = worker.engine.iter().flat_map(|engine| &engine.warnings).collect::<Vec<_>>();
    for warning in finished.warnings.iter().filter(|warning| !reported.contains(warning)) {
        said.say(name, warning);
    }
}
