//! A load on one thread: its ring, its lanes and all that its loop needs, allocated beforehand.

mod hot;
mod seconds;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::clock::now_ns;
use crate::control::Control;
use crate::data::LoadData;
use crate::exchange::Queue;
use crate::lanes::LanePlan;
use crate::limits::{MAX_PENDING_SECONDS, WRITE_POOL_BYTES};
use crate::offsets::{Op, Sequence};
use crate::outcome::{Pacing, TracedIo};
use crate::pacer::Pacer;
use crate::random::{Random, seed_from};
use crate::ring::{Completion, Ring};
use crate::spec::{LoadSpec, OnError, Tuning, Workload};
use crate::tally::{ErrorLog, Kinds, QuietLog, SecondTally};
use crate::thread::ThreadEnd;

const SECOND_NS: u64 = 1_000_000_000;

/// Buffers of a thread's seconds: one in use, one on its way, one spare.
const SECOND_BUFFERS: usize = 3;

/// What a lane works on.
#[derive(Debug, Clone)]
pub(crate) struct LaneSpec {
    pub(crate) plan: LanePlan,
    pub(crate) disk_id: String,
    pub(crate) region: Range<u64>,
    /// The job's seed mixed with the disk's number.
    pub(crate) seed: u64,
    /// Open loop: I/Os a second of this lane.
    pub(crate) iops: Option<f64>,
}

/// How full and empty seconds travel between a thread and the collector.
#[derive(Debug)]
pub(crate) struct Seconds {
    pub(crate) full: Queue<Box<SecondTally>>,
    pub(crate) empty: Queue<Box<SecondTally>>,
}

impl Seconds {
    pub(crate) fn new() -> Self {
        Self { full: Queue::new(MAX_PENDING_SECONDS), empty: Queue::new(MAX_PENDING_SECONDS) }
    }
}

#[derive(Debug)]
struct Lane {
    disk: usize,
    disk_id: String,
    sequence: Sequence,
    pacer: Option<Pacer>,
    pacing: Pacing,
    /// I/Os of the window that were late although there was a free slot: the generator's own lateness.
    late_though_free: u64,
    /// Open loop: slots without I/O.
    free: Vec<u32>,
    /// Since when there is such a slot, ns.
    free_since_ns: u64,
    in_flight: u32,
    writes_since_flush: u32,
    /// The last completion, or the start, ns.
    quiet_from_ns: u64,
    /// When an I/O was last issued with none in flight, ns.
    busy_from_ns: u64,
    /// The disk has other lanes, too.
    shared: bool,
    errors: ErrorLog,
    quiets: QuietLog,
}

/// What a slot's I/O is.
#[derive(Debug, Clone, Copy)]
struct Slot {
    lane: u32,
    busy: bool,
    flush: bool,
    op: Op,
    offset: u64,
    buffer: u32,
    /// Open loop: intended start, ns; else set with `issued_ns`.
    intended_ns: u64,
    issued_ns: u64,
}

/// A stamp that is yet to come.
const UNSTAMPED: u64 = u64::MAX;

/// Buffers for writes, taken in turn so that a compressor's window does not see the same bytes twice.
#[derive(Debug)]
struct WriteBuffers {
    data: LoadData,
    /// Number and whether it was written before.
    free: VecDeque<(u32, bool)>,
}

pub(crate) struct LoadThread {
    ring: Ring,
    control: Arc<Control>,
    seconds: Arc<Seconds>,
    tuning: Tuning,
    block_bytes: u32,
    flush_every: Option<u32>,
    on_error: OnError,
    open_loop: bool,
    /// Closed loop, and not stopped by an error: a completion's slot gets its next I/O at once.
    refill: bool,
    stall_threshold_ns: u64,
    lanes: Vec<Lane>,
    slots: Vec<Slot>,
    /// Slots pushed and not yet stamped.
    pending: Vec<u32>,
    reaped: Vec<Completion>,
    write_buffers: WriteBuffers,
    tally: Box<SecondTally>,
    kinds: Kinds,
    time: Time,
    first_io_ns: Option<u64>,
    /// 0 before the first one.
    last_completion_ns: u64,
    /// Filled up to its capacity.
    trace: Vec<TracedIo>,
}

/// The time line, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
struct Time {
    start: u64,
    window: Window,
    /// End of the current second.
    boundary: u64,
    cpu_at_window: Option<u64>,
    cpu_in_window: u64,
}

/// The window [from, to), ns.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    from: u64,
    to: u64,
}

impl Window {
    #[inline]
    fn contains(self, ns: u64) -> bool {
        self.from <= ns && ns < self.to
    }
}

/// Slots and buffers that a thread's lanes need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) slots: u32,
    pub(crate) read_buffers: u32,
    pub(crate) write_buffers: u32,
}

