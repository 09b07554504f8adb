use serde::{Deserialize, Serialize};

/// What a worker says. See [`OrchestratorMessage`] for the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkerMessage {
    /// First message of a session.
    Hello(Hello),
    /// Answer to [`OrchestratorMessage::ClockProbe`], sent at once.
    ClockReply(ClockReply),
    /// The job's devices are open, its memory is registered and it waits for [`OrchestratorMessage::StartAt`].
    Ready(Ready),
    /// The job cannot start or has ended with an error; nothing of it goes on.
    Failed(Failed),
    /// A fill's or a read-back's progress, about once a second; not acknowledged.
    Progress(Progress),
    /// One second of a load job; kept and re-sent until acknowledged.
    Sample(Sample),
    /// The job is over (also after Stop); re-sent until acknowledged.
    Finished(Finished),
}

/// What the orchestrator says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OrchestratorMessage {
    /// The worker belongs to the fleet.
    Welcome(Welcome),
    /// The worker does not; the session ends after this message.
    Reject(Reject),
    /// Asks for the worker's clock; answered by [`WorkerMessage::ClockReply`] at once.
    ClockProbe(ClockProbe),
    /// Opens devices and prepares a job; answered by Ready or Failed.
    Prepare(Prepare),
    /// Starts a prepared job at the given time on the worker's own clock.
    StartAt(StartAt),
    /// Samples of the job with `number <= up_to` are stored; the worker forgets them.
    SampleAck(SampleAck),
    /// The job's Finished or Failed is stored; the worker forgets the job.
    JobAck(JobAck),
    /// Ends the job early; what was measured is reported by Finished.
    Stop(JobRef),
    /// Drops the job without a report.
    Abort(JobRef),
    /// The fleet is torn down: end the process.
    Shutdown,
}

/// Who the worker is and what it has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::PROTOCOL_VERSION`] of the worker.
    pub protocol_version: u32,
    /// The fleet's enrolment token.
    pub token: String,
    /// Identity given at creation: SMBIOS UUID of a VM (its first three fields in either byte order), the id given to a process. Empty
    /// where the machine has none and is known by its MAC addresses.
    pub uuid: String,
    /// MAC addresses of a machine, lower case with colons; empty for a process.
    #[serde(default)]
    pub macs: Vec<String>,
    /// Changes with each start of the agent's process: a worker that came back with another one has lost its job.
    pub boot_id: String,
    /// Version of the agent's program.
    pub agent_version: String,
    /// `uname -r`.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Disks that the worker may use.
    pub disks: Vec<DiskInfo>,
    /// `disks` are all disks of the machine, found by the worker itself (a VM); else those that it was given.
    #[serde(default)]
    pub every_disk: bool,
    /// The job the worker still holds from an earlier session, if any.
    #[serde(default)]
    pub activity: Option<Activity>,
}

/// A disk as the worker sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskInfo {
    /// Serial; where the disk has none, `scsi-` and its SCSI address, or its kernel name.
    pub serial: String,
    /// `CONTROLLER:CHANNEL:TARGET:LUN` of a SCSI disk, controllers counted from 0 among those that carry disks.
    #[serde(default)]
    pub scsi_address: Option<String>,
    /// Device or file path on the worker.
    pub path: String,
    /// Exact size, bytes.
    pub size_bytes: u64,
    /// Logical block size, bytes: the smallest direct transfer.
    pub logical_block_bytes: u32,
    /// Opened with O_DIRECT; false where the file system refuses it.
    pub direct: bool,
    /// `block` or `file`.
    pub kind: DiskKind,
    /// Why the disk must not be written (mounted, partitioned, held), if so.
    #[serde(default)]
    pub in_use: Option<String>,
}

/// Block device or regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskKind {
    /// A block device.
    Block,
    /// A regular file.
    File,
}

/// What the worker was doing when it last heard from the orchestrator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The job held.
    pub job: u64,
    /// Whether it has ended.
    pub finished: bool,
    /// First sample number not yet acknowledged.
    pub next_unacknowledged: u64,
}

/// Answer to a clock probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReply {
    /// Number of the probe.
    pub probe: u64,
    /// The worker's clock when it answered.
    pub worker_ns: u64,
    /// MTU of the way to the orchestrator as the worker's kernel knows it, bytes; none where it does not tell. It comes with the first
    /// clock reply because it is final only once the padded Hello got through: a router that cannot pass it on lowers it.
    #[serde(default)]
    pub path_mtu_bytes: Option<u32>,
}

