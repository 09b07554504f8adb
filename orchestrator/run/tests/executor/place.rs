//! A place in this process: data disks are files, workers are agents in tasks. It fails where a test tells it to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use analysis::export::Export;
use hypervisor::{
    Bootstrap, BoxFuture, Breach, CreatedDisk, CreatedWorker, Deployment, Effect, Finding, HostLoad, HostSample,
    Hypervisor, HypervisorError, Intent, Inventory, Journal, JournalEntry, LeftAlone, Observed, WorkerSpec,
    WorkerState,
};
use run::fleet::{Authority, CERTIFICATE_FILE};
use run::{Brake, CanaryReport, Place, Progress, Recovered, Request, RunError, RunOptions, WatchTimes, execute};
use serde_json::json;
use sqlx::Connection;
use store::{DataDir, RunId, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use worker::{Agent, Config, DiskArg, Machine};

use crate::liar::{Wrong, lie};

/// Beyond it a condition that a test waits for has not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What goes wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// The worker of this name cannot be created, after its disks were.
    pub(crate) create: Option<&'static str>,
    /// Nothing can be destroyed.
    pub(crate) destroy: bool,
    /// Workers are started and never dial.
    pub(crate) silent: bool,
    /// Bytes that the place says their network cards have sent.
    pub(crate) sent: Option<u64>,
    /// The worker of this name ends as soon as it is started.
    pub(crate) ends_at_once: Option<&'static str>,
    /// The worker of this name goes wrong at this point.
    pub(crate) wrong: Option<(&'static str, Wrong)>,
    /// The worker of this name cannot be started.
    pub(crate) start: Option<&'static str>,
    /// The worker of this name gets disks of half their size.
    pub(crate) halved: Option<&'static str>,
    /// The guard cannot look.
    pub(crate) blind: bool,
    /// The guard finds harm from the beginning.
    pub(crate) harm: bool,
    /// No worker can be started unless somebody answers at the orchestrator's address meanwhile.
    pub(crate) knocks: bool,
    /// After a crash, nobody can tell what is still there.
    pub(crate) recover: bool,
    /// Somebody moves the worker of this name once it runs.
    pub(crate) moves: Option<&'static str>,
}

/// Looks that do not make a test wait.
const WATCH: WatchTimes = WatchTimes {
    observe: Duration::from_millis(100),
    guard: Duration::from_millis(200),
    blind: Duration::from_secs(1),
    hosts: Duration::from_millis(300),
};

/// Outcome of a worker's task, for [`Hypervisor::observe`].
type Task = JoinHandle<String>;

/// The place, with what was asked of it.
pub(crate) struct InProcess {
    disks: PathBuf,
    /// Certificate of the orchestrator's CA.
    certificate: PathBuf,
    faults: Faults,
    tasks: Mutex<BTreeMap<String, Task>>,
    pub(crate) created: Mutex<Vec<WorkerSpec>>,
    /// Harm that the guard finds from now on.
    pub(crate) harm: AtomicBool,
}

impl InProcess {
    async fn create_disks(
        &self,
        spec: &WorkerSpec,
        journal: &dyn Journal,
    ) -> Result<Vec<CreatedDisk>, HypervisorError> {
        let mut disks = Vec::new();
        for disk in &spec.disks {
            let path = self.disks.join(&disk.serial);
            let entry = journal.intent(intent(Effect::Create, &path)).await?;
            std::fs::File::create_new(&path).and_then(|file| file.set_len(disk.size_bytes)).unwrap();
            journal.outcome(entry, true, json!({})).await?;
            let (serial, size_bytes) = (disk.serial.clone(), disk.size_bytes);
            disks.push(CreatedDisk { serial, size_bytes, scsi_address: None, path: Some(path) });
        }
        Ok(disks)
    }

    async fn state(&self, uuid: &str) -> WorkerState {
        let task = {
            let mut tasks = self.tasks.lock().unwrap();
            match tasks.get(uuid) {
                None => return WorkerState::Unknown,
                Some(task) if !task.is_finished() => return WorkerState::Running,
                Some(_) => tasks.remove(uuid),
            }
        };
        WorkerState::Ended(task.unwrap().await.unwrap_or_else(|error| error.to_string()))
    }

    fn spawn(&self, worker: &CreatedWorker, bootstrap: &Bootstrap) -> Task {
        let name = Some(worker.spec.name.as_str());
        if self.faults.silent {
            return tokio::spawn(std::future::pending());
        }
        if self.faults.ends_at_once == name {
            return tokio::spawn(async { "exit status 3".to_owned() });
        }
        if let Some((_, wrong)) = self.faults.wrong.filter(|(of, _)| name == Some(*of)) {
            return tokio::spawn(lie(worker.clone(), bootstrap.clone(), self.certificate.clone(), wrong));
        }
        let disks =
            worker.disks.iter().map(|disk| DiskArg { serial: disk.serial.clone(), path: disk.path.clone().unwrap() });
        let config = Config {
            urls: bootstrap.urls.clone(),
            ca_sha256: bootstrap.ca_sha256.parse().unwrap(),
            uuid: Some(worker.spec.uuid.clone()),
            token: bootstrap.token.clone(),
            disks: Some(disks.collect()),
            machine: Machine::this(),
            threads: worker.spec.vcpus,
            own_kernel: false,
            give_up_after: PATIENCE,
            keepalive_timeout: worker::KEEPALIVE_TIMEOUT,
        };
        tokio::spawn(async {
            match Agent::new(config).unwrap().run(std::future::pending()).await {
                Ok(()) => "told to end".to_owned(),
                Err(error) => error.to_string(),
            }
        })
    }
}

/// An error where nobody answers, be it with a refusal, what is no handshake.
async fn knock(url: &str) -> Result<(), HypervisorError> {
    let address = url.trim_start_matches("wss://").split('/').next().unwrap();
    let mut door = TcpStream::connect(address).await.unwrap();
    door.write_all(b"knock knock\r\n\r\n").await.unwrap();
    let answer = tokio::time::timeout(PATIENCE / 4, door.read(&mut [0; 16])).await;
    answer.map(drop).map_err(|_| HypervisorError::Unexpected("nobody answers at the orchestrator's address".into()))
}

fn intent(effect: Effect, path: &Path) -> Intent {
    Intent { kind: "in-process.disk".into(), effect, object: path.display().to_string(), details: json!({}) }
}

impl Hypervisor for InProcess {
    fn place(&self, workers: u32) -> BoxFuture<'_, Result<Vec<Option<String>>, HypervisorError>> {
        Box::pin(async move { Ok((0..workers).map(|worker| Some(format!("host-{}", worker % 2 + 1))).collect()) })
    }

    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
        Box::pin(async { Ok(Inventory::default()) })
    }

    fn preflight<'a>(&'a self, _: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
        Box::pin(async move {
            let disks = self.create_disks(spec, journal).await?;
            if self.faults.halved == Some(spec.name.as_str()) {
                for disk in &disks {
                    let file = std::fs::File::options().write(true).open(disk.path.as_ref().unwrap()).unwrap();
                    file.set_len(disk.size_bytes / 2).unwrap();
                }
            }
            if self.faults.create == Some(spec.name.as_str()) {
                return Err(HypervisorError::Unexpected(format!("{}: no memory for another worker", spec.name)));
            }
            self.created.lock().unwrap().push(spec.clone());
            Ok(CreatedWorker { spec: spec.clone(), disks, id: spec.uuid.clone(), mac: None })
        })
    }

    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        _: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(async move {
            if self.faults.start == Some(worker.spec.name.as_str()) {
                return Err(HypervisorError::Unexpected(format!("{}: its host is out of memory", worker.spec.name)));
            }
            if self.faults.knocks {
                knock(&bootstrap.urls[0]).await?;
            }
            let task = self.spawn(worker, bootstrap);
            self.tasks.lock().unwrap().insert(worker.spec.uuid.clone(), task);
            Ok(())
        })
    }

    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        _: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(async {
            if let Some(task) = self.tasks.lock().unwrap().remove(&worker.spec.uuid) {
                task.abort();
            }
            Ok(())
        })
    }

    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
        Box::pin(async move {
            let mut all = Vec::new();
            for worker in workers {
                let moved = self.faults.moves == Some(worker.spec.name.as_str());
                let host = if moved { Some("host-9".to_owned()) } else { worker.spec.host.clone() };
                let state = self.state(&worker.spec.uuid).await;
                all.push(Observed { state, host, sent_bytes: self.faults.sent });
            }
            Ok(all)
        })
    }

    fn guard<'a>(&'a self, _: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Breach>, HypervisorError>> {
        Box::pin(async {
            if self.faults.blind {
                return Err(HypervisorError::Unexpected("no route to the place".into()));
            }
            let harm = self.harm.load(Ordering::Relaxed);
            let breach = Breach { limit: "min_free_percent".into(), message: "the disks have 3.0 % free".into() };
            Ok(harm.then_some(breach).into_iter().collect())
        })
    }

    fn sample_hosts<'a>(
        &'a self,
        workers: &'a [CreatedWorker],
    ) -> BoxFuture<'a, Result<Option<HostSample>, HypervisorError>> {
        Box::pin(async {
            let hosts: BTreeSet<&String> = workers.iter().filter_map(|worker| worker.spec.host.as_ref()).collect();
            let load = |host: &String| HostLoad {
                host: host.clone(),
                cpu: Some(0.25),
                memory_used_bytes: Some(1 << 30),
                memory_bytes: None,
                io_pressure_percent: Some(12.5),
                io_wait: None,
            };
            Ok(Some(HostSample { hosts: hosts.into_iter().map(load).collect(), storage_health: None }))
        })
    }

    fn recover<'a>(
        &'a self,
        _: &'a [JournalEntry],
        _: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(async {
            if self.faults.recover {
                return Err(HypervisorError::Unexpected("host-2 does not answer".into()));
            }
            Ok(Vec::new())
        })
    }

    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
        Box::pin(async move {
            if self.faults.destroy {
                return Err(HypervisorError::Unexpected("the disks are busy".into()));
            }
            let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
            tasks.into_values().for_each(|task| task.abort());
            for entry in recorded.iter().filter(|entry| entry.intent.effect == Effect::Create) {
                let path = PathBuf::from(&entry.intent.object);
                if !path.exists() {
                    continue;
                }
                let id = journal.intent(intent(Effect::Destroy, &path)).await?;
                std::fs::remove_file(&path).unwrap();
                journal.outcome(id, true, json!({})).await?;
            }
            Ok(Vec::new())
        })
    }

    fn describe(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async { json!({ "provider": "in-process" }) })
    }
}

