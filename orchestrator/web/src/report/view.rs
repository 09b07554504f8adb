//! The report as its templates need it: every text ready, in the order in which it is read.

use std::collections::BTreeMap;

use analysis::export::{Case, Export, Latency, Op, Ops};

use super::caveats::{Caveats, Notes, of_case};
use super::charts::{self, island};
use super::plan_view::{PlanView, flatten};
use crate::format::{self, LatencyUnit, Marks, Num, Time};

/// A report.
pub(crate) struct ReportView {
    pub(crate) head: Head,
    pub(crate) unit: &'static str,
    /// Of the run: they concern every figure.
    pub(crate) warnings: Vec<String>,
    pub(crate) glance: Glance,
    pub(crate) figures: Vec<FigureGroup>,
    pub(crate) notes: Vec<(usize, String)>,
    pub(crate) workloads: Vec<WorkloadSection>,
    pub(crate) fills: Vec<FillRow>,
    pub(crate) windows: Vec<WindowRow>,
    pub(crate) plan_yaml: String,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) events: Vec<EventRow>,
}

/// Who, what, when, where.
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) state: String,
    /// `good`, `bad` or `busy`.
    pub(crate) tone: &'static str,
    /// Says what is wrong with an incomplete, failed or cancelled run, or that it still goes on.
    pub(crate) banner: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) started: Time,
    pub(crate) finished: Option<Time>,
    pub(crate) took: Option<String>,
    pub(crate) place: String,
    pub(crate) cases: String,
}

/// Workloads × footprints, the main figures.
pub(crate) struct Glance {
    pub(crate) footprints: Vec<String>,
    pub(crate) rows: Vec<GlanceRow>,
}

pub(crate) struct GlanceRow {
    pub(crate) workload: String,
    pub(crate) profile: String,
    pub(crate) anchor: String,
    pub(crate) cells: Vec<GlanceCell>,
}

pub(crate) struct GlanceCell {
    pub(crate) figures: Option<GlanceFigures>,
    pub(crate) badges: Vec<String>,
    pub(crate) marks: Marks,
    /// Notes of the figures that the ratio refers to.
    pub(crate) base_marks: Marks,
}

pub(crate) struct GlanceFigures {
    pub(crate) iops: Num,
    pub(crate) mib_per_s: Num,
    pub(crate) p50: Num,
    pub(crate) p99: Num,
    pub(crate) ratio: Option<String>,
}

/// All figures of one workload.
pub(crate) struct FigureGroup {
    pub(crate) workload: String,
    pub(crate) profile: String,
    pub(crate) rows: Vec<FigureRow>,
}

pub(crate) struct FigureRow {
    /// Empty where the row above is of the same footprint.
    pub(crate) footprint: String,
    pub(crate) span: usize,
    pub(crate) op: &'static str,
    pub(crate) badges: Vec<String>,
    pub(crate) marks: Marks,
    pub(crate) figures: OpFigures,
    pub(crate) iops_ratio: String,
    pub(crate) p99_ratio: String,
    /// Notes of the figures that the ratios refer to.
    pub(crate) base_marks: Marks,
}

/// One operation's figures.
pub(crate) struct OpFigures {
    pub(crate) iops: Num,
    pub(crate) mib_per_s: Num,
    pub(crate) mean: Num,
    pub(crate) p50: Num,
    pub(crate) p95: Num,
    pub(crate) p99: Num,
    pub(crate) p99_9: Num,
    pub(crate) max: Num,
    pub(crate) errors: String,
}

pub(crate) struct WorkloadSection {
    pub(crate) name: String,
    pub(crate) anchor: String,
    pub(crate) profile: String,
    pub(crate) footprints_chart: Option<String>,
    pub(crate) percentiles_chart: Option<String>,
    pub(crate) cases: Vec<CaseSection>,
}

