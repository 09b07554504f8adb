//! The state machine of a run.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use analysis::export::{EarlyEnd, How};
use hypervisor::{Finding, Hypervisor, HypervisorError, Severity};
use plan::{FillRate, Schedule, Step, StepKind};
use serde_json::json;
use store::{Level, NewRun, RunEnd, RunId, RunState, Store, StoreError};
use tokio::sync::watch;

use crate::brake::{self, Brake};
use crate::deployment::{Alike, Deployment, ENROL_TIMEOUT, Patience, Wanted, fleet_name};
use crate::fill::{NewBytes, Pass};
use crate::fleet::Authority;
use crate::halt::Halt;
use crate::image::WorkerImage;
use crate::journal::{self, RunJournal};
use crate::recovery::end_running_cases;
use crate::tracker::Tracker;
use crate::watch::WatchTimes;
use crate::{Progress, canary, case, environment, fill, seed};

/// Where a run takes place.
pub struct Place<'a> {
    /// Creates, starts and destroys the workers.
    pub hypervisor: &'a dyn Hypervisor,
    /// Where the orchestrator listens for workers, over TLS alone: an unspecified address means all of this machine's, port 0 any free
    /// port.
    pub worker_address: SocketAddr,
    /// Where workers are told to dial, in turn, where that is not simply where the orchestrator listens: behind a translated address, or
    /// on one network of many. Port 0 is the listener's. All addresses that it listens at where empty.
    pub told: Vec<SocketAddr>,
    /// Whose certificate the workers pin.
    pub authority: Arc<Authority>,
    /// The image that is made personal for each fleet and brought to the hosts; none where workers boot nothing, or the place makes
    /// their images itself.
    pub image: Option<WorkerImage>,
}

/// What to run.
#[derive(Debug, Clone)]
pub struct Request {
    /// The plan as validated.
    pub plan: plan::TestPlan,
    /// The plan as written.
    pub plan_yaml: String,
    /// How it is carried out.
    pub options: RunOptions,
}

/// How a run is carried out, beside what its plan says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// One worker on each host in use goes through the whole chain before the others exist. Of use where workers are machines that boot.
    pub canary: bool,
    /// How often the place is looked at under load, and how long it may be silent.
    pub watch: WatchTimes,
}

/// What a rehearsal's figures are.
const REHEARSAL: &str = "This is a rehearsal: the plan at its smallest (seconds a case, a footprint of megabytes a disk), to see that all of it \
    works. Its figures are no result.";

/// A run that could not be carried out, or not be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The place cannot take the plan; nothing was changed.
    #[error("the plan cannot run here, and nothing was changed:\n{}", lines(.0))]
    Preflight(Vec<Finding>),
    /// The place did not answer; nothing was changed.
    #[error("the place of the workers cannot be looked at: {0}")]
    Hypervisor(#[from] HypervisorError),
    /// The store failed: what was measured up to then is in it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn lines(findings: &[Finding]) -> String {
    let line = |finding: &Finding| format!("  {}\n    what to do: {}", finding.message, finding.remedy);
    findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Takes a plan through all its states. The answer is the run's id; how it ended is in the store.
///
/// `brake` ends it early: what was measured is kept, and the workers are torn down.
///
/// # Errors
/// [`RunError`] where the run could not begin, or the store failed. A run that began and failed is not an error: its row says so.
pub async fn execute(
    store: &Store,
    place: &Place<'_>,
    request: &Request,
    progress: watch::Sender<Progress>,
    brake: Brake,
) -> Result<RunId, RunError> {
    let (run, run_seed) = begin(store, place, request, &request.plan).await?;
    let schedule = plan::schedule(&request.plan, FillRate::assumed());
    let tracker = Tracker::new(progress, run.to_string(), schedule.clone());
    let (plan, options) = (&request.plan, request.options);
    let heeded = brake.clone();
    let mut session = Session { store, run, place, plan, options, run_seed, tracker, brake, jobs: 0, cases: 0 };
    let ended = tokio::select! {
        ended = session.run(&schedule) => ended,
        never = record_asks(store, run, &heeded) => match never {},
    };
    session.conclude(ended).await?;
    Ok(run)
}

/// Keeps who asked the run to end early, so that it is known also where this process is killed before the run's end.
async fn record_asks(store: &Store, run: RunId, brake: &Brake) -> Infallible {
    let mut last = None;
    loop {
        let end = brake.news(last.as_ref()).await;
        let text = match end.how {
            How::Stop => format!("{} stops the run: a case that is being measured gets its whole result first", end.by),
            How::Cancel => format!("{} cancels the run: it ends now", end.by),
        };
        let recorded = async {
            store.set_early_end(run, &end).await?;
            store.add_event(run, Level::Warning, &text).await
        };
        // What the store cannot take, the run itself finds out.
        if let Err(error) = recorded.await {
            tracing::warn!(%error, "who ended the run could not be recorded");
        }
        last = Some(end);
    }
}

/// Looks whether the place can take the plan, and records a run of it (under the name in `recorded`) with what was found.
pub(crate) async fn begin(
    store: &Store,
    place: &Place<'_>,
    request: &Request,
    recorded: &plan::TestPlan,
) -> Result<(RunId, u64), RunError> {
    let findings = preflight(place, &request.plan).await?;
    let run_seed = request.plan.seed.unwrap_or_else(seed::draw);
    let mut environment = environment::orchestrator();
    environment["place"] = place.hypervisor.describe().await;
    environment["seed"] = json!(run_seed);
    let new = NewRun { plan: recorded, plan_yaml: &request.plan_yaml, environment: &environment, seed: run_seed };
    let run = store.create_run(&new).await?;
    if recorded.rehearsal {
        store.add_run_warning(run, REHEARSAL).await?;
    }
    for finding in &findings {
        let text = format!("{} ({})", finding.message, finding.remedy);
        match finding.severity {
            Severity::Note => store.add_event(run, Level::Info, &text).await?,
            Severity::Warning | Severity::Blocker => store.add_run_warning(run, &text).await?,
        }
    }
    Ok((run, run_seed))
}

async fn preflight(place: &Place<'_>, plan: &plan::TestPlan) -> Result<Vec<Finding>, RunError> {
    let needed = hypervisor::Deployment {
        workers: plan.workers.count,
        disks_per_worker: plan.workers.disks,
        disk_bytes: plan.disk_bytes(),
        vcpus: plan.workers.vcpus,
        memory_bytes: plan.workers.memory_bytes,
    };
    let findings = place.hypervisor.preflight(&needed).await?;
    let (blockers, others): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.severity == Severity::Blocker);
    if blockers.is_empty() { Ok(others) } else { Err(RunError::Preflight(blockers)) }
}

