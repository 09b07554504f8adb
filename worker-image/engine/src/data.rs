//! The bytes that are written: a pool generated once, and a key or a stamp for each granule of 4 KiB.
//!
//! Fills and loads differ. A fill's bytes are a function of (seed, offset), so that a read-back can make them again: a pool
//! granule with every word XORed with the granule's key, at the speed of a copy. A load write's bytes need only be new: its
//! buffer is filled once, with the asked compressibility, and stamped for each write; so the cost does not grow with the data.

use std::sync::LazyLock;

use crate::random::{DECK, Deck, GOLDEN, Random, mix, seed_from};
use crate::spec::Workload;

/// The unit in which data differs: the smallest chunk by which storage deduplicates.
pub(crate) const GRANULE: usize = 4096;

const WORDS: usize = GRANULE / 8;

/// Granules of the pool: 256 KiB stay in a core's cache.
const POOL_GRANULES: usize = 64;

/// Random words of all fills.
static POOL: LazyLock<Box<[u64]>> = LazyLock::new(|| {
    let mut random = Random::new(seed_from(&[0x706f_6f6c]));
    (0..POOL_GRANULES * WORDS).map(|_| random.next()).collect()
});

/// What a fill writes to a disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillData {
    seed: u64,
    zero: bool,
}

impl FillData {
    pub(crate) fn new(data_seed: u64, zero: bool) -> Self {
        Self { seed: seed_from(&[data_seed]), zero }
    }

    /// Makes the bytes from `offset` on; offset and length are multiples of 8.
    pub(crate) fn write(&self, offset: u64, out: &mut [u8]) {
        if self.zero {
            out.fill(0);
            return;
        }
        self.for_each_granule(offset, out.len(), |range, words, key| {
            for (bytes, word) in out[range].chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&(word ^ key).to_le_bytes());
            }
        });
    }

    /// Whether the bytes from `offset` on are what a fill writes; offset and length are multiples of 8.
    pub(crate) fn matches(&self, offset: u64, bytes: &[u8]) -> bool {
        if self.zero {
            return bytes.iter().all(|&byte| byte == 0);
        }
        let mut same = true;
        self.for_each_granule(offset, bytes.len(), |range, words, key| {
            same &= bytes[range].chunks_exact(8).zip(words).all(|(bytes, word)| bytes == (word ^ key).to_le_bytes());
        });
        same
    }

    /// Calls `each` with the range of the data, the pool's words for it and the key, for each granule or part of one.
    fn for_each_granule(&self, offset: u64, length: usize, mut each: impl FnMut(std::ops::Range<usize>, &[u64], u64)) {
        let granule_bytes = GRANULE as u64;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (granule, inside) = (at / granule_bytes, index(at % granule_bytes));
            let here = (GRANULE - inside).min(length - done);
            let pool = index(granule % POOL_GRANULES as u64) * WORDS + inside / 8;
            each(done..done + here, &POOL[pool..pool + here / 8], self.key(granule));
            done += here;
        }
    }

    /// The key of a granule: different for all granules of a disk, because both steps are bijections.
    fn key(&self, granule: u64) -> u64 {
        mix(granule.wrapping_mul(GOLDEN) ^ self.seed)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of a granule or of the pool")]
fn index(value: u64) -> usize {
    value as usize
}

/// Bytes of a stamp.
const STAMP: usize = 8;

/// What load writes of one thread carry.
#[derive(Debug)]
pub(crate) struct LoadData {
    compression_ratio: f64,
    copies: Option<Deck>,
    /// Copies that were dealt when there was nothing yet to copy.
    owed: u64,
    next_stamp: u64,
    whitening: u64,
}

impl LoadData {
    /// Data of a thread; `seed` must differ between threads and jobs.
    pub(crate) fn new(workload: &Workload, seed: u64) -> Self {
        let copies = copies_of_deck(workload.duplication_ratio);
        Self {
            compression_ratio: workload.compression_ratio,
            copies: (copies > 0).then(|| Deck::new(copies, seed_from(&[seed, 11]))),
            owed: 0,
            next_stamp: 0,
            whitening: seed_from(&[seed, 12]),
        }
    }

    /// Fills a buffer for its whole life: the first part of each granule incompressible, the rest one repeated word.
    pub(crate) fn prepare(&self, random: &mut Random, buffer: &mut [u8]) {
        for granule in buffer.chunks_mut(GRANULE) {
            let incompressible = incompressible_bytes(granule.len(), self.compression_ratio);
            let (random_part, rest) = granule.split_at_mut(incompressible);
            random_part.chunks_mut(8).for_each(|bytes| copy_word(random.next(), bytes));
            let word = random.next() | 1;
            rest.chunks_mut(8).for_each(|bytes| copy_word(word, bytes));
        }
    }

    /// Whether the next write is to be a copy of an earlier one; the caller answers with [`LoadData::owe`] if it cannot.
    #[inline]
    pub(crate) fn deal_copy(&mut self) -> bool {
        let Some(deck) = &mut self.copies else { return false };
        if deck.deal() {
            return true;
        }
        let pay = self.owed > 0;
        self.owed -= u64::from(pay);
        pay
    }

    /// There was nothing to copy yet.
    pub(crate) fn owe(&mut self) {
        self.owed += 1;
    }

    /// Makes a prepared buffer's block unlike all others: a new stamp in each granule.
    #[inline]
    pub(crate) fn stamp(&mut self, block: &mut [u8]) {
        for granule in block.chunks_mut(GRANULE) {
            let stamp = mix(self.next_stamp.wrapping_mul(GOLDEN) ^ self.whitening);
            self.next_stamp = self.next_stamp.wrapping_add(1);
            if let Some(place) = granule.first_chunk_mut::<STAMP>() {
                *place = stamp.to_le_bytes();
            }
        }
    }
}

/// Of [`DECK`] writes, how many copy an earlier one: all but DECK / ratio.
fn copies_of_deck(duplication_ratio: f64) -> u32 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ratio >= 1 makes it 0 to 1,000")]
    let copies = (f64::from(DECK) * (1.0 - 1.0 / duplication_ratio)).round() as u32;
    copies.min(DECK - 1)
}

