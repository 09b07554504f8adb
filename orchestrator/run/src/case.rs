//! One case: preconditioning and the window in one go, every sample stored before it is acknowledged, then the verdict.

use std::collections::BTreeMap;
use std::time::Duration;

use analysis::case::Ending;
use analysis::export::{HostLoad, StorageHealth};
use hypervisor::{BoxFuture, HostSample};
use jiff::{SignedDuration, Timestamp};
use store::{
    CaseId, CaseWindow, CaseWorker, NewCase, NewHostSample, Refusal, RunState, StoreError, WorkerReady, WorkerResult,
    WorkerSample, WorkerStart,
};
use tokio::time::Instant;
use worker_protocol::{EngineReport, Finished, Load, Sample, Work};

use crate::deployment::Deployment;
use crate::executor::Session;
use crate::fleet::{OrchestratorClock, StartPlan};
use crate::halt::{self, Halt, Stop};
use crate::ingest::{self, Bounds, Refused};
use crate::job::{self, Job, JobEnd, JobReport, Limit, Observer};
use crate::workload_spec::workload_spec;

/// From the end of the window to the last Finished: in-flight I/O is drained, totals are sent.
const FINISH_GRACE: Duration = Duration::from_secs(60);
/// A worker's latest second is what it does now for this long; a further one comes every second.
const LATEST_HOLDS: Duration = Duration::from_secs(3);

/// A case of the plan.
pub(crate) struct Case<'a> {
    /// Place in the plan's order, from 0.
    pub(crate) ordinal: u32,
    pub(crate) footprint: &'a plan::Footprint,
    /// The part of each data disk, bytes.
    pub(crate) region_bytes: u64,
    pub(crate) workload: &'a plan::Workload,
}

/// Measures a case with the workers in use and stores its result.
pub(crate) async fn measure(
    session: &mut Session<'_>,
    deployment: &mut Deployment<'_>,
    case: &Case<'_>,
) -> Result<(), Halt> {
    if let Some(end) = session.brake.asked() {
        return Err(Halt::Asked(end));
    }
    if deployment.alive().next().is_none() {
        return Err(Halt::Failed("no worker is left".into()));
    }
    session.enter(RunState::Preconditioning).await?;
    let id = session.store.start_case(session.run, &new_case(session, deployment, case)).await?;
    let driven = drive(session, deployment, case, id).await;
    let ending = match &driven {
        Ok(report) => report.stopped.as_ref().map_or(Ending::Ran, Stop::ending),
        Err(Halt::Asked(end)) => halt::early(end),
        Err(Halt::Failed(why)) => Ending::Failed(why.clone()),
        Err(Halt::Store(_)) => return driven.map(|_| ()),
    };
    let result = session.store.evaluate_case(id, ending).await?;
    session.store.finish_case(id, &result).await?;
    conclude(session, deployment, case, driven?).await
}

/// Workers that are gone are set aside; the plan says whether the run goes on without a part of what was asked.
async fn conclude(
    session: &Session<'_>,
    deployment: &mut Deployment<'_>,
    case: &Case<'_>,
    report: JobReport,
) -> Result<(), Halt> {
    if let Some(stop) = report.stopped {
        return Err(stop.into());
    }
    let doing = format!("{}, {}", case.footprint.label, case.workload.name);
    for (worker, end) in &report.ends {
        let Some(why) = job::shortfall(end) else { continue };
        if !matches!(end, JobEnd::Finished { .. }) {
            deployment.set_aside(worker, &format!("{doing}: {why}")).await?;
        }
    }
    session.tolerate(&doing, report.first_loss.as_ref())
}

