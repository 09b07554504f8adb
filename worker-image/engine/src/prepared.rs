//! From a job to threads that wait for their start, and to a job under way.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::bulk::BulkLaneSpec;
use crate::clock::{self, Anchor};
use crate::collect::{Collector, Shape};
use crate::control::Control;
use crate::data::FillData;
use crate::device::{QueueGuard, read_settings};
use crate::disk::Disk;
use crate::error::PrepareError;
use crate::lanes::{LanePlan, divide};
use crate::limits::{MAX_ARENA_BYTES, MAX_SLOTS, MIN_IOPS, PREPARE_LIMIT, VERIFY_OUTSTANDING};
use crate::load::{LaneSpec, Seconds};
use crate::offsets::Positions;
use crate::outcome::{Event, Outcome};
use crate::probe::DiskKind;
use crate::random::seed_from;
use crate::report::{DiskSettings, Report};
use crate::spec::{DiskSpec, Job, LoadSpec, Pattern, Work};
use crate::thread::{self, NotReady, Task, ThreadEnd, ThreadReady, ThreadSpec};
use crate::validate::{check_granularity, check_job};

/// Checks a job, opens its disks, and builds and registers a ring on each engine thread. Nothing is read or written yet.
///
/// # Errors
/// [`PrepareError`], with disk and kernel's words; everything is released again.
pub fn prepare(job: Job) -> Result<Prepared, PrepareError> {
    check_job(&job)?;
    let writes = writes(&job.work);
    let disks: Vec<Disk> =
        job.disks.iter().map(|disk| Disk::open(disk, writes, &job.tuning)).collect::<Result<_, _>>()?;
    disks.iter().try_for_each(|disk| check_granularity(&job.work, disk))?;
    let tasks = tasks(&job);
    check_memory(&job, &tasks)?;
    check_rates(&tasks)?;
    let mut report = Report::default();
    let mut queues = QueueGuard::default();
    if job.own_kernel {
        for disk in &disks {
            if let Some(device) = disk.device {
                queues.set(&disk.spec.id, device, &mut report.warnings)?;
            }
        }
    }
    describe_disks(&disks, &tasks, job.tuning.direct, &mut report);
    let mut prepared = Prepared::spawn(job, disks, tasks, report, queues)?;
    prepared.wait_until_ready()?;
    Ok(prepared)
}

fn writes(work: &Work) -> bool {
    match work {
        Work::Fill(_) => true,
        Work::Verify(_) => false,
        Work::Load(load) => load.workload.read_percent < 100,
    }
}

/// The tasks of all threads.
fn tasks(job: &Job) -> Vec<Task> {
    match &job.work {
        Work::Load(load) => load_tasks(job, load),
        Work::Fill(fill) => bulk_tasks(job, |disk, spec| {
            let block = fill.block_bytes.min(spec.region.end - spec.region.start);
            bulk_lane(disk, spec, block, fill.outstanding, FillData::new(spec.data_seed, fill.zero), None)
        }),
        Work::Verify(verify) => bulk_tasks(job, |disk, spec| {
            let seed = seed_from(&[job.seed, disk as u64, 31]);
            let data = FillData::new(spec.data_seed, verify.zero);
            let blocks = Some((u64::from(verify.blocks), seed));
            bulk_lane(disk, spec, verify.block_bytes, VERIFY_OUTSTANDING, data, blocks)
        }),
    }
}

fn bulk_lane(
    disk: usize,
    spec: &DiskSpec,
    block_bytes: u64,
    outstanding: u32,
    data: FillData,
    verify: Option<(u64, u64)>,
) -> BulkLaneSpec {
    BulkLaneSpec {
        disk,
        disk_id: spec.id.clone(),
        region: spec.region.clone(),
        outstanding,
        block_bytes: u32::try_from(block_bytes).unwrap_or(u32::MAX),
        data,
        verify,
    }
}

