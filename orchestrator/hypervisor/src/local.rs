//! The embedded local provider: workers are processes of this program, data disks are files.

mod disks;
mod processes;

use std::path::PathBuf;

use serde_json::json;

use crate::{
    Bootstrap, BoxFuture, CreatedWorker, Deployment, Finding, Hypervisor, HypervisorError, Journal, JournalEntry,
    LeftAlone, Severity, WorkerSpec, WorkerState,
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

impl Hypervisor for Local {
    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        Box::pin(async move {
            let space = disks::space(&self.disk_dir)?;
            let needed = deployment.total_bytes();
            let mut findings = Vec::new();
            if space.available_bytes < needed.saturating_add(MIN_FREE_AFTER_BYTES) {
                findings.push(Finding {
                    severity: Severity::Blocker,
                    message: format!(
                        "{}: the data disks need {needed} bytes and {MIN_FREE_AFTER_BYTES} bytes stay free beside them, \
                         but {} bytes are available",
                        self.disk_dir.display(),
                        space.available_bytes
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
                    remedy: "the load generator may limit the figures; use fewer workers or vcpus on this machine"
                        .into(),
                });
            }
            Ok(findings)
        })
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
            Ok(CreatedWorker { spec: spec.clone(), disks: created, mac: None })
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

    fn observe<'a>(&'a self, worker_uuid: &'a str) -> BoxFuture<'a, Result<WorkerState, HypervisorError>> {
        Box::pin(async move { Ok(self.processes.observe(worker_uuid)) })
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
