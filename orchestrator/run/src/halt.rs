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

impl Halt {
    /// Tearing down failed, too: neither reason hides the other.
    pub(crate) fn and(self, tearing_down: Self) -> Self {
        match (self, tearing_down) {
            (_, Self::Store(error)) | (Self::Store(error), _) => Self::Store(error),
            (Self::Failed(first), Self::Failed(second)) => {
                Self::Failed(format!("{first}; then tearing down failed: {second}"))
            }
            (Self::Cancelled, Self::Failed(second)) => {
                Self::Failed(format!("cancelled, but tearing down failed: {second}"))
            }
            (first, Self::Cancelled) => first,
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
