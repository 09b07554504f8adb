//! What a run is doing, for whoever shows it.

use serde::Serialize;

/// A run's progress; a new value about once a second.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Progress {
    /// Id of the run.
    pub run_id: String,
    /// State of the run.
    pub state: String,
    /// What is being done, for a person (`256MiB: fill`, `1GiB: 4k-random-read, sample`).
    pub step: String,
    /// Place of the step under way in the schedule ([`plan::Schedule::steps`]), from 0.
    pub step_index: usize,
    /// Number of the case begun last, from 1; 0 before the first.
    pub case: u32,
    /// Cases of the run.
    pub cases: u32,
    /// Share of the step that is done, 0 to 1.
    pub step_fraction: f64,
    /// Share of the run that is done by estimated time, 0 to 1.
    pub fraction: f64,
    /// I/Os in the last second, all workers.
    pub iops: Option<f64>,
    /// MiB in the last second, all workers.
    pub mib_per_s: Option<f64>,
    /// Bytes that the fill under way has written, all disks; none outside a fill.
    pub filled_bytes: Option<u64>,
    /// Bytes that it will have written at its end.
    pub fill_bytes: Option<u64>,
    /// Estimated seconds to the end of the run.
    pub seconds_left: Option<f64>,
    /// What a person should be told once, oldest first: how long each deployment's machines took to enrol. At most one a deployment.
    #[serde(skip)]
    pub notes: Vec<String>,
}
