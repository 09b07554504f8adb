//! Do no harm: readings of the cluster, and which of the plan's limits they break.
//!
//! A breach must stop the load within seconds. So all reads of a look start at once, with what the look before told of where workers and
//! storage are; a breach that is known does not wait long for reads that hang; and a look ends before the next is due.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use super::Guard;
use super::client::Client;
use super::error::{CallError, Kind};
use super::observe::{by_id, health_of};
use super::types::{CephStatus, ClusterStatus, NodeVm, Resource, StorageConfig, StorageStatus};
use super::{Proxmox, cluster};
use crate::{Breach, CreatedWorker, HypervisorError, StorageHealth};

/// Ceph's checks that say that space runs out.
const FULL_CHECKS: [&str; 8] = [
    "OSD_NEARFULL",
    "OSD_BACKFILLFULL",
    "OSD_FULL",
    "POOL_NEAR_FULL",
    "POOL_NEARFULL",
    "POOL_BACKFILLFULL",
    "POOL_FULL",
    "MON_DISK_CRIT",
];
/// States of QEMU in which a VM waits for its storage.
const IO_ERROR: &str = "io-error";

/// What the guard looks at.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuardReading {
    /// Space under the data disks.
    pub storages: Vec<StorageSpace>,
    /// Health of the Ceph cluster behind them, where it is one that this cluster knows.
    pub ceph: Option<StorageHealth>,
    /// Ceph is behind them and does not answer; its words.
    pub ceph_silent: Option<String>,
    /// Worker VMs in io-error: (VMID, node).
    pub io_errors: Vec<(u32, String)>,
    /// The cluster has quorum.
    pub quorate: bool,
}

/// Space of a storage as PVE shows it, which is after replication: for Ceph what the pool can still take, not its raw bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StorageSpace {
    /// Name; with the node where the storage is the node's own.
    pub name: String,
    /// PVE has it active.
    pub active: bool,
    /// Size, bytes.
    pub total_bytes: u64,
    /// Free, bytes.
    pub available_bytes: u64,
}

impl StorageSpace {
    pub(super) fn of(node: &str, name: &str, status: &StorageStatus) -> Self {
        Self {
            name: if status.shared { name.into() } else { format!("{name} on {node}") },
            active: status.active,
            total_bytes: status.total.unwrap_or(0),
            available_bytes: status.avail.unwrap_or(0),
        }
    }

    /// Free, percent.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    pub fn free_percent(&self) -> f64 {
        if self.total_bytes == 0 { 0.0 } else { self.available_bytes as f64 * 100.0 / self.total_bytes as f64 }
    }
}

/// What the last look told of where things are: the next one starts with it.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    /// Node that each worker, by id, was seen on.
    nodes: BTreeMap<String, String>,
    /// Nodes that could not be reached.
    offline: BTreeSet<String>,
    /// The storage is one for all nodes; none where that is not known yet.
    shared: Option<bool>,
    /// The storage is of Ceph.
    is_ceph: bool,
    /// That Ceph is not the one whose health PVE tells here; none where that is not known yet.
    pub(super) foreign_ceph: Option<bool>,
}

impl Layout {
    /// Nodes that workers are on, or were put on where they were not seen yet.
    fn nodes_of(&self, workers: &[CreatedWorker]) -> BTreeSet<String> {
        let node = |worker: &CreatedWorker| self.nodes.get(&worker.id).or(worker.spec.host.as_ref()).cloned();
        workers.iter().filter_map(node).collect()
    }

    fn learn_nodes(&mut self, workers: &[CreatedWorker], guests: Vec<Resource>) {
        let guests = by_id(guests);
        let seen = |worker: &CreatedWorker| {
            let guest = guests.get(&worker.id.parse().ok()?)?;
            Some((worker.id.clone(), guest.node.clone()?))
        };
        self.nodes = workers.iter().filter_map(seen).collect();
    }

    pub(super) fn learn_storage(&mut self, storage: &StorageStatus) {
        (self.shared, self.is_ceph) = (Some(storage.shared), is_of_ceph(&storage.kind));
    }
}

/// Whether a storage of this type is Ceph's.
pub(super) fn is_of_ceph(kind: &str) -> bool {
    matches!(kind, "rbd" | "cephfs")
}

/// One read of a look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Guests,
    Cluster,
    Vms(String),
    Space(String),
    Ceph,
    /// How the storage is set up.
    Storage,
}

