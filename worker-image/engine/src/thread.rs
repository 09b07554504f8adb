//! An engine thread: prepared, told to start, and its end.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};

use crate::bulk::{BulkLaneSpec, BulkThread};
use crate::clock::now_ns;
use crate::control::Control;
use crate::disk::Disk;
use crate::limits::{CANCEL_LIMIT, WAIT_LIMIT};
use crate::load::{LaneSpec, LoadThread, Needs, Seconds};
use crate::outcome::{Pacing, TracedIo};
use crate::ring::{Grants, Ring, RingSpec};
use crate::spec::{LoadSpec, Tuning};
use crate::tally::{ErrorLog, QuietLog};

/// What a thread is to do.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    Load { spec: LoadSpec, lanes: Vec<LaneSpec>, seed: u64 },
    Bulk { lanes: Vec<BulkLaneSpec> },
}

/// Everything a thread needs.
#[derive(Debug)]
pub(crate) struct ThreadSpec {
    pub(crate) number: usize,
    pub(crate) task: Task,
    pub(crate) tuning: Tuning,
    /// CPU to stay on, and the CPUs for the kernel's workers.
    pub(crate) pin: Option<(usize, Vec<usize>)>,
    pub(crate) disks: Arc<Vec<Disk>>,
    pub(crate) control: Arc<Control>,
    pub(crate) seconds: Arc<Seconds>,
}

/// A thread that is ready to start.
#[derive(Debug)]
pub(crate) struct ThreadReady {
    pub(crate) grants: Grants,
    pub(crate) buffer_bytes: u64,
}

/// Why a thread cannot be made ready: what was tried, and the kernel's words.
pub(crate) type NotReady = (&'static str, io::Error);

/// Slots, buffers and bytes of a buffer of a task.
pub(crate) fn needs(task: &Task, tuning: &Tuning) -> (u32, u32, usize) {
    let (needs, block_bytes) = match task {
        Task::Load { spec, lanes, .. } => {
            let slots = lanes.iter().map(|lane| lane.plan.outstanding).sum();
            (Needs::of(&spec.workload, tuning, slots), spec.workload.block_bytes)
        }
        Task::Bulk { lanes } => {
            let slots = lanes.iter().map(|lane| lane.outstanding).sum();
            let block_bytes = lanes.iter().map(|lane| lane.block_bytes).max().unwrap_or(0);
            (Needs { slots, read_buffers: slots, write_buffers: 0 }, u64::from(block_bytes))
        }
    };
    let buffer_bytes = usize::try_from(block_bytes.next_multiple_of(PAGE)).unwrap_or(usize::MAX);
    (needs.slots, needs.read_buffers + needs.write_buffers, buffer_bytes)
}

/// Buffers start on pages.
const PAGE: u64 = 4096;

/// The whole life of an engine thread. It builds its ring, says so through `ready`, waits for a start time (none: the job was
/// dropped), and sends its end.
pub(crate) fn live(
    spec: ThreadSpec,
    ready: &Sender<(usize, Result<ThreadReady, NotReady>)>,
    start: &Receiver<u64>,
    ends: &Sender<(usize, ThreadEnd)>,
) {
    let number = spec.number;
    let control = Arc::clone(&spec.control);
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let prepared = spec.prepare();
        let runner = match prepared {
            Ok((runner, is_ready)) => {
                let _ = ready.send((number, Ok(is_ready)));
                runner
            }
            Err(not_ready) => {
                let _ = ready.send((number, Err(not_ready)));
                return None;
            }
        };
        let start_ns = start.recv().ok()?;
        wait_for(start_ns, &control);
        Some(match runner {
            Runner::Load(thread) => thread.run(start_ns),
            Runner::Bulk(thread) => thread.run(),
        })
    }));
    match ran {
        Ok(Some(end)) => {
            let _ = ends.send((number, end));
        }
        Ok(None) => {}
        Err(_) => {
            control.fail(None, format!("engine thread {number} broke off by an internal error"));
            let _ = ends.send((number, ThreadEnd::default()));
        }
    }
}

enum Runner {
    Load(Box<LoadThread>),
    Bulk(Box<BulkThread>),
}

impl ThreadSpec {
    fn prepare(self) -> Result<(Runner, ThreadReady), NotReady> {
        let mut warnings = Vec::new();
        if let Some((cpu, _)) = &self.pin {
            let mut set = CpuSet::new();
            set.set(*cpu);
            if let Err(error) = sched_setaffinity(None, &set) {
                warnings.push(format!("thread {} is not pinned to CPU {cpu}: {error}", self.number));
            }
        }
        // Open loops wake at their intended starts rather than up to 50 µs later.
        let _ = set_current_timer_slack(std::num::NonZeroU64::new(1));
        let files: Vec<_> = self.disks.iter().map(Disk::fd).collect();
        let (slots, buffers, buffer_bytes) = needs(&self.task, &self.tuning);
        let ring_spec = RingSpec {
            slots,
            buffers,
            buffer_bytes,
            files: &files,
            first_rung: self.tuning.first_rung,
            register_buffers: self.tuning.register_buffers,
            io_wq_cpus: self.pin.as_ref().map(|(_, cpus)| cpus.as_slice()),
        };
        let (ring, mut grants) = Ring::build(&ring_spec).map_err(|error| ("set up io_uring", error))?;
        grants.warnings.append(&mut warnings);
        let buffer_bytes = ring.arena_bytes() as u64;
        let runner = match self.task {
            Task::Load { spec, lanes, seed } => Runner::Load(Box::new(LoadThread::new(
                ring,
                &spec,
                self.tuning,
                &lanes,
                seed,
                self.control,
                self.seconds,
            ))),
            Task::Bulk { lanes } => {
                Runner::Bulk(Box::new(BulkThread::new(ring, lanes, self.control, self.tuning.drain_limit)))
            }
        };
        Ok((runner, ThreadReady { grants, buffer_bytes }))
    }
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    sched_getaffinity(None).map(|set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()).unwrap_or_default()
}