/// A job that is ready to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// The job.
    pub job: u64,
    /// What the engine was granted; stored with the run.
    pub engine: EngineReport,
}

/// What the kernel granted the engine and how the disks are set, read at preparation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineReport {
    /// Engine threads.
    pub threads: u32,
    /// io_uring set-up flags granted, by name.
    #[serde(default)]
    pub granted: Vec<String>,
    /// Features refused, each with the kernel's reason.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Clock source of latencies.
    #[serde(default)]
    pub clock_source: String,
    /// Locked-memory limit, bytes; none where unlimited.
    #[serde(default)]
    pub memlock_bytes: Option<u64>,
    /// Buffer memory of all threads, bytes.
    #[serde(default)]
    pub buffer_bytes: u64,
    /// Settings of each disk.
    #[serde(default)]
    pub disks: Vec<DiskSettings>,
    /// What the reader of a figure must know (no O_DIRECT, memory not locked …).
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// A disk's settings; a file has no queue, so none of its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskSettings {
    /// Serial of the disk.
    pub serial: String,
    /// Path on the worker.
    pub path: String,
    /// Block device or file.
    #[serde(default)]
    pub kind: Option<DiskKind>,
    /// Engine threads that drive it.
    #[serde(default)]
    pub threads: u32,
    /// O_DIRECT in force.
    pub direct: bool,
    /// I/O scheduler in use.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// `nomerges` setting: 0 all merges, 1 simple ones, 2 none.
    #[serde(default)]
    pub nomerges: Option<u32>,
    /// Requests the queue holds.
    #[serde(default)]
    pub nr_requests: Option<u32>,
    /// Largest request, KiB.
    #[serde(default)]
    pub max_sectors_kb: Option<u32>,
    /// Polled queues.
    #[serde(default)]
    pub poll_queues: Option<u32>,
}

/// A job that did not start or broke off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The job.
    pub job: u64,
    /// Serial of the disk concerned, where there is one.
    #[serde(default)]
    pub disk: Option<String>,
    /// What happened, for a person, with the kernel's words.
    pub error: String,
}

/// How far a fill or a read-back is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The job.
    pub job: u64,
    /// Bytes done over all disks of the worker.
    pub bytes_done: u64,
    /// Bytes to do.
    pub bytes_total: u64,
}

/// Count, bytes and latencies of one operation (reads or writes) over some time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OpTotals {
    /// I/Os that completed well.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that failed or were short; they are not in `count` nor in the latencies.
    pub errors: u64,
    /// Sum of the latencies, ns.
    pub sum_ns: u64,
    /// Smallest latency, ns; 0 where count is 0.
    pub min_ns: u64,
    /// Largest latency, ns; exact, also where it is beyond the histogram.
    pub max_ns: u64,
    /// I/Os slower than the histogram's highest value: in `count` and `sum_ns`, not in the histogram.
    pub over_range: u64,
    /// HdrHistogram V2 deflate; empty where count is 0.
    #[serde(with = "serde_bytes")]
    pub histogram: Vec<u8>,
}

/// Reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ops {
    /// Reads.
    pub read: OpTotals,
    /// Writes.
    pub write: OpTotals,
}

/// A part of a load job's time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the window.
    Precondition,
    /// Inside the window [T0, T1).
    Sample,
}

/// One second of a load job, all disks of the worker together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The job.
    pub job: u64,
    /// Number of the sample within the job, from 0, without gaps.
    pub number: u64,
    /// Which phase the second belongs to.
    pub phase: Phase,
    /// Whole second since the start of that phase, from 0: it covers [second, second + 1).
    pub second: u32,
    /// False where the worker was not loading for the whole second.
    pub whole: bool,
    /// Reads and writes that completed in it.
    pub ops: Ops,
    /// The same by disk, without histograms; the order of Prepare's disks.
    #[serde(default)]
    pub disks: Vec<DiskSecond>,
}

