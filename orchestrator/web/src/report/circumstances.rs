//! Under which circumstances the figures came about: the fill of each footprint and the window of each case.

use analysis::export::{Case, Op, SteadyState};

use super::view::{Source, case_anchor};
use crate::format::{self, Marks, Num, Time};

pub(crate) struct FillRow {
    pub(crate) footprint: String,
    pub(crate) asked: String,
    pub(crate) effective: String,
    pub(crate) region: String,
    pub(crate) bytes: String,
    pub(crate) exact_bytes: String,
    pub(crate) seconds: Num,
    pub(crate) mib_per_s: Num,
    pub(crate) verified: String,
    pub(crate) filled: bool,
}

pub(crate) struct WindowRow {
    pub(crate) workload: String,
    pub(crate) footprint: String,
    pub(crate) anchor: String,
    pub(crate) state: String,
    pub(crate) complete: bool,
    pub(crate) started: Option<Time>,
    pub(crate) window: Num,
    pub(crate) workers: String,
    pub(crate) steady: String,
    /// Range of the last rounds and excursion of their trend, percent of their mean.
    pub(crate) steady_figures: Option<String>,
    pub(crate) skew: Num,
    pub(crate) drift: Num,
    pub(crate) unfinished: String,
    pub(crate) oldest: Num,
    pub(crate) errors: String,
    pub(crate) over_range: String,
    pub(crate) marks: Marks,
}

pub(crate) fn fills(source: &Source<'_>) -> Vec<FillRow> {
    let first_of = |bytes: &u64| source.export.cases.iter().find(|case| case.footprint_bytes == *bytes);
    source.footprints.keys().filter_map(first_of).map(fill_row).collect()
}

fn fill_row(case: &Case) -> FillRow {
    let fill = case.fill.as_ref();
    let rate = fill.map(|fill| fill.bytes as f64 / fill.seconds / f64::from(1u32 << 20));
    FillRow {
        footprint: case.footprint.clone(),
        asked: format::count(case.footprint_bytes),
        effective: format::count(case.effective_bytes),
        region: format::bytes(case.region_bytes),
        bytes: fill.map_or_else(|| "nothing".to_owned(), |fill| format::bytes(fill.bytes)),
        exact_bytes: fill.map(|fill| format::count(fill.bytes)).unwrap_or_default(),
        seconds: fill.map_or_else(Num::missing, |fill| format::elapsed(fill.seconds)),
        mib_per_s: rate.map_or_else(Num::missing, format::mib_per_s),
        verified: fill.map_or_else(|| "–".to_owned(), |fill| format::count(fill.verified_blocks)),
        filled: fill.is_some(),
    }
}

pub(crate) fn windows(source: &Source<'_>) -> Vec<WindowRow> {
    source.export.cases.iter().enumerate().map(|(index, case)| window_row(source, index, case)).collect()
}

fn window_row(source: &Source<'_>, index: usize, case: &Case) -> WindowRow {
    let sum = |pick: fn(&Op) -> u64| {
        let parts = [&case.ops.read, &case.ops.write].into_iter().flatten().map(pick);
        format::count(parts.fold(0, u64::saturating_add))
    };
    let us = |value: Option<f64>| value.map_or_else(Num::missing, format::microseconds);
    WindowRow {
        workload: case.workload.clone(),
        footprint: case.footprint.clone(),
        anchor: case_anchor(index),
        state: case.state.clone(),
        complete: case.state == "complete",
        started: case.started.map(Time),
        window: format::seconds(case.window_seconds),
        workers: format!("{} of {}", case.workers.measured, case.workers.expected),
        steady: case.steady_state.as_ref().map_or_else(|| "–".to_owned(), |steady| steady.verdict.replace('-', " ")),
        steady_figures: case.steady_state.as_ref().and_then(steady_figures),
        skew: us(case.start_skew_us),
        drift: us(case.clock_drift_us),
        unfinished: format::count(case.unfinished.count),
        oldest: case.unfinished.oldest_us.map_or_else(Num::missing, |us| source.unit.show(us)),
        errors: sum(|op| op.errors),
        over_range: sum(|op| op.over_range),
        marks: source.caveats[index].marks("all"),
    }
}

fn steady_figures(steady: &SteadyState) -> Option<String> {
    let (range, excursion) = (steady.range_percent?, steady.excursion_percent?);
    Some(format!("range {range:.1} %, trend {excursion:.1} %"))
}
