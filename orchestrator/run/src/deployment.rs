//! A deployment: workers with their disks, enrolled in a fleet, from creation to destruction.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use hypervisor::{Bootstrap, BoxFuture, CreatedWorker, DiskSpec, HypervisorError, WorkerSpec, WorkerState};
use serde::Serialize;
use store::{Level, NewWorker, RunId, RunState, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker_protocol::DiskAssignment;

use crate::arrivals::{Starts, summary};
use crate::brake::Brake;
use crate::executor::Place;
use crate::fleet::{
    EnrolError, Enrolled, Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, LOCAL_GRACE,
    MACHINE_GRACE, Missing, OrchestratorClock,
};
use crate::halt::Halt;
use crate::journal::RunJournal;
use crate::watch::WatchTimes;
use crate::{image, seed};

/// From the last worker's start to the last enrolment: VMs boot in seconds, but several emulated ones on a busy machine take minutes. A
/// worker whose process or machine ends is not waited for; a canary has a bound of its own, the plan's.
pub(crate) const ENROL_TIMEOUT: Duration = Duration::from_secs(600);
/// From Shutdown to the end of the last session.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Workers of a run that are up.
pub(crate) struct Deployment<'a> {
    store: &'a Store,
    run: RunId,
    pub(crate) place: &'a Place<'a>,
    pub(crate) fleet: Fleet,
    pub(crate) events: mpsc::Receiver<FleetEvent>,
    pub(crate) clock: OrchestratorClock,
    pub(crate) watch: WatchTimes,
    workers: Vec<CreatedWorker>,
    enrolled: Vec<Enrolled>,
    starts: Starts,
    /// Why a worker is no longer used, by name.
    gone: BTreeMap<String, String>,
    run_seed: u64,
    last_tick: Instant,
}

/// What to deploy.
pub(crate) struct Wanted {
    /// The fleet's id: the ownership mark of all that is made for it.
    pub(crate) fleet: String,
    /// The workers, each with its host; the image is still to come.
    pub(crate) specs: Vec<WorkerSpec>,
    pub(crate) run_seed: u64,
    pub(crate) watch: WatchTimes,
    pub(crate) patience: Patience,
    /// From the last worker's start to the last enrolment.
    pub(crate) enrol_within: Duration,
}

/// What the first worker that fails means for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// They are of no use without it.
    UntilFirst,
    /// Each is taken as far as the link that it fails at.
    All,
}

/// A link of the chain from nothing to a worker that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// The fleet's image is made and brought to the host.
    Image,
    /// The worker is created with its data disks, and their sizes are read back.
    Create,
    /// It is started.
    Start,
    /// It boots.
    Boot,
    /// It gets an address and reaches the orchestrator.
    Reach,
    /// It is recognised by its identity, and its disks by serial and size.
    Recognise,
    /// It writes to its data disk.
    Write,
    /// What it wrote is read back as written.
    ReadBack,
    /// It is removed again.
    Remove,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "bringing the image",
            Self::Create => "creating the worker",
            Self::Start => "starting the worker",
            Self::Boot => "booting",
            Self::Reach => "reaching the orchestrator",
            Self::Recognise => "recognising the worker and its disks",
            Self::Write => "writing to the data disk",
            Self::ReadBack => "reading back what was written",
            Self::Remove => "removing the worker",
        })
    }
}

/// Where the chain broke for one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Break {
    /// Its name; none where the link concerns all.
    pub(crate) worker: Option<String>,
    pub(crate) link: Link,
    pub(crate) cause: String,
}

/// Why there is no deployment.
#[derive(Debug)]
pub(crate) enum Undeployed {
    /// The run goes no further.
    Halt(Halt),
    /// The chain broke; what the run says of it, and where for each worker.
    Broken(String, Vec<Break>),
}

impl Undeployed {
    fn broken(all: Vec<Break>) -> Self {
        let causes: Vec<&str> = all.iter().map(|one| one.cause.as_str()).collect();
        Self::Broken(causes.join("; "), all)
    }

