//! A section a workload, and in it one a case: charts, workers, data disks.

use std::collections::BTreeMap;

use analysis::export::{Case, Op, Ops, PerHost};

use super::charts::{self, island};
use super::figures::{OpFigures, listed_ops, op_figures, op_named};
use super::hosts::{self, HostRow, StorageRow};
use super::incidents::{self, IncidentRow};
use super::profile::profile;
use super::view::{Source, case_anchor, workload_anchor};
use crate::format::{self, LatencyUnit};

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
    /// Open loop: how the rate was kept.
    pub(crate) pacing: Option<String>,
    pub(crate) generator: Option<String>,
    /// Disks with errors, stalls, or counters that disagree.
    pub(crate) incidents: Vec<IncidentRow>,
    /// The place's hosts during the case; none where it cannot tell.
    pub(crate) hosts: Vec<HostRow>,
    pub(crate) storage: Vec<StorageRow>,
    pub(crate) storage_disturbed: bool,
    /// Samples that hosts and storage are told from.
    pub(crate) host_samples: usize,
    /// Page of the case, where its disks or hosts are shown there and not here.
    pub(crate) page: Option<String>,
    /// Disks that were reported.
    pub(crate) disks: usize,
    pub(crate) timeline: Option<String>,
    pub(crate) timeline_caption: String,
    pub(crate) per_host: Vec<PartRow>,
    pub(crate) per_worker: Vec<PartRow>,
    pub(crate) per_disk: Vec<PartRow>,
}

/// A host's, a worker's or a disk's figures of one operation.
pub(crate) struct PartRow {
    pub(crate) name: String,
    /// Of a host, its workers; of a disk, its serial.
    pub(crate) more: String,
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

pub(crate) fn workloads(source: &Source<'_>) -> Result<Vec<WorkloadSection>, serde_json::Error> {
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
    let storage = hosts::storage(case);
    let timeline = charts::timeline(case, &source.plan, source.unit);
    let timeline_caption = timeline.as_ref().map(|timeline| timeline.caption.clone()).unwrap_or_default();
    let workers = case.per_worker.iter().map(|part| (part.worker.as_str(), "", part.window_seconds, &part.ops));
    let disks =
        case.per_disk.iter().map(|part| (part.worker.as_str(), part.disk.as_str(), part.window_seconds, &part.ops));
    let placed: Vec<(&str, String, &PerHost)> = case.per_host.iter().map(placed).collect();
    let on_hosts = placed.iter().map(|(name, workers, part)| (*name, workers.as_str(), part.window_seconds, &part.ops));
    let page = source.tables.page(index);
    Ok(CaseSection {
        footprint: case.footprint.clone(),
        anchor: case_anchor(index),
        state: case.state.clone(),
        complete: case.state == "complete",
        reason: case.reason.clone(),
        facts: case_facts(case),
        pacing: incidents::pacing(case),
        generator: incidents::generator(case),
        incidents: incidents::incidents(case),
        hosts: hosts::hosts(case),
        storage_disturbed: storage.iter().any(|row| row.disturbed),
        storage,
        host_samples: case.hosts.len(),
        disks: case.per_disk.len(),
        timeline: timeline.map(|timeline| island(&charts::Chart::Timeline(Box::new(timeline)))).transpose()?,
        timeline_caption,
        per_host: part_rows(&on_hosts.collect::<Vec<_>>(), case.window_seconds, source.unit),
        per_worker: part_rows(&workers.collect::<Vec<_>>(), case.window_seconds, source.unit),
        per_disk: match page {
            Some(_) => Vec::new(),
            None => part_rows(&disks.collect::<Vec<_>>(), case.window_seconds, source.unit),
        },
        page,
    })
}

/// A host with how many of its workers are in its figures.
fn placed(part: &PerHost) -> (&str, String, &PerHost) {
    let name = part.host.as_deref().unwrap_or("this machine");
    (name, format!("{} of {}", part.measured, part.placed), part)
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
    let row = |(name, more, window, ops): &Part<'_>| {
        let own_window = (window - case_window).abs() > 0.05;
        let named = |(kind, op): (&'static str, &Op)| PartRow {
            name: (*name).to_owned(),
            more: (*more).to_owned(),
            op: if kind == "all" { "both" } else { kind },
            figures: op_figures(op, unit),
            to_median: format::ratio(op.iops / median(&sorted[kind])),
            share: format!(
                "{:.1}",
                100.0 * op.iops / sorted[kind].last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE)
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
