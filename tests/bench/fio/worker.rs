//! The worker's side: the built binary as a worker on the file, and a fleet that it dials.

use std::{
    fs,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use latency_histogram::{Exact, Latencies};
use run::fleet::{Authority, Expected, ExpectedDisk, Fleet, FleetEvent, FleetLimits, FleetSettings, OrchestratorClock};
use tokio::{
    net::TcpListener,
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::timeout,
};
use worker_protocol::{
    DiskAssignment, EngineReport, Fill, Finished, Load, OnError, OpTotals, Pattern, Prepare, Work, WorkloadSpec,
};

use crate::{
    cpu,
    job::{Access, Figures, Job},
};

const NAME: &str = "bench";
const UUID: &str = "3d0f7a8e-5a0b-4f6e-9d0a-b0b2c8f1e001";
const TOKEN: &str = "of this bench only";
const SERIAL: &str = "disk";
/// How much longer than planned a step may take; a fill has no more than this between two reports.
const PATIENCE: Duration = Duration::from_secs(60);
const LEAD: Duration = Duration::from_millis(200);

/// A worker with one disk.
pub(crate) struct Worker {
    fleet: Fleet,
    events: mpsc::Receiver<FleetEvent>,
    clock: OrchestratorClock,
    process: Child,
    /// Closing it ends the process; waiting for the process would close it, too, were it left there.
    stdin: Option<ChildStdin>,
    bytes: u64,
    jobs: u64,
    engine: EngineReport,
}

impl Worker {
    /// Makes the file and starts a worker on it.
    ///
    /// # Errors
    /// Where one of them cannot be made, or the worker does not enrol.
    pub(crate) async fn start(file: &Path, bytes: u64) -> anyhow::Result<Self> {
        let made = fs::File::create(file).and_then(|made| made.set_len(bytes));
        made.with_context(|| format!("{}: cannot be made", file.display()))?;
        let clock = OrchestratorClock::start();
        let disks = vec![ExpectedDisk { serial: SERIAL.into(), size_bytes: bytes, scsi_address: None }];
        let expected = vec![Expected { name: NAME.into(), uuid: UUID.into(), macs: Vec::new(), disks }];
        let authority = Arc::new(Authority::open(&file.with_extension("tls"))?);
        let limits = FleetLimits::default();
        let settings = FleetSettings { token: TOKEN.into(), authority, expected, clock, limits };
        let (fleet, events) = Fleet::start(TcpListener::bind("127.0.0.1:0").await?, settings)?;
        let mut process = spawn(&fleet, file)?;
        let stdin = process.stdin.take();
        tokio::select! {
            enrolled = fleet.wait_enrolled(PATIENCE) => enrolled?,
            ended = process.wait() => bail!("the worker ended at once: {}", ended?),
        };
        Ok(Self { fleet, events, clock, process, stdin, bytes, jobs: 0, engine: EngineReport::default() })
    }

    /// Writes every byte of the file.
    ///
    /// # Errors
    /// Where the worker says so.
    pub(crate) async fn fill(&mut self) -> anyhow::Result<()> {
        let fill = Fill { block_bytes: 1 << 20, outstanding_per_disk: 8, zero: false };
        self.begin(Work::Fill(fill), 1).await?;
        self.finished(PATIENCE).await?;
        Ok(())
    }

    /// Runs a job on the whole file.
    ///
    /// # Errors
    /// Where it does not run whole, or without `O_DIRECT`: fio would do other I/O then.
    pub(crate) async fn measure(&mut self, job: &Job, seed: u64) -> anyhow::Result<Figures> {
        let start = self.begin(Work::Load(load(job)), seed).await?;
        let direct = self.engine.disks.iter().all(|disk| disk.direct);
        anyhow::ensure!(direct, "the file system has no O_DIRECT; choose another with --dir");
        let pid = self.process.id().context("the worker has ended")?;
        let (finished, share) = tokio::join!(self.finished(job.length() + PATIENCE), cpu::share(pid, start, job));
        let finished = finished?;
        let ops = &finished.disks.first().context("the worker reported no disk")?.ops;
        figures(job, if job.access == Access::RandomRead { &ops.read } else { &ops.write }, share?)
    }

    /// Ends the process. Answers what the engine said of itself at the last job.
    ///
    /// # Errors
    /// Where it does not end, or not well.
    pub(crate) async fn end(mut self) -> anyhow::Result<EngineReport> {
        self.fleet.shutdown_all(PATIENCE).await;
        drop(self.stdin.take());
        let status = timeout(PATIENCE, self.process.wait()).await.context("the worker does not end")??;
        anyhow::ensure!(status.success(), "the worker ended with {status}");
        Ok(self.engine)
    }

    /// Prepares and starts a job; answers when its load starts.
    async fn begin(&mut self, work: Work, seed: u64) -> anyhow::Result<Instant> {
        self.jobs += 1;
        let disk = DiskAssignment {
            serial: SERIAL.into(),
            scsi_address: None,
            size_bytes: self.bytes,
            region_start: 0,
            region_bytes: self.bytes,
            data_seed: 1,
        };
        self.fleet.prepare(NAME, Prepare { job: self.jobs, disks: vec![disk], work, seed })?;
        loop {
            if let FleetEvent::Ready { ready, .. } = self.event(PATIENCE).await? {
                self.engine = ready.engine;
                break;
            }
        }
        let plan = self.fleet.start_all(self.jobs, &[NAME], LEAD).await?;
        Ok(self.clock.instant_of(plan.start_ns))
    }

    async fn finished(&mut self, within: Duration) -> anyhow::Result<Finished> {
        loop {
            match self.event(within).await? {
                FleetEvent::Sample { sample, .. } => self.fleet.ack_samples(NAME, sample.job, sample.number)?,
                FleetEvent::Finished { finished, .. } => {
                    self.fleet.ack_job(NAME, finished.job)?;
                    anyhow::ensure!(finished.complete, "the worker stopped early: {:?}", finished.reason);
                    return Ok(*finished);
                }
                _ => (),
            }
        }
    }

    /// The next event; those that end the bench are errors.
    async fn event(&mut self, within: Duration) -> anyhow::Result<FleetEvent> {
        let event = timeout(within, self.events.recv()).await.context("the worker says nothing")?;
        match event.context("the fleet has ended")? {
            FleetEvent::Failed { failed, .. } => bail!("the worker failed: {}", failed.error),
            FleetEvent::Lost { why, .. } => bail!("the worker is lost: {why}"),
            FleetEvent::Refused { reason, .. } => bail!("the worker was refused: {reason}"),
            event => Ok(event),
        }
    }
}

/// One engine thread, as fio has one; what it says goes to this process's standard error.
fn spawn(fleet: &Fleet, file: &Path) -> anyhow::Result<Child> {
    let mut disk = std::ffi::OsString::from(format!("{SERIAL}="));
    disk.push(file);
    let url = fleet.urls().first().context("the fleet has no address")?;
    let ca = fleet.ca_fingerprint().to_string();
    let mut command = Command::new(end_to_end::binary());
    command
        .args([
            "worker",
            "--exit-on-stdin-close",
            "--threads",
            "1",
            "--uuid",
            UUID,
            "--url",
            url,
            "--ca-sha256",
            &ca,
            "--disk",
        ])
        .arg(disk)
        .env("FOURCORNERS_WORKER_TOKEN", TOKEN)
        .stdin(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().context("the worker cannot be started")
}

fn load(job: &Job) -> Load {
    let (pattern, read_percent) = match job.access {
        Access::RandomRead => (Pattern::Random, 100),
        Access::SequentialWrite => (Pattern::Sequential { streams: 1 }, 0),
    };
    let workload = WorkloadSpec {
        block_bytes: job.block_bytes,
        pattern,
        sub_range: None,
        align_bytes: None,
        read_percent,
        outstanding_per_disk: job.depth,
        rate: None,
        compression_ratio: 1.0,
        duplication_ratio: 1.0,
        flush_every_writes: None,
        on_error: OnError::Stop,
        stall_threshold_ms: None,
    };
    Load { workload, precondition_seconds: job.ramp, sample_seconds: job.seconds }
}

fn figures(job: &Job, totals: &OpTotals, share: f64) -> anyhow::Result<Figures> {
    let OpTotals { count, sum_ns, min_ns, max_ns, over_range, .. } = *totals;
    let latencies = Latencies::decode(&totals.histogram, Exact { count, sum_ns, min_ns, max_ns, over_range })?;
    let none = "the worker completed no I/O in the window";
    let iops = count as f64 / f64::from(job.seconds);
    Ok(Figures {
        iops,
        mean_us: latencies.mean_ns().context(none)? / 1e3,
        p99_us: latencies.percentile_ns(99.0).context(none)? as f64 / 1e3,
        cpu: share / iops * 1e6,
    })
}
