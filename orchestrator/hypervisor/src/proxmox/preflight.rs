//! What stands in the way of a deployment: everything is read first, then judged by pure functions.

mod checks;
mod space;

use std::collections::{BTreeMap, BTreeSet};

use super::error::CallError;
use super::observe::health_of;
use super::privileges::Permissions;
use super::types::{CephPool, ClusterStatus, Interface, Pool, Resource, StorageConfig, StorageStatus, Version};
use super::{Nodes, Proxmox, cluster, guard};
use crate::{Deployment, Finding, HypervisorError, Severity, StorageHealth};

/// How PVE words that a privilege is missing.
const FORBIDDEN: &str = "Permission check failed";

/// What was read of the cluster. What could not be read is none, and why is among the findings.
#[derive(Default)]
struct View {
    version: Option<Version>,
    permissions: Permissions,
    status: Option<Vec<ClusterStatus>>,
    resources: Vec<Resource>,
    /// By node in use.
    storages: BTreeMap<String, Vec<StorageStatus>>,
    /// By node in use.
    interfaces: BTreeMap<String, Vec<Interface>>,
    ceph_pools: Option<Vec<CephPool>>,
    storage_config: Option<StorageConfig>,
    /// Where the storage is of Ceph: what PVE tells of Ceph's health, or why Ceph does not tell it.
    ceph: Option<Result<StorageHealth, CallError>>,
    pools: Option<Vec<Pool>>,
    ids_in_use: BTreeSet<u32>,
    /// Node of each worker.
    placement: Vec<String>,
}

impl View {
    fn nodes_in_use(&self) -> BTreeSet<&str> {
        self.placement.iter().map(String::as_str).collect()
    }

    /// Whether the storage is on a Ceph cluster whose health PVE does not tell here; none where that is not known.
    fn foreign_ceph(&self) -> Option<bool> {
        if matches!(&self.ceph, Some(Err(error)) if error.is_not_its_ceph()) {
            return Some(true);
        }
        self.storage_config.as_ref().map(StorageConfig::is_foreign_ceph)
    }

    fn is_online(&self, node: &str) -> bool {
        let of = |resource: &&Resource| resource.kind == "node" && resource.node.as_deref() == Some(node);
        self.resources.iter().find(of).is_some_and(|found| found.status.as_deref() == Some("online"))
    }

    fn is_known(&self, node: &str) -> bool {
        self.resources.iter().any(|resource| resource.kind == "node" && resource.node.as_deref() == Some(node))
    }
}

impl Proxmox {
    pub(super) async fn run_preflight(&self, deployment: &Deployment) -> Result<Vec<Finding>, HypervisorError> {
        let (view, mut findings) = self.view(deployment).await?;
        let mut judged = checks::all(&view, &self.settings, deployment, self.client.token_id());
        judged.extend(checks::ceph(&view, &self.settings, &self.guard));
        if judged.iter().any(|finding| finding.severity == Severity::Blocker && finding.message.contains(" lacks ")) {
            // What the token may not read follows from what it lacks.
            findings.retain(|finding| !finding.message.contains(FORBIDDEN));
        }
        findings.extend(judged);
        findings.extend(space::all(&view, &self.settings, &self.guard, deployment));
        findings.sort_by_key(|finding| match finding.severity {
            Severity::Blocker => 0,
            Severity::Warning => 1,
            Severity::Note => 2,
        });
        Ok(findings)
    }

    async fn view(&self, deployment: &Deployment) -> Result<(View, Vec<Finding>), HypervisorError> {
        // A wrong endpoint, certificate or token fails here, once, and not as a heap of findings.
        let version = self.client.get(&["version"], &[]).await?;
        let permissions = self.client.get(&["access", "permissions"], &[]).await?;
        let mut view = View { version: Some(version), permissions, ..View::default() };
        let mut findings = Vec::new();
        view.status = read(cluster::status(&self.client).await, &mut findings);
        view.resources = read(cluster::resources(&self.client).await, &mut findings).unwrap_or_default();
        self.place_workers(&mut view, deployment, &mut findings).await;
        let nodes: Vec<String> =
            view.nodes_in_use().into_iter().filter(|node| view.is_online(node)).map(str::to_owned).collect();
        for node in &nodes {
            if let Some(storages) = read(cluster::storages(&self.client, node).await, &mut findings) {
                view.storages.insert(node.clone(), storages);
            }
            if let Some(interfaces) = read(cluster::interfaces(&self.client, node).await, &mut findings) {
                view.interfaces.insert(node.clone(), interfaces);
            }
        }
        let storage =
            view.storages.values().flatten().find(|storage| storage.storage == self.settings.storage).cloned();
        if let Some(storage) = storage.filter(|storage| guard::is_of_ceph(&storage.kind)) {
            // An external Ceph cluster is not known to PVE: then its replication cannot be told.
            let node = nodes.first().map_or("localhost", String::as_str);
            view.ceph_pools = self.client.get(&["nodes", node, "ceph", "pool"], &[]).await.ok();
            view.storage_config = cluster::storage_config(&self.client, &self.settings.storage).await.ok().flatten();
            view.ceph = match cluster::ceph_status(&self.client).await {
                Err(error) if !error.is_silent_ceph() && !error.is_not_its_ceph() => {
                    findings.push(checks::blocker(error.to_string(), error.advice()));
                    None
                }
                told => Some(told.map(|status| health_of(&status))),
            };
            let mut layout = self.layout();
            layout.learn_storage(&storage);
            layout.foreign_ceph = view.foreign_ceph();
            self.set_layout(layout);
        }
        if self.settings.pool.is_some() {
            view.pools = read(self.client.get(&["pools"], &[]).await, &mut findings);
        }
        view.ids_in_use = read(cluster::ids_in_use(&self.client, &nodes, &self.settings.storage).await, &mut findings)
            .unwrap_or_default();
        Ok((view, findings))
    }

    async fn place_workers(&self, view: &mut View, deployment: &Deployment, findings: &mut Vec<Finding>) {
        match self.placement(deployment.workers).await {
            Ok(placement) => view.placement = placement,
            Err(error) => {
                findings.push(Finding {
                    severity: Severity::Blocker,
                    message: error.to_string(),
                    remedy: "set target.nodes to nodes that are online, with counts that add up to the workers".into(),
                });
                if let Some(Nodes::Counts(counts)) = &self.settings.nodes {
                    view.placement = counts.keys().cloned().collect();
                }
            }
        }
    }
}

/// A read that failed is a finding.
fn read<T>(result: Result<T, CallError>, findings: &mut Vec<Finding>) -> Option<T> {
    result.map_err(|error| findings.push(checks::blocker(error.to_string(), error.advice()))).ok()
}
