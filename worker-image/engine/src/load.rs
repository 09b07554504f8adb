//! The hot loop: one thread, one ring, its lanes.
//!
//! Between two seconds there is no allocation, no waiting lock and no system call but io_uring_enter.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::control::Control;
use crate::data::LoadData;
use crate::exchange::Queue;
use crate::lanes::LanePlan;
use crate::limits::{LATE_NS, LATE_START, MAX_PENDING_SECONDS, SPIN_NS, WAIT_LIMIT, WRITE_POOL_BYTES};
use crate::offsets::{Op, Sequence};
use crate::outcome::Pacing;
use crate::pacer::Pacer;
use crate::random::{Random, seed_from};
use crate::ring::{Completion, Request, Ring, Transfer};
use crate::spec::{LoadSpec, OnError, Tuning, Workload};
use crate::tally::{ErrorCode, ErrorLog, Kinds, SecondTally, StallLog};
use crate::thread::{LaneEnd, ThreadEnd, drain};

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
    /// Open loop: slots without I/O.
    free: Vec<u32>,
    in_flight: u32,
    writes_since_flush: u32,
    last_progress_ns: u64,
    errors: ErrorLog,
    stalls: StallLog,
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
    last_completion_ns: Option<u64>,
}

/// The time line, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
struct Time {
    start: u64,
    window: Range2,
    /// End of the current second.
    boundary: u64,
    cpu_at_window: Option<u64>,
    cpu_in_window: u64,
}

/// A copyable range.
#[derive(Debug, Clone, Copy, Default)]
struct Range2 {
    from: u64,
    to: u64,
}

