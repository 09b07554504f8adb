//! The orchestrator's clock, and each worker's offset against it.

use std::time::{Duration, Instant};

/// Offsets kept a worker: a week at one a minute. Beyond it the oldest are dropped.
pub const MAX_CLOCK_HISTORY: usize = 10_080;

/// The orchestrator's monotonic clock: `orchestrator_ns` counts from its start.
#[derive(Debug, Clone, Copy)]
pub struct OrchestratorClock {
    origin: Instant,
}

impl OrchestratorClock {
    /// A clock that shows 0 now. One a process: times of two clocks are not comparable.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Nanoseconds since the clock's start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        duration_ns(self.origin.elapsed())
    }

    /// The instant at which the clock shows `orchestrator_ns`.
    #[must_use]
    pub fn instant_of(&self, orchestrator_ns: u64) -> Instant {
        self.origin + Duration::from_nanos(orchestrator_ns)
    }
}

/// A duration in whole nanoseconds; saturates after 584 years.
pub(super) fn duration_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A worker's clock against the orchestrator's, from the fastest probe of a burst.
///
/// The worker read its clock somewhere between the probe's departure and its reply's arrival; the middle is assumed
/// (Cristian's algorithm), so the offset is wrong by at most half the round trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset {
    /// `worker_ns` minus `orchestrator_ns` at the same moment.
    pub offset_ns: i64,
    /// Round trip of the probe, ns.
    pub rtt_ns: u64,
    /// When it was measured, `orchestrator_ns`.
    pub at_ns: u64,
}

impl ClockOffset {
    /// The offset that one probe shows: sent and received in `orchestrator_ns`, answered in `worker_ns`.
    #[must_use]
    pub fn from_probe(sent_ns: u64, received_ns: u64, worker_ns: u64) -> Self {
        let rtt_ns = received_ns.saturating_sub(sent_ns);
        let middle = i128::from(sent_ns) + i128::from(rtt_ns / 2);
        let offset = (i128::from(worker_ns) - middle).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Self { offset_ns: i64::try_from(offset).unwrap_or(i64::MAX), rtt_ns, at_ns: received_ns }
    }

    /// The same moment on the worker's clock; 0 for a moment before that clock's start.
    #[must_use]
    pub fn to_worker_ns(&self, orchestrator_ns: u64) -> u64 {
        orchestrator_ns.saturating_add_signed(self.offset_ns)
    }

    /// The same moment on the orchestrator's clock, ns; negative for a moment before that clock's start.
    #[must_use]
    pub fn to_orchestrator_ns(&self, worker_ns: u64) -> i128 {
        i128::from(worker_ns) - i128::from(self.offset_ns)
    }

    /// How far the offset may be from the truth, ns.
    #[must_use]
    pub fn uncertainty_ns(&self) -> u64 {
        self.rtt_ns.div_ceil(2)
    }
}

/// How fast a worker's clock runs away from the orchestrator's, parts per million, from the first to the last offset
/// of its history; none for fewer than two offsets or no time between them.
#[must_use]
pub fn drift_ppm(history: &[ClockOffset]) -> Option<f64> {
    let (first, last) = (history.first()?, history.last()?);
    let elapsed = last.at_ns.checked_sub(first.at_ns).filter(|&elapsed| elapsed > 0)?;
    #[expect(clippy::cast_precision_loss, reason = "a rate in parts per million needs a few digits")]
    let drift = (i128::from(last.offset_ns) - i128::from(first.offset_ns)) as f64 / elapsed as f64;
    Some(drift * 1e6)
}

/// A worker's offsets over time, oldest first.
#[derive(Debug, Default)]
pub(super) struct ClockTrack {
    offsets: std::collections::VecDeque<ClockOffset>,
}

impl ClockTrack {
    pub(super) fn record(&mut self, offset: ClockOffset) {
        if self.offsets.len() == MAX_CLOCK_HISTORY {
            self.offsets.pop_front();
        }
        self.offsets.push_back(offset);
    }

    pub(super) fn latest(&self) -> Option<ClockOffset> {
        self.offsets.back().copied()
    }

    pub(super) fn history(&self) -> Vec<ClockOffset> {
        self.offsets.iter().copied().collect()
    }

    /// Another process answers under this name: what was known of its clock is void.
    pub(super) fn clear(&mut self) {
        self.offsets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_places_the_worker_in_the_middle_of_the_round_trip() {
        let offset = ClockOffset::from_probe(1_000, 3_000, 502_000);
        assert_eq!(offset, ClockOffset { offset_ns: 500_000, rtt_ns: 2_000, at_ns: 3_000 });
        assert_eq!(offset.to_worker_ns(10_000), 510_000);
        assert_eq!(offset.to_orchestrator_ns(510_000), 10_000);
        assert_eq!(offset.uncertainty_ns(), 1_000);
    }

    #[test]
    fn a_worker_that_started_later_has_a_negative_offset() {
        let offset = ClockOffset::from_probe(9_000, 9_200, 100);
        assert_eq!(offset.offset_ns, -9_000);
        assert_eq!(offset.to_worker_ns(10_000), 1_000);
        assert_eq!(offset.to_worker_ns(5), 0, "before the worker's clock began");
        assert_eq!(offset.to_orchestrator_ns(0), 9_000);
    }

    #[test]
    fn hostile_clocks_saturate() {
        for worker_ns in [0, u64::MAX] {
            let offset = ClockOffset::from_probe(u64::MAX, 0, worker_ns);
            let _ = (offset.to_worker_ns(u64::MAX), offset.to_orchestrator_ns(u64::MAX), offset.to_worker_ns(0));
            assert_eq!(offset.rtt_ns, 0);
        }
        assert_eq!(ClockOffset::from_probe(0, 0, u64::MAX).offset_ns, i64::MAX);
    }

    #[test]
    fn drift_is_the_slope_of_the_history() {
        let at = |at_ns, offset_ns| ClockOffset { offset_ns, rtt_ns: 10, at_ns };
        assert_eq!(drift_ppm(&[at(0, 5)]), None);
        let drift = drift_ppm(&[at(0, 0), at(60_000_000_000, 1_200_000)]).unwrap();
        assert!((drift - 20.0).abs() < 1e-9, "{drift}");
    }

    #[test]
    fn history_is_bounded() {
        let mut track = ClockTrack::default();
        for at_ns in 0..=MAX_CLOCK_HISTORY as u64 {
            track.record(ClockOffset { offset_ns: 0, rtt_ns: 0, at_ns });
        }
        assert_eq!(track.history().len(), MAX_CLOCK_HISTORY);
        assert_eq!(track.history()[0].at_ns, 1);
        assert_eq!(track.latest().map(|offset| offset.at_ns), Some(MAX_CLOCK_HISTORY as u64));
    }
}
