//! Every bound of the engine, with its reason and what happens beyond it.

use std::time::Duration;

/// Engine threads of a job: more than any worker VM has CPUs. Beyond it, the job is refused.
pub const MAX_THREADS: u32 = 256;

/// Disks of a job: twice what a hypervisor attaches to one VM. Beyond it, the job is refused.
pub const MAX_DISKS: usize = 128;

/// I/Os in flight a disk: the kernel's largest NVMe queue. Beyond it, the job is refused.
pub const MAX_OUTSTANDING: u32 = 4096;

/// Bytes an I/O: the most that Linux moves in one request of a fast device is below it. Beyond it, the job is refused.
pub const MAX_BLOCK_BYTES: u64 = 64 << 20;

/// Smallest I/O and smallest alignment, bytes: a sector.
pub const MIN_BLOCK_BYTES: u64 = 512;

/// Buffer memory of one thread: what a small worker VM can spare. Beyond it, the job is refused.
pub const MAX_ARENA_BYTES: u64 = 2 << 30;

/// Slots of one ring: half of the kernel's largest completion queue. Beyond it, the job is refused.
pub const MAX_SLOTS: u32 = 32_768;

/// Streams a disk. Beyond it, the job is refused.
pub const MAX_STREAMS: u32 = 4096;

/// Compression and duplication ratio: beyond it, a block would have no incompressible part left.
pub const MAX_RATIO: f64 = 100.0;

/// I/Os a second of an open loop: beyond what any device answers. Beyond it, the job is refused.
pub const MAX_IOPS: f64 = 10_000_000.0;

/// I/Os a second of a thread's part in a disk: the next one would be due after the longest window. Below it, the job is refused.
pub const MIN_IOPS: f64 = 1e-6;

/// Precondition and window, seconds each: a week. Beyond it, the job is refused.
pub const MAX_SECONDS: u32 = 7 * 24 * 3600;

/// Completions handled before their slots are issued again. Handling all that were reaped before issuing any lets the
/// device run dry (12 to 18 % fewer IOPS at 32 outstanding on virtio); one at a time costs a system call each. Measured there
/// with 4K random writes at 32 outstanding: 1 and 2 keep fio's IOPS, 2 with a tenth less CPU; 4 loses 4 %, 8 loses 9 %.
pub const REISSUE_BATCH: u32 = 2;

/// Largest re-issue batch that a [`crate::Tuning`] may ask for.
pub const MAX_REISSUE_BATCH: u32 = 256;

/// The longest that the engine waits in the kernel at once: how late it notices Stop, a stall or the end of a second.
pub const WAIT_LIMIT: Duration = Duration::from_millis(100);

/// No completion for longer than this on a disk with I/O in flight is a stall.
pub const STALL_THRESHOLD: Duration = Duration::from_secs(1);

/// Stalls kept a thread and disk; further ones are counted in a warning.
pub const MAX_STALLS: usize = 256;

/// How long I/Os in flight at the end of a job are waited for. Beyond it they are cancelled.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long cancelled I/Os are waited for. Beyond it, their ring and memory are left to the kernel, and the outcome says so.
pub const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// How long past all its limits an engine thread may take to report. Beyond it, it hangs in the kernel and is left behind.
pub const THREAD_GRACE: Duration = Duration::from_secs(5);

/// How long a disk's queue settings may take to be set: the kernel waits for the disk's I/Os in flight. Beyond it, preparation fails.
pub const QUEUE_SET_LIMIT: Duration = Duration::from_secs(10);

/// How long the disks' queue settings may take to be put back. Beyond it, that is left to the kernel, and the outcome says so.
pub const PUT_BACK_LIMIT: Duration = Duration::from_secs(2);

/// The longest time without any completion (a flush included) in a fill or read-back. Beyond it the job fails.
pub const NO_PROGRESS_LIMIT: Duration = Duration::from_secs(600);

/// Reads in flight a disk in a read-back.
pub const VERIFY_OUTSTANDING: u32 = 8;

/// How long the threads may take to open, allocate and register. Beyond it, preparation fails.
pub const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// A thread whose first I/O is later than this after the agreed start makes its first second not whole.
pub const LATE_START: Duration = Duration::from_millis(100);

/// An open loop's I/O is late if it starts later than this after its intended start: what a timer and a system call may take.
pub const LATE_NS: u64 = 100_000;

/// An open loop polls rather than sleeps when the next intended start is nearer than this: a timer would wake too late.
pub const SPIN_NS: u64 = 60_000;

/// Single I/Os kept a thread: about 200 MB. Beyond it, the job is refused.
pub const MAX_TRACED_IOS: u32 = 4_000_000;

/// Different error kinds kept a thread and disk; further kinds are counted as `other`.
pub const MAX_ERROR_KINDS: usize = 16;

/// Offsets kept of the first errors of a kind.
pub const FIRST_OFFSETS: usize = 8;

/// Seconds that a thread may have delivered and the collector not taken, and seconds that may wait for a slower thread.
/// Beyond it the job ends: a thread hangs in the kernel, or the collector gets no CPU.
pub const MAX_PENDING_SECONDS: usize = 64;

/// Memory of load writes that is cycled through, bytes a thread: a compressor's window must not see the same bytes twice.
pub const WRITE_POOL_BYTES: u64 = 4 << 20;

/// Requests of a device may differ from our I/Os by this share before the outcome warns.
pub const DEVICE_TOLERANCE: f64 = 0.001;

/// A thread busier than this share of its CPU makes the result one of the generator, not of the storage: the outcome warns. An open
/// loop polls by design, so that it is judged by this only where it is late, too ([`LATE_SHARE`]).
pub const BUSY_THREAD: f64 = 0.9;

/// An open loop with a larger share of its I/Os late or missed does not keep its time. With a larger share late although fewer were
/// in flight than may be, the result is the generator's, not the storage's: the outcome warns.
pub const LATE_SHARE: f64 = 0.01;

/// The hypervisor took more than this share of the CPU time: the outcome warns.
pub const STEAL_SHARE: f64 = 0.05;
