//! Takes the seconds of all threads, merges them, tells them, and makes the outcome.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use crate::clock::{Anchor, now_ns};
use crate::control::Control;
use crate::device::QueueGuard;
use crate::disk::Disk;
use crate::limits::{CANCEL_LIMIT, MAX_PENDING_SECONDS, NO_PROGRESS_LIMIT, PUT_BACK_LIMIT, THREAD_GRACE};
use crate::outcome::{DiskSecond, Event, OpTotals, Ops, Outcome, Phase, Second};
use crate::prepared::EngineThread;
use crate::snapshot::Snapshot;
use crate::spec::{Job, Work};
use crate::summary::{self, Totals};
use crate::tally::{OpTally, SecondTally};
use crate::thread::{Task, ThreadEnd, as_ns};
use crate::watch::Watch;

/// How often the threads' seconds are looked for.
const POLL: Duration = Duration::from_millis(20);

const SECOND_NS: u64 = 1_000_000_000;

/// What the collector must know of a job.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) disk_ids: Vec<String>,
    /// Disk of each lane of each thread.
    pub(crate) lane_disks: Vec<Vec<usize>>,
    /// None for fills and read-backs.
    pub(crate) load: Option<LoadShape>,
    pub(crate) drain_limit: Duration,
    /// Writes may shrink what a compressing file system allocates.
    pub(crate) compressible: bool,
    /// Fills and read-backs: bytes to do.
    pub(crate) bytes_total: u64,
}

/// What the collector must know of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadShape {
    pub(crate) precondition_seconds: u32,
    pub(crate) sample_seconds: u32,
    pub(crate) outstanding: u32,
    pub(crate) open_loop: bool,
    pub(crate) stall_threshold_ns: u64,
}

impl LoadShape {
    fn total_seconds(&self) -> u32 {
        self.precondition_seconds + self.sample_seconds
    }
}

impl Shape {
    pub(crate) fn of(job: &Job, tasks: &[Task]) -> Self {
        let lane_disks = tasks.iter().map(|task| match task {
            Task::Load { lanes, .. } => lanes.iter().map(|lane| lane.plan.disk).collect(),
            Task::Bulk { lanes } => lanes.iter().map(|lane| lane.disk).collect(),
        });
        let regions = || job.disks.iter().map(|disk| disk.region.end - disk.region.start);
        let (load, bytes_total) = match &job.work {
            Work::Load(load) => (
                Some(LoadShape {
                    precondition_seconds: load.precondition_seconds,
                    sample_seconds: load.sample_seconds,
                    outstanding: load.workload.outstanding,
                    open_loop: load.workload.rate.is_some(),
                    stall_threshold_ns: as_ns(load.workload.stall_threshold),
                }),
                0,
            ),
            Work::Fill(_) => (None, regions().sum()),
            Work::Verify(verify) => {
                let blocks = |region: u64| u64::from(verify.blocks).min(region / verify.block_bytes);
                (None, regions().map(|region| blocks(region) * verify.block_bytes).sum())
            }
        };
        let disk_ids = job.disks.iter().map(|disk| disk.id.clone()).collect();
        Self {
            disk_ids,
            lane_disks: lane_disks.collect(),
            load,
            bytes_total,
            drain_limit: job.tuning.drain_limit,
            compressible: compressible(&job.work),
        }
    }
}

fn compressible(work: &Work) -> bool {
    match work {
        Work::Fill(fill) => fill.zero,
        Work::Verify(_) => false,
        Work::Load(load) => load.workload.compression_ratio > 1.0,
    }
}

/// A second that not all threads have delivered yet.
#[derive(Debug)]
struct Pending {
    ops: Ops,
    disks: Vec<DiskSecond>,
    whole: bool,
}

