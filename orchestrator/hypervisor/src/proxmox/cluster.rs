//! Reads of the cluster that several parts need.

use std::collections::BTreeSet;

use super::client::Client;
use super::error::CallError;
use super::types::{CephStatus, ClusterStatus, Interface, Resource, Setting, StorageConfig, StorageStatus, Volume};
use super::vm::VmConfig;
use crate::{Host, HypervisorError, Inventory, NetworkPlace, StoragePlace};

/// Content types that belong to guests.
const GUEST_CONTENT: [&str; 2] = ["images", "rootdir"];

/// All guests and nodes: one read, however many there are.
pub(super) async fn resources(client: &Client) -> Result<Vec<Resource>, CallError> {
    client.get(&["cluster", "resources"], &[]).await
}

/// All guests.
pub(super) async fn guests(client: &Client) -> Result<Vec<Resource>, CallError> {
    client.get(&["cluster", "resources"], &[("type", "vm")]).await
}

pub(super) async fn status(client: &Client) -> Result<Vec<ClusterStatus>, CallError> {
    client.get(&["cluster", "status"], &[]).await
}

/// Names of the nodes that are online, sorted.
pub(super) async fn online_nodes(client: &Client) -> Result<Vec<String>, CallError> {
    let nodes: Vec<Resource> = client.get(&["cluster", "resources"], &[("type", "node")]).await?;
    let online = nodes.into_iter().filter(|node| node.kind == "node" && node.status.as_deref() == Some("online"));
    let mut names: Vec<String> = online.filter_map(|node| node.node).collect();
    names.sort();
    Ok(names)
}

/// Names of all nodes that the cluster knows, online or not, sorted.
pub(super) async fn all_nodes(client: &Client) -> Result<Vec<String>, CallError> {
    let nodes: Vec<Resource> = client.get(&["cluster", "resources"], &[("type", "node")]).await?;
    let mut names: Vec<String> = nodes.into_iter().filter(|it| it.kind == "node").filter_map(|it| it.node).collect();
    names.sort();
    Ok(names)
}

pub(super) async fn storages(client: &Client, node: &str) -> Result<Vec<StorageStatus>, CallError> {
    client.get(&["nodes", node, "storage"], &[]).await
}

pub(super) async fn storage(client: &Client, node: &str, storage: &str) -> Result<StorageStatus, CallError> {
    client.get(&["nodes", node, "storage", storage, "status"], &[]).await
}

/// How a storage is set up, of which the token may see the storages that it may use; none where it sees none of this name.
pub(super) async fn storage_config(client: &Client, storage: &str) -> Result<Option<StorageConfig>, CallError> {
    let all: Vec<StorageConfig> = client.get(&["storage"], &[]).await?;
    Ok(all.into_iter().find(|config| config.storage == storage))
}

pub(super) async fn ceph_status(client: &Client) -> Result<CephStatus, CallError> {
    client.get(&["cluster", "ceph", "status"], &[]).await
}

/// Volumes of a content type on a storage, as a node sees it.
pub(super) async fn volumes(
    client: &Client,
    node: &str,
    storage: &str,
    content: &str,
) -> Result<Vec<Volume>, CallError> {
    client.get(&["nodes", node, "storage", storage, "content"], &[("content", content)]).await
}

pub(super) async fn interfaces(client: &Client, node: &str) -> Result<Vec<Interface>, CallError> {
    client.get(&["nodes", node, "network"], &[("type", "any_bridge")]).await
}

/// A VM's configuration, as it is and as its next start makes it; none where there is no such VM on the node.
pub(super) async fn config(client: &Client, node: &str, vmid: u32) -> Result<Option<VmConfig>, CallError> {
    let id = vmid.to_string();
    // What `config` answers leaves out volumes whose detachment waits for the next start; a destruction frees them all the same.
    let settings = client.get::<Vec<Setting>>(&["nodes", node, "qemu", &id, "pending"], &[]).await;
    Ok(unless_absent(client, vmid, settings).await?.map(|settings| VmConfig::read(&settings)))
}

/// Whether a VM runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Power {
    /// `running` or `stopped`.
    pub(super) status: String,
    /// The cluster's HA manager starts and stops it, some time after it is asked to.
    pub(super) by_ha: bool,
}

/// Whether a VM runs; none where there is no such VM on the node.
pub(super) async fn power_of(client: &Client, node: &str, vmid: u32) -> Result<Option<Power>, CallError> {
    let id = vmid.to_string();
    let status = client.get::<serde_json::Value>(&["nodes", node, "qemu", &id, "status", "current"], &[]).await;
    let status = unless_absent(client, vmid, status).await?;
    Ok(status.map(|status| Power {
        status: status["status"].as_str().unwrap_or("running").to_owned(),
        by_ha: is_set(&status["ha"]["managed"]),
    }))
}

