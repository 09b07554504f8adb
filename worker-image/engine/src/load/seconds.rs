//! The time line of a load: its start, the end of each second, and its own end.

use super::{LoadThread, SECOND_NS};
use crate::clock::{now_ns, thread_cpu_ns};
use crate::device::own_io_wq_ns;
use crate::limits::{LATE_START, MAX_PENDING_SECONDS};
use crate::tally::{ErrorLog, QuietLog, SecondTally};
use crate::thread::{LaneEnd, ThreadEnd, drain, share};

impl LoadThread {
    pub(super) fn set_start(&mut self, start_ns: u64) {
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
            lane.quiet_from_ns = now;
            if let Some(pacer) = &mut lane.pacer {
                pacer.start_at(start_ns);
            }
        }
        self.note_window_start(now);
    }

    /// Hands over the second that is over; true at the end of the window.
    #[cold]
    pub(super) fn cross(&mut self, now: u64) -> bool {
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
    pub(super) fn finish(mut self, end_ns: u64) -> ThreadEnd {
        let window = self.time.window;
        if let Some(before) = self.time.cpu_at_window {
            self.time.cpu_in_window = thread_cpu_ns() - before;
        }
        let io_wq_ns = own_io_wq_ns();
        if end_ns < window.to {
            self.tally.whole = false;
            let over = self.tally.second + 1;
            self.deliver(over);
        }
        let mut lanes: Vec<LaneEnd> = Vec::with_capacity(self.lanes.len());
        for (number, lane) in (0_u32..).zip(&mut self.lanes) {
            let mine = self
                .slots
                .iter()
                .filter(|slot| slot.lane == number && slot.busy && !slot.flush && slot.issued_ns < end_ns);
            let oldest = mine.clone().map(|slot| end_ns - slot.issued_ns).max().unwrap_or(0);
            if lane.in_flight == 0 {
                lane.busy_from_ns = end_ns;
            }
            if end_ns.saturating_sub(lane.quiet_from_ns) > self.stall_threshold_ns {
                lane.note_quiet(end_ns, self.stall_threshold_ns);
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
                quiets: std::mem::replace(&mut lane.quiets, QuietLog::new()),
                late_though_free: lane.late_though_free,
                ..LaneEnd::default()
            });
        }
        let measured = end_ns.saturating_sub(window.from);
        let drained = drain(self.ring, self.tuning.drain_limit);
        ThreadEnd {
            first_io_ns: self.first_io_ns,
            last_completion_ns: drained.last_ns.or(Some(self.last_completion_ns).filter(|&ns| ns > 0)),
            cpu: share(self.time.cpu_in_window, measured),
            io_wq_ns,
            lanes,
            leftover: drained.leftover,
            kernel_keeps: drained.kernel_keeps,
            trace: self.trace,
        }
    }
}

/// Whole seconds since the start.
fn second_of(since_start_ns: u64) -> u32 {
    u32::try_from(since_start_ns / SECOND_NS).unwrap_or(u32::MAX)
}
