//! One worker's part of a case: what its figures cover, and what is wrong with it.

use std::collections::BTreeSet;

use worker_protocol::Phase;

use crate::case::{CaseInput, Ending, WorkerFinished, WorkerInput};
use crate::disk::{self, DiskTotals};
use crate::export::PerDisk;
use crate::throughput::to_f64;
use crate::totals::ReadWrite;

/// A first I/O up to this long after the start of the window is in time, ns: 1 % of a second, the smallest thing that is counted.
const LATE_START_NS: u64 = 10_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// What a worker delivered, as far as it can be judged without the seconds' histograms.
pub(crate) struct WorkerView {
    /// Seconds of the window that it was loading for whole, and that are stored.
    pub(crate) whole: BTreeSet<u32>,
    /// Totals of its disks, with the seconds that they cover. None without a usable Finished.
    pub(crate) disks: Option<WorkerDisks>,
    /// What keeps the case from being complete; each names the worker.
    pub(crate) problems: Vec<String>,
}

/// A worker's disks, merged and one by one.
pub(crate) struct WorkerDisks {
    pub(crate) merged: ReadWrite,
    /// Open loop: the same I/Os timed from their submission, where every disk says so.
    pub(crate) service: Option<ReadWrite>,
    pub(crate) per_disk: Vec<PerDisk>,
    pub(crate) window_seconds: f64,
}

impl WorkerView {
    /// Its figures cover exactly the window.
    pub(crate) fn covers_window(&self) -> bool {
        self.problems.is_empty() && self.disks.is_some()
    }

    pub(crate) fn of(worker: &WorkerInput, case: &CaseInput) -> Self {
        let mut problems = Vec::new();
        let late_ns = late_ns(worker, case);
        let whole = whole_seconds(worker, case, late_ns.div_ceil(SECOND_NS));
        problems.extend(end_problem(worker, case));
        if late_ns > 0 {
            problems.push(format!("{} started {:.3} s after the window", worker.worker, to_f64(late_ns) / 1e9));
        }
        if worker.finished.is_some() && worker.failure.is_none() {
            problems.extend(gap_problem(worker, case, &whole));
        }
        let disks = worker.finished.as_ref().and_then(|finished| {
            let window_seconds = covered_seconds(worker, finished, case, late_ns);
            merge_disks(worker, finished, case, window_seconds).map_err(|problem| problems.push(problem)).ok()
        });
        if let Some(disks) = disks.as_ref().filter(|_| problems.is_empty()) {
            problems.extend(sum_problem(worker, disks));
        }
        Self { whole, disks, problems }
    }
}

/// How long after the start of the window the first I/O was; 0 where it was in time.
fn late_ns(worker: &WorkerInput, case: &CaseInput) -> u64 {
    let (Some(clock), Some(finished)) = (&worker.clock, &worker.finished) else { return 0 };
    let late = finished.started_worker_ns.saturating_sub(window_start_ns(clock.start_at_worker_ns, case));
    if late > LATE_START_NS { late } else { 0 }
}

/// T0 on the worker's clock.
fn window_start_ns(start_at_worker_ns: u64, case: &CaseInput) -> u64 {
    start_at_worker_ns.saturating_add(u64::from(case.precondition_seconds) * SECOND_NS)
}

fn whole_seconds(worker: &WorkerInput, case: &CaseInput, first: u64) -> BTreeSet<u32> {
    let in_window = |second: u32| second < case.sample_seconds && u64::from(second) >= first;
    let marks = worker.seconds.iter().filter(|mark| mark.phase == Phase::Sample && mark.whole);
    marks.map(|mark| mark.second).filter(|&second| in_window(second)).collect()
}

/// Why the worker did not reach the end of the window, if so.
fn end_problem(worker: &WorkerInput, case: &CaseInput) -> Option<String> {
    let name = &worker.worker;
    match (&worker.failure, &worker.finished) {
        (Some(failure), _) => Some(format!("{name}: {failure}")),
        (None, Some(finished)) if !finished.complete => {
            let reason = finished.reason.as_deref().unwrap_or("it gave no reason");
            Some(format!("{name} left early: {reason}"))
        }
        (None, None) if case.ending == Ending::Ran => Some(format!("{name} did not report its end")),
        _ => None,
    }
}