pub(crate) struct CaseSection {
    pub(crate) footprint: String,
    pub(crate) anchor: String,
    pub(crate) state: String,
    pub(crate) complete: bool,
    pub(crate) reason: Option<String>,
    pub(crate) facts: String,
    pub(crate) timeline: Option<String>,
    pub(crate) timeline_caption: String,
    pub(crate) per_worker: Vec<PartRow>,
    pub(crate) per_disk: Vec<PartRow>,
}

/// A worker's or a disk's figures of one operation.
pub(crate) struct PartRow {
    pub(crate) worker: String,
    pub(crate) disk: String,
    pub(crate) op: &'static str,
    pub(crate) figures: OpFigures,
    /// IOPS divided by the median of its like.
    pub(crate) to_median: String,
    /// IOPS in percent of the largest of its like, for a bar.
    pub(crate) share: String,
    pub(crate) window: String,
    /// Its window is not that of the cluster's figures.
    pub(crate) own_window: bool,
}

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
    pub(crate) skew: Num,
    pub(crate) drift: Num,
    pub(crate) unfinished: String,
    pub(crate) oldest: Num,
    pub(crate) errors: String,
    pub(crate) over_range: String,
    pub(crate) marks: Marks,
}

pub(crate) struct EventRow {
    pub(crate) at: Time,
    pub(crate) level: String,
    pub(crate) message: String,
}

/// What all parts of one report are built from.
struct Source<'a> {
    export: &'a Export,
    plan: PlanView,
    unit: LatencyUnit,
    /// Of the plan and of the cases, ascending, with their labels.
    footprints: BTreeMap<u64, String>,
    /// Of the plan, then of the cases.
    workloads: Vec<String>,
    caveats: Vec<Caveats>,
}

impl ReportView {
    /// # Errors
    /// A figure that JSON cannot hold.
    pub(crate) fn of(export: &Export) -> Result<Self, serde_json::Error> {
        let plan = PlanView::of(&export.run.plan);
        let mut notes = Notes::default();
        let caveats = export.cases.iter().map(|case| of_case(case, &plan, &mut notes)).collect();
        let source = Source {
            export,
            unit: LatencyUnit::for_smallest_median(smallest_median(export)),
            footprints: all_footprints(export, &plan),
            workloads: all_workloads(export, &plan),
            caveats,
            plan,
        };
        Ok(Self {
            head: head(&source),
            unit: source.unit.label(),
            warnings: export.run.warnings.clone(),
            glance: glance(&source),
            figures: figures(&source),
            notes: notes.numbered(),
            workloads: workloads(&source)?,
            fills: fills(&source),
            windows: windows(&source),
            plan_yaml: export.run.plan_yaml.clone(),
            environment: flatten(&export.run.environment),
            events: events(export),
        })
    }
}

impl<'a> Source<'a> {
    /// Cases of one workload with their index, by footprint.
    fn cases_of(&self, workload: &str) -> Vec<(usize, &'a Case)> {
        let mut cases: Vec<_> =
            self.export.cases.iter().enumerate().filter(|(_, case)| case.workload == workload).collect();
        cases.sort_by_key(|(_, case)| case.footprint_bytes);
        cases
    }

    fn case(&self, workload: &str, footprint_bytes: u64) -> Option<(usize, &'a Case)> {
        self.cases_of(workload).into_iter().find(|(_, case)| case.footprint_bytes == footprint_bytes)
    }

    /// The case of the run's smallest footprint, which the ratios of a workload refer to.
    fn base(&self, workload: &str) -> Option<(usize, &'a Case)> {
        self.footprints.keys().next().and_then(|bytes| self.case(workload, *bytes))
    }
}

fn all_footprints(export: &Export, plan: &PlanView) -> BTreeMap<u64, String> {
    let mut all: BTreeMap<u64, String> =
        plan.footprints.iter().filter(|f| f.bytes > 0).map(|f| (f.bytes, f.label.clone())).collect();
    for case in &export.cases {
        all.entry(case.footprint_bytes).or_insert_with(|| case.footprint.clone());
    }
    all
}

