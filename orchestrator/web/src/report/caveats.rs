//! What the reader of a figure must know, and the footnotes that say it.

use analysis::export::{Case, Op, Second};

use super::hosts;
use super::plan_view::PlanView;
use super::series::gaps;
use crate::format::{self, Marks};

/// Where the case does not say it itself.
const UNWRITTEN: &str = "The plan allows reads of bytes that were never written (read_unwritten): \
    storage may answer them without touching a device.";

/// Which figures of a case a caveat concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    Case,
    /// Reads, and both together.
    Read,
    /// Writes, and both together.
    Write,
}

/// One caveat of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Caveat {
    scope: Scope,
    note: usize,
}

/// The caveats of one case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caveats {
    list: Vec<Caveat>,
    /// Words beside the figure: `incomplete`, `14 of 16 workers`.
    pub(crate) badges: Vec<String>,
}

impl Caveats {
    /// Footnotes of the figures of one operation (`read`, `write` or `all`).
    pub(crate) fn marks(&self, op: &str) -> Marks {
        let concerns = |scope| match scope {
            Scope::Case => true,
            Scope::Read => op != "write",
            Scope::Write => op != "read",
        };
        Marks(self.list.iter().filter(|caveat| concerns(caveat.scope)).map(|caveat| caveat.note).collect())
    }
}

/// The report's footnotes, numbered from 1; the same text is one note.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    texts: Vec<String>,
}

impl Notes {
    fn number(&mut self, text: String) -> usize {
        let index = self.texts.iter().position(|known| *known == text).unwrap_or_else(|| {
            self.texts.push(text);
            self.texts.len() - 1
        });
        index + 1
    }

    /// `number`, `text` in order.
    pub(crate) fn numbered(self) -> Vec<(usize, String)> {
        self.texts.into_iter().enumerate().map(|(index, text)| (index + 1, text)).collect()
    }
}

/// Collects the caveats of one case and numbers their notes.
pub(crate) fn of_case(case: &Case, plan: &PlanView, notes: &mut Notes) -> Caveats {
    let mut out = Caveats::default();
    let name = format!("{}, {}", case.workload, case.footprint);
    let mut add = |scope, text: String| {
        let note = notes.number(text);
        let caveat = Caveat { scope, note };
        if !out.list.contains(&caveat) {
            out.list.push(caveat);
        }
    };
    if case.state != "complete" {
        let reason = case.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        add(Scope::Case, format!("{name}: {}{reason}", case.state));
        out.badges.push(case.state.clone());
    }
    let workers = &case.workers;
    if workers.measured != workers.expected && measured(case) {
        add(Scope::Case, format!("{name}: the figures contain {} of {} workers.", workers.measured, workers.expected));
        out.badges.push(format!("{} of {} workers", workers.measured, workers.expected));
    }
    if let Some(text) = missing_seconds(case, plan) {
        add(Scope::Case, format!("{name}: {text}"));
    }
    for (scope, word, op) in [(Scope::Read, "reads", &case.ops.read), (Scope::Write, "writes", &case.ops.write)] {
        for text in op.iter().flat_map(|op| op_caveats(op, word)) {
            add(scope, format!("{name}: {text}"));
        }
    }
    if let Some(errors) = case.ops.all.as_ref().map(|op| op.errors).filter(|errors| *errors > 0) {
        out.badges.push(format!("{} {}", format::count(errors), if errors == 1 { "error" } else { "errors" }));
    }
    if case.generator.as_ref().is_some_and(|generator| generator.may_limit) {
        out.badges.push("the load generator may limit".to_owned());
    }
    if let Some(text) = hosts::disturbance(case) {
        add(Scope::Case, format!("{name}: {text}"));
        out.badges.push("storage not at rest".to_owned());
    }
    if let Some(steady) = case.steady_state.as_ref().filter(|steady| steady.verdict == "not-achieved") {
        let reason = steady.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        add(Scope::Case, format!("{name}: no steady state at the end of preconditioning{reason}"));
        out.badges.push("not steady".to_owned());
    }
    if plan.read_unwritten && plan.initialise.as_deref() == Some("none") && case.read_percent > 0 {
        if !case.warnings.iter().any(|warning| warning.contains("never written")) {
            add(Scope::Read, UNWRITTEN.to_owned());
        }
        out.badges.push("reads of unwritten bytes".to_owned());
    }
    for warning in &case.warnings {
        add(Scope::Case, warning.clone());
    }
    out
}

fn measured(case: &Case) -> bool {
    case.ops.all.is_some() || case.ops.read.is_some() || case.ops.write.is_some()
}

fn missing_seconds(case: &Case, plan: &PlanView) -> Option<String> {
    let span = sample_span(case, plan);
    let missing: u32 = gaps(&case.seconds, span).iter().map(|(from, to)| to - from).sum();
    (missing > 0 && !case.seconds.is_empty() && case.state != "running")
        .then(|| format!("{} of the {} seconds of the sample lack a worker and are not in the series.", missing, span))
}

/// Seconds of the sample: what the plan says, or what was recorded where that is more or the plan does not say.
pub(crate) fn sample_span(case: &Case, plan: &PlanView) -> u32 {
    let planned = if case.state == "running" { 0 } else { plan.sample_seconds.unwrap_or(0) };
    recorded_span(&case.seconds).max(planned)
}

/// Seconds from the start of a phase to the end of the last second recorded.
pub(crate) fn recorded_span(seconds: &[Second]) -> u32 {
    seconds.last().map_or(0, |second| second.t.saturating_add(1))
}

fn op_caveats(op: &Op, word: &str) -> Vec<String> {
    let mut out = Vec::new();
    if op.errors > 0 {
        out.push(format!("{} {word} failed or were short; they are in no other figure.", format::count(op.errors)));
    }
    if op.over_range > 0 {
        out.push(format!(
            "{} {word} took longer than 10 minutes; they are in the mean and the maximum, and percentiles among them show the maximum.",
            format::count(op.over_range)
        ));
    }
    if op.count > 0 && op.count < 1000 {
        out.push(format!(
            "only {} {word} completed: p99.9 and, below 100, p99 are the slowest few I/Os.",
            format::count(op.count)
        ));
    }
    out
}
