//! The real provider, whose VMs do not run: an agent in this process follows each that is started. The orchestrator can be killed at
//! any step of the journal.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use analysis::export::Export;
use hypervisor::proxmox::{Guard, Proxmox, Timing, Token};
use hypervisor::{
    Bootstrap, BoxFuture, Breach, CreatedWorker, Deployment, Finding, HostSample, Hypervisor, HypervisorError, Image,
    Intent, Inventory, Journal, JournalEntry, JournalError, LeftAlone, Observed, Search, WorkerSpec,
};
use run::fleet::Authority;
use run::{Brake, Place, Progress, Request, RunOptions, WatchTimes, WorkerImage};
use serde_json::Value;
use store::{DataDir, RunId, Store};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use worker::{Agent, Config, DiskArg, Machine};

use crate::fakes::{Fake, SECRET, TOKEN, quick};

/// Beyond it a condition that a test waits for has not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Looks that do not make a test wait, and a guard that is not blind because this machine is slow.
const WATCH: WatchTimes = WatchTimes {
    observe: Duration::from_millis(500),
    guard: Duration::from_millis(500),
    blind: Duration::from_secs(60),
    hosts: Duration::from_millis(500),
};

/// Where the orchestrator is killed: right before or right after the commit of an operation of the journal.
#[derive(Default)]
pub(crate) struct Kill {
    pub(crate) at: Option<(usize, bool)>,
    pub(crate) operations: AtomicUsize,
    pub(crate) killed: Notify,
}

impl Kill {
    /// Carries an operation out, unless the orchestrator is dead by then.
    async fn operation<T>(&self, commit: impl Future<Output = T>) -> T {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        match self.at {
            Some((at, committed)) if number >= at => {
                if committed && number == at {
                    commit.await;
                }
                self.killed.notify_one();
                std::future::pending().await
            }
            _ => commit.await,
        }
    }
}

struct Mortal<'a> {
    journal: &'a dyn Journal,
    kill: &'a Kill,
}

impl Journal for Mortal<'_> {
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
        Box::pin(self.kill.operation(self.journal.intent(intent)))
    }

    fn task(&self, id: i64, task: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.kill.operation(self.journal.task(id, task)))
    }

    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(self.kill.operation(self.journal.outcome(id, succeeded, details)))
    }
}

/// The provider with agents for its VMs.
pub(crate) struct Followed {
    provider: Proxmox,
    disks: PathBuf,
    /// VMs are started and nothing in them ever calls.
    silent: bool,
    pub(crate) kill: Kill,
    agents: Mutex<BTreeMap<String, JoinHandle<()>>>,
    /// Node of each agent's VM.
    nodes: Mutex<BTreeMap<String, String>>,
    pub(crate) started: AtomicUsize,
}

impl Followed {
    fn mortal<'a>(&'a self, journal: &'a dyn Journal) -> Mortal<'a> {
        Mortal { journal, kill: &self.kill }
    }

    /// The VMs of a node lose their power.
    pub(crate) fn lose_agents_on(&self, node: &str) {
        let nodes = self.nodes.lock().unwrap();
        let agents = self.agents.lock().unwrap();
        agents
            .iter()
            .filter(|(uuid, _)| nodes.get(*uuid).is_some_and(|of| of == node))
            .for_each(|(_, agent)| agent.abort());
    }

    fn follow(&self, worker: &CreatedWorker, bootstrap: &Bootstrap) {
        self.nodes.lock().unwrap().insert(worker.spec.uuid.clone(), worker.spec.host.clone().unwrap());

        let disks = worker.disks.iter().map(|disk| {
            let path = self.disks.join(&disk.serial);
            std::fs::File::create_new(&path).and_then(|file| file.set_len(disk.size_bytes)).unwrap();
            DiskArg { serial: disk.serial.clone(), path }
        });
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
        let agent = tokio::spawn(async {
            // How it ends shows in the run.
            let _ = Agent::new(config).unwrap().run(std::future::pending()).await;
        });
        self.agents.lock().unwrap().insert(worker.spec.uuid.clone(), agent);
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.agents.lock().unwrap().values().for_each(JoinHandle::abort);
    }
}

