//! The local provider with VMs: each worker is a QEMU VM that boots the worker image; data disks are files.
//!
//! Networking is QEMU's user mode: nothing of this machine's network is changed, and a worker reaches the orchestrator's loopback
//! addresses at [`HOST_ADDRESS`]. No VM outlives the orchestrator.

mod machines;
mod probe;
mod qemu;
mod qmp;

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use plan::size::approximate;
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};
use worker_image::BOOTSTRAP_VERSION;

pub use probe::{Accelerator, BOOT_BOUND, DiskIo, NoEmulator, qemu_version};
pub use qemu::Throttle;

use crate::child;
use crate::local::{self, disks};
use crate::{
    Bootstrap, BoxFuture, CreatedWorker, Deployment, Finding, Hypervisor, HypervisorError, Inventory, Journal,
    JournalEntry, LeftAlone, Observed, Severity, WorkerSpec,
};
use machines::Machines;

/// This machine, as a VM with user-mode networking sees it.
pub const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Least memory of a worker VM, bytes: the image's kernel and agent need it.
pub const MIN_MEMORY_BYTES: u64 = 256 << 20;
/// Memory that QEMU takes beside a VM's own, bytes: translated code under emulation, and its buffers.
pub const OVERHEAD_BYTES: u64 = 160 << 20;
/// Most data disks of a VM: eight controllers share a PCI slot, and 16 slots are free.
pub const MAX_DISKS: usize = 128;

const QEMU: &str = "qemu-system-x86_64";
const INSTALL_QEMU: &str = "on Debian: apt-get install --no-install-recommends qemu-system-x86";

/// Settings of the provider.
#[derive(Debug, Clone, Default)]
pub struct VmOptions {
    /// Data disk files and personal images go to `disk_dir/FLEET/`.
    pub disk_dir: PathBuf,
    /// Console and emulator logs go to `log_dir/FLEET/`.
    pub log_dir: PathBuf,
    /// The worker image; what its slot says is overwritten.
    pub image: PathBuf,
    /// Limits of the data disks: the first for each worker's first disk and so on, from the beginning again where there are fewer;
    /// empty for no limit.
    pub throttles: Vec<Throttle>,
    /// How VMs are run; none finds out, which takes up to [`BOOT_BOUND`] where KVM is there and does not work.
    pub accelerator: Option<Accelerator>,
}

/// Workers as VMs on this machine.
pub struct LocalVm {
    options: VmOptions,
    machines: Machines,
    accelerator: OnceCell<Accelerator>,
    disk_io: OnceCell<DiskIo>,
    /// Personal images by fleet, each with what is in it.
    images: Mutex<HashMap<String, (Bootstrap, PathBuf)>>,
}

impl LocalVm {
    /// A provider with these settings; nothing is looked at or changed yet.
    #[must_use]
    pub fn new(options: VmOptions) -> Self {
        let machines = Machines::new(options.log_dir.clone());
        let accelerator = OnceCell::new_with(options.accelerator.clone());
        Self { options, machines, accelerator, disk_io: OnceCell::new(), images: Mutex::default() }
    }

    /// How VMs are run here. Found out at the first call.
    pub async fn accelerator(&self) -> &Accelerator {
        self.accelerator.get_or_init(|| probe::accelerator(&self.options.image)).await
    }

    /// How data disk files are opened here. Found out at the first call.
    ///
    /// # Errors
    /// QEMU cannot be started, or opens the files in no way.
    pub async fn disk_io(&self) -> Result<&DiskIo, HypervisorError> {
        self.disk_io.get_or_try_init(|| probe::disk_io(&self.options.disk_dir)).await
    }

    /// Resets a running worker as its reset button would.
    ///
    /// # Errors
    /// The worker does not run, or QEMU does not answer.
    pub async fn reset(&self, worker_uuid: &str) -> Result<(), HypervisorError> {
        self.machines.reset(worker_uuid).await
    }

    async fn start(
        &self,
        worker: &CreatedWorker,
        bootstrap: &Bootstrap,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let spec = &worker.spec;
        let uuid = parsed(spec)?;
        let image = self.personal_image(&spec.fleet, bootstrap, journal).await?;
        let machine = qemu::Machine {
            worker,
            uuid,
            image: &image,
            accelerator: self.accelerator().await,
            disk_io: self.disk_io().await?,
            throttles: &self.options.throttles,
        };
        self.machines.start(&machine, journal).await
    }

