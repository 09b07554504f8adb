//! A series of any length in bounded memory: when it is full, each two neighbours become one that keeps the lowest and the highest
//! of both and the seconds that are missing from either, so that no spike, no dip and no gap is lost.

use serde::Serialize;
use serde::ser::{SerializeSeq, Serializer};

use super::figures::{FIGURES, Figures};

/// Buckets that a series has at most: about one a pixel of a wide chart.
pub(crate) const MAX_BUCKETS: usize = 480;

/// `step` seconds: the lowest and the highest value of each figure in them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bucket {
    /// Place: it covers seconds `[index × step, (index + 1) × step)`.
    pub(crate) index: u32,
    pub(crate) range: [Option<(f64, f64)>; FIGURES],
    /// Seconds of them that are known to be missing.
    pub(crate) missing: u32,
}

impl Bucket {
    /// Of one second; it is missing where there are no figures.
    fn of(index: u32, values: Option<&Figures>) -> Self {
        let range = values.copied().unwrap_or_default().map(|value| value.map(|value| (value, value)));
        Self { index, range, missing: u32::from(values.is_none()) }
    }

    fn merge(&mut self, other: &Self) {
        self.missing += other.missing;
        for (mine, theirs) in self.range.iter_mut().zip(&other.range) {
            *mine = match (*mine, *theirs) {
                (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
                (a, b) => a.or(b),
            };
        }
    }
}

/// `[index, low, high, low, high, …, missing]`, null where a figure has no value.
impl Serialize for Bucket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(2 + 2 * FIGURES))?;
        list.serialize_element(&self.index)?;
        for range in &self.range {
            list.serialize_element(&range.map(|(low, _)| shorten(low)))?;
            list.serialize_element(&range.map(|(_, high)| shorten(high)))?;
        }
        list.serialize_element(&self.missing)?;
        list.end()
    }
}

/// Four significant figures are more than a pixel.
pub(crate) fn shorten(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

/// Seconds to a tenth.
pub(crate) fn shorten_time(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

/// The whole run so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct History {
    /// Seconds a bucket, a power of two.
    pub(crate) step: u32,
    /// Ascending by index; what was never told has no bucket.
    pub(crate) buckets: Vec<Bucket>,
}

/// What a new second did to a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// The bucket at this position is new or has changed.
    Bucket(usize),
    /// All buckets are others now.
    Folded,
}

impl Default for History {
    fn default() -> Self {
        Self { step: 1, buckets: Vec::new() }
    }
}

impl History {
    /// Adds what was measured in a second, counted from the start of the run; none where it is missing. Seconds may come late.
    pub(crate) fn add(&mut self, second: u32, values: Option<&Figures>) -> Change {
        let new = Bucket::of(second / self.step, values);
        match self.buckets.binary_search_by_key(&new.index, |bucket| bucket.index) {
            Ok(position) => {
                self.buckets[position].merge(&new);
                Change::Bucket(position)
            }
            Err(position) => {
                self.buckets.insert(position, new);
                if self.buckets.len() <= MAX_BUCKETS {
                    return Change::Bucket(position);
                }
                self.fold();
                Change::Folded
            }
        }
    }

