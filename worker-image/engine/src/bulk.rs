//! Fills and read-backs: every byte once, or random blocks compared with what a fill wrote.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::control::Control;
use crate::data::FillData;
use crate::device::own_io_wq_ns;
use crate::limits::{NO_PROGRESS_LIMIT, WAIT_LIMIT};
use crate::random::Permutation;
use crate::ring::{Completion, Request, Ring, Transfer};
use crate::tally::{ErrorCode, ErrorLog};
use crate::thread::{BulkEnd, LaneEnd, ThreadEnd, as_ns, describe, drain, share};

/// Completions handled before their slots are issued again.
const REAP_BATCH: usize = 8;

/// What a lane of a fill or read-back works on.
#[derive(Debug, Clone)]
pub(crate) struct BulkLaneSpec {
    pub(crate) disk: usize,
    pub(crate) disk_id: String,
    pub(crate) region: Range<u64>,
    pub(crate) outstanding: u32,
    pub(crate) block_bytes: u32,
    pub(crate) data: FillData,
    /// None fills; else how many random blocks are compared, and the seed that chooses them.
    pub(crate) verify: Option<(u64, u64)>,
}

/// The blocks of a lane that are still to come.
#[derive(Debug)]
enum Blocks {
    Sequential { next: u64 },
    Random { order: Permutation, next: u64, count: u64 },
}

#[derive(Debug)]
struct Lane {
    spec: BulkLaneSpec,
    blocks: Blocks,
    in_flight: u32,
    flushed: bool,
    mismatches: u64,
    end: BulkEnd,
    errors: ErrorLog,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    lane: usize,
    offset: u64,
    length: u32,
    /// Bytes already written of a write that came back short.
    done: u32,
    flush: bool,
}

pub(crate) struct BulkThread {
    ring: Ring,
    control: Arc<Control>,
    drain_limit: Duration,
    lanes: Vec<Lane>,
    slots: Vec<Slot>,
    started_ns: Option<u64>,
    last_completion_ns: Option<u64>,
}

impl BulkThread {
    pub(crate) fn new(ring: Ring, lanes: Vec<BulkLaneSpec>, control: Arc<Control>, drain_limit: Duration) -> Self {
        let lanes: Vec<Lane> = lanes.into_iter().map(Lane::new).collect();
        let slots = lanes
            .iter()
            .enumerate()
            .flat_map(|(lane, state)| (0..state.spec.outstanding).map(move |_| Slot { lane, ..Slot::default() }));
        Self { ring, control, drain_limit, slots: slots.collect(), lanes, started_ns: None, last_completion_ns: None }
    }

    pub(crate) fn run(mut self) -> ThreadEnd {
        let (cpu_before, started) = (thread_cpu_ns(), now_ns());
        if !self.control.stopped() {
            self.started_ns = Some(started);
            (0..self.slots.len()).for_each(|slot| self.issue(slot));
        }
        self.pump();
        let ended = now_ns();
        for lane in &mut self.lanes {
            if lane.end.elapsed_ns == 0 {
                lane.end.elapsed_ns = ended - started;
            }
        }
        let io_wq_ns = own_io_wq_ns();
        let drained = drain(self.ring, self.drain_limit);
        ThreadEnd {
            first_io_ns: self.started_ns,
            last_completion_ns: drained.last_ns.or(self.last_completion_ns),
            cpu: share(thread_cpu_ns() - cpu_before, ended - started),
            io_wq_ns,
            lanes: self.lanes.into_iter().map(Lane::into_end).collect(),
            leftover: drained.leftover,
            kernel_keeps: drained.kernel_keeps,
            trace: Vec::new(),
        }
    }

    fn pump(&mut self) {
        let mut reaped = Vec::with_capacity(REAP_BATCH);
        let mut last_progress = now_ns();
        while self.ring.in_flight() > 0 && !self.control.stopped() {
            if let Err(error) = self.ring.enter(as_ns(WAIT_LIMIT)) {
                self.control.fail(None, format!("io_uring_enter failed: {error}"));
                return;
            }
            reaped.clear();
            self.ring.reap(REAP_BATCH, &mut reaped);
            let now = now_ns();
            if !reaped.is_empty() {
                last_progress = now;
                self.last_completion_ns = Some(now);
            } else if now - last_progress > as_ns(NO_PROGRESS_LIMIT) {
                self.give_up();
                return;
            }
            reaped.iter().for_each(|&completion| self.complete(completion, now));
        }
    }

    fn give_up(&self) {
        let waiting = self.lanes.iter().find(|lane| lane.in_flight > 0);
        let id = waiting.map_or("?", |lane| lane.spec.disk_id.as_str());
        let reason = format!("disk {id}: no completion for {} s", NO_PROGRESS_LIMIT.as_secs());
        self.control.fail(waiting.map(|lane| lane.spec.disk), reason);
    }

