//! Where the I/Os of a lane go, and which of them are reads: a pure function of the seed.

use std::ops::Range;

use crate::random::{DECK, Deck, Permutation, Random, seed_from};
use crate::spec::{Pattern, Workload};

/// Reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
}

/// The part that a lane has in its disk's I/O: `part` of `parts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) part: u32,
    pub(crate) parts: u32,
}

impl Part {
    /// The `part`th of `parts` nearly equal ranges of 0..count.
    fn range(self, count: u64) -> Range<u64> {
        let bound = |part: u32| {
            let product = u128::from(count) * u128::from(part) / u128::from(self.parts);
            u64::try_from(product).unwrap_or(count)
        };
        bound(self.part)..bound(self.part + 1)
    }
}

/// The positions that a workload may start an I/O at: `first + index * step` for index below `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Positions {
    pub(crate) first: u64,
    pub(crate) step: u64,
    pub(crate) count: u64,
}

impl Positions {
    /// All aligned positions at which a block fits into the range. The blocks of a sequential pattern and of a permutation do not overlap.
    pub(crate) fn of(workload: &Workload, region: &Range<u64>) -> Self {
        let sub_range = workload.sub_range.clone().unwrap_or(0..region.end - region.start);
        let block = workload.block_bytes;
        let align = workload.align_bytes.unwrap_or(block);
        let step = match workload.pattern {
            Pattern::Sequential { .. } | Pattern::Permutation => block.next_multiple_of(align),
            Pattern::Random | Pattern::HotSpot { .. } => align,
        };
        let length = sub_range.end - sub_range.start;
        let count = if length < block { 0 } else { (length - block) / step + 1 };
        Self { first: region.start + sub_range.start, step, count }
    }

    #[inline]
    fn at(&self, index: u64) -> u64 {
        self.first + index * self.step
    }

    /// Positions of the hot part of a hot spot: at least one, and at least one stays cold.
    pub(crate) fn hot(&self, space_percent: f64) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count, clamped right after"
        )]
        let hot = (self.count as f64 * space_percent / 100.0).round() as u64;
        hot.clamp(1, self.count.saturating_sub(1).max(1))
    }
}

/// The offsets of one lane.
#[derive(Debug, Clone)]
enum Offsets {
    Random,
    Sequential { streams: Box<[Stream]>, turn: usize },
    Permutation { indices: Range<u64>, next: u64, epoch: u64, seed: u64, permutation: Permutation },
    HotSpot { hot: u64, threshold: u64 },
}

/// A sequential stream over the positions of `indices`.
#[derive(Debug, Clone)]
struct Stream {
    indices: Range<u64>,
    next: u64,
}

/// The I/O sequence of a lane.
#[derive(Debug, Clone)]
pub(crate) struct Sequence {
    positions: Positions,
    offsets: Offsets,
    random: Random,
    mix: Mix,
}

#[derive(Debug, Clone)]
enum Mix {
    Only(Op),
    Dealt(Deck),
}

impl Sequence {
    /// The sequence of a lane; `seed` is the job's, mixed with the disk's number.
    pub(crate) fn new(workload: &Workload, region: &Range<u64>, part: Part, seed: u64) -> Self {
        let positions = Positions::of(workload, region);
        let seed = seed_from(&[seed, u64::from(part.part)]);
        let offsets = match workload.pattern {
            Pattern::Random => Offsets::Random,
            Pattern::Sequential { streams } => {
                let mine = part.range(u64::from(streams));
                let streams = mine.map(|stream| Stream::new(stream, streams, positions.count)).collect();
                Offsets::Sequential { streams, turn: 0 }
            }
            Pattern::Permutation => {
                let indices = part.range(positions.count);
                let permutation = Permutation::new(indices.end - indices.start, seed);
                Offsets::Permutation { next: 0, epoch: 0, seed, permutation, indices }
            }
            Pattern::HotSpot { io_percent, space_percent } => {
                Offsets::HotSpot { hot: positions.hot(space_percent), threshold: threshold(io_percent) }
            }
        };
        let mix = match workload.read_percent {
            0 => Mix::Only(Op::Write),
            100 => Mix::Only(Op::Read),
            percent => Mix::Dealt(Deck::new(percent * DECK / 100, seed_from(&[seed, 1]))),
        };
        Self { positions, offsets, random: Random::new(seed_from(&[seed, 2])), mix }
    }