    /// Doubles the step until there is room: seconds that lie far apart share no bucket at first.
    fn fold(&mut self) {
        while self.buckets.len() > MAX_BUCKETS && self.step < 1 << 30 {
            self.step *= 2;
            let mut folded: Vec<Bucket> = Vec::with_capacity(self.buckets.len());
            for bucket in self.buckets.drain(..) {
                let index = bucket.index / 2;
                match folded.last_mut() {
                    Some(last) if last.index == index => last.merge(&bucket),
                    _ => folded.push(Bucket { index, ..bucket }),
                }
            }
            self.buckets = folded;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(value: f64) -> Figures {
        let mut values = Figures::default();
        values[0] = Some(value);
        values
    }

    #[test]
    fn twenty_two_hours_keep_their_spike_and_their_dip_in_bounded_memory() {
        let mut history = History::default();
        let seconds = 22 * 3_600;
        let mut most = 0;
        for second in 0..seconds {
            let value = match second {
                30_000 => 1.0,
                41_234 => 9_000.0,
                _ => 500.0 + f64::from(second % 7),
            };
            history.add(second, Some(&only(value)));
            most = most.max(history.buckets.len());
        }
        assert!(most <= MAX_BUCKETS, "{most} buckets at a time");
        assert_eq!(history.step, 256);
        assert!(history.buckets.len() > MAX_BUCKETS / 2, "{} buckets are left", history.buckets.len());
        let range_at = |second: u32| {
            let bucket = history.buckets.iter().find(|bucket| bucket.index == second / history.step).unwrap();
            bucket.range[0].unwrap()
        };
        assert_eq!(range_at(30_000).0, 1.0, "the dip is kept");
        assert_eq!(range_at(41_234).1, 9_000.0, "the spike is kept");
        assert_eq!(range_at(1_000), (500.0, 506.0));
        let json = serde_json::to_string(&history).unwrap();
        assert!(json.len() < 64 << 10, "{} bytes", json.len());
    }

    #[test]
    fn a_late_second_finds_its_bucket_and_a_gap_stays_one() {
        let mut history = History::default();
        assert_eq!(history.add(0, Some(&only(1.0))), Change::Bucket(0));
        assert_eq!(history.add(5, Some(&only(2.0))), Change::Bucket(1));
        assert_eq!(history.add(3, Some(&only(3.0))), Change::Bucket(1));
        assert_eq!(history.add(3, Some(&only(0.5))), Change::Bucket(1));
        let indexes: Vec<u32> = history.buckets.iter().map(|bucket| bucket.index).collect();
        assert_eq!(indexes, [0, 3, 5]);
        assert_eq!(history.buckets[1].range[0], Some((0.5, 3.0)));
        assert_eq!(history.buckets[1].range[1], None);
    }

    #[test]
    fn a_gap_that_is_shorter_than_a_step_is_kept_with_what_lies_around_it() {
        let mut history = History::default();
        for second in 0..10_000 {
            let value = f64::from(second % 5);
            history.add(second, Some(&only(value)).filter(|_| second != 1_234 && !(7_000..7_003).contains(&second)));
        }
        assert!(history.step >= 16, "a step is longer than the gaps: {} s", history.step);
        let missing: Vec<(u32, u32)> = history
            .buckets
            .iter()
            .filter(|bucket| bucket.missing > 0)
            .map(|bucket| (bucket.index * history.step, bucket.missing))
            .collect();
        let step = history.step;
        assert_eq!(missing, [(1_234 / step * step, 1), (7_000 / step * step, 3)]);
        assert!(history.buckets.iter().all(|bucket| bucket.range[0] == Some((0.0, 4.0))), "lowest and highest stay");
    }

    #[test]
    fn seconds_far_apart_fold_until_there_is_room() {
        let mut history = History::default();
        for index in 0..=u32::try_from(MAX_BUCKETS).unwrap() {
            history.add(index * 100, Some(&only(1.0)));
        }
        assert!(history.buckets.len() <= MAX_BUCKETS);
        assert_eq!(history.step, 128);
    }

    #[test]
    fn a_bucket_is_a_short_list() {
        let mut values = only(1_234.567);
        values[2] = Some(0.0);
        let json = serde_json::to_value(Bucket::of(7, Some(&values))).unwrap();
        assert_eq!(json[0], 7);
        assert_eq!((&json[1], &json[2]), (&serde_json::json!(1235.0), &serde_json::json!(1235.0)));
        assert!(json[3].is_null() && json[5] == serde_json::json!(0.0));
        assert_eq!(json.as_array().unwrap().len(), 2 + 2 * FIGURES);
        assert_eq!(json[1 + 2 * FIGURES], 0);
    }
}
