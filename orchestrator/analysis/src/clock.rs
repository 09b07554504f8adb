//! Start skew and clock drift, from the clock offsets that probes measured.

use crate::case::{WorkerClock, WorkerInput};
use crate::throughput::to_f64;

/// Latest first I/O minus earliest first I/O over the workers, on the orchestrator's clock, µs. None where no worker reported its start.
pub(crate) fn start_skew_us(workers: &[WorkerInput]) -> Option<f64> {
    let starts = workers.iter().filter_map(|worker| {
        let started = worker.finished.as_ref()?.started_worker_ns;
        Some(i128::from(started) + i128::from(worker.clock?.offset_start_ns))
    });
    let (first, last) = starts.fold(None, |range: Option<(i128, i128)>, start| {
        let (first, last) = range.unwrap_or((start, start));
        Some((first.min(start), last.max(start)))
    })?;
    Some(micros(last.abs_diff(first)))
}

/// The largest change of a worker's clock offset between the start and the end of the case, µs. None where no clock was probed twice.
pub(crate) fn clock_drift_us(workers: &[WorkerInput]) -> Option<f64> {
    let drift = |clock: WorkerClock| Some(clock.offset_end_ns?.abs_diff(clock.offset_start_ns));
    let largest = workers.iter().filter_map(|worker| drift(worker.clock?)).max()?;
    Some(micros(u128::from(largest)))
}

fn micros(ns: u128) -> f64 {
    to_f64(u64::try_from(ns).unwrap_or(u64::MAX)) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::WorkerFinished;

    fn worker(started_worker_ns: u64, offset_start_ns: i64, offset_end_ns: Option<i64>) -> WorkerInput {
        WorkerInput {
            clock: Some(WorkerClock { start_at_worker_ns: 0, offset_start_ns, offset_end_ns }),
            finished: Some(WorkerFinished { started_worker_ns, ..WorkerFinished::default() }),
            ..WorkerInput::default()
        }
    }

    #[test]
    fn skew_compares_starts_on_one_clock() {
        // The second worker's clock is 5 ms behind; on the orchestrator's clock it started 40 µs after the first.
        let workers = [worker(10_000_000, 0, Some(2_000)), worker(5_040_000, 5_000_000, Some(4_999_000))];
        assert_eq!(start_skew_us(&workers), Some(40.0));
        assert_eq!(clock_drift_us(&workers), Some(2.0));
    }

    #[test]
    fn what_was_not_reported_is_not_made_up() {
        assert_eq!(start_skew_us(&[WorkerInput::default()]), None);
        assert_eq!(clock_drift_us(&[worker(1, 2, None)]), None);
        assert_eq!(start_skew_us(&[worker(u64::MAX, i64::MAX, None)]), Some(0.0));
    }
}
