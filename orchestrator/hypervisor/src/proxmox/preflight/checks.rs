//! Everything but space: versions, privileges, nodes, CPU and memory, network, names and numbers.

use std::collections::BTreeMap;

use super::super::settings::Settings;
use super::super::types::{Interface, Resource};
use super::super::vm::{MAX_DISKS, TAG};
use super::super::{Guard, guard, privileges};
use super::View;
use crate::{Deployment, Finding, Severity};

/// Oldest major version that the API is used of.
const OLDEST: u32 = 8;
/// Major version that this is written against and tested with.
const TESTED: u32 = 9;
/// Memory that a node keeps beyond the workers, bytes: QEMU's own and the page tables of a VM come on top of its RAM.
const NODE_RESERVE_BYTES: u64 = 1 << 30;
/// Share of a node's CPUs in use from which on others are at work there.
const BUSY_SHARE: f64 = 0.1;

pub(super) fn all(view: &View, settings: &Settings, deployment: &Deployment, token: &str) -> Vec<Finding> {
    let mut findings = privileges::lacking(&view.permissions, settings, token);
    findings.extend(version(view));
    findings.extend(quorum(view));
    findings.extend(nodes(view));
    findings.extend(disks(deployment));
    findings.extend(processors(view, deployment));
    findings.extend(memory(view, deployment));
    findings.extend(network(view, settings));
    findings.extend(pool(view, settings));
    findings.extend(numbers(view, settings, deployment));
    findings.extend(names(view, settings));
    findings
}

pub(super) fn blocker(message: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Blocker, message, remedy: remedy.into() }
}

pub(super) fn warning(message: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Warning, message, remedy: remedy.into() }
}

fn version(view: &View) -> Option<Finding> {
    let version = view.version.as_ref()?;
    let text = &version.version;
    match version.major() {
        Some(TESTED) => None,
        Some(OLDEST) => Some(warning(
            format!("Proxmox VE {text}: this is written against version {TESTED} and not tested with {OLDEST}"),
            "run `check --boot` first, and compare what it made with `qm config`",
        )),
        Some(major) if major < OLDEST => {
            Some(blocker(format!("Proxmox VE {text} is older than {OLDEST}"), "upgrade the cluster"))
        }
        _ => Some(warning(
            format!("Proxmox VE {text}: this is written against version {TESTED}"),
            "look for a newer Fourcorners, or run `check --boot` first",
        )),
    }
}

fn quorum(view: &View) -> Option<Finding> {
    let cluster = view.status.as_ref()?.iter().find(|entry| entry.kind == "cluster")?;
    (!cluster.quorate).then(|| {
        blocker(
            format!("cluster {} has no quorum: its configuration is read-only", cluster.name),
            "bring most of its nodes online: pvecm status",
        )
    })
}

/// Whether load may be put on the Ceph under the disks, and whether the guard will be able to tell.
pub(super) fn ceph(view: &View, settings: &Settings, limits: &Guard) -> Option<Finding> {
    let (told, storage) = (view.ceph.as_ref()?, &settings.storage);
    if view.foreign_ceph() == Some(true) {
        let elsewhere = view.storage_config.as_ref().filter(|config| config.is_foreign_ceph());
        let why = match (elsewhere.and_then(|config| config.monhost.as_deref()), told) {
            (None, Err(error)) => format!("PVE tells of none on the node of target.endpoint: {}", error.words()),
            (monitors, _) => format!("its monitors are {}", monitors.unwrap_or("others than PVE's")),
        };
        return Some(warning(
            format!(
                "storage {storage} is on a Ceph whose health is not known here ({why}): the guard does not watch it"
            ),
            "look at that cluster's health by yourself while the load runs (ceph -s); where it is PVE's own, set target.endpoint to a node \
             that has Ceph. Free space, quorum and workers in io-error are watched all the same",
        ));
    }
    let harm = match told {
        Ok(health) => guard::ill_health(health)?,
        Err(error) => guard::silent(error.words()),
    };
    let remedy = "bring it back to health first (ceph health detail), then start the run";
    Some(if limits.ceph {
        blocker(format!("{harm}: the guard would stop the load at once"), remedy)
    } else {
        warning(harm, remedy)
    })
}

fn nodes(view: &View) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in view.nodes_in_use() {
        if !view.is_known(node) {
            findings.push(blocker(
                format!("the cluster has no node {node}"),
                "correct target.nodes; `fourcorners connect` lists the nodes",
            ));
        } else if !view.is_online(node) {
            findings.push(blocker(format!("node {node} is offline"), "bring it back, or leave it out of target.nodes"));
        }
    }
    let offline = view.status.iter().flatten().filter(|entry| entry.kind == "node" && !entry.online);
    let others = offline.filter(|entry| !view.nodes_in_use().contains(entry.name.as_str()));
    findings.extend(others.map(|entry| {
        warning(
            format!("node {} is offline; no worker goes there, but shared storage may recover meanwhile", entry.name),
            "wait until it is back, or know that figures are those of a degraded cluster",
        )
    }));
    findings
}

