//! What the charts show, as data: the report's script draws it in the reader's colours and width.

use analysis::export::{Case, Latency, Op, Ops, Second, SecondOp};
use serde::Serialize;

use super::caveats::{Caveats, recorded_span, sample_span};
use super::plan_view::PlanView;
use super::series::{Series, gaps, iops_or_stall, series, step_seconds};
use crate::format::LatencyUnit;

/// Gaps that a chart shades at most; the longest are shaded, and the lines break at each of them.
const SHADED_GAPS: usize = 200;
/// Gaps that a caption names at most.
const NAMED_GAPS: usize = 3;

/// A chart of the report.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(crate) enum Chart {
    /// IOPS and p99 of a workload by footprint.
    Footprints { unit: &'static str, unit_us: f64, footprints: Vec<FootprintBar>, ops: Vec<OpBars> },
    /// Latency by percentile, a curve a footprint and operation.
    Percentiles { unit: &'static str, unit_us: f64, curves: Vec<Curve> },
    /// IOPS and latency of a case by second.
    Timeline(Box<Timeline>),
}

#[derive(Debug, Serialize)]
pub(crate) struct FootprintBar {
    label: String,
    /// What is amiss with its figures, if anything.
    mark: Option<String>,
}

/// Values of one operation, one a footprint.
#[derive(Debug, Serialize)]
pub(crate) struct OpBars {
    op: &'static str,
    iops: Vec<Option<f64>>,
    p99_us: Vec<Option<f64>>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Curve {
    footprint: String,
    /// Place of the footprint among the run's, for its colour.
    order: usize,
    op: &'static str,
    /// p50, p90, p95, p99, p99.9, p99.99, max.
    us: [f64; 7],
}

#[derive(Debug, Serialize)]
pub(crate) struct Timeline {
    unit: &'static str,
    unit_us: f64,
    /// Seconds before the sample's start at which preconditioning starts.
    precondition: u32,
    /// Seconds of the sample.
    sample: u32,
    /// Half-open ranges without data, in seconds from the start of the sample.
    gaps: Vec<(f64, f64)>,
    lines: Vec<Line>,
    #[serde(skip)]
    pub(crate) caption: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Line {
    op: &'static str,
    /// `iops`, `p50`, `p99` or `max`.
    figure: &'static str,
    /// Latencies in µs.
    #[serde(flatten)]
    series: Series,
}

/// JSON that may stand inside a `<script>` element: `<`, `>` and `&` are escaped, so that no text in it can end the element.
pub(crate) fn island(chart: &Chart) -> Result<String, serde_json::Error> {
    Ok(escape_island(&serde_json::to_string(chart)?))
}

/// JSON text that may stand inside a `<script>` element.
pub(crate) fn escape_island(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// The operations of a workload, in the order in which they are drawn.
fn parts(ops: &Ops) -> [(&'static str, Option<&Op>); 2] {
    [("read", ops.read.as_ref()), ("write", ops.write.as_ref())]
}

/// IOPS and p99 by footprint, over the cases of one workload. None where nothing was measured.
pub(crate) fn footprints(cases: &[(&Case, &Caveats)], unit: LatencyUnit) -> Option<Chart> {
    let bars = |op: &'static str, pick: fn(&Ops) -> Option<&Op>| OpBars {
        op,
        iops: cases.iter().map(|(case, _)| pick(&case.ops).map(|op| op.iops)).collect(),
        p99_us: cases
            .iter()
            .map(|(case, _)| pick(&case.ops).and_then(|op| op.latency_us.as_ref()).map(|l| l.p99))
            .collect(),
    };
    let ops: Vec<OpBars> = [bars("read", |ops| ops.read.as_ref()), bars("write", |ops| ops.write.as_ref())]
        .into_iter()
        .filter(|bars| bars.iops.iter().any(Option::is_some))
        .collect();
    let footprints = cases
        .iter()
        .map(|(case, caveats)| FootprintBar { label: case.footprint.clone(), mark: caveats.badges.first().cloned() })
        .collect();
    (!ops.is_empty()).then(|| Chart::Footprints { unit: unit.label(), unit_us: unit.us(), footprints, ops })
}

/// Percentile curves over the cases of one workload; each comes with the place of its footprint. None where nothing was measured.
pub(crate) fn percentiles(cases: &[(usize, &Case)], unit: LatencyUnit) -> Option<Chart> {
    let curves: Vec<Curve> = cases
        .iter()
        .flat_map(|(order, case)| {
            parts(&case.ops).into_iter().filter_map(|(op, figures)| {
                let latency = figures?.latency_us.as_ref()?;
                Some(Curve { footprint: case.footprint.clone(), order: *order, op, us: points(latency) })
            })
        })
        .collect();
    (!curves.is_empty()).then(|| Chart::Percentiles { unit: unit.label(), unit_us: unit.us(), curves })
}

/// Percentile curves of any cases under labels, as the content of a chart's island. None where nothing was measured.
pub(crate) fn overlay(cases: &[(String, &Case)], unit: LatencyUnit) -> Result<Option<String>, serde_json::Error> {
    let curves: Vec<Curve> = cases
        .iter()
        .enumerate()
        .flat_map(|(order, (label, case))| {
            parts(&case.ops).into_iter().filter_map(move |(op, figures)| {
                let latency = figures?.latency_us.as_ref()?;
                Some(Curve { footprint: label.clone(), order, op, us: points(latency) })
            })
        })
        .collect();
    if curves.is_empty() {
        return Ok(None);
    }
    island(&Chart::Percentiles { unit: unit.label(), unit_us: unit.us(), curves }).map(Some)
}

fn points(latency: &Latency) -> [f64; 7] {
    [latency.p50, latency.p90, latency.p95, latency.p99, latency.p99_9, latency.p99_99, latency.max]
}

/// IOPS and latency of a case by second, preconditioning before 0. None without any second.
pub(crate) fn timeline(case: &Case, plan: &PlanView, unit: LatencyUnit) -> Option<Timeline> {
    if case.seconds.is_empty() && case.precondition_seconds.is_empty() {
        return None;
    }
    let precondition = precondition_span(case, plan);
    let sample = if case.seconds.is_empty() { 0 } else { sample_span(case, plan) };
    let step = step_seconds(precondition.max(sample));
    let lines = lines(case, precondition, step);
    let mut gaps = phase_gaps(case, precondition, sample);
    let caption = caption(precondition, sample, step, &gaps);
    gaps.sort_by(|a, b| (b.1 - b.0).total_cmp(&(a.1 - a.0)));
    gaps.truncate(SHADED_GAPS);
    Some(Timeline { unit: unit.label(), unit_us: unit.us(), precondition, sample, gaps, lines, caption })
}

fn precondition_span(case: &Case, plan: &PlanView) -> u32 {
    let recorded = recorded_span(&case.precondition_seconds);
    if case.seconds.is_empty() { recorded } else { recorded.max(plan.precondition_seconds.unwrap_or(0)) }
}

fn lines(case: &Case, precondition: u32, step: u32) -> Vec<Line> {
    type Pick = fn(&Second) -> Option<&SecondOp>;
    let operations: [(&'static str, Pick); 2] =
        [("read", |second| second.read.as_ref()), ("write", |second| second.write.as_ref())];
    let (before, sample) = (case.precondition_seconds.as_slice(), case.seconds.as_slice());
    let apart = recorded_span(before) < precondition || sample.first().is_some_and(|second| second.t > 0);
    let mut out = Vec::new();
    for (op, pick) in operations {
        if !before.iter().chain(sample).any(|second| pick(second).is_some()) {
            continue;
        }
        let values = |second: &Second| {
            let op = pick(second);
            [iops_or_stall(op), op.map(|op| op.p50_us), op.map(|op| op.p99_us), op.map(|op| op.max_us)]
        };
        let first = series(before, -f64::from(precondition), step, values);
        let second = series(sample, 0.0, step, values);
        let parts = ["iops", "p50", "p99", "max"].into_iter().zip(first).zip(second);
        out.extend(parts.map(|((figure, first), second)| Line { op, figure, series: join(first, second, apart) }));
    }
    out
}

/// Preconditioning and sample as one line, broken between them where seconds at their seam are missing.
fn join(mut first: Series, second: Series, apart: bool) -> Series {
    if apart && !first.x.is_empty() && !second.x.is_empty() {
        first.x.push(0.0);
        first.y.push(None);
    }
    first.x.extend(second.x);
    first.y.extend(second.y);
    first
}

fn phase_gaps(case: &Case, precondition: u32, sample: u32) -> Vec<(f64, f64)> {
    let before = f64::from(precondition);
    let shifted = |(from, to): (u32, u32)| (f64::from(from) - before, f64::from(to) - before);
    let of_precondition = gaps(&case.precondition_seconds, precondition).into_iter().map(shifted);
    let of_sample = gaps(&case.seconds, sample).into_iter().map(|(from, to)| (f64::from(from), f64::from(to)));
    of_precondition.chain(of_sample).collect()
}

fn caption(precondition: u32, sample: u32, step: u32, gaps: &[(f64, f64)]) -> String {
    let mut parts = vec!["Zero is the start of the sample.".to_owned()];
    if precondition > 0 {
        parts.push("Preconditioning is shaded and in no figure of the tables.".to_owned());
    }
    if sample == 0 {
        parts.push("There is no second of the sample.".to_owned());
    }
    if step > 1 {
        parts.push(format!("A step is {step} seconds, drawn with its lowest and its highest second."));
    }
    if let Some(text) = gap_words(gaps) {
        parts.push(text);
    }
    parts.join(" ")
}

fn gap_words(gaps: &[(f64, f64)]) -> Option<String> {
    let length = |gap: &(f64, f64)| gap.1 - gap.0;
    let missing: f64 = gaps.iter().map(length).sum();
    let mut longest: Vec<&(f64, f64)> = gaps.iter().collect();
    longest.sort_by(|a, b| length(b).total_cmp(&length(a)));
    let places: Vec<String> =
        longest.iter().take(NAMED_GAPS).map(|(from, to)| format!("{from:.0} to {to:.0} s").replace('-', "−")).collect();
    let which = if gaps.len() > places.len() { "the longest: " } else { "" };
    let (seconds, are) = if missing > 1.0 { ("seconds lack", "are") } else { ("second lacks", "is") };
    (missing > 0.0).then(|| format!("{missing:.0} {seconds} a worker and {are} a gap ({which}{}).", places.join(", ")))
}
