//! Hosts and storage during a case: what may have disturbed its figures.

use std::collections::BTreeSet;

use analysis::export::{Case, HostLoad, HostSample, StorageHealth};

use crate::format;

/// A storage cluster at rest.
const AT_REST: &str = "HEALTH_OK";

/// One host over a case.
pub(crate) struct HostRow {
    pub(crate) host: String,
    pub(crate) cpu: String,
    pub(crate) memory: String,
    pub(crate) io_pressure: String,
    pub(crate) io_wait: String,
}

/// A stretch of a case in which the storage cluster did the same.
pub(crate) struct StorageRow {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) status: String,
    pub(crate) recovery: String,
    pub(crate) displaced: String,
    pub(crate) scrubbing: String,
    /// It was not at rest.
    pub(crate) disturbed: bool,
}

pub(crate) fn hosts(case: &Case) -> Vec<HostRow> {
    let names: BTreeSet<&str> =
        case.hosts.iter().flat_map(|sample| &sample.hosts).map(|load| load.host.as_str()).collect();
    names.into_iter().map(|name| host_row(name, &case.hosts)).collect()
}

fn host_row(name: &str, samples: &[HostSample]) -> HostRow {
    let loads: Vec<&HostLoad> =
        samples.iter().flat_map(|sample| &sample.hosts).filter(|load| load.host == name).collect();
    let percent = |figure: fn(&HostLoad) -> Option<f64>| mean_and_most(loads.iter().filter_map(|load| figure(load)));
    let used = loads.iter().filter_map(|load| load.memory_used_bytes).max();
    let of = loads.iter().filter_map(|load| load.memory_bytes).max();
    HostRow {
        host: name.to_owned(),
        cpu: percent(|load| load.cpu_percent),
        memory: match (used, of) {
            (Some(used), Some(of)) => format!("{} of {}", format::bytes(used), format::bytes(of)),
            (Some(used), None) => format::bytes(used),
            (None, _) => "–".to_owned(),
        },
        io_pressure: percent(|load| load.io_pressure_percent),
        io_wait: percent(|load| load.io_wait_percent),
    }
}

/// `12.3 (45.6)`: mean and largest, percent.
fn mean_and_most(values: impl Iterator<Item = f64>) -> String {
    let (sum, count, most) = values
        .fold((0.0, 0.0, f64::NEG_INFINITY), |(sum, count, most), value| (sum + value, count + 1.0, most.max(value)));
    if count > 0.0 { format!("{:.1} ({most:.1})", sum / count) } else { "–".to_owned() }
}

pub(crate) fn storage(case: &Case) -> Vec<StorageRow> {
    let known: Vec<(f64, &StorageHealth)> =
        case.hosts.iter().filter_map(|sample| Some((sample.t, sample.storage.as_ref()?))).collect();
    known.chunk_by(|(_, before), (_, after)| condition(before) == condition(after)).map(storage_row).collect()
}

/// What makes one stretch: its health, and which kinds of work it does.
fn condition(health: &StorageHealth) -> (&str, &[String], bool, bool, bool) {
    let StorageHealth { status, checks, recovery_bytes_per_second, displaced_percent, scrubbing } = health;
    (status, checks, *recovery_bytes_per_second > 0, *displaced_percent > 0.0, *scrubbing > 0)
}

fn storage_row(stretch: &[(f64, &StorageHealth)]) -> StorageRow {
    let at = |sample: Option<&(f64, &StorageHealth)>| {
        sample.map_or_else(String::new, |(t, _)| format!("{t:.0}").replace('-', "−"))
    };
    let most = most_of(stretch.iter().map(|(_, health)| *health));
    StorageRow {
        from: at(stretch.first()),
        to: at(stretch.last()),
        status: in_words(&most),
        recovery: format::bytes(most.recovery_bytes_per_second),
        displaced: format!("{:.2}", most.displaced_percent),
        scrubbing: format::count(most.scrubbing),
        disturbed: !is_at_rest(&most),
    }
}

fn in_words(health: &StorageHealth) -> String {
    if health.checks.is_empty() {
        health.status.clone()
    } else {
        format!("{} ({})", health.status, health.checks.join(", "))
    }
}

/// The worst of each figure; status and checks of the first that is not at rest.
fn most_of<'a>(mut all: impl Iterator<Item = &'a StorageHealth>) -> StorageHealth {
    let none = StorageHealth {
        status: AT_REST.to_owned(),
        checks: Vec::new(),
        recovery_bytes_per_second: 0,
        displaced_percent: 0.0,
        scrubbing: 0,
    };
    let first = all.next().cloned().unwrap_or(none);
    all.fold(first, |most, health| {
        let named = if most.status == AT_REST { health } else { &most };
        StorageHealth {
            status: named.status.clone(),
            checks: named.checks.clone(),
            recovery_bytes_per_second: most.recovery_bytes_per_second.max(health.recovery_bytes_per_second),
            displaced_percent: most.displaced_percent.max(health.displaced_percent),
            scrubbing: most.scrubbing.max(health.scrubbing),
        }
    })
}

/// Healthy, and at no work of its own.
pub(crate) fn is_at_rest(health: &StorageHealth) -> bool {
    let StorageHealth { status, recovery_bytes_per_second, displaced_percent, scrubbing, .. } = health;
    status == AT_REST && *recovery_bytes_per_second == 0 && *displaced_percent <= 0.0 && *scrubbing == 0
}

/// That the storage cluster was at work of its own in the window, as a sentence.
pub(crate) fn disturbance(case: &Case) -> Option<String> {
    Some(format!("the storage cluster was not at rest in the window: {}.", unrest(case)?))
}

/// How the storage cluster was in the window, in words; none where nothing was told of it in the window itself.
pub(crate) fn storage_in_window(case: &Case) -> Option<String> {
    let told = case.hosts.iter().any(|sample| sample.t >= 0.0 && sample.storage.is_some());
    told.then(|| unrest(case).unwrap_or_else(|| "at rest".to_owned()))
}

/// What the storage cluster did in the window beside the load, in words; none where it was at rest, or nothing is known.
pub(crate) fn unrest(case: &Case) -> Option<String> {
    let in_window = case.hosts.iter().filter(|sample| sample.t >= 0.0).filter_map(|sample| sample.storage.as_ref());
    let most = most_of(in_window);
    if is_at_rest(&most) {
        return None;
    }
    let recovery = (most.recovery_bytes_per_second > 0)
        .then(|| format!("recovery at up to {} a second", format::bytes(most.recovery_bytes_per_second)));
    let displaced = (most.displaced_percent > 0.0)
        .then(|| format!("up to {:.2} % of the objects displaced", most.displaced_percent));
    let scrubbing = (most.scrubbing > 0)
        .then(|| format!("up to {} placement groups being scrubbed", format::count(most.scrubbing)));
    let parts: Vec<String> =
        std::iter::once(in_words(&most)).chain([recovery, displaced, scrubbing].into_iter().flatten()).collect();
    Some(parts.join(", "))
}
