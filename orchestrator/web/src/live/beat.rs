//! What is told of the run under way.

use std::collections::BTreeMap;

use analysis::export::{Event, HostLoad, Ops, Second, StorageHealth};
use jiff::Timestamp;
use serde::Serialize;

use super::heat::{DiskBeat, Layout};

/// How far the run is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LiveProgress {
    /// State of the run.
    pub state: String,
    /// What is being done, for a person.
    pub step: String,
    /// Place of the step in the schedule, from 0.
    pub step_index: usize,
    /// Share of the step that is done, 0 to 1.
    pub step_fraction: f64,
    /// Share of the run that is done, 0 to 1.
    pub fraction: f64,
    /// Number of the case, from 1; 0 before the first.
    pub case: u32,
    /// Cases of the run.
    pub cases: u32,
    /// Bytes that the fill under way has written and will have written.
    pub fill: Option<(u64, u64)>,
    /// Bytes a second of the fill under way, the last second.
    pub fill_bytes_per_s: Option<f64>,
    /// I/Os in the last second, all workers.
    pub iops: Option<f64>,
    /// MiB in the last second, all workers.
    pub mib_per_s: Option<f64>,
    /// Estimated seconds to the end of the run.
    pub seconds_left: Option<f64>,
    /// Begin of the window of the case under way (T0), as soon as its start is fixed; none outside a case.
    #[serde(skip)]
    pub measured_from: Option<Timestamp>,
}

/// One second of a case.
#[derive(Debug, Clone)]
pub struct CaseSecond {
    /// When it began, seconds after the run did.
    pub at: u32,
    /// The cluster; none where a worker's part is missing, which is a gap.
    pub second: Option<Second>,
    /// The workload reads, and it writes.
    pub asked: (bool, bool),
    /// By worker that delivered it, in the order of its disks; empty where that is not known any more.
    pub disks: BTreeMap<String, Vec<DiskBeat>>,
}

/// Hosts and storage as the place told them last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Health {
    /// When.
    pub at: Timestamp,
    /// Hosts in use, by name.
    pub hosts: Vec<HostLoad>,
    /// Health of the storage cluster, where there is one that answers.
    pub storage: Option<StorageHealth>,
}

/// The figures so far of the case that goes on.
#[derive(Debug, Clone, PartialEq)]
pub struct SoFar {
    /// Place of the case in the plan's order, from 0.
    pub ordinal: u32,
    /// Workers that the figures contain.
    pub workers: u32,
    /// Seconds of the window that they cover.
    pub seconds: u32,
    /// The figures.
    pub ops: Ops,
}

/// What is new since the last message. Everything may be absent.
#[derive(Debug, Default)]
pub struct Beat {
    /// Where the run is.
    pub progress: Option<LiveProgress>,
    /// A case began on these workers.
    pub layout: Option<Layout>,
    /// Seconds of the case under way.
    pub seconds: Vec<CaseSecond>,
    /// A second of a fill: when, seconds after the run began, and MiB a second.
    pub fill: Option<(u32, f64)>,
    /// Events.
    pub events: Vec<Event>,
    /// Hosts and storage.
    pub health: Option<Health>,
    /// What the reader of all figures must know, all of it, where something was added.
    pub warnings: Option<Vec<String>>,
    /// The case under way.
    pub so_far: Option<SoFar>,
}

/// How a run ended, for its viewers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LiveEnd {
    /// Final state.
    pub state: String,
    /// Why it failed or was cancelled.
    pub reason: Option<String>,
}