fn all_workloads(export: &Export, plan: &PlanView) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let planned = plan.workloads.iter().map(|workload| &workload.name);
    for name in planned.chain(export.cases.iter().map(|case| &case.workload)) {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

fn smallest_median(export: &Export) -> Option<f64> {
    let ops = export.cases.iter().flat_map(|case| [&case.ops.read, &case.ops.write]).flatten();
    ops.filter_map(|op| op.latency_us.as_ref()).map(|latency| latency.p50).min_by(f64::total_cmp)
}

fn head(source: &Source<'_>) -> Head {
    let run = &source.export.run;
    let complete = source.export.cases.iter().filter(|case| case.state == "complete").count();
    let planned = source.footprints.len() * source.workloads.len();
    let (state, tone, banner) = verdict(run.state.as_str(), run.complete);
    Head {
        name: run.name.clone(),
        id: run.id.clone(),
        state,
        tone,
        banner,
        reason: run.reason.clone(),
        started: Time(run.started),
        finished: run.finished.map(Time),
        took: run.finished.map(|end| format::duration(end.duration_since(run.started).as_secs_f64())),
        place: place(source),
        cases: format!("{complete} of {planned}"),
    }
}

/// State in words, tone and banner of a run.
pub(crate) fn verdict(state: &str, complete: bool) -> (String, &'static str, Option<String>) {
    match (state, complete) {
        ("done", true) => ("complete".to_owned(), "good", None),
        ("done", false) => {
            let banner = "This run is incomplete: something that the plan asked for is missing. The figures concerned are marked.";
            ("incomplete".to_owned(), "bad", Some(banner.to_owned()))
        }
        ("failed", _) => {
            let banner = "This run failed. What was measured before is below; it is not the whole plan.";
            ("failed".to_owned(), "bad", Some(banner.to_owned()))
        }
        ("cancelled", _) => {
            let banner = "This run was cancelled. What was measured before is below; it is not the whole plan.";
            ("cancelled".to_owned(), "bad", Some(banner.to_owned()))
        }
        (other, _) => {
            let banner = "This run has not ended. Figures of cases that are still running will change.";
            (other.to_owned(), "busy", Some(banner.to_owned()))
        }
    }
}

fn place(source: &Source<'_>) -> String {
    let provider = source.plan.target.provider.as_deref().map(|provider| match provider {
        "local" => "processes on one machine (provider local)".to_owned(),
        other => format!("provider {other}"),
    });
    let workers = match (source.plan.workers.count, source.plan.workers.disks) {
        (Some(count), Some(disks)) => Some(format!("{} × {}", plural(count, "worker"), plural(disks, "data disk"))),
        _ => None,
    };
    let host = ["hostname", "host"].into_iter().find_map(|key| source.export.run.environment.get(key)?.as_str());
    [host.map(str::to_owned), workers, provider].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{} {word}s", format::count(count.into())) }
}

fn profile(case: &Case) -> String {
    let share = match case.read_percent {
        0 => "write".to_owned(),
        100 => "read".to_owned(),
        reads => format!("{reads} % read, {} % write", 100 - reads.min(100)),
    };
    format!(
        "{} {}, {share}, {} outstanding a disk",
        format::bytes(case.block_bytes),
        case.pattern,
        format::count(case.outstanding_per_disk.into())
    )
}

/// The operation that stands for the case, with its name.
fn main_op(ops: &Ops) -> Option<(&'static str, &Op)> {
    match (&ops.all, &ops.read, &ops.write) {
        (Some(all), Some(_), Some(_)) => Some(("all", all)),
        (_, Some(read), None) => Some(("read", read)),
        (_, None, Some(write)) => Some(("write", write)),
        (Some(all), None, None) => Some(("all", all)),
        _ => None,
    }
}

fn glance(source: &Source<'_>) -> Glance {
    let rows = source.workloads.iter().map(|workload| {
        let cells = source.footprints.keys().map(|bytes| glance_cell(source, workload, *bytes)).collect();
        GlanceRow {
            workload: workload.clone(),
            profile: source.cases_of(workload).first().map(|(_, case)| profile(case)).unwrap_or_default(),
            anchor: workload_anchor(source, workload),
            cells,
        }
    });
    Glance { footprints: source.footprints.values().cloned().collect(), rows: rows.collect() }
}

fn glance_cell(source: &Source<'_>, workload: &str, bytes: u64) -> GlanceCell {
    let Some((index, case)) = source.case(workload, bytes) else {
        return GlanceCell {
            figures: None,
            badges: vec!["not measured".to_owned()],
            marks: Marks::default(),
            base_marks: Marks::default(),
        };
    };
    let base = source.base(workload).filter(|(base, _)| *base != index);
    let figures = main_op(&case.ops).map(|(op, figures)| {
        let latency = figures.latency_us.as_ref();
        let show = |pick: fn(&Latency) -> f64| latency.map_or_else(Num::missing, |l| source.unit.show(pick(l)));
        GlanceFigures {
            iops: format::iops(figures.iops),
            mib_per_s: format::mib_per_s(figures.mib_per_s),
            p50: show(|l| l.p50),
            p99: show(|l| l.p99),
            ratio: base
                .and_then(|(_, base)| op_named(&base.ops, op))
                .map(|base| format::ratio(figures.iops / base.iops)),
        }
    });
    let caveats = &source.caveats[index];
    let base_marks = base.map(|(base, _)| source.caveats[base].marks("all")).unwrap_or_default();
    GlanceCell { figures, badges: caveats.badges.clone(), marks: caveats.marks("all"), base_marks }
}

fn op_named<'a>(ops: &'a Ops, name: &str) -> Option<&'a Op> {
    match name {
        "read" => ops.read.as_ref(),
        "write" => ops.write.as_ref(),
        _ => ops.all.as_ref(),
    }
}