impl Range2 {
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
        let window = Range2 { from: precondition, to: precondition + u64::from(spec.sample_seconds) * SECOND_NS };
        let mut thread = Self {
            ring,
            control,
            tuning,
            block_bytes: u32::try_from(workload.block_bytes).unwrap_or(u32::MAX),
            flush_every: workload.flush_every_writes,
            on_error: workload.on_error,
            open_loop: workload.rate.is_some(),
            stall_threshold_ns: u64::try_from(workload.stall_threshold.as_nanos()).unwrap_or(u64::MAX),
            lanes: Vec::new(),
            slots: Vec::new(),
            pending: Vec::with_capacity(slots as usize),
            reaped: Vec::with_capacity(tuning.reissue_batch as usize),
            write_buffers: WriteBuffers { data: LoadData::new(workload, seed), free: VecDeque::new() },
            tally: spare(),
            seconds,
            kinds,
            time: Time { window, ..Time::default() },
            first_io_ns: None,
            last_completion_ns: None,
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
                free: slots.clone().rev().collect(),
                in_flight: 0,
                writes_since_flush: 0,
                last_progress_ns: 0,
                errors: ErrorLog::new(),
                stalls: StallLog::new(),
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

    fn set_start(&mut self, start_ns: u64) {
        let now = now_ns();
        self.time.start = start_ns;
        self.time.window.from += start_ns;
        self.time.window.to += start_ns;
        self.time.boundary = start_ns + SECOND_NS;
        let late_ns = now.saturating_sub(start_ns);
        self.tally.second = second_of(late_ns);
        self.time.boundary += u64::from(self.tally.second) * SECOND_NS;
        self.tally.whole = u128::from(late_ns % SECOND_NS) <= LATE_START.as_nanos();
        for lane in &mut self.lanes {
            lane.last_progress_ns = now;
            if let Some(pacer) = &mut lane.pacer {
                pacer.start_at(start_ns);
            }
        }
        self.note_window_start(now);
    }

    /// The loop. Gives the time at which the job ended for this thread: the end of the window, or earlier.
    fn pump(&mut self) -> io::Result<u64> {
        let mut now = now_ns();
        if !self.open_loop {
            self.prime(now);
        }
        loop {
            let wait = self.wait_ns(now);
            self.stamp();
            self.ring.enter(wait)?;
            now = now_ns();
            if now >= self.time.boundary && self.cross(now) {
                return Ok(self.time.window.to);
            }
            if self.control.stopped() {
                return Ok(now);
            }
            self.reaped.clear();
            self.ring.reap(self.tuning.reissue_batch as usize, &mut self.reaped);
            for index in 0..self.reaped.len() {
                let completion = self.reaped[index];
                if self.tuning.stamp_each {
                    now = now_ns();
                    if now >= self.time.boundary && self.cross(now) {
                        return Ok(self.time.window.to);
                    }
                }
                self.complete(completion, now);
            }
            if self.open_loop {
                self.issue_due(now);
            }
        }
    }

    /// Closed loop: all slots get their first I/O.
    fn prime(&mut self, now: u64) {
        for lane in &mut self.lanes {
            lane.free.clear();
        }
        (0..self.slots.len()).for_each(|slot| self.issue(slot, UNSTAMPED, now));
    }

    /// How long to wait for a completion: to the end of the second or the next intended start, 0 to only look.
    #[inline]
    fn wait_ns(&self, now: u64) -> u64 {
        let to_boundary = (self.time.boundary.saturating_sub(now)).clamp(1, WAIT_LIMIT_NS);
        if !self.open_loop {
            return to_boundary;
        }
        let due = self.lanes.iter().filter(|lane| !lane.free.is_empty()).filter_map(|lane| lane.pacer.as_ref());
        let next = due.map(|pacer| pacer.next_ns).min().unwrap_or(u64::MAX).saturating_sub(now);
        if next < SPIN_NS { 0 } else { to_boundary.min(next - SPIN_NS / 2) }
    }

    /// Open loop: starts what is due, as far as there are free slots.
    fn issue_due(&mut self, now: u64) {
        for lane in 0..self.lanes.len() {
            loop {
                let state = &mut self.lanes[lane];
                let Some(pacer) = &mut state.pacer else { break };
                if pacer.next_ns > now {
                    break;
                }
                let Some(slot) = state.free.pop() else { break };
                let intended_ns = pacer.next_ns;
                let flush_first = self.flush_every.is_some_and(|every| state.writes_since_flush >= every);
                if !flush_first {
                    pacer.advance();
                }
                self.issue(slot as usize, intended_ns, now);
            }
        }
    }

    /// Gives a free slot its next I/O (or flush); it is submitted by the next enter.
    #[inline]
    fn issue(&mut self, slot: usize, intended_ns: u64, now: u64) {
        let lane = &mut self.lanes[self.slots[slot].lane as usize];
        if lane.in_flight == 0 {
            lane.last_progress_ns = now;
        }
        lane.in_flight += 1;
        #[expect(clippy::cast_possible_truncation, reason = "disks and slots are below their limits")]
        let (file, number) = (lane.disk as u32, slot as u32);
        let state = &mut self.slots[slot];
        (state.busy, state.intended_ns, state.issued_ns) = (true, intended_ns, UNSTAMPED);
        self.pending.push(number);
        if self.flush_every.is_some_and(|every| lane.writes_since_flush >= every) {
            lane.writes_since_flush = 0;
            (state.flush, state.offset) = (true, 0);
            let transfer = Transfer { file, offset: 0, buffer: 0, skip: 0, length: 0 };
            self.ring.push(number, Request::FlushData, &transfer);
            return;
        }
        let (op, offset) = lane.sequence.next();
        (state.flush, state.op, state.offset) = (false, op, offset);
        let request = match (self.tuning.nop, op) {
            (true, _) => Request::Nop,
            (false, Op::Read) => {
                state.buffer = number;
                Request::Read
            }
            (false, Op::Write) => {
                lane.writes_since_flush = lane.writes_since_flush.saturating_add(1);
                state.buffer = self.write_buffers.take(&mut self.ring, self.block_bytes as usize);
                Request::Write
            }
        };
        let transfer = Transfer { file, offset, buffer: state.buffer, skip: 0, length: self.block_bytes };
        self.ring.push(number, request, &transfer);
    }

    /// Stamps what is about to be submitted: after its data were prepared, right before the enter.
    #[inline]
    fn stamp(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now = now_ns();
        for &slot in &self.pending {
            let slot = &mut self.slots[slot as usize];
            slot.issued_ns = now;
            if self.open_loop {
                let lag = now.saturating_sub(slot.intended_ns);
                if !slot.flush && self.time.window.contains(slot.intended_ns) {
                    note_lag(&mut self.lanes[slot.lane as usize].pacing, lag);
                }
            } else {
                slot.intended_ns = now;
            }
        }
        self.pending.clear();
        if self.first_io_ns.is_none() {
            self.first_io_ns = Some(now);
        }
    }

    /// Counts a completion and, in a closed loop, gives its slot the next I/O.
    #[inline]
    fn complete(&mut self, completion: Completion, now: u64) {
        let index = completion.slot as usize;
        let slot = &mut self.slots[index];
        slot.busy = false;
        let slot = *slot;
        let lane = &mut self.lanes[slot.lane as usize];
        lane.in_flight -= 1;
        if now.saturating_sub(lane.last_progress_ns) > self.stall_threshold_ns {
            lane.stalls.note(lane.last_progress_ns, now);
        }
        lane.last_progress_ns = now;
        self.last_completion_ns = Some(now);
        let full = self.tuning.nop || u32::try_from(completion.result) == Ok(self.block_bytes);
        if !slot.flush && slot.op == Op::Write && !self.tuning.nop {
            self.write_buffers.free.push_back((slot.buffer, true));
        }
        let tally = &mut self.tally.lanes[slot.lane as usize];
        if slot.flush && completion.result == 0 {
            tally.flushes += 1;
        } else if full && !slot.flush {
            let tally = tally.op(slot.op);
            tally.bytes += u64::from(self.block_bytes);
            if let Some(recorder) = &mut tally.latency {
                recorder.record(now.saturating_sub(slot.intended_ns));
            }
            if let Some(recorder) = &mut tally.service {
                recorder.record(now.saturating_sub(slot.issued_ns));
            }
        } else {
            self.failed(&slot, completion.result);
        }
        if self.open_loop {
            self.lanes[slot.lane as usize].free.push(completion.slot);
        } else {
            self.issue(index, UNSTAMPED, now);
        }
    }

    /// An I/O that failed or was short.
    #[cold]
    fn failed(&mut self, slot: &Slot, result: i32) {
        let lane = &mut self.lanes[slot.lane as usize];
        let op = if slot.flush { Op::Write } else { slot.op };
        self.tally.lanes[slot.lane as usize].op(op).errors += 1;
        let code = if result < 0 { ErrorCode::Errno(-result) } else { ErrorCode::Short };
        lane.errors.note(code, slot.offset);
        let errors = self.control.count_error();
        let stop = match self.on_error {
            OnError::Stop => true,
            OnError::Continue => false,
            OnError::StopAfter { errors: limit } => errors >= limit,
        };
        if stop && !self.control.stopped() {
            let action = if slot.flush {
                "flush"
            } else if slot.op == Op::Read {
                "read"
            } else {
                "write"
            };
            let what = crate::thread::describe(action, self.block_bytes, slot.offset, result);
            self.control.fail(Some(lane.disk), format!("disk {}: {what}", lane.disk_id));
        }
    }

    /// Hands over the second that is over; true at the end of the window.
    #[cold]
    fn cross(&mut self, now: u64) -> bool {
        let ended = now >= self.time.window.to;
        let until = now.min(self.time.window.to);
        let over = second_of(until - self.time.start);
        self.deliver(over);
        self.tally.second = over;
        self.time.boundary = self.time.start + (u64::from(over) + 1) * SECOND_NS;
        self.note_window_start(now);
        ended
    }

    /// Sends the second's counts and goes on with an empty buffer.
    fn deliver(&mut self, over: u32) {
        let fresh = self.seconds.empty.receive();
        let fresh = fresh.unwrap_or_else(|| Box::new(SecondTally::new(self.lanes.len(), self.kinds)));
        let mut full = std::mem::replace(&mut self.tally, fresh);
        self.tally.whole = true;
        full.over = over;
        if self.seconds.full.send(full).is_err() {
            self.control
                .fail(None, format!("the collector took no second for {MAX_PENDING_SECONDS} s: no CPU time for it"));
        }
    }

    fn note_window_start(&mut self, now: u64) {
        if self.time.cpu_at_window.is_none() && now >= self.time.window.from {
            self.time.cpu_at_window = Some(thread_cpu_ns());
        }
    }

    /// What is left at the end: the last second, what is unfinished, and the wait for it.
    fn finish(mut self, end_ns: u64) -> ThreadEnd {
        let window = self.time.window;
        if let Some(before) = self.time.cpu_at_window {
            self.time.cpu_in_window = thread_cpu_ns() - before;
        }
        if end_ns < window.to {
            self.tally.whole = false;
            let over = self.tally.second + 1;
            self.deliver(over);
        }
        let mut lanes: Vec<LaneEnd> = Vec::with_capacity(self.lanes.len());
        for (number, lane) in (0_u32..).zip(&mut self.lanes) {
            let mine = self.slots.iter().filter(|slot| slot.lane == number && slot.busy && slot.issued_ns < end_ns);
            let oldest = mine.clone().map(|slot| end_ns - slot.issued_ns).max().unwrap_or(0);
            if lane.in_flight > 0 && end_ns.saturating_sub(lane.last_progress_ns) > self.stall_threshold_ns {
                lane.stalls.note(lane.last_progress_ns, end_ns);
            }
            if let Some(pacer) = &mut lane.pacer {
                pacer.miss_until(window.from, end_ns.min(window.to), &mut lane.pacing);
            }
            lanes.push(LaneEnd {
                disk: lane.disk,
                unfinished: mine.count() as u64,
                oldest_unfinished_ns: oldest,
                pacing: lane.pacer.is_some().then_some(lane.pacing),
                errors: std::mem::replace(&mut lane.errors, ErrorLog::new()),
                stalls: std::mem::replace(&mut lane.stalls, StallLog::new()),
                ..LaneEnd::default()
            });
        }
        let measured = end_ns.saturating_sub(window.from);
        let (drained, leftover) = drain(self.ring);
        ThreadEnd {
            first_io_ns: self.first_io_ns,
            last_completion_ns: drained.or(self.last_completion_ns),
            cpu: crate::thread::share(self.time.cpu_in_window, measured),
            lanes,
            leftover,
        }
    }
}

impl WriteBuffers {
    /// A buffer with new data, or with the data of an earlier write where a copy is dealt.
    #[inline]
    fn take(&mut self, ring: &mut Ring, block_bytes: usize) -> u32 {
        if self.data.deal_copy() {
            if let Some((buffer, _)) = self.free.pop_back_if(|&mut (_, written)| written) {
                return buffer;
            }
            self.data.owe();
        }
        let (buffer, _) =
            self.free.pop_front().unwrap_or_else(|| unreachable!("there is a write buffer for every slot"));
        self.data.stamp(&mut ring.buffer_mut(buffer)[..block_bytes]);
        buffer
    }
}

#[inline]
fn note_lag(pacing: &mut Pacing, lag_ns: u64) {
    pacing.intended += 1;
    pacing.late += u64::from(lag_ns > LATE_NS);
    pacing.largest_lag_ns = pacing.largest_lag_ns.max(lag_ns);
}

#[expect(clippy::cast_possible_truncation, reason = "100 ms")]
const WAIT_LIMIT_NS: u64 = WAIT_LIMIT.as_nanos() as u64;

/// Whole seconds since the start.
fn second_of(since_start_ns: u64) -> u32 {
    u32::try_from(since_start_ns / SECOND_NS).unwrap_or(u32::MAX)
}
