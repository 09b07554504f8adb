//! The runs of `serve`: one at a time, started and stopped from the pages, carried out whoever watches.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use plan::proxmox::Cluster;
use plan::{Target, TestPlan};
use run::fleet::Authority;
use run::{Progress, Request};
use store::Store;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use web::{Clusters, Findings, Hub, StartError, Wanted, Workshop};

use crate::cli::WorkerArgs;
use crate::clusters::Keeper;
use crate::place::Scene;
use crate::preflight::Preflights;
use crate::{execute, live, output};

/// Carries out plans, one at a time. Clones share it.
#[derive(Clone)]
pub(crate) struct Manager {
    inner: Arc<Inner>,
}

struct Inner {
    data_dir: PathBuf,
    store: Store,
    authority: Arc<Authority>,
    /// Where workers of other machines dial.
    workers: WorkerArgs,
    hub: Arc<Hub>,
    keeper: Keeper,
    preflights: Preflights,
    slot: Mutex<Slot>,
    /// Whether a run goes on.
    busy: watch::Sender<bool>,
}

#[derive(Default)]
struct Slot {
    /// Nothing is started any more.
    closing: bool,
    active: Option<Active>,
}

struct Active {
    name: String,
    /// The saved connection that it uses.
    connection: Option<String>,
    /// None until it is recorded.
    id: Option<Uuid>,
    cancel: CancellationToken,
}

/// The place of the one run; it is free again when this is dropped, however the run ended.
struct Turn {
    inner: Arc<Inner>,
    cancel: CancellationToken,
}

