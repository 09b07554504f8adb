//! Latency histograms: one set of bounds for engine, wire and store, with exact count, sum, minimum and maximum.
//!
//! An HdrHistogram V2 blob carries no exact sum, minimum or maximum and cannot hold values beyond its highest, so
//! [`Latencies`] keeps these beside the histogram. All values are nanoseconds.

mod blob;
mod recorder;

use hdrhistogram::Histogram;

pub use blob::{BlobError, MAX_BLOB_BYTES};
pub use recorder::Recorder;

/// Lowest discernible latency, ns: 8 ns steps up to 16 µs, so 0.8 % at 1 µs and 0.08 % at 10 µs.
pub const LOWEST_NS: u64 = 8;

/// Highest latency that a histogram holds, ns: 10 minutes. Larger ones are counted in [`Latencies::over_range`].
pub const HIGHEST_NS: u64 = 600_000_000_000;

/// Significant decimal figures from 10 µs up.
pub const SIGNIFICANT_FIGURES: u8 = 3;

/// Cells of a histogram with these bounds.
pub const CELLS: usize = 28_672;

/// An empty histogram with the bounds of this crate.
///
/// # Panics
/// Never: the bounds are constants, and a test makes one.
#[must_use]
pub fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_FIGURES)
        .expect("the bounds are constants that HdrHistogram accepts")
}

/// The width of the bucket that holds `value_ns`, ns: how far a percentile may be from the true value of its rank.
#[must_use]
pub fn bucket_width_ns(value_ns: u64) -> u64 {
    // 2,048 sub-buckets of 8 ns, then 1,024 more for each doubling.
    let doublings = (value_ns / (LOWEST_NS * 2048)).checked_ilog2().map_or(0, |log| log + 1);
    LOWEST_NS << doublings
}

/// Latencies of one kind of I/O: a histogram with exact count, sum, minimum and maximum beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies {
    histogram: Histogram<u64>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    over_range: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

/// The first cell is that of 0 to 7 ns. A histogram keeps its own largest value beside the cells, which must not tell 0 from the others of
/// that cell, or a drained recorder would differ from the same latencies recorded one by one.
fn in_first_cell(latency_ns: u64) -> u64 {
    latency_ns.max(1)
}

impl Latencies {
    /// No latencies yet.
    #[must_use]
    pub fn new() -> Self {
        Self { histogram: new_histogram(), count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0, over_range: 0 }
    }

    /// Puts together what was kept apart. `min_ns` and `max_ns` are ignored where `count` is 0.
    ///
    /// # Errors
    /// [`BlobError::Inconsistent`] where the histogram's count and `over_range` do not make `count`, or the extremes contradict it.
    pub fn from_parts(histogram: Histogram<u64>, exact: Exact) -> Result<Self, BlobError> {
        exact.check(&histogram)?;
        let Exact { count, sum_ns, min_ns, max_ns, over_range } = exact;
        if count == 0 {
            return Ok(Self::new());
        }
        Ok(Self { histogram, count, sum_ns, min_ns, max_ns, over_range })
    }

    /// Reads what [`Latencies::encode`] wrote, with the exact figures that were kept beside it.
    ///
    /// # Errors
    /// [`BlobError`] for anything that is not a histogram of this crate's bounds, or contradicts the figures beside it.
    pub fn decode(blob: &[u8], exact: Exact) -> Result<Self, BlobError> {
        let histogram = if blob.is_empty() { new_histogram() } else { blob::decode(blob)? };
        Self::from_parts(histogram, exact)
    }

    /// The histogram as an HdrHistogram V2 deflate blob; empty where there are no latencies.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        if self.count == 0 { Vec::new() } else { blob::encode(&self.histogram) }
    }

    /// Adds one latency.
    pub fn record(&mut self, latency_ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        if latency_ns > HIGHEST_NS || self.histogram.record(in_first_cell(latency_ns)).is_err() {
            self.over_range += 1;
        }
    }

    /// Adds all of another's latencies: cell by cell, so nothing is rounded again.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.histogram.add(&other.histogram).expect("both have this crate's bounds");
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.over_range += other.over_range;
    }

    /// Adds `count` latencies to the histogram alone; [`Latencies::add_exact`] adds what belongs beside it.
    fn add_cell(&mut self, value_ns: u64, count: u64) {
        self.histogram.record_n(in_first_cell(value_ns), count).expect("a recorder has this crate's bounds");
    }

    fn add_exact(&mut self, count: u64, sum_ns: u64, min_ns: u64, max_ns: u64, over_range: u64) {
        self.count += count;
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.min_ns = self.min_ns.min(min_ns);
        self.max_ns = self.max_ns.max(max_ns);
        self.over_range += over_range;
    }

    /// The exact figures beside the histogram.
    #[must_use]
    pub fn exact(&self) -> Exact {
        let min_ns = if self.count == 0 { 0 } else { self.min_ns };
        Exact { count: self.count, sum_ns: self.sum_ns, min_ns, max_ns: self.max_ns, over_range: self.over_range }
    }

    /// How many latencies there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum / count, ns; none where there are none.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a mean of whole nanoseconds needs no more than 53 bits")]
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }

    /// Smallest latency, ns.
    #[must_use]
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// Largest latency, ns; exact.
    #[must_use]
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// The latency of rank ⌈percent / 100 × count⌉ (nearest-rank), ns, within one bucket width and never beyond the exact extremes.
    /// A rank among the latencies beyond the histogram answers the exact maximum.
    #[must_use]
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to 1..=count on the next line; a rank needs no more than 53 bits"
        )]
        let rank = ((percent / 100.0 * self.count as f64) - 1e-9).ceil() as u64;
        let rank = rank.clamp(1, self.count);
        let within = self.count - self.over_range;
        if rank > within {
            return Some(self.max_ns);
        }
        Some(self.value_at_rank(rank).clamp(self.min_ns, self.max_ns))
    }

    /// The histogram, for what this type does not offer (curves, exports).
    #[must_use]
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    fn value_at_rank(&self, rank: u64) -> u64 {
        let mut seen = 0;
        for cell in self.histogram.iter_recorded() {
            seen += cell.count_at_value();
            if seen >= rank {
                return cell.value_iterated_to();
            }
        }
        self.max_ns
    }
}