fn gap_problem(worker: &WorkerInput, case: &CaseInput, whole: &BTreeSet<u32>) -> Option<String> {
    let missing: Vec<u32> = (0..case.sample_seconds).filter(|second| !whole.contains(second)).collect();
    if missing.is_empty() {
        return None;
    }
    Some(format!(
        "{} lacks {} of {} s of the window ({})",
        worker.worker,
        missing.len(),
        case.sample_seconds,
        ranges(&missing)
    ))
}

/// Ascending numbers as `3, 7-9`, shortened to a few ranges.
fn ranges(numbers: &[u32]) -> String {
    const SHOWN: usize = 4;
    let runs: Vec<&[u32]> = numbers.chunk_by(|a, b| a + 1 == *b).collect();
    let mut shown: Vec<String> = runs.iter().take(SHOWN).filter_map(|run| run_text(run)).collect();
    if runs.len() > SHOWN {
        shown.push("…".into());
    }
    shown.join(", ")
}

fn run_text(run: &[u32]) -> Option<String> {
    match (run.first()?, run.last()?) {
        (first, last) if first == last => Some(format!("second {first}")),
        (first, last) => Some(format!("seconds {first} to {last}")),
    }
}

/// Seconds of the window that the worker's disk totals cover.
fn covered_seconds(worker: &WorkerInput, finished: &WorkerFinished, case: &CaseInput, late_ns: u64) -> f64 {
    let window_ns = u64::from(case.sample_seconds) * SECOND_NS;
    let end = match &worker.clock {
        Some(clock) if !finished.complete => {
            finished.ended_worker_ns.saturating_sub(window_start_ns(clock.start_at_worker_ns, case)).min(window_ns)
        }
        _ => window_ns,
    };
    to_f64(end.saturating_sub(late_ns)) / 1e9
}

fn merge_disks(
    worker: &WorkerInput,
    finished: &WorkerFinished,
    case: &CaseInput,
    window_seconds: f64,
) -> Result<WorkerDisks, String> {
    let reported: BTreeSet<&str> = finished.disks.iter().map(|disk| disk.serial.as_str()).collect();
    let assigned: BTreeSet<&str> = worker.disks.iter().map(String::as_str).collect();
    if reported != assigned || finished.disks.len() != worker.disks.len() {
        return Err(format!(
            "{} reported {} disks that are not the {} assigned",
            worker.worker,
            finished.disks.len(),
            worker.disks.len()
        ));
    }
    let service = case.rate.as_ref().map(|_| ReadWrite::default());
    let mut disks = WorkerDisks { merged: ReadWrite::default(), service, per_disk: Vec::new(), window_seconds };
    for disk in &finished.disks {
        let totals = DiskTotals::decode(&worker.worker, disk, case.block_bytes)?;
        disks.per_disk.push(disk::per_disk(case, worker, disk, &totals, window_seconds));
        disks.merged.merge(&totals.ops);
        disks.service = disks.service.zip(totals.service).map(|(mut sum, service)| {
            sum.merge(&service);
            sum
        });
    }
    Ok(disks)
}

/// The seconds of the window must hold just the I/Os that the disks' totals hold.
fn sum_problem(worker: &WorkerInput, disks: &WorkerDisks) -> Option<String> {
    let (mut reads, mut writes) = (0_u64, 0_u64);
    for mark in worker.seconds.iter().filter(|mark| mark.phase == Phase::Sample) {
        reads = reads.saturating_add(mark.read_count);
        writes = writes.saturating_add(mark.write_count);
    }
    let totals = (disks.merged.read.latencies.count(), disks.merged.write.latencies.count());
    if (reads, writes) == totals {
        return None;
    }
    Some(format!(
        "{} counted {reads} reads and {writes} writes by second, {} and {} by disk",
        worker.worker, totals.0, totals.1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_seconds_are_named_in_ranges() {
        assert_eq!(ranges(&[3, 7, 8, 9]), "second 3, seconds 7 to 9");
        assert_eq!(ranges(&[1, 3, 5, 7, 9]), "second 1, second 3, second 5, second 7, …");
    }
}
