//! One job on several workers: prepare all, start all at one moment, take what they report until each has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use analysis::export::How;
use hypervisor::{BoxFuture, HostSample};
use store::Level;
use tokio::sync::mpsc;
use tokio::time::Instant;
use worker_protocol::{DiskAssignment, EngineReport, Failed, Finished, Prepare, Progress, Sample, Work};

use crate::brake::Brake;
use crate::deployment::Deployment;
use crate::fleet::{ClockOffset, FleetEvent, StartPlan};
use crate::halt::{Halt, Stop};
use crate::ingest::Refused;
use crate::watch::{MAX_NEWS, News, Watch};

/// From Prepare to the last Ready: opening and registering takes milliseconds, but a busy hypervisor may take its time.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between the start message and the start: covers the way to the farthest worker.
const START_LEAD: Duration = Duration::from_millis(200);
/// How long starting together is tried: longer than a worker may stay away.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Between two attempts, unless something happens.
const START_RETRY: Duration = Duration::from_millis(250);
/// From Stop to Finished: in-flight I/O is drained first.
const STOP_GRACE: Duration = Duration::from_secs(20);
/// Between two ticks of the observer.
const TICK: Duration = Duration::from_secs(1);
/// Events taken in one go, so that one transaction stores the samples of many workers.
const MAX_BATCH: usize = 256;

/// A job for several workers.
pub(crate) struct Job<'a> {
    pub(crate) id: u64,
    pub(crate) work: Work,
    /// Worker and its disks.
    pub(crate) workers: Vec<(String, Vec<DiskAssignment>)>,
    pub(crate) seed: u64,
    /// When the job must be over, counted from its start; a fill has none, but must go on moving.
    pub(crate) limit: Limit,
    pub(crate) brake: &'a Brake,
    /// The first part that is missing ends the whole job: what the others do after it is of no use.
    pub(crate) stop_on_loss: bool,
}

/// How long a job may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// Over within this time after the start.
    Total(Duration),
    /// Never without progress for longer than this.
    Idle(Duration),
}

/// How a worker's part of a job ended.
#[derive(Debug)]
pub(crate) enum JobEnd {
    /// With its totals.
    Finished {
        /// What it measured.
        totals: Box<Finished>,
        /// The worker's clock measured right after it.
        clock: Option<ClockOffset>,
    },
    /// It did not start or broke off.
    Failed(Failed),
    /// The worker is gone, or did not answer in time.
    Lost(String),
}

/// What became of a job.
#[derive(Debug, Default)]
pub(crate) struct JobReport {
    pub(crate) ends: BTreeMap<String, JobEnd>,
    /// Why it was stopped before its end, where it was.
    pub(crate) stopped: Option<Stop>,
    /// The first worker whose part is not what was asked, and why; others may have been stopped because of it.
    pub(crate) first_loss: Option<(String, String)>,
}

/// Takes what a job reports; by itself it takes no notice of anything. Whatever these methods return is committed: acknowledgements
/// follow them.
pub(crate) trait Observer: Send {
    /// The workers that are ready, and those that are not.
    fn ready<'a>(&'a mut self, _worker: &'a str, _engine: &'a EngineReport) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(async { Ok(()) })
    }
    /// The start was sent.
    fn started<'a>(&'a mut self, _start: &'a StartPlan) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(async { Ok(()) })
    }
    /// Samples of one tick. Answers the workers whose samples cannot be used: their part is over.
    fn samples<'a>(&'a mut self, _samples: &'a [(String, Sample)]) -> BoxFuture<'a, Result<Vec<Refused>, Halt>> {
        Box::pin(async { Ok(Vec::new()) })
    }
    /// Why a worker's totals cannot be used, if so: its part has failed then.
    fn check(&self, _worker: &str, _totals: &Finished) -> Result<(), String> {
        Ok(())
    }
    /// A fill's or a read-back's progress.
    fn progress(&mut self, _worker: &str, _progress: &Progress) {}
    /// A worker's part is over.
    fn ended<'a>(&'a mut self, _worker: &'a str, _end: &'a JobEnd) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(async { Ok(()) })
    }
    /// A result is being measured, which a stop waits for.
    fn is_measuring(&self) -> bool {
        false
    }
    /// The load of the hosts, where the work is a load.
    fn hosts<'a>(&'a mut self, _sample: &'a HostSample) -> BoxFuture<'a, Result<(), Halt>> {
        Box::pin(async { Ok(()) })
    }
    /// Once a second.
    fn tick(&mut self) {}
}

