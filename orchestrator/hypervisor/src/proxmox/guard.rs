//! Do no harm: readings of the cluster, and which of the plan's limits they break.

use futures_util::future::join_all;
use serde::Serialize;

use super::Guard;
use super::error::CallError;
use super::observe::{by_id, health_of, nodes_in_use};
use super::types::{NodeVm, StorageStatus};
use super::{Proxmox, cluster};
use crate::{Breach, CreatedWorker, HypervisorError, StorageHealth};

/// Ceph's checks that say that space runs out.
const FULL_CHECKS: [&str; 8] = [
    "OSD_NEARFULL",
    "OSD_BACKFILLFULL",
    "OSD_FULL",
    "POOL_NEAR_FULL",
    "POOL_NEARFULL",
    "POOL_BACKFILLFULL",
    "POOL_FULL",
    "MON_DISK_CRIT",
];
/// States of QEMU in which a VM waits for its storage.
const IO_ERROR: &str = "io-error";

/// What the guard looks at.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GuardReading {
    /// Space under the data disks.
    pub storages: Vec<StorageSpace>,
    /// Health of the Ceph cluster behind them, where it is one.
    pub ceph: Option<StorageHealth>,
    /// Ceph is behind them and does not answer; its words.
    pub ceph_silent: Option<String>,
    /// Worker VMs in io-error: (VMID, node).
    pub io_errors: Vec<(u32, String)>,
    /// The cluster has quorum.
    pub quorate: bool,
}

/// Space of a storage as PVE shows it, which is after replication: for Ceph what the pool can still take, not its raw bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageSpace {
    /// Name; with the node where the storage is the node's own.
    pub name: String,
    /// PVE has it active.
    pub active: bool,
    /// Size, bytes.
    pub total_bytes: u64,
    /// Free, bytes.
    pub available_bytes: u64,
}

impl StorageSpace {
    pub(super) fn of(node: &str, name: &str, status: &StorageStatus) -> Self {
        Self {
            name: if status.shared { name.into() } else { format!("{name} on {node}") },
            active: status.active,
            total_bytes: status.total.unwrap_or(0),
            available_bytes: status.avail.unwrap_or(0),
        }
    }

    /// Free, percent.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub fn free_percent(&self) -> f64 {
        if self.total_bytes == 0 { 0.0 } else { self.available_bytes as f64 * 100.0 / self.total_bytes as f64 }
    }
}

impl Proxmox {
    /// Reads what the guard looks at, on the nodes that workers are on.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn guard_reading(&self, workers: &[CreatedWorker]) -> Result<GuardReading, HypervisorError> {
        // Side by side, so that a slow answer does not add up with the others: a breach must be known within seconds.
        let (guests, status) =
            futures_util::future::try_join(cluster::guests(&self.client), cluster::status(&self.client)).await?;
        let mut reading = GuardReading::default();
        // A single node outside a cluster has no cluster entry and no quorum to lose.
        let cluster = status.into_iter().find(|entry| entry.kind == "cluster");
        reading.quorate = cluster.is_none_or(|cluster| cluster.quorate);
        let nodes = nodes_in_use(workers, &by_id(guests));
        let mut online = Vec::new();
        for (node, vms) in nodes.iter().zip(join_all(nodes.iter().map(|node| self.vms_on(node))).await) {
            let Some(vms) = vms? else { continue };
            online.push(node.as_str());
            reading.io_errors.extend(in_error(&vms, workers).into_iter().map(|vmid| (vmid, node.clone())));
        }
        if self.read_space(&online, &mut reading).await? {
            match self.ceph_status().await {
                Ok(status) => reading.ceph = Some(health_of(&status)),
                // That it may not be asked, or that PVE does not answer, says nothing of Ceph.
                Err(error) if error.is_forbidden() || !error.is_refusal() => return Err(error.into()),
                Err(error) => reading.ceph_silent = Some(error.words().to_owned()),
            }
        }
        Ok(reading)
    }

    /// The VMs of a node; none where it is offline: its workers are lost, which their observation tells, and the guard goes on for the
    /// others.
    async fn vms_on(&self, node: &str) -> Result<Option<Vec<NodeVm>>, CallError> {
        match self.client.get(&["nodes", node, "qemu"], &[("full", "1")]).await {
            Ok(vms) => Ok(Some(vms)),
            Err(error) if error.is_offline() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the space under the data disks, once where the storage is shared; answers whether Ceph is behind it.
    async fn read_space(&self, nodes: &[&str], reading: &mut GuardReading) -> Result<bool, CallError> {
        let Some((first, others)) = nodes.split_first() else { return Ok(false) };
        let name = &self.settings.storage;
        let status = cluster::storage(&self.client, first, name).await?;
        reading.storages.push(StorageSpace::of(first, name, &status));
        if !status.shared {
            let reads = others.iter().map(|node| cluster::storage(&self.client, node, name));
            for (node, status) in others.iter().zip(join_all(reads).await) {
                reading.storages.push(StorageSpace::of(node, name, &status?));
            }
        }
        Ok(matches!(status.kind.as_str(), "rbd" | "cephfs"))
    }
}

fn in_error(vms: &[NodeVm], workers: &[CreatedWorker]) -> Vec<u32> {
    let ours = |id: u32| workers.iter().any(|worker| worker.id == id.to_string());
    vms.iter()
        .filter(|vm| vm.qmpstatus.as_deref() == Some(IO_ERROR))
        .filter_map(|vm| u32::try_from(vm.vmid?).ok())
        .filter(|id| ours(*id))
        .collect()
}

/// The limits that a reading breaks.
#[must_use]
pub(super) fn breaches(reading: &GuardReading, guard: &Guard) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut breach = |limit: &str, message: String| breaches.push(Breach { limit: limit.into(), message });
    for space in reading.storages.iter().filter(|_| guard.min_free_percent > 0.0) {
        let free = space.free_percent();
        if !space.active {
            breach("min_free_percent", format!("storage {} is not active any more", space.name));
        } else if free < guard.min_free_percent {
            let least = guard.min_free_percent;
            breach("min_free_percent", format!("storage {} has {free:.1} % free, the limit is {least} %", space.name));
        }
    }
    if guard.ceph {
        ceph_breaches(reading, &mut breach);
    }
    if guard.io_error {
        for (vmid, node) in &reading.io_errors {
            breach("io_error", format!("VM {vmid} on {node} is in io-error: its storage fails or is full"));
        }
    }
    if guard.quorum && !reading.quorate {
        breach("quorum", "the cluster has lost quorum".into());
    }
    breaches
}

