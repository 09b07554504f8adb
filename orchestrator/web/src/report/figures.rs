//! The tables of figures: workloads × footprints.

use analysis::export::{Case, Latency, Op, Ops};

use super::profile::profile;
use super::view::{Source, workload_anchor};
use crate::format::{self, LatencyUnit, Marks, Num};

/// Workloads × footprints, the main figures.
pub(crate) struct Glance {
    pub(crate) footprints: Vec<String>,
    pub(crate) rows: Vec<GlanceRow>,
}

pub(crate) struct GlanceRow {
    pub(crate) workload: String,
    pub(crate) profile: String,
    /// Of its section, if it has one.
    pub(crate) anchor: Option<String>,
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
    /// Open loop: median and 99th percentile of the service time.
    pub(crate) service: Option<(Num, Num)>,
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
    /// Open loop: the latencies are service times, and the figures before them are those of the row above.
    pub(crate) service: bool,
    pub(crate) badges: Vec<String>,
    pub(crate) marks: Marks,
    pub(crate) figures: OpFigures,
    pub(crate) iops_ratio: String,
    pub(crate) p99_ratio: String,
    /// Notes of the figures that the ratios refer to.
    pub(crate) base_marks: Marks,
}

impl FigureGroup {
    /// Leaves the rows of one footprint, or none; answers whether there are any.
    pub(crate) fn keep(&mut self, footprint: Option<&str>) -> bool {
        let mut of_it = false;
        self.rows.retain(|row| {
            // Only the first row of a footprint names it.
            of_it = if row.footprint.is_empty() { of_it } else { Some(row.footprint.as_str()) == footprint };
            of_it
        });
        !self.rows.is_empty()
    }
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

pub(crate) fn glance(source: &Source<'_>) -> Glance {
    let rows = source.workloads.iter().map(|workload| {
        let cells = source.footprints.keys().map(|bytes| glance_cell(source, workload, *bytes)).collect();
        GlanceRow {
            workload: workload.clone(),
            profile: source.cases_of(workload).first().map(|(_, case)| profile(case)).unwrap_or_default(),
            anchor: (!source.cases_of(workload).is_empty()).then(|| workload_anchor(source, workload)),
            cells,
        }
    });
    Glance { footprints: source.footprints.values().cloned().collect(), rows: rows.collect() }
}

fn glance_cell(source: &Source<'_>, workload: &str, bytes: u64) -> GlanceCell {
    let Some((index, case)) = source.case(workload, bytes) else {
        return GlanceCell {
            figures: None,
            badges: vec![source.not_measured().to_owned()],
            marks: Marks::default(),
            base_marks: Marks::default(),
        };
    };
    let base = source.base(workload).filter(|(base, _)| *base != index);
    let figures = main_op(&case.ops).map(|(op, figures)| {
        let latency = figures.latency_us.as_ref();
        let show = |pick: fn(&Latency) -> f64| latency.map_or_else(Num::missing, |l| source.unit.show(pick(l)));
        let service = case.service.as_ref().and_then(|service| op_named(service, op)?.latency_us.as_ref());
        GlanceFigures {
            iops: format::iops(figures.iops),
            mib_per_s: format::mib_per_s(figures.mib_per_s),
            p50: show(|l| l.p50),
            p99: show(|l| l.p99),
            service: service.map(|l| (source.unit.show(l.p50), source.unit.show(l.p99))),
            ratio: base
                .and_then(|(_, base)| op_named(&base.ops, op))
                .map(|base| format::ratio(figures.iops / base.iops)),
        }
    });
    let caveats = &source.caveats[index];
    let base_marks = base.map(|(base, _)| source.caveats[base].marks("all")).unwrap_or_default();
    GlanceCell { figures, badges: caveats.badges.clone(), marks: caveats.marks("all"), base_marks }
}

pub(crate) fn op_named<'a>(ops: &'a Ops, name: &str) -> Option<&'a Op> {
    match name {
        "read" => ops.read.as_ref(),
        "write" => ops.write.as_ref(),
        _ => ops.all.as_ref(),
    }
}

/// The operations of a case that its tables list: all three where it is mixed.
pub(crate) fn listed_ops(ops: &Ops) -> Vec<(&'static str, &Op)> {
    match (&ops.all, &ops.read, &ops.write) {
        (Some(all), Some(read), Some(write)) => vec![("all", all), ("read", read), ("write", write)],
        (None, Some(read), Some(write)) => vec![("read", read), ("write", write)],
        _ => main_op(ops).into_iter().collect(),
    }
}

pub(crate) fn op_figures(op: &Op, unit: LatencyUnit) -> OpFigures {
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

pub(crate) fn figures(source: &Source<'_>) -> Vec<FigureGroup> {
    let group = |workload: &String| FigureGroup {
        workload: workload.clone(),
        profile: source.cases_of(workload).first().map(|(_, case)| profile(case)).unwrap_or_default(),
        rows: source
            .footprints
            .iter()
            .flat_map(|(bytes, label)| match source.case(workload, *bytes) {
                Some((index, case)) => case_rows(source, index, case),
                None => vec![missing_row(label, vec![source.not_measured().to_owned()], Marks::default())],
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
        service: false,
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
    let mut rows: Vec<FigureRow> = Vec::new();
    for (name, op) in &ops {
        let other = base.filter(|(base, _)| *base != index);
        let base = base.and_then(|(_, base)| op_named(&base.ops, name));
        rows.push(FigureRow {
            footprint: String::new(),
            span: 1,
            op: if *name == "all" { "both" } else { name },
            service: false,
            badges: Vec::new(),
            marks: caveats.marks(name),
            figures: op_figures(op, source.unit),
            iops_ratio: base.map_or_else(|| "–".to_owned(), |base| format::ratio(op.iops / base.iops)),
            p99_ratio: ratio_of(op, base, |latency| latency.p99),
            base_marks: other.map(|(base, _)| source.caveats[base].marks(name)).unwrap_or_default(),
        });
        rows.extend(service_row(source, index, case, name));
    }
    let span = rows.len();
    if let Some(first) = rows.first_mut() {
        (first.footprint, first.span, first.badges) = (case.footprint.clone(), span, caveats.badges.clone());
    }
    rows
}

/// Service times of an operation, beside its response times; none in a closed loop.
fn service_row(source: &Source<'_>, index: usize, case: &Case, name: &'static str) -> Option<FigureRow> {
    let op = op_named(case.service.as_ref()?, name)?;
    let base = source.base(&case.workload).and_then(|(_, base)| op_named(base.service.as_ref()?, name));
    let figures = OpFigures { iops: Num::missing(), mib_per_s: Num::missing(), ..op_figures(op, source.unit) };
    Some(FigureRow {
        footprint: String::new(),
        span: 1,
        op: if name == "all" { "both" } else { name },
        service: true,
        badges: Vec::new(),
        marks: source.caveats[index].marks(name),
        figures,
        iops_ratio: "–".to_owned(),
        p99_ratio: ratio_of(op, base, |latency| latency.p99),
        base_marks: Marks::default(),
    })
}

fn ratio_of(op: &Op, base: Option<&Op>, pick: fn(&Latency) -> f64) -> String {
    let figure = |op: &Op| op.latency_us.as_ref().map(pick);
    match (figure(op), base.and_then(figure)) {
        (Some(own), Some(base)) => format::ratio(own / base),
        _ => "–".to_owned(),
    }
}
