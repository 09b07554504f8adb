//! The cluster's seconds of a case in one piece: a long run has some 80,000, which as rows take half a second to read.
//!
//! Little-endian: how many seconds are preconditioning's (4 bytes); then each second, those first: its `t` (4 bytes) and twelve figures
//! (8 bytes each), reads before writes in the order of [`SecondOp`]'s fields. An operation without I/O has NaN in all of them.

use analysis::export::{Second, SecondOp};

use crate::error::Fault;
use crate::export::second_op;

/// Figures of one operation.
const FIGURES: usize = 6;
/// Bytes of one second.
const SECOND_BYTES: usize = 4 + 2 * FIGURES * 8;

pub(crate) fn encode(precondition: &[Second], sample: &[Second]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(4 + SECOND_BYTES * (precondition.len() + sample.len()));
    // A phase has at most as many seconds as `t` has values.
    blob.extend(u32::try_from(precondition.len()).unwrap_or(u32::MAX).to_le_bytes());
    for second in precondition.iter().chain(sample) {
        blob.extend(second.t.to_le_bytes());
        let figures = [&second.read, &second.write].into_iter().flat_map(|op| figures(op.as_ref()));
        blob.extend(figures.flat_map(f64::to_le_bytes));
    }
    blob
}

fn figures(op: Option<&SecondOp>) -> [f64; FIGURES] {
    op.map_or([f64::NAN; FIGURES], |op| [op.iops, op.mib_per_s, op.mean_us, op.p50_us, op.p99_us, op.max_us])
}

/// Preconditioning's seconds and the window's.
pub(crate) fn decode(blob: &[u8]) -> Result<(Vec<Second>, Vec<Second>), Fault> {
    let unreadable = || Fault::unreadable("case_series.seconds", format!("{} bytes", blob.len()));
    let (head, rest) = blob.split_first_chunk::<4>().ok_or_else(unreadable)?;
    let (seconds, odd) = rest.as_chunks::<SECOND_BYTES>();
    let precondition = usize::try_from(u32::from_le_bytes(*head)).map_err(|_| unreadable())?;
    if !odd.is_empty() || precondition > seconds.len() {
        return Err(unreadable());
    }
    let (precondition, sample) = seconds.split_at(precondition);
    Ok((precondition.iter().map(second).collect(), sample.iter().map(second).collect()))
}

/// How many seconds of the window a piece has, by its size and its first bytes; none where it is none of ours.
pub(crate) fn window_seconds(bytes: i64, head: &[u8]) -> Option<u32> {
    let precondition = u32::from_le_bytes(*head.first_chunk::<4>()?);
    let seconds = usize::try_from(bytes).ok()?.checked_sub(4)? / SECOND_BYTES;
    u32::try_from(seconds).ok()?.checked_sub(precondition)
}

fn second(bytes: &[u8; SECOND_BYTES]) -> Second {
    let [a, b, c, d, figures @ ..] = bytes;
    let (words, _) = figures.as_chunks::<8>();
    let figure = |index: usize| Some(f64::from_le_bytes(words[index])).filter(|figure| !figure.is_nan());
    let op = |from: usize| second_op(std::array::from_fn(|index| figure(from + index)));
    Second { t: u32::from_le_bytes([*a, *b, *c, *d]), read: op(0), write: op(FIGURES) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(base: f64) -> Option<SecondOp> {
        Some(SecondOp {
            iops: base,
            mib_per_s: base / 3.0,
            mean_us: 0.0,
            p50_us: base + 0.1,
            p99_us: f64::MAX,
            max_us: f64::MIN_POSITIVE,
        })
    }

    #[test]
    fn what_is_packed_comes_back_to_the_last_bit() {
        let before = [Second { t: 0, read: op(1.0), write: None }, Second { t: 7, read: None, write: None }];
        let sample = [Second { t: u32::MAX, read: op(123_456.789), write: op(0.3) }];
        let blob = encode(&before, &sample);
        assert_eq!(blob.len(), 4 + 3 * SECOND_BYTES);
        assert_eq!(window_seconds(i64::try_from(blob.len()).unwrap(), &blob[..4]), Some(1));
        assert_eq!((window_seconds(104, &blob[..4]), window_seconds(3, &blob[..3])), (None, None));
        assert_eq!(decode(&blob).unwrap(), (before.to_vec(), sample.to_vec()));
        assert_eq!(decode(&encode(&[], &sample)).unwrap(), (Vec::new(), sample.to_vec()));
        assert_eq!(decode(&encode(&[], &[])).unwrap(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn what_is_cut_off_is_an_error() {
        let blob = encode(&[Second { t: 0, read: op(1.0), write: None }], &[]);
        for bad in [&blob[..0], &blob[..3], &blob[..4], &blob[..blob.len() - 1], &[9, 0, 0, 0]] {
            assert!(decode(bad).unwrap_err().to_string().contains("case_series.seconds"), "{} bytes", bad.len());
        }
    }
}