/// A run that goes on.
pub(crate) struct Session<'a> {
    pub(crate) store: &'a Store,
    pub(crate) run: RunId,
    place: &'a Place<'a>,
    pub(crate) plan: &'a plan::TestPlan,
    options: RunOptions,
    pub(crate) run_seed: u64,
    pub(crate) tracker: Tracker,
    pub(crate) brake: Brake,
    jobs: u64,
    cases: u32,
}

/// What is up while the schedule is walked.
#[derive(Default)]
struct Standing<'a> {
    deployment: Option<Deployment<'a>>,
    /// Deployments so far.
    number: u32,
    /// The fill that was not read back yet.
    filled: Option<(NewBytes<'a>, Pass)>,
}

/// Identity and seed of a job.
pub(crate) struct JobSeed {
    pub(crate) job: u64,
    pub(crate) seed: u64,
}

impl<'a> Session<'a> {
    /// Walks the schedule; whatever stops it, nothing is left standing.
    async fn run(&mut self, schedule: &Schedule) -> Result<(), Halt> {
        let mut standing = Standing::default();
        let walked = self.walk(schedule, &mut standing).await;
        if let Some(deployment) = standing.deployment {
            deployment.shut_down().await;
        }
        let Err(halt) = walked else { return Ok(()) };
        let torn_down = match &halt {
            Halt::Store(error) => tear_down_all_the_same(self.store, self.run, self.place.hypervisor, error).await,
            _ => self.tear_down().await,
        };
        Err(match torn_down {
            Ok(()) => halt,
            Err(second) => halt.and(second),
        })
    }

    async fn walk(&mut self, schedule: &Schedule, standing: &mut Standing<'a>) -> Result<(), Halt> {
        if self.options.canary {
            self.canary().await?;
        }
        for (index, step) in schedule.steps.iter().enumerate() {
            let leaves_out = schedule.steps[index..].iter().any(|step| matches!(step.kind, StepKind::Case { .. }));
            if let Some(end) = self.brake.asked().filter(|_| leaves_out) {
                return Err(Halt::Asked(end));
            }
            self.tracker.begin_step(index);
            match step.kind {
                StepKind::Deploy => {
                    standing.number += 1;
                    let disk_bytes = self.disk_bytes(&schedule.steps[index..]);
                    standing.deployment = Some(self.deploy(standing.number, disk_bytes).await?);
                }
                StepKind::TearDown => {
                    if let Some(deployment) = standing.deployment.take() {
                        deployment.shut_down().await;
                    }
                    self.tear_down().await?;
                }
                kind => self.measure(kind, standing).await?,
            }
        }
        Ok(())
    }

