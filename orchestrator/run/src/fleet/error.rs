use std::fmt;

/// A command that a worker cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such name.
    #[error("there is no worker {0:?} in this fleet")]
    UnknownWorker(String),
    /// It has never enrolled.
    #[error("worker {0} has not enrolled yet")]
    NotEnrolled(String),
    /// It is lost; commands to it lead nowhere.
    #[error("worker {worker} is lost: {why}")]
    Lost {
        /// Name of the worker.
        worker: String,
        /// Why it counts as lost.
        why: String,
    },
    /// It has a job that did not end yet, or whose end was not acknowledged.
    #[error("worker {worker} still holds job {held}; it takes another once that has ended and is acknowledged")]
    Busy {
        /// Name of the worker.
        worker: String,
        /// The job it holds.
        held: u64,
    },
    /// It has no such job.
    #[error("worker {worker} does not hold job {job}")]
    NotHeld {
        /// Name of the worker.
        worker: String,
        /// The job asked for.
        job: u64,
    },
    /// The job is not in the state that the command needs.
    #[error("job {job} on worker {worker} {why}")]
    WrongState {
        /// Name of the worker.
        worker: String,
        /// The job asked for.
        job: u64,
        /// What it is or is not.
        why: &'static str,
    },
    /// A sample acknowledged that was never delivered.
    #[error("sample {up_to} of job {job} on worker {worker} was never delivered, so it cannot be acknowledged")]
    NotDelivered {
        /// Name of the worker.
        worker: String,
        /// The job.
        job: u64,
        /// The sample.
        up_to: u64,
    },
    /// Its clock could not be measured.
    #[error("the clock of worker {worker} could not be measured: {why}")]
    NoClock {
        /// Name of the worker.
        worker: String,
        /// Why not.
        why: &'static str,
    },
}

/// Workers that did not enrol in time.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct EnrolError {
    /// Those who are missing.
    pub missing: Vec<Missing>,
    /// Refusals of connections that belong to none of them, newest last; a few only.
    pub refused: Vec<String>,
    /// How long was waited, seconds; a worker that is lost or refused for good ends the wait early.
    pub waited_seconds: f64,
}

/// A worker that did not enrol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// Name of the worker.
    pub worker: String,
    /// Why, where it is known.
    pub why: Option<String>,
    /// It called and was refused.
    pub refused: bool,
}

impl fmt::Display for EnrolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not enrolled after {:.1} s: ", self.waited_seconds)?;
        for (index, missing) in self.missing.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            match &missing.why {
                Some(why) => write!(f, "{separator}{} ({why})", missing.worker)?,
                None => write!(f, "{separator}{} (never heard of it)", missing.worker)?,
            }
        }
        for refused in &self.refused {
            write!(f, "; refused: {refused}")?;
        }
        Ok(())
    }
}