impl fmt::Display for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guests => f.write_str("the cluster's guests"),
            Self::Cluster => f.write_str("the cluster's quorum"),
            Self::Vms(node) => write!(f, "the VMs on {node}"),
            Self::Space(node) => write!(f, "the storage as {node} sees it"),
            Self::Ceph => f.write_str("Ceph's health"),
            Self::Storage => f.write_str("the storage's configuration"),
        }
    }
}

/// What a read answered, as far as it is judged.
enum Answer {
    Guests(Vec<Resource>),
    Cluster(Vec<ClusterStatus>),
    Vms(Vec<NodeVm>),
    Space(StorageStatus),
    Ceph(CephStatus),
    Storage(Option<StorageConfig>),
}

/// A look: what it has to read, and what it knows so far.
struct Look<'a> {
    workers: &'a [CreatedWorker],
    storage: &'a str,
    guard: &'a Guard,
    layout: Layout,
    answers: BTreeMap<Read, Result<Answer, CallError>>,
}

impl Look<'_> {
    /// All that must be read, by what is known. It may grow while answers come: a worker was moved, or a storage turns out to be Ceph's.
    fn wanted(&self) -> BTreeSet<Read> {
        let nodes = self.layout.nodes_of(self.workers);
        let online = nodes.iter().filter(|node| !self.layout.offline.contains(*node)).cloned();
        // A storage that is shared is looked at once.
        let enough = if self.layout.shared == Some(false) { usize::MAX } else { 1 };
        let mut reads = BTreeSet::from([Read::Guests, Read::Cluster]);
        reads.extend(online.take(enough).map(Read::Space));
        reads.extend(nodes.into_iter().map(Read::Vms));
        if self.guard.ceph && self.layout.is_ceph && self.layout.foreign_ceph != Some(true) {
            reads.insert(Read::Ceph);
            if self.layout.foreign_ceph.is_none() {
                reads.insert(Read::Storage);
            }
        }
        reads
    }

    fn is_over(&self) -> bool {
        self.wanted().iter().all(|read| self.answers.contains_key(read))
    }

    fn take(&mut self, read: Read, mut answer: Result<Answer, CallError>) {
        match (&read, &mut answer) {
            (Read::Guests, Ok(Answer::Guests(guests))) => {
                self.layout.learn_nodes(self.workers, std::mem::take(guests));
            }
            (Read::Vms(node), Ok(_)) => {
                self.layout.offline.remove(node);
            }
            (Read::Vms(node) | Read::Space(node), Err(error)) if error.is_offline() => {
                self.layout.offline.insert(node.clone());
            }
            (Read::Space(_), Ok(Answer::Space(status))) => self.layout.learn_storage(status),
            (Read::Ceph, Err(error)) if error.is_not_its_ceph() => self.layout.foreign_ceph = Some(true),
            (Read::Storage, Ok(Answer::Storage(config))) => {
                let foreign = config.as_ref().is_some_and(StorageConfig::is_foreign_ceph);
                self.layout.foreign_ceph.get_or_insert(foreign);
            }
            _ => {}
        }
        self.answers.insert(read, answer);
    }

    /// What the answers so far say; of what has not answered, nothing bad.
    fn reading(&self) -> GuardReading {
        let mut reading =
            GuardReading { storages: Vec::new(), ceph: None, ceph_silent: None, io_errors: Vec::new(), quorate: true };
        for read in self.wanted() {
            match (&read, self.answers.get(&read)) {
                (Read::Cluster, Some(Ok(Answer::Cluster(status)))) => {
                    // A single node outside a cluster has no cluster entry and no quorum to lose.
                    let cluster = status.iter().find(|entry| entry.kind == "cluster");
                    reading.quorate = cluster.is_none_or(|cluster| cluster.quorate);
                }
                (Read::Vms(node), Some(Ok(Answer::Vms(vms)))) => {
                    reading.io_errors.extend(in_error(vms, self.workers).into_iter().map(|vmid| (vmid, node.clone())));
                }
                (Read::Space(node), Some(Ok(Answer::Space(status)))) => {
                    reading.storages.push(StorageSpace::of(node, self.storage, status));
                }
                (Read::Ceph, Some(answer)) if self.knows_whose_ceph() => match answer {
                    Ok(Answer::Ceph(status)) => reading.ceph = Some(health_of(status)),
                    Err(error) if error.is_silent_ceph() => reading.ceph_silent = Some(error.words().to_owned()),
                    _ => {}
                },
                _ => {}
            }
        }
        reading
    }

    /// It is known that Ceph is not a foreign one, or nothing more will tell.
    fn knows_whose_ceph(&self) -> bool {
        self.layout.foreign_ceph.is_some() || self.answers.contains_key(&Read::Storage)
    }

    /// Why the reading is not whole, if so.
    fn trouble(&self) -> Option<CallError> {
        let wanted = self.wanted();
        let mut refused = wanted.iter().filter_map(|read| match self.answers.get(read)? {
            // A node that is offline has lost its workers, which their observation tells; the guard goes on for the others.
            Err(error) if matches!(read, Read::Vms(_) | Read::Space(_)) && error.is_offline() => None,
            Err(error) if *read == Read::Ceph && error.is_silent_ceph() => None,
            // Then it is taken for PVE's own.
            Err(_) if *read == Read::Storage => None,
            Err(error) => Some(error.clone()),
            Ok(_) => None,
        });
        let missing: Vec<String> =
            wanted.iter().filter(|read| !self.answers.contains_key(read)).map(Read::to_string).collect();
        refused.next().or_else(|| {
            let kind = Kind::Lost("not within the time of a look".into());
            (!missing.is_empty()).then(|| CallError { call: missing.join(", "), kind })
        })
    }

    fn breaches(&self) -> Vec<Breach> {
        breaches(&self.reading(), self.guard)
    }
}