fn bulk_tasks(job: &Job, lane: impl Fn(usize, &DiskSpec) -> BulkLaneSpec) -> Vec<Task> {
    let plans = divide(job.disks.len(), job.threads, 1, 1);
    let task = |plans: Vec<LanePlan>| Task::Bulk {
        lanes: plans.iter().map(|plan| lane(plan.disk, &job.disks[plan.disk])).collect(),
    };
    plans.into_iter().map(task).collect()
}

fn load_tasks(job: &Job, load: &LoadSpec) -> Vec<Task> {
    let workload = &load.workload;
    let plans = divide(job.disks.len(), job.threads, workload.outstanding, max_parts(job, load));
    let lane = |plan: LanePlan| LaneSpec {
        plan,
        disk_id: job.disks[plan.disk].id.clone(),
        region: job.disks[plan.disk].region.clone(),
        seed: seed_from(&[job.seed, plan.disk as u64]),
        iops: workload.rate.as_ref().map(|rate| {
            let disks = u32::try_from(job.disks.len()).map_or(1.0, f64::from);
            let of_disk = if rate.per_disk { rate.iops } else { rate.iops / disks };
            of_disk / f64::from(plan.part.parts)
        }),
    };
    let task = |(number, plans): (usize, Vec<LanePlan>)| Task::Load {
        spec: load.clone(),
        lanes: plans.into_iter().map(lane).collect(),
        seed: seed_from(&[job.seed, number as u64, 41]),
    };
    plans.into_iter().enumerate().map(task).collect()
}

/// Into how many threads a disk may be split: a stream and a block stay on one.
fn max_parts(job: &Job, load: &LoadSpec) -> u32 {
    let workload = &load.workload;
    let pattern = match workload.pattern {
        Pattern::Sequential { streams } => streams,
        Pattern::Permutation => {
            let fewest = job.disks.iter().map(|disk| Positions::of(workload, &disk.region).count).min();
            u32::try_from(fewest.unwrap_or(1)).unwrap_or(u32::MAX)
        }
        Pattern::Random | Pattern::HotSpot { .. } => u32::MAX,
    };
    pattern.min(workload.outstanding)
}

fn check_memory(job: &Job, tasks: &[Task]) -> Result<(), PrepareError> {
    for task in tasks {
        let (slots, buffers, buffer_bytes) = thread::needs(task, &job.tuning);
        let bytes = u64::from(buffers).saturating_mul(buffer_bytes as u64);
        if slots > MAX_SLOTS || bytes > MAX_ARENA_BYTES {
            return Err(PrepareError::Spec {
                field: "outstanding".to_owned(),
                problem: format!(
                    "a thread would have {slots} I/Os in flight and {bytes} bytes of buffers; \
                     at most {MAX_SLOTS} and {MAX_ARENA_BYTES} are allowed"
                ),
            });
        }
    }
    Ok(())
}

/// A rate may be divided into parts that are too small to be timed.
fn check_rates(tasks: &[Task]) -> Result<(), PrepareError> {
    let lanes = tasks.iter().flat_map(|task| match task {
        Task::Load { lanes, .. } => lanes.as_slice(),
        Task::Bulk { .. } => &[],
    });
    match lanes.filter_map(|lane| lane.iops).find(|&iops| iops < MIN_IOPS) {
        None => Ok(()),
        Some(iops) => Err(PrepareError::Spec {
            field: "rate.iops".to_owned(),
            problem: format!("{iops:e} I/Os a second are left for a thread's part in a disk; the least is {MIN_IOPS}"),
        }),
    }
}

fn describe_disks(disks: &[Disk], tasks: &[Task], direct_wanted: bool, report: &mut Report) {
    for (index, disk) in disks.iter().enumerate() {
        let uses = |task: &&Task| match task {
            Task::Load { lanes, .. } => lanes.iter().any(|lane| lane.plan.disk == index),
            Task::Bulk { lanes } => lanes.iter().any(|lane| lane.disk == index),
        };
        let mut settings = DiskSettings {
            id: disk.spec.id.clone(),
            path: disk.spec.path.display().to_string(),
            kind: disk.kind,
            threads: u32::try_from(tasks.iter().filter(uses).count()).unwrap_or(u32::MAX),
            direct: disk.direct,
            scheduler: None,
            nomerges: None,
            nr_requests: None,
            max_sectors_kb: None,
            poll_queues: None,
        };
        if let (DiskKind::Block, Some(device)) = (disk.kind, disk.device) {
            read_settings(device, &mut settings);
        }
        if direct_wanted && !disk.direct {
            report.warnings.push(format!(
                "disk {}: {} cannot be opened with O_DIRECT; its figures are those of the page cache",
                settings.id, settings.path
            ));
        }
        report.disks.push(settings);
    }
}

