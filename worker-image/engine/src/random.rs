//! Seeded randomness: the same seed gives the same job.

/// Mixes 64 bits so that every input bit changes about half of the output; a bijection (SplitMix64's finaliser, Steele et al. 2014).
#[inline]
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The golden ratio's increment of SplitMix64: consecutive multiples differ in many bits.
pub(crate) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// A seed from several numbers; order matters.
pub(crate) fn seed_from(parts: &[u64]) -> u64 {
    parts
        .iter()
        .fold(0x6c6f_6164_2d65_6e67, |seed, &part| mix(seed ^ mix(part.wrapping_add(GOLDEN))).wrapping_add(GOLDEN))
}

/// The xoshiro256++ generator (Blackman and Vigna 2019).
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let word = |index: u64| mix(seed.wrapping_add(GOLDEN.wrapping_mul(index)));
        Self { state: [word(1), word(2), word(3), word(4)] }
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in 0..bound by multiplication; the bias is below bound / 2^64.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        high_half(u128::from(self.next()) * u128::from(bound))
    }

    /// Uniform in (0, 1], 53 bits.
    pub(crate) fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact in f64")]
        let value = ((self.next() >> 11) + 1) as f64;
        value * (1.0 / 9_007_199_254_740_992.0)
    }
}

#[inline]
fn high_half(product: u128) -> u64 {
    (product >> 64) as u64
}

/// Cards of a deck. With 1,000, any run of 10^5 draws holds its share to 0.1 %, and no pattern repeats.
pub(crate) const DECK: u32 = 1000;

/// Yes or no, dealt from shuffled decks of [`DECK`] cards.
#[derive(Debug, Clone)]
pub(crate) struct Deck {
    cards: Box<[bool]>,
    next: usize,
    random: Random,
}

impl Deck {
    /// A deck in which `yes` of [`DECK`] cards are yes.
    pub(crate) fn new(yes: u32, seed: u64) -> Self {
        let cards = (0..DECK).map(|card| card < yes).collect::<Box<[bool]>>();
        Self { next: cards.len(), cards, random: Random::new(seed) }
    }

    #[inline]
    pub(crate) fn deal(&mut self) -> bool {
        if self.next == self.cards.len() {
            self.shuffle();
        }
        let card = self.cards[self.next];
        self.next += 1;
        card
    }

    /// Fisher and Yates.
    fn shuffle(&mut self) {
        for last in (1..self.cards.len()).rev() {
            #[expect(clippy::cast_possible_truncation, reason = "below the deck's size")]
            let other = self.random.below(last as u64 + 1) as usize;
            self.cards.swap(last, other);
        }
        self.next = 0;
    }
}

/// Rounds of the Feistel network: four of a mixing function make a permutation that passes for random (Luby and Rackoff 1988).
const ROUNDS: usize = 4;

/// A pseudo-random permutation of 0..size for any size, without a map: a Feistel network over the next even number of bits,
/// walked until the value is below `size` (fewer than four steps on average).
#[derive(Debug, Clone)]
pub(crate) struct Permutation {
    size: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Permutation {
    pub(crate) fn new(size: u64, seed: u64) -> Self {
        let bits = 64 - size.saturating_sub(1).leading_zeros();
        let key = |round: u64| mix(seed.wrapping_add(GOLDEN.wrapping_mul(round + 1)));
        Self { size, half_bits: bits.div_ceil(2).max(1), keys: [key(0), key(1), key(2), key(3)] }
    }

    /// The image of `index`, which must be below the size.
    #[inline]
    pub(crate) fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.size);
        let mut value = self.network(index);
        while value >= self.size {
            value = self.network(value);
        }
        value
    }

    #[inline]
    fn network(&self, value: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_deck_deals_its_share_exactly_and_never_the_same_way() {
        let mut deck = Deck::new(700, 1);
        let deals: Vec<Vec<bool>> = (0..100).map(|_| (0..DECK).map(|_| deck.deal()).collect()).collect();
        for cards in &deals {
            assert_eq!(cards.iter().filter(|&&card| card).count(), 700);
        }
        assert!(deals.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn below_is_uniform() {
        let mut random = Random::new(7);
        let mut counts = [0_u32; 10];
        for _ in 0..100_000 {
            counts[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        // 10,000 expected, standard deviation 95.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn a_permutation_of_a_large_size_stays_in_range_and_differs_by_seed() {
        let size = (1_u64 << 40) + 12_345;
        let (one, other) = (Permutation::new(size, 1), Permutation::new(size, 2));
        let images: Vec<u64> = (0..1000).map(|index| one.at(index)).collect();
        assert!(images.iter().all(|&image| image < size));
        let same = (0..1000).filter(|&index| one.at(index) == other.at(index)).count();
        assert!(same < 3, "{same} of 1,000 images are the same under two seeds");
        let ascending = images.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!((400..600).contains(&ascending), "{ascending} of 999 steps ascend");
    }

    proptest! {
        #[test]
        fn a_permutation_visits_everything_once(size in 1_u64..5_000, seed: u64) {
            let permutation = Permutation::new(size, seed);
            let mut seen = vec![false; usize::try_from(size).unwrap()];
            for index in 0..size {
                let image = usize::try_from(permutation.at(index)).unwrap();
                prop_assert!(!seen[image], "{image} comes twice");
                seen[image] = true;
            }
        }
    }
}
