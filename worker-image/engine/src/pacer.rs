//! Intended starts of an open loop.

use crate::outcome::Pacing;
use crate::random::Random;

/// Draws of an endless backlog that are counted one by one; the rest of a backlog is its expectation.
const COUNTED_DRAWS: u64 = 5_000_000;

/// The intended starts of one lane, ns, ascending.
#[derive(Debug, Clone)]
pub(crate) struct Pacer {
    /// Intended start of the next I/O, ns.
    pub(crate) next_ns: u64,
    /// Exact next start, relative to `origin_ns`.
    next_exact: f64,
    origin_ns: u64,
    gap_ns: f64,
    poisson: Option<Random>,
}

impl Pacer {
    /// `iops` of this lane; `phase` (0 to 1) spreads the lanes of fixed rates over the first gap.
    pub(crate) fn new(iops: f64, poisson_seed: Option<u64>, phase: f64, start_ns: u64) -> Self {
        let gap_ns = 1e9 / iops;
        let mut pacer = Self {
            next_ns: start_ns,
            next_exact: phase * gap_ns,
            origin_ns: start_ns,
            gap_ns,
            poisson: poisson_seed.map(Random::new),
        };
        if let Some(random) = &mut pacer.poisson {
            pacer.next_exact = exponential(random, gap_ns);
        }
        pacer.settle();
        pacer
    }

    /// Moves all intended starts so that the lane's time starts at `start_ns`.
    pub(crate) fn start_at(&mut self, start_ns: u64) {
        self.origin_ns = start_ns;
        self.settle();
    }

    /// Goes on to the next intended start.
    #[inline]
    pub(crate) fn advance(&mut self) {
        match &mut self.poisson {
            Some(random) => self.next_exact += exponential(random, self.gap_ns),
            None => self.next_exact += self.gap_ns,
        }
        self.settle();
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time within a few weeks, in ns")]
    fn settle(&mut self) {
        self.next_ns = self.origin_ns.saturating_add(self.next_exact as u64);
    }

    /// Counts the intended starts before `end_ns` that did not happen.
    pub(crate) fn miss_until(&mut self, from_ns: u64, end_ns: u64, pacing: &mut Pacing) {
        let mut draws = 0;
        while self.next_ns < end_ns {
            if self.next_ns >= from_ns {
                if pacing.missed == 0 {
                    pacing.largest_lag_ns = pacing.largest_lag_ns.max(end_ns - self.next_ns);
                }
                pacing.intended += 1;
                pacing.missed += 1;
            }
            self.advance();
            draws += 1;
            if draws >= COUNTED_DRAWS {
                let rest = expected(end_ns.saturating_sub(self.next_ns.max(from_ns)), self.gap_ns);
                pacing.intended += rest;
                pacing.missed += rest;
                return;
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an expectation of a count, not negative"
)]
fn expected(time_ns: u64, gap_ns: f64) -> u64 {
    (time_ns as f64 / gap_ns) as u64
}

/// An exponential gap with the given mean.
fn exponential(random: &mut Random, mean: f64) -> f64 {
    -random.unit().ln() * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(pacer: &mut Pacer, end_ns: u64) -> Vec<u64> {
        let mut starts = Vec::new();
        while pacer.next_ns < end_ns {
            starts.push(pacer.next_ns);
            pacer.advance();
        }
        starts
    }

    #[test]
    fn a_fixed_rate_has_equal_gaps_and_does_not_drift() {
        let starts = starts(&mut Pacer::new(3000.0, None, 0.0, 5), 10_000_000_000);
        assert_eq!(starts.len(), 30_000);
        assert!(starts.windows(2).all(|pair| (333_332..=333_334).contains(&(pair[1] - pair[0]))));
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let starts = starts(&mut Pacer::new(10_000.0, Some(3), 0.0, 0), 10_000_000_000);
        // 100,000 expected, standard deviation 316.
        assert!(starts.len().abs_diff(100_000) < 1_500, "{}", starts.len());
        let long = starts.windows(2).filter(|pair| pair[1] - pair[0] > 100_000).count();
        #[expect(clippy::cast_precision_loss, reason = "small counts")]
        let share = long as f64 / starts.len() as f64;
        assert!((share - (-1.0_f64).exp()).abs() < 0.01, "{share} of the gaps exceed the mean");
    }

    #[test]
    fn what_was_not_started_is_missed() {
        let mut pacer = Pacer::new(1000.0, None, 0.0, 0);
        let mut pacing = Pacing::default();
        pacer.miss_until(1_000_000_000, 3_000_000_000, &mut pacing);
        assert_eq!(pacing, Pacing { intended: 2000, late: 0, missed: 2000, largest_lag_ns: 2_000_000_000 });
    }

    #[test]
    fn an_endless_backlog_is_counted_in_bounded_time() {
        let mut pacing = Pacing::default();
        Pacer::new(10_000_000.0, None, 0.0, 0).miss_until(0, 100_000_000_000, &mut pacing);
        assert!(pacing.missed.abs_diff(1_000_000_000) <= 1, "{}", pacing.missed);
    }
}