/// A job whose threads wait for their start. Dropping it releases everything.
#[derive(Debug)]
pub struct Prepared {
    report: Report,
    shape: Shape,
    threads: Vec<EngineThread>,
    ready: Receiver<(usize, Result<ThreadReady, NotReady>)>,
    ends: Receiver<(usize, ThreadEnd)>,
    control: Arc<Control>,
    disks: Arc<Vec<Disk>>,
    queues: QueueGuard,
}

/// A thread, how to start it, and where its seconds come from.
#[derive(Debug)]
pub(crate) struct EngineThread {
    start: Sender<u64>,
    pub(crate) handle: JoinHandle<()>,
    pub(crate) seconds: Arc<Seconds>,
}

impl Prepared {
    fn spawn(
        job: Job,
        disks: Vec<Disk>,
        tasks: Vec<Task>,
        mut report: Report,
        queues: QueueGuard,
    ) -> Result<Self, PrepareError> {
        let disks = Arc::new(disks);
        let control = Arc::new(Control::default());
        let (ready_sender, ready) = channel();
        let (ends_sender, ends) = channel();
        let cpus = thread::allowed_cpus();
        let wanted = job.tuning.pin.unwrap_or(job.own_kernel);
        let pin = wanted && tasks.len() <= cpus.len();
        if wanted && !pin {
            let (threads, cpus) = (tasks.len(), cpus.len());
            report.warnings.push(format!("engine threads are not pinned: {threads} threads have {cpus} CPUs"));
        }
        let mut prepared = Self {
            report,
            shape: Shape::of(&job, &tasks),
            threads: Vec::new(),
            ready,
            ends,
            control: Arc::clone(&control),
            disks: Arc::clone(&disks),
            queues,
        };
        for (number, task) in tasks.into_iter().enumerate() {
            let seconds = Arc::new(Seconds::new());
            let (start, start_receiver) = channel();
            let spec = ThreadSpec {
                number,
                task,
                tuning: job.tuning,
                pin: pin.then(|| (cpus[number], cpus.clone())),
                disks: Arc::clone(&disks),
                control: Arc::clone(&control),
                seconds: Arc::clone(&seconds),
            };
            let (ready, ends) = (ready_sender.clone(), ends_sender.clone());
            let spawned = std::thread::Builder::new()
                .name(format!("load-{number}"))
                .spawn(move || thread::live(spec, &ready, &start_receiver, &ends));
            let handle = spawned.map_err(|source| thread_error(number, "start it", source))?;
            prepared.threads.push(EngineThread { start, handle, seconds });
        }
        Ok(prepared)
    }

