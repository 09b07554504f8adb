//! Looking at workers and hosts while a case runs: one cluster-wide read an interval, and one more for each VM that seems to have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::types::{CephStatus, NodeHistory, Resource};
use super::{Proxmox, cluster};
use crate::{CreatedWorker, HostLoad, HostSample, HypervisorError, Observed, StorageHealth, WorkerState};

/// PVE writes the cluster's list of guests anew at this interval (`pvestatd`).
pub(super) const LIST_INTERVAL: Duration = Duration::from_secs(10);

/// How old a figure of a node's history may be, seconds: it has a point a minute, and the newest may not be finished.
const RECENT_SECONDS: u64 = 120;

impl Proxmox {
    pub(super) async fn observe_vms(&self, workers: &[CreatedWorker]) -> Result<Vec<Observed>, HypervisorError> {
        let guests = by_id(cluster::guests(&self.client).await?);
        let confirmed = workers.iter().map(async |worker| self.confirmed(worker, observed(worker, &guests)).await);
        Ok(futures_util::future::join_all(confirmed).await)
    }

    /// The list may be as old as [`LIST_INTERVAL`]: a VM that it has as ended, or not at all, may have been started since.
    async fn confirmed(&self, worker: &CreatedWorker, seen: Observed) -> Observed {
        let WorkerState::Ended(_) = seen.state else { return seen };
        let (Ok(vmid), Some(node)) = (worker.id.parse(), seen.host.as_ref().or(worker.spec.host.as_ref())) else {
            return seen;
        };
        let state = match cluster::power_of(&self.client, node, vmid).await {
            Ok(None) => return seen,
            Ok(Some(power)) if power.status == "running" => WorkerState::Running,
            Ok(Some(power)) => WorkerState::Ended(format!("VM {vmid} is {}", power.status)),
            Err(_) => WorkerState::Unknown,
        };
        Observed { state, host: Some(node.clone()), ..seen }
    }

    pub(super) async fn host_sample(&self, workers: &[CreatedWorker]) -> Result<HostSample, HypervisorError> {
        let resources = cluster::resources(&self.client).await?;
        let nodes: Vec<Resource> = resources.iter().filter(|resource| resource.kind == "node").cloned().collect();
        let in_use = nodes_in_use(workers, &by_id(resources));
        let nodes = nodes.into_iter().filter(|node| node.node.as_ref().is_some_and(|name| in_use.contains(name)));
        let mut hosts: Vec<HostLoad> =
            futures_util::future::join_all(nodes.map(|node| self.host_load(node))).await.into_iter().collect();
        hosts.sort_by(|a, b| a.host.cmp(&b.host));
        let storage_health = match self.layout().foreign_ceph {
            // What PVE has of its own is not what is measured.
            Some(true) => None,
            // Not a Ceph cluster, or one that does not answer: the guard tells which.
            _ => cluster::ceph_status(&self.client).await.ok().map(|status| health_of(&status)),
        };
        Ok(HostSample { hosts, storage_health })
    }

    async fn host_load(&self, node: Resource) -> HostLoad {
        let host = node.node.clone().unwrap_or_default();
        // PVE keeps I/O pressure in its history only, a point a minute.
        let path = ["nodes", &host, "rrddata"];
        let history = self.client.get::<Vec<NodeHistory>>(&path, &[("timeframe", "hour"), ("cf", "AVERAGE")]).await;
        let points = history.unwrap_or_default();
        let last = |field: fn(&NodeHistory) -> Option<f64>| newest(&points, field);
        HostLoad {
            cpu: node.cpu,
            memory_used_bytes: node.mem,
            memory_bytes: node.maxmem,
            io_pressure_percent: last(|point| point.pressureiosome.or(point.pressureiofull)),
            io_wait: last(|point| point.iowait),
            host,
        }
    }
}

/// A history's newest figure, unless it is of another time than now: the newest points may have none yet, and a node that stopped keeping
/// figures goes on with points that have none.
fn newest(points: &[NodeHistory], field: fn(&NodeHistory) -> Option<f64>) -> Option<f64> {
    let now = points.iter().filter_map(|point| point.time).max()?;
    let recent = points.iter().filter(|point| point.time.is_some_and(|time| now - time <= RECENT_SECONDS));
    recent
        .filter_map(|point| Some((point.time?, field(point)?)))
        .max_by_key(|(time, _)| *time)
        .map(|(_, figure)| figure)
}

pub(super) fn by_id(resources: Vec<Resource>) -> BTreeMap<u32, Resource> {
    resources.into_iter().filter_map(|guest| Some((guest.guest_id()?, guest))).collect()
}

/// Nodes that workers are on now, or were put on where the cluster does not show them.
fn nodes_in_use(workers: &[CreatedWorker], guests: &BTreeMap<u32, Resource>) -> BTreeSet<String> {
    let node = |worker: &CreatedWorker| {
        let guest = worker.id.parse::<u32>().ok().and_then(|id| guests.get(&id));
        guest.and_then(|guest| guest.node.clone()).or_else(|| worker.spec.host.clone())
    };
    workers.iter().filter_map(node).collect()
}

fn observed(worker: &CreatedWorker, guests: &BTreeMap<u32, Resource>) -> Observed {
    let Some(guest) = worker.id.parse::<u32>().ok().and_then(|id| guests.get(&id)) else {
        return Observed {
            state: WorkerState::Ended(format!("VM {} is gone", worker.id)),
            host: None,
            sent_bytes: None,
        };
    };
    let state = match guest.status.as_deref() {
        Some("running") => WorkerState::Running,
        None | Some("unknown") => WorkerState::Unknown,
        Some(status) => WorkerState::Ended(format!("VM {} is {status}", worker.id)),
    };
    Observed { state, host: guest.node.clone(), sent_bytes: guest.netout }
}

pub(super) fn health_of(status: &CephStatus) -> StorageHealth {
    let mut checks: Vec<String> = status.health.checks.keys().cloned().collect();
    checks.sort();
    let map = &status.pgmap;
    let scrubbing = map.pgs_by_state.iter().filter(|state| state.state_name.contains("scrubbing"));
    StorageHealth {
        status: status.health.status.clone(),
        checks,
        recovery_bytes_per_second: map.recovering_bytes_per_sec.unwrap_or(0),
        displaced: map.degraded_ratio.unwrap_or(0.0) + map.misplaced_ratio.unwrap_or(0.0),
        scrubbing: scrubbing.filter_map(|state| state.count).sum(),
    }
}