impl Needs {
    /// A read buffer a slot where there are reads; where there are writes, [`WRITE_POOL_BYTES`] or at least one a slot.
    pub(crate) fn of(workload: &Workload, tuning: &Tuning, slots: u32) -> Self {
        if tuning.nop {
            return Self { slots, read_buffers: 0, write_buffers: 0 };
        }
        let pool = u32::try_from(WRITE_POOL_BYTES / workload.block_bytes).unwrap_or(u32::MAX);
        Self {
            slots,
            read_buffers: if workload.read_percent > 0 { slots } else { 0 },
            write_buffers: if workload.read_percent < 100 { pool.max(slots) } else { 0 },
        }
    }
}

impl LoadThread {
    /// Prepares everything that the loop needs; `seed` is the thread's own.
    pub(crate) fn new(
        ring: Ring,
        spec: &LoadSpec,
        tuning: Tuning,
        lanes: &[LaneSpec],
        seed: u64,
        control: Arc<Control>,
        seconds: Arc<Seconds>,
    ) -> Self {
        let workload = &spec.workload;
        let slots = lanes.iter().map(|lane| lane.plan.outstanding).sum();
        let needs = Needs::of(workload, &tuning, slots);
        let kinds = Kinds {
            reads: workload.read_percent > 0,
            writes: workload.read_percent < 100,
            service: workload.rate.is_some(),
        };
        let spare = || Box::new(SecondTally::new(lanes.len(), kinds));
        for _ in 1..SECOND_BUFFERS {
            // The queue is new and holds more than this.
            let _ = seconds.empty.send(spare());
        }
        let precondition = u64::from(spec.precondition_seconds) * SECOND_NS;
        let window = Window { from: precondition, to: precondition + u64::from(spec.sample_seconds) * SECOND_NS };
        let mut thread = Self {
            ring,
            control,
            tuning,
            block_bytes: u32::try_from(workload.block_bytes).unwrap_or(u32::MAX),
            flush_every: workload.flush_every_writes,
            on_error: workload.on_error,
            open_loop: workload.rate.is_some(),
            refill: workload.rate.is_none(),
            stall_threshold_ns: u64::try_from(workload.stall_threshold.as_nanos()).unwrap_or(u64::MAX),
            lanes: Vec::new(),
            slots: Vec::new(),
            pending: Vec::with_capacity(slots as usize),
            reaped: Vec::with_capacity(slots as usize),
            write_buffers: WriteBuffers { data: LoadData::new(workload, seed), free: VecDeque::new() },
            tally: spare(),
            seconds,
            kinds,
            time: Time { window, ..Time::default() },
            first_io_ns: None,
            last_completion_ns: 0,
            trace: Vec::with_capacity(tuning.trace_ios as usize),
        };
        thread.add_lanes(workload, lanes);
        thread.fill_write_buffers(needs, seed);
        thread
    }

    fn add_lanes(&mut self, workload: &Workload, lanes: &[LaneSpec]) {
        for (number, spec) in (0_u32..).zip(lanes) {
            let poisson = workload.rate.as_ref().is_some_and(|rate| rate.poisson);
            let poisson_seed = poisson.then(|| seed_from(&[spec.seed, 21, u64::from(spec.plan.part.part)]));
            let phase = f64::from(spec.plan.part.part) / f64::from(spec.plan.part.parts);
            let first_slot = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
            let slots = first_slot..first_slot + spec.plan.outstanding;
            self.lanes.push(Lane {
                disk: spec.plan.disk,
                disk_id: spec.disk_id.clone(),
                sequence: Sequence::new(workload, &spec.region, spec.plan.part, spec.seed),
                pacer: spec.iops.map(|iops| Pacer::new(iops, poisson_seed, phase, 0)),
                pacing: Pacing::default(),
                late_though_free: 0,
                free: slots.clone().rev().collect(),
                free_since_ns: 0,
                in_flight: 0,
                writes_since_flush: 0,
                quiet_from_ns: 0,
                busy_from_ns: 0,
                shared: spec.plan.part.parts > 1,
                errors: ErrorLog::new(),
                quiets: QuietLog::new(),
            });
            self.slots.extend(slots.map(|slot| Slot {
                lane: number,
                busy: false,
                flush: false,
                op: Op::Read,
                offset: 0,
                buffer: slot,
                intended_ns: 0,
                issued_ns: UNSTAMPED,
            }));
        }
    }

    fn fill_write_buffers(&mut self, needs: Needs, seed: u64) {
        let mut random = Random::new(seed_from(&[seed, 13]));
        self.write_buffers.free.reserve_exact(needs.write_buffers as usize);
        for buffer in needs.read_buffers..needs.read_buffers + needs.write_buffers {
            self.write_buffers.data.prepare(&mut random, self.ring.buffer_mut(buffer));
            self.write_buffers.free.push_back((buffer, false));
        }
    }

    /// Loads from `start_ns` to the end of the window, then waits for what is in flight.
    pub(crate) fn run(mut self, start_ns: u64) -> ThreadEnd {
        self.set_start(start_ns);
        let pumped = self.pump();
        let end_ns = match pumped {
            Ok(end_ns) => end_ns,
            Err(error) => {
                self.control.fail(None, format!("io_uring_enter failed: {error}"));
                now_ns()
            }
        };
        self.finish(end_ns)
    }
}
