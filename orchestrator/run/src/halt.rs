//! Why a run goes no further.

use store::StoreError;

/// What ends a run before its plan is through.
#[derive(Debug)]
pub(crate) enum Halt {
    /// Somebody asked for it.
    Cancelled,
    /// It cannot go on; why, for a person.
    Failed(String),
    /// What was measured can no longer be kept.
    Store(StoreError),
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
