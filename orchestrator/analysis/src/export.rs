//! The JSON export's shape: a contract with whoever reads it (docs/export.md), and the model of the report.
//!
//! An operation without I/O is `null`. Times are UTC. MiB/s is `bytes / seconds / 2^20`. Latencies are microseconds.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Value of [`Export::format`].
pub const FORMAT: &str = "fourcorners/1";

/// A run with all that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Export {
    /// [`FORMAT`].
    pub format: String,
    /// The run.
    pub run: Run,
    /// Its cases, in the order they ran.
    pub cases: Vec<Case>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// UUID.
    pub id: String,
    /// Name of the plan.
    pub name: String,
    /// `planned`, `provisioning`, `enrolling`, `filling`, `preconditioning`, `sampling`, `tearing-down`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// False where anything that the plan asked for is missing or incomplete.
    pub complete: bool,
    /// Why the run failed or is incomplete.
    pub reason: Option<String>,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended; none while it goes on.
    pub finished: Option<Timestamp>,
    /// The plan as validated (serialised `plan::TestPlan`).
    pub plan: serde_json::Value,
    /// The plan as written.
    pub plan_yaml: String,
    /// Where it ran: versions, host, seeds, flags the kernel granted, by name.
    pub environment: serde_json::Value,
    /// What the reader of the figures must know.
    pub warnings: Vec<String>,
    /// What happened, in order.
    pub events: Vec<Event>,
}

/// Something that happened during a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When.
    pub at: Timestamp,
    /// `info`, `warning` or `error`.
    pub level: String,
    /// What, for a person.
    pub message: String,
}

/// One footprint × one workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The footprint as asked.
    pub footprint_bytes: u64,
    /// As the plan spells it.
    pub footprint: String,
    /// What was measured: region × workers × disks.
    pub effective_bytes: u64,
    /// The part of each data disk.
    pub region_bytes: u64,
    /// Name of the workload.
    pub workload: String,
    /// Bytes an I/O.
    pub block_bytes: u64,
    /// `random`, `sequential`, `permutation` or `hot-spot`.
    pub pattern: String,
    /// Share of reads, percent.
    pub read_percent: u32,
    /// I/Os in flight a disk.
    pub outstanding_per_disk: u32,
    /// `complete`, `incomplete`, `failed`, `cancelled`, or `running`.
    pub state: String,
    /// Why it is not complete.
    pub reason: Option<String>,
    /// Start of preconditioning.
    pub started: Option<Timestamp>,
    /// End of the window.
    pub finished: Option<Timestamp>,
    /// Fill of this case's footprint: the bytes that were new. The same for each case of the footprint; null with `initialise: none`.
    pub fill: Option<Fill>,
    /// Workers.
    pub workers: WorkerCount,
    /// Seconds that the cluster's figures cover: the window, or the whole seconds common to all workers where the case is incomplete.
    pub window_seconds: f64,
    /// Latest first I/O minus earliest first I/O over the workers, µs, by the clock offsets measured.
    pub start_skew_us: Option<f64>,
    /// Largest change of a worker's clock offset between the start and the end of the case, µs.
    pub clock_drift_us: Option<f64>,
    /// I/Os in flight when the window ended.
    pub unfinished: Unfinished,
    /// Cluster figures, from merged histograms.
    pub ops: Ops,
    /// The cluster by second of the window. A second that a worker is missing from is not in the list.
    pub seconds: Vec<Second>,
    /// The same for preconditioning.
    pub precondition_seconds: Vec<Second>,
    /// Whether preconditioning reached a steady state; null while the case goes on.
    #[serde(default)]
    pub steady_state: Option<SteadyState>,
    /// Each worker.
    pub per_worker: Vec<PerWorker>,
    /// Each data disk.
    pub per_disk: Vec<PerDisk>,
    /// What the reader of these figures must know.
    pub warnings: Vec<String>,
}

/// How the footprint's new bytes were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fill {
    /// Bytes written, all disks.
    pub bytes: u64,
    /// From the first write to the last flush.
    pub seconds: f64,
    /// Random blocks that were read back and found as written, all disks.
    pub verified_blocks: u64,
}

/// Workers of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerCount {
    /// That the plan asked for.
    pub expected: u32,
    /// That the cluster's figures contain.
    pub measured: u32,
}

/// I/Os in flight at the end of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// How many.
    pub count: u64,
    /// Age of the oldest at that time, µs.
    pub oldest_us: Option<f64>,
}

/// Figures by operation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Ops {
    /// Reads.
    pub read: Option<Op>,
    /// Writes.
    pub write: Option<Op>,
    /// Both, merged.
    pub all: Option<Op>,
}

/// Figures of one operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// I/Os that completed well in the window.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// count / seconds.
    pub iops: f64,
    /// bytes / seconds / 2^20.
    pub mib_per_s: f64,
    /// I/Os that failed or were short.
    pub errors: u64,
    /// I/Os slower than 10 minutes: in count, mean and max; percentiles among them are the maximum.
    pub over_range: u64,
    /// Latencies; null where count is 0.
    pub latency_us: Option<Latency>,
}

/// Latencies, µs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Latency {
    pub mean: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p99_9: f64,
    pub p99_99: f64,
    pub max: f64,
}

/// The cluster in one second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Second of the phase, from 0: the figures cover [t, t + 1).
    pub t: u32,
    /// Reads; null without any.
    pub read: Option<SecondOp>,
    /// Writes; null without any.
    pub write: Option<SecondOp>,
}

/// One operation in one second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SecondOp {
    /// I/Os a second.
    pub iops: f64,
    /// MiB a second.
    pub mib_per_s: f64,
    /// Mean latency, µs.
    pub mean_us: f64,
    /// Median latency, µs.
    pub p50_us: f64,
    /// 99th percentile, µs.
    pub p99_us: f64,
    /// Largest latency, µs.
    pub max_us: f64,
}

/// Verdict on the end of preconditioning, by the SNIA window: the last five rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SteadyState {
    /// `achieved`, `not-achieved` or `not-evaluated`.
    pub verdict: String,
    /// Why it was not achieved or not evaluated.
    pub reason: Option<String>,
    /// Length of a round, seconds.
    pub round_seconds: u32,
    /// Mean IOPS (reads and writes) of each of the last five rounds; empty where not evaluated.
    pub round_iops: Vec<f64>,
    /// Mean of the rounds.
    pub mean_iops: Option<f64>,
    /// (largest round - smallest round) / mean, percent; at most 20 where steady.
    pub range_percent: Option<f64>,
    /// Rise or fall of the least-squares line across the rounds / mean, percent; at most 10 where steady.
    pub excursion_percent: Option<f64>,
}

/// One worker's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerWorker {
    /// Name of the worker.
    pub worker: String,
    /// Seconds that its figures cover; differs from the case's where the worker has a window of its own.
    pub window_seconds: f64,
    /// Its figures.
    pub ops: Ops,
}

/// One data disk's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerDisk {
    /// Name of the worker.
    pub worker: String,
    /// Serial of the disk.
    pub disk: String,
    /// Seconds that its figures cover; differs from the case's where the disk has a window of its own.
    pub window_seconds: f64,
    /// Its figures.
    pub ops: Ops,
}
