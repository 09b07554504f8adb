//! The canary: one worker on each host goes through the whole chain, from nothing to a write that is read back, and is removed again;
//! what breaks is named by host, link and cause before many workers exist.

use std::time::Duration;

use hypervisor::WorkerSpec;
use serde::Serialize;
use store::{Level, RunEnd, RunId, RunState, Store};
use tokio::sync::watch;
use worker_protocol::{Fill, Finished, Verify, Work};

use crate::brake::{self, Brake};
use crate::deployment::{Alike, Break, Deployment, Link, Patience, Undeployed, Wanted, fleet_name};
use crate::executor::{self, Place, Request, RunError};
use crate::fleet::Enrolled;
use crate::halt::Halt;
use crate::job::{self, Job, JobEnd, Limit, Observer};
use crate::watch::WatchTimes;
use crate::{Progress, seed};

/// The one data disk of a canary, bytes.
const DISK_BYTES: u64 = 1 << 30;
/// Part of it that is written, bytes.
const WRITE_BYTES: u64 = 64 << 20;
/// Bytes a write.
const WRITE_BLOCK_BYTES: u64 = 1 << 20;
/// Writes in flight.
const WRITES_IN_FLIGHT: u32 = 8;
/// Blocks that are read back.
const READ_BLOCKS: u32 = 1_000;
/// Bytes of each.
const READ_BLOCK_BYTES: u64 = 4_096;
/// A write or a read-back that moves nothing for this long has failed.
const IDLE_LIMIT: Duration = Duration::from_secs(120);
/// The canary's deployment; those of the cases are counted from 1.
const DEPLOYMENT: u32 = 0;

/// Warning of a run that is a canary alone.
const NO_FIGURES: &str =
    "This is a canary: one worker on each host was booted and removed again. Nothing was measured.";

/// What became of a canary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryReport {
    /// Id of the run that its journal is kept under.
    pub run: String,
    /// One entry a host in use.
    pub hosts: Vec<CanaryHost>,
    /// Why it was broken off, where it was.
    pub stopped: Option<String>,
}

/// What became of the canary on one host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CanaryHost {
    /// The host; none where the place has one.
    pub host: Option<String>,
    /// Name of the worker.
    pub worker: String,
    /// Its identity, by which it was recognised.
    pub uuid: String,
    /// Serial of its data disk.
    pub disk: String,
    /// Size of the disk as the worker sees it, bytes; none where it did not enrol.
    pub disk_bytes: Option<u64>,
    /// Kernel of the worker; none where it did not enrol.
    pub kernel: Option<String>,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Blocks that were read back as they were written.
    pub verified_blocks: u64,
    /// MTU of the way to the orchestrator, bytes: messages larger than that went through both ways. None where it did not enrol, or its
    /// kernel does not tell.
    pub mtu_bytes: Option<u32>,
    /// Link of the chain that broke, and why.
    pub failure: Option<(Link, String)>,
}

impl CanaryReport {
    fn new(run: RunId, specs: &[WorkerSpec]) -> Self {
        Self { run: run.to_string(), hosts: specs.iter().map(CanaryHost::new).collect(), stopped: None }
    }

    fn broken_off(run: RunId, why: String) -> Self {
        Self { stopped: Some(why), ..Self::new(run, &[]) }
    }

    /// Why the plan must not be run, if so: host, link and cause of each failure.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let broken = self.hosts.iter().filter(|host| host.failure.is_some()).map(CanaryHost::line);
        let all: Vec<String> = self.stopped.iter().cloned().chain(broken).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// A line a host, for a person.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let stopped = self.stopped.iter().map(|why| format!("canary: {why}"));
        self.hosts.iter().map(CanaryHost::line).chain(stopped).collect()
    }

    pub(crate) fn level(&self) -> Level {
        if self.failure().is_some() { Level::Error } else { Level::Info }
    }

    fn host_of(&mut self, worker: &str) -> Option<&mut CanaryHost> {
        self.hosts.iter_mut().find(|host| host.worker == worker)
    }

    fn broke(&mut self, broken: Break) {
        let Break { worker, link, cause } = broken;
        let concerns = |host: &&mut CanaryHost| worker.as_ref().is_none_or(|worker| host.worker == *worker);
        for host in self.hosts.iter_mut().filter(concerns) {
            host.failure.get_or_insert_with(|| (link, cause.clone()));
        }
    }

    fn saw(&mut self, enrolled: &Enrolled) {
        if let Some(host) = self.host_of(&enrolled.worker) {
            let hello = &enrolled.hello;
            host.kernel = Some(hello.kernel.clone());
            host.mtu_bytes = enrolled.path_mtu_bytes;
            host.disk_bytes = hello.disks.iter().find(|disk| disk.serial == host.disk).map(|disk| disk.size_bytes);
        }
    }

    fn did(&mut self, worker: &str, totals: &Finished) {
        if let Some(host) = self.host_of(worker) {
            host.written_bytes = host.written_bytes.max(totals.disks.iter().map(|disk| disk.bytes).sum());
            host.verified_blocks = totals.disks.iter().map(|disk| disk.verified_blocks).sum();
        }
    }
}