fn ceph_breaches(reading: &GuardReading, breach: &mut impl FnMut(&str, String)) {
    if let Some(words) = &reading.ceph_silent {
        breach("ceph", format!("Ceph does not answer: {words}"));
    }
    let Some(health) = &reading.ceph else { return };
    let full: Vec<&str> =
        health.checks.iter().map(String::as_str).filter(|check| FULL_CHECKS.contains(check)).collect();
    if health.status == "HEALTH_ERR" {
        breach("ceph", format!("Ceph is in HEALTH_ERR ({})", health.checks.join(", ")));
    } else if !full.is_empty() {
        breach("ceph", format!("Ceph runs out of space: {}", full.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> GuardReading {
        let space = StorageSpace { name: "ceph".into(), active: true, total_bytes: 1000, available_bytes: 200 };
        let health = StorageHealth {
            status: "HEALTH_WARN".into(),
            checks: vec!["OSD_DOWN".into()],
            recovery_bytes_per_second: 0,
            displaced: 0.0,
            scrubbing: 0,
        };
        GuardReading { storages: vec![space], ceph: Some(health), quorate: true, ..GuardReading::default() }
    }

    fn limits(reading: &GuardReading, guard: &Guard) -> Vec<String> {
        breaches(reading, guard).into_iter().map(|breach| breach.limit).collect()
    }

    #[test]
    fn what_is_within_the_limits_breaks_none() {
        assert_eq!(limits(&reading(), &Guard::default()), Vec::<String>::new());
    }

    #[test]
    fn each_limit_breaks_by_itself_and_can_be_turned_off() {
        let off = Guard { min_free_percent: 0.0, ceph: false, io_error: false, quorum: false };
        let change = |change: &dyn Fn(&mut GuardReading)| {
            let mut changed = reading();
            change(&mut changed);
            assert_eq!(limits(&changed, &off), Vec::<String>::new());
            limits(&changed, &Guard::default())
        };
        assert_eq!(change(&|reading| reading.storages[0].available_bytes = 199), ["min_free_percent"]);
        assert_eq!(change(&|reading| reading.storages[0].active = false), ["min_free_percent"]);
        assert_eq!(change(&|reading| reading.ceph_silent = Some("timeout".into())), ["ceph"]);
        assert_eq!(change(&|reading| reading.io_errors = vec![(90_000, "pve1".into())]), ["io_error"]);
        assert_eq!(change(&|reading| reading.quorate = false), ["quorum"]);
        assert_eq!(change(&|reading| reading.ceph.as_mut().unwrap().status = "HEALTH_ERR".into()), ["ceph"]);
        assert_eq!(change(&|reading| reading.ceph.as_mut().unwrap().checks.push("OSD_NEARFULL".into())), ["ceph"]);
    }
}