/// The collector of a job.
#[derive(Debug)]
pub(crate) struct Collector {
    shape: Shape,
    threads: Vec<EngineThread>,
    ends_receiver: Receiver<(usize, ThreadEnd)>,
    control: Arc<Control>,
    disks: Arc<Vec<Disk>>,
    /// Put back when the job is over.
    queues: QueueGuard,
    events: Sender<Event>,
    ends: Vec<Option<ThreadEnd>>,
    /// Seconds before this are over, by thread.
    over: Vec<u32>,
    pending: VecDeque<Pending>,
    /// Number of the first pending second.
    next: u32,
    totals: Vec<Totals>,
    /// All seconds of the window so far were whole.
    window_whole: bool,
    snapshots: (Option<Snapshot>, Option<Snapshot>),
}

impl Collector {
    pub(crate) fn new(
        shape: Shape,
        threads: Vec<EngineThread>,
        ends_receiver: Receiver<(usize, ThreadEnd)>,
        control: Arc<Control>,
        disks: Arc<Vec<Disk>>,
        queues: QueueGuard,
        events: Sender<Event>,
    ) -> Self {
        let open_loop = shape.load.is_some_and(|load| load.open_loop);
        Self {
            ends: threads.iter().map(|_| None).collect(),
            over: vec![0; threads.len()],
            pending: VecDeque::new(),
            next: 0,
            totals: shape.disk_ids.iter().map(|_| Totals::new(open_loop)).collect(),
            window_whole: true,
            snapshots: (None, None),
            shape,
            threads,
            ends_receiver,
            control,
            disks,
            queues,
            events,
        }
    }

    /// Collects until all threads have ended, or hang beyond their limits.
    pub(crate) fn run(mut self, start_ns: u64, anchor: Anchor) -> Outcome {
        let watch = Watch::start(Arc::clone(&self.disks), Arc::clone(&self.control), self.shape.compressible);
        match self.shape.load {
            Some(load) => self.collect_load(load, start_ns),
            None => self.collect_bulk(start_ns),
        }
        self.take_last_snapshot();
        watch.end();
        let window_ns = self.shape.load.map_or(start_ns, |load| start_ns + seconds_ns(load.precondition_seconds));
        let ended: Vec<bool> = self.ends.iter().map(|end| end.as_ref().is_some_and(|end| !end.kernel_keeps)).collect();
        let mut outcome = summary::outcome(summary::Measured {
            shape: &self.shape,
            ends: self.ends,
            totals: self.totals,
            window_whole: self.window_whole,
            snapshots: self.snapshots,
            window_ns,
            anchor,
            control: &self.control,
        });
        if !ended.iter().all(|&ended| ended) {
            // Closing a file of a device that does not answer may hang, too.
            std::mem::forget(Arc::clone(&self.disks));
        }
        for (thread, _) in self.threads.into_iter().zip(ended).filter(|(_, ended)| *ended) {
            // One that hangs in the kernel is left behind, and so is one whose I/O the kernel keeps: its exit waits for that I/O.
            let _ = thread.handle.join();
        }
        if !self.queues.put_back() {
            let limit = PUT_BACK_LIMIT.as_secs();
            outcome.warnings.push(format!(
                "scheduler and merge setting of the disks could not be put back within {limit} s: a disk still holds I/Os"
            ));
        }
        outcome
    }

    fn collect_load(&mut self, load: LoadShape, start_ns: u64) {
        let window_ns = start_ns + seconds_ns(load.precondition_seconds);
        let end_ns = start_ns + seconds_ns(load.total_seconds());
        let mut deadline_ns = end_ns + grace_ns(self.shape.drain_limit);
        self.take_first_snapshot(window_ns);
        while !self.all_ended() {
            let now = now_ns();
            let next_reading = [window_ns, end_ns].into_iter().filter(|&at| at > now).min().unwrap_or(u64::MAX);
            if !self.wait_for_end(POLL.min(Duration::from_nanos(next_reading - now))) {
                break;
            }
            self.take_first_snapshot(window_ns);
            let now = now_ns();
            if now >= end_ns || self.control.stopped() {
                self.take_last_snapshot();
            }
            if self.control.stopped() {
                deadline_ns = deadline_ns.min(now + grace_ns(self.shape.drain_limit));
            }
            self.take_seconds(load);
            self.tell_seconds(load, false);
            if now > deadline_ns {
                break;
            }
        }
        self.take_seconds(load);
        self.tell_seconds(load, true);
    }

