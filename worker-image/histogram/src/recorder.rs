//! A histogram for a hot loop: fixed memory, 32-bit counts, cells of exactly the bounds of this crate.

use crate::{CELLS, HIGHEST_NS, LOWEST_NS, Latencies};

/// log2 of [`LOWEST_NS`].
const UNIT_BITS: u32 = LOWEST_NS.trailing_zeros();
/// log2 of half the sub-buckets: 2,048 sub-buckets give 3 significant figures.
const HALF_BITS: u32 = 10;
/// Values below this are in the first bucket.
const FIRST_BUCKET_NS: u64 = LOWEST_NS << (HALF_BITS + 1);

/// Collects latencies of at most 2^32 - 1 I/Os, ns, with one addition to a cell each; emptied by [`Recorder::drain_into`].
/// Memory: 4 bytes a cell, 112 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorder {
    cells: Box<[u32]>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    over_range: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// No latencies yet.
    #[must_use]
    pub fn new() -> Self {
        let cells = vec![0; CELLS].into_boxed_slice();
        Self { cells, count: 0, sum_ns: 0, min_ns: u64::MAX, max_ns: 0, over_range: 0 }
    }

    /// Adds one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.count = self.count.wrapping_add(1);
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        if latency_ns > HIGHEST_NS {
            self.over_range = self.over_range.wrapping_add(1);
        } else if let Some(cell) = self.cells.get_mut(cell_of(latency_ns)) {
            *cell = cell.wrapping_add(1);
        }
    }

    /// How many latencies there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, ns.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The largest, ns; 0 where there are none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Adds all latencies to each of `into` and empties the recorder. Touches the cells between minimum and maximum only.
    pub fn drain_into(&mut self, into: &mut [&mut Latencies]) {
        if self.count == 0 {
            return;
        }
        let first = cell_of(self.min_ns.min(HIGHEST_NS));
        let last = cell_of(self.max_ns.min(HIGHEST_NS));
        for (index, cell) in self.cells.iter_mut().enumerate().take(last + 1).skip(first) {
            if *cell > 0 {
                let value = lowest_of(index);
                into.iter_mut().for_each(|latencies| latencies.add_cell(value, u64::from(*cell)));
                *cell = 0;
            }
        }
        let (count, sum, min, max, over) = (self.count, self.sum_ns, self.min_ns, self.max_ns, self.over_range);
        into.iter_mut().for_each(|latencies| latencies.add_exact(count, sum, min, max, over));
        (self.count, self.sum_ns, self.min_ns, self.max_ns, self.over_range) = (0, 0, u64::MAX, 0, 0);
    }
}

/// The cell of a value up to [`HIGHEST_NS`]: 2,048 cells of 8 ns, then 1,024 for each doubling.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a cell number is below 28,672")]
fn cell_of(value_ns: u64) -> usize {
    let doublings = 63 - UNIT_BITS - HALF_BITS - (value_ns | (FIRST_BUCKET_NS - 1)).leading_zeros();
    let sub_bucket = value_ns >> (doublings + UNIT_BITS);
    ((u64::from(doublings) << HALF_BITS) + sub_bucket) as usize
}

/// The smallest value of a cell.
fn lowest_of(cell: usize) -> u64 {
    let cell = cell as u64;
    let doublings = (cell >> HALF_BITS).saturating_sub(1);
    (cell - (doublings << HALF_BITS)) << (doublings + u64::from(UNIT_BITS))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cells_are_those_of_hdrhistogram() {
        let histogram = crate::new_histogram();
        for value in (0..64).map(|bit| 1_u64 << bit).filter(|&value| value < HIGHEST_NS).chain([HIGHEST_NS]) {
            for value in [value - 1, value, value + 1] {
                if value <= HIGHEST_NS {
                    assert_eq!(lowest_of(cell_of(value)), histogram.lowest_equivalent(value), "{value}");
                }
            }
        }
        assert!(cell_of(HIGHEST_NS) < CELLS);
    }

    proptest! {
        #[test]
        fn a_drained_recorder_is_the_histogram_of_its_values(
            values in prop::collection::vec((0_u32..64, any::<u64>()).prop_map(|(shift, value)| value >> shift), 0..300),
        ) {
            let (mut recorder, mut expected) = (Recorder::new(), Latencies::new());
            for &value in &values {
                recorder.record(value);
                expected.record(value);
            }
            let (mut one, mut other) = (Latencies::new(), Latencies::new());
            recorder.drain_into(&mut [&mut one, &mut other]);
            prop_assert_eq!(&one, &expected);
            prop_assert_eq!(&other, &expected);
            prop_assert_eq!(recorder, Recorder::new());
        }
    }
}