/// The exact figures beside a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exact {
    /// How many latencies.
    pub count: u64,
    /// Their sum, ns.
    pub sum_ns: u64,
    /// The smallest, ns; 0 where there are none.
    pub min_ns: u64,
    /// The largest, ns; 0 where there are none.
    pub max_ns: u64,
    /// How many are beyond [`HIGHEST_NS`].
    pub over_range: u64,
}

impl Exact {
    fn check(&self, histogram: &Histogram<u64>) -> Result<(), BlobError> {
        let inside = self.count.checked_sub(self.over_range);
        if inside != Some(histogram.len()) {
            return Err(BlobError::Inconsistent(format!(
                "{} latencies, {} of them beyond the histogram, which holds {}",
                self.count,
                self.over_range,
                histogram.len()
            )));
        }
        if self.count > 0 && (self.min_ns > self.max_ns || self.sum_ns < self.max_ns) {
            return Err(BlobError::Inconsistent(format!(
                "minimum {} ns, maximum {} ns, sum {} ns contradict each other",
                self.min_ns, self.max_ns, self.sum_ns
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_keep_the_promised_resolution() {
        let histogram = new_histogram();
        assert_eq!(histogram.distinct_values(), CELLS);
        for value in [1_000, 10_000, 16_383, 16_384, 40_000, 123_456_789, HIGHEST_NS] {
            assert_eq!(bucket_width_ns(value), histogram.equivalent_range(value), "at {value} ns");
        }
        assert!(bucket_width_ns(1_000) * 100 <= 1_000, "no coarser than 1 % at 1 µs");
        assert!(bucket_width_ns(10_000) * 1_000 <= 10_000, "3 figures from 10 µs up");
    }

    #[test]
    fn beyond_the_highest_is_counted_apart_and_exact() {
        let mut latencies = Latencies::new();
        latencies.record(5_000);
        latencies.record(HIGHEST_NS + 77);
        assert_eq!(latencies.exact().over_range, 1);
        assert_eq!(latencies.percentile_ns(100.0), Some(HIGHEST_NS + 77));
        assert_eq!(latencies.percentile_ns(50.0), Some(5_007), "the top of the bucket of 5,000");
        let back = Latencies::decode(&latencies.encode(), latencies.exact()).unwrap();
        assert_eq!(back, latencies);
    }

    #[test]
    fn figures_that_contradict_the_histogram_are_refused() {
        let mut latencies = Latencies::new();
        latencies.record(5_000);
        let exact = Exact { count: 2, ..latencies.exact() };
        assert!(matches!(Latencies::decode(&latencies.encode(), exact), Err(BlobError::Inconsistent(_))));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_a_bucket_of_the_sorted_list(
            mut values in prop::collection::vec(1_u64..2_000_000_000, 1..400),
            percent in 0.0_f64..=100.0,
        ) {
            let mut latencies = Latencies::new();
            values.iter().for_each(|&value| latencies.record(value));
            values.sort_unstable();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a small rank")]
            let rank = ((percent / 100.0 * values.len() as f64 - 1e-9).ceil() as usize).clamp(1, values.len());
            let truth = values[rank - 1];
            let got = latencies.percentile_ns(percent).unwrap();
            prop_assert!(got.abs_diff(truth) <= bucket_width_ns(truth), "{got} for {truth}");
        }

        #[test]
        fn a_merge_is_the_histogram_of_all(
            a in prop::collection::vec(1_u64..u64::MAX / 1_000, 0..100),
            b in prop::collection::vec(1_u64..2_000_000_000, 0..100),
        ) {
            let record = |values: &[u64]| {
                let mut latencies = Latencies::new();
                values.iter().for_each(|&value| latencies.record(value));
                latencies
            };
            let mut merged = record(&a);
            merged.merge(&record(&b));
            prop_assert_eq!(merged, record(&[a, b].concat()));
        }
    }
}