async fn drive(
    session: &mut Session<'_>,
    deployment: &mut Deployment<'_>,
    case: &Case<'_>,
    id: CaseId,
) -> Result<JobReport, Halt> {
    let load = Load {
        workload: workload_spec(case.workload, case.region_bytes),
        precondition_seconds: session.plan.precondition_seconds,
        sample_seconds: session.plan.sample_seconds,
    };
    let bounds = bounds(&load, deployment);
    let timed = Duration::from_secs(u64::from(load.precondition_seconds) + u64::from(load.sample_seconds));
    let seed = session.next_job_seed();
    let brake = session.brake.clone();
    let job = Job {
        id: seed.job,
        work: Work::Load(load),
        workers: deployment.assign(0, case.region_bytes),
        seed: seed.seed,
        limit: Limit::Total(timed + FINISH_GRACE),
        brake: &brake,
        stop_on_loss: session.stops_on_loss(),
    };
    let clock = deployment.clock;
    let label = format!("{}: {}", case.footprint.label, case.workload.name);
    session.tracker.state(RunState::Preconditioning.as_str(), &format!("{label}, precondition"));
    let mut observer =
        CaseObserver { session, id, bounds, clock, label, start_ns: None, sampling: false, latest: Latest::default() };
    job::drive(deployment, job, &mut observer).await
}

fn bounds(load: &Load, deployment: &Deployment<'_>) -> Bounds {
    let disks = deployment
        .alive()
        .map(|worker| (worker.spec.name.clone(), worker.disks.iter().map(|disk| disk.serial.clone()).collect()));
    Bounds {
        block_bytes: load.workload.block_bytes,
        precondition_seconds: load.precondition_seconds,
        sample_seconds: load.sample_seconds,
        disks: disks.collect(),
    }
}

fn new_case<'a>(session: &Session<'a>, deployment: &Deployment<'_>, case: &'a Case<'a>) -> NewCase<'a> {
    let plan = session.plan;
    let workers: Vec<CaseWorker> = deployment
        .alive()
        .map(|worker| CaseWorker {
            worker: worker.spec.name.clone(),
            disks: worker.disks.iter().map(|disk| disk.serial.clone()).collect(),
        })
        .collect();
    let disks: usize = workers.iter().map(|worker| worker.disks.len()).sum();
    NewCase {
        ordinal: case.ordinal,
        footprint: case.footprint,
        region_bytes: case.region_bytes,
        effective_bytes: case.region_bytes.saturating_mul(u64::try_from(disks).unwrap_or(u64::MAX)),
        workload: case.workload,
        precondition_seconds: plan.precondition_seconds,
        sample_seconds: plan.sample_seconds,
        expected_workers: plan.workers.count,
        reads_unwritten: plan.initialise == plan::Initialise::None && case.workload.read_percent > 0,
        workers,
    }
}

struct CaseObserver<'s, 'a> {
    session: &'s mut Session<'a>,
    id: CaseId,
    bounds: Bounds,
    clock: OrchestratorClock,
    label: String,
    start_ns: Option<u64>,
    sampling: bool,
    latest: Latest,
}

/// Each worker's latest second.
#[derive(Default)]
struct Latest {
    /// When it came, I/Os and bytes.
    seconds: BTreeMap<String, (Instant, u64, u64)>,
}

impl Latest {
    fn take(&mut self, worker: &str, sample: &Sample, now: Instant) {
        let ops = [&sample.ops.read, &sample.ops.write];
        let (ios, bytes) = ops.iter().fold((0, 0), |sum, op| (sum.0 + op.count, sum.1 + op.bytes));
        self.seconds.insert(worker.to_owned(), (now, ios, bytes));
    }

    fn forget(&mut self, worker: &str) {
        self.seconds.remove(worker);
    }

    /// IOPS and MiB/s of the workers that were heard of lately; none where none was.
    #[expect(clippy::cast_precision_loss, reason = "rates for a person")]
    fn rates(&self, now: Instant) -> Option<(f64, f64)> {
        let heard = self.seconds.values().filter(|(at, ..)| now.duration_since(*at) <= LATEST_HOLDS);
        let sum = heard.map(|(_, ios, bytes)| (*ios, *bytes)).reduce(|sum, one| (sum.0 + one.0, sum.1 + one.1))?;
        Some((sum.0 as f64, sum.1 as f64 / plan::MIB as f64))
    }
}

