//! What the threads of a job share: the wish to stop, the first failure, and counters.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a job ends before its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Index of the disk concerned.
    pub(crate) disk: Option<usize>,
    /// For a person, with the kernel's words.
    pub(crate) reason: String,
}

/// Shared state of a job.
#[derive(Debug, Default)]
pub(crate) struct Control {
    stop: AtomicBool,
    failure: Mutex<Option<Failure>>,
    errors: AtomicU64,
    bytes_done: AtomicU64,
}

impl Control {
    /// Whether the threads are to end; read in the hot loop.
    #[inline]
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Ends the job for a reason; the first one is kept.
    pub(crate) fn fail(&self, disk: Option<usize>, reason: String) {
        self.note_failure(disk, reason);
        self.stop();
    }

    /// Notes a reason why the job is not complete, but lets it go on; the first one is kept.
    pub(crate) fn note_failure(&self, disk: Option<usize>, reason: String) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert(Failure { disk, reason });
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an error; tells how many the job has now.
    pub(crate) fn count_error(&self) -> u64 {
        self.errors.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }
}