    /// Steps that need workers.
    async fn measure(&mut self, step: StepKind, standing: &mut Standing<'a>) -> Result<(), Halt> {
        let Some(deployment) = &mut standing.deployment else {
            return Err(Halt::Failed("the schedule measures before it deploys".into()));
        };
        match step {
            StepKind::Fill { footprint, from_byte, bytes_per_disk, .. } => {
                let bytes = NewBytes {
                    footprint: &self.plan.footprints[footprint],
                    from: from_byte,
                    to: from_byte + bytes_per_disk,
                };
                let filled = fill::write(self, deployment, bytes).await?;
                standing.filled = Some((bytes, filled));
                Ok(())
            }
            StepKind::Verify { .. } => match standing.filled.take() {
                Some((bytes, filled)) => fill::read_back(self, deployment, bytes, &filled).await,
                None => Err(Halt::Failed("the schedule reads back before it fills".into())),
            },
            StepKind::Settle { footprint } => self.settle(&self.plan.footprints[footprint]).await,
            StepKind::Case { footprint, workload, .. } => {
                let footprint = &self.plan.footprints[footprint];
                let (ordinal, region_bytes) = (self.cases, self.plan.region_bytes(footprint));
                self.cases += 1;
                self.tracker.case(self.cases);
                let workload = &self.plan.workloads[workload];
                case::measure(self, deployment, &case::Case { ordinal, footprint, region_bytes, workload }).await
            }
            StepKind::Deploy | StepKind::TearDown => Ok(()),
        }
    }

    async fn deploy(&mut self, number: u32, disk_bytes: u64) -> Result<Deployment<'a>, Halt> {
        self.tracker.state(RunState::Provisioning.as_str(), "starting the workers");
        let workers = &self.plan.workers;
        let hosts = self.place.hypervisor.place(workers.count).await?;
        let alike = Alike { run: self.run, number, name: "worker", workers, disks: workers.disks, disk_bytes };
        let wanted = Wanted {
            fleet: fleet_name(self.run, number),
            specs: alike.on(hosts),
            run_seed: self.run_seed,
            watch: self.options.watch,
            patience: Patience::UntilFirst,
            enrol_within: ENROL_TIMEOUT,
        };
        let say = |step: &str| self.tracker.state(RunState::Enrolling.as_str(), step);
        let deployment = Deployment::create(self.store, self.run, self.place, wanted, &say, &self.brake).await?;
        deployment.record_workers().await?;
        if let Some(arrivals) = deployment.arrivals() {
            self.tracker.note(arrivals);
        }
        Ok(deployment)
    }

    async fn canary(&mut self) -> Result<(), Halt> {
        let canary = canary::Canary::of(self.plan, self.run_seed, self.options.watch);
        let say = |step: &str| self.tracker.state(RunState::Provisioning.as_str(), step);
        let report = canary.fly(self.store, self.run, self.place, &say, &self.brake).await?;
        for line in report.lines() {
            self.store.add_event(self.run, report.level(), &line).await?;
        }
        match report.failure() {
            Some(why) => Err(Halt::Failed(why)),
            None => Ok(()),
        }
    }

    /// The largest region that a deployment serves.
    fn disk_bytes(&self, steps: &[Step]) -> u64 {
        let cases =
            steps.iter().take_while(|step| step.kind != StepKind::TearDown).filter_map(|step| match step.kind {
                StepKind::Case { footprint, .. } => Some(self.plan.region_bytes(&self.plan.footprints[footprint])),
                _ => None,
            });
        cases.max().unwrap_or(0)
    }

    async fn settle(&mut self, footprint: &plan::Footprint) -> Result<(), Halt> {
        let seconds = self.plan.settle_seconds;
        self.enter(RunState::Filling).await?;
        self.tracker.state(RunState::Filling.as_str(), &format!("{}: settle", footprint.label));
        for second in 0..seconds {
            self.tracker.advance(f64::from(second) / f64::from(seconds), None);
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                end = self.brake.pulled() => return Err(Halt::Asked(end)),
            }
        }
        Ok(())
    }

    /// Takes the run to another state, in the store and for whoever watches.
    pub(crate) async fn enter(&self, state: RunState) -> Result<(), Halt> {
        Ok(self.store.set_run_state(self.run, state).await?)
    }

    /// The next job's identity and seed.
    pub(crate) fn next_job_seed(&mut self) -> JobSeed {
        self.jobs += 1;
        JobSeed { job: self.jobs, seed: seed::derive(self.run_seed, "job", self.jobs) }
    }

    /// Whether the plan ends the run with the first worker whose part is missing.
    pub(crate) fn stops_on_loss(&self) -> bool {
        self.plan.on_worker_loss == plan::OnWorkerLoss::Fail
    }

    /// What the plan says about the first worker whose part is missing.
    pub(crate) fn tolerate(&self, doing: &str, loss: Option<&(String, String)>) -> Result<(), Halt> {
        match loss {
            Some((worker, why)) if self.stops_on_loss() => Err(Halt::Failed(format!("{doing}: {worker}: {why}"))),
            _ => Ok(()),
        }
    }

    async fn tear_down(&mut self) -> Result<(), Halt> {
        self.enter(RunState::TearingDown).await?;
        self.tracker.state(RunState::TearingDown.as_str(), "tearing down");
        destroy(self.store, self.run, self.place.hypervisor).await?;
        Ok(())
    }

    async fn conclude(&mut self, ended: Result<(), Halt>) -> Result<(), RunError> {
        let planned = self.plan.footprints.len() * self.plan.workloads.len();
        let planned_cases = u32::try_from(planned).unwrap_or(u32::MAX);
        let (state, reason) = match ended {
            Ok(()) => (RunState::Done, None),
            Err(Halt::Asked(end)) => {
                self.store.set_early_end(self.run, &end).await?;
                let (state, reason) = early_state(&end, planned_cases.saturating_sub(self.cases));
                (state, Some(reason))
            }
            Err(Halt::Failed(why)) => (RunState::Failed, Some(why)),
            Err(Halt::Store(error)) => {
                end_without_store(self.store, self.run, &error, planned_cases).await;
                return Err(error.into());
            }
        };
        if let Some(reason) = &reason {
            let level = if state == RunState::Failed { Level::Error } else { Level::Warning };
            self.store.add_event(self.run, level, reason).await?;
        }
        self.store.finish_run(self.run, &RunEnd { state, reason, planned_cases }).await?;
        self.tracker.state(state.as_str(), state.as_str());
        Ok(())
    }
}