impl CaseObserver<'_, '_> {
    fn timed_ns(&self) -> (u64, u64) {
        let ns = |seconds: u32| u64::from(seconds) * 1_000_000_000;
        (ns(self.session.plan.precondition_seconds), ns(self.session.plan.sample_seconds))
    }

    fn window(&self, start: &StartPlan) -> CaseWindow {
        let ahead = i64::try_from(start.start_ns.saturating_sub(self.clock.now_ns())).unwrap_or(i64::MAX);
        let started = later(Timestamp::now(), ahead);
        let (precondition, sample) = self.timed_ns();
        let t0 = later(started, precondition.cast_signed());
        let workers = start.workers.iter().map(|worker| WorkerStart {
            worker: worker.worker.clone(),
            start_at_worker_ns: worker.worker_ns,
            offset_ns: -worker.offset.offset_ns,
        });
        CaseWindow { started, t0, t1: later(t0, sample.cast_signed()), workers: workers.collect() }
    }

    /// Stores the samples of a tick. A worker that sends another sample of a second that is stored is refused, and the others' are stored.
    async fn store(&self, sound: &mut Vec<(&str, &Sample)>, refused: &mut Vec<Refused>) -> Result<(), Halt> {
        loop {
            let rows: Vec<_> = sound.iter().map(|(worker, sample)| WorkerSample { worker, sample }).collect();
            let error = match self.session.store.add_samples(self.id, &rows).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let Some(liar) = second_twice(&error).filter(|one| sound.iter().any(|(worker, _)| *worker == one.worker))
            else {
                return Err(error.into());
            };
            sound.retain(|(worker, _)| *worker != liar.worker);
            refused.push(liar);
        }
    }

    async fn begin_sampling(&mut self) -> Result<(), Halt> {
        self.sampling = true;
        self.session.tracker.state(RunState::Sampling.as_str(), &format!("{}, sample", self.label));
        self.session.enter(RunState::Sampling).await
    }
}

fn host_load(load: &hypervisor::HostLoad) -> HostLoad {
    HostLoad {
        host: load.host.clone(),
        cpu_percent: load.cpu.map(|share| share * 100.0),
        memory_used_bytes: load.memory_used_bytes,
        memory_bytes: load.memory_bytes,
        io_pressure_percent: load.io_pressure_percent,
        io_wait_percent: load.io_wait.map(|share| share * 100.0),
    }
}

fn storage_health(health: &hypervisor::StorageHealth) -> StorageHealth {
    StorageHealth {
        status: health.status.clone(),
        checks: health.checks.clone(),
        recovery_bytes_per_second: health.recovery_bytes_per_second,
        displaced_percent: health.displaced * 100.0,
        scrubbing: health.scrubbing,
    }
}

/// The worker that sent two samples of one second, where that is the error.
fn second_twice(error: &StoreError) -> Option<Refused> {
    match error {
        StoreError::Refused { reason, .. } => match &**reason {
            why @ Refusal::SecondTwice { worker, .. } => Some(Refused { worker: worker.clone(), why: why.to_string() }),
            _ => None,
        },
        _ => None,
    }
}

fn later(time: Timestamp, ns: i64) -> Timestamp {
    time.saturating_add(SignedDuration::from_nanos(ns)).unwrap_or(time)
}

