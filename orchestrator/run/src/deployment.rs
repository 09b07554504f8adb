//! A deployment: workers with their disks, enrolled in a fleet, from creation to destruction.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hypervisor::{Bootstrap, CreatedWorker, DiskSpec, Hypervisor, WorkerSpec};
use store::{Level, NewWorker, RunId, RunState, Store};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use worker_protocol::DiskAssignment;

use crate::arrivals::{Starts, summary};
use crate::executor::Place;
use crate::fleet::{
    Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, LOCAL_GRACE, MACHINE_GRACE,
    OrchestratorClock,
};
use crate::halt::Halt;
use crate::job::exit_reason;
use crate::journal::RunJournal;
use crate::seed;
use crate::tracker::Tracker;

/// From the last worker's start to the last enrolment: VMs boot in seconds, but several emulated ones on a busy machine take minutes. A
/// worker whose process or machine ends is not waited for.
const ENROL_TIMEOUT: Duration = Duration::from_secs(600);
/// Between two looks at processes that have not enrolled yet.
const ENROL_POLL: Duration = Duration::from_millis(250);
/// From Shutdown to the end of the last session.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Workers of a run that are up.
pub(crate) struct Deployment<'a> {
    store: &'a Store,
    run: RunId,
    place: &'a Place<'a>,
    pub(crate) fleet: Fleet,
    pub(crate) events: mpsc::Receiver<FleetEvent>,
    pub(crate) clock: OrchestratorClock,
    workers: Vec<CreatedWorker>,
    starts: Starts,
    /// Why a worker is no longer used, by name.
    gone: BTreeMap<String, String>,
    run_seed: u64,
    last_tick: Instant,
}

/// What to deploy.
pub(crate) struct Wanted<'a> {
    pub(crate) plan: &'a plan::TestPlan,
    pub(crate) disk_bytes: u64,
    pub(crate) run_seed: u64,
    /// Distinguishes the deployments of one run.
    pub(crate) number: u32,
}

impl<'a> Deployment<'a> {
    /// Creates and starts the workers, and waits until all have enrolled.
    pub(crate) async fn create(
        store: &'a Store,
        run: RunId,
        place: &'a Place<'a>,
        wanted: &Wanted<'_>,
        tracker: &Tracker,
        cancel: &CancellationToken,
    ) -> Result<Self, Halt> {
        store.set_run_state(run, RunState::Provisioning).await?;
        let journal = RunJournal { store, run };
        let mut workers = Vec::new();
        for spec in specs(run, wanted) {
            if cancel.is_cancelled() {
                return Err(Halt::Cancelled);
            }
            workers.push(place.hypervisor.create_worker(&spec, &journal).await?);
        }
        let listener = TcpListener::bind(place.worker_address)
            .await
            .map_err(|error| Halt::Failed(format!("{}: cannot listen for workers: {error}", place.worker_address)))?;
        let token = uuid::Uuid::new_v4().simple().to_string();
        let clock = OrchestratorClock::start();
        let settings = FleetSettings {
            token: token.clone(),
            authority: Arc::clone(&place.authority),
            expected: workers.iter().map(expected).collect(),
            clock,
            limits: FleetLimits { grace: grace(&workers), ..FleetLimits::default() },
        };
        let (fleet, events) = Fleet::start(listener, settings)
            .map_err(|error| Halt::Failed(format!("cannot listen for workers: {error}")))?;
        let bootstrap = Bootstrap { urls: fleet.urls().to_vec(), ca_sha256: fleet.ca_fingerprint().to_string(), token };
        let mut starts = Starts::default();
        for worker in &workers {
            place.hypervisor.start_worker(worker, &bootstrap, &journal).await?;
            starts.record(&worker.spec.name, std::time::Instant::now());
        }
        let gone = BTreeMap::new();
        let mut deployment = Self {
            store,
            run,
            place,
            fleet,
            events,
            clock,
            workers,
            starts,
            gone,
            run_seed: wanted.run_seed,
            last_tick: Instant::now(),
        };
        deployment.enrol(tracker, cancel).await?;
        Ok(deployment)
    }

