//! Where workers run: the [`Hypervisor`] trait and its providers.
//!
//! A provider knows nothing of runs. It creates workers with data disks, starts, observes and destroys them, and hands every
//! change to a [`Journal`] before it makes it, so that whatever it leaves behind can be found and removed after a crash.

mod child;
mod journal;
pub mod local;
mod model;
pub mod vm;

use std::future::Future;
use std::pin::Pin;

pub use journal::{Effect, Intent, Journal, JournalEntry, JournalError, Outcome};
pub use model::*;

/// A boxed future, so that providers can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place where workers run.
///
/// Methods that change anything journal each change first. Destroying takes only what a journal recorded, and only
/// while the object found still carries the recorded identity; whatever does not agree is left alone and reported.
pub trait Hypervisor: Send + Sync {
    /// What stands in the way of a deployment, found without changing anything.
    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>>;

    /// Creates one worker with its data disks, not yet running, and reads back the disks' exact sizes.
    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>>;

    /// Starts a created worker's agent.
    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>>;

    /// Whether a started worker still runs.
    fn observe<'a>(&'a self, worker_uuid: &'a str) -> BoxFuture<'a, Result<WorkerState, HypervisorError>>;

    /// Stops and removes what the entries record and what still exists; answers what was left alone, and why.
    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>>;

    /// What the reader of the figures must know about this place (by name), for the run's environment.
    fn describe(&self) -> BoxFuture<'_, serde_json::Value>;
}
