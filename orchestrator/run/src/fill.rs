//! Filling: every new byte of a footprint is written and flushed, then random blocks are read back and compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hypervisor::BoxFuture;
use store::{DiskFill, NewFill, RunState};
use worker_protocol::{Fill, Finished, Progress, Verify, Work};

use crate::deployment::Deployment;
use crate::executor::Session;
use crate::halt::Halt;
use crate::job::{self, Job, JobEnd, JobReport, Limit, Observer};
use crate::tracker::Tracker;

/// Random blocks read back a disk.
const VERIFY_BLOCKS_PER_DISK: u32 = 1_000;
/// Bytes of each.
const VERIFY_BLOCK_BYTES: u64 = 4_096;
/// A fill that moves nothing for this long has failed.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

/// The part of every region that a footprint adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewBytes<'a> {
    pub(crate) footprint: &'a plan::Footprint,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// What a pass over the disks did.
#[derive(Debug)]
pub(crate) struct Pass {
    finished: BTreeMap<String, Box<Finished>>,
    elapsed: Duration,
}

/// Writes the new bytes of every disk in use.
pub(crate) async fn write(
    session: &mut Session<'_>,
    deployment: &mut Deployment<'_>,
    bytes: NewBytes<'_>,
) -> Result<Pass, Halt> {
    let work = Work::Fill(Fill {
        block_bytes: session.plan.fill_block_bytes,
        outstanding_per_disk: session.plan.fill_outstanding_per_disk,
        zero: session.plan.initialise == plan::Initialise::Zero,
    });
    session.enter(RunState::Filling).await?;
    session.tracker.state(RunState::Filling.as_str(), &format!("{}: fill", bytes.footprint.label));
    let filled = pass(session, deployment, bytes, work).await?;
    let written = filled.finished.values().flat_map(|totals| &totals.disks).map(|disk| disk.bytes).sum();
    session.tracker.measured_fill(written, filled.elapsed);
    session.store.add_fill(session.run, &record(bytes, &filled, None)).await?;
    Ok(filled)
}

/// Reads random blocks of the new bytes back and compares them with what was written.
pub(crate) async fn read_back(
    session: &mut Session<'_>,
    deployment: &mut Deployment<'_>,
    bytes: NewBytes<'_>,
    filled: &Pass,
) -> Result<(), Halt> {
    let work = Work::Verify(Verify {
        blocks_per_disk: VERIFY_BLOCKS_PER_DISK,
        block_bytes: VERIFY_BLOCK_BYTES,
        zero: session.plan.initialise == plan::Initialise::Zero,
    });
    session.tracker.state(RunState::Filling.as_str(), &format!("{}: read back", bytes.footprint.label));
    let verified = pass(session, deployment, bytes, work).await?;
    Ok(session.store.add_fill(session.run, &record(bytes, filled, Some(&verified))).await?)
}

async fn pass(
    session: &mut Session<'_>,
    deployment: &mut Deployment<'_>,
    bytes: NewBytes<'_>,
    work: Work,
) -> Result<Pass, Halt> {
    let workers = deployment.assign(bytes.from, bytes.to);
    let (writes, block_bytes) = match &work {
        Work::Fill(fill) => (true, fill.block_bytes),
        Work::Verify(_) | Work::Load(_) => (false, VERIFY_BLOCK_BYTES),
    };
    let seed = session.next_job_seed();
    let brake = session.brake.clone();
    let (limit, stop_on_loss) = (Limit::Idle(IDLE_LIMIT), session.stops_on_loss());
    let job = Job { id: seed.job, work, workers, seed: seed.seed, limit, brake: &brake, stop_on_loss };
    let mut observer =
        FillObserver { tracker: &mut session.tracker, block_bytes, writes, done: BTreeMap::new(), last: None };
    let report = job::drive(deployment, job, &mut observer).await?;
    if let Some(stop) = report.stopped {
        return Err(stop.into());
    }
    conclude(session, deployment, bytes, report).await
}

/// Workers whose part is missing are not used any more: their disks are not what the cases need.
async fn conclude(
    session: &Session<'_>,
    deployment: &mut Deployment<'_>,
    bytes: NewBytes<'_>,
    report: JobReport,
) -> Result<Pass, Halt> {
    let doing = format!("filling {}", bytes.footprint.label);
    session.tolerate(&doing, report.first_loss.as_ref())?;
    let mut finished = BTreeMap::new();
    for (worker, end) in report.ends {
        match (job::shortfall(&end), end) {
            (None, JobEnd::Finished { totals, .. }) => {
                finished.insert(worker, totals);
            }
            (why, _) => deployment.set_aside(&worker, &format!("{doing}: {}", why.unwrap_or_default())).await?,
        }
    }
    if finished.is_empty() {
        return Err(Halt::Failed(format!("{doing}: no worker is left")));
    }
    let slowest = finished.values().flat_map(|totals| &totals.disks).map(|disk| disk.elapsed_ns).max().unwrap_or(0);
    Ok(Pass { finished, elapsed: Duration::from_nanos(slowest) })
}

fn record(bytes: NewBytes<'_>, filled: &Pass, verified: Option<&Pass>) -> NewFill {
    let disks = filled.finished.iter().flat_map(|(worker, totals)| {
        totals.disks.iter().map(move |disk| {
            let read_back =
                verified.and_then(|pass| pass.finished.get(worker)).into_iter().flat_map(|totals| &totals.disks);
            DiskFill {
                worker: worker.clone(),
                disk: disk.serial.clone(),
                bytes: disk.bytes,
                seconds: Duration::from_nanos(disk.elapsed_ns).as_secs_f64(),
                verified_blocks: read_back
                    .filter(|back| back.serial == disk.serial)
                    .map(|back| back.verified_blocks)
                    .sum(),
            }
        })
    });
    NewFill { footprint_bytes: bytes.footprint.bytes, seconds: filled.elapsed.as_secs_f64(), disks: disks.collect() }
}

struct FillObserver<'a> {
    tracker: &'a mut Tracker,
    block_bytes: u64,
    writes: bool,
    /// Bytes done and to do, by worker.
    done: BTreeMap<String, (u64, u64)>,
    /// Bytes done and when, at the last tick.
    last: Option<(u64, Instant)>,
}

impl Observer for FillObserver<'_> {
    fn progress(&mut self, worker: &str, progress: &Progress) {
        self.done.insert(worker.to_owned(), (progress.bytes_done, progress.bytes_total));
    }

    fn ended<'a>(&'a mut self, worker: &'a str, _: &'a JobEnd) -> BoxFuture<'a, Result<(), Halt>> {
        if let Some((done, total)) = self.done.get_mut(worker) {
            *done = *total;
        }
        Box::pin(async { Ok(()) })
    }

    #[expect(clippy::cast_precision_loss, reason = "a share and a rate for a person")]
    fn tick(&mut self) {
        let (done, total) = self.done.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        if total == 0 {
            return;
        }
        let now = Instant::now();
        let live = self.last.map(|(before, at)| {
            let bytes_per_second = done.saturating_sub(before) as f64 / now.duration_since(at).as_secs_f64().max(1e-3);
            (bytes_per_second / self.block_bytes as f64, bytes_per_second / plan::MIB as f64)
        });
        self.last = Some((done, now));
        if self.writes {
            self.tracker.filled(done);
        }
        self.tracker.advance(done as f64 / total as f64, live);
    }
}