impl Observer for CaseObserver<'_, '_> {
    fn ready<'b>(&'b mut self, worker: &'b str, engine: &'b EngineReport) -> BoxFuture<'b, Result<(), Halt>> {
        Box::pin(async move { Ok(self.session.store.set_engine(self.id, &WorkerReady { worker, engine }).await?) })
    }

    fn started<'b>(&'b mut self, start: &'b StartPlan) -> BoxFuture<'b, Result<(), Halt>> {
        self.start_ns = Some(start.start_ns);
        let window = self.window(start);
        Box::pin(async move {
            self.session.store.set_case_window(self.id, &window).await?;
            if self.session.plan.precondition_seconds == 0 {
                self.begin_sampling().await?;
            }
            Ok(())
        })
    }

    fn samples<'b>(&'b mut self, samples: &'b [(String, Sample)]) -> BoxFuture<'b, Result<Vec<Refused>, Halt>> {
        Box::pin(async move {
            let (mut sound, mut refused) = ingest::sift(&self.bounds, samples);
            self.store(&mut sound, &mut refused).await?;
            for (worker, sample) in &sound {
                self.latest.take(worker, sample, Instant::now());
            }
            let in_window = sound.iter().any(|(_, sample)| sample.phase == worker_protocol::Phase::Sample);
            if in_window && !self.sampling {
                self.begin_sampling().await?;
            }
            Ok(refused)
        })
    }

    fn check(&self, worker: &str, totals: &Finished) -> Result<(), String> {
        ingest::check_finished(&self.bounds, worker, totals)
    }

    fn ended<'b>(&'b mut self, worker: &'b str, end: &'b JobEnd) -> BoxFuture<'b, Result<(), Halt>> {
        Box::pin(async move {
            self.latest.forget(worker);
            match (end, job::shortfall(end)) {
                (JobEnd::Finished { totals, clock }, _) => {
                    let offset_ns = clock.map(|clock| -clock.offset_ns);
                    let result = WorkerResult { worker, finished: totals, offset_ns };
                    Ok(self.session.store.add_disk_results(self.id, &result).await?)
                }
                (_, why) => {
                    let why = why.unwrap_or_default();
                    Ok(self.session.store.add_worker_failure(self.id, worker, &why).await?)
                }
            }
        })
    }

    /// From T0 on, also where its first sample is still to come.
    fn is_measuring(&self) -> bool {
        let (precondition, _) = self.timed_ns();
        self.start_ns.is_some_and(|start_ns| self.clock.now_ns() >= start_ns.saturating_add(precondition))
    }

    fn hosts<'b>(&'b mut self, sample: &'b HostSample) -> BoxFuture<'b, Result<(), Halt>> {
        Box::pin(async move {
            let (hosts, storage) = (sample.hosts.iter().map(host_load).collect(), sample.storage_health.as_ref());
            let sample = NewHostSample { at: Timestamp::now(), hosts, storage: storage.map(storage_health) };
            Ok(self.session.store.add_host_sample(self.id, &sample).await?)
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "a share for a person")]
    fn tick(&mut self) {
        let Some(start_ns) = self.start_ns else { return };
        let (precondition, sample) = self.timed_ns();
        let done = self.clock.now_ns().saturating_sub(start_ns);
        let live = self.latest.rates(Instant::now());
        self.session.tracker.advance(done as f64 / (precondition + sample).max(1) as f64, live);
    }
}

#[cfg(test)]
mod tests {
    use worker_protocol::{OpTotals, Ops, Phase};

    use super::*;

    #[test]
    fn what_a_silent_worker_did_is_not_what_it_does() {
        let sample = |count| {
            let read = OpTotals { count, bytes: count << 20, ..OpTotals::default() };
            let ops = Ops { read, ..Ops::default() };
            Sample { job: 1, number: 0, phase: Phase::Sample, second: 0, whole: true, ops, disks: Vec::new() }
        };
        let (mut latest, start) = (Latest::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(latest.rates(start), None);
        latest.take("w1", &sample(10), start);
        latest.take("w2", &sample(5), after(2));
        assert_eq!(latest.rates(after(3)), Some((15.0, 15.0)));
        assert_eq!(latest.rates(after(4)), Some((5.0, 5.0)), "w1 is silent");
        assert_eq!(latest.rates(after(6)), None, "both are");
        latest.take("w1", &sample(7), after(7));
        assert_eq!(latest.rates(after(7)), Some((7.0, 7.0)));
        latest.forget("w1");
        assert_eq!(latest.rates(after(7)), None);
    }
}