    fn collect_bulk(&mut self, start_ns: u64) {
        self.snapshots.0 = Some(Snapshot::take(&self.disks));
        let mut told_ns = start_ns;
        let (mut bytes, mut progress_ns) = (0, now_ns().max(start_ns));
        let mut deadline_ns = u64::MAX;
        while !self.all_ended() && self.wait_for_end(POLL) {
            let now = now_ns();
            let done = self.control.bytes_done();
            if done > bytes {
                (bytes, progress_ns) = (done, now);
            }
            if now >= told_ns + SECOND_NS {
                told_ns = now;
                self.tell_progress();
            }
            let hangs = now.saturating_sub(progress_ns) > as_ns(NO_PROGRESS_LIMIT + THREAD_GRACE);
            if self.control.stopped() {
                deadline_ns = deadline_ns.min(now + grace_ns(self.shape.drain_limit));
            }
            if hangs || now > deadline_ns {
                break;
            }
        }
        self.tell_progress();
    }

    fn tell_progress(&self) {
        let event = Event::Progress { bytes_done: self.control.bytes_done(), bytes_total: self.shape.bytes_total };
        // Nobody has to listen.
        let _ = self.events.send(event);
    }

    fn all_ended(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// Waits for a thread's end; false where none can come any more.
    fn wait_for_end(&mut self, limit: Duration) -> bool {
        match self.ends_receiver.recv_timeout(limit) {
            Ok((number, end)) => {
                self.ends[number] = Some(end);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn take_first_snapshot(&mut self, window_ns: u64) {
        if self.snapshots.0.is_none() && now_ns() >= window_ns {
            self.snapshots.0 = Some(Snapshot::take(&self.disks));
        }
    }

    fn take_last_snapshot(&mut self) {
        if self.snapshots.0.is_some() && self.snapshots.1.is_none() {
            self.snapshots.1 = Some(Snapshot::take(&self.disks));
        }
    }

    /// Takes what the threads have delivered, and gives the emptied buffers back.
    fn take_seconds(&mut self, load: LoadShape) {
        for number in 0..self.threads.len() {
            let seconds = Arc::clone(&self.threads[number].seconds);
            while let Some(mut tally) = seconds.full.receive() {
                self.merge(number, &mut tally, load);
                self.over[number] = self.over[number].max(tally.over);
                // A full queue only means that the thread allocated more than it needs.
                let _ = seconds.empty.send(tally);
            }
        }
        if self.pending.len() > MAX_PENDING_SECONDS && !self.control.stopped() {
            let slowest = (0..self.over.len()).min_by_key(|&number| self.over[number]).unwrap_or(0);
            self.control.fail(
                None,
                format!(
                    "engine thread {slowest} delivered no second for {MAX_PENDING_SECONDS} s: it hangs in the kernel"
                ),
            );
        }
    }

    fn merge(&mut self, number: usize, tally: &mut SecondTally, load: LoadShape) {
        let index = usize::try_from(tally.second.saturating_sub(self.next)).unwrap_or(0);
        let disks = self.shape.disk_ids.len();
        // A thread that started late was not loading in the seconds before.
        let late_from = if self.over[number] == 0 { 0 } else { index };
        while self.pending.len() <= index {
            self.pending.push_back(Pending {
                ops: Ops::default(),
                disks: vec![DiskSecond::default(); disks],
                whole: true,
            });
        }
        self.pending.iter_mut().take(index).skip(late_from).for_each(|second| second.whole = false);
        let pending = &mut self.pending[index];
        pending.whole &= tally.whole;
        let in_window = tally.second >= load.precondition_seconds;
        for (lane, &disk) in tally.lanes.iter_mut().zip(&self.shape.lane_disks[number]) {
            let second = &mut pending.disks[disk];
            let totals = &mut self.totals[disk];
            totals.flushes += if in_window { lane.flushes } else { 0 };
            lane.flushes = 0;
            second.read_count += count(&lane.read);
            second.write_count += count(&lane.write);
            let (service_read, service_write) = match &mut totals.service {
                Some(service) => (Some(&mut service.read), Some(&mut service.write)),
                None => (None, None),
            };
            let reads = (&mut lane.read, &mut pending.ops.read, &mut totals.ops.read, service_read);
            let writes = (&mut lane.write, &mut pending.ops.write, &mut totals.ops.write, service_write);
            for (op, merged, total, service) in [reads, writes] {
                add_scalars(op, second);
                merge_op(op, merged, in_window.then_some(total), service.filter(|_| in_window));
            }
        }
    }

    /// Tells the seconds that all threads have delivered; at the end, all that are left.
    fn tell_seconds(&mut self, load: LoadShape, at_end: bool) {
        let over = self.over.iter().copied().min().unwrap_or(0).min(load.total_seconds());
        if at_end {
            let furthest = self.over.iter().copied().max().unwrap_or(0).min(load.total_seconds());
            self.tell_until(furthest, over, load);
            if furthest < load.total_seconds() {
                self.window_whole = false;
            }
        } else {
            self.tell_until(over, over, load);
        }
    }

    /// Tells the seconds before `until`; those from `all` on are not whole.
    fn tell_until(&mut self, until: u32, all: u32, load: LoadShape) {
        while self.next < until {
            let disks = self.shape.disk_ids.len();
            let empty = || Pending { ops: Ops::default(), disks: vec![DiskSecond::default(); disks], whole: true };
            let pending = self.pending.pop_front().unwrap_or_else(empty);
            let whole = pending.whole && self.next < all;
            let (phase, index) = match self.next.checked_sub(load.precondition_seconds) {
                Some(index) => (Phase::Sample, index),
                None => (Phase::Precondition, self.next),
            };
            self.window_whole &= whole || phase == Phase::Precondition;
            let second = Second { phase, index, whole, ops: pending.ops, disks: pending.disks };
            // Nobody has to listen.
            let _ = self.events.send(Event::Second(Box::new(second)));
            self.next += 1;
        }
    }
}

fn count(tally: &OpTally) -> u64 {
    tally.latency.as_ref().map_or(0, latency_histogram::Recorder::count)
}

fn add_scalars(tally: &OpTally, second: &mut DiskSecond) {
    second.bytes += tally.bytes;
    second.errors += tally.errors;
    if let Some(recorder) = &tally.latency {
        second.sum_ns = second.sum_ns.saturating_add(recorder.sum_ns());
        second.max_ns = second.max_ns.max(recorder.max_ns());
    }
}

/// Moves a thread's counts into the second and, in the window, into the disk's totals.
fn merge_op(tally: &mut OpTally, second: &mut OpTotals, total: Option<&mut OpTotals>, service: Option<&mut OpTotals>) {
    let count = count(tally);
    let (bytes, errors) = (std::mem::take(&mut tally.bytes), std::mem::take(&mut tally.errors));
    let mut latencies = vec![];
    for totals in [Some(second), total].into_iter().flatten() {
        totals.count += count;
        totals.bytes += bytes;
        totals.errors += errors;
        latencies.push(&mut totals.latencies);
    }
    if let Some(recorder) = &mut tally.latency {
        recorder.drain_into(&mut latencies);
    }
    let mut service_latencies = vec![];
    if let Some(totals) = service {
        totals.count += count;
        totals.bytes += bytes;
        totals.errors += errors;
        service_latencies.push(&mut totals.latencies);
    }
    if let Some(recorder) = &mut tally.service {
        recorder.drain_into(&mut service_latencies);
    }
}

fn seconds_ns(seconds: u32) -> u64 {
    u64::from(seconds) * SECOND_NS
}

/// How long a thread may take from the end of its job to its report.
fn grace_ns(drain_limit: Duration) -> u64 {
    as_ns(drain_limit.saturating_add(CANCEL_LIMIT + THREAD_GRACE))
}
