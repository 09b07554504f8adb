//! Seeds: one of the run, from which every other one follows, so that a run can be repeated.

/// A seed for one purpose (`label`) and one member of it. FNV-1a over the label, then SplitMix64 (Steele, Lea, Flood 2014)
/// to spread neighbouring indices.
pub(crate) fn derive(run_seed: u64, label: &str, index: u64) -> u64 {
    let label = label
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = run_seed ^ label.rotate_left(17) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A seed for a plan that names none.
pub(crate) fn draw() -> u64 {
    // Half of a random UUID, folded; only 53 bits, so that every JSON reader keeps it exactly.
    let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
    (high ^ low) >> 11
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn seeds_differ_by_purpose_member_and_run_and_repeat() {
        let labels = ["data/d1", "data/d2", "job"];
        let all: BTreeSet<u64> = (0..3_u64)
            .flat_map(|run| labels.iter().flat_map(move |label| (0..50).map(move |index| derive(run, label, index))))
            .collect();
        assert_eq!(all.len(), 3 * 3 * 50);
        assert_eq!(derive(7, "job", 3), derive(7, "job", 3));
    }
}
