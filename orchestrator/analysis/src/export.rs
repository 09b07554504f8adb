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
    /// `planned`, `provisioning`, `enrolling`, `filling`, `preconditioning`, `sampling`, `tearing-down`, `done`, `failed`,
    /// `cancelled` or `stopped`.
    pub state: String,
    /// False where anything that the plan asked for is missing or incomplete.
    pub complete: bool,
    /// Why the run failed or is incomplete.
    pub reason: Option<String>,
    /// Who asked it to end before its plan was through; null where nobody did, and where nothing came of it.
    #[serde(default)]
    pub ended_early: Option<EarlyEnd>,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended; none while it goes on.
    pub finished: Option<Timestamp>,
    /// Its plan was tried at its smallest: what was measured is no result.
    #[serde(default)]
    pub rehearsal: bool,
    /// What the engineer says of it; empty where that is nothing.
    #[serde(default)]
    pub note: String,
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

/// How a run is asked to end before its plan is through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// Once the case that is being measured has its whole result; at once where none is.
    Stop,
    /// At once.
    Cancel,
}

impl How {
    /// The export's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Cancel => "cancel",
        }
    }
}

/// Who asked a run to end before its plan was through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    /// How.
    pub how: How,
    /// Who.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// Cases of the plan that were never begun, in the plan's order, once the run has ended.
    pub not_run: Vec<PlannedCase>,
}

/// A case of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedCase {
    /// The footprint as the plan spells it.
    pub footprint: String,
    /// Name of the workload.
    pub workload: String,
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
    /// I/Os in flight a disk; in an open loop the most that may be.
    pub outstanding_per_disk: u32,
    /// The rest of the workload as asked; null in what was written before it was added.
    #[serde(default)]
    pub options: Option<WorkloadOptions>,
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
    /// Cluster figures, from merged histograms. In an open loop, latency runs from the intended start.
    pub ops: Ops,
    /// Open loop: the same I/Os timed from their submission; null in a closed loop, and where `ops` does not cover the window.
    #[serde(default)]
    pub service: Option<Ops>,
    /// Open loop: how well the rate was kept; null in a closed loop.
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// Whether the load generator may have limited the figures; null where no worker reported its end.
    #[serde(default)]
    pub generator: Option<Generator>,
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
    /// Each host that workers were put on; empty in what was written before it was added.
    #[serde(default)]
    pub per_host: Vec<PerHost>,
    /// Hosts and storage during the case, about every 10 s; none where the place cannot tell.
    #[serde(default)]
    pub hosts: Vec<HostSample>,
    /// What the reader of these figures must know.
    pub warnings: Vec<String>,
}

/// Hosts and storage at one moment of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Seconds after the start of the window; negative in preconditioning.
    pub t: f64,
    /// Hosts in use, by name.
    pub hosts: Vec<HostLoad>,
    /// Health of the storage cluster; null where there is none, or it did not answer.
    pub storage: Option<StorageHealth>,
}

/// A host's load, as the place tells it; null where it does not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostLoad {
    /// Name.
    pub host: String,
    /// Share of its CPUs in use.
    pub cpu_percent: Option<f64>,
    /// Memory in use.
    pub memory_used_bytes: Option<u64>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Share of time that some task waited for I/O (pressure stall information).
    pub io_pressure_percent: Option<f64>,
    /// Share of time that CPUs were idle for I/O.
    pub io_wait_percent: Option<f64>,
}

/// Health of a storage cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StorageHealth {
    /// In its own words (`HEALTH_OK`).
    pub status: String,
    /// Names of the checks that are raised, sorted.
    pub checks: Vec<String>,
    /// Recovery traffic.
    pub recovery_bytes_per_second: u64,
    /// Share of objects degraded or misplaced.
    pub displaced_percent: f64,
    /// Placement groups being scrubbed.
    pub scrubbing: u64,
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
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
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

/// What a workload asks for beside block, pattern, mix and outstanding I/Os.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadOptions {
    /// Sequential streams a disk; null with another pattern.
    pub streams: Option<u32>,
    /// Where the hot spot is; null with another pattern.
    pub hot_spot: Option<HotSpot>,
    /// The part of each region that is used; null is all of it.
    pub range: Option<RegionRange>,
    /// Offsets are multiples of it; null is the block.
    pub align_bytes: Option<u64>,
    /// Open loop; null is a closed loop.
    pub rate: Option<Rate>,
    /// Size / compressed size of what is written.
    pub compression_ratio: f64,
    /// Blocks / distinct blocks of what is written.
    pub duplication_ratio: f64,
    /// Flush after so many writes of an engine thread to a disk; null is never.
    pub flush_every_writes: Option<u32>,
    /// `stop`, `continue` or `stop-after-N`.
    pub on_error: String,
    /// No completion for longer than this on a disk with I/O in flight is a stall.
    pub stall_seconds: u32,
}

/// A hot spot.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HotSpot {
    /// Share of the I/Os that go to it, percent.
    pub io_percent: f64,
    /// Share of the range that it is, percent, from the start of the range.
    pub space_percent: f64,
}

/// A part of each region.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RegionRange {
    /// Start, percent of the region.
    pub from_percent: f64,
    /// End, percent of the region.
    pub to_percent: f64,
}