/// Runs a job to its end on every worker. A worker that fails or is lost ends its own part only.
pub(crate) async fn drive(
    deployment: &mut Deployment<'_>,
    job: Job<'_>,
    observer: &mut dyn Observer,
) -> Result<JobReport, Halt> {
    let (tell, news) = mpsc::channel(MAX_NEWS);
    let samples_hosts = matches!(job.work, Work::Load(_));
    let workers = deployment.alive().cloned().collect();
    let (stopper, id) = (deployment.fleet.stopper(), job.id);
    let names: Vec<String> = job.workers.iter().map(|(worker, _)| worker.clone()).collect();
    // Whoever drives the job may be waiting for the store just then.
    let stop = move || stopper.stop(&names, id);
    let watch = Watch::new(deployment.place.hypervisor, workers, deployment.watch, samples_hosts, tell).stopping(stop);
    let drive = Drive::new(deployment, job, observer, news);
    tokio::select! {
        report = drive.run() => report,
        never = watch.run() => match never {},
    }
}

struct Drive<'d, 'h, 'j> {
    deployment: &'d mut Deployment<'h>,
    job: Job<'j>,
    observer: &'d mut dyn Observer,
    /// Of the looks at the place that go on beside the job.
    news: mpsc::Receiver<News>,
    /// Workers whose part has not ended.
    pending: BTreeSet<String>,
    ready: BTreeSet<String>,
    /// Workers whose samples were refused: what else they send is passed over.
    refused: BTreeSet<String>,
    report: JobReport,
    stopping: bool,
    /// A stop was asked for, and waits for the end of the job.
    awaited: bool,
    moved: Instant,
}

impl<'d, 'h, 'j> Drive<'d, 'h, 'j> {
    fn new(
        deployment: &'d mut Deployment<'h>,
        job: Job<'j>,
        observer: &'d mut dyn Observer,
        news: mpsc::Receiver<News>,
    ) -> Self {
        let pending = job.workers.iter().map(|(worker, _)| worker.clone()).collect();
        Self {
            deployment,
            job,
            observer,
            news,
            pending,
            ready: BTreeSet::new(),
            refused: BTreeSet::new(),
            report: JobReport::default(),
            stopping: false,
            awaited: false,
            moved: Instant::now(),
        }
    }

    async fn run(mut self) -> Result<JobReport, Halt> {
        self.prepare().await?;
        let all_ready = |drive: &Self| drive.pending.iter().all(|worker| drive.ready.contains(worker));
        self.until(READY_TIMEOUT, "get ready", all_ready).await?;
        self.start().await?;
        self.finish().await?;
        Ok(self.report)
    }

    async fn prepare(&mut self) -> Result<(), Halt> {
        for (index, (worker, disks)) in (0_u64..).zip(std::mem::take(&mut self.job.workers)) {
            let seed = crate::seed::derive(self.job.seed, "worker", index);
            let prepare = Prepare { job: self.job.id, disks, work: self.job.work.clone(), seed };
            if let Err(error) = self.deployment.fleet.prepare(&worker, prepare) {
                self.end(&worker, JobEnd::Lost(error.to_string())).await?;
            }
        }
        Ok(())
    }

