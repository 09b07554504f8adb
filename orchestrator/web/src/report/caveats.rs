//! What the reader of a figure must know, and the footnotes that say it.

use analysis::export::{Case, Op, Second, SteadyState};

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

/// One thing to know of a case, in words.
struct Told {
    scope: Scope,
    text: String,
    /// The text says by itself which case it is of, or that it is of all.
    whole: bool,
}

/// Collects the caveats of one case and numbers their notes.
pub(crate) fn of_case(case: &Case, plan: &PlanView, notes: &mut Notes) -> Caveats {
    let name = format!("{}, {}", case.workload, case.footprint);
    let mut list = Vec::new();
    for Told { scope, text, whole } in told(case, plan) {
        let note = notes.number(if whole { text } else { format!("{name}: {text}") });
        let caveat = Caveat { scope, note };
        if !list.contains(&caveat) {
            list.push(caveat);
        }
    }
    Caveats { list, badges: badges(case, plan) }
}

/// What the reader of a case's figures must know, as sentences: for a place where the case itself is named.
pub(crate) fn texts(case: &Case, plan: &PlanView) -> Vec<String> {
    told(case, plan).into_iter().map(|told| if told.whole { told.text } else { capital(&told.text) }).collect()
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().into_iter().flat_map(char::to_uppercase).chain(characters).collect()
}

fn told(case: &Case, plan: &PlanView) -> Vec<Told> {
    let mut out = Vec::new();
    let mut add = |scope, text: String, whole| out.push(Told { scope, text, whole });
    if case.state != "complete" {
        let reason = case.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        add(Scope::Case, format!("{}{reason}", case.state), false);
    }
    let workers = &case.workers;
    if workers.measured != workers.expected && measured(case) {
        let text = format!("the figures contain {} of {} workers.", workers.measured, workers.expected);
        add(Scope::Case, text, false);
    }
    if let Some(text) = missing_seconds(case, plan) {
        add(Scope::Case, text, false);
    }
    for (scope, word, op) in [(Scope::Read, "reads", &case.ops.read), (Scope::Write, "writes", &case.ops.write)] {
        for text in op.iter().flat_map(|op| op_caveats(op, word)) {
            add(scope, text, false);
        }
    }
    if let Some(text) = hosts::disturbance(case) {
        add(Scope::Case, text, false);
    }
    if let Some(steady) = not_steady(case) {
        let reason = steady.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        add(Scope::Case, format!("no steady state at the end of preconditioning{reason}"), false);
    }
    if reads_unwritten(case, plan) && !case.warnings.iter().any(|warning| warning.contains("never written")) {
        add(Scope::Read, UNWRITTEN.to_owned(), true);
    }
    for warning in &case.warnings {
        add(Scope::Case, warning.clone(), true);
    }
    out
}

/// The same in a few words, beside a figure.
pub(crate) fn badges(case: &Case, plan: &PlanView) -> Vec<String> {
    let workers = &case.workers;
    let errors = case.ops.all.as_ref().map_or(0, |op| op.errors);
    let badges = [
        (case.state != "complete").then(|| case.state.clone()),
        (workers.measured != workers.expected && measured(case))
            .then(|| format!("{} of {} workers", workers.measured, workers.expected)),
        (errors > 0).then(|| format!("{} {}", format::count(errors), if errors == 1 { "error" } else { "errors" })),
        case.generator
            .as_ref()
            .is_some_and(|generator| generator.may_limit)
            .then(|| "the load generator may limit".to_owned()),
        hosts::disturbance(case).is_some().then(|| "storage not at rest".to_owned()),
        not_steady(case).is_some().then(|| "not steady".to_owned()),
        reads_unwritten(case, plan).then(|| "reads of unwritten bytes".to_owned()),
    ];
    badges.into_iter().flatten().collect()
}

fn not_steady(case: &Case) -> Option<&SteadyState> {
    case.steady_state.as_ref().filter(|steady| steady.verdict == "not-achieved")
}

fn reads_unwritten(case: &Case, plan: &PlanView) -> bool {
    plan.read_unwritten && plan.initialise.as_deref() == Some("none") && case.read_percent > 0
}

fn measured(case: &Case) -> bool {
    case.ops.all.is_some() || case.ops.read.is_some() || case.ops.write.is_some()
}

fn missing_seconds(case: &Case, plan: &PlanView) -> Option<String> {
    let (missing, span) = (missing(case, plan)?, sample_span(case, plan));
    let why = match case.state.as_str() {
        "cancelled" | "failed" => "were not measured by all workers, since the case was cut,",
        _ => "lack a worker",
    };
    (missing > 0).then(|| format!("{missing} of the {span} seconds of the sample {why} and are not in the series."))
}

/// How many of the sample's seconds are in no series; none where nothing was measured, or that is not known.
pub(crate) fn missing(case: &Case, plan: &PlanView) -> Option<u32> {
    match case.seconds.as_slice() {
        _ if case.state == "running" => None,
        // Read without them.
        [] => case.missing_seconds.filter(|_| measured(case)),
        seconds => Some(gaps(seconds, sample_span(case, plan)).iter().map(|(from, to)| to - from).sum()),
    }
}

/// Their share of the sample, percent.
pub(crate) fn missing_share(case: &Case, plan: &PlanView) -> Option<f64> {
    Some(100.0 * f64::from(missing(case, plan)?) / f64::from(sample_span(case, plan).max(1)))
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