/// The operations of a case that its tables list: all three where it is mixed.
fn listed_ops(ops: &Ops) -> Vec<(&'static str, &Op)> {
    match (&ops.all, &ops.read, &ops.write) {
        (Some(all), Some(read), Some(write)) => vec![("all", all), ("read", read), ("write", write)],
        (None, Some(read), Some(write)) => vec![("read", read), ("write", write)],
        _ => main_op(ops).into_iter().collect(),
    }
}

fn op_figures(op: &Op, unit: LatencyUnit) -> OpFigures {
    let latency = op.latency_us.as_ref();
    let show = |pick: fn(&Latency) -> f64| latency.map_or_else(Num::missing, |l| unit.show(pick(l)));
    OpFigures {
        iops: format::iops(op.iops),
        mib_per_s: format::mib_per_s(op.mib_per_s),
        mean: show(|l| l.mean),
        p50: show(|l| l.p50),
        p95: show(|l| l.p95),
        p99: show(|l| l.p99),
        p99_9: show(|l| l.p99_9),
        max: show(|l| l.max),
        errors: format::count(op.errors),
    }
}

fn no_figures() -> OpFigures {
    OpFigures {
        iops: Num::missing(),
        mib_per_s: Num::missing(),
        mean: Num::missing(),
        p50: Num::missing(),
        p95: Num::missing(),
        p99: Num::missing(),
        p99_9: Num::missing(),
        max: Num::missing(),
        errors: "–".to_owned(),
    }
}

fn figures(source: &Source<'_>) -> Vec<FigureGroup> {
    let group = |workload: &String| FigureGroup {
        workload: workload.clone(),
        profile: source.cases_of(workload).first().map(|(_, case)| profile(case)).unwrap_or_default(),
        rows: source
            .footprints
            .iter()
            .flat_map(|(bytes, label)| match source.case(workload, *bytes) {
                Some((index, case)) => case_rows(source, index, case),
                None => vec![missing_row(label, vec!["not measured".to_owned()], Marks::default())],
            })
            .collect(),
    };
    source.workloads.iter().map(group).collect()
}

