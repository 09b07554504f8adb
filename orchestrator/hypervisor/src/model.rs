use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Intent, JournalError};

/// What a deployment needs of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// Workers.
    pub workers: u32,
    /// Data disks each.
    pub disks_per_worker: u32,
    /// Size of each data disk, bytes.
    pub disk_bytes: u64,
    /// Virtual CPUs each.
    pub vcpus: u32,
    /// Memory each, bytes.
    pub memory_bytes: u64,
}

impl Deployment {
    /// Bytes of all data disks together.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.disks_per_worker) * self.disk_bytes
    }
}

/// Something that stands in the way of a deployment, or that the engineer must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether the deployment cannot be made.
    pub severity: Severity,
    /// What was found and what is needed.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Weight of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The deployment cannot be made.
    Blocker,
    /// It can, but figures or neighbours may suffer.
    Warning,
    /// Nothing is wrong; the engineer should know.
    Note,
}

/// What a place offers to choose from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// The place's software and version.
    pub product: String,
    /// Hosts, by name.
    pub hosts: Vec<Host>,
    /// Storages, by name.
    pub storages: Vec<StoragePlace>,
    /// Networks that workers may be attached to, by name.
    pub networks: Vec<NetworkPlace>,
}

/// A host that runs workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Name.
    pub name: String,
    /// Whether it can be used now.
    pub online: bool,
    /// CPUs.
    pub cpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Memory in use, bytes.
    pub memory_used_bytes: u64,
}

/// A storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StoragePlace {
    /// Name.
    pub name: String,
    /// Type, in the place's own words (`rbd`, `lvmthin`).
    pub kind: String,
    /// What it may hold, in the place's own words (`images`, `iso`).
    pub content: Vec<String>,
    /// All hosts see the same bytes.
    pub shared: bool,
    /// Hosts on which it is active, by name.
    pub hosts: Vec<String>,
    /// Size, bytes: of each host's own where it is not shared, the smallest of them.
    pub total_bytes: u64,
    /// Free, bytes, likewise.
    pub available_bytes: u64,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkPlace {
    /// Name.
    pub name: String,
    /// Hosts that have it, by name.
    pub hosts: Vec<String>,
}

/// A bootable image for workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file.
    pub path: PathBuf,
    /// Digest of the image before it was made personal, hexadecimal.
    pub digest: String,
    /// Fleet that it was made for.
    pub fleet: String,
}

/// A worker to create.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerSpec {
    /// Name, unique in the fleet.
    pub name: String,
    /// Identity, by which the worker enrols.
    pub uuid: String,
    /// Ownership mark: the fleet's id.
    pub fleet: String,
    /// Virtual CPUs, or engine threads of a process.
    pub vcpus: u32,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Data disks.
    pub disks: Vec<DiskSpec>,
    /// Host to put it on, as [`Hypervisor::place`](crate::Hypervisor::place) answered; none where a place has one host.
    #[serde(default)]
    pub host: Option<String>,
    /// Image to boot, as [`Hypervisor::upload_image`](crate::Hypervisor::upload_image) answered; none where it boots nothing.
    #[serde(default)]
    pub image: Option<String>,
}

/// A data disk to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpec {
    /// Serial, at most 20 bytes.
    pub serial: String,
    /// Size asked for, bytes.
    pub size_bytes: u64,
}

/// A worker that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedWorker {
    /// As asked.
    pub spec: WorkerSpec,
    /// Its disks as they are, in the order of the spec.
    pub disks: Vec<CreatedDisk>,
    /// The place's own identity of it (a VMID); the worker's UUID where it has none.
    pub id: String,
    /// Address of its network card (`02:AB:…`), where it has one of its own.
    #[serde(default)]
    pub mac: Option<String>,
}

