//! Why a run goes no further.

use std::fmt;

use analysis::case::Ending;
use analysis::export::{EarlyEnd, How};
use store::StoreError;

use crate::brake;

/// What ends a run before its plan is through.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Somebody asked for it.
    Asked(EarlyEnd),
    /// It cannot go on; why, for a person.
    Failed(String),
    /// What was measured can no longer be kept.
    Store(StoreError),
}

/// Why a job was stopped before its end: what was measured up to then is kept, and the run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Somebody asked for it.
    Asked(EarlyEnd),
    /// The load did harm, or nobody could tell whether it did; the guard's words.
    Guard(String),
}

impl Stop {
    /// What it means for a case.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Asked(end) => early(end),
            Self::Guard(why) => Ending::Failed(stopped_by_the_guard(why)),
        }
    }
}

/// What it means for a case that somebody ends the run: a stop cuts none that is being measured.
pub(crate) fn early(end: &EarlyEnd) -> Ending {
    match end.how {
        How::Stop => Ending::Stopped,
        How::Cancel => Ending::Cancelled,
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Asked(end) => Self::Asked(end),
            Stop::Guard(why) => Self::Failed(stopped_by_the_guard(&why)),
        }
    }
}

fn stopped_by_the_guard(why: &str) -> String {
    format!("the load was stopped by the guard: {why}")
}

impl Halt {
    /// Tearing down failed, too: neither reason hides the other.
    pub(crate) fn and(self, tearing_down: Self) -> Self {
        match (self, tearing_down) {
            (_, Self::Store(error)) | (Self::Store(error), _) => Self::Store(error),
            (Self::Failed(first), Self::Failed(second)) => {
                Self::Failed(format!("{first}; then tearing down failed: {second}"))
            }
            (Self::Asked(end), Self::Failed(second)) => {
                Self::Failed(format!("{}, but tearing down failed: {second}", brake::said(&end)))
            }
            (first, Self::Asked(_)) => first,
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked(end) => f.write_str(&brake::said(end)),
            Self::Failed(why) => f.write_str(why),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<hypervisor::HypervisorError> for Halt {
    fn from(error: hypervisor::HypervisorError) -> Self {
        Self::Failed(error.to_string())
    }
}
