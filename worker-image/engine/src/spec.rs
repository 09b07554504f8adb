//! What a job is to do: plain data, checked by [`crate::prepare`].

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// A job: what to do with which disks.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Disks to use; nothing else is opened for I/O.
    pub disks: Vec<DiskSpec>,
    /// Engine threads, 1 to [`crate::limits::MAX_THREADS`]. Fewer are started where there is not work for all of them.
    pub threads: u32,
    /// What to do.
    pub work: Work,
    /// Seed of everything random in the job (offsets, mix, arrival times, data of load writes).
    pub seed: u64,
    /// The kernel is the engine's own (a worker VM): scheduler `none` and `nomerges=2` are set on block devices, and threads are pinned.
    pub own_kernel: bool,
    /// How the engine drives the kernel; [`Tuning::default`] for measurements.
    pub tuning: Tuning,
}

/// A disk (block device or regular file) and the part of it to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpec {
    /// Name of the disk in results and errors (its serial).
    pub id: String,
    /// Device or file path.
    pub path: PathBuf,
    /// Exact size that it must have, bytes.
    pub size_bytes: u64,
    /// Bytes of it that the job may touch.
    pub region: Range<u64>,
    /// Seed of the bytes that a fill writes; a read-back with the same seed expects the same bytes.
    pub data_seed: u64,
}

/// Kinds of job.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// Write every byte of each region once, then flush.
    Fill(FillSpec),
    /// Read random blocks of filled regions and compare them with what a fill writes.
    Verify(VerifySpec),
    /// Apply a workload: preconditioning, then the window, without a pause.
    Load(LoadSpec),
}

/// What a fill writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillSpec {
    /// Bytes a write; the last one of a region is shorter where need be.
    pub block_bytes: u64,
    /// Writes in flight a disk.
    pub outstanding: u32,
    /// Zeros in place of incompressible, never-zero data.
    pub zero: bool,
}

impl Default for FillSpec {
    fn default() -> Self {
        Self { block_bytes: 1 << 20, outstanding: 8, zero: false }
    }
}

/// What a read-back compares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifySpec {
    /// Random blocks a disk, each at most once; fewer where the region has fewer.
    pub blocks: u32,
    /// Bytes a block.
    pub block_bytes: u64,
    /// The fill wrote zeros.
    pub zero: bool,
}

/// A workload and its times. The window starts exactly `precondition_seconds` after the start of the job.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadSpec {
    /// The shape of the I/O.
    pub workload: Workload,
    /// Preconditioning, whole seconds.
    pub precondition_seconds: u32,
    /// The window, whole seconds.
    pub sample_seconds: u32,
}

/// The shape of the I/O.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Bytes an I/O.
    pub block_bytes: u64,
    /// Where the I/Os go.
    pub pattern: Pattern,
    /// Part of the region that is used, bytes from its start; none is all of it.
    pub sub_range: Option<Range<u64>>,
    /// Offsets are multiples of this many bytes from the start of the (sub-)range; none is `block_bytes`.
    pub align_bytes: Option<u64>,
    /// Share of reads, percent, 0 to 100.
    pub read_percent: u32,
    /// Closed loop: I/Os kept in flight a disk. Open loop: the most in flight a disk.
    pub outstanding: u32,
    /// None is a closed loop.
    pub rate: Option<Rate>,
    /// Original size / compressed size of the data written, 1.0 to [`crate::limits::MAX_RATIO`]; 1.0 is incompressible, 2.0 compresses to half.
    pub compression_ratio: f64,
    /// Blocks written / distinct blocks among them, 1.0 to [`crate::limits::MAX_RATIO`]; 1.0 is all distinct, 2.0 is every other one a copy.
    pub duplication_ratio: f64,
    /// Flush (fdatasync) after this many writes of a thread to a disk.
    pub flush_every_writes: Option<u32>,
    /// What to do after an error.
    pub on_error: OnError,
    /// No completion for longer than this on a disk with I/O in flight is a stall.
    pub stall_threshold: Duration,
}

impl Default for Workload {
    /// 4 KiB uniform random reads, one outstanding, closed loop.
    fn default() -> Self {
        Self {
            block_bytes: 4096,
            pattern: Pattern::Random,
            sub_range: None,
            align_bytes: None,
            read_percent: 100,
            outstanding: 1,
            rate: None,
            compression_ratio: 1.0,
            duplication_ratio: 1.0,
            flush_every_writes: None,
            on_error: OnError::Stop,
            stall_threshold: crate::limits::STALL_THRESHOLD,
        }
    }
}

/// Where the I/Os of a disk go.
#[derive(Debug, Clone, PartialEq)]
pub enum Pattern {
    /// Uniform random blocks of the range.
    Random,
    /// Ascending blocks in `streams` equal parts of the range, taken in turn, each around again at its end.
    Sequential {
        /// Streams a disk.
        streams: u32,
    },
    /// Each block of the range exactly once in a random order, then again in another order. Blocks do not overlap, also where
    /// `align_bytes` is less than a block.
    Permutation,
    /// `io_percent` of the I/Os go to the first `space_percent` of the range, the others to the rest.
    HotSpot {
        /// Share of the I/Os, percent, 0 to 100.
        io_percent: f64,
        /// Share of the range, percent, above 0 and below 100.
        space_percent: f64,
    },
}

/// An open loop's rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Rate {
    /// I/Os a second.
    pub iops: f64,
    /// `iops` is for each disk; else for the job, divided evenly among its disks.
    pub per_disk: bool,
    /// Exponential gaps (Poisson arrivals); else equal ones.
    pub poisson: bool,
}

/// What to do after a failed or short I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnError {
    /// End the job.
    #[default]
    Stop,
    /// Count it and go on.
    Continue,
    /// Go on until the job has this many.
    StopAfter {
        /// Errors of the job, all disks together.
        errors: u64,
    },
}

/// How the engine drives the kernel. The defaults are what measurements use; the rest serves benches and tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Completions handled before their slots are issued again, 1 to [`crate::limits::MAX_REISSUE_BATCH`].
    pub reissue_batch: u32,
    /// Read the clock at every completion rather than once for the completions reaped together.
    pub stamp_each: bool,
    /// Pin threads to CPUs; none pins where the kernel is the engine's own.
    pub pin: Option<bool>,
    /// Issue no-ops in place of reads and writes: measures the engine itself.
    pub nop: bool,
    /// Accept character devices (`/dev/zero`, `/dev/null`) as disks of the size given.
    pub character_devices: bool,
    /// First rung of the set-up ladder that is tried (0 is the best): shows that the others work, too.
    pub first_rung: u32,
    /// Register buffers with the kernel.
    pub register_buffers: bool,
    /// Open with O_DIRECT where the file system can; false measures through the page cache.
    pub direct: bool,
    /// Keep this many single I/Os a thread in [`crate::Outcome::trace`]; 48 bytes each.
    pub trace_ios: u32,
    /// How long I/Os in flight at the end are waited for before they are cancelled.
    pub drain_limit: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            reissue_batch: crate::limits::REISSUE_BATCH,
            stamp_each: false,
            pin: None,
            nop: false,
            character_devices: false,
            first_rung: 0,
            register_buffers: true,
            direct: true,
            trace_ios: 0,
            drain_limit: crate::limits::DRAIN_LIMIT,
        }
    }
}
