//! The runs of `serve`: one at a time, started and stopped from the pages, carried out whoever watches.

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use analysis::export::How;
use anyhow::bail;
use futures_util::future::BoxFuture;
use plan::proxmox::Cluster;
use plan::{Target, TestPlan};
use run::fleet::Authority;
use run::{Brake, Progress, Request};
use store::{RunId, Store};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use uuid::Uuid;
use web::{Answer, Clusters, Finding, Findings, Hub, StartError, Wanted, Workshop};

use crate::cli::WorkerArgs;
use crate::clusters::Keeper;
use crate::place::Scene;
use crate::preflight::Preflights;
use crate::{cleanup, execute, live, output, recover};

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
    /// Held by what tears down: one at a time.
    tearing_down: tokio::sync::Mutex<()>,
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
    /// Says the run's id once it is recorded.
    progress: watch::Receiver<Progress>,
    brake: Brake,
}

impl Active {
    /// None until it is recorded.
    fn id(&self) -> Option<Uuid> {
        self.progress.borrow().run_id.parse().ok()
    }
}

/// The place of the one run; it is free again when this is dropped, however the run ended.
struct Turn {
    inner: Arc<Inner>,
    brake: Brake,
}

/// Who cancels a run when the server is interrupted.
const SERVER: &str = "the end of the server";

/// How long a run that is ended may take to say its id: it is listed a moment before it does.
const ID_PATIENCE: Duration = Duration::from_secs(5);

