//! What a job reports: while it runs, and at its end.

use std::time::{Duration, Instant};

use latency_histogram::Latencies;

/// What a running job says, through the channel given to [`crate::Prepared::start`].
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A second of a load job is over on all threads. In order, without gaps, the last one possibly not whole.
    Second(Box<Second>),
    /// A fill's or a read-back's progress, about once a second and at the end.
    Progress {
        /// Bytes written or compared so far, all disks together.
        bytes_done: u64,
        /// Bytes to write or compare.
        bytes_total: u64,
    },
}

/// A part of a load job's time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Before the window.
    Precondition,
    /// Inside the window [T0, T1).
    Sample,
}

/// One second of a load job, all disks together.
#[derive(Debug, Clone, PartialEq)]
pub struct Second {
    /// Which phase the second belongs to.
    pub phase: Phase,
    /// Whole second since the start of that phase, from 0: it covers [index, index + 1).
    pub index: u32,
    /// False where a thread was not loading for the whole second (late start, early end).
    pub whole: bool,
    /// Reads and writes whose completion was reaped in it.
    pub ops: Ops,
    /// The same by disk, in the order of the job's disks.
    pub disks: Vec<DiskSecond>,
}

/// One disk's second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskSecond {
    /// Reads completed.
    pub read_count: u64,
    /// Writes completed.
    pub write_count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Sum of their latencies, ns.
    pub sum_ns: u64,
    /// Largest latency, ns.
    pub max_ns: u64,
    /// Failed or short I/Os.
    pub errors: u64,
}

/// Reads and writes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ops {
    /// Reads.
    pub read: OpTotals,
    /// Writes.
    pub write: OpTotals,
}

/// Count, bytes, errors and latencies of one operation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpTotals {
    /// I/Os that completed in full. Equals `latencies.count()` in load jobs.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// I/Os that failed or were short; in neither `count` nor `latencies`.
    pub errors: u64,
    /// Their latencies; empty in fills and read-backs.
    pub latencies: Latencies,
}

/// The end of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The job did all it was asked, for the whole of its time.
    pub complete: bool,
    /// Why it did not, with disk, offset and the kernel's words.
    pub reason: Option<String>,
    /// The disk that `reason` is about, if it is about one.
    pub failed_disk: Option<String>,
    /// When the first I/O was submitted.
    pub first_io: Option<Instant>,
    /// When the last completion was reaped, those after the window included.
    pub last_completion: Option<Instant>,
    /// Per disk, in the order of the job.
    pub disks: Vec<DiskOutcome>,
    /// CPU time of each engine thread over the window (fill, read-back: over the job), share of one CPU, 0 to 1.
    pub thread_cpu: Vec<f64>,
    /// CPU time of the kernel's io-wq workers over the same time, in CPUs: above 0 where I/O was not done inline.
    pub io_wq_cpu: f64,
    /// Share of the same time that the hypervisor took from this machine's CPUs, 0 to 1; none outside a VM.
    pub steal: Option<f64>,
    /// What the reader of the figures must know.
    pub warnings: Vec<String>,
    /// Those of `warnings` that only judge other fields of this outcome (CPU times, device counters): who judges these does not repeat them.
    pub judgements: Vec<String>,
    /// The first I/Os of each thread, as many as [`crate::Tuning::trace_ios`] asks for, in the order of their completions.
    pub trace: Vec<TracedIo>,
}

/// A single I/O of a load that completed in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedIo {
    /// Index of the disk in the job.
    pub disk: usize,
    /// A read; else a write.
    pub read: bool,
    /// Byte offset on the disk.
    pub offset: u64,
    /// Open loop: intended start; closed loop: submission. Ns since the start of the job, as all times here.
    pub intended_ns: u64,
    /// Submission.
    pub issued_ns: u64,
    /// When its completion was reaped.
    pub completed_ns: u64,
}

/// One disk's part of an outcome.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DiskOutcome {
    /// Name of the disk.
    pub id: String,
    /// Load: exactly the window. Fill and read-back: the whole job, without latencies.
    pub ops: Ops,
    /// Open loop: the same I/Os timed from their submission (service time).
    pub service: Option<Ops>,
    /// Load: I/Os in flight when the window ended.
    pub unfinished: u64,
    /// Age of the oldest of them at that time.
    pub oldest_unfinished: Duration,
    /// Fill: bytes written and flushed. Read-back: bytes compared.
    pub bytes: u64,
    /// Fill and read-back: from the first submission to the end (of the flush).
    pub elapsed: Duration,
    /// Read-back: blocks that were as written.
    pub verified_blocks: u64,
    /// Load: flushes in the window.
    pub flushes: u64,
    /// Errors by kind, of the whole job, preconditioning included.
    pub errors: Vec<IoErrors>,
    /// Times without any completion beyond the threshold, of the whole job.
    pub stalls: Vec<Stall>,
    /// The device's own counters over the window; none for files.
    pub device: Option<DeviceCounters>,
    /// Its requests are not our I/Os: apart by more than [`crate::limits::DEVICE_TOLERANCE`] and what the moments of reading explain.
    pub device_differs: bool,
    /// Open loop: how well it kept its rate in the window.
    pub pacing: Option<Pacing>,
}

/// Errors of one kind on one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoErrors {
    /// `EIO`, `ENOSPC` …, `short` for fewer bytes than asked, `mismatch` for other bytes than written.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// Byte offsets of the first ones, at most [`crate::limits::FIRST_OFFSETS`].
    pub first_offsets: Vec<u64>,
}

/// A time without completions on a disk that had I/O in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Start, ns after the start of the window (negative: during preconditioning).
    pub start_ns: i64,
    /// Length, ns.
    pub length_ns: u64,
}

/// Differences of `/sys/dev/block/*/stat` over the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Read requests completed by the device.
    pub reads: u64,
    /// Reads merged into others before they reached it.
    pub read_merges: u64,
    /// Write requests completed by the device.
    pub writes: u64,
    /// Writes merged into others before they reached it.
    pub write_merges: u64,
}

/// How well an open loop kept its rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pacing {
    /// I/Os whose intended start is in the window.
    pub intended: u64,
    /// Of those, started later than intended by more than [`crate::limits::LATE_NS`].
    pub late: u64,
    /// Of those, not started in the window at all.
    pub missed: u64,
    /// Largest lag behind the intended start, ns.
    pub largest_lag_ns: u64,
}