    fn at(link: Link, cause: String) -> Self {
        Self::broken(vec![Break { worker: None, link, cause }])
    }
}

impl From<Halt> for Undeployed {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<StoreError> for Undeployed {
    fn from(error: StoreError) -> Self {
        Self::Halt(error.into())
    }
}

impl From<Undeployed> for Halt {
    fn from(undeployed: Undeployed) -> Self {
        match undeployed {
            Undeployed::Halt(halt) => halt,
            Undeployed::Broken(why, _) => Self::Failed(why),
        }
    }
}

/// The fleet's door, open before there are workers: an image carries its address.
struct Door {
    listener: TcpListener,
    bootstrap: Bootstrap,
}

impl Door {
    async fn open(place: &Place<'_>) -> Result<Self, Halt> {
        let failed = |error: std::io::Error| {
            Halt::Failed(format!("{}: cannot listen for workers: {error}", place.worker_address))
        };
        let listener = TcpListener::bind(place.worker_address).await.map_err(failed)?;
        let bootstrap = Bootstrap {
            urls: Fleet::urls_of(&listener, &place.told).map_err(failed)?,
            ca_sha256: place.authority.fingerprint().to_string(),
            token: uuid::Uuid::new_v4().simple().to_string(),
        };
        Ok(Self { listener, bootstrap })
    }
}

impl<'a> Deployment<'a> {
    /// Creates and starts the workers, as many at a time as the place likes, and waits until all have enrolled.
    pub(crate) async fn create(
        store: &'a Store,
        run: RunId,
        place: &'a Place<'a>,
        wanted: Wanted,
        say: &(dyn Fn(&str) + Sync),
        brake: &Brake,
    ) -> Result<Self, Undeployed> {
        store.set_run_state(run, RunState::Provisioning).await?;
        let door = Door::open(place).await?;
        let bootstrap = door.bootstrap.clone();
        // Whatever is under way when this is dropped is in the journal, and tearing down waits for it.
        let workers = tokio::select! {
            made = make(store, run, place, &wanted, &bootstrap) => made?,
            end = brake.pulled() => return Err(Halt::Asked(end).into()),
        };
        // The door is answered before the first worker is started: one that is early is not to blame its network.
        let mut deployment = Self::open_fleet(store, run, place, &wanted, workers, door)?;
        deployment.starts = tokio::select! {
            started = start(store, run, place, wanted.patience, &deployment.workers, &bootstrap) => started?,
            end = brake.pulled() => return Err(Halt::Asked(end).into()),
        };
        deployment.enrol(wanted.enrol_within, say, brake).await?;
        Ok(deployment)
    }

    fn open_fleet(
        store: &'a Store,
        run: RunId,
        place: &'a Place<'a>,
        wanted: &Wanted,
        workers: Vec<CreatedWorker>,
        door: Door,
    ) -> Result<Self, Halt> {
        let clock = OrchestratorClock::start();
        let settings = FleetSettings {
            token: door.bootstrap.token,
            authority: Arc::clone(&place.authority),
            expected: workers.iter().map(expected).collect(),
            clock,
            limits: FleetLimits { grace: grace(&workers), ..FleetLimits::default() },
        };
        let (fleet, events) = Fleet::start(door.listener, settings)
            .map_err(|error| Halt::Failed(format!("cannot listen for workers: {error}")))?;
        Ok(Self {
            store,
            run,
            place,
            fleet,
            events,
            clock,
            watch: wanted.watch,
            workers,
            enrolled: Vec::new(),
            starts: Starts::default(),
            gone: BTreeMap::new(),
            run_seed: wanted.run_seed,
            last_tick: Instant::now(),
        })
    }