fn missing_row(label: &str, badges: Vec<String>, marks: Marks) -> FigureRow {
    FigureRow {
        footprint: label.to_owned(),
        span: 1,
        op: "–",
        badges,
        marks,
        figures: no_figures(),
        iops_ratio: "–".to_owned(),
        p99_ratio: "–".to_owned(),
        base_marks: Marks::default(),
    }
}

fn case_rows(source: &Source<'_>, index: usize, case: &Case) -> Vec<FigureRow> {
    let caveats = &source.caveats[index];
    let ops = listed_ops(&case.ops);
    if ops.is_empty() {
        return vec![missing_row(&case.footprint, caveats.badges.clone(), caveats.marks("all"))];
    }
    let base = source.base(&case.workload);
    let row = |(place, (name, op)): (usize, &(&'static str, &Op))| {
        let other = base.filter(|(base, _)| *base != index);
        let base = base.and_then(|(_, base)| op_named(&base.ops, name));
        FigureRow {
            footprint: if place == 0 { case.footprint.clone() } else { String::new() },
            span: ops.len(),
            op: if *name == "all" { "both" } else { name },
            badges: if place == 0 { caveats.badges.clone() } else { Vec::new() },
            marks: caveats.marks(name),
            figures: op_figures(op, source.unit),
            iops_ratio: base.map_or_else(|| "–".to_owned(), |base| format::ratio(op.iops / base.iops)),
            p99_ratio: ratio_of(op, base, |latency| latency.p99),
            base_marks: other.map(|(base, _)| source.caveats[base].marks(name)).unwrap_or_default(),
        }
    };
    ops.iter().enumerate().map(row).collect()
}

fn ratio_of(op: &Op, base: Option<&Op>, pick: fn(&Latency) -> f64) -> String {
    let figure = |op: &Op| op.latency_us.as_ref().map(pick);
    match (figure(op), base.and_then(figure)) {
        (Some(own), Some(base)) => format::ratio(own / base),
        _ => "–".to_owned(),
    }
}

fn workload_anchor(source: &Source<'_>, workload: &str) -> String {
    let place = source.workloads.iter().position(|name| name == workload).unwrap_or(0);
    format!("workload-{}", place + 1)
}

fn case_anchor(index: usize) -> String {
    format!("case-{}", index + 1)
}

fn workloads(source: &Source<'_>) -> Result<Vec<WorkloadSection>, serde_json::Error> {
    let measured = |workload: &&String| !source.cases_of(workload).is_empty();
    source.workloads.iter().filter(measured).map(|workload| workload_section(source, workload)).collect()
}

fn workload_section(source: &Source<'_>, workload: &str) -> Result<WorkloadSection, serde_json::Error> {
    let cases = source.cases_of(workload);
    let with_caveats: Vec<_> = cases.iter().map(|(index, case)| (*case, &source.caveats[*index])).collect();
    let order = |case: &Case| source.footprints.keys().position(|bytes| *bytes == case.footprint_bytes).unwrap_or(0);
    let ordered: Vec<_> = cases.iter().map(|(_, case)| (order(case), *case)).collect();
    Ok(WorkloadSection {
        name: workload.to_owned(),
        anchor: workload_anchor(source, workload),
        profile: cases.first().map(|(_, case)| profile(case)).unwrap_or_default(),
        footprints_chart: charts::footprints(&with_caveats, source.unit).as_ref().map(island).transpose()?,
        percentiles_chart: charts::percentiles(&ordered, source.unit).as_ref().map(island).transpose()?,
        cases: cases.iter().map(|(index, case)| case_section(source, *index, case)).collect::<Result<_, _>>()?,
    })
}

fn case_section(source: &Source<'_>, index: usize, case: &Case) -> Result<CaseSection, serde_json::Error> {
    let timeline = charts::timeline(case, &source.plan, source.unit);
    let timeline_caption = timeline.as_ref().map(|timeline| timeline.caption.clone()).unwrap_or_default();
    let workers = case.per_worker.iter().map(|part| (part.worker.as_str(), "", part.window_seconds, &part.ops));
    let disks =
        case.per_disk.iter().map(|part| (part.worker.as_str(), part.disk.as_str(), part.window_seconds, &part.ops));
    Ok(CaseSection {
        footprint: case.footprint.clone(),
        anchor: case_anchor(index),
        state: case.state.clone(),
        complete: case.state == "complete",
        reason: case.reason.clone(),
        facts: case_facts(case),
        timeline: timeline.map(|timeline| island(&charts::Chart::Timeline(Box::new(timeline)))).transpose()?,
        timeline_caption,
        per_worker: part_rows(&workers.collect::<Vec<_>>(), case.window_seconds, source.unit),
        per_disk: part_rows(&disks.collect::<Vec<_>>(), case.window_seconds, source.unit),
    })
}

fn case_facts(case: &Case) -> String {
    let window = format::seconds(case.window_seconds);
    format!(
        "{} measured ({} a disk), window {} s, {} of {} workers",
        format::bytes(case.effective_bytes),
        format::bytes(case.region_bytes),
        window.text(),
        case.workers.measured,
        case.workers.expected
    )
}

type Part<'a> = (&'a str, &'a str, f64, &'a Ops);