/// An open loop's rate as asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// I/Os a second.
    pub iops: f64,
    /// `disk` or `worker`: of what.
    pub per: String,
    /// Exponential gaps (Poisson arrivals); else equal ones.
    pub poisson: bool,
}

/// How well an open loop kept its rate over the window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pacing {
    /// I/Os a second that were asked for.
    pub asked_iops: f64,
    /// I/Os whose intended start is in the window.
    pub intended: u64,
    /// Of those, started more than 100 µs later than intended.
    pub late: u64,
    /// Of those, not started in the window at all.
    pub missed: u64,
    /// Largest lag behind the intended start, µs.
    pub largest_lag_us: f64,
}

/// Whether the load generator may have limited a case's figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Generator {
    /// There is a finding.
    pub may_limit: bool,
    /// What was beyond its limit.
    pub findings: Vec<GeneratorFinding>,
}

/// One reason why the load generator may have limited the figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GeneratorFinding {
    /// Name of the worker.
    pub worker: String,
    /// `thread-cpu`, `steal` or `io-wq`.
    pub kind: String,
    /// The engine thread, from 0; null for what concerns the whole worker.
    pub thread: Option<u32>,
    /// `thread-cpu`: share of one CPU; `steal`: share of the worker's CPU time; `io-wq`: CPUs.
    pub value: f64,
}

/// What a worker's load generator used over the window.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GeneratorUse {
    /// CPU time of each engine thread, share of one CPU.
    pub thread_cpu: Vec<f64>,
    /// CPU time of the kernel's io-wq workers, CPUs.
    pub io_wq_cpu: f64,
    /// Share of the worker's CPU time that the hypervisor took; null outside a VM.
    pub steal: Option<f64>,
}

/// Errors of one kind on one disk, preconditioning included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoErrors {
    /// `EIO`, `ENOSPC` …, `short` for fewer bytes than asked.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Byte offsets of the first ones.
    pub first_offsets: Vec<u64>,
}

/// A time without completions on a disk that had I/O in flight.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stall {
    /// Start, seconds after the start of the window; negative in preconditioning.
    pub start_seconds: f64,
    /// Length, seconds.
    pub length_seconds: f64,
}

/// The device's own counters over the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Read requests that it completed.
    pub reads: u64,
    /// Reads merged into others before they reached it.
    pub read_merges: u64,
    /// Write requests that it completed.
    pub writes: u64,
    /// Writes merged into others before they reached it.
    pub write_merges: u64,
    /// The requests are not the I/Os: apart by more than 0.1 %.
    pub differs: bool,
}

/// How a disk was set in the case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Path on the worker.
    pub path: String,
    /// `block` or `file`; null where the worker does not say.
    pub kind: Option<String>,
    /// Engine threads that drove it.
    pub threads: u32,
    /// O_DIRECT was in force.
    pub direct: bool,
    /// I/O scheduler; this and what follows is null for files.
    pub scheduler: Option<String>,
    /// 0 all merges, 1 simple ones, 2 none.
    pub nomerges: Option<u32>,
    /// Requests that the queue holds.
    pub nr_requests: Option<u32>,
    /// Largest request, KiB.
    pub max_sectors_kb: Option<u32>,
    /// Polled queues; null where there are none.
    pub poll_queues: Option<u32>,
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
    /// As the case's.
    #[serde(default)]
    pub service: Option<Ops>,
    /// As the case's.
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// What its load generator used; null where it did not report its end.
    #[serde(default)]
    pub generator: Option<GeneratorUse>,
}

/// The figures of the workers on one host, from their disks' merged histograms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PerHost {
    /// Name of the host; null where the place has one host.
    pub host: Option<String>,
    /// Workers of the case that were put on it.
    pub placed: u32,
    /// Of those, the ones that the figures contain: each covers the whole window.
    pub measured: u32,
    /// Seconds that the figures cover.
    pub window_seconds: f64,
    /// Their figures together.
    pub ops: Ops,
}

/// One data disk's figures.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PerDisk {
    /// Name of the worker.
    pub worker: String,
    /// Serial of the disk.
    pub disk: String,
    /// Seconds that its figures cover; differs from the case's where the disk has a window of its own.
    pub window_seconds: f64,
    /// Its figures.
    pub ops: Ops,
    /// As the case's.
    #[serde(default)]
    pub service: Option<Ops>,
    /// As the case's.
    #[serde(default)]
    pub pacing: Option<Pacing>,
    /// I/Os in flight when the window ended.
    #[serde(default)]
    pub unfinished: Unfinished,
    /// Flushes in the window.
    #[serde(default)]
    pub flushes: u64,
    /// Errors by kind, preconditioning included.
    #[serde(default)]
    pub io_errors: Vec<IoErrors>,
    /// Times without completions, preconditioning included.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The device's own counters; null for files.
    #[serde(default)]
    pub device: Option<Device>,
    /// How the disk was set; null where the worker did not say.
    #[serde(default)]
    pub settings: Option<DiskSettings>,
}

impl PerDisk {
    /// Something is to be told of it beside its figures: errors, stalls, or requests that are not its I/Os.
    #[must_use]
    pub fn has_incident(&self) -> bool {
        !self.io_errors.is_empty() || !self.stalls.is_empty() || self.device.is_some_and(|device| device.differs)
    }
}