    async fn enrol(&mut self, tracker: &Tracker, cancel: &CancellationToken) -> Result<(), Halt> {
        self.store.set_run_state(self.run, RunState::Enrolling).await?;
        let mut shown = None;
        let enrolled = {
            let waiting = self.fleet.wait_enrolled(ENROL_TIMEOUT);
            tokio::pin!(waiting);
            loop {
                tokio::select! {
                    enrolled = &mut waiting => break enrolled,
                    () = cancel.cancelled() => return Err(Halt::Cancelled),
                    () = tokio::time::sleep(ENROL_POLL) => {
                        let here = self.fleet.enrolled().len();
                        if shown.replace(here) != Some(here) {
                            let step = format!("{here} of {} workers have enrolled", self.workers.len());
                            tracker.state(RunState::Enrolling.as_str(), &step);
                        }
                        for (worker, why) in exits(self.place.hypervisor, &self.workers).await? {
                            // Ends the wait: a lost worker is hopeless.
                            let _ = self.fleet.worker_exited(&worker, why).await;
                        }
                    }
                }
            }
        };
        let enrolled = enrolled.map_err(|error| Halt::Failed(format!("the workers did not enrol: {error}")))?;
        for worker in &enrolled {
            self.store.add_worker(self.run, &NewWorker { name: &worker.worker, hello: &worker.hello }).await?;
        }
        let took = self.starts.took(enrolled.iter().map(|worker| (worker.worker.as_str(), worker.at)));
        for (worker, took) in &took {
            let seconds = took.as_secs_f64();
            self.event(Level::Info, &format!("worker {worker} enrolled {seconds:.1} s after its start")).await?;
        }
        if self.workers.iter().all(is_machine) {
            tracker.note(summary(&took));
        }
        Ok(())
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

    async fn event(&self, level: Level, message: &str) -> Result<(), Halt> {
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

    /// Tells the fleet which workers' processes or machines have ended.
    pub(crate) async fn report_exits(&mut self) -> Result<(), Halt> {
        let alive: Vec<CreatedWorker> = self.alive().cloned().collect();
        for (worker, why) in exits(self.place.hypervisor, &alive).await? {
            let _ = self.fleet.worker_exited(&worker, why).await;
        }
        Ok(())
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

/// Whether a worker is a machine of its own, which boots and has a network between it and the orchestrator.
fn is_machine(worker: &CreatedWorker) -> bool {
    worker.mac.is_some()
}

fn grace(workers: &[CreatedWorker]) -> Duration {
    if workers.iter().any(is_machine) { MACHINE_GRACE } else { LOCAL_GRACE }
}

async fn exits(hypervisor: &dyn Hypervisor, workers: &[CreatedWorker]) -> Result<Vec<(String, String)>, Halt> {
    let observed = hypervisor.observe(workers).await?;
    let exits = workers
        .iter()
        .zip(observed)
        .filter_map(|(worker, observed)| exit_reason(observed.state).map(|why| (worker.spec.name.clone(), why)));
    Ok(exits.collect())
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

/// The workers' names, identities and serials. A serial has at most 20 bytes (SCSI): 8 of the run's id, deployment, worker, disk.
fn specs(run: RunId, wanted: &Wanted<'_>) -> Vec<WorkerSpec> {
    let id = run.0.simple().to_string();
    // The end of the id: a version 7 UUID begins with the time, and ends with randomness.
    let mark = &id[id.len() - 8..];
    let workers = &wanted.plan.workers;
    (1..=workers.count)
        .map(|worker| WorkerSpec {
            name: format!("worker-{worker}"),
            uuid: uuid::Uuid::new_v4().to_string(),
            fleet: fleet_name(run, wanted.number),
            vcpus: workers.vcpus,
            memory_bytes: workers.memory_bytes,
            disks: (1..=workers.disks)
                .map(|disk| DiskSpec {
                    serial: format!("{mark}-{}w{worker}d{disk}", wanted.number),
                    size_bytes: wanted.disk_bytes,
                })
                .collect(),
            host: None,
            image: None,
        })
        .collect()
}

fn fleet_name(run: RunId, number: u32) -> String {
    format!("{run}-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_fit_scsi_and_are_distinct() {
        let yaml = "name: x\ntarget: {provider: local}\nworkers: {count: 1024, disks: 64}\nfootprints: [1PB]\n\
                    precondition: 1s\nsample: 1s\nworkloads: [published/4k-random-read]\n";
        let plan = plan::parse("plan.yaml", yaml, &plan::Profiles::shipped()).unwrap();
        let wanted = Wanted { plan: &plan, disk_bytes: 1 << 20, run_seed: 1, number: 99 };
        let specs = specs(RunId(uuid::Uuid::now_v7()), &wanted);
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