/// One disk's second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSecond {
    /// Reads completed.
    pub read_count: u64,
    /// Writes completed.
    pub write_count: u64,
    /// Sum of their latencies, ns.
    pub sum_ns: u64,
    /// Largest latency, ns.
    pub max_ns: u64,
    /// Failed or short I/Os.
    pub errors: u64,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    /// The job.
    pub job: u64,
    /// When the first I/O was submitted.
    pub started_worker_ns: u64,
    /// When the last I/O of the job was reaped.
    pub ended_worker_ns: u64,
    /// False where the job was stopped before its end.
    pub complete: bool,
    /// Why it was not complete, if so.
    #[serde(default)]
    pub reason: Option<String>,
    /// Per disk, in the order of Prepare.
    pub disks: Vec<DiskFinished>,
    /// CPU time each engine thread used over the window, share of one CPU (0 to 1).
    #[serde(default)]
    pub thread_cpu: Vec<f64>,
    /// Share of the window that the hypervisor took from the worker's CPUs (0 to 1); none outside a VM.
    #[serde(default)]
    pub steal: Option<f64>,
    /// CPU time of the kernel's io-wq workers over the window, in CPUs: above 0 where I/O was not done inline.
    #[serde(default)]
    pub io_wq_cpu: f64,
    /// What the reader of the figures must know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// One disk's part of a finished job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskFinished {
    /// Serial of the disk.
    pub serial: String,
    /// Load: exactly the window. Fill and read-back: the whole job, without histograms.
    pub ops: Ops,
    /// Open loop: the same I/Os timed from their submission (service time).
    #[serde(default)]
    pub service: Option<Ops>,
    /// I/Os in flight when the window ended.
    #[serde(default)]
    pub unfinished: u64,
    /// Age of the oldest of them at that time, ns.
    #[serde(default)]
    pub oldest_unfinished_ns: u64,
    /// Fill: bytes written and flushed. Read-back: bytes compared.
    #[serde(default)]
    pub bytes: u64,
    /// Fill and read-back: the time it took, ns.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// Read-back: blocks that were as written.
    #[serde(default)]
    pub verified_blocks: u64,
    /// Load: flushes in the window.
    #[serde(default)]
    pub flushes: u64,
    /// Errors by kind, of the whole job, preconditioning included.
    #[serde(default)]
    pub errors: Vec<IoErrors>,
    /// Times without any completion beyond the stall threshold, of the whole job.
    #[serde(default)]
    pub stalls: Vec<Stall>,
    /// The device's own counters over the window; none for files.
    #[serde(default)]
    pub device: Option<DeviceCounters>,
    /// Open loop: I/Os that started late, were never started, and the largest lag.
    #[serde(default)]
    pub pacing: Option<Pacing>,
}

/// Errors of one kind on one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoErrors {
    /// `EIO`, `ENOSPC`, `short`, `mismatch` …
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Byte offsets of the first ones.
    #[serde(default)]
    pub first_offsets: Vec<u64>,
}

/// A time without completions on a disk that had I/O in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stall {
    /// Start, ns after the start of the window (negative: during preconditioning).
    pub start_ns: i64,
    /// Length, ns.
    pub length_ns: u64,
}

/// Differences of `/sys/block/*/stat` over the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Read requests completed by the device.
    pub reads: u64,
    /// Reads merged into others before they reached it.
    pub read_merges: u64,
    /// Write requests completed by the device.
    pub writes: u64,
    /// Writes merged into others before they reached it.
    pub write_merges: u64,
    /// The requests are not our I/Os: apart by more than 0.1 % and what the moments of reading explain.
    #[serde(default)]
    pub differs: bool,
}

/// How well an open loop kept its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pacing {
    /// I/Os that should have started in the window.
    pub intended: u64,
    /// Started later than intended by more than the engine's own resolution.
    pub late: u64,
    /// Not started in the window at all.
    pub missed: u64,
    /// Largest lag behind the intended start, ns.
    pub largest_lag_ns: u64,
}

/// The orchestrator takes the worker in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::PROTOCOL_VERSION`] of the orchestrator.
    pub protocol_version: u32,
    /// Name of the worker in the run.
    pub worker: String,
}

/// The orchestrator refuses the worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reject {
    /// [`crate::PROTOCOL_VERSION`] of the orchestrator.
    pub protocol_version: u32,
    /// Why, for a person.
    pub reason: String,
    /// True where trying again cannot help.
    pub permanent: bool,
}

/// Asks for the worker's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockProbe {
    /// Number of the probe.
    pub probe: u64,
}

/// A job for a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prepare {
    /// Identity of the job within the run, never used twice.
    pub job: u64,
    /// Disks to use; any other is left alone.
    pub disks: Vec<DiskAssignment>,
    /// What to do with them.
    pub work: Work,
    /// Seed of everything random in the job.
    pub seed: u64,
}