/// How long a run that has begun may take to be shown: its live page, which is asked for next, has nothing before, and leads to its report.
const SHOWN_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at whether it is.
const SHOWN_LOOK: Duration = Duration::from_millis(10);

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
            tearing_down: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Starts nothing any more, asks the run under way to end, and answers once it has, with its workers and disks removed.
    pub(crate) async fn close(&self) {
        let asked = {
            let mut slot = self.inner.slot();
            slot.closing = true;
            slot.active.as_ref().map(|active| (active.id(), active.brake.clone()))
        };
        if let Some((run, brake)) = asked {
            self.pull(run, &brake, How::Cancel, SERVER);
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

    fn take_turn(&self, plan: &TestPlan, progress: watch::Receiver<Progress>) -> Result<Turn, StartError> {
        self.occupy(plan.name.clone(), connection_of(plan), progress)
    }

    fn occupy(
        &self,
        name: String,
        connection: Option<String>,
        progress: watch::Receiver<Progress>,
    ) -> Result<Turn, StartError> {
        let mut slot = self.inner.slot();
        if slot.closing {
            return Err(StartError::Closed("the server is stopping and starts no run any more"));
        }
        if let Some(active) = &slot.active {
            return Err(StartError::Busy { id: active.id(), name: active.name.clone() });
        }
        let brake = Brake::default();
        slot.active = Some(Active { name, connection, progress, brake: brake.clone() });
        self.inner.busy.send_replace(true);
        Ok(Turn { inner: Arc::clone(&self.inner), brake })
    }

    async fn begin(&self, plan: TestPlan, yaml: String) -> Result<Uuid, StartError> {
        if let Some(Finding { message, remedy, .. }) = not_from_afar(&plan) {
            return Err(StartError::Refused(format!("{message}: {remedy}")));
        }
        let (progress, mut watched) = watch::channel(Progress::default());
        let turn = self.take_turn(&plan, progress.subscribe())?;
        let refused = |error| StartError::Refused(output::chain(&error));
        // One that ended without a word, as where the store failed, has its workers there.
        let Inner { data_dir, store, .. } = &*self.inner;
        let turn = recover::recover_holding(data_dir, store, turn).await.map_err(refused)?;
        let scene = Scene::of_plan(&self.inner.data_dir, &plan, &self.inner.workers).map_err(refused)?;
        let (failed, failure) = oneshot::channel();
        let request = execute::request(plan, yaml);
        tokio::spawn(carry_out(turn, scene, request, progress, failed));
        let recorded = watched.wait_for(|progress| !progress.run_id.is_empty()).await;
        if let Some(id) = recorded.ok().and_then(|progress| progress.run_id.parse().ok()) {
            shown(&self.inner.hub, id).await;
            return Ok(id);
        }
        Err(StartError::Refused(failure.await.unwrap_or_else(|_| "the run ended before it was recorded".to_owned())))
    }

    fn pull(&self, run: Option<Uuid>, brake: &Brake, how: How, by: &str) {
        brake.ask(how, by);
        if let (Some(id), Some(end)) = (run, brake.asked()) {
            self.inner.hub.ending(id, end);
        }
    }

    async fn end_run(&self, id: Uuid, how: How, by: &str) -> bool {
        let active = self.inner.slot().active.as_ref().map(|active| (active.progress.clone(), active.brake.clone()));
        let Some((mut progress, brake)) = active else { return false };
        let is_it = {
            let recorded = timeout(ID_PATIENCE, progress.wait_for(|progress| !progress.run_id.is_empty())).await;
            matches!(&recorded, Ok(Ok(progress)) if progress.run_id == id.to_string())
        };
        if is_it {
            // What a viewer is told of the end belongs to this run.
            shown(&self.inner.hub, id).await;
            self.pull(Some(id), &brake, how, by);
        }
        is_it
    }

    /// Ends a run that nobody carries on any more, as where its store failed.
    async fn end_abandoned(&self, run: RunId) -> anyhow::Result<()> {
        let Inner { data_dir, store, .. } = &*self.inner;
        let summary = store.run_summary(run).await?;
        if summary.state.is_final() {
            return Ok(());
        }
        let (_progress, watched) = watch::channel(Progress::default());
        match self.occupy(format!("the end of {}", summary.name), None, watched) {
            Ok(turn) => recover::recover_holding(data_dir, store, turn).await.map(drop),
            Err(StartError::Busy { id: Some(id), name }) if id != run.0 => {
                bail!("the run was not ended, and is once {name}, which goes on, has ended: try again then")
            }
            // It is the one that goes on, which the removal itself refuses.
            Err(_) => Ok(()),
        }
    }

    async fn tear_down_run(&self, id: Uuid) -> Result<Vec<String>, String> {
        let manager = self.clone();
        // Goes on whoever waits for it.
        let torn_down = tokio::spawn(async move {
            let _one = manager.inner.tearing_down.lock().await;
            manager.end_abandoned(RunId(id)).await?;
            cleanup::tear_down(&manager.inner.data_dir, &manager.inner.store, RunId(id)).await
        });
        match torn_down.await {
            Ok(done) => done.map_err(|error| output::chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Waits until viewers can follow a run, within a bound: it goes on without them, too.
async fn shown(hub: &Hub, id: Uuid) {
    let look = async {
        while hub.progress(id).is_none() {
            tokio::time::sleep(SHOWN_LOOK).await;
        }
    };
    let _ = timeout(SHOWN_PATIENCE, look).await;
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
    let follow = live::follow(inner.store.clone(), Arc::clone(&inner.hub), request.plan.clone(), watched);
    let follow = tokio::spawn(follow);
    let ended = run::execute(&inner.store, &place, &request, progress, turn.brake.clone()).await;
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

    fn end<'a>(&'a self, id: Uuid, how: How, by: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(self.end_run(id, how, by))
    }

    fn left(&self, id: Uuid) -> Answer<'_, Vec<String>> {
        Box::pin(async move { Ok(cleanup::left(&self.inner.store, RunId(id)).await?) })
    }

    fn tear_down(&self, id: Uuid) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(self.tear_down_run(id))
    }

    fn findings<'a>(&'a self, plan: &'a TestPlan, wanted: Wanted) -> BoxFuture<'a, Findings> {
        match not_from_afar(plan) {
            Some(finding) => Box::pin(ready(Findings { list: vec![finding], ..Findings::default() })),
            None => Box::pin(self.inner.preflights.findings(plan, wanted)),
        }
    }

    fn clusters(&self) -> Option<&dyn Clusters> {
        Some(self)
    }
}

/// What a plan may say on the command line alone: where this machine keeps a secret, and the host to send it to.
fn not_from_afar(plan: &TestPlan) -> Option<Finding> {
    let Target::Proxmox(target) = &plan.target else { return None };
    matches!(target.cluster, Cluster::Given { .. }).then(|| Finding {
        severity: "blocker",
        message: "target: found an endpoint with a token, expected connection, the name of a saved one".to_owned(),
        remedy: "add the cluster under Clusters and write connection instead of endpoint, token and tls, or run the plan from the \
                 command line"
            .to_owned(),
    })
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

#[cfg(test)]
mod tests {
    use plan::Profiles;
    use store::DataDir;

    use super::*;

    async fn manager(dir: &Path) -> Manager {
        let store = Store::open(&DataDir::new(dir)).await.unwrap();
        let authority = Arc::new(Authority::open(&dir.join("tls")).unwrap());
        Manager::new(dir, store, authority, WorkerArgs::default())
    }

    fn called(name: &str) -> TestPlan {
        let yaml = plan::example("demo").unwrap();
        TestPlan { name: name.to_owned(), ..plan::parse("plan", yaml, &Profiles::shipped()).unwrap() }
    }

    fn recorded_as(id: Uuid) -> Progress {
        Progress { run_id: id.to_string(), ..Progress::default() }
    }

    #[tokio::test]
    async fn a_run_can_be_stopped_before_it_has_said_its_id() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let id = Uuid::now_v7();
        assert!(!manager.end(id, How::Stop, "alice").await, "nothing goes on");
        let (progress, watched) = watch::channel(Progress::default());
        let turn = manager.take_turn(&called("early"), watched).unwrap();
        let stopping = tokio::spawn({
            let manager = manager.clone();
            async move { manager.end(id, How::Stop, "alice").await }
        });
        // Long enough for it to look, and to be wrong where it does not wait.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(turn.brake.asked(), None);
        progress.send_replace(recorded_as(id));
        assert!(stopping.await.unwrap());
        let asked = turn.brake.asked().unwrap();
        assert_eq!((asked.how, asked.by.as_str()), (How::Stop, "alice"));
        assert!(manager.end(id, How::Cancel, "bob").await, "a second press counts");
        assert_eq!(turn.brake.asked().map(|asked| (asked.how, asked.by)), Some((How::Cancel, "bob".to_owned())));
        let busy = manager.take_turn(&called("late"), progress.subscribe()).err();
        assert_eq!(busy, Some(StartError::Busy { id: Some(id), name: "early".into() }));
    }

    #[tokio::test]
    async fn a_run_is_shown_before_its_start_is_answered() {
        let (hub, id) = (Arc::<Hub>::default(), Uuid::now_v7());
        let waiting = tokio::spawn({
            let hub = Arc::clone(&hub);
            async move { shown(&hub, id).await }
        });
        // Long enough for it to look, and to be wrong where it does not wait.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        let plan = called("early");
        hub.begin(id, jiff::Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        timeout(SHOWN_PATIENCE, waiting).await.unwrap().unwrap();
    }

    /// Whoever may send plans could have any secret of this machine sent to a host of their own.
    #[tokio::test]
    async fn a_plan_from_afar_names_no_secret_of_this_machine() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let given = format!(
            "  endpoint: 'https://{}'\n  token: {{id: 'a@pve!b', secret_env: PATH}}\n  tls: {{fingerprint: '{}'}}",
            listener.local_addr().unwrap(),
            ["AB"; 32].join(":")
        );
        let yaml = plan::example("proxmox").unwrap();
        let saved = yaml.lines().find(|line| line.trim_start().starts_with("connection:")).unwrap();
        let plan = plan::parse("plan", &yaml.replace(saved, &given), &Profiles::shipped()).unwrap();
        for wanted in [Wanted::Known, Wanted::Anew] {
            let found = manager.findings(&plan, wanted).await;
            assert!(!found.pending && found.looked.is_none(), "{found:?}");
            assert!(found.list[0].severity == "blocker" && found.list[0].remedy.contains("Clusters"), "{found:?}");
        }
        let refused = manager.start(plan, yaml.to_owned()).await.unwrap_err();
        assert!(matches!(&refused, StartError::Refused(why) if why.contains("expected connection")), "{refused:?}");
        let called = listener.accept().err().map(|error| error.kind());
        assert_eq!(called, Some(std::io::ErrorKind::WouldBlock), "nobody was asked");
    }

    #[tokio::test]
    async fn another_run_is_not_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let (progress, watched) = watch::channel(recorded_as(Uuid::now_v7()));
        let turn = manager.take_turn(&called("mine"), watched).unwrap();
        assert!(!manager.end(Uuid::now_v7(), How::Cancel, "alice").await);
        assert_eq!(turn.brake.asked(), None);
        drop(turn);
        drop(progress);
        assert!(!manager.end(Uuid::now_v7(), How::Stop, "alice").await, "it has ended");
    }

    #[tokio::test]
    async fn a_run_that_was_never_recorded_cannot_be_stopped_by_any_id() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let (progress, watched) = watch::channel(Progress::default());
        let _turn = manager.take_turn(&called("refused"), watched).unwrap();
        drop(progress);
        assert!(!manager.end(Uuid::now_v7(), How::Stop, "alice").await);
    }

    /// A run in the store that nobody carries out.
    async fn abandoned(manager: &Manager) -> RunId {
        let plan = called("abandoned");
        let disk_dir = manager.inner.data_dir.join("disks");
        let place = serde_json::json!({ "provider": "local", "isolation": "process", "disk_dir": disk_dir });
        let environment = serde_json::json!({ "place": place });
        let new = store::NewRun { plan: &plan, plan_yaml: "", environment: &environment, seed: 1 };
        manager.inner.store.create_run(&new).await.unwrap()
    }

    #[tokio::test]
    async fn a_run_that_its_store_left_unfinished_is_ended_by_its_removal_once_no_other_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let run = abandoned(&manager).await;
        let (_progress, watched) = watch::channel(recorded_as(Uuid::now_v7()));
        let turn = manager.take_turn(&called("another"), watched).unwrap();
        let refused = manager.tear_down(run.0).await.unwrap_err();
        assert!(refused.contains("another, which goes on"), "{refused}");
        assert!(!manager.inner.store.run_summary(run).await.unwrap().state.is_final());
        drop(turn);
        assert_eq!(manager.tear_down(run.0).await.unwrap(), Vec::<String>::new());
        assert!(manager.inner.store.run_summary(run).await.unwrap().state.is_final());
        assert!(!manager.is_busy());
    }

    #[tokio::test]
    async fn a_run_that_its_store_left_unfinished_is_ended_before_the_next_begins() {
        let dir = tempfile::tempdir().unwrap();
        let manager = manager(dir.path()).await;
        let run = abandoned(&manager).await;
        // A plan that begins no run, for its connection is not saved: what was left is ended all the same.
        let yaml = plan::example("proxmox").unwrap();
        let plan = plan::parse("plan", yaml, &Profiles::shipped()).unwrap();
        let started = manager.start(plan, yaml.to_owned()).await;
        assert!(matches!(started, Err(StartError::Refused(_))), "{started:?}");
        assert!(manager.inner.store.run_summary(run).await.unwrap().state.is_final());
    }
}
