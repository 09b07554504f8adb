//! What becomes of a run that is ended before its plan is through, said before somebody does it.

use analysis::export::{EarlyEnd, How};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::beat::LiveProgress;
use super::steps::StepView;
use crate::format;

/// State of a run whose workers and disks are being removed.
const TEARING_DOWN: &str = "tearing-down";

/// Said where there is nothing left to end.
pub(super) const ENDS_ALREADY: &str = "The run is ending already: its workers end and data disks are removed.";

/// What ending a run now does.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Prospect {
    /// The case under way: `1GiB: 4k-random-read`; null outside a case.
    pub case: Option<String>,
    /// That case gets its whole result first.
    pub finishes_case: bool,
    /// Cases that are not begun any more.
    pub not_run: u32,
    /// Estimated seconds until the run has ended.
    pub seconds: f64,
    /// All of it, for a person.
    pub words: String,
}

/// What `how` does to a run that is at `progress` of these steps.
pub(crate) fn prospect(how: How, steps: &[StepView], progress: &LiveProgress, now: Timestamp) -> Prospect {
    let is_case = |step: &&StepView| step.kind == "case";
    let step = steps.get(progress.step_index).filter(is_case);
    let ahead = steps.iter().skip(progress.step_index.saturating_add(1)).filter(is_case).count();
    let not_run = u32::try_from(ahead).unwrap_or(u32::MAX);
    let removal = steps.iter().rev().find(|step| step.kind == "tear-down").map_or(0.0, |step| seconds(step.seconds));
    let case = step.map(|step| step.label.clone());
    if is_ending(steps, progress) {
        return Prospect {
            case: None,
            finishes_case: false,
            not_run,
            seconds: removal,
            words: ENDS_ALREADY.to_owned(),
        };
    }
    // The rule by which the run itself goes: from T0 on, also where no second of it has come yet.
    let measuring = progress.measured_from.is_some_and(|t0| now >= t0);
    let finishes_case = how == How::Stop && step.is_some() && measuring;
    let left =
        step.filter(|_| finishes_case).map_or(0.0, |step| seconds(step.seconds) * (1.0 - progress.step_fraction));
    let first = match (&case, how) {
        (None, _) if not_run == 0 => "No case is left: the run ends by itself.".to_owned(),
        (None, _) => "No case is being measured: the run ends at once.".to_owned(),
        (Some(case), _) if !measuring => {
            format!(
                "No case is being measured: {case} is only preconditioned and gets no result, the run ends at once."
            )
        }
        (Some(case), How::Stop) => {
            format!("{case} is measured to its end, about {} more, and has its whole result.", format::duration(left))
        }
        (Some(case), How::Cancel) => {
            format!("{case} is cut now: what was measured of it is kept and marked as cancelled.")
        }
    };
    let others = match not_run {
        0 => String::new(),
        1 => " 1 later case is not run.".to_owned(),
        more => format!(" {more} later cases are not run."),
    };
    let last = format!(" Workers end and data disks are removed, about {}.", format::duration(removal));
    let counts = counts(how, not_run > 0 || (step.is_some() && !finishes_case));
    Prospect { case, finishes_case, not_run, seconds: left + removal, words: format!("{first}{others}{last}{counts}") }
}

/// The run is being removed though its last step is a case: somebody or the guard has ended it.
pub(crate) fn is_ending(steps: &[StepView], progress: &LiveProgress) -> bool {
    progress.state == TEARING_DOWN && steps.get(progress.step_index).is_some_and(|step| step.kind == "case")
}

/// As what the run counts then. One of which nothing is left out was not ended early.
fn counts(how: How, leaves_out: bool) -> &'static str {
    match how {
        _ if !leaves_out => " Nothing of the plan is left out.",
        How::Stop => " The run counts as stopped.",
        How::Cancel => " The run counts as cancelled.",
    }
}

