//! How far a run is, and how long it will still take.

use tokio::sync::watch;

use crate::Progress;

/// Bytes a second assumed for a fill until one was measured: a modest disk.
const ASSUMED_FILL_BYTES_PER_SECOND: f64 = 300e6;
/// What each case takes beside its timed phases (prepare, clock probes, merge), seconds.
const CASE_OVERHEAD_SECONDS: f64 = 0.8;

/// Work that a run has still to do.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    seconds: f64,
    fill_bytes: f64,
}

/// Keeps the estimate and publishes it.
#[derive(Debug)]
pub(crate) struct Tracker {
    sender: watch::Sender<Progress>,
    /// Of the whole run.
    total: Work,
    /// Of steps that are over.
    done: Work,
    step: Work,
    fill_rate: Option<f64>,
}

impl Tracker {
    /// For a run of `cases` cases of `case_seconds` each (all timed phases) and fills of `fill_bytes` together.
    pub(crate) fn new(sender: watch::Sender<Progress>, run_id: String, plan: &plan::TestPlan, fill_bytes: u64) -> Self {
        let cases = u32::try_from(plan.footprints.len() * plan.workloads.len()).unwrap_or(u32::MAX);
        let settles =
            f64::from(u32::try_from(plan.footprints.len()).unwrap_or(u32::MAX)) * f64::from(plan.settle_seconds);
        let total = Work { seconds: f64::from(cases) * case_seconds(plan) + settles, fill_bytes: as_f64(fill_bytes) };
        sender.send_modify(|progress| *progress = Progress { run_id, cases, ..Progress::default() });
        Self { sender, total, done: Work::default(), step: Work::default(), fill_rate: None }
    }

    /// The run is in another state.
    pub(crate) fn state(&self, state: &str, step: &str) {
        self.publish(|progress| {
            progress.state = state.to_owned();
            progress.step = step.to_owned();
            progress.step_fraction = 0.0;
            progress.iops = None;
            progress.mib_per_s = None;
        });
    }

    /// A case begins.
    pub(crate) fn begin_case(&mut self, number: u32, plan: &plan::TestPlan) {
        self.step = Work { seconds: case_seconds(plan), fill_bytes: 0.0 };
        self.publish(|progress| progress.case = number);
    }

    /// A fill begins.
    pub(crate) fn begin_fill(&mut self, bytes: u64) {
        self.step = Work { seconds: 0.0, fill_bytes: as_f64(bytes) };
    }

    /// A wait begins.
    pub(crate) fn begin_settle(&mut self, seconds: u32) {
        self.step = Work { seconds: f64::from(seconds), fill_bytes: 0.0 };
    }

    /// The step is over; a fill says how long it took.
    pub(crate) fn end_step(&mut self, fill_seconds: Option<f64>) {
        if let Some(seconds) = fill_seconds.filter(|&seconds| seconds > 0.0 && self.step.fill_bytes > 0.0) {
            self.fill_rate = Some(self.step.fill_bytes / seconds);
        }
        self.done.seconds += self.step.seconds;
        self.done.fill_bytes += self.step.fill_bytes;
        self.step = Work::default();
        self.advance(0.0, None);
    }

    /// `fraction` of the step is done; `live` is IOPS and MiB/s of the last second.
    pub(crate) fn advance(&mut self, fraction: f64, live: Option<(f64, f64)>) {
        let fraction = fraction.clamp(0.0, 1.0);
        let done = self.seconds(self.done) + fraction * self.seconds(self.step);
        let total = self.seconds(self.total);
        self.publish(|progress| {
            progress.step_fraction = fraction;
            progress.fraction = if total > 0.0 { (done / total).min(1.0) } else { 0.0 };
            progress.seconds_left = Some((total - done).max(0.0));
            if let Some((iops, mib_per_s)) = live {
                progress.iops = Some(iops);
                progress.mib_per_s = Some(mib_per_s);
            }
        });
    }

    fn seconds(&self, work: Work) -> f64 {
        work.seconds + work.fill_bytes / self.fill_rate.unwrap_or(ASSUMED_FILL_BYTES_PER_SECOND)
    }

    fn publish(&self, change: impl FnOnce(&mut Progress)) {
        self.sender.send_modify(change);
    }
}

fn case_seconds(plan: &plan::TestPlan) -> f64 {
    f64::from(plan.precondition_seconds) + f64::from(plan.sample_seconds) + CASE_OVERHEAD_SECONDS
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "name: x\ntarget: {provider: local}\nworkers: {count: 1, disks: 1}\nfootprints: [256MiB, 1GiB]\n\
                        precondition: 4s\nsample: 5s\nworkloads: [published/4k-random-read]\n";

    #[test]
    fn time_left_follows_what_was_measured() {
        let plan = plan::parse("plan.yaml", PLAN, &plan::Profiles::shipped()).unwrap();
        let (sender, receiver) = watch::channel(Progress::default());
        let mut tracker = Tracker::new(sender, "r".into(), &plan, 1_000_000_000);
        tracker.begin_fill(250_000_000);
        tracker.end_step(Some(2.5));
        // 750 MB are left to fill at 100 MB/s, and two cases.
        let cases = 2.0 * (9.0 + CASE_OVERHEAD_SECONDS);
        let progress = receiver.borrow().clone();
        assert!((progress.seconds_left.unwrap() - (7.5 + cases)).abs() < 1e-9, "{progress:?}");
        tracker.begin_case(1, &plan);
        tracker.advance(1.0, Some((10.0, 1.0)));
        let progress = receiver.borrow().clone();
        assert!((progress.seconds_left.unwrap() - (7.5 + cases / 2.0)).abs() < 1e-9, "{progress:?}");
        assert_eq!(progress.iops, Some(10.0));
        assert!(progress.fraction > 0.3 && progress.fraction < 0.6, "{progress:?}");
    }
}
