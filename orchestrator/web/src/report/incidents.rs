//! What a case's disks did beside their I/Os, where there is something to show: errors, stalls, and device counters that disagree.

use std::collections::BTreeMap;

use analysis::export::{Case, Device, IoErrors, Ops, Pacing, PerDisk, Stall};

use crate::format;

/// One disk with something to show.
pub(crate) struct IncidentRow {
    pub(crate) worker: String,
    pub(crate) disk: String,
    pub(crate) errors: String,
    pub(crate) stalls: String,
    pub(crate) device: String,
}

pub(crate) fn incidents(case: &Case) -> Vec<IncidentRow> {
    case.per_disk.iter().filter(|disk| disk.has_incident()).map(incident_row).collect()
}

/// Failed I/Os of all disks by kind, preconditioning included.
pub(crate) fn io_errors(case: &Case) -> BTreeMap<&str, u64> {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for errors in case.per_disk.iter().flat_map(|disk| &disk.io_errors) {
        let known = kinds.entry(&errors.kind).or_default();
        *known = known.saturating_add(errors.count);
    }
    kinds
}

fn incident_row(disk: &PerDisk) -> IncidentRow {
    let errors: Vec<String> = disk.io_errors.iter().map(errors).collect();
    IncidentRow {
        worker: disk.worker.clone(),
        disk: disk.disk.clone(),
        errors: if errors.is_empty() { "–".to_owned() } else { errors.join("; ") },
        stalls: stalls(&disk.stalls),
        device: disk.device.map_or_else(|| "–".to_owned(), |device| counters(&device, &disk.ops)),
    }
}

fn errors(errors: &IoErrors) -> String {
    let offsets: Vec<String> = errors.first_offsets.iter().map(|offset| format::count(*offset)).collect();
    let at = if offsets.is_empty() { String::new() } else { format!(", first at byte {}", offsets.join("; ")) };
    format!("{} {}{at}", format::count(errors.count), errors.kind)
}

fn stalls(stalls: &[Stall]) -> String {
    let longest = stalls.iter().max_by(|a, b| a.length_seconds.total_cmp(&b.length_seconds));
    let Some(Stall { start_seconds, length_seconds }) = longest else { return "–".to_owned() };
    let start = format!("{start_seconds:.1}").replace('-', "−");
    match stalls.len() {
        1 => format!("{length_seconds:.1} s from {start} s"),
        count => {
            let all: f64 = stalls.iter().map(|stall| stall.length_seconds).sum();
            format!("{count}, {all:.1} s together; longest {length_seconds:.1} s from {start} s")
        }
    }
}

fn counters(device: &Device, ops: &Ops) -> String {
    let ios = |op: &Option<analysis::export::Op>| op.as_ref().map_or(0, |op| op.count.saturating_add(op.errors));
    let side = |name: &str, ios: u64, requests: u64, merges: u64| {
        (ios > 0 || requests > 0).then(|| {
            let merged = if merges > 0 { format!(" ({} merged)", format::count(merges)) } else { String::new() };
            format!("{} {name} requests{merged} for {} I/Os", format::count(requests), format::count(ios))
        })
    };
    let sides = [
        side("read", ios(&ops.read), device.reads, device.read_merges),
        side("write", ios(&ops.write), device.writes, device.write_merges),
    ];
    sides.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// How an open loop's rate was kept, in words.
pub(crate) fn pacing(case: &Case) -> Option<String> {
    let Pacing { asked_iops, intended, late, missed, largest_lag_us } = case.pacing?;
    let achieved = case.ops.all.as_ref().map_or(0.0, |op| op.iops);
    let (asked, achieved) = (format::iops(asked_iops), format::iops(achieved));
    Some(format!(
        "Open loop: {} IOPS asked, {} achieved; of {} I/Os, {} started more than 0.1 ms late (at most {:.1} ms) and {} not at all.",
        asked.text(),
        achieved.text(),
        format::count(intended),
        format::count(late),
        largest_lag_us / 1e3,
        format::count(missed)
    ))
}

/// What the load generator used, in words; none where no worker said.
pub(crate) fn generator(case: &Case) -> Option<String> {
    let used: Vec<_> = case.per_worker.iter().filter_map(|part| part.generator.as_ref()).collect();
    let largest = |values: &mut dyn Iterator<Item = f64>| {
        values.fold(None, |most: Option<f64>, value| Some(most.map_or(value, |most| most.max(value))))
    };
    let busiest = largest(&mut used.iter().flat_map(|used| used.thread_cpu.iter().copied()))?;
    let io_wq: f64 = used.iter().map(|used| used.io_wq_cpu).sum();
    let steal = largest(&mut used.iter().filter_map(|used| used.steal));
    let steal = steal.map_or_else(String::new, |steal| format!(", steal at most {:.1} %", steal * 100.0));
    Some(format!(
        "Load generator: the busiest engine thread used {:.0} % of its CPU, kernel I/O workers (io-wq) {io_wq:.2} CPUs{steal}.",
        busiest * 100.0
    ))
}
