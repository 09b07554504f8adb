//! Steady state, judged on the cluster's aggregate with the SNIA window.
//!
//! SNIA Solid State Storage Performance Test Specification: over the last five rounds, the range is within 20 % of the mean and the
//! least-squares line's excursion across the window is within 10 % of it. A round is a tenth of the precondition time, at least 10 s;
//! the rounds end with preconditioning.

use crate::export::{Second, SteadyState};
use crate::throughput::to_f64;

/// Rounds of the window.
pub const ROUNDS: u32 = 5;

/// Shortest round, seconds.
pub const MIN_ROUND_SECONDS: u32 = 10;

/// Largest range of the rounds, percent of their mean.
pub const MAX_RANGE_PERCENT: f64 = 20.0;

/// Largest excursion of the least-squares line across the rounds, percent of their mean.
pub const MAX_EXCURSION_PERCENT: f64 = 10.0;

/// Judges the end of preconditioning from the cluster's seconds. It is not evaluated where preconditioning is shorter than the window,
/// or a second of the window is missing.
#[must_use]
pub fn evaluate(precondition_seconds: u32, seconds: &[Second]) -> SteadyState {
    let round_seconds = (precondition_seconds / 10).max(MIN_ROUND_SECONDS);
    match round_means(precondition_seconds, round_seconds, seconds) {
        Ok(rounds) => judge(round_seconds, &rounds),
        Err(reason) => SteadyState {
            verdict: "not-evaluated".into(),
            reason: Some(reason),
            round_seconds,
            round_iops: Vec::new(),
            mean_iops: None,
            range_percent: None,
            excursion_percent: None,
        },
    }
}

/// Mean IOPS of each round of the window, or why there are none.
fn round_means(precondition_seconds: u32, round_seconds: u32, seconds: &[Second]) -> Result<[f64; 5], String> {
    let window = ROUNDS * round_seconds;
    let Some(start) = precondition_seconds.checked_sub(window) else {
        return Err(format!(
            "preconditioning of {precondition_seconds} s is shorter than {ROUNDS} rounds of {round_seconds} s"
        ));
    };
    let (mut sums, mut present) = ([0.0; ROUNDS as usize], 0);
    for second in seconds.iter().filter(|second| (start..precondition_seconds).contains(&second.t)) {
        sums[((second.t - start) / round_seconds) as usize] += second_iops(second);
        present += 1;
    }
    if present != window {
        return Err(format!(
            "{} of the last {window} s of preconditioning are missing",
            window.saturating_sub(present)
        ));
    }
    Ok(sums.map(|sum| sum / f64::from(round_seconds)))
}

fn second_iops(second: &Second) -> f64 {
    [&second.read, &second.write].into_iter().flatten().map(|op| op.iops).sum()
}

fn judge(round_seconds: u32, rounds: &[f64; ROUNDS as usize]) -> SteadyState {
    let count = f64::from(ROUNDS);
    let mean = rounds.iter().sum::<f64>() / count;
    let largest = rounds.iter().copied().fold(f64::MIN, f64::max);
    let smallest = rounds.iter().copied().fold(f64::MAX, f64::min);
    let excursion = slope(rounds).abs() * (count - 1.0);
    let percent = |value: f64| (mean > 0.0).then(|| value / mean * 100.0);
    let (range_percent, excursion_percent) = (percent(largest - smallest), percent(excursion));
    let reason = complaint(range_percent, excursion_percent);
    SteadyState {
        verdict: if reason.is_none() { "achieved".into() } else { "not-achieved".into() },
        reason,
        round_seconds,
        round_iops: rounds.to_vec(),
        mean_iops: Some(mean),
        range_percent,
        excursion_percent,
    }
}

fn complaint(range_percent: Option<f64>, excursion_percent: Option<f64>) -> Option<String> {
    let (Some(range), Some(excursion)) = (range_percent, excursion_percent) else {
        return Some("no I/O completed in the window".into());
    };
    let mut complaints = Vec::new();
    if range > MAX_RANGE_PERCENT {
        complaints.push(format!("the rounds' range is {range:.1} % of their mean, more than {MAX_RANGE_PERCENT:.0} %"));
    }
    if excursion > MAX_EXCURSION_PERCENT {
        complaints.push(format!(
            "the least-squares line's excursion is {excursion:.1} % of the mean, more than {MAX_EXCURSION_PERCENT:.0} %"
        ));
    }
    (!complaints.is_empty()).then(|| complaints.join("; "))
}

/// Slope of the least-squares line through the rounds, a round.
fn slope(rounds: &[f64; ROUNDS as usize]) -> f64 {
    let middle = f64::from(ROUNDS - 1) / 2.0;
    let distances = (0..u64::from(ROUNDS)).map(|round| to_f64(round) - middle);
    let (mut products, mut squares) = (0.0, 0.0);
    for (distance, iops) in distances.zip(rounds) {
        products += distance * iops;
        squares += distance * distance;
    }
    products / squares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::SecondOp;

    fn second(t: u32, iops: f64) -> Second {
        let op = |iops| SecondOp { iops, mib_per_s: 0.0, mean_us: 1.0, p50_us: 1.0, p99_us: 1.0, max_us: 1.0 };
        Second { t, read: Some(op(iops * 0.75)), write: Some(op(iops * 0.25)) }
    }

    /// 100 s of preconditioning: the rounds are 10 s, the window begins at 50 s.
    fn rounds(iops: [f64; 5]) -> SteadyState {
        let early = (0..50).map(|t| second(t, 1e6));
        let window = (50..100).map(|t| second(t, iops[(t as usize - 50) / 10]));
        evaluate(100, &early.chain(window).collect::<Vec<_>>())
    }

    #[test]
    fn a_level_series_is_steady() {
        let steady = rounds([1000.0, 1010.0, 990.0, 1005.0, 995.0]);
        assert_eq!((steady.verdict.as_str(), &steady.reason), ("achieved", &None));
        assert_eq!(steady.round_iops, [1000.0, 1010.0, 990.0, 1005.0, 995.0]);
        assert_eq!(steady.mean_iops, Some(1000.0));
        assert!((steady.range_percent.unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_spike_breaks_the_range_and_not_the_slope() {
        let spiked = rounds([1000.0, 1000.0, 1250.0, 1000.0, 1000.0]);
        assert_eq!(spiked.verdict, "not-achieved");
        assert!(spiked.excursion_percent.unwrap() < 1e-9);
        assert!(spiked.reason.unwrap().contains("range is 23.8 %"));
    }

    #[test]
    fn a_slow_rise_breaks_the_slope_and_not_the_range() {
        let rising = rounds([940.0, 970.0, 1000.0, 1030.0, 1060.0]);
        assert_eq!(rising.verdict, "not-achieved");
        assert!((rising.excursion_percent.unwrap() - 12.0).abs() < 1e-9, "4 rounds × 30 IOPS of 1000");
        assert!((rising.range_percent.unwrap() - 12.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_judged_is_not_judged() {
        let short = evaluate(49, &(0..49).map(|t| second(t, 1.0)).collect::<Vec<_>>());
        assert_eq!(short.verdict, "not-evaluated");
        assert!(short.reason.unwrap().contains("49 s is shorter than 5 rounds of 10 s"));
        let gap = evaluate(50, &(0..50).filter(|t| *t != 7).map(|t| second(t, 1.0)).collect::<Vec<_>>());
        assert!(gap.reason.unwrap().contains("1 of the last 50 s"));
        assert_eq!(rounds([0.0; 5]).verdict, "not-achieved", "a dead device is not steady");
    }
}