impl Hypervisor for Followed {
    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
        self.provider.inventory()
    }

    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        self.provider.preflight(deployment)
    }

    fn place(&self, workers: u32) -> BoxFuture<'_, Result<Vec<Option<String>>, HypervisorError>> {
        self.provider.place(workers)
    }

    fn upload_image<'a>(
        &'a self,
        image: &'a Image,
        hosts: &'a [String],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Option<String>, HypervisorError>> {
        Box::pin(async move { self.provider.upload_image(image, hosts, &self.mortal(journal)).await })
    }

    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
        Box::pin(async move { self.provider.create_worker(spec, &self.mortal(journal)).await })
    }

    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(async move {
            self.provider.start_worker(worker, bootstrap, &self.mortal(journal)).await?;
            if !self.silent {
                self.follow(worker, bootstrap);
            }
            self.started.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
    }

    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(async move { self.provider.stop_worker(worker, &self.mortal(journal)).await })
    }

    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
        self.provider.observe(workers)
    }

    fn guard<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Breach>, HypervisorError>> {
        self.provider.guard(workers)
    }

    fn sample_hosts<'a>(
        &'a self,
        workers: &'a [CreatedWorker],
    ) -> BoxFuture<'a, Result<Option<HostSample>, HypervisorError>> {
        self.provider.sample_hosts(workers)
    }

    fn recover<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(async move { self.provider.recover(recorded, &self.mortal(journal)).await })
    }

    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
        Box::pin(async move { self.provider.destroy(recorded, &self.mortal(journal)).await })
    }

    fn find<'a>(&'a self, fleet: Option<&'a str>) -> BoxFuture<'a, Result<Search, HypervisorError>> {
        self.provider.find(fleet)
    }

    fn describe(&self) -> BoxFuture<'_, Value> {
        self.provider.describe()
    }
}

/// A cluster, a data directory and an orchestrator.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) fake: Fake,
    authority: Arc<Authority>,
    image: WorkerImage,
    pub(crate) progress: watch::Sender<Progress>,
    pub(crate) brake: Brake,
}

impl Bench {
    /// None, with a line that says so, where fakepve is not installed.
    pub(crate) fn start() -> Option<Self> {
        let fake = Fake::start()?;
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("disks")).unwrap();
        let path = dir.path().join("worker.iso");
        std::fs::write(&path, [&[7; 100_000], worker_image::slot::empty().as_slice()].concat()).unwrap();
        let image = WorkerImage { path, mtu: None, addresses: None };
        let authority = Arc::new(Authority::open(&dir.path().join("tls")).unwrap());
        let (progress, _) = watch::channel(Progress::default());
        Some(Self { dir, fake, authority, image, progress, brake: Brake::default() })
    }

    /// The store, as a process finds it when it starts.
    pub(crate) async fn store(&self) -> Store {
        Store::open(&DataDir::new(self.dir.path().join("data"))).await.unwrap()
    }

    pub(crate) fn provider(&self, silent: bool, kill: Kill, timing: Timing) -> Followed {
        let token = Token::new(TOKEN, SECRET).unwrap();
        let provider = Proxmox::new(self.fake.settings(), Guard::default(), token, timing).unwrap();
        let disks = self.dir.path().join("disks");
        Followed {
            provider,
            disks,
            silent,
            kill,
            agents: Mutex::default(),
            nodes: Mutex::default(),
            started: AtomicUsize::new(0),
        }
    }

    pub(crate) fn place<'a>(&'a self, hypervisor: &'a Followed) -> Place<'a> {
        Place {
            hypervisor,
            worker_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            told: Vec::new(),
            authority: Arc::clone(&self.authority),
            image: Some(self.image.clone()),
        }
    }

    /// Carries a plan out to its end.
    pub(crate) async fn run(&self, yaml: &str, canary: bool) -> (RunId, Export) {
        let (store, provider) = (self.store().await, self.provider(false, Kill::default(), quick()));
        let (place, request) = (self.place(&provider), request(yaml, canary));
        let running = run::execute(&store, &place, &request, self.progress.clone(), self.brake.clone());
        let run = tokio::time::timeout(PATIENCE, running).await.expect("the run ends in time").unwrap();
        (run, store.load_export(run).await.unwrap())
    }
}

pub(crate) fn request(yaml: &str, canary: bool) -> Request {
    let plan = plan::parse("plan.yaml", yaml, &plan::Profiles::shipped()).unwrap();
    Request { plan, plan_yaml: yaml.to_owned(), options: RunOptions { canary, watch: WATCH } }
}

/// Two workers with one disk each. What provider the plan names is the command line's matter.
pub(crate) fn plan(sample: &str) -> String {
    format!(
        "name: on a cluster\ntarget: {{provider: local}}\nworkers: {{count: 2, vcpus: 1, memory: 256MiB, disks: 1}}\n\
         footprints: [8MiB]\nprecondition: 1s\nsample: {sample}\nworkloads: [4k-random-read]\n"
    )
}
