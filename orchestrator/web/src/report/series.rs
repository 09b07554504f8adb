//! Seconds as series that a chart can draw: gaps stay gaps, a stall is a zero, and a long phase keeps each step's lowest and highest second.

use analysis::export::{Second, SecondOp};
use serde::Serialize;

/// Steps that a phase is drawn with at most. A step gives at most its lowest second, its highest and two breaks,
/// so a series has at most four times as many points.
pub(crate) const MAX_STEPS: u32 = 300;

/// A line of a chart. `x` are seconds from the start of the sample, at the middle of the second; `y` is null where the line breaks.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Series {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<Option<f64>>,
}

/// Seconds of one step so that `span` seconds make at most [`MAX_STEPS`] steps; at least 1.
pub(crate) fn step_seconds(span: u32) -> u32 {
    span.div_ceil(MAX_STEPS).max(1)
}

/// A value of each second of a phase that starts `offset` seconds from the start of the sample, in steps of `step` seconds.
///
/// A second without a value (an operation without I/O has no latency) breaks the line, and so does one that is missing.
/// Seconds come in ascending order.
pub(crate) fn series(seconds: &[Second], offset: f64, step: u32, value: impl Fn(&Second) -> Option<f64>) -> Series {
    let mut out = Series::default();
    let mut previous: Option<u32> = None;
    for chunk in seconds.chunk_by(|a, b| a.t / step == b.t / step) {
        for second in extremes(chunk, &value) {
            if previous.is_some_and(|before| broken(seconds, before, second.t, &value)) {
                out.x.push(f64::from(second.t) + offset);
                out.y.push(None);
            }
            out.x.push(f64::from(second.t) + offset + 0.5);
            out.y.push(value(second).map(shorten));
            previous = Some(second.t);
        }
    }
    out
}

/// I/Os a second: zero in a second that is there and in which this operation completed nothing.
pub(crate) fn iops_or_stall(op: Option<&SecondOp>) -> Option<f64> {
    Some(op.map_or(0.0, |op| op.iops))
}

/// Seconds of `[0, span)` that are not there, as half-open ranges.
pub(crate) fn gaps(seconds: &[Second], span: u32) -> Vec<(u32, u32)> {
    let mut out = Vec::new();
    let mut next = 0;
    for t in seconds.iter().map(|second| second.t).chain([span]) {
        if t > next {
            out.push((next, t));
        }
        next = next.max(t.saturating_add(1));
    }
    out
}

/// The seconds of the lowest and of the highest value, in order of time; one where they are the same.
fn extremes<'a>(chunk: &'a [Second], value: &impl Fn(&Second) -> Option<f64>) -> Vec<&'a Second> {
    let valued = || chunk.iter().filter_map(|second| value(second).map(|v| (second, v)));
    let low = valued().min_by(|a, b| a.1.total_cmp(&b.1));
    let high = valued().max_by(|a, b| a.1.total_cmp(&b.1));
    let mut out: Vec<&Second> = [low, high].into_iter().flatten().map(|(second, _)| second).collect();
    out.sort_by_key(|second| second.t);
    out.dedup_by_key(|second| second.t);
    out
}

/// Whether a second between two that are drawn is missing or has no value.
fn broken(seconds: &[Second], before: u32, after: u32, value: &impl Fn(&Second) -> Option<f64>) -> bool {
    let first = seconds.partition_point(|second| second.t <= before);
    let last = seconds.partition_point(|second| second.t < after);
    let between = &seconds[first..last];
    let expected = usize::try_from(after.saturating_sub(before + 1)).unwrap_or(usize::MAX);
    between.len() < expected || between.iter().any(|second| value(second).is_none())
}

/// Four significant figures are more than a pixel; the exports hold the rest.
fn shorten(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(t: u32, iops: Option<f64>) -> Second {
        let op = |iops| SecondOp { iops, mib_per_s: 0.0, mean_us: 0.0, p50_us: 0.0, p99_us: 0.0, max_us: 0.0 };
        Second { t, read: iops.map(op), write: None }
    }

    fn value(second: &Second) -> Option<f64> {
        second.read.as_ref().map(|op| op.iops)
    }

    #[test]
    fn a_missing_second_breaks_the_line() {
        let seconds: Vec<Second> = [0, 1, 4].into_iter().map(|t| second(t, Some(7.0))).collect();
        let line = series(&seconds, 0.0, 1, value);
        assert_eq!(line.x, [0.5, 1.5, 4.0, 4.5]);
        assert_eq!(line.y, [Some(7.0), Some(7.0), None, Some(7.0)]);
        assert_eq!(gaps(&seconds, 6), [(2, 4), (5, 6)]);
        assert_eq!(gaps(&[], 3), [(0, 3)]);
        assert_eq!(gaps(&seconds, 0), [(2, 4)]);
    }

    #[test]
    fn a_stalled_second_is_zero_iops_and_no_latency() {
        let seconds = [second(0, Some(5.0)), second(1, None), second(2, Some(5.0))];
        let rate = series(&seconds, 0.0, 1, |s| iops_or_stall(s.read.as_ref()));
        assert_eq!(rate.y, [Some(5.0), Some(0.0), Some(5.0)]);
        assert_eq!(series(&seconds, 0.0, 1, value).y, [Some(5.0), None, Some(5.0)]);
    }

    #[test]
    fn an_hour_keeps_its_spike_and_its_dip_within_the_limit() {
        let seconds: Vec<Second> = (0..3600)
            .map(|t| {
                let iops = match t {
                    1234 => 1.0,
                    2345 => 9_000.0,
                    _ => 500.0 + f64::from(t % 7),
                };
                second(t, Some(iops))
            })
            .collect();
        let step = step_seconds(3600);
        assert_eq!(step, 12);
        let line = series(&seconds, -100.0, step, value);
        assert!(line.x.len() <= 2 * 300, "{} points", line.x.len());
        let at = |wanted: f64| line.y.iter().position(|y| *y == Some(wanted)).map(|index| line.x[index]);
        assert_eq!(at(1.0), Some(1134.5));
        assert_eq!(at(9_000.0), Some(2245.5));
        assert!(line.x.is_sorted());
        assert!(line.y.iter().all(Option::is_some));
    }

    #[test]
    fn every_other_second_missing_stays_within_the_limit() {
        let seconds: Vec<Second> = (0..1800).map(|t| second(2 * t, Some(f64::from(t % 5)))).collect();
        let line = series(&seconds, 0.0, step_seconds(3600), value);
        assert!(line.x.len() <= 4 * 300, "{} points", line.x.len());
        assert!(line.y.iter().any(Option::is_none));
    }

    #[test]
    fn a_break_within_a_step_is_kept() {
        let seconds: Vec<Second> =
            (0..600).filter(|t| !(100..103).contains(t)).map(|t| second(t, Some(1.0 + f64::from(t % 2)))).collect();
        let line = series(&seconds, 0.0, 10, value);
        let breaks: Vec<f64> = line.x.iter().zip(&line.y).filter(|(_, y)| y.is_none()).map(|(x, _)| *x).collect();
        assert_eq!(breaks.len(), 1);
        assert!((100.0..=110.0).contains(&breaks[0]), "{breaks:?}");
    }

    #[test]
    fn values_are_shortened_to_four_figures() {
        assert_eq!(shorten(123_456.0), 123_500.0);
        assert!((shorten(0.123_456) - 0.1235).abs() < 1e-12);
        assert_eq!(shorten(0.0), 0.0);
    }
}