fn disks(deployment: &Deployment) -> Option<Finding> {
    let disks = deployment.disks_per_worker;
    let most = u32::try_from(MAX_DISKS).unwrap_or(u32::MAX);
    (disks > most).then(|| {
        blocker(
            format!("{disks} data disks a worker: a VM has room for {most}, each on a controller of its own"),
            "use fewer disks a worker and more workers",
        )
    })
}

fn workers_by_node(view: &View) -> BTreeMap<&str, u64> {
    let mut counts = BTreeMap::new();
    for node in &view.placement {
        *counts.entry(node.as_str()).or_insert(0) += 1;
    }
    counts
}

fn node<'a>(view: &'a View, name: &str) -> Option<&'a Resource> {
    view.resources.iter().find(|resource| resource.kind == "node" && resource.node.as_deref() == Some(name))
}

fn processors(view: &View, deployment: &Deployment) -> Vec<Finding> {
    let check = |(name, workers): (&str, u64)| {
        let has = node(view, name)?.maxcpu?;
        let each = f64::from(deployment.vcpus);
        if each > has {
            return Some(blocker(
                format!("node {name} has {has} CPUs, a worker has {each}: its VM would not start there"),
                "use fewer vcpus",
            ));
        }
        let guests = view.resources.iter().filter(|guest| guest.is_guest() && guest.is_running());
        let guests: f64 = guests.filter(|guest| guest.node.as_deref() == Some(name)).filter_map(|g| g.maxcpu).sum();
        // A token of the recipe sees no guests but its pool's: that they are there shows in the node's load.
        let busy = node(view, name)?.cpu.filter(|share| *share >= BUSY_SHARE).map_or(0.0, |share| share * has);
        let (others, whose) = if busy > guests { (busy, "the node's load") } else { (guests, "running guests") };
        let workers_cpus = each * f64::from(u32::try_from(workers).unwrap_or(u32::MAX));
        (workers_cpus + others > has).then(|| {
            warning(
                format!(
                    "node {name} has {has} CPUs; {workers} workers take {workers_cpus} and {whose} {}: they would share them",
                    (others * 10.0).round() / 10.0
                ),
                "use fewer vcpus or workers on that node: CPUs that are shared disturb figures and neighbours",
            )
        })
    };
    workers_by_node(view).into_iter().filter_map(check).collect()
}

fn memory(view: &View, deployment: &Deployment) -> Vec<Finding> {
    let check = |(name, workers): (&str, u64)| {
        let found = node(view, name)?;
        let free = found.maxmem?.saturating_sub(found.mem?);
        let needed = workers.saturating_mul(deployment.memory_bytes).saturating_add(NODE_RESERVE_BYTES);
        if needed > free {
            return Some(blocker(
                format!(
                    "node {name} has {} MiB of memory free; {workers} workers need {} MiB with a reserve of {} MiB",
                    free >> 20,
                    needed >> 20,
                    NODE_RESERVE_BYTES >> 20
                ),
                "use less memory or fewer workers on that node: without memory the kernel ends somebody's VM",
            ));
        }
        let guests = view.resources.iter().filter(|guest| guest.is_guest() && guest.is_running());
        let guests = guests.filter(|guest| guest.node.as_deref() == Some(name)).filter_map(|guest| guest.maxmem);
        let (has, promised) = (found.maxmem?, guests.fold(0_u64, u64::saturating_add));
        (needed.saturating_add(promised) > has).then(|| {
            warning(
                format!(
                    "node {name} has {} MiB of memory, of which running guests may take {} MiB; {workers} workers with a reserve \
                     make that more than it has: {} MiB",
                    has >> 20,
                    promised >> 20,
                    needed.saturating_add(promised) >> 20
                ),
                "use less memory or fewer workers on that node, or know that no guest there comes to need all of its memory meanwhile",
            )
        })
    };
    workers_by_node(view).into_iter().filter_map(check).collect()
}