/// Tears down although the store failed, which may have been for a moment. Each removal is journalled before it is made: where the store
/// still fails, nothing is removed, and the run stays unfinished for the recovery.
pub(crate) async fn tear_down_all_the_same(
    store: &Store,
    run: RunId,
    hypervisor: &dyn Hypervisor,
    error: &StoreError,
) -> Result<(), Halt> {
    tracing::error!(%run, %error, "the store failed; tearing down");
    store.set_run_state(run, RunState::TearingDown).await?;
    destroy(store, run, hypervisor).await.map(drop)
}

/// Ends a run whose store failed as failed, if the store takes that; else the recovery does.
pub(crate) async fn end_without_store(store: &Store, run: RunId, error: &StoreError, planned_cases: u32) {
    let reason = format!("what was measured could not be stored: {error}");
    let ended = async {
        end_running_cases(store, run, &reason).await?;
        store.add_event(run, Level::Error, &reason).await?;
        let end = RunEnd { state: RunState::Failed, reason: Some(reason.clone()), planned_cases };
        store.finish_run(run, &end).await?;
        Ok::<(), RunError>(())
    };
    if let Err(error) = ended.await {
        tracing::error!(%run, %error, "the run's end could not be recorded; it is ended before the next one");
    }
}

/// State and reason of a run that somebody ended, `not_run` cases of its plan before they began.
pub(crate) fn early_state(end: &EarlyEnd, not_run: u32) -> (RunState, String) {
    let said = brake::said(end);
    match (end.how, not_run) {
        (How::Cancel, _) => (RunState::Cancelled, said),
        (How::Stop, 0) => (RunState::Stopped, said),
        (How::Stop, 1) => (RunState::Stopped, format!("{said}; 1 case was not run")),
        (How::Stop, _) => (RunState::Stopped, format!("{said}; {not_run} cases were not run")),
    }
}

/// Destroys what the run's journal records as living or as possibly made; what had to be left alone becomes a warning of
/// the run, and is answered.
pub(crate) async fn destroy(store: &Store, run: RunId, hypervisor: &dyn Hypervisor) -> Result<Vec<String>, Halt> {
    let recorded = journal::entries(store, run).await?;
    let left = hypervisor.destroy(&recorded, &RunJournal { store, run }).await?;
    let warnings: Vec<_> =
        left.into_iter().map(|left| format!("{} was left alone: {}", left.object, left.reason)).collect();
    for warning in &warnings {
        store.add_run_warning(run, warning).await?;
        store.add_event(run, Level::Warning, warning).await?;
    }
    Ok(warnings)
}
