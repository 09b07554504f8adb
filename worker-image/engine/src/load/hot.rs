//! The hot loop: reap, count, issue, stamp, enter. In it is no allocation, no waiting lock and no system call but io_uring_enter.

use std::io;

use super::{Lane, LoadThread, Slot, UNSTAMPED, WriteBuffers};
use crate::clock::now_ns;
use crate::limits::{LATE_NS, SPIN_NS, WAIT_LIMIT};
use crate::offsets::Op;
use crate::outcome::TracedIo;
use crate::ring::{Completion, Request, Ring, Transfer};
use crate::spec::OnError;
use crate::tally::{ErrorCode, Quiet};

impl LoadThread {
    /// The loop. Gives the time at which the job ended for this thread: the end of the window, or earlier.
    pub(super) fn pump(&mut self) -> io::Result<u64> {
        let mut now = now_ns();
        if now >= self.time.window.to {
            return Ok(self.time.window.to);
        }
        if self.control.stopped() {
            return Ok(now);
        }
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
            let batch = self.ring.reissue_batch(self.tuning.reissue_batch);
            self.ring.reap(batch, &mut self.reaped);
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
            if self.control.stopped() {
                return Ok(now);
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
            lane.busy_from_ns = now;
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
                if !slot.flush && self.time.window.contains(slot.intended_ns) {
                    note_lag(&mut self.lanes[slot.lane as usize], slot.intended_ns, now);
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
        let lane_index = slot.lane as usize;
        let lane = &mut self.lanes[lane_index];
        lane.in_flight -= 1;
        if now.saturating_sub(lane.quiet_from_ns) > self.stall_threshold_ns {
            lane.note_quiet(now, self.stall_threshold_ns);
        }
        lane.quiet_from_ns = now;
        self.last_completion_ns = now;
        if !slot.flush && slot.op == Op::Write && !self.tuning.nop {
            self.write_buffers.free.push_back((slot.buffer, true));
        }
        let full = self.tuning.nop || u32::try_from(completion.result) == Ok(self.block_bytes);
        if full && !slot.flush {
            let tally = self.tally.lanes[lane_index].op(slot.op);
            tally.bytes += u64::from(self.block_bytes);
            if let Some(recorder) = &mut tally.latency {
                recorder.record(now.saturating_sub(slot.intended_ns));
            }
            if let Some(recorder) = &mut tally.service {
                recorder.record(now.saturating_sub(slot.issued_ns));
            }
            if self.trace.len() < self.trace.capacity() {
                let io = trace_of(slot, lane.disk, now, self.time.start);
                self.trace.push(io);
            }
        } else if slot.flush && completion.result == 0 {
            self.tally.lanes[lane_index].flushes += 1;
        } else {
            self.failed(index, completion.result);
        }
        if self.refill {
            self.issue(index, UNSTAMPED, now);
        } else {
            let lane = &mut self.lanes[lane_index];
            if lane.free.is_empty() {
                lane.free_since_ns = now;
            }
            lane.free.push(completion.slot);
        }
    }

    /// An I/O that failed or was short.
    #[cold]
    fn failed(&mut self, slot: usize, result: i32) {
        let slot = self.slots[slot];
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
        if stop {
            self.refill = false;
        }
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
}

impl Lane {
    /// Notes a time without completion that is over. One that is no stall counts only for a disk with other lanes, which may stall in it.
    #[cold]
    pub(super) fn note_quiet(&mut self, to_ns: u64, threshold_ns: u64) {
        let quiet = Quiet { from_ns: self.quiet_from_ns, busy_from_ns: self.busy_from_ns, to_ns };
        if quiet.stall_ns() > threshold_ns || (self.shared && self.quiets.has_room()) {
            self.quiets.note(quiet);
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

fn trace_of(slot: &Slot, disk: usize, now: u64, start: u64) -> TracedIo {
    TracedIo {
        disk,
        read: slot.op == Op::Read,
        offset: slot.offset,
        intended_ns: slot.intended_ns.saturating_sub(start),
        issued_ns: slot.issued_ns.saturating_sub(start),
        completed_ns: now.saturating_sub(start),
    }
}

#[inline]
fn note_lag(lane: &mut Lane, intended_ns: u64, now: u64) {
    let lag_ns = now.saturating_sub(intended_ns);
    let own_lag_ns = now.saturating_sub(intended_ns.max(lane.free_since_ns));
    lane.late_though_free += u64::from(own_lag_ns > LATE_NS);
    let pacing = &mut lane.pacing;
    pacing.intended += 1;
    pacing.late += u64::from(lag_ns > LATE_NS);
    pacing.largest_lag_ns = pacing.largest_lag_ns.max(lag_ns);
}

#[expect(clippy::cast_possible_truncation, reason = "100 ms")]
const WAIT_LIMIT_NS: u64 = WAIT_LIMIT.as_nanos() as u64;
