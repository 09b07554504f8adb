//! Space: of the storage under test, with its replication where that can be told, and of the image's storage.

use std::collections::BTreeMap;

use super::super::types::{CephPool, StorageConfig, StorageStatus};
use super::super::vm::allocated_bytes;
use super::super::{Guard, settings::Settings};
use super::View;
use super::checks::blocker;
use crate::{Deployment, Finding, Severity};

/// Space that the worker image needs at most, bytes.
const IMAGE_BYTES: u64 = 64 << 20;

pub(super) fn all(view: &View, settings: &Settings, guard: &Guard, deployment: &Deployment) -> Vec<Finding> {
    let mut findings = Vec::new();
    let each = u64::from(deployment.disks_per_worker).saturating_mul(allocated_bytes(deployment.disk_bytes));
    let mut workers: BTreeMap<&str, u64> = BTreeMap::new();
    for node in &view.placement {
        *workers.entry(node).or_default() += 1;
    }
    let mut shared_is_judged = false;
    for (node, storages) in &view.storages {
        findings.extend(iso(node, storages, settings));
        let Some(storage) = usable(node, storages, &settings.storage, "images", "target.storage", &mut findings) else {
            continue;
        };
        if storage.shared && shared_is_judged {
            continue;
        }
        shared_is_judged |= storage.shared;
        let on_node = workers.get(node.as_str()).copied().unwrap_or(0);
        let (place, count) = match storage.shared {
            true => (format!("storage {}", storage.storage), u64::from(deployment.workers)),
            false => (format!("storage {} on node {node}", storage.storage), on_node),
        };
        let needed = each.saturating_mul(count);
        findings.extend(room(&place, storage, needed, guard));
        let copies = copies(storage, view);
        findings.push(note(&place, storage, needed, count, deployment, copies));
    }
    findings
}

/// The storage of this name as the node sees it, where it can be used; else what is wrong with it is added.
fn usable<'a>(
    node: &str,
    storages: &'a [StorageStatus],
    name: &str,
    content: &str,
    field: &str,
    findings: &mut Vec<Finding>,
) -> Option<&'a StorageStatus> {
    let Some(storage) = storages.iter().find(|storage| storage.storage == name) else {
        let mut names: Vec<&str> = storages.iter().map(|storage| storage.storage.as_str()).collect();
        names.sort_unstable();
        findings.push(blocker(
            format!("node {node} shows no storage {name}; the token sees there: {}", names.join(", ")),
            &format!(
                "correct {field}; or the storage is not set up for that node, or the token lacks Datastore.Audit on it"
            ),
        ));
        return None;
    };
    if !storage.enabled {
        findings.push(blocker(
            format!("storage {name} is disabled or not set up for node {node}"),
            "enable it (Datacenter > Storage), or leave the node out of target.nodes",
        ));
        return None;
    }
    if !storage.active {
        findings.push(blocker(
            format!("storage {name} is not active on node {node}"),
            "look why on that node: pvesm status",
        ));
        return None;
    }
    if !storage.holds(content) {
        findings.push(blocker(
            format!("storage {name} allows {}, not {content}", storage.content),
            &format!("add the content type (Datacenter > Storage > {name}), or set {field} to another storage"),
        ));
        return None;
    }
    Some(storage)
}

fn iso(node: &str, storages: &[StorageStatus], settings: &Settings) -> Vec<Finding> {
    let mut findings = Vec::new();
    let storage = usable(node, storages, &settings.iso_storage, "iso", "target.iso_storage", &mut findings);
    if let Some(available) = storage.and_then(|storage| storage.avail).filter(|available| *available < IMAGE_BYTES) {
        findings.push(blocker(
            format!(
                "storage {} on node {node} has {} MiB free, the worker image needs up to {} MiB",
                settings.iso_storage,
                available >> 20,
                IMAGE_BYTES >> 20
            ),
            "free some space there, or set target.iso_storage to another storage",
        ));
    }
    findings
}

fn room(place: &str, storage: &StorageStatus, needed: u64, guard: &Guard) -> Option<Finding> {
    let available = storage.avail?;
    if needed > available {
        return Some(blocker(
            format!("{place} has {} free, the data disks need {}", gib(available), gib(needed)),
            "use a smaller footprint or fewer disks (each is rounded up to whole GiB), or free some space",
        ));
    }
    let total = storage.total.filter(|total| *total > 0)?;
    let left = percent(available - needed, total);
    (left < guard.min_free_percent).then(|| {
        blocker(
            format!(
                "{place} would have {left:.1} % free when the data disks are full, the guard keeps {} %: it would stop the run",
                guard.min_free_percent
            ),
            "use a smaller footprint, or set guard.min_free_percent lower if nobody else needs the space",
        )
    })
}

fn note(
    place: &str,
    storage: &StorageStatus,
    needed: u64,
    workers: u64,
    deployment: &Deployment,
    copies: Option<u64>,
) -> Finding {
    let disks = workers.saturating_mul(u64::from(deployment.disks_per_worker));
    let available = storage.avail.unwrap_or(0);
    let replication = match (storage.kind.as_str(), copies) {
        ("rbd", Some(copies)) => format!(
            "; its pool keeps {copies} copies, so that is {} of raw space ({} free counts copies already)",
            gib(needed.saturating_mul(copies)),
            gib(available)
        ),
        ("rbd" | "cephfs", None) => "; its Ceph replication cannot be told".to_owned(),
        _ => String::new(),
    };
    Finding {
        severity: Severity::Note,
        message: format!(
            "{place} ({}): {workers} VMs with {disks} data disks take {}{replication}",
            storage.kind,
            gib(needed)
        ),
        remedy: "nothing to do; all of it is removed after the run".into(),
    }
}

/// Copies that the Ceph pool keeps which the data is in; none where that cannot be told for sure.
fn copies(storage: &StorageStatus, view: &View) -> Option<u64> {
    let name = pool_of(storage, view.storage_config.as_ref())?;
    let pool: &CephPool = view.ceph_pools.as_ref()?.iter().find(|pool| pool.pool_name == name)?;
    pool.size.filter(|_| pool.kind != "erasure")
}

/// The pool of PVE's own Ceph that a storage's data is in. Where the token may not read its configuration, it is the one that the storage is
/// named after, as PVE does unless told otherwise.
fn pool_of<'a>(storage: &'a StorageStatus, config: Option<&'a StorageConfig>) -> Option<&'a str> {
    let Some(config) = config else { return Some(&storage.storage) };
    if config.is_foreign_ceph() {
        return None;
    }
    Some(config.data_pool.as_deref().or(config.pool.as_deref()).unwrap_or("rbd"))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1_u32 << 30))
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}