impl CanaryHost {
    fn new(spec: &WorkerSpec) -> Self {
        Self {
            host: spec.host.clone(),
            worker: spec.name.clone(),
            uuid: spec.uuid.clone(),
            disk: spec.disks.first().map(|disk| disk.serial.clone()).unwrap_or_default(),
            disk_bytes: None,
            kernel: None,
            written_bytes: 0,
            verified_blocks: 0,
            mtu_bytes: None,
            failure: None,
        }
    }

    fn line(&self) -> String {
        let place = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        if let Some((link, cause)) = &self.failure {
            return format!("canary{place} failed at {link}: {cause}");
        }
        let bytes = self.disk_bytes.map_or_else(String::new, |bytes| format!(" of {bytes} bytes"));
        let mtu = match self.mtu_bytes {
            Some(mtu) => format!("MTU to the orchestrator {mtu}"),
            None => "MTU to the orchestrator unknown: its kernel does not tell".to_owned(),
        };
        format!(
            "canary{place}: enrolled as {} (kernel {}), disk {}{bytes} seen, {} bytes written, {} blocks read back as written, removed; {mtu}",
            self.uuid,
            self.kernel.as_deref().unwrap_or("unknown"),
            self.disk,
            self.written_bytes,
            self.verified_blocks
        )
    }
}

/// Takes one worker on each host that the plan's workers would be on through the whole chain, and removes it. It is recorded as a run of
/// its own without cases, so that a crash leaves nothing.
///
/// # Errors
/// [`RunError`] where it could not begin, or the store failed. A chain that breaks is not an error: the report says where.
pub async fn canary(
    store: &Store,
    place: &Place<'_>,
    request: &Request,
    progress: watch::Sender<Progress>,
    brake: Brake,
) -> Result<CanaryReport, RunError> {
    let plan = plan::TestPlan { name: format!("canary of {}", request.plan.name), ..request.plan.clone() };
    let (run, run_seed) = executor::begin(store, place, request, &plan).await?;
    store.add_run_warning(run, NO_FIGURES).await?;
    let say = |step: &str| {
        progress.send_modify(|progress| {
            progress.run_id = run.to_string();
            progress.step = step.to_owned();
        });
    };
    let flown = Canary::of(&request.plan, run_seed, request.options.watch).fly(store, run, place, &say, &brake).await;
    let (report, state) = match flown {
        Ok(report) => {
            let state = if report.failure().is_some() { RunState::Failed } else { RunState::Done };
            (report, state)
        }
        Err(Halt::Asked(end)) => (CanaryReport::broken_off(run, brake::said(&end)), RunState::Cancelled),
        Err(Halt::Failed(why)) => (CanaryReport::broken_off(run, why), RunState::Failed),
        Err(Halt::Store(error)) => {
            executor::end_without_store(store, run, &error, 0).await;
            return Err(error.into());
        }
    };
    for line in report.lines() {
        store.add_event(run, report.level(), &line).await?;
    }
    store.finish_run(run, &RunEnd { state, reason: report.failure(), planned_cases: 0 }).await?;
    Ok(report)
}

/// A canary of a plan.
pub(crate) struct Canary<'p> {
    plan: &'p plan::TestPlan,
    run_seed: u64,
    watch: WatchTimes,
}

impl<'p> Canary<'p> {
    pub(crate) fn of(plan: &'p plan::TestPlan, run_seed: u64, watch: WatchTimes) -> Self {
        Self { plan, run_seed, watch }
    }