    /// The next I/O: operation and offset on the disk, bytes.
    #[inline]
    pub(crate) fn next(&mut self) -> (Op, u64) {
        let op = match &mut self.mix {
            Mix::Only(op) => *op,
            Mix::Dealt(deck) => {
                if deck.deal() {
                    Op::Read
                } else {
                    Op::Write
                }
            }
        };
        let index = match &mut self.offsets {
            Offsets::Random => self.random.below(self.positions.count),
            Offsets::Sequential { streams, turn } => {
                let index = streams[*turn].next();
                *turn = if *turn + 1 == streams.len() { 0 } else { *turn + 1 };
                index
            }
            Offsets::Permutation { indices, next, epoch, seed, permutation } => {
                if *next == indices.end - indices.start {
                    *next = 0;
                    *epoch += 1;
                    *permutation = Permutation::new(indices.end - indices.start, seed_from(&[*seed, 3, *epoch]));
                }
                *next += 1;
                indices.start + permutation.at(*next - 1)
            }
            Offsets::HotSpot { hot, threshold } => {
                if self.random.next() < *threshold {
                    self.random.below(*hot)
                } else {
                    *hot + self.random.below((self.positions.count - *hot).max(1))
                }
            }
        };
        (op, self.positions.at(index))
    }
}

impl Stream {
    fn new(stream: u64, streams: u32, count: u64) -> Self {
        let bound = |stream: u64| {
            let product = u128::from(count) * u128::from(stream) / u128::from(streams);
            u64::try_from(product).unwrap_or(count)
        };
        let indices = bound(stream)..bound(stream + 1);
        Self { next: indices.start, indices }
    }

    #[inline]
    fn next(&mut self) -> u64 {
        let index = self.next;
        self.next = if index + 1 == self.indices.end { self.indices.start } else { index + 1 };
        index
    }
}

