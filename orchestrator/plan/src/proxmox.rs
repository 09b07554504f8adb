//! A plan's `target: {provider: proxmox, …}` and `guard:`, as validated.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::decode::{Name, Rule};
use crate::limits;

/// Workers are VMs of a Proxmox VE cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProxmoxTarget {
    /// Which cluster, and how it is spoken to.
    #[serde(flatten)]
    pub cluster: Cluster,
    /// Nodes to use; none is all that are online, evenly.
    pub nodes: Option<Nodes>,
    /// Storage under test.
    pub storage: String,
    /// Storage for the worker image.
    pub iso_storage: String,
    /// Bridge (or SDN vnet) of the workers' network card.
    pub bridge: String,
    /// VLAN tag, 1 to 4094.
    pub vlan: Option<u16>,
    /// Resource pool that the workers join.
    pub pool: Option<String>,
    /// Range of the workers' VMIDs.
    pub vmids: VmidRange,
    /// Beginning of the VMs' names.
    pub name_prefix: String,
    /// Options of the data disks.
    pub disks: DiskOptions,
    /// Tasks of ours at a time.
    pub limits: TaskLimits,
    /// The worker image; none is the one beside the program or in the build directory.
    pub image: Option<PathBuf>,
    /// Where workers get their addresses from.
    pub addressing: Addressing,
    /// MTU of their network cards, bytes; none is what DHCP says, or the card's own.
    pub mtu: Option<u32>,
}

/// A cluster: one that `fourcorners connect` saved, or all that is needed to speak to it. No secret is among it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Cluster {
    /// Saved under this name.
    Saved {
        /// The name.
        connection: String,
    },
    /// Named by the plan.
    Given {
        /// `https://HOST[:PORT]` of any node.
        endpoint: String,
        /// API token.
        token: TokenSource,
        /// Trust in the certificate.
        tls: Trust,
    },
}

/// An API token and where its secret is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenSource {
    /// `user@realm!name`.
    pub id: String,
    /// Where its secret is.
    #[serde(flatten)]
    pub secret: SecretSource,
}

/// Where a secret is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretSource {
    /// In this environment variable.
    SecretEnv(String),
    /// In this file, which only its owner may read.
    SecretFile(PathBuf),
}

/// Trust in the cluster's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// As this system trusts.
    System,
    /// Issued by an authority in this PEM file.
    CaFile(PathBuf),
    /// The one certificate with this SHA-256, as `AB:CD:…`.
    Fingerprint(String),
}

/// Nodes to use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a list of node names, or node names with a count of workers each")]
pub enum Nodes {
    /// Workers are spread evenly over these.
    Evenly(Vec<String>),
    /// So many workers on each; together as many as the plan has.
    Counts(BTreeMap<String, u32>),
}

/// VMIDs from `first` to `last`, both included; `first` is not above `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VmidRange {
    /// Lowest.
    pub first: u32,
    /// Highest.
    pub last: u32,
}

impl Default for VmidRange {
    /// High enough that people who count up from 100 do not meet it.
    fn default() -> Self {
        Self { first: 90_000, last: 99_999 }
    }
}

/// Options of the data disks that may be chosen. The others are fixed by what a measurement needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskOptions {
    /// Pass TRIM on to the storage.
    pub discard: bool,
    /// Show the disk as an SSD.
    pub ssd: bool,
    /// Asynchronous I/O mode; none leaves it to PVE, which withholds io_uring on storages where it is known to hang.
    pub aio: Option<Aio>,
    /// Image format on file-based storages; none leaves it to the storage.
    pub format: Option<Format>,
}

/// QEMU's asynchronous I/O modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aio {
    /// Linux `io_uring`.
    IoUring,
    /// Linux AIO.
    Native,
    /// A pool of threads.
    Threads,
}

/// Image formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Raw bytes.
    Raw,
    /// QEMU copy on write.
    Qcow2,
}

/// How many tasks of ours may run at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskLimits {
    /// In the cluster.
    pub cluster: u32,
    /// On one node.
    pub node: u32,
    /// On one storage.
    pub storage: u32,
}

impl Default for TaskLimits {
    /// A node's configuration lock and a storage's allocation lock serve one task at a time; a few waiting hide the latency.
    fn default() -> Self {
        Self { cluster: 12, node: 4, storage: 8 }
    }
}

/// Where workers get their addresses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressing {
    /// DHCP.
    Dhcp,
    /// One address after the other, for networks without DHCP.
    Static {
        /// Address of the first worker; each next one has the next. All are hosts of one network.
        first: Ipv4Addr,
        /// Length of the network prefix, bits, 8 to 30.
        prefix: u8,
        /// Router for addresses outside the network: a host of it that no worker has.
        gateway: Option<Ipv4Addr>,
    },
}

/// What ends the load so that the test does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Guard {
    /// Free space that the storage keeps, percent of its size after replication; 0 turns the check off.
    pub min_free_percent: f64,
    /// Stop on Ceph's HEALTH_ERR and where it is near full.
    pub ceph: bool,
    /// Stop when a worker's VM is in io-error.
    pub io_error: bool,
    /// Stop when the cluster lost quorum.
    pub quorum: bool,
}

impl Default for Guard {
    fn default() -> Self {
        Self { min_free_percent: 20.0, ceph: true, io_error: true, quorum: true }
    }
}

/// What an orchestrator does with a run that it finds unfinished when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnRestart {
    /// Ends it as failed, keeps what was measured, and removes its workers.
    Teardown,
}

/// Whether a saved connection may have this name.
#[must_use]
pub fn is_connection_name(name: &str) -> bool {
    Name(limits::CONNECTION_NAME_CHARS).read(name).is_ok()
}
