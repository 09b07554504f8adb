//! The barrier start: one moment in orchestrator time, converted for each worker; and what became of it.

use super::clock::ClockOffset;

/// A start that was sent to workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPlan {
    /// The job.
    pub job: u64,
    /// T_start in `orchestrator_ns`. The window begins `precondition_seconds` later.
    pub start_ns: u64,
    /// The workers, in the order asked for.
    pub workers: Vec<PlannedStart>,
}

/// One worker's part of a [`StartPlan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStart {
    /// Name of the worker.
    pub worker: String,
    /// T_start on its own clock.
    pub worker_ns: u64,
    /// The offset that converted it.
    pub offset: ClockOffset,
}

/// How far apart the workers of a barrier really started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartSkew {
    /// Latest start minus earliest start, ns.
    pub spread_ns: u64,
    /// By worker: start minus T_start, ns; negative is early.
    pub late_ns: Vec<(String, i64)>,
    /// The largest error that the clock measurement may have added to any of them, ns.
    pub uncertainty_ns: u64,
}

impl StartPlan {
    /// The skew, from each worker's [`worker_protocol::Finished::started_worker_ns`]. Workers that are not of this plan are left
    /// out; none where no worker is left.
    #[must_use]
    pub fn skew<'a>(&self, started: impl IntoIterator<Item = (&'a str, u64)>) -> Option<StartSkew> {
        let mut late_ns = Vec::new();
        let mut uncertainty_ns = 0;
        for (worker, started_worker_ns) in started {
            let Some(planned) = self.workers.iter().find(|planned| planned.worker == worker) else { continue };
            let late = planned.offset.to_orchestrator_ns(started_worker_ns) - i128::from(self.start_ns);
            late_ns.push((worker.to_owned(), saturating_i64(late)));
            uncertainty_ns = uncertainty_ns.max(planned.offset.uncertainty_ns());
        }
        let (first, last) = (late_ns.iter().map(|late| late.1).min()?, late_ns.iter().map(|late| late.1).max()?);
        Some(StartSkew { spread_ns: last.abs_diff(first), late_ns, uncertainty_ns })
    }
}

fn saturating_i64(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> StartPlan {
        let planned = |worker: &str, offset_ns, rtt_ns| {
            let offset = ClockOffset { offset_ns, rtt_ns, at_ns: 0 };
            PlannedStart { worker: worker.into(), worker_ns: offset.to_worker_ns(1_000_000), offset }
        };
        StartPlan { job: 1, start_ns: 1_000_000, workers: vec![planned("a", 500, 30), planned("b", -900_000, 101)] }
    }

    #[test]
    fn skew_is_measured_in_orchestrator_time() {
        let skew = plan().skew([("a", 1_000_500 + 40), ("b", 100_000 - 7)]).unwrap();
        assert_eq!(skew.late_ns, [("a".into(), 40), ("b".into(), -7)]);
        assert_eq!(skew.spread_ns, 47);
        assert_eq!(skew.uncertainty_ns, 51);
    }

    #[test]
    fn strangers_do_not_count_and_hostile_starts_saturate() {
        assert_eq!(plan().skew([("c", 5)]), None);
        let skew = plan().skew([("a", u64::MAX), ("b", 0)]).unwrap();
        assert_eq!(skew.late_ns[0].1, i64::MAX);
        assert!(skew.spread_ns > 0);
    }
}
