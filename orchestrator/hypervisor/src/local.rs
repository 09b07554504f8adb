//! The embedded local provider: workers are processes of this program, data disks are files.

pub(crate) mod disks;
mod processes;

use std::path::{Path, PathBuf};

use plan::size::approximate;
use serde_json::json;

use crate::child;
use crate::{
    Bootstrap, BoxFuture, CreatedWorker, Deployment, Finding, Host, Hypervisor, HypervisorError, Inventory, Journal,
    JournalEntry, LeftAlone, Observed, Severity, StoragePlace, WorkerSpec,
};
use processes::Processes;

/// Free space that stays on the file system beyond the data disks, bytes: room for the database and for whoever else writes there.
pub const MIN_FREE_AFTER_BYTES: u64 = 512 << 20;

/// Workers as processes on this machine.
pub struct Local {
    disk_dir: PathBuf,
    processes: Processes,
}

impl Local {
    /// Data disk files go to `disk_dir/FLEET/`, the workers' logs to `log_dir/FLEET/`. Workers are started as `program worker …`.
    #[must_use]
    pub fn new(disk_dir: PathBuf, log_dir: PathBuf, program: PathBuf) -> Self {
        Self { disk_dir, processes: Processes::new(program, log_dir) }
    }
}

/// What of this machine's space and CPUs stands in the way.
pub(crate) fn findings(disk_dir: &Path, deployment: &Deployment) -> Result<Vec<Finding>, HypervisorError> {
    let space = disks::space(disk_dir)?;
    let needed = deployment.total_bytes();
    let mut findings = Vec::new();
    if space.available_bytes < needed.saturating_add(MIN_FREE_AFTER_BYTES) {
        findings.push(Finding {
            severity: Severity::Blocker,
            message: format!(
                "{}: the data disks need {} and {} stay free beside them, but {} are available",
                disk_dir.display(),
                approximate(needed),
                approximate(MIN_FREE_AFTER_BYTES),
                approximate(space.available_bytes)
            ),
            remedy: "use a smaller footprint, free some space, or set target.disk_dir to a larger file system".into(),
        });
    }
    let wanted = deployment.workers.saturating_mul(deployment.vcpus);
    let cpus = processes::cpus();
    if wanted > cpus {
        findings.push(Finding {
            severity: Severity::Warning,
            message: format!("{wanted} engine threads of all workers share {cpus} CPUs"),
            remedy: "the load generator may limit the figures; use fewer workers or vcpus on this machine".into(),
        });
    }
    Ok(findings)
}

/// This machine as the only host, the data disks' file system as the only storage.
pub(crate) fn inventory(disk_dir: &Path) -> Result<Inventory, HypervisorError> {
    let space = disks::space(disk_dir)?;
    let (memory_bytes, memory_used_bytes) = processes::memory();
    let name = "local".to_owned();
    let host = Host { name, online: true, cpus: processes::cpus(), memory_bytes, memory_used_bytes };
    let storage = StoragePlace {
        name: disk_dir.display().to_string(),
        kind: disks::file_system(disk_dir).unwrap_or_default(),
        content: vec!["images".into()],
        shared: false,
        hosts: vec![host.name.clone()],
        total_bytes: space.total_bytes,
        available_bytes: space.available_bytes,
    };
    let product = format!("local provider of Fourcorners {}", env!("CARGO_PKG_VERSION"));
    Ok(Inventory { product, hosts: vec![host], storages: vec![storage], networks: Vec::new() })
}

impl Hypervisor for Local {
    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
        Box::pin(async move { inventory(&self.disk_dir) })
    }

    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        Box::pin(async move { findings(&self.disk_dir, deployment) })
    }

    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
        Box::pin(async move {
            let mut created = Vec::with_capacity(spec.disks.len());
            for disk in &spec.disks {
                created.push(disks::create(&self.disk_dir.join(&spec.fleet), disk, journal).await?);
            }
            let id = spec.uuid.clone();
            Ok(CreatedWorker { spec: spec.clone(), disks: created, id, mac: None })
        })
    }

    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.processes.start(worker, bootstrap, journal))
    }

    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.processes.stop(std::slice::from_ref(&worker.spec.uuid), journal))
    }

    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
        Box::pin(async { Ok(child::observed(workers, |uuid| self.processes.observe(uuid))) })
    }

    fn recover<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(child::recover(processes::START, processes::STOP, recorded, journal))
    }

    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
        Box::pin(async move {
            self.processes.stop_recorded(recorded, journal).await?;
            disks::delete_recorded(&self.disk_dir, recorded, journal).await
        })
    }

    fn describe(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async move {
            let space = disks::space(&self.disk_dir).ok();
            json!({
                "provider": "local",
                "isolation": "process",
                "disk_dir": self.disk_dir,
                "file_system": disks::file_system(&self.disk_dir),
                "total_bytes": space.map(|space| space.total_bytes),
                "available_bytes": space.map(|space| space.available_bytes),
            })
        })
    }
}