    fn wait_until_ready(&mut self) -> Result<(), PrepareError> {
        let deadline = Instant::now() + PREPARE_LIMIT;
        let mut waiting = vec![true; self.threads.len()];
        self.report.threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        self.report.clock_source = clock::source();
        self.report.memlock_bytes = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        while let Some(slowest) = waiting.iter().position(|&waiting| waiting) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((number, result)) = self.ready.recv_timeout(left) else {
                let limit_seconds = PREPARE_LIMIT.as_secs();
                return Err(PrepareError::Timeout {
                    thread: u32::try_from(slowest).unwrap_or(u32::MAX),
                    limit_seconds,
                });
            };
            waiting[number] = false;
            let first = self.report.buffer_bytes == 0;
            let is_ready = result.map_err(|(action, source)| thread_error(number, action, source))?;
            self.report.buffer_bytes += is_ready.buffer_bytes;
            let grants = is_ready.grants;
            if first {
                self.report.granted.clone_from(&grants.granted);
            }
            self.report.granted.retain(|granted| grants.granted.contains(granted));
            add_new(&mut self.report.refused, grants.refused);
            add_new(&mut self.report.warnings, grants.warnings);
        }
        Ok(())
    }

    /// What the kernel granted and how the disks are set.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Starts the load at `at` (at once where that is past; the seconds then still count from `at`). Events go to `events`;
    /// a receiver that is gone does not end the job.
    #[must_use]
    pub fn start(self, at: Instant, events: Sender<Event>) -> Running {
        let anchor = Anchor::now();
        let start_ns = anchor.to_ns(at);
        for thread in &self.threads {
            // A thread that is gone is noticed by the collector.
            let _ = thread.start.send(start_ns);
        }
        let control = Arc::clone(&self.control);
        let collector = Collector::new(
            self.shape,
            self.threads,
            self.ends,
            Arc::clone(&self.control),
            self.disks,
            self.queues,
            events,
        );
        let collecting =
            std::thread::Builder::new().name("load-collect".to_owned()).spawn(move || collector.run(start_ns, anchor));
        if let Err(error) = &collecting {
            control.fail(None, format!("the collector thread cannot be started: {error}"));
        }
        Running { stopper: Stopper { control }, collecting: Some(collecting) }
    }
}

fn add_new(list: &mut Vec<String>, more: Vec<String>) {
    for item in more {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

fn thread_error(number: usize, action: &'static str, source: io::Error) -> PrepareError {
    PrepareError::Thread { thread: u32::try_from(number).unwrap_or(u32::MAX), action, source }
}

/// A job under way. Dropping it stops the job and waits for its end, like [`Running::stop`] and [`Running::join`].
#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
    collecting: Option<io::Result<JoinHandle<Outcome>>>,
}

impl Running {
    /// Asks the job to end early; returns at once. What was measured is in the outcome.
    pub fn stop(&self) {
        self.stopper.stop();
    }

    /// A handle that stops the job while another thread waits in [`Running::join`].
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Whether the job is over, so that [`Running::join`] will not wait.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.collecting {
            Some(Ok(handle)) => handle.is_finished(),
            Some(Err(_)) | None => true,
        }
    }

    /// Waits for the end of the job. Bounded: the job's own time plus [`crate::limits::DRAIN_LIMIT`],
    /// [`crate::limits::CANCEL_LIMIT`] and [`crate::limits::THREAD_GRACE`] (a fill's or read-back's own time is the device's, but
    /// never longer than [`crate::limits::NO_PROGRESS_LIMIT`] without progress).
    #[must_use]
    pub fn join(mut self) -> Outcome {
        match self.collecting.take() {
            Some(Ok(handle)) => {
                handle.join().unwrap_or_else(|_| self.broken("the collector broke off by an internal error"))
            }
            Some(Err(_)) | None => self.broken("the collector thread could not be started"),
        }
    }

    fn broken(&self, reason: &str) -> Outcome {
        self.stop();
        let failure = self.stopper.control.failure();
        Outcome {
            complete: false,
            reason: Some(failure.map_or_else(|| reason.to_owned(), |failure| failure.reason)),
            failed_disk: None,
            first_io: None,
            last_completion: None,
            disks: Vec::new(),
            thread_cpu: Vec::new(),
            io_wq_cpu: 0.0,
            steal: None,
            warnings: Vec::new(),
            judgements: Vec::new(),
            trace: Vec::new(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(Ok(handle)) = self.collecting.take() {
            self.stop();
            // Its outcome is not wanted any more.
            drop(handle.join());
        }
    }
}

/// Stops a job from anywhere; see [`Running::stopper`].
#[derive(Debug, Clone)]
pub struct Stopper {
    control: Arc<Control>,
}

impl Stopper {
    /// Asks the job to end early; returns at once.
    pub fn stop(&self) {
        self.control.stop();
    }
}