    /// Whatever happens, nothing is left standing; what cannot be removed is a failure as well.
    pub(crate) async fn fly(
        &self,
        store: &Store,
        run: RunId,
        place: &Place<'_>,
        say: &(dyn Fn(&str) + Sync),
        brake: &Brake,
    ) -> Result<CanaryReport, Halt> {
        say("canary: one worker on each host");
        let hosts = distinct(place.hypervisor.place(self.plan.workers.count).await?);
        let (workers, disk_bytes) = (&self.plan.workers, DISK_BYTES);
        let alike = Alike { run, number: DEPLOYMENT, name: "canary", workers, disks: 1, disk_bytes };
        let specs = alike.on(hosts);
        let mut report = CanaryReport::new(run, &specs);
        let flown = self.up_and_down((store, run, place), specs, say, brake, &mut report).await;
        say("canary: removing it");
        if let Err(Halt::Store(error)) = flown {
            let torn_down = executor::tear_down_all_the_same(store, run, place.hypervisor, &error).await;
            let halt = Halt::Store(error);
            return Err(match torn_down {
                Ok(()) => halt,
                Err(second) => halt.and(second),
            });
        }
        store.set_run_state(run, RunState::TearingDown).await?;
        match (executor::destroy(store, run, place.hypervisor).await, flown) {
            (Err(second), Err(first)) => return Err(first.and(second)),
            (Err(Halt::Store(error)), Ok(())) => return Err(Halt::Store(error)),
            (_, Err(halt)) => return Err(halt),
            (Err(halt), Ok(())) => report.broke(not_removed(halt.to_string())),
            (Ok(left), Ok(())) if !left.is_empty() => report.broke(not_removed(left.join("; "))),
            (Ok(_), Ok(())) => {}
        }
        Ok(report)
    }

    async fn up_and_down(
        &self,
        (store, run, place): (&Store, RunId, &Place<'_>),
        specs: Vec<WorkerSpec>,
        say: &(dyn Fn(&str) + Sync),
        brake: &Brake,
        report: &mut CanaryReport,
    ) -> Result<(), Halt> {
        let wanted = Wanted {
            fleet: fleet_name(run, DEPLOYMENT),
            specs,
            run_seed: self.run_seed,
            watch: self.watch,
            patience: Patience::All,
            enrol_within: Duration::from_secs(self.plan.canary_wait_seconds.into()),
        };
        let say = |step: &str| say(&format!("canary: {step}"));
        let mut deployment = match Deployment::create(store, run, place, wanted, &say, brake).await {
            Ok(deployment) => deployment,
            Err(Undeployed::Halt(halt)) => return Err(halt),
            Err(Undeployed::Broken(_, all)) => {
                all.into_iter().for_each(|one| report.broke(one));
                return Ok(());
            }
        };
        deployment.enrolled().iter().for_each(|worker| report.saw(worker));
        let exercised = self.exercise(&mut deployment, brake, report).await;
        deployment.shut_down().await;
        exercised
    }

    /// Writes, then reads back what was written.
    async fn exercise(
        &self,
        deployment: &mut Deployment<'_>,
        brake: &Brake,
        report: &mut CanaryReport,
    ) -> Result<(), Halt> {
        let fill = Fill { block_bytes: WRITE_BLOCK_BYTES, outstanding_per_disk: WRITES_IN_FLIGHT, zero: false };
        let verify = Verify { blocks_per_disk: READ_BLOCKS, block_bytes: READ_BLOCK_BYTES, zero: false };
        let steps = [(Link::Write, Work::Fill(fill)), (Link::ReadBack, Work::Verify(verify))];
        for (id, (link, work)) in (1..).zip(steps) {
            let job = Job {
                id,
                work,
                workers: deployment.assign(0, WRITE_BYTES),
                seed: seed::derive(self.run_seed, "canary", id),
                limit: Limit::Idle(IDLE_LIMIT),
                brake,
                stop_on_loss: false,
            };
            if job.workers.is_empty() {
                return Ok(());
            }
            let done = job::drive(deployment, job, &mut Quiet).await?;
            if let Some(stop) = done.stopped {
                return Err(stop.into());
            }
            for (worker, end) in done.ends {
                match (job::shortfall(&end), end) {
                    (None, JobEnd::Finished { totals, .. }) => report.did(&worker, &totals),
                    (cause, _) => {
                        let cause = cause.unwrap_or_default();
                        deployment.set_aside(&worker, &format!("{link}: {cause}")).await?;
                        report.broke(Break { worker: Some(worker), link, cause });
                    }
                }
            }
        }
        Ok(())
    }
}

/// What a canary writes is of no interest but for its end.
struct Quiet;

impl Observer for Quiet {}

fn not_removed(cause: String) -> Break {
    Break { worker: None, link: Link::Remove, cause }
}

/// Each host once, in order.
fn distinct(hosts: Vec<Option<String>>) -> Vec<Option<String>> {
    let mut once = Vec::new();
    for host in hosts {
        if !once.contains(&host) {
            once.push(host);
        }
    }
    once
}