/// A disk assigned to a worker, and the part of it to use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskAssignment {
    /// The orchestrator's name of the disk: its serial where it could be set, and the name in all reports of the job.
    pub serial: String,
    /// SCSI address (as [`DiskInfo::scsi_address`]) by which it is found where no disk has that serial.
    #[serde(default)]
    pub scsi_address: Option<String>,
    /// Exact size that the disk must have, bytes.
    pub size_bytes: u64,
    /// First byte of the region used by the job.
    pub region_start: u64,
    /// Length of the region, bytes.
    pub region_bytes: u64,
    /// Seed of the bytes that a fill writes to this disk; the same for every job of a deployment.
    pub data_seed: u64,
}

/// Kinds of job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Write every byte of the region once, then flush.
    Fill(Fill),
    /// Read random blocks of a filled region and compare them with what the fill wrote.
    Verify(Verify),
    /// Apply a workload: preconditioning, then the window, without a pause.
    Load(Load),
}

/// What a fill writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fill {
    /// Bytes a write.
    pub block_bytes: u64,
    /// Writes in flight a disk.
    pub outstanding_per_disk: u32,
    /// Zeros in place of incompressible, never-zero data.
    pub zero: bool,
}

/// What a read-back compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {
    /// Random blocks a disk; each once, fewer where the region is smaller.
    pub blocks_per_disk: u32,
    /// Bytes a block.
    pub block_bytes: u64,
    /// The fill wrote zeros.
    pub zero: bool,
}

/// A workload and its times. The window starts exactly `precondition_seconds` after the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// What to do.
    pub workload: WorkloadSpec,
    /// Preconditioning, whole seconds.
    pub precondition_seconds: u32,
    /// Window, whole seconds.
    pub sample_seconds: u32,
}

/// The shape of the I/O.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkloadSpec {
    /// Bytes an I/O.
    pub block_bytes: u64,
    /// Where the I/Os go.
    pub pattern: Pattern,
    /// Part of the region that is used; none is all of it.
    #[serde(default)]
    pub sub_range: Option<SubRange>,
    /// Offsets are multiples of this many bytes from the start of the (sub-)range; none is `block_bytes`.
    #[serde(default)]
    pub align_bytes: Option<u64>,
    /// Share of reads, percent (0 to 100).
    pub read_percent: u32,
    /// Closed loop: I/Os kept in flight a disk. Open loop: the most in flight a disk.
    pub outstanding_per_disk: u32,
    /// None is a closed loop.
    #[serde(default)]
    pub rate: Option<Rate>,
    /// Original size / compressed size of the data written (1.0 is incompressible).
    #[serde(default = "one")]
    pub compression_ratio: f64,
    /// Blocks written / distinct blocks among them (1.0 is all distinct).
    #[serde(default = "one")]
    pub duplication_ratio: f64,
    /// Flush after this many writes a disk.
    #[serde(default)]
    pub flush_every_writes: Option<u32>,
    /// What to do after an error.
    #[serde(default)]
    pub on_error: OnError,
    /// No completion for longer than this on a disk with I/O in flight is a stall, ms; none leaves it to the engine (1 s).
    #[serde(default)]
    pub stall_threshold_ms: Option<u32>,
}

/// A part of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubRange {
    /// First byte, from the start of the region.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
}

fn one() -> f64 {
    1.0
}

/// Where the I/Os of a disk go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Pattern {
    /// Uniform random blocks of the region.
    Random,
    /// Ascending blocks in `streams` equal parts of the region, around again at the end.
    Sequential {
        /// Streams a disk.
        streams: u32,
    },
    /// Each block of the region exactly once in a random order, then in another.
    Permutation,
    /// `io_percent` of the I/Os go to the first `space_percent` of the region.
    HotSpot {
        /// Share of the I/Os, percent.
        io_percent: f64,
        /// Share of the region, percent.
        space_percent: f64,
    },
}

/// An open loop's rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// I/Os a second.
    pub iops: f64,
    /// `iops` is for each disk; else for the worker, divided evenly among its disks.
    pub per_disk: bool,
    /// Exponential gaps (Poisson arrivals); else equal ones.
    pub poisson: bool,
}

/// What a worker does after a failed I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum OnError {
    /// End the job.
    #[default]
    Stop,
    /// Count it and go on.
    Continue,
    /// Go on until this many.
    StopAfter {
        /// Errors of the worker.
        errors: u64,
    },
}

/// Start of a prepared job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartAt {
    /// The job.
    pub job: u64,
    /// When, on the worker's own clock.
    pub worker_ns: u64,
}

/// Samples that are stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleAck {
    /// The job.
    pub job: u64,
    /// Highest number stored; all before it are, too.
    pub up_to: u64,
}

/// A job's end is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAck {
    /// The job.
    pub job: u64,
}

/// Names a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// The job.
    pub job: u64,
}