    async fn enrol(&mut self, within: Duration, say: &(dyn Fn(&str) + Sync), brake: &Brake) -> Result<(), Undeployed> {
        self.store.set_run_state(self.run, RunState::Enrolling).await?;
        let (mut ended, mut shown) = (BTreeSet::new(), None);
        let enrolled = {
            let waiting = self.fleet.wait_enrolled(within);
            tokio::pin!(waiting);
            loop {
                tokio::select! {
                    enrolled = &mut waiting => break enrolled,
                    end = brake.pulled() => return Err(Halt::Asked(end).into()),
                    () = tokio::time::sleep(self.watch.observe_at(self.place.hypervisor)) => {
                        let here = self.fleet.enrolled().len();
                        if shown.replace(here) != Some(here) {
                            say(&format!("{here} of {} workers have enrolled", self.workers.len()));
                        }
                        self.lose_the_ended(&mut ended).await;
                    }
                }
            }
        };
        match enrolled {
            Ok(enrolled) => self.enrolled = enrolled,
            Err(error) => return Err(not_enrolled(&error, &ended, &self.sent().await)),
        }
        Ok(())
    }

    /// Bytes that each worker's network card has sent, by name, where the place tells.
    async fn sent(&self) -> BTreeMap<String, u64> {
        let observed = self.place.hypervisor.observe(&self.workers).await.unwrap_or_default();
        let names = self.workers.iter().map(|worker| worker.spec.name.clone());
        names.zip(observed).filter_map(|(name, observed)| Some((name, observed.sent_bytes?))).collect()
    }