    /// The fleet's image, made at the first call.
    async fn personal_image(
        &self,
        fleet: &str,
        bootstrap: &Bootstrap,
        journal: &dyn Journal,
    ) -> Result<PathBuf, HypervisorError> {
        let mut images = self.images.lock().await;
        if let Some((_, path)) = images.get(fleet).filter(|(content, path)| content == bootstrap && path.exists()) {
            return Ok(path.clone());
        }
        let orchestrator_urls = seen_from_a_vm(&bootstrap.urls).map_err(HypervisorError::Unexpected)?;
        let content = worker_image::Bootstrap {
            version: BOOTSTRAP_VERSION,
            orchestrator_urls,
            ca_sha256: bootstrap.ca_sha256.clone(),
            token: bootstrap.token.clone(),
            mtu: None,
            static_addressing: None,
        };
        let source = self.options.image.clone();
        let path = self.options.disk_dir.join(fleet).join(format!("worker-{}.iso", uuid::Uuid::new_v4().simple()));
        let size = std::fs::metadata(&source).map_err(HypervisorError::io(no_image(&source)))?.len();
        disks::create_at(&path, size, journal).await?;
        let mut file = OpenOptions::new()
            .write(true)
            .open(&path)
            .map_err(HypervisorError::io(format!("{}: cannot open it", path.display())))?;
        let written = tokio::task::spawn_blocking(move || worker_image::personalise_into(&source, &mut file, &content));
        let failed =
            |error: String| HypervisorError::Unexpected(format!("the worker image cannot be personalised: {error}"));
        written.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(error.to_string()))?;
        images.insert(fleet.to_owned(), (bootstrap.clone(), path.clone()));
        Ok(path)
    }

    /// `boots` is how the image runs, or why it cannot be used.
    fn findings(
        &self,
        deployment: &Deployment,
        boots: Result<&Accelerator, String>,
    ) -> Result<Vec<Finding>, HypervisorError> {
        let blocker =
            |message: String, remedy: &str| Finding { severity: Severity::Blocker, message, remedy: remedy.into() };
        let mut findings = local::findings(&self.options.disk_dir, deployment)?;
        if let Err(problem) = &boots {
            findings.push(blocker(problem.clone(), "make it with: fourcorners image build"));
        }
        if deployment.memory_bytes < MIN_MEMORY_BYTES {
            findings.push(blocker(
                format!(
                    "a worker VM has {} of memory and needs {}",
                    approximate(deployment.memory_bytes),
                    approximate(MIN_MEMORY_BYTES)
                ),
                "set workers.memory to 256MiB or more",
            ));
        }
        if usize::try_from(deployment.disks_per_worker).is_ok_and(|disks| disks > MAX_DISKS) {
            findings.push(blocker(
                format!("a worker VM takes {MAX_DISKS} data disks, not {}", deployment.disks_per_worker),
                "use more workers with fewer disks each",
            ));
        }
        let needed = deployment.memory_bytes.saturating_add(OVERHEAD_BYTES).saturating_mul(deployment.workers.into());
        if let Some(available) = probe::available_memory().filter(|available| *available < needed) {
            findings.push(blocker(
                format!(
                    "the worker VMs need {} of memory, with QEMU's own, but {} are available",
                    approximate(needed),
                    approximate(available)
                ),
                "use fewer workers or less memory each",
            ));
        }
        if let Ok(accelerator @ Accelerator::Emulation { .. }) = boots {
            findings.push(Finding {
                severity: Severity::Warning,
                message: format!("the worker VMs run under {accelerator}"),
                remedy: "their CPUs are many times slower: low rates are measured well, a storage's peak is not".into(),
            });
        }
        Ok(findings)
    }

    /// Whether the image can be used, or why not. Reads it whole.
    async fn recognise_image(&self) -> Result<(), String> {
        let image = self.options.image.clone();
        let look = move || match image.try_exists() {
            Ok(true) => worker_image::recognise(&image).map_err(|error| error.to_string()),
            _ => Err(no_image(&image)),
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())?
    }
}

fn parsed(spec: &WorkerSpec) -> Result<uuid::Uuid, HypervisorError> {
    uuid::Uuid::parse_str(&spec.uuid).map_err(|error| {
        HypervisorError::Unexpected(format!("worker {}: {:?} is no UUID: {error}", spec.name, spec.uuid))
    })
}

fn no_image(image: &Path) -> String {
    format!("{}: no worker image", image.display())
}

/// Worker URLs as a VM must dial them: this machine's loopback is [`HOST_ADDRESS`] there, but only for IPv4.
fn seen_from_a_vm(urls: &[String]) -> Result<Vec<String>, String> {
    let mut seen: Vec<String> = urls.iter().filter_map(|url| one_seen_from_a_vm(url)).collect();
    seen.dedup();
    if seen.is_empty() {
        return Err(format!(
            "a worker VM can dial none of the orchestrator's URLs ({}): an IPv4 address is needed",
            urls.join(", ")
        ));
    }
    Ok(seen)
}

