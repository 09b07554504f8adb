//! How far a run is along its schedule, and how long it will still take.

use std::time::Duration;

use plan::{FillRate, Schedule, StepKind};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Progress;

/// Follows the schedule and publishes where the run is.
#[derive(Debug)]
pub(crate) struct Tracker {
    sender: watch::Sender<Progress>,
    schedule: Schedule,
    done: plan::Progress,
    step_began: Instant,
}

impl Tracker {
    /// At the start of the schedule.
    pub(crate) fn new(sender: watch::Sender<Progress>, run_id: String, schedule: Schedule) -> Self {
        let cases = u32::try_from(schedule.cases).unwrap_or(u32::MAX);
        sender.send_modify(|progress| *progress = Progress { run_id, cases, ..Progress::default() });
        Self { sender, schedule, done: plan::Progress::default(), step_began: Instant::now() }
    }

    /// The run is in another state or phase.
    pub(crate) fn state(&self, state: &str, step: &str) {
        self.sender.send_modify(|progress| {
            progress.state = state.to_owned();
            progress.step = step.to_owned();
            progress.iops = None;
            progress.mib_per_s = None;
        });
    }

    /// Something that a person should be told once.
    pub(crate) fn note(&self, note: String) {
        self.sender.send_modify(|progress| progress.notes.push(note));
    }

    /// The next step of the schedule begins.
    pub(crate) fn begin_step(&mut self, index: usize) {
        self.done = plan::Progress { steps_done: index, measured: self.done.measured, ..plan::Progress::default() };
        self.step_began = Instant::now();
        let fill_bytes = self.fill_bytes();
        self.sender.send_modify(|progress| {
            progress.step_index = index;
            progress.fill_bytes = fill_bytes;
            progress.filled_bytes = fill_bytes.map(|_| 0);
        });
        self.advance(0.0, None);
    }

    /// Bytes of the fill under way; none in any other step.
    fn fill_bytes(&self) -> Option<u64> {
        match self.schedule.steps.get(self.done.steps_done)?.kind {
            StepKind::Fill { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// The case of the step under way, from 1.
    pub(crate) fn case(&self, number: u32) {
        self.sender.send_modify(|progress| progress.case = number);
    }

    /// A fill has written this many bytes of all disks.
    pub(crate) fn filled(&mut self, bytes: u64) {
        self.done.fill_bytes_done = bytes;
        self.sender.send_modify(|progress| progress.filled_bytes = progress.fill_bytes.map(|all| bytes.min(all)));
    }

    /// A fill has ended: later ones are estimated from it.
    pub(crate) fn measured_fill(&mut self, bytes: u64, elapsed: Duration) {
        self.done.measured = FillRate::measured(bytes, elapsed).or(self.done.measured);
    }

    /// `step_fraction` of the step is done; `live` is IOPS and MiB/s of the last second, none where nobody tells them.
    pub(crate) fn advance(&mut self, step_fraction: f64, live: Option<(f64, f64)>) {
        self.done.step_elapsed = self.step_began.elapsed();
        let left = as_f64(self.schedule.remaining_seconds(&self.done));
        let whole = plan::Progress { measured: self.done.measured, ..plan::Progress::default() };
        let total = as_f64(self.schedule.remaining_seconds(&whole)).max(1.0);
        self.sender.send_modify(|progress| {
            progress.step_fraction = step_fraction.clamp(0.0, 1.0);
            progress.fraction = (1.0 - left / total).clamp(0.0, 1.0);
            progress.seconds_left = Some(left);
            (progress.iops, progress.mib_per_s) = live.unzip();
        });
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate for a person")]
fn as_f64(seconds: u64) -> f64 {
    seconds as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "name: x\ntarget: {provider: local}\nworkers: {count: 1, disks: 1}\nfootprints: [25GB, 100GB]\n\
                        precondition: 4s\nsample: 5s\nworkloads: [published/4k-random-read]\n";

    #[tokio::test]
    async fn time_left_follows_the_fill_that_was_measured() {
        let plan = plan::parse("plan.yaml", PLAN, &plan::Profiles::shipped()).unwrap();
        let schedule = plan::schedule(&plan, FillRate::assumed());
        let fills: Vec<usize> = (0..schedule.steps.len())
            .filter(|&index| matches!(schedule.steps[index].kind, StepKind::Fill { .. }))
            .collect();
        let (sender, receiver) = watch::channel(Progress::default());
        let mut tracker = Tracker::new(sender, "r".into(), schedule);

        tracker.begin_step(fills[0]);
        tracker.filled(5_000_000);
        assert_eq!(receiver.borrow().filled_bytes, Some(5_000_000));
        assert!(receiver.borrow().fill_bytes.unwrap() > 24_000_000_000, "all that this fill writes");
        let before = receiver.borrow().seconds_left.unwrap();
        // A quarter of the assumed throughput.
        tracker.measured_fill(25_000_000_000, Duration::from_secs(200));
        tracker.begin_step(fills[0] + 1);
        let progress = receiver.borrow().clone();
        assert!(progress.seconds_left.unwrap() > 75e9 / 125e6, "three quarters are left to fill: {progress:?}");
        assert!(progress.seconds_left.unwrap() > before, "slower than assumed: {before} s, then {progress:?}");
        assert!(progress.fraction > 0.2 && progress.fraction < 0.3, "{progress:?}");
        assert_eq!((progress.step_index, progress.fill_bytes), (fills[0] + 1, None), "a read-back is no fill");

        tracker.advance(0.5, Some((10.0, 1.0)));
        assert_eq!((receiver.borrow().iops, receiver.borrow().mib_per_s), (Some(10.0), Some(1.0)));
        tracker.advance(0.6, None);
        assert_eq!((receiver.borrow().iops, receiver.borrow().mib_per_s), (None, None), "a figure is not repeated");
        tracker.advance(0.7, Some((10.0, 1.0)));
        tracker.state("sampling", "x");
        assert_eq!(receiver.borrow().iops, None, "the figures of another phase are not shown");
    }
}
