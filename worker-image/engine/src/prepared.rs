//! From a job to threads that wait for their start.

use std::sync::mpsc::Sender;
use std::time::Instant;

use crate::error::PrepareError;
use crate::outcome::{Event, Outcome};
use crate::report::Report;
use crate::spec::Job;

/// Checks a job, opens its disks, and builds and registers a ring on each engine thread. Nothing is read or written yet.
///
/// # Errors
/// [`PrepareError`], with disk and kernel's words; everything is released again.
pub fn prepare(job: Job) -> Result<Prepared, PrepareError> {
    Ok(Prepared { report: Report::default(), job })
}

/// A job whose threads wait for their start. Dropping it releases everything.
#[derive(Debug)]
pub struct Prepared {
    report: Report,
    job: Job,
}

impl Prepared {
    /// What the kernel granted and how the disks are set.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Starts the load at `at` (at once where that is past; the seconds then still count from `at`). Events go to `events`;
    /// a receiver that is gone does not end the job.
    #[must_use]
    pub fn start(self, at: Instant, events: Sender<Event>) -> Running {
        Running { _at: at, _events: events, _job: self.job }
    }
}

/// A job under way. Dropping it stops the job and waits for its end, like [`Running::stop`] and [`Running::join`].
#[derive(Debug)]
pub struct Running {
    _at: Instant,
    _events: Sender<Event>,
    _job: Job,
}

impl Running {
    /// Asks the job to end early; returns at once. What was measured is in the outcome.
    pub fn stop(&self) {}

    /// A handle that stops the job while another thread waits in [`Running::join`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper { _stop: std::sync::Arc::default() }
    }

    /// Waits for the end of the job. Bounded: the job's own time plus [`crate::limits::DRAIN_LIMIT`] and
    /// [`crate::limits::THREAD_GRACE`] (a fill's or read-back's own time is the device's).
    #[must_use]
    pub fn join(self) -> Outcome {
        Outcome {
            complete: false,
            reason: None,
            failed_disk: None,
            first_io: None,
            last_completion: None,
            disks: Vec::new(),
            thread_cpu: Vec::new(),
            io_wq_cpu: 0.0,
            steal: None,
            warnings: Vec::new(),
        }
    }
}

/// Stops a job from anywhere; see [`Running::stopper`].
#[derive(Debug, Clone)]
pub struct Stopper {
    _stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Stopper {
    /// Asks the job to end early; returns at once.
    pub fn stop(&self) {}
}