/// A data disk that was created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedDisk {
    /// Serial.
    pub serial: String,
    /// Exact size read back, bytes.
    pub size_bytes: u64,
    /// Where a worker finds it if the serial cannot be set: `CONTROLLER:CHANNEL:TARGET:LUN`, controllers counted from 0 among those that
    /// carry disks.
    #[serde(default)]
    pub scsi_address: Option<String>,
    /// Where it is, for a local process.
    pub path: Option<PathBuf>,
}

/// What a worker's agent needs to find its orchestrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bootstrap {
    /// The orchestrator's URLs for workers, `wss://`, in the order to try.
    pub urls: Vec<String>,
    /// SHA-256 of the CA certificate that workers pin, 64 hexadecimal digits.
    pub ca_sha256: String,
    /// The fleet's enrolment token.
    pub token: String,
}

/// Whether a worker runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerState {
    /// It runs.
    Running,
    /// It ended; why, for a person.
    Ended(String),
    /// The place knows nothing of it, or cannot tell now; whether it runs shows in its session alone.
    Unknown,
}

/// A worker as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Whether it runs.
    pub state: WorkerState,
    /// Host that it is on now; another than it was put on where somebody moved it.
    pub host: Option<String>,
    /// Bytes that its network card has sent since it was started; none where the place does not tell.
    pub sent_bytes: Option<u64>,
}

/// A reason to end the load, because it does harm or soon would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Breach {
    /// Limit that was broken, as the plan's `guard:` names it.
    pub limit: String,
    /// What was found, with the figure and the limit.
    pub message: String,
}

/// Hosts and storage as they were at one moment of a case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostSample {
    /// Hosts in use, by name.
    pub hosts: Vec<HostLoad>,
    /// Health of the storage cluster, where there is one.
    pub storage_health: Option<StorageHealth>,
}

/// A host's load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostLoad {
    /// Name.
    pub host: String,
    /// Share of its CPUs in use, 0 to 1.
    pub cpu: Option<f64>,
    /// Memory in use, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Memory, bytes.
    pub memory_bytes: Option<u64>,
    /// Share of time that some task waited for I/O, percent (`/proc/pressure/io`, some).
    pub io_pressure_percent: Option<f64>,
    /// Share of time that CPUs were idle for I/O, 0 to 1.
    pub io_wait: Option<f64>,
}

/// Health of a storage cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StorageHealth {
    /// In its own words (`HEALTH_OK`).
    pub status: String,
    /// Names of the checks that are raised, sorted.
    pub checks: Vec<String>,
    /// Bytes a second of recovery traffic.
    pub recovery_bytes_per_second: u64,
    /// Share of objects degraded or misplaced, 0 to 1.
    pub displaced: f64,
    /// Placement groups being scrubbed.
    pub scrubbing: u64,
}

/// Something that carries our mark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// What it is, for a person.
    pub object: String,
    /// Fleet by its mark.
    pub fleet: String,
    /// Where it is.
    pub host: String,
    /// What a journal entry about it says, for [`Hypervisor::adopt`](crate::Hypervisor::adopt).
    pub record: Intent,
}

/// What a search for our marks came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Search {
    /// What carries our mark.
    pub found: Vec<Found>,
    /// What looks like ours and could not be read now.
    pub unread: Vec<LeftAlone>,
    /// Where nobody could look, and why: something of ours may be there.
    pub blind: Vec<String>,
}

/// Something recorded that was not removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftAlone {
    /// What.
    pub object: String,
    /// Why it was left.
    pub reason: String,
}

/// A provider's error.
#[derive(Debug, thiserror::Error)]
pub enum HypervisorError {
    /// The journal refused; nothing was changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The place refused or failed.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted, with the object's name.
        what: String,
        /// The system's own words.
        source: std::io::Error,
    },
    /// The place refused or failed.
    #[error("{words} — {advice}")]
    Place {
        /// What was attempted, and the place's own words.
        words: String,
        /// What a person can do about it.
        advice: String,
    },
    /// The place is not as it was left.
    #[error("{0}")]
    Unexpected(String),
}

impl HypervisorError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
