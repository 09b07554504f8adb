use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::JournalError;

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
}

/// A worker to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The place knows nothing of it.
    Unknown,
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