impl Proxmox {
    /// Reads what the guard looks at, on the nodes that workers are on.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub async fn guard_reading(&self, workers: &[CreatedWorker]) -> Result<GuardReading, HypervisorError> {
        let look = self.look(workers).await;
        look.trouble().map_or_else(|| Ok(look.reading()), |error| Err(error.into()))
    }

    /// The limits that are broken. What did answer is judged before what did not is an error.
    pub(super) async fn guard_breaches(&self, workers: &[CreatedWorker]) -> Result<Vec<Breach>, HypervisorError> {
        let look = self.look(workers).await;
        let breaches = look.breaches();
        match look.trouble() {
            Some(error) if breaches.is_empty() => Err(error.into()),
            _ => Ok(breaches),
        }
    }

    async fn look<'a>(&'a self, workers: &'a [CreatedWorker]) -> Look<'a> {
        let timing = self.client.timing();
        let (soon, end) = (Instant::now() + timing.known_breach, Instant::now() + timing.look);
        let (storage, guard, layout) = (self.settings.storage.as_str(), &self.guard, self.layout());
        let mut look = Look { workers, storage, guard, layout, answers: BTreeMap::new() };
        let (mut started, mut under_way) = (BTreeSet::new(), FuturesUnordered::new());
        while !look.is_over() {
            for read in look.wanted() {
                if started.insert(read.clone()) {
                    under_way.push(self.read(read));
                }
            }
            let is_soon = Instant::now() < soon;
            if !is_soon && !look.breaches().is_empty() {
                break;
            }
            match timeout_at(if is_soon { soon } else { end }, under_way.next()).await {
                Ok(Some((read, answer))) => look.take(read, answer),
                Ok(None) => break,
                Err(_) if is_soon => {}
                Err(_) => break,
            }
        }
        self.set_layout(look.layout.clone());
        look
    }

    async fn read(&self, read: Read) -> (Read, Result<Answer, CallError>) {
        let (client, storage) = (&self.looks, &self.settings.storage);
        let answer = match &read {
            Read::Guests => cluster::guests(client).await.map(Answer::Guests),
            Read::Cluster => cluster::status(client).await.map(Answer::Cluster),
            Read::Vms(node) => vms_on(client, node).await.map(Answer::Vms),
            Read::Space(node) => cluster::storage(client, node, storage).await.map(Answer::Space),
            Read::Ceph => cluster::ceph_status(client).await.map(Answer::Ceph),
            Read::Storage => cluster::storage_config(client, storage).await.map(Answer::Storage),
        };
        (read, answer)
    }
}

async fn vms_on(client: &Client, node: &str) -> Result<Vec<NodeVm>, CallError> {
    client.get(&["nodes", node, "qemu"], &[("full", "1")]).await
}