/// Waits until a thread has ended, for `limit` at most: one that hangs in the kernel is left behind. Answers whether it has ended.
pub(crate) fn ended_within(handle: &JoinHandle<()>, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while !handle.is_finished() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    handle.is_finished()
}

/// Sleeps until shortly before the start and spins the rest, so that threads and workers start together.
fn wait_for(start_ns: u64, control: &Control) {
    loop {
        let left = start_ns.saturating_sub(now_ns());
        if left == 0 || control.stopped() {
            return;
        }
        if left > START_SPIN_NS {
            std::thread::sleep(Duration::from_nanos((left - START_SPIN_NS).min(as_ns(WAIT_LIMIT))));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// The last part of the wait for the start, ns.
const START_SPIN_NS: u64 = 200_000;

/// What a thread reports when it is done.
#[derive(Debug, Default)]
pub(crate) struct ThreadEnd {
    pub(crate) first_io_ns: Option<u64>,
    pub(crate) last_completion_ns: Option<u64>,
    /// Share of one CPU, over the window or the whole of a fill or read-back.
    pub(crate) cpu: f64,
    /// This thread's id, and the CPU time of its io-wq workers at the end of that time, ns.
    pub(crate) io_wq_ns: (i32, u64),
    pub(crate) lanes: Vec<LaneEnd>,
    /// I/Os that never came back, and what was done about their memory.
    pub(crate) leftover: Option<String>,
    /// Some I/Os are still the kernel's.
    pub(crate) kernel_keeps: bool,
    /// Single I/Os, where they are kept.
    pub(crate) trace: Vec<TracedIo>,
}

/// What a lane reports when it is done; beside it, loads report seconds.
#[derive(Debug)]
pub(crate) struct LaneEnd {
    pub(crate) disk: usize,
    pub(crate) unfinished: u64,
    pub(crate) oldest_unfinished_ns: u64,
    pub(crate) pacing: Option<Pacing>,
    pub(crate) errors: ErrorLog,
    pub(crate) quiets: QuietLog,
    /// Open loop: I/Os of the window that were late although there was a free slot.
    pub(crate) late_though_free: u64,
    /// Fills and read-backs.
    pub(crate) bulk: Option<BulkEnd>,
}

/// What a fill or read-back did to a disk.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BulkEnd {
    /// Read-backs read, fills write.
    pub(crate) is_read: bool,
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) verified_blocks: u64,
}

impl Default for LaneEnd {
    fn default() -> Self {
        Self {
            disk: 0,
            unfinished: 0,
            oldest_unfinished_ns: 0,
            pacing: None,
            errors: ErrorLog::new(),
            quiets: QuietLog::new(),
            late_though_free: 0,
            bulk: None,
        }
    }
}

/// How the end of a ring went.
#[derive(Debug, Default)]
pub(crate) struct Drained {
    /// When the last completion came, if one did.
    pub(crate) last_ns: Option<u64>,
    /// What was left, for a person.
    pub(crate) leftover: Option<String>,
    /// Some I/Os are still the kernel's.
    pub(crate) kernel_keeps: bool,
}

/// Waits for what is in flight, then cancels it, then leaves ring and memory to the kernel.
pub(crate) fn drain(mut ring: Ring, limit: Duration) -> Drained {
    let mut drained = Drained::default();
    if wait_until_empty(&mut ring, as_ns(limit), &mut drained.last_ns) {
        return drained;
    }
    let _ = ring.cancel_all();
    let cancelled = wait_until_empty(&mut ring, as_ns(CANCEL_LIMIT), &mut drained.last_ns);
    drained.kernel_keeps = !cancelled;
    let seconds = limit.as_secs();
    drained.leftover = Some(if cancelled {
        format!("I/Os without an answer for {seconds} s after the end were cancelled")
    } else {
        format!(
            "{} I/Os without an answer {seconds} s after the end could not be cancelled; {} bytes of buffers stay with the kernel",
            ring.in_flight(),
            ring.arena_bytes()
        )
    });
    drained
}

fn wait_until_empty(ring: &mut Ring, limit_ns: u64, last: &mut Option<u64>) -> bool {
    let deadline = now_ns().saturating_add(limit_ns);
    let mut reaped = Vec::with_capacity(DRAIN_BATCH);
    while ring.in_flight() > 0 {
        if now_ns() >= deadline || ring.enter(as_ns(WAIT_LIMIT)).is_err() {
            return false;
        }
        reaped.clear();
        ring.reap(DRAIN_BATCH, &mut reaped);
        if !reaped.is_empty() {
            *last = Some(now_ns());
        }
    }
    true
}

/// Completions taken at once while draining.
const DRAIN_BATCH: usize = 64;

pub(crate) fn as_ns(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// `part` of `whole`, 0 where there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for a person")]
    let share = part as f64 / whole.max(1) as f64;
    share
}

/// What went wrong with an I/O, with the kernel's words.
pub(crate) fn describe(action: &str, length: u32, offset: u64, result: i32) -> String {
    let of =
        if action == "flush" { action.to_owned() } else { format!("{action} of {length} bytes at offset {offset}") };
    if result < 0 {
        format!("{of}: {}", io::Error::from_raw_os_error(-result))
    } else {
        format!("{of}: only {result} bytes were moved (short)")
    }
}