/// What a run that somebody ends is doing.
pub(crate) fn ending(end: &EarlyEnd) -> String {
    match end.how {
        How::Stop => format!("{} stops it: a case that is being measured gets its whole result first", end.by),
        How::Cancel => format!("cancelled by {}: workers end, data disks are removed", end.by),
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate for a person")]
fn seconds(whole: u64) -> f64 {
    whole as f64
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::live::steps;

    /// The window begins `t0` seconds from now.
    fn at(kind: &str, state: &str, t0: Option<i64>, step_fraction: f64) -> [Prospect; 2] {
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        let steps = steps::steps(&plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        let step_index = match kind {
            "last case" => steps.iter().rposition(|step| step.kind == "case"),
            kind => steps.iter().position(|step| step.kind == kind),
        };
        let step_index = step_index.unwrap();
        let now = Timestamp::UNIX_EPOCH;
        let measured_from = t0.map(|t0| now + SignedDuration::from_secs(t0));
        let progress =
            LiveProgress { state: state.into(), step_index, step_fraction, measured_from, ..LiveProgress::default() };
        [How::Stop, How::Cancel].map(|how| prospect(how, &steps, &progress, now))
    }

    #[test]
    fn a_stop_finishes_the_case_that_is_measured_and_a_cancellation_cuts_it() {
        let [stop, cancel] = at("case", "sampling", Some(-9), 0.5);
        assert!(stop.finishes_case && !cancel.finishes_case);
        assert_eq!((stop.not_run, cancel.not_run), (9, 9));
        assert!(stop.seconds > cancel.seconds, "{stop:?} {cancel:?}");
        assert!(stop.words.starts_with("256MiB: 4k-random-read is measured to its end, about "), "{}", stop.words);
        assert!(stop.words.contains("9 later cases are not run") && stop.words.contains("data disks are removed"));
        assert!(cancel.words.contains("is cut now"), "{}", cancel.words);
    }

    #[test]
    fn both_end_a_run_at_once_that_measures_nothing() {
        for [stop, cancel] in [at("fill", "filling", None, 0.5), at("case", "preconditioning", Some(9), 0.1)] {
            assert!(
                stop.words.contains("No case is being measured") && stop.words.contains("ends at once"),
                "{stop:?}"
            );
            assert_eq!((stop.finishes_case, stop.not_run, stop.seconds), (false, cancel.not_run, cancel.seconds));
        }
        assert_eq!(at("fill", "filling", None, 0.5)[0].not_run, 10);
        assert!(
            at("case", "preconditioning", Some(9), 0.1)[0]
                .words
                .contains("256MiB: 4k-random-read is only preconditioned")
        );
        let [last, _] = at("last case", "sampling", Some(-9), 0.9);
        assert!(last.finishes_case && last.not_run == 0 && !last.words.contains("not run"), "{last:?}");
        let [torn_down, _] = at("tear-down", "tearing-down", None, 0.0);
        assert!(torn_down.words.starts_with("No case is left"), "{torn_down:?}");
    }

    /// What is told to be measured is what the run measures, whatever it calls its state by then.
    #[test]
    fn a_case_is_measured_from_its_window_on_and_not_before() {
        assert!(at("case", "preconditioning", Some(0), 0.3)[0].finishes_case, "no second of it has come yet");
        assert!(!at("case", "sampling", Some(1), 0.0)[0].finishes_case, "without preconditioning its start is ahead");
    }

    #[test]
    fn what_the_run_counts_as_is_what_it_will() {
        let words = |[stop, cancel]: [Prospect; 2]| [stop.words, cancel.words];
        let [stop, cancel] = words(at("case", "sampling", Some(-9), 0.5));
        assert!(stop.ends_with("counts as stopped.") && cancel.ends_with("counts as cancelled."), "{stop} {cancel}");
        let [stop, cancel] = words(at("last case", "sampling", Some(-9), 0.5));
        assert!(stop.ends_with("Nothing of the plan is left out."), "{stop}");
        assert!(cancel.ends_with("counts as cancelled."), "{cancel}");
        for words in words(at("tear-down", "tearing-down", None, 0.0)) {
            assert!(words.ends_with("Nothing of the plan is left out."), "{words}");
        }
        for words in words(at("case", "tearing-down", Some(-99), 1.0)) {
            assert!(words.starts_with("The run is ending already") && !words.contains("counts as"), "{words}");
        }
    }
}