    /// A worker whose process or machine has ended is not waited for. A place that does not tell is no reason to give up.
    async fn lose_the_ended(&self, ended: &mut BTreeSet<String>) {
        match self.place.hypervisor.observe(&self.workers).await {
            Ok(observed) => {
                for (worker, observed) in self.workers.iter().zip(observed) {
                    if let WorkerState::Ended(why) = observed.state {
                        ended.insert(worker.spec.name.clone());
                        // Ends the wait: a lost worker is hopeless.
                        let _ = self.fleet.worker_exited(&worker.spec.name, why).await;
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the place does not tell whether the workers run"),
        }
    }

    /// The workers as they enrolled.
    pub(crate) fn enrolled(&self) -> &[Enrolled] {
        &self.enrolled
    }

    /// Records the workers as the run's.
    pub(crate) async fn record_workers(&self) -> Result<(), Halt> {
        for worker in &self.enrolled {
            let host = self.workers.iter().find(|created| created.spec.name == worker.worker);
            let host = host.and_then(|created| created.spec.host.as_deref());
            let new = NewWorker { name: &worker.worker, hello: &worker.hello, host };
            self.store.add_worker(self.run, &new).await?;
        }
        for (worker, took) in self.took() {
            let seconds = took.as_secs_f64();
            self.event(Level::Info, &format!("worker {worker} enrolled {seconds:.1} s after its start")).await?;
        }
        Ok(())
    }

    /// What a person is told of the machines' times from start to enrolment; processes take none to speak of.
    pub(crate) fn arrivals(&self) -> Option<String> {
        self.workers.iter().all(is_machine).then(|| summary(&self.took()))
    }

    fn took(&self) -> Vec<(&str, Duration)> {
        self.starts.took(self.enrolled.iter().map(|worker| (worker.worker.as_str(), worker.at)))
    }

    /// Workers in use, in the plan's order, each with its disks as a case names them.
    pub(crate) fn alive(&self) -> impl Iterator<Item = &CreatedWorker> {
        self.workers.iter().filter(|worker| !self.gone.contains_key(&worker.spec.name))
    }

    /// Assigns the part `[from, to)` of every disk of the workers in use.
    pub(crate) fn assign(&self, from: u64, to: u64) -> Vec<(String, Vec<DiskAssignment>)> {
        let assign = |worker: &CreatedWorker| {
            let disks = worker.disks.iter().map(|disk| DiskAssignment {
                serial: disk.serial.clone(),
                scsi_address: disk.scsi_address.clone(),
                size_bytes: disk.size_bytes,
                region_start: from,
                region_bytes: to - from,
                data_seed: seed::derive(self.run_seed, &disk.serial, 0),
            });
            (worker.spec.name.clone(), disks.collect())
        };
        self.alive().map(assign).collect()
    }

    /// A worker is not used any more.
    pub(crate) async fn set_aside(&mut self, worker: &str, why: &str) -> Result<(), Halt> {
        if self.gone.insert(worker.to_owned(), why.to_owned()).is_none() {
            self.event(Level::Error, &format!("worker {worker} is not used any more: {why}")).await?;
        }
        Ok(())
    }

    /// The fleet says that a worker is lost.
    pub(crate) async fn note_lost(&mut self, worker: &str, why: &str) -> Result<(), Halt> {
        self.set_aside(worker, why).await
    }

    /// An event that concerns no job.
    pub(crate) async fn note(&mut self, event: FleetEvent) -> Result<(), Halt> {
        match event {
            FleetEvent::Lost { worker, why, .. } => self.note_lost(&worker, &why).await,
            FleetEvent::Disconnected { worker, why } => {
                self.event(Level::Warning, &format!("worker {worker} is disconnected: {why}")).await
            }
            FleetEvent::Enrolled { worker, hello, resumed } => {
                let how = if resumed { "is back" } else { "has enrolled" };
                self.event(Level::Info, &format!("worker {worker} {how} (kernel {})", hello.kernel)).await
            }
            FleetEvent::Refused { peer, reason } => {
                self.event(Level::Warning, &format!("a connection from {peer} was refused: {reason}")).await
            }
            // Of a job that was given up: its figures are not used.
            FleetEvent::Ready { .. }
            | FleetEvent::Failed { .. }
            | FleetEvent::Progress { .. }
            | FleetEvent::Sample { .. }
            | FleetEvent::Finished { .. } => Ok(()),
        }
    }

    /// A worker is on another host than it was put on, or was seen on before.
    pub(crate) async fn note_moved(&mut self, worker: &str, host: &str) -> Result<(), Halt> {
        let Some(known) = self.workers.iter_mut().find(|known| known.spec.name == worker) else { return Ok(()) };
        let before = known.spec.host.replace(host.to_owned());
        let before = before.map_or_else(String::new, |before| format!(" from {before}"));
        let text =
            format!("worker {worker} was moved{before} to {host} during the run: figures of that time are disturbed");
        self.store.add_run_warning(self.run, &text).await?;
        self.event(Level::Warning, &text).await
    }

    pub(crate) async fn event(&self, level: Level, message: &str) -> Result<(), Halt> {
        Ok(self.store.add_event(self.run, level, message).await?)
    }

    /// When the next tick is due.
    pub(crate) fn next_tick(&self, every: Duration) -> Instant {
        self.last_tick + every
    }

    /// Whether a tick is due; it is taken then.
    pub(crate) fn tick_is_due(&mut self, every: Duration) -> bool {
        let due = self.last_tick.elapsed() >= every;
        if due {
            self.last_tick = Instant::now();
        }
        due
    }

    /// Tells the workers to end; what they leave is destroyed by the journal.
    pub(crate) async fn shut_down(mut self) {
        let shutting_down = self.fleet.shutdown_all(SHUTDOWN_TIMEOUT);
        // Drained meanwhile: a full channel would end sessions before the workers are told.
        let draining = async { while self.events.recv().await.is_some() {} };
        let still_up = tokio::select! {
            still_up = shutting_down => still_up,
            () = draining => Vec::new(),
        };
        if !still_up.is_empty() {
            tracing::warn!("workers that did not end by themselves: {}", still_up.join(", "));
        }
    }
}

/// Brings the image and creates the workers.
async fn make(
    store: &Store,
    run: RunId,
    place: &Place<'_>,
    wanted: &Wanted,
    bootstrap: &Bootstrap,
) -> Result<Vec<CreatedWorker>, Undeployed> {
    let journal = RunJournal { store, run };
    let hypervisor = place.hypervisor;
    let mut specs = wanted.specs.clone();
    if let Some(image) = &place.image {
        let brought = image::bring(hypervisor, image, (&wanted.fleet, &specs), bootstrap, &journal).await;
        let name = brought.map_err(|cause| Undeployed::at(Link::Image, cause))?;
        specs.iter_mut().for_each(|spec| spec.image.clone_from(&name));
    }
    let creating = specs.iter().map(|spec| (spec.name.clone(), hypervisor.create_worker(spec, &journal)));
    all_of(Link::Create, wanted.patience, creating.collect()).await
}

/// Starts the workers; answers when each was started.
async fn start(
    store: &Store,
    run: RunId,
    place: &Place<'_>,
    patience: Patience,
    workers: &[CreatedWorker],
    bootstrap: &Bootstrap,
) -> Result<Starts, Undeployed> {
    let (journal, hypervisor) = (RunJournal { store, run }, place.hypervisor);
    let starting =
        workers.iter().map(|one| (one.spec.name.clone(), timed(hypervisor.start_worker(one, bootstrap, &journal))));
    let started = all_of(Link::Start, patience, starting.collect()).await?;
    let mut starts = Starts::default();
    workers.iter().zip(started).for_each(|(worker, at)| starts.record(&worker.spec.name, at));
    Ok(starts)
}

/// When a start was done.
fn timed<'a>(
    start: BoxFuture<'a, Result<(), HypervisorError>>,
) -> BoxFuture<'a, Result<std::time::Instant, HypervisorError>> {
    Box::pin(async move { start.await.map(|()| std::time::Instant::now()) })
}

/// Takes one step, named by its worker, for all at a time; answers in their order.
async fn all_of<T>(
    link: Link,
    patience: Patience,
    steps: Vec<(String, BoxFuture<'_, Result<T, HypervisorError>>)>,
) -> Result<Vec<T>, Undeployed> {
    let numbered = (0..steps.len()).zip(steps);
    let mut steps: FuturesUnordered<_> =
        numbered.map(|(number, (worker, step))| async move { (number, worker, step.await) }).collect();
    let (mut done, mut broken) = (BTreeMap::new(), Vec::new());
    while let Some((number, worker, result)) = steps.next().await {
        match result {
            Ok(value) => {
                done.insert(number, value);
            }
            Err(error) => broken.push(Break { worker: Some(worker), link, cause: error.to_string() }),
        }
        if !broken.is_empty() && patience == Patience::UntilFirst {
            break;
        }
    }
    if broken.is_empty() { Ok(done.into_values().collect()) } else { Err(Undeployed::broken(broken)) }
}

/// Where the chain broke for each worker that is missing. `ended` are those whose process or machine has ended, `sent` is what the network
/// cards have sent.
fn not_enrolled(error: &EnrolError, ended: &BTreeSet<String>, sent: &BTreeMap<String, u64>) -> Undeployed {
    let one = |missing: &Missing| {
        let (link, cause) = match &missing.why {
            Some(why) if ended.contains(&missing.worker) && !missing.refused => (Link::Boot, why.clone()),
            Some(why) => (Link::Recognise, why.clone()),
            None => silent(error, sent.get(&missing.worker).copied()),
        };
        Break { worker: Some(missing.worker.clone()), link, cause }
    };
    Undeployed::Broken(format!("the workers did not enrol: {error}"), error.missing.iter().map(one).collect())
}

/// What keeps a worker that was never heard of: a network card that has sent nothing is one whose machine did not boot as far.
fn silent(error: &EnrolError, sent: Option<u64>) -> (Link, String) {
    const CONSOLE: &str = "its console says how far it came";
    const WAY: &str = "does not get through: no address (DHCP), VLAN, route, or a firewall before this machine";
    let waited = format!("it was started and nothing was heard of it for {:.0} s", error.waited_seconds);
    let (link, why) = match sent {
        Some(0) => (Link::Boot, "its network card has sent nothing: it does not boot".to_owned()),
        Some(bytes) => (Link::Reach, format!("it boots, since its network card has sent {bytes} bytes, but {WAY}")),
        None => (Link::Reach, format!("it does not boot, or {WAY}")),
    };
    let refused = match error.refused.as_slice() {
        [] => String::new(),
        refused => format!("; connections that were refused meanwhile: {}", refused.join("; ")),
    };
    (link, format!("{waited}; {why} ({CONSOLE}){refused}"))
}

/// Whether a worker is a machine of its own, which boots and has a network between it and the orchestrator.
fn is_machine(worker: &CreatedWorker) -> bool {
    worker.mac.is_some()
}

fn grace(workers: &[CreatedWorker]) -> Duration {
    if workers.iter().any(is_machine) { MACHINE_GRACE } else { LOCAL_GRACE }
}

fn expected(worker: &CreatedWorker) -> Expected {
    let disk = |disk: &hypervisor::CreatedDisk| ExpectedDisk {
        serial: disk.serial.clone(),
        size_bytes: disk.size_bytes,
        scsi_address: disk.scsi_address.clone(),
    };
    Expected {
        name: worker.spec.name.clone(),
        uuid: worker.spec.uuid.clone(),
        macs: worker.mac.iter().cloned().collect(),
        disks: worker.disks.iter().map(disk).collect(),
    }
}

/// The fleet's id: of one deployment of a run.
pub(crate) fn fleet_name(run: RunId, number: u32) -> String {
    format!("{run}-{number}")
}

/// Workers that are all alike, one on each of these hosts.
pub(crate) struct Alike<'a> {
    pub(crate) run: RunId,
    /// Distinguishes the deployments of one run.
    pub(crate) number: u32,
    /// First part of their names.
    pub(crate) name: &'a str,
    pub(crate) workers: &'a plan::Workers,
    /// Data disks each, in place of the plan's.
    pub(crate) disks: u32,
    pub(crate) disk_bytes: u64,
}

impl Alike<'_> {
    /// Their names, identities and serials. A serial has at most 20 bytes (SCSI): 8 of the run's id, deployment, worker, disk.
    pub(crate) fn on(&self, hosts: Vec<Option<String>>) -> Vec<WorkerSpec> {
        let id = self.run.0.simple().to_string();
        // The end of the id: a version 7 UUID begins with the time, and ends with randomness.
        let mark = &id[id.len() - 8..];
        let spec = |(worker, host): (u32, Option<String>)| WorkerSpec {
            name: format!("{}-{worker}", self.name),
            uuid: uuid::Uuid::new_v4().to_string(),
            fleet: fleet_name(self.run, self.number),
            vcpus: self.workers.vcpus,
            memory_bytes: self.workers.memory_bytes,
            disks: (1..=self.disks)
                .map(|disk| DiskSpec {
                    serial: format!("{mark}-{}w{worker}d{disk}", self.number),
                    size_bytes: self.disk_bytes,
                })
                .collect(),
            host,
            image: None,
        };
        (1..).zip(hosts).map(spec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_fit_scsi_and_are_distinct() {
        let yaml = "name: x\ntarget: {provider: local}\nworkers: {count: 1024, disks: 64}\nfootprints: [1PB]\n\
                    precondition: 1s\nsample: 1s\nworkloads: [published/4k-random-read]\n";
        let plan = plan::parse("plan.yaml", yaml, &plan::Profiles::shipped()).unwrap();
        let run = RunId(uuid::Uuid::now_v7());
        let workers = &plan.workers;
        let alike = Alike { run, number: 99, name: "worker", workers, disks: workers.disks, disk_bytes: 1 << 20 };
        let specs = alike.on(vec![None; 1024]);
        let serials: std::collections::BTreeSet<&str> =
            specs.iter().flat_map(|spec| spec.disks.iter().map(|disk| disk.serial.as_str())).collect();
        assert_eq!(serials.len(), 1024 * 64);
        assert!(
            serials.iter().all(|serial| serial.len() <= 20),
            "{:?}",
            serials.iter().max_by_key(|serial| serial.len())
        );
    }
}