fn part_rows(parts: &[Part<'_>], case_window: f64, unit: LatencyUnit) -> Vec<PartRow> {
    let iops = |name: &str| -> Vec<f64> {
        let mut all: Vec<f64> = parts.iter().filter_map(|part| op_named(part.3, name)).map(|op| op.iops).collect();
        all.sort_by(f64::total_cmp);
        all
    };
    let sorted: BTreeMap<&str, Vec<f64>> =
        ["read", "write", "all"].into_iter().map(|name| (name, iops(name))).collect();
    let row = |(worker, disk, window, ops): &Part<'_>| {
        let own_window = (window - case_window).abs() > 0.05;
        let named = |(name, op): (&'static str, &Op)| PartRow {
            worker: (*worker).to_owned(),
            disk: (*disk).to_owned(),
            op: if name == "all" { "both" } else { name },
            figures: op_figures(op, unit),
            to_median: format::ratio(op.iops / median(&sorted[name])),
            share: format!(
                "{:.1}",
                100.0 * op.iops / sorted[name].last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE)
            ),
            window: format::seconds(*window).text().to_owned(),
            own_window,
        };
        listed_ops(ops).into_iter().map(named).collect::<Vec<_>>()
    };
    parts.iter().flat_map(row).collect()
}

/// Median of sorted values; NaN of none.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        even if even.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

fn fills(source: &Source<'_>) -> Vec<FillRow> {
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
        seconds: fill.map_or_else(Num::missing, |fill| format::seconds(fill.seconds)),
        mib_per_s: rate.map_or_else(Num::missing, format::mib_per_s),
        verified: fill.map_or_else(|| "–".to_owned(), |fill| format::count(fill.verified_blocks)),
        filled: fill.is_some(),
    }
}

fn windows(source: &Source<'_>) -> Vec<WindowRow> {
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
        skew: us(case.start_skew_us),
        drift: us(case.clock_drift_us),
        unfinished: format::count(case.unfinished.count),
        oldest: case.unfinished.oldest_us.map_or_else(Num::missing, |us| source.unit.show(us)),
        errors: sum(|op| op.errors),
        over_range: sum(|op| op.over_range),
        marks: source.caveats[index].marks("all"),
    }
}

fn events(export: &Export) -> Vec<EventRow> {
    let row = |event: &analysis::export::Event| EventRow {
        at: Time(event.at),
        level: event.level.clone(),
        message: event.message.clone(),
    };
    export.run.events.iter().map(row).collect()
}
