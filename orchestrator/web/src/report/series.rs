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

/// Values of each second of a phase that starts `offset` seconds from the start of the sample, in steps of `step` seconds; a line each.
///
/// A second without a value (an operation without I/O has no latency) breaks its line, and one that is missing breaks all.
/// Seconds come in ascending order.
pub(crate) fn series<const LINES: usize>(
    seconds: &[Second],
    offset: f64,
    step: u32,
    values: impl Fn(&Second) -> [Option<f64>; LINES],
) -> [Series; LINES] {
    let mut lines: [Line; LINES] = std::array::from_fn(|_| Line { offset, ..Line::default() });
    let (mut next, mut step_end) = (0, step);
    for second in seconds {
        if second.t >= step_end {
            lines.iter_mut().for_each(Line::end_step);
            step_end = (second.t / step).saturating_add(1).saturating_mul(step);
        }
        for (line, value) in lines.iter_mut().zip(values(second)) {
            if second.t > next {
                line.hole = Some(second.t - 1);
            }
            line.add(second.t, value);
        }
        next = second.t.saturating_add(1);
    }
    lines.map(|mut line| {
        line.end_step();
        line.drawn
    })
}

/// A line while its seconds pass by.
#[derive(Default)]
struct Line {
    offset: f64,
    drawn: Series,
    /// The second drawn last.
    last: Option<u32>,
    /// The latest second that is missing or has no value.
    hole: Option<u32>,
    /// Lowest and highest of the step.
    extremes: Option<(Point, Point)>,
}

#[derive(Clone, Copy)]
struct Point {
    t: u32,
    value: f64,
    /// The latest second before it that is missing or has no value.
    hole: Option<u32>,
}

impl Line {
    fn add(&mut self, t: u32, value: Option<f64>) {
        let Some(value) = value else {
            self.hole = Some(t);
            return;
        };
        let point = Point { t, value, hole: self.hole };
        match &mut self.extremes {
            None => self.extremes = Some((point, point)),
            Some((low, _)) if value.total_cmp(&low.value).is_lt() => *low = point,
            Some((_, high)) if value.total_cmp(&high.value).is_ge() => *high = point,
            Some(_) => {}
        }
    }

    /// Draws the step's lowest and highest second in order of time; one where they are the same.
    fn end_step(&mut self) {
        let Some((low, high)) = self.extremes.take() else { return };
        let (first, second) = if low.t < high.t { (low, high) } else { (high, low) };
        self.draw(first);
        if second.t != first.t {
            self.draw(second);
        }
    }

    fn draw(&mut self, point: Point) {
        let at = f64::from(point.t) + self.offset;
        if self.last.is_some_and(|last| point.hole.is_some_and(|hole| hole > last)) {
            self.drawn.x.push(at);
            self.drawn.y.push(None);
        }
        self.drawn.x.push(at + 0.5);
        self.drawn.y.push(Some(shorten(point.value)));
        self.last = Some(point.t);
    }
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
    use proptest::collection::vec;
    use proptest::{option, prelude::*};

    use super::*;

    fn second(t: u32, iops: Option<f64>) -> Second {
        let op = |iops| SecondOp { iops, mib_per_s: 0.0, mean_us: 0.0, p50_us: 0.0, p99_us: 0.0, max_us: 0.0 };
        Second { t, read: iops.map(op), write: None }
    }

    fn value(second: &Second) -> Option<f64> {
        second.read.as_ref().map(|op| op.iops)
    }

    fn line(seconds: &[Second], offset: f64, step: u32) -> Series {
        let [line] = series(seconds, offset, step, |second| [value(second)]);
        line
    }

    /// The lowest and the highest second of each step, with a break before what a hole separates from what is before it: looked up anew
    /// for every point.
    fn slowly(seconds: &[Second], step: u32) -> Series {
        let mut out = Series::default();
        let mut previous: Option<u32> = None;
        for chunk in seconds.chunk_by(|a, b| a.t / step == b.t / step) {
            let valued = || chunk.iter().filter_map(|second| value(second).map(|v| (second.t, v)));
            let low = valued().min_by(|a, b| a.1.total_cmp(&b.1));
            let high = valued().max_by(|a, b| a.1.total_cmp(&b.1));
            let mut points: Vec<(u32, f64)> = [low, high].into_iter().flatten().collect();
            points.sort_by_key(|point| point.0);
            points.dedup_by_key(|point| point.0);
            for (t, v) in points {
                let there = |t: u32| seconds.iter().any(|second| second.t == t && value(second).is_some());
                if previous.is_some_and(|before| !(before + 1..t).all(there)) {
                    out.x.push(f64::from(t));
                    out.y.push(None);
                }
                out.x.push(f64::from(t) + 0.5);
                out.y.push(Some(shorten(v)));
                previous = Some(t);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn one_pass_draws_what_looking_everything_up_draws(
            seconds in vec(option::weighted(0.9, option::weighted(0.9, 0_u32..6)), 0..200),
            step in 1_u32..20,
        ) {
            let values = (0..).zip(&seconds).filter_map(|(t, there)| there.map(|v| second(t, v.map(f64::from))));
            let seconds: Vec<Second> = values.collect();
            prop_assert_eq!(line(&seconds, 0.0, step), slowly(&seconds, step));
        }
    }

    #[test]
    fn lines_are_apart() {
        let seconds = [second(0, Some(5.0)), second(1, None), second(2, Some(7.0))];
        let [values, stalls] = series(&seconds, 0.0, 1, |s| [value(s), iops_or_stall(s.read.as_ref())]);
        assert_eq!(values, line(&seconds, 0.0, 1));
        assert_eq!(stalls.y, [Some(5.0), Some(0.0), Some(7.0)]);
    }

    #[test]
    fn a_missing_second_breaks_the_line() {
        let seconds: Vec<Second> = [0, 1, 4].into_iter().map(|t| second(t, Some(7.0))).collect();
        let line = line(&seconds, 0.0, 1);
        assert_eq!(line.x, [0.5, 1.5, 4.0, 4.5]);
        assert_eq!(line.y, [Some(7.0), Some(7.0), None, Some(7.0)]);
        assert_eq!(gaps(&seconds, 6), [(2, 4), (5, 6)]);
        assert_eq!(gaps(&[], 3), [(0, 3)]);
        assert_eq!(gaps(&seconds, 0), [(2, 4)]);
    }

    #[test]
    fn a_stalled_second_is_zero_iops_and_no_latency() {
        let seconds = [second(0, Some(5.0)), second(1, None), second(2, Some(5.0))];
        let [rate] = series(&seconds, 0.0, 1, |s| [iops_or_stall(s.read.as_ref())]);
        assert_eq!(rate.y, [Some(5.0), Some(0.0), Some(5.0)]);
        assert_eq!(line(&seconds, 0.0, 1).y, [Some(5.0), None, Some(5.0)]);
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
        let line = line(&seconds, -100.0, step);
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
        let line = line(&seconds, 0.0, step_seconds(3600));
        assert!(line.x.len() <= 4 * 300, "{} points", line.x.len());
        assert!(line.y.iter().any(Option::is_none));
    }

    #[test]
    fn a_break_within_a_step_is_kept() {
        let seconds: Vec<Second> =
            (0..600).filter(|t| !(100..103).contains(t)).map(|t| second(t, Some(1.0 + f64::from(t % 2)))).collect();
        let line = line(&seconds, 0.0, 10);
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