impl Manager {
    pub(crate) fn new(data_dir: &Path, store: Store, authority: Arc<Authority>, workers: WorkerArgs) -> Self {
        let (busy, _) = watch::channel(false);
        let inner = Inner {
            data_dir: data_dir.to_owned(),
            store,
            authority,
            keeper: Keeper::new(data_dir),
            preflights: Preflights::new(data_dir, &workers),
            workers,
            hub: Arc::default(),
            slot: Mutex::default(),
            busy,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts nothing any more, asks the run under way to end, and answers once it has, with its workers and disks removed.
    pub(crate) async fn close(&self) {
        let cancelled = {
            let mut slot = self.inner.slot();
            slot.closing = true;
            slot.active.as_ref().map(|active| active.cancel.cancel()).is_some()
        };
        if cancelled {
            self.inner.hub.stopping();
        }
        // The sender is in `self`.
        let _ = self.inner.busy.subscribe().wait_for(|busy| !busy).await;
        self.inner.hub.close();
    }

    /// Whether a run goes on.
    pub(crate) fn is_busy(&self) -> bool {
        *self.inner.busy.borrow()
    }

    pub(crate) fn keeper(&self) -> &Keeper {
        &self.inner.keeper
    }

    /// Does something that no run on this connection may meet; no run begins meanwhile. An error is the name of the run that goes on.
    pub(crate) fn unless_used<T>(&self, connection: &str, act: impl FnOnce() -> T) -> Result<T, String> {
        let slot = self.inner.slot();
        match &slot.active {
            Some(active) if active.connection.as_deref() == Some(connection) => Err(active.name.clone()),
            _ => Ok(act()),
        }
    }

    fn take_turn(&self, plan: &TestPlan) -> Result<Turn, StartError> {
        let mut slot = self.inner.slot();
        if slot.closing {
            return Err(StartError::Closed("the server is stopping and starts no run any more"));
        }
        if let Some(active) = &slot.active {
            return Err(StartError::Busy { id: active.id, name: active.name.clone() });
        }
        let cancel = CancellationToken::new();
        let (name, connection) = (plan.name.clone(), connection_of(plan));
        slot.active = Some(Active { name, connection, id: None, cancel: cancel.clone() });
        self.inner.busy.send_replace(true);
        Ok(Turn { inner: Arc::clone(&self.inner), cancel })
    }

    async fn begin(&self, plan: TestPlan, yaml: String) -> Result<Uuid, StartError> {
        let turn = self.take_turn(&plan)?;
        let scene = Scene::of_plan(&self.inner.data_dir, &plan, &self.inner.workers)
            .map_err(|error| StartError::Refused(output::chain(&error)))?;
        let (progress, mut watched) = watch::channel(Progress::default());
        let (failed, failure) = oneshot::channel();
        let request = execute::request(plan, yaml);
        tokio::spawn(carry_out(turn, scene, request, progress, failed));
        let recorded = watched.wait_for(|progress| !progress.run_id.is_empty()).await;
        if let Some(id) = recorded.ok().and_then(|progress| progress.run_id.parse().ok()) {
            return Ok(id);
        }
        Err(StartError::Refused(failure.await.unwrap_or_else(|_| "the run ended before it was recorded".to_owned())))
    }
}

/// Carries a run out to its end, whatever becomes of who asked for it.
async fn carry_out(
    turn: Turn,
    scene: Scene,
    request: Request,
    progress: watch::Sender<Progress>,
    failed: oneshot::Sender<String>,
) {
    let inner = Arc::clone(&turn.inner);
    let place = scene.place(&inner.authority);
    let watched = progress.subscribe();
    tokio::spawn(note_id(Arc::clone(&inner), progress.subscribe()));
    let follow = live::follow(inner.store.clone(), Arc::clone(&inner.hub), request.plan.clone(), watched);
    let follow = tokio::spawn(follow);
    let ended = run::execute(&inner.store, &place, &request, progress, turn.cancel.clone()).await;
    let ended = ended.map_err(|error| output::chain(&error.into()));
    // Viewers hear of the end after the next run can be started.
    let end = follow.await.ok().flatten();
    drop(turn);
    if let Err(error) = &ended {
        tracing::error!(%error, "a run could not be carried out or not be recorded");
    }
    match (end, ended) {
        (Some((id, end)), _) => inner.hub.end(id, end),
        // Nobody waits for it where the client has gone.
        (None, Err(error)) => failed.send(error).unwrap_or_default(),
        (None, Ok(_)) => {}
    }
}

/// Writes the run's id down once it has one.
async fn note_id(inner: Arc<Inner>, mut watched: watch::Receiver<Progress>) {
    let id = match watched.wait_for(|progress| !progress.run_id.is_empty()).await {
        Ok(progress) => progress.run_id.parse().ok(),
        Err(_) => return,
    };
    if let Some(active) = &mut inner.slot().active {
        active.id = id;
    }
}

impl Inner {
    /// A panic elsewhere must not keep the next run from starting.
    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.inner.slot().active = None;
        self.inner.busy.send_replace(false);
    }
}

impl Workshop for Manager {
    fn hub(&self) -> &Arc<Hub> {
        &self.inner.hub
    }

    fn start(&self, plan: TestPlan, yaml: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        Box::pin(self.begin(plan, yaml))
    }

    fn stop(&self, id: Uuid) -> bool {
        let stopped = {
            let slot = self.inner.slot();
            let active = slot.active.as_ref().filter(|active| active.id == Some(id));
            active.map(|active| active.cancel.cancel()).is_some()
        };
        if stopped {
            self.inner.hub.stopping();
        }
        stopped
    }

    fn findings<'a>(&'a self, plan: &'a TestPlan, wanted: Wanted) -> BoxFuture<'a, Findings> {
        Box::pin(self.inner.preflights.findings(plan, wanted))
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
}

/// The saved connection that a plan names.
fn connection_of(plan: &TestPlan) -> Option<String> {
    match &plan.target {
        Target::Proxmox(target) => match &target.cluster {
            Cluster::Saved { connection } => Some(connection.clone()),
            Cluster::Given { .. } => None,
        },
        Target::Local(_) => None,
    }
}