fn one_seen_from_a_vm(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (host, port) = authority.rsplit_once(':')?;
    match host.trim_matches(['[', ']']).parse().ok()? {
        IpAddr::V6(host) if host.is_loopback() => None,
        host if host.is_loopback() || host.is_unspecified() => Some(format!("{scheme}://{HOST_ADDRESS}:{port}{path}")),
        _ => Some(url.to_owned()),
    }
}

impl Hypervisor for LocalVm {
    fn inventory(&self) -> BoxFuture<'_, Result<Inventory, HypervisorError>> {
        Box::pin(async move { local::inventory(&self.options.disk_dir) })
    }

    fn preflight<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<Vec<Finding>, HypervisorError>> {
        Box::pin(async move {
            if let Err(error) = probe::qemu_version().await {
                return Ok(vec![Finding {
                    severity: Severity::Blocker,
                    message: format!("{QEMU} cannot be started: {}", error.why),
                    remedy: INSTALL_QEMU.into(),
                }]);
            }
            // What is no image does not boot, which says nothing of KVM.
            let boots = match self.recognise_image().await {
                Ok(()) => Ok(self.accelerator().await),
                Err(problem) => Err(problem),
            };
            self.findings(deployment, boots)
        })
    }

    fn create_worker<'a>(
        &'a self,
        spec: &'a WorkerSpec,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<CreatedWorker, HypervisorError>> {
        Box::pin(async move {
            let uuid = parsed(spec)?;
            let mut created = Vec::with_capacity(spec.disks.len());
            for disk in &spec.disks {
                created.push(disks::create(&self.options.disk_dir.join(&spec.fleet), disk, journal).await?);
            }
            let (id, mac) = (spec.uuid.clone(), Some(qemu::mac(uuid)));
            Ok(CreatedWorker { spec: spec.clone(), disks: created, id, mac })
        })
    }

    fn start_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        bootstrap: &'a Bootstrap,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.start(worker, bootstrap, journal))
    }

    fn stop_worker<'a>(
        &'a self,
        worker: &'a CreatedWorker,
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<(), HypervisorError>> {
        Box::pin(self.machines.stop(std::slice::from_ref(&worker.spec.uuid), journal))
    }

    fn observe<'a>(&'a self, workers: &'a [CreatedWorker]) -> BoxFuture<'a, Result<Vec<Observed>, HypervisorError>> {
        Box::pin(async { Ok(child::observed(workers, |uuid| self.machines.observe(uuid))) })
    }

    fn recover<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<CreatedWorker>, HypervisorError>> {
        Box::pin(child::recover(machines::START, machines::STOP, recorded, journal))
    }

    fn destroy<'a>(
        &'a self,
        recorded: &'a [JournalEntry],
        journal: &'a dyn Journal,
    ) -> BoxFuture<'a, Result<Vec<LeftAlone>, HypervisorError>> {
        Box::pin(async move {
            self.machines.stop_recorded(recorded, journal).await?;
            disks::delete_recorded(&self.options.disk_dir, recorded, journal).await
        })
    }

    fn describe(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async move {
            let dir = &self.options.disk_dir;
            let space = disks::space(dir).ok();
            let image = self.options.image.clone();
            let name = image.display().to_string();
            let inspected =
                tokio::task::spawn_blocking(move || worker_image::inspect(&image).ok()).await.ok().flatten();
            json!({
                "provider": "local",
                "isolation": "vm",
                "emulator": probe::qemu_version().await.ok(),
                "accelerator": self.accelerator().await,
                "image": name,
                "image_sha256": inspected.map(|image| image.base_sha256),
                "disk_io": self.disk_io().await.ok(),
                "throttles": self.options.throttles,
                "disk_dir": dir,
                "file_system": disks::file_system(dir),
                "total_bytes": space.map(|space| space.total_bytes),
                "available_bytes": space.map(|space| space.available_bytes),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_becomes_the_address_that_a_vm_sees() {
        let seen = |urls: &[&str]| seen_from_a_vm(&urls.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(seen(&["wss://127.0.0.1:7001/api/x"]).unwrap(), ["wss://10.0.2.2:7001/api/x"]);
        let all = [
            "wss://192.0.2.7:7/a",
            "wss://[2001:db8::7]:7/a",
            "wss://0.0.0.0:7/a",
            "wss://127.0.0.1:7/a",
            "wss://[::1]:7/a",
        ];
        assert_eq!(seen(&all).unwrap(), ["wss://192.0.2.7:7/a", "wss://[2001:db8::7]:7/a", "wss://10.0.2.2:7/a"]);
        for wrong in ["wss://[::1]:7001/a", "wss://localhost:7001/a", "127.0.0.1:7001", "wss://127.0.0.1/a", ""] {
            assert!(seen(&[wrong]).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