    /// Starts all workers together. One that is just gone or just away makes that fail; it is heard of, and the others are tried again.
    async fn start(&mut self) -> Result<(), Halt> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(end) = self.job.brake.asked() {
                self.stop(Stop::Asked(end));
            }
            if self.stopping || self.pending.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = self.pending.iter().map(String::as_str).collect();
            match self.deployment.fleet.start_all(self.job.id, &names, START_LEAD).await {
                Ok(plan) => return self.observer.started(&plan).await,
                Err(error) if Instant::now() >= until => {
                    return self.give_up(&format!("the workers could not be started together: {error}")).await;
                }
                Err(_) => self.step(Instant::now() + START_RETRY).await?,
            }
        }
    }

    async fn finish(&mut self) -> Result<(), Halt> {
        match self.job.limit {
            Limit::Total(limit) => self.until(limit, "finish", |drive| drive.pending.is_empty()).await,
            Limit::Idle(limit) => {
                self.moved = Instant::now();
                while !self.pending.is_empty() && self.moved.elapsed() < self.bounded(limit) {
                    let until = self.moved + self.bounded(limit);
                    self.step(until).await?;
                }
                self.give_up(&format!("no progress for {} s", limit.as_secs())).await
            }
        }
    }

    /// Takes events until `done`, for `limit` at most; whoever is missing then counts as lost.
    async fn until(&mut self, limit: Duration, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), Halt> {
        let mut until = Instant::now() + self.bounded(limit);
        while !done(self) {
            if Instant::now() >= until {
                return self.give_up(&format!("it did not {what} within {} s", limit.as_secs())).await;
            }
            let stopping = self.stopping;
            self.step(until).await?;
            if self.stopping && !stopping {
                until = until.min(Instant::now() + STOP_GRACE);
            }
        }
        Ok(())
    }

    /// A job that is being stopped has only the grace left.
    fn bounded(&self, limit: Duration) -> Duration {
        if self.stopping { limit.min(STOP_GRACE) } else { limit }
    }

    async fn give_up(&mut self, why: &str) -> Result<(), Halt> {
        for worker in self.pending.clone() {
            // It may be gone altogether; then there is nobody to tell.
            let _ = self.deployment.fleet.abort(&worker, self.job.id);
            self.end(&worker, JobEnd::Lost(why.to_owned())).await?;
        }
        Ok(())
    }

    /// One batch of events, one piece of news, one tick, or an early end; not beyond `until`.
    async fn step(&mut self, until: Instant) -> Result<(), Halt> {
        let mut events = Vec::new();
        let wake = until.min(self.deployment.next_tick(TICK));
        // News first: that the guard stopped the load is known before the workers' ends that follow from it.
        tokio::select! {
            biased;
            Some(news) = self.news.recv() => self.take_news(news).await?,
            end = self.job.brake.cancelled(), if self.report.stopped.is_none() => self.stop(Stop::Asked(end)),
            end = self.job.brake.pulled(), if self.report.stopped.is_none() && !self.awaited => {
                self.awaited = end.how == How::Stop && self.observer.is_measuring();
                if !self.awaited {
                    self.stop(Stop::Asked(end));
                }
            }
            received = self.deployment.events.recv_many(&mut events, MAX_BATCH) => {
                if received == 0 {
                    return Err(Halt::Failed("the fleet's listener ended".into()));
                }
                self.take(events).await?;
            }
            () = tokio::time::sleep_until(wake) => {}
        }
        if self.deployment.tick_is_due(TICK) {
            self.observer.tick();
        }
        Ok(())
    }

    async fn take_news(&mut self, news: News) -> Result<(), Halt> {
        match news {
            News::Ended { worker, why } => {
                // The fleet says what that means for the worker.
                let _ = self.deployment.fleet.worker_exited(&worker, why).await;
                Ok(())
            }
            News::Moved { worker, host } => self.deployment.note_moved(&worker, &host).await,
            News::Watch(text) => self.deployment.event(Level::Warning, &text).await,
            News::Hosts(sample) => self.observer.hosts(&sample).await,
            News::Harm(why) => {
                let text = format!("the load is stopped by the guard: {why}");
                // First: a store that is busy must not hold the load on.
                self.stop(Stop::Guard(why));
                self.deployment.event(Level::Error, &text).await
            }
        }
    }

    /// Stops the whole job; the first reason stays.
    fn stop(&mut self, why: Stop) {
        if self.report.stopped.is_none() {
            self.report.stopped = Some(why);
            self.stop_all();
        }
    }

    fn stop_all(&mut self) {
        self.stopping = true;
        for worker in &self.pending {
            // A worker that cannot be told is found missing at the end of the grace.
            let _ = self.deployment.fleet.stop(worker, self.job.id);
        }
    }

    async fn take(&mut self, events: Vec<FleetEvent>) -> Result<(), Halt> {
        let mut samples = Vec::new();
        for event in events {
            match event {
                FleetEvent::Sample { worker, sample } if sample.job == self.job.id => {
                    if !self.refused.contains(&worker) {
                        samples.push((worker, sample));
                    }
                }
                other => {
                    // An end must not be stored before the samples that came ahead of it.
                    self.store_samples(&mut samples).await?;
                    self.take_one(other).await?;
                }
            }
        }
        self.store_samples(&mut samples).await
    }

    async fn store_samples(&mut self, samples: &mut Vec<(String, Sample)>) -> Result<(), Halt> {
        if samples.is_empty() {
            return Ok(());
        }
        self.moved = Instant::now();
        let refused = self.observer.samples(samples).await?;
        self.refused.extend(refused.iter().map(|one| one.worker.clone()));
        for (worker, sample) in samples.drain(..).filter(|(worker, _)| !self.refused.contains(worker)) {
            // A worker lost meanwhile needs no acknowledgement.
            let _ = self.deployment.fleet.ack_samples(&worker, sample.job, sample.number);
        }
        for Refused { worker, why } in refused {
            // It drops the job without a report.
            let _ = self.deployment.fleet.abort(&worker, self.job.id);
            self.end(&worker, JobEnd::Failed(Failed { job: self.job.id, disk: None, error: why })).await?;
        }
        Ok(())
    }

    async fn take_one(&mut self, event: FleetEvent) -> Result<(), Halt> {
        match event {
            FleetEvent::Ready { worker, ready } if ready.job == self.job.id => {
                self.observer.ready(&worker, &ready.engine).await?;
                self.ready.insert(worker);
            }
            FleetEvent::Progress { worker, progress } if progress.job == self.job.id => {
                self.moved = Instant::now();
                self.observer.progress(&worker, &progress);
            }
            FleetEvent::Finished { worker, finished } if finished.job == self.job.id => {
                let clock = self.deployment.fleet.probe(&worker).await.ok();
                let end = match self.observer.check(&worker, &finished) {
                    Ok(()) => JobEnd::Finished { totals: finished, clock },
                    Err(error) => JobEnd::Failed(Failed { job: self.job.id, disk: None, error }),
                };
                self.end(&worker, end).await?;
                let _ = self.deployment.fleet.ack_job(&worker, self.job.id);
            }
            FleetEvent::Failed { worker, failed } if failed.job == self.job.id => {
                self.end(&worker, JobEnd::Failed(failed)).await?;
                let _ = self.deployment.fleet.ack_job(&worker, self.job.id);
            }
            FleetEvent::Lost { worker, why, .. } => {
                self.deployment.note_lost(&worker, &why).await?;
                self.end(&worker, JobEnd::Lost(why)).await?;
            }
            other => self.deployment.note(other).await?,
        }
        Ok(())
    }

    async fn end(&mut self, worker: &str, end: JobEnd) -> Result<(), Halt> {
        if !self.pending.remove(worker) {
            return Ok(());
        }
        self.observer.ended(worker, &end).await?;
        if let Some(why) = shortfall(&end).filter(|_| !self.stopping) {
            self.report.first_loss.get_or_insert((worker.to_owned(), why));
            if self.job.stop_on_loss {
                self.stop_all();
            }
        }
        self.report.ends.insert(worker.to_owned(), end);
        Ok(())
    }
}

/// Why a worker's part is not what was asked, if so.
pub(crate) fn shortfall(end: &JobEnd) -> Option<String> {
    match end {
        JobEnd::Finished { totals, .. } if totals.complete => None,
        JobEnd::Finished { totals, .. } => Some(totals.reason.clone().unwrap_or_else(|| "it was stopped".into())),
        JobEnd::Failed(failed) => Some(match &failed.disk {
            Some(disk) => format!("disk {disk}: {}", failed.error),
            None => failed.error.clone(),
        }),
        JobEnd::Lost(why) => Some(why.clone()),
    }
}
