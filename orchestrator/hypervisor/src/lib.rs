//! Where workers run: the [`Hypervisor`] trait and its providers.
//!
//! A provider knows nothing of runs. It creates workers with data disks, starts, observes and destroys them, and hands every
//! change to a [`Journal`] before it makes it, so that whatever it leaves behind can be found and removed after a crash.

mod child;
mod journal;
pub mod local;
mod mac;
mod model;
pub mod proxmox;
pub mod vm;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub use journal::{Effect, Intent, Journal, JournalEntry, JournalError, Outcome};
pub use model::*;

/// A boxed future, so that providers can be chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A place where workers run.
///
/// The order of a deployment: [`preflight`](Self::preflight), [`place`](Self::place), [`upload_image`](Self::upload_image), then for
/// each worker [`create_worker`](Self::create_worker) and [`start_worker`](Self::start_worker), as many at a time as the caller
/// likes (a place bounds what it does at once by itself); [`destroy`](Self::destroy) at the end.
///
/// Methods that change anything journal each change first. Destroying takes only what a journal recorded, and only
/// while the object found still carries the recorded identity; whatever does not agree is left alone and reported.
/// A future may be dropped at any point, as if the program had been killed there: the journal tells what may exist.
pub trait Hypervisor: Send + Sync {
    /// What there is to choose from.
    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>>;

    /// What stands in the way of a deployment, found without changing anything.
    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>>;

    /// The host of each worker, in order; none where the place has one host only.
    fn place(&self, workers: u32) -> BoxFuture<'_, Result<Vec<Option<String>>, HypervisorError>> {
        Box::pin(async move { Ok((0..workers).map(|_| None).collect()) })
    }

    /// Brings the image to where workers on these hosts can boot it and answers its name there; none where workers boot nothing, or
    /// the place makes their images itself.
    fn upload_image<'a>(
        &'a self,
        _image: &'a Image,
        _hosts: &'a [String],
        _journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Option<String>, HypervisorError>> {
        Box::pin(async { Ok(None) })
    }

    /// Address of the network card that a worker will have (`02:AB:…`), where that is known before it is created.
    fn mac_of(&self, _spec: &WorkerSpec) -> Option<String> {
        None
    }

    /// Creates one worker with its data disks, not yet running, and reads back the disks' exact sizes.
    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>>;

    /// Starts a created worker's agent. A worker that boots an image finds the bootstrap data in it.
    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>>;

    /// Stops a worker; its data disks stay.
    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>>;

    /// Whether started workers still run and where, in the order asked. One look at the place, however many workers run.
    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>>;

    /// How old what [`observe`](Self::observe) answers may be: looking more often says nothing new.
    fn staleness(&self) -> Duration {
        Duration::ZERO
    }

    /// What the load does that it must not. An error means that the guard is blind, and the caller bounds how long that may last.
    /// Nothing where what goes wrong shows as the workers' I/O errors.
    fn guard<'a>(&'a self, _workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Breach>, HypervisorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The load of the hosts in use, to explain a disturbed figure; none where the place cannot tell.
    fn sample_hosts<'a>(
        &'a self,
        _workers: &'a [CreatedWorker],
    ) -> BoxFuture<'a, Result<Option<HostSample>, HypervisorError>> {
        Box::pin(async { Ok(None) })
    }

    /// After a crash: waits for what was under way, records how it ended, and answers the workers that exist as recorded. None where
    /// workers end with their orchestrator.
    fn recover<'a>(
        &'a self,
        _recorded: &'a [JournalEntry],
        _journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Stops and removes what the entries record and what still exists; answers what was left alone, and why. The entries are all of a
    /// journal, in order, those of objects that are gone and of calls that failed as well.
    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>>;

    /// What carries our mark: of one fleet, or of all. Nothing where objects carry none and only the journal knows them.
    fn find<'a>(&'a self, _fleet: Option<&'a str>) -> BoxFuture<'a, Result<Search, HypervisorError>> {
        Box::pin(async { Ok(Search::default()) })
    }

    /// Writes something found into the journal as if it had been created from it, so that [`destroy`](Self::destroy) takes it. For
    /// a person who knows that the orchestrator which made it is gone.
    fn adopt<'a>(
        &'a self,
        found: &'a Found,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<JournalEntry, HypervisorError>> {
        Box::pin(async move {
            let intent = found.record.clone();
            let id = journal.intent(intent.clone()).await?;
            let outcome = Outcome { succeeded: true, details: serde_json::json!({ "adopted": true }) };
            journal.outcome(id, outcome.succeeded, outcome.details.clone()).await?;
            Ok(JournalEntry { id, intent, task: None, outcome: Some(outcome) })
        })
    }

    /// What the reader of the figures must know about this place (by name), for the run's environment.
    fn describe(&self) -> BoxFuture<'_, serde_json::Value>;
}