fn is_set(flag: &serde_json::Value) -> bool {
    flag.as_bool().unwrap_or_else(|| flag.as_u64() == Some(1) || flag.as_str() == Some("1"))
}

/// None where the VM is not there. A token whose privileges come from a pool has none on a VM that does not exist: that reads as a refusal.
async fn unless_absent<T>(client: &Client, vmid: u32, read: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) if error.is_forbidden() && is_free(client, vmid).await? => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether no guest has a VMID, be it one that the token may see or not.
pub(super) async fn is_free(client: &Client, vmid: u32) -> Result<bool, CallError> {
    let vmid = vmid.to_string();
    match client.get::<serde_json::Value>(&["cluster", "nextid"], &[("vmid", &vmid)]).await {
        Ok(_) => Ok(true),
        Err(error) if error.words().contains("already exists") => Ok(false),
        Err(error) => Err(error),
    }
}

/// VMIDs that are in use: guests that we may see, and owners of any volume that we may see, on any storage of these nodes. A storage
/// that does not answer is passed over, unless it is `data`, the one that we make volumes on.
pub(super) async fn ids_in_use(client: &Client, nodes: &[String], data: &str) -> Result<BTreeSet<u32>, CallError> {
    let mut used: BTreeSet<u32> = guests(client).await?.iter().filter_map(Resource::guest_id).collect();
    let mut looked_through = BTreeSet::new();
    for node in nodes {
        for storage in storages(client, node).await? {
            let seen = storage.shared && looked_through.contains(&storage.storage);
            if seen || !storage.active || !GUEST_CONTENT.iter().any(|content| storage.holds(content)) {
                continue;
            }
            match owners(client, node, &storage.storage).await {
                Ok(owners) => used.extend(owners),
                Err(error) if storage.storage == data => return Err(error),
                Err(error) => tracing::warn!(%error, "the VMIDs of this storage's volumes are not known"),
            }
            looked_through.insert(storage.storage);
        }
    }
    Ok(used)
}

async fn owners(client: &Client, node: &str, storage: &str) -> Result<Vec<u32>, CallError> {
    let volumes: Vec<Volume> = client.get(&["nodes", node, "storage", storage, "content"], &[]).await?;
    Ok(volumes.iter().filter_map(|volume| u32::try_from(volume.vmid?).ok()).collect())
}

/// What the cluster offers.
pub(super) async fn inventory(client: &Client) -> Result<Inventory, HypervisorError> {
    let version: super::types::Version = client.get(&["version"], &[]).await?;
    let mut inventory = Inventory { product: format!("Proxmox VE {}", version.version), ..Inventory::default() };
    for node in resources(client).await?.iter().filter(|resource| resource.kind == "node") {
        inventory.hosts.push(host(node));
    }
    inventory.hosts.sort_by(|a, b| a.name.cmp(&b.name));
    let online: Vec<String> = inventory.hosts.iter().filter(|h| h.online).map(|h| h.name.clone()).collect();
    for node in &online {
        for storage in storages(client, node).await?.into_iter().filter(|storage| storage.active) {
            add_storage(&mut inventory.storages, node, storage);
        }
        for interface in interfaces(client, node).await?.into_iter().filter(Interface::is_bridge) {
            add_network(&mut inventory.networks, node, interface.iface);
        }
    }
    inventory.storages.sort_by(|a, b| a.name.cmp(&b.name));
    inventory.networks.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(inventory)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range before")]
fn host(node: &Resource) -> Host {
    Host {
        name: node.node.clone().unwrap_or_default(),
        online: node.status.as_deref() == Some("online"),
        cpus: node.maxcpu.unwrap_or(0.0).clamp(0.0, f64::from(u32::MAX)) as u32,
        memory_bytes: node.maxmem.unwrap_or(0),
        memory_used_bytes: node.mem.unwrap_or(0),
    }
}

fn add_storage(all: &mut Vec<StoragePlace>, node: &str, storage: StorageStatus) {
    let (total, available) = (storage.total.unwrap_or(0), storage.avail.unwrap_or(0));
    if let Some(known) = all.iter_mut().find(|known| known.name == storage.storage) {
        known.hosts.push(node.into());
        known.total_bytes = known.total_bytes.min(total);
        known.available_bytes = known.available_bytes.min(available);
        return;
    }
    all.push(StoragePlace {
        name: storage.storage,
        kind: storage.kind,
        content: storage.content.split(',').map(|content| content.trim().to_owned()).collect(),
        shared: storage.shared,
        hosts: vec![node.into()],
        total_bytes: total,
        available_bytes: available,
    });
}

fn add_network(all: &mut Vec<NetworkPlace>, node: &str, name: String) {
    match all.iter_mut().find(|known| known.name == name) {
        Some(known) => known.hosts.push(node.into()),
        None => all.push(NetworkPlace { name, hosts: vec![node.into()] }),
    }
}
