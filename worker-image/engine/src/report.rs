//! What the kernel granted and how the disks are set, read at preparation.

use crate::probe::DiskKind;

/// The circumstances of a job; stored with its results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Engine threads.
    pub threads: u32,
    /// io_uring set-up flags and registrations granted on every thread, by name.
    pub granted: Vec<String>,
    /// What was refused, each with the kernel's reason.
    pub refused: Vec<String>,
    /// Clock source of latencies.
    pub clock_source: String,
    /// Locked-memory limit, bytes; none where unlimited.
    pub memlock_bytes: Option<u64>,
    /// Buffer memory of all threads, bytes.
    pub buffer_bytes: u64,
    /// Settings of each disk, in the order of the job.
    pub disks: Vec<DiskSettings>,
    /// What the reader of a figure must know (no O_DIRECT, memory not locked …).
    pub warnings: Vec<String>,
}

/// A disk's settings; the queue settings are those of block devices only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// Name of the disk.
    pub id: String,
    /// Path.
    pub path: String,
    /// Block device or file.
    pub kind: DiskKind,
    /// Threads that drive it.
    pub threads: u32,
    /// O_DIRECT in force.
    pub direct: bool,
    /// I/O scheduler in use.
    pub scheduler: Option<String>,
    /// `nomerges`: 0 all merges, 1 simple ones, 2 none.
    pub nomerges: Option<u32>,
    /// Requests the queue holds.
    pub nr_requests: Option<u32>,
    /// Largest request, KiB.
    pub max_sectors_kb: Option<u32>,
    /// Polled queues (NVMe).
    pub poll_queues: Option<u32>,
}