    /// Gives a free slot the lane's next block, or the flush that follows the last one.
    fn issue(&mut self, slot: usize) {
        let lane = &mut self.lanes[self.slots[slot].lane];
        if let Some((offset, length)) = lane.next_block() {
            lane.in_flight += 1;
            self.slots[slot] = Slot { offset, length, done: 0, flush: false, ..self.slots[slot] };
            if lane.spec.verify.is_none() {
                lane.spec.data.write(offset, &mut self.ring.buffer_mut(number(slot))[..length as usize]);
            }
            self.push(slot);
        } else if lane.in_flight == 0 && !lane.flushed && lane.spec.verify.is_none() {
            lane.in_flight += 1;
            lane.flushed = true;
            self.slots[slot].flush = true;
            self.push(slot);
        } else if lane.in_flight == 0 {
            lane.end.elapsed_ns = now_ns() - self.started_ns.unwrap_or_default();
        }
    }

    fn push(&mut self, slot: usize) {
        let Slot { lane, offset, length, done, flush } = self.slots[slot];
        let lane = &self.lanes[lane];
        let request = match (flush, lane.spec.verify.is_some()) {
            (true, _) => Request::Flush,
            (false, true) => Request::Read,
            (false, false) => Request::Write,
        };
        let transfer = Transfer {
            file: number(lane.spec.disk),
            offset: offset + u64::from(done),
            buffer: number(slot),
            skip: done,
            length: length - done,
        };
        self.ring.push(number(slot), request, &transfer);
    }

    fn complete(&mut self, completion: Completion, now: u64) {
        let index = completion.slot as usize;
        let slot = self.slots[index];
        let lane = &mut self.lanes[slot.lane];
        lane.in_flight -= 1;
        if slot.flush {
            if completion.result < 0 {
                self.failed(slot, "flush", completion.result);
            } else {
                lane.end.elapsed_ns = now - self.started_ns.unwrap_or_default();
            }
            return;
        }
        let wanted = slot.length - slot.done;
        let moved = u32::try_from(completion.result).unwrap_or(0);
        let verify = lane.spec.verify.is_some();
        if moved == wanted {
            self.whole(index);
            self.issue(index);
        } else if moved > 0 && !verify && !self.control.stopped() {
            // The rest says why: a full file system answers the first part and refuses the second.
            lane.in_flight += 1;
            self.slots[index].done += moved;
            self.push(index);
        } else {
            self.failed(slot, if verify { "read" } else { "write" }, completion.result);
        }
    }

    /// A block that was written, or read and is to be compared.
    fn whole(&mut self, index: usize) {
        let slot = self.slots[index];
        let lane = &mut self.lanes[slot.lane];
        lane.end.count += 1;
        lane.end.bytes += u64::from(slot.length);
        self.control.add_bytes(u64::from(slot.length));
        if lane.spec.verify.is_none() {
            return;
        }
        if lane.spec.data.matches(slot.offset, &self.ring.buffer_mut(number(index))[..slot.length as usize]) {
            lane.end.verified_blocks += 1;
        } else {
            lane.mismatches += 1;
            lane.errors.note(ErrorCode::Mismatch, slot.offset);
            if lane.mismatches == 1 {
                let reason = format!(
                    "disk {}: the {} bytes at offset {} are not what was written",
                    lane.spec.disk_id, slot.length, slot.offset
                );
                self.control.note_failure(Some(lane.spec.disk), reason);
            }
        }
    }

    fn failed(&mut self, slot: Slot, action: &str, result: i32) {
        let lane = &mut self.lanes[slot.lane];
        lane.end.errors += 1;
        let offset = slot.offset + u64::from(slot.done);
        lane.errors.note(if result < 0 { ErrorCode::Errno(-result) } else { ErrorCode::Short }, offset);
        let what = describe(action, slot.length - slot.done, offset, result);
        self.control.fail(Some(lane.spec.disk), format!("disk {}: {what}", lane.spec.disk_id));
    }
}

impl Lane {
    fn new(spec: BulkLaneSpec) -> Self {
        let blocks = match spec.verify {
            None => Blocks::Sequential { next: spec.region.start },
            Some((count, seed)) => {
                let all = (spec.region.end - spec.region.start) / u64::from(spec.block_bytes);
                Blocks::Random { order: Permutation::new(all.max(1), seed), next: 0, count: count.min(all) }
            }
        };
        Self {
            spec,
            blocks,
            in_flight: 0,
            flushed: false,
            mismatches: 0,
            end: BulkEnd::default(),
            errors: ErrorLog::new(),
        }
    }

    /// Offset and length of the next block.
    fn next_block(&mut self) -> Option<(u64, u32)> {
        let block = u64::from(self.spec.block_bytes);
        match &mut self.blocks {
            Blocks::Sequential { next } => {
                let offset = *next;
                let length = block.min(self.spec.region.end - offset);
                *next += length;
                (length > 0).then(|| (offset, u32::try_from(length).unwrap_or(self.spec.block_bytes)))
            }
            Blocks::Random { order, next, count } => {
                let index = *next;
                *next += u64::from(index < *count);
                (index < *count).then(|| (self.spec.region.start + order.at(index) * block, self.spec.block_bytes))
            }
        }
    }

    fn into_end(self) -> LaneEnd {
        let mut end = self.end;
        end.errors += self.mismatches;
        end.is_read = self.spec.verify.is_some();
        LaneEnd { disk: self.spec.disk, errors: self.errors, bulk: Some(end), ..LaneEnd::default() }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "disks and slots are below their limits")]
fn number(index: usize) -> u32 {
    index as u32
}