fn network(view: &View, settings: &Settings) -> Vec<Finding> {
    // Without the privilege PVE lists no bridges: that is the finding, not a bridge that is missing.
    if !privileges::may_use_bridge(&view.permissions, &settings.bridge, settings.vlan) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (node, interfaces) in &view.interfaces {
        let bridges = || interfaces.iter().filter(|interface| interface.is_bridge());
        match bridges().find(|interface| interface.iface == settings.bridge) {
            None => {
                let names: Vec<&str> = bridges().map(|interface| interface.iface.as_str()).collect();
                findings.push(blocker(
                    format!("node {node} has no bridge {}; it has {}", settings.bridge, list(&names)),
                    "set target.bridge to one that all nodes in use have, or make the bridge there",
                ));
            }
            Some(bridge) => findings.extend(bridge_of(node, bridge, settings)),
        }
    }
    findings
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none that the token may see".into() } else { names.join(", ") }
}

fn bridge_of(node: &str, bridge: &Interface, settings: &Settings) -> Option<Finding> {
    let name = &bridge.iface;
    // A vnet is made active by its zone and shows no state of its own.
    if !bridge.active && bridge.kind != "vnet" {
        return Some(blocker(
            format!("bridge {name} on node {node} is not active"),
            "bring it up: ifreload -a on that node, or the node's Network page",
        ));
    }
    let vlan = settings.vlan?;
    if bridge.kind == "vnet" {
        return Some(blocker(
            format!("{name} is an SDN vnet: it has its VLAN by itself, target.vlan is {vlan}"),
            "leave target.vlan out",
        ));
    }
    let allowed = bridge.bridge_vids.as_deref().filter(|_| bridge.bridge_vlan_aware)?;
    (!vlan_in(vlan, allowed)).then(|| {
        blocker(
            format!("bridge {name} on node {node} lets VLANs {allowed} through, target.vlan is {vlan}"),
            "choose one of these, or add it to the bridge's VLAN IDs",
        )
    })
}

/// Whether a VLAN is in a list such as `2-4094` or `10 20;30-40`.
fn vlan_in(vlan: u16, ranges: &str) -> bool {
    ranges.split([' ', ',', ';']).filter(|range| !range.is_empty()).any(|range| match range.split_once('-') {
        Some((first, last)) => match (first.parse::<u16>(), last.parse::<u16>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&vlan),
            _ => false,
        },
        None => range.parse() == Ok(vlan),
    })
}

fn pool(view: &View, settings: &Settings) -> Option<Finding> {
    let wanted = settings.pool.as_ref()?;
    let pools = view.pools.as_ref()?;
    (!pools.iter().any(|pool| pool.poolid == *wanted)).then(|| {
        blocker(
            format!("there is no pool {wanted}, or the token may not see it"),
            &format!("on a node: pvesh create /pools --poolid {wanted}; or leave target.pool out"),
        )
    })
}

fn numbers(view: &View, settings: &Settings, deployment: &Deployment) -> Option<Finding> {
    let range = settings.vmids;
    let in_range = view.ids_in_use.range(range.first..=range.last).count();
    let size = u64::from(range.last - range.first) + 1;
    let free = size.saturating_sub(in_range as u64);
    let (first, last, workers) = (range.first, range.last, deployment.workers);
    if free < u64::from(workers) {
        return Some(blocker(
            format!(
                "{free} VMIDs from {first} to {last} are free of guests and volumes, {workers} workers need one each"
            ),
            "widen target.vmids, or remove what earlier runs left: fourcorners cleanup",
        ));
    }
    (in_range > 0).then(|| {
        warning(
            format!("{in_range} VMIDs from {first} to {last} are taken by guests or volumes; they are passed over"),
            "nothing, if they are somebody's; `fourcorners cleanup --dry-run` lists those of earlier runs",
        )
    })
}

fn names(view: &View, settings: &Settings) -> Option<Finding> {
    let start = format!("{}-", settings.name_prefix);
    let tagged =
        |guest: &Resource| guest.tags.as_deref().unwrap_or_default().split([';', ',', ' ']).any(|tag| tag == TAG);
    let alike = view.resources.iter().filter(|guest| guest.is_guest());
    let alike =
        alike.filter(|guest| tagged(guest) || guest.name.as_deref().is_some_and(|name| name.starts_with(&start)));
    let ids: Vec<String> = alike.filter_map(Resource::guest_id).map(|id| id.to_string()).collect();
    (!ids.is_empty()).then(|| {
        warning(
            format!(
                "guests {} have a name that begins with {start} or the tag {TAG}: of another run, or somebody's",
                ids.join(", ")
            ),
            "`fourcorners cleanup --dry-run` tells which carry a mark of ours; all others are never touched",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_looked_up_in_ranges_and_lists() {
        assert!(vlan_in(100, "2-4094") && vlan_in(20, "10 20;30-40") && vlan_in(40, "10,30-40"));
        assert!(!vlan_in(1, "2-4094") && !vlan_in(25, "10 20;30-40") && !vlan_in(5, ""));
    }
}