fn request(yaml: &str, canary: bool) -> Request {
    let plan = plan::parse("plan.yaml", yaml, &plan::Profiles::shipped()).unwrap();
    Request { plan, plan_yaml: yaml.to_owned(), options: RunOptions { canary, watch: WATCH } }
}

/// A store and a place, for one run.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    authority: Arc<Authority>,
    pub(crate) store: Store,
    pub(crate) place: InProcess,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) brake: Brake,
}

impl Bench {
    pub(crate) async fn new(faults: Faults) -> Arc<Self> {
        let directory = tempfile::tempdir().unwrap();
        let disks = directory.path().join("disks");
        std::fs::create_dir(&disks).unwrap();
        let store = Store::open(&DataDir::new(directory.path().join("data"))).await.unwrap();
        let tls = directory.path().join("tls");
        let authority = Arc::new(Authority::open(&tls).unwrap());
        let certificate = tls.join(CERTIFICATE_FILE);
        let (tasks, created, harm) = (Mutex::default(), Mutex::default(), AtomicBool::new(faults.harm));
        let place = InProcess { disks, certificate, faults, tasks, created, harm };
        let (progress, _) = watch::channel(Progress::default());
        Arc::new(Self { directory, authority, store, place, progress, brake: Brake::default() })
    }

    fn place(&self) -> Place<'_> {
        Place {
            hypervisor: &self.place,
            worker_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            told: Vec::new(),
            authority: Arc::clone(&self.authority),
            image: None,
        }
    }

    /// Takes one worker on each host through the chain.
    pub(crate) async fn canary(&self, yaml: &str) -> CanaryReport {
        self.fly(request(yaml, false)).await
    }

    /// The same, each waited for so many seconds.
    pub(crate) async fn canary_within(&self, yaml: &str, seconds: u32) -> CanaryReport {
        let mut request = request(yaml, false);
        request.plan.canary_wait_seconds = seconds;
        self.fly(request).await
    }

    async fn fly(&self, request: Request) -> CanaryReport {
        let place = self.place();
        let flying = run::canary(&self.store, &place, &request, self.progress.clone(), self.brake.clone());
        tokio::time::timeout(PATIENCE, flying).await.expect("the canary ends in time").unwrap()
    }

    /// Carries a plan out, and answers what it left.
    pub(crate) async fn run(&self, yaml: &str) -> (RunId, Export) {
        self.run_with(yaml, false).await
    }

    /// The same, a canary first.
    pub(crate) async fn run_after_a_canary(&self, yaml: &str) -> (RunId, Export) {
        self.run_with(yaml, true).await
    }

    async fn run_with(&self, yaml: &str, canary: bool) -> (RunId, Export) {
        let (place, request) = (self.place(), request(yaml, canary));
        let running = execute(&self.store, &place, &request, self.progress.clone(), self.brake.clone());
        let run = tokio::time::timeout(PATIENCE, running).await.expect("the run ends in time").unwrap();
        (run, self.store.load_export(run).await.unwrap())
    }

    /// The place as another orchestrator finds it.
    pub(crate) fn place_anew(&self) -> InProcess {
        InProcess {
            disks: self.place.disks.clone(),
            certificate: self.place.certificate.clone(),
            faults: Faults::default(),
            tasks: Mutex::default(),
            created: Mutex::default(),
            harm: AtomicBool::new(false),
        }
    }

    /// Another connection to the store's file.
    pub(crate) async fn connect(&self) -> sqlx::SqliteConnection {
        sqlx::SqliteConnection::connect(&format!("sqlite://{}", self.store.file().display())).await.unwrap()
    }

    /// When a data disk was written to last.
    pub(crate) fn last_write(&self) -> SystemTime {
        let files = std::fs::read_dir(self.directory.path().join("disks")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().modified().unwrap()).max().expect("there are disks")
    }

    /// Carries a plan out although its store fails; answers the error.
    pub(crate) async fn run_without_store(&self, yaml: &str, canary: bool) -> RunError {
        let (place, request) = (self.place(), request(yaml, canary));
        let running = execute(&self.store, &place, &request, self.progress.clone(), self.brake.clone());
        tokio::time::timeout(PATIENCE, running).await.expect("the run ends in time").unwrap_err()
    }

    /// Carries a plan out until its workers are created; then the orchestrator ends.
    pub(crate) async fn abandon(&self, yaml: &str) {
        let (place, request) = (self.place(), request(yaml, false));
        let count = request.plan.workers.count as usize;
        let created = async {
            while self.place.created.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let is_created = tokio::select! {
            _ = execute(&self.store, &place, &request, self.progress.clone(), self.brake.clone()) => false,
            created = tokio::time::timeout(PATIENCE, created) => created.is_ok(),
        };
        assert!(is_created, "workers in time");
    }

    /// What the next orchestrator does.
    pub(crate) async fn recover(&self) -> Vec<Recovered> {
        let place_of = async |_| {
            let InProcess { disks, certificate, faults, .. } = &self.place;
            let place = InProcess {
                disks: disks.clone(),
                certificate: certificate.clone(),
                faults: *faults,
                tasks: Mutex::default(),
                created: Mutex::default(),
                harm: AtomicBool::new(false),
            };
            Ok::<Box<dyn Hypervisor>, String>(Box::new(place))
        };
        run::recover(&self.store, place_of).await.unwrap()
    }

    /// Files of data disks that exist.
    pub(crate) fn disk_files(&self) -> usize {
        std::fs::read_dir(self.directory.path().join("disks")).unwrap().count()
    }

    /// Waits until the run is in this state.
    pub(crate) async fn wait_for_state(&self, state: &str) {
        let mut progress = self.progress.subscribe();
        let reached = progress.wait_for(|progress| progress.state == state);
        tokio::time::timeout(PATIENCE, reached).await.expect("the state in time").unwrap();
    }
}