fn in_error(vms: &[NodeVm], workers: &[CreatedWorker]) -> Vec<u32> {
    let ours = |id: u32| workers.iter().any(|worker| worker.id == id.to_string());
    vms.iter()
        .filter(|vm| vm.qmpstatus.as_deref() == Some(IO_ERROR))
        .filter_map(|vm| u32::try_from(vm.vmid?).ok())
        .filter(|id| ours(*id))
        .collect()
}

/// The limits that a reading breaks.
#[must_use]
pub(super) fn breaches(reading: &GuardReading, guard: &Guard) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut breach = |limit: &str, message: String| breaches.push(Breach { limit: limit.into(), message });
    for space in reading.storages.iter().filter(|_| guard.min_free_percent > 0.0) {
        let free = space.free_percent();
        if !space.active {
            breach("min_free_percent", format!("storage {} is not active any more", space.name));
        } else if free < guard.min_free_percent {
            let least = guard.min_free_percent;
            breach("min_free_percent", format!("storage {} has {free:.1} % free, the limit is {least} %", space.name));
        }
    }
    if guard.ceph {
        ceph_breaches(reading, &mut breach);
    }
    if guard.io_error {
        for (vmid, node) in &reading.io_errors {
            breach("io_error", format!("VM {vmid} on {node} is in io-error: its storage fails or is full"));
        }
    }
    if guard.quorum && !reading.quorate {
        breach("quorum", "the cluster has lost quorum".into());
    }
    breaches
}

fn ceph_breaches(reading: &GuardReading, breach: &mut impl FnMut(&str, String)) {
    if let Some(words) = &reading.ceph_silent {
        breach("ceph", silent(words));
    }
    if let Some(harm) = reading.ceph.as_ref().and_then(ill_health) {
        breach("ceph", harm);
    }
}

/// That Ceph answers with an error.
pub(super) fn silent(words: &str) -> String {
    format!("Ceph does not answer: {words}")
}

/// Why no load may be put on a Ceph of this health, if so.
pub(super) fn ill_health(health: &StorageHealth) -> Option<String> {
    let full: Vec<&str> =
        health.checks.iter().map(String::as_str).filter(|check| FULL_CHECKS.contains(check)).collect();
    if health.status == "HEALTH_ERR" {
        return Some(format!("Ceph is in HEALTH_ERR ({})", health.checks.join(", ")));
    }
    (!full.is_empty()).then(|| format!("Ceph runs out of space: {}", full.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading() -> GuardReading {
        let space = StorageSpace { name: "ceph".into(), active: true, total_bytes: 1000, available_bytes: 200 };
        let health = StorageHealth {
            status: "HEALTH_WARN".into(),
            checks: vec!["OSD_DOWN".into()],
            recovery_bytes_per_second: 0,
            displaced: 0.0,
            scrubbing: 0,
        };
        GuardReading {
            storages: vec![space],
            ceph: Some(health),
            ceph_silent: None,
            io_errors: Vec::new(),
            quorate: true,
        }
    }

    fn limits(reading: &GuardReading, guard: &Guard) -> Vec<String> {
        breaches(reading, guard).into_iter().map(|breach| breach.limit).collect()
    }

    #[test]
    fn what_is_within_the_limits_breaks_none() {
        assert_eq!(limits(&reading(), &Guard::default()), Vec::<String>::new());
    }

    #[test]
    fn each_limit_breaks_by_itself_and_can_be_turned_off() {
        let off = Guard { min_free_percent: 0.0, ceph: false, io_error: false, quorum: false };
        let change = |change: &dyn Fn(&mut GuardReading)| {
            let mut changed = reading();
            change(&mut changed);
            assert_eq!(limits(&changed, &off), Vec::<String>::new());
            limits(&changed, &Guard::default())
        };
        assert_eq!(change(&|reading| reading.storages[0].available_bytes = 199), ["min_free_percent"]);
        assert_eq!(change(&|reading| reading.storages[0].active = false), ["min_free_percent"]);
        assert_eq!(change(&|reading| reading.ceph_silent = Some("timeout".into())), ["ceph"]);
        assert_eq!(change(&|reading| reading.io_errors = vec![(90_000, "pve1".into())]), ["io_error"]);
        assert_eq!(change(&|reading| reading.quorate = false), ["quorum"]);
        assert_eq!(change(&|reading| reading.ceph.as_mut().unwrap().status = "HEALTH_ERR".into()), ["ceph"]);
        assert_eq!(change(&|reading| reading.ceph.as_mut().unwrap().checks.push("OSD_NEARFULL".into())), ["ceph"]);
    }
}
