//! The report as its templates need it: every text ready, in the order in which it is read.

use std::collections::BTreeMap;

use analysis::export::{Case, EarlyEnd, Export, How};

use super::cases::{WorkloadSection, workloads};
use super::caveats::{Caveats, Notes, of_case};
use super::circumstances::{FillRow, WindowRow, fills, windows};
use super::engine::EngineView;
use super::figures::{FigureGroup, Glance, figures, glance};
use super::plan_view::{EnvironmentView, PlanView};
use super::profile::open_loop;
use crate::format::{self, LatencyUnit, Time};

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
    /// Some case was a closed loop, and some an open one.
    pub(crate) closed_loop: bool,
    pub(crate) open_loop: bool,
    pub(crate) plan_yaml: String,
    pub(crate) engine: EngineView,
    pub(crate) environment: EnvironmentView,
    pub(crate) events: Vec<EventRow>,
    /// One case by itself: its details are open.
    pub(crate) single: bool,
}

/// Where a report's longest tables are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tables {
    /// In the report.
    Inside,
    /// Each case has a page of its own below this path; a short report has them inside nevertheless.
    Apart(String),
}

/// Rows by data disk that a page shows inside, all cases together.
pub(crate) const INSIDE_DISKS: u32 = 400;

/// Who, what, when, where.
pub(crate) struct Head {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) state: String,
    /// `good`, `bad` or `busy`.
    pub(crate) tone: &'static str,
    /// Says what is wrong with an incomplete, failed or cancelled run, or that it still goes on.
    pub(crate) banner: Option<String>,
    /// What was measured is no result.
    pub(crate) rehearsal: bool,
    /// What the engineer says of the run.
    pub(crate) note: String,
    pub(crate) reason: Option<String>,
    pub(crate) ended_early: Option<EndedEarly>,
    pub(crate) started: Time,
    pub(crate) finished: Option<Time>,
    pub(crate) took: Option<String>,
    pub(crate) place: String,
    pub(crate) cases: String,
}

/// Who ended a run before its plan was through.
pub(crate) struct EndedEarly {
    /// `Stopped by` or `Cancelled by`.
    pub(crate) word: &'static str,
    pub(crate) by: String,
    pub(crate) at: Time,
}

pub(crate) struct EventRow {
    pub(crate) at: Time,
    pub(crate) level: String,
    pub(crate) message: String,
}

/// What all parts of one report are built from.
pub(crate) struct Source<'a> {
    pub(crate) export: &'a Export,
    pub(crate) plan: PlanView,
    pub(crate) unit: LatencyUnit,
    /// Of the plan and of the cases, ascending, with their labels.
    pub(crate) footprints: BTreeMap<u64, String>,
    /// Of the plan, then of the cases.
    pub(crate) workloads: Vec<String>,
    /// One a case.
    pub(crate) caveats: Vec<Caveats>,
    pub(crate) tables: Tables,
}

impl ReportView {
    /// # Errors
    /// A figure that JSON cannot hold.
    pub(crate) fn of(export: &Export) -> Result<Self, serde_json::Error> {
        Self::with_tables(export, Tables::Inside)
    }

    /// One case by itself, with all its details.
    ///
    /// # Errors
    /// As [`ReportView::of`].
    pub(crate) fn of_case(export: &Export) -> Result<Self, serde_json::Error> {
        Ok(Self { single: true, ..Self::of(export)? })
    }

    /// [`ReportView::of`] with its longest tables in their place.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn with_tables(export: &Export, tables: Tables) -> Result<Self, serde_json::Error> {
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
            tables: tables.where_needed(export),
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
            closed_loop: export.cases.is_empty() || export.cases.iter().any(|case| open_loop(case).is_none()),
            open_loop: export.cases.iter().any(|case| open_loop(case).is_some()),
            engine: EngineView::of(export),
            plan_yaml: export.run.plan_yaml.clone(),
            environment: EnvironmentView::of(&export.run.environment),
            events: events(export),
            single: false,
        })
    }
}

impl Tables {
    fn where_needed(self, export: &Export) -> Self {
        let disks: usize = export.cases.iter().map(|case| case.per_disk.len()).sum();
        // Samples without hosts: their load was left out, to be shown by itself.
        let hosts_left_out = export.cases.iter().flat_map(|case| &case.hosts).any(|sample| sample.hosts.is_empty());
        if disks > INSIDE_DISKS as usize || hosts_left_out { self } else { Self::Inside }
    }

    /// The page of the case at this place.
    pub(crate) fn page(&self, place: usize) -> Option<String> {
        match self {
            Self::Inside => None,
            Self::Apart(path) => Some(format!("{path}/{}", place + 1)),
        }
    }
}

impl<'a> Source<'a> {
    /// Cases of one workload with their index, by footprint.
    pub(crate) fn cases_of(&self, workload: &str) -> Vec<(usize, &'a Case)> {
        let mut cases: Vec<_> =
            self.export.cases.iter().enumerate().filter(|(_, case)| case.workload == workload).collect();
        cases.sort_by_key(|(_, case)| case.footprint_bytes);
        cases
    }

    pub(crate) fn case(&self, workload: &str, footprint_bytes: u64) -> Option<(usize, &'a Case)> {
        self.cases_of(workload).into_iter().find(|(_, case)| case.footprint_bytes == footprint_bytes)
    }

    /// What stands in the place of a case that is not there.
    pub(crate) fn not_measured(&self) -> &'static str {
        let run = &self.export.run;
        match verdict(&run.state, run.complete) {
            (_, "busy", _) => "not yet measured",
            (state, ..) if state == "stopped" => "not run",
            _ => "not measured",
        }
    }

    /// The case of the run's smallest footprint, which the ratios of a workload refer to.
    pub(crate) fn base(&self, workload: &str) -> Option<(usize, &'a Case)> {
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
    let all = export.cases.iter().flat_map(|case| [Some(&case.ops), case.service.as_ref()]).flatten();
    let ops = all.flat_map(|ops| [&ops.read, &ops.write]).flatten();
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
        rehearsal: run.rehearsal,
        note: run.note.clone(),
        reason: run.reason.clone(),
        ended_early: run.ended_early.as_ref().map(ended_early),
        started: Time(run.started),
        finished: run.finished.map(Time),
        took: run.finished.map(|end| format::duration(end.duration_since(run.started).as_secs_f64())),
        place: place(source),
        cases: format!("{complete} of {planned}"),
    }
}

fn ended_early(end: &EarlyEnd) -> EndedEarly {
    let word = match end.how {
        How::Stop => "Stopped by",
        How::Cancel => "Cancelled by",
    };
    EndedEarly { word, by: end.by.clone(), at: Time(end.at) }
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
        ("stopped", _) => {
            let banner = "This run was stopped early. The cases that were measured by then are below; the others of its plan were not run.";
            ("stopped".to_owned(), "bad", Some(banner.to_owned()))
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

fn events(export: &Export) -> Vec<EventRow> {
    let row = |event: &analysis::export::Event| EventRow {
        at: Time(event.at),
        level: event.level.clone(),
        message: event.message.clone(),
    };
    export.run.events.iter().map(row).collect()
}

pub(crate) fn workload_anchor(source: &Source<'_>, workload: &str) -> String {
    let place = source.workloads.iter().position(|name| name == workload).unwrap_or(0);
    format!("workload-{}", place + 1)
}

pub(crate) fn case_anchor(index: usize) -> String {
    format!("case-{}", index + 1)
}
