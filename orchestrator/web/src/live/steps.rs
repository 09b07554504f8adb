//! The steps of a run as a timeline shows them.

use plan::{Schedule, StepKind, TestPlan};
use serde::Serialize;

/// A step of the schedule.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StepView {
    /// `deploy`, `fill`, `verify`, `settle`, `case` or `tear-down`.
    pub(crate) kind: &'static str,
    /// For a person: `1GiB: 4k-random-read`.
    pub(crate) label: String,
    /// Estimated seconds; of a case and of settling nearly exact.
    pub(crate) seconds: u64,
    /// Of those, preconditioning.
    pub(crate) precondition: u32,
    /// When it began, seconds since the run did; none while it is ahead.
    pub(crate) began: Option<f64>,
    /// When it ended.
    pub(crate) ended: Option<f64>,
}

/// All steps, none begun.
pub(crate) fn steps(plan: &TestPlan, schedule: &Schedule) -> Vec<StepView> {
    let label = |footprint: usize| plan.footprints.get(footprint).map_or("", |footprint| footprint.label.as_str());
    let view = |step: &plan::Step| {
        let (kind, label, precondition) = match step.kind {
            StepKind::Deploy => ("deploy", "Start the workers".to_owned(), 0),
            StepKind::Fill { footprint, .. } => ("fill", format!("{}: fill", label(footprint)), 0),
            StepKind::Verify { footprint } => ("verify", format!("{}: read back", label(footprint)), 0),
            StepKind::Settle { footprint } => ("settle", format!("{}: settle", label(footprint)), 0),
            StepKind::Case { footprint, workload, precondition_seconds, .. } => {
                let name = plan.workloads.get(workload).map_or("", |workload| workload.name.as_str());
                ("case", format!("{}: {name}", label(footprint)), precondition_seconds)
            }
            StepKind::TearDown => ("tear-down", "Remove the workers".to_owned(), 0),
        };
        StepView { kind, label, seconds: step.seconds, precondition, began: None, ended: None }
    };
    schedule.steps.iter().map(view).collect()
}

/// Notes that step `index` is under way `now` seconds after the run began: those before it have ended. Answers those that changed.
pub(crate) fn advance(steps: &mut [StepView], index: usize, now: f64) -> Vec<usize> {
    let mut changed = Vec::new();
    for (place, step) in steps.iter_mut().enumerate().take(index.saturating_add(1)) {
        let before = (step.began, step.ended);
        step.began.get_or_insert(now);
        if place < index {
            step.ended.get_or_insert(now);
        }
        if before != (step.began, step.ended) {
            changed.push(place);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_end_when_a_later_one_begins() {
        let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
        let mut steps = steps(&plan, &plan::schedule(&plan, plan::FillRate::assumed()));
        assert_eq!(steps[0].label, "Start the workers");
        assert_eq!((steps[3].kind, steps[3].label.as_str()), ("case", "256MiB: 4k-random-read"));
        assert_eq!(advance(&mut steps, 0, 0.5), [0]);
        assert_eq!(advance(&mut steps, 0, 1.5), [0; 0]);
        assert_eq!(advance(&mut steps, 2, 3.0), [0, 1, 2]);
        assert_eq!((steps[0].began, steps[0].ended), (Some(0.5), Some(3.0)));
        assert_eq!((steps[2].began, steps[2].ended), (Some(3.0), None));
        assert_eq!(advance(&mut steps, usize::MAX, 9.0).len(), steps.len() - 2);
    }
}
