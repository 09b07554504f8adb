//! How long each worker took from its start to its enrolment.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Most workers that a summary names one by one.
const MAX_NAMED: usize = 16;

/// When workers were started.
#[derive(Debug, Default)]
pub(crate) struct Starts {
    at: BTreeMap<String, Instant>,
}

impl Starts {
    /// A worker's process was started, or its machine turned on, at this moment.
    pub(crate) fn record(&mut self, worker: &str, at: Instant) {
        self.at.insert(worker.to_owned(), at);
    }

    /// How long each of those that have enrolled took, in their order.
    pub(crate) fn took<'a>(&self, enrolled: impl Iterator<Item = (&'a str, Instant)>) -> Vec<(&'a str, Duration)> {
        let took = |(worker, at): (&'a str, Instant)| {
            let started = self.at.get(worker)?;
            Some((worker, at.saturating_duration_since(*started)))
        };
        enrolled.filter_map(took).collect()
    }
}

/// Each worker's time, or, of many, the shortest and the longest.
pub(crate) fn summary(took: &[(&str, Duration)]) -> String {
    let seconds = |took: Duration| format!("{:.1} s", took.as_secs_f64());
    let times = match (took.iter().map(|(_, took)| *took).min(), took.iter().map(|(_, took)| *took).max()) {
        (Some(first), Some(last)) if took.len() > MAX_NAMED => format!("{} to {}", seconds(first), seconds(last)),
        _ => took.iter().map(|(worker, took)| format!("{worker} {}", seconds(*took))).collect::<Vec<_>>().join(", "),
    };
    format!("From start to enrolment: {times}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_is_timed_from_its_own_start() {
        let (origin, mut starts) = (Instant::now(), Starts::default());
        let at = |ms: u64| origin + Duration::from_millis(ms);
        starts.record("worker-1", at(0));
        starts.record("worker-2", at(1_000));
        let enrolled = [("worker-1", at(21_400)), ("worker-2", at(21_000)), ("stranger", at(5))];
        let took = starts.took(enrolled.into_iter());
        assert_eq!(took, [("worker-1", Duration::from_millis(21_400)), ("worker-2", Duration::from_secs(20))]);
        assert_eq!(summary(&took), "From start to enrolment: worker-1 21.4 s, worker-2 20.0 s");
    }

    #[test]
    fn of_many_workers_the_first_and_the_last_are_said() {
        let took: Vec<(&str, Duration)> = (1..=64).map(|half| ("w", Duration::from_millis(half * 500))).collect();
        assert_eq!(summary(&took), "From start to enrolment: 0.5 s to 32.0 s");
    }
}