/// The incompressible part of a granule: its length / ratio, in whole words, with room for the stamp.
fn incompressible_bytes(length: usize, ratio: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a granule's length divided by 1 to 100"
    )]
    let bytes = (length as f64 / ratio).round() as usize;
    bytes.next_multiple_of(8).max(STAMP).min(length)
}

fn copy_word(word: u64, bytes: &mut [u8]) {
    let length = bytes.len();
    bytes.copy_from_slice(&word.to_le_bytes()[..length]);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_two_granules_of_a_fill_are_alike_and_none_is_zero() {
        let data = FillData::new(3, false);
        let mut bytes = vec![0; 8 << 20];
        data.write(5 << 40, &mut bytes);
        let mut seen = HashSet::new();
        for granule in bytes.chunks(GRANULE) {
            assert!(seen.insert(granule.to_vec()), "a granule comes twice");
            assert!(granule.chunks(512).all(|sector| sector.iter().any(|&byte| byte != 0)), "a sector is zero");
        }
        let mut other = vec![0; GRANULE];
        FillData::new(4, false).write(5 << 40, &mut other);
        assert!(seen.insert(other), "another seed makes other data");
    }

    #[test]
    fn one_changed_bit_is_a_mismatch_and_so_is_another_place() {
        let data = FillData::new(3, false);
        let mut bytes = vec![0; 8192];
        data.write(4096, &mut bytes);
        assert!(data.matches(4096, &bytes));
        assert!(!data.matches(8192, &bytes));
        assert!(!FillData::new(2, false).matches(4096, &bytes));
        bytes[8191] ^= 1;
        assert!(!data.matches(4096, &bytes));
    }

    #[test]
    fn zeros_are_checked_as_zeros() {
        let data = FillData::new(3, true);
        let mut bytes = vec![1; 4096];
        assert!(!data.matches(0, &bytes));
        data.write(0, &mut bytes);
        assert!(data.matches(0, &bytes));
    }

    #[test]
    fn stamped_blocks_never_repeat() {
        let workload = Workload { compression_ratio: 3.0, ..Workload::default() };
        let mut data = LoadData::new(&workload, 9);
        let mut block = vec![0; 16_384];
        data.prepare(&mut Random::new(1), &mut block);
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            data.stamp(&mut block);
            for granule in block.chunks(GRANULE) {
                assert!(seen.insert(granule.to_vec()));
            }
        }
    }

    #[test]
    fn copies_are_dealt_by_ratio_and_debts_are_paid() {
        for (ratio, copies) in [(1.0, 0), (2.0, 500), (4.0, 750), (100.0, 990)] {
            assert_eq!(copies_of_deck(ratio), copies);
        }
        let workload = Workload { duplication_ratio: 2.0, ..Workload::default() };
        let mut data = LoadData::new(&workload, 9);
        let (mut copies, mut debts) = (0, 0);
        for _ in 0..10_000 {
            if data.deal_copy() {
                if debts < 32 {
                    debts += 1;
                    data.owe();
                } else {
                    copies += 1;
                }
            }
        }
        assert_eq!(copies, 5000);
    }

    proptest! {
        #[test]
        fn any_part_of_a_fill_can_be_made_alone(start in 0_usize..3000, length in 1_usize..2000) {
            let data = FillData::new(77, false);
            let mut whole = vec![0; 40_000];
            data.write(1 << 20, &mut whole);
            let range = start * 8..start * 8 + length * 8;
            let offset = (1 << 20) + range.start as u64;
            let mut part = vec![0; length * 8];
            data.write(offset, &mut part);
            prop_assert_eq!(&part[..], &whole[range.clone()]);
            prop_assert!(data.matches(offset, &whole[range]));
        }
    }
}
