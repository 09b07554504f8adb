//! Why a job cannot be prepared.

use std::io;

/// Why a job cannot be prepared; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The job contradicts itself or a limit.
    #[error("{field}: {problem}")]
    Spec {
        /// The field of the job.
        field: String,
        /// What was found and what is allowed.
        problem: String,
    },
    /// A disk cannot be used as the job asks.
    #[error("disk {disk}: {problem}")]
    Disk {
        /// Name of the disk.
        disk: String,
        /// What was found and what is allowed.
        problem: String,
    },
    /// The kernel refused an operation on a disk.
    #[error("disk {disk}: cannot {action} {path}: {source}")]
    DiskIo {
        /// Name of the disk.
        disk: String,
        /// What was tried.
        action: &'static str,
        /// Path of the disk.
        path: String,
        /// The kernel's words.
        source: io::Error,
    },
    /// The kernel refused something an engine thread cannot do without.
    #[error("engine thread {thread}: cannot {action}: {source}")]
    Thread {
        /// Number of the thread, from 0.
        thread: u32,
        /// What was tried.
        action: &'static str,
        /// The kernel's words.
        source: io::Error,
    },
    /// A thread did not get ready in time.
    #[error("engine thread {thread} was not ready within {limit_seconds} s")]
    Timeout {
        /// Number of the thread, from 0.
        thread: u32,
        /// The limit, seconds.
        limit_seconds: u64,
    },
}

impl PrepareError {
    /// The disk concerned, where there is one.
    #[must_use]
    pub fn disk(&self) -> Option<&str> {
        match self {
            Self::Disk { disk, .. } | Self::DiskIo { disk, .. } => Some(disk),
            Self::Spec { .. } | Self::Thread { .. } | Self::Timeout { .. } => None,
        }
    }
}

/// Why a disk cannot be examined.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}: {source}")]
pub struct ProbeError {
    /// What was tried.
    pub action: &'static str,
    /// Path of the disk.
    pub path: String,
    /// The kernel's words.
    pub source: io::Error,
}
