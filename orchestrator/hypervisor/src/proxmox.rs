//! Proxmox VE through its REST API, written against version 9.
//!
//! Every change is a [`Journal`] entry first; its task's UPID follows while the task runs. A VM is ours where the recorded VMID, the
//! mark in its description and tags, and its SMBIOS UUID agree. See `docs/proxmox.md` for the engineer's side.

mod change;
mod client;
mod cluster;
mod connection;
mod create;
mod error;
mod find;
mod gate;
mod guard;
mod image;
mod ledger;
mod observe;
mod placement;
mod preflight;
mod privileges;
mod recover;
mod secret;
mod settings;
mod step;
mod task;
mod teardown;
mod tls;
mod types;
mod vm;
mod vmids;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;

pub use client::presented_fingerprint;
pub use connection::{Seen, look_at};
pub use guard::{GuardReading, StorageSpace};
pub use plan::proxmox::{Aio, DiskOptions, Format, Guard, Nodes, TaskLimits, VmidRange};
pub use secret::{Token, TokenSource, read_secret_file};
pub use settings::{Settings, Timing};
pub use tls::{Fingerprint, Trust};
pub use vm::{GIB, MAX_DISKS, MAX_SERIAL_BYTES, allocated_bytes};

use crate::{
    Bootstrap, BoxFuture, Breach, CreatedWorker, Deployment, Finding, HostSample, Hypervisor, HypervisorError, Image,
    Inventory, Journal, JournalEntry, LeftAlone, Observed, Search, WorkerSpec,
};
use client::Client;
use gate::Gate;
use guard::Layout;
use step::Known;
use vmids::Vmids;

/// A Proxmox VE cluster on which workers are VMs.
pub struct Proxmox {
    client: Client,
    /// For what must end in time.
    looks: Client,
    layout: Mutex<Layout>,
    settings: Settings,
    guard: Guard,
    gate: Gate,
    vmids: Vmids,
    known: Known,
}

impl Proxmox {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Settings that cannot be used; the first problem is named by its field.
    pub fn new(settings: Settings, guard: Guard, token: Token, timing: Timing) -> Result<Self, HypervisorError> {
        if let Some((field, problem)) = settings.problems().into_iter().next() {
            return Err(HypervisorError::Unexpected(format!("target.{field}: {problem}")));
        }
        let client = Client::new(&settings.endpoint, &settings.tls, token, timing)?;
        let (gate, vmids) = (Gate::new(settings.limits), Vmids::new(settings.vmids, settings.storage.clone()));
        let (looks, layout) = (client.for_looks(), Mutex::default());
        Ok(Self { client, looks, layout, settings, guard, gate, vmids, known: Known::default() })
    }

    /// Requests sent so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.client.calls()
    }

    fn layout(&self) -> Layout {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_layout(&self, layout: Layout) {
        *self.layout.lock().unwrap_or_else(PoisonError::into_inner) = layout;
    }

    /// The nodes to use: those of the settings, else all that are online.
    async fn nodes(&self) -> Result<Vec<String>, HypervisorError> {
        match &self.settings.nodes {
            Some(Nodes::Evenly(nodes)) => Ok(nodes.clone()),
            Some(Nodes::Counts(counts)) => {
                Ok(counts.iter().filter(|(_, count)| **count > 0).map(|(node, _)| node.clone()).collect())
            }
            None => Ok(cluster::online_nodes(&self.client).await?),
        }
    }

    async fn placement(&self, workers: u32) -> Result<Vec<String>, HypervisorError> {
        let online = match self.settings.nodes {
            None => cluster::online_nodes(&self.client).await?,
            Some(_) => Vec::new(),
        };
        placement::spread(workers, self.settings.nodes.as_ref(), &online).map_err(HypervisorError::Unexpected)
    }
}

impl Hypervisor for Proxmox {
    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
        Box::pin(cluster::inventory(&self.client))
    }

    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        Box::pin(self.run_preflight(deployment))
    }

    fn place(&self, workers: u32) -> BoxFuture<'_, Result<Vec<Option<String>>, HypervisorError>> {
        Box::pin(async move { Ok(self.placement(workers).await?.into_iter().map(Some).collect()) })
    }

    fn upload_image<'a>(
        &'a self,
        image: &'a Image,
        hosts: &'a [String],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Option<String>, HypervisorError>> {
        Box::pin(async move { Ok(Some(self.bring_image(image, hosts, journal).await?)) })
    }

    fn mac_of(&self, spec: &WorkerSpec) -> Option<String> {
        Some(vm::mac_of(&spec.uuid))
    }

    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
        Box::pin(self.create_vm(spec, journal))
    }

    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        _bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.power(worker, change::Change::Start, journal))
    }

    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.power(worker, change::Change::Stop, journal))
    }

    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
        Box::pin(self.observe_vms(workers))
    }

    fn staleness(&self) -> Duration {
        observe::LIST_INTERVAL
    }

    fn guard<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Breach>, HypervisorError>> {
        Box::pin(self.guard_breaches(workers))
    }

    fn sample_hosts<'a>(
        &'a self,
        workers: &'a [CreatedWorker],
    ) -> BoxFuture<'a, Result<Option<HostSample>, HypervisorError>> {
        Box::pin(async move { Ok(Some(self.host_sample(workers).await?)) })
    }

    fn recover<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(self.recover_workers(recorded, journal))
    }

    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
        Box::pin(self.tear_down(recorded, journal))
    }

    fn find<'a>(&'a self, fleet: Option<&'a str>) -> BoxFuture<'a, Result<Search, HypervisorError>> {
        Box::pin(self.find_marked(fleet))
    }

    fn describe(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async move {
            let inventory = cluster::inventory(&self.client).await.ok();
            json!({
                "provider": "proxmox",
                "isolation": "vm",
                "product": inventory.as_ref().map(|inventory| &inventory.product),
                "hosts": inventory.as_ref().map(|inventory| &inventory.hosts),
                "storage": inventory.as_ref().and_then(|inventory| {
                    inventory.storages.iter().find(|storage| storage.name == self.settings.storage)
                }),
                "disk_options": self.settings.disks,
                "bridge": self.settings.bridge,
                "vlan": self.settings.vlan,
                // What finds the place again after a crash. A token's secret is not in its settings.
                "settings": self.settings,
            })
        })
    }
}