/// The 64-bit number below which a share of all random numbers lies.
fn threshold(percent: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, which is what 100 % needs"
    )]
    let threshold = (percent / 100.0 * 18_446_744_073_709_551_616.0) as u64;
    threshold
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const WHOLE: Part = Part { part: 0, parts: 1 };

    fn offsets(workload: &Workload, region: Range<u64>, part: Part, count: usize) -> Vec<u64> {
        let mut sequence = Sequence::new(workload, &region, part, 5);
        (0..count).map(|_| sequence.next().1).collect()
    }

    #[test]
    fn the_mix_holds_to_a_tenth_of_a_percent() {
        for read_percent in [1, 33, 70, 99] {
            let workload = Workload { read_percent, ..Workload::default() };
            let mut sequence = Sequence::new(&workload, &(0..1 << 30), WHOLE, 5);
            let reads = (0..100_000).filter(|_| sequence.next().0 == Op::Read).count();
            assert!(reads.abs_diff(read_percent as usize * 1000) <= 100, "{reads} of 100,000 at {read_percent} %");
        }
    }

    #[test]
    fn hot_spots_get_their_share_and_stay_uniform_inside() {
        let pattern = Pattern::HotSpot { io_percent: 80.0, space_percent: 20.0 };
        let workload = Workload { pattern, ..Workload::default() };
        let offsets = offsets(&workload, 0..4096 * 1000, WHOLE, 200_000);
        let hot = offsets.iter().filter(|&&offset| offset < 200 * 4096).count();
        // Standard deviation 0.09 %.
        assert!(hot.abs_diff(160_000) < 1_000, "{hot} of 200,000 are hot");
        let low_half = offsets.iter().filter(|&&offset| offset < 100 * 4096).count();
        assert!(low_half.abs_diff(80_000) < 1_000, "{low_half} of 200,000 in the first half of the hot spot");
        assert!(offsets.contains(&(999 * 4096)), "the coldest block is reached");
    }

    #[test]
    fn a_permutation_with_a_finer_alignment_still_has_each_byte_once() {
        let pattern = Pattern::Permutation;
        let workload = Workload { pattern, block_bytes: 8192, align_bytes: Some(4096), ..Workload::default() };
        let mut offsets = offsets(&workload, 0..8192 * 100 + 4096, WHOLE, 100);
        offsets.sort_unstable();
        assert_eq!(offsets, (0..100).map(|block| block * 8192).collect::<Vec<u64>>());
    }

    #[test]
    fn random_offsets_reach_both_ends_and_nothing_beyond() {
        let offsets = offsets(&Workload::default(), 1 << 20..(1 << 20) + 7 * 4096, WHOLE, 1000);
        assert_eq!(offsets.iter().min(), Some(&(1 << 20)));
        assert_eq!(offsets.iter().max(), Some(&((1 << 20) + 6 * 4096)));
    }

    #[test]
    fn alignment_apart_from_the_block_is_kept_and_blocks_stay_inside() {
        let workload = Workload {
            block_bytes: 8192,
            align_bytes: Some(4096),
            sub_range: Some(40_960..81_920),
            ..Workload::default()
        };
        let offsets = offsets(&workload, 0..1 << 20, WHOLE, 2000);
        assert!(offsets.iter().all(|offset| offset % 4096 == 0));
        assert_eq!(offsets.iter().min(), Some(&40_960));
        assert_eq!(offsets.iter().max(), Some(&(81_920 - 8192)));
        assert!(offsets.iter().any(|offset| offset % 8192 != 0), "alignment is not the block size");
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let workload = Workload { read_percent: 50, ..Workload::default() };
        let run = |seed| {
            let mut sequence = Sequence::new(&workload, &(0..1 << 40), WHOLE, seed);
            (0..1000).map(|_| sequence.next()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    proptest! {
        #[test]
        fn streams_ascend_without_gaps_and_cover_the_range(
            blocks in 64_u64..500, streams in 1_u32..17, parts in 1_u32..5, extra in 0_u64..4096,
        ) {
            let parts = parts.min(streams);
            let workload = Workload { pattern: Pattern::Sequential { streams }, ..Workload::default() };
            let mut seen = HashMap::<u64, u32>::new();
            for part in 0..parts {
                let part = Part { part, parts };
                let mine = part.range(u64::from(streams));
                let mine = usize::try_from(mine.end - mine.start).unwrap();
                let shortest = usize::try_from(blocks / u64::from(streams)).unwrap();
                let offsets = offsets(&workload, 0..blocks * 4096 + extra, part, mine * (shortest + 1));
                for stream in 0..mine {
                    let own: Vec<u64> = offsets.iter().skip(stream).step_by(mine).copied().collect();
                    for pair in own[..shortest].windows(2) {
                        prop_assert_eq!(pair[1], pair[0] + 4096);
                    }
                    own.iter().for_each(|offset| *seen.entry(*offset).or_default() += 1);
                }
            }
            prop_assert_eq!(seen.len() as u64, blocks, "every block is visited");
        }

        #[test]
        fn a_permutation_covers_the_range_once_an_epoch(blocks in 1_u64..3_000, parts in 1_u32..5) {
            let parts = parts.min(u32::try_from(blocks).unwrap());
            let workload = Workload { pattern: Pattern::Permutation, ..Workload::default() };
            let mut seen = HashMap::<u64, u32>::new();
            for part in 0..parts {
                let part = Part { part, parts };
                let mine = part.range(blocks);
                let length = usize::try_from(mine.end - mine.start).unwrap();
                let twice = offsets(&workload, 0..blocks * 4096, part, 2 * length);
                twice.iter().for_each(|offset| *seen.entry(*offset).or_default() += 1);
                let mut first = twice[..length].to_vec();
                first.sort_unstable();
                first.dedup();
                prop_assert_eq!(first.len(), length, "no block twice in the first epoch");
            }
            prop_assert_eq!(seen.len() as u64, blocks);
            prop_assert!(seen.values().all(|&visits| visits == 2));
        }
    }
}
