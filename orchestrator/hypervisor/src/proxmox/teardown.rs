//! Removing what a journal records: VMs, volumes that remain of them, images. Whatever does not agree is left alone and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use reqwest::Method;
use serde_json::json;

use super::change::{Change, Changed, Ours};
use super::client::jittered;
use super::create::intent;
use super::error::CallError;
use super::image::object_of;
use super::ledger::{Cleared, ClearedVm, Creation, Ledger, Upload, Vm};
use super::recover::some_at_a_time;
use super::step::{CLOCK_SKEW_SECONDS, MAX_SENDS, Sending, now};
use super::task::{self, Upid};
use super::types::{Resource, Volume};
use super::vm::{self, VmConfig, VmRecord, VolumeRecord, kinds};
use super::{Proxmox, cluster, privileges};
use crate::{HypervisorError, Journal, JournalEntry, LeftAlone};

/// How far a volume's time of creation may be from its VM's task, seconds.
const VOLUME_TIME_SLACK: u64 = 300;

/// Times that one VM is stopped and destroyed: it may start again by a call that was given up.
const MAX_ROUNDS: u32 = 3;
/// Nodes that one VM is followed to while somebody moves it.
const MAX_MOVES: u32 = 3;

/// Why a volume is left that nothing tells the owner of.
const UNTOLD: &str =
    "its VMID is that of a creation that broke off and whose log cannot be read: remove it if it is nobody's";

/// Why a volume is left that was not attached to its VM when that was destroyed.
const NOT_ATTACHED: &str = "somebody had taken a volume of this name from the VM that was destroyed, and whether this is still that one \
                            cannot be told: remove it if it is nobody's";
/// Why a volume is left of a VM that somebody else removed.
const NOT_OUR_REMOVAL: &str = "somebody else removed the VM that had a volume of this name, and whether this is still that one cannot be \
                               told: remove it if it is nobody's";
/// Why a volume is left of a VM that an earlier teardown removed.
const TOO_LATE: &str = "an earlier teardown removed the VM that had a volume of this name, and nothing tells that this is still that one: \
                        remove it if it is nobody's";

/// What became of a recorded VM.
#[derive(Debug)]
enum Fate {
    /// It was there, and this teardown destroyed it.
    Destroyed(Destroyed),
    /// It is not there (any more).
    Gone,
    /// It is not on the node that was looked at.
    Elsewhere,
    /// It stays, and why.
    Left(String),
}

/// A VM as it was when it was destroyed.
#[derive(Debug)]
struct Destroyed {
    node: String,
    /// Names of the volumes that were attached to it.
    volumes: BTreeSet<String>,
}

/// Where the guest with a VMID is.
enum Where {
    On(String),
    /// On no node that we may look at.
    Hidden,
    Nowhere,
}

impl Proxmox {
    pub(super) async fn tear_down(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<Vec<LeftAlone>, HypervisorError> {
        let (ledger, mut left) = self.settle(recorded, journal).await?;
        left.extend(ledger.unreadable.iter().map(|(entry, why)| LeftAlone {
            object: format!("journal entry {entry}"),
            reason: format!("it cannot be read: {why}"),
        }));
        if ledger.vms.is_empty() && ledger.uploads.is_empty() {
            return Ok(left);
        }
        let guests = cluster::guests(&self.client).await?;
        let fates = ledger.vms.iter().map(|vm| self.remove_vm(vm, &guests, journal)).collect();
        let fates = some_at_a_time(fates).await;
        let mut gone = Vec::new();
        let mut standing = BTreeSet::new();
        for (vm, fate) in ledger.vms.iter().zip(fates) {
            match fate? {
                // Reported where its creation could not be told.
                Fate::Left(_) if vm.creation == Creation::Open => {
                    standing.insert(vm.record.spec.fleet.as_str());
                }
                Fate::Destroyed(destroyed) => gone.push(Absent { vm, destroyed: Some(destroyed) }),
                Fate::Gone | Fate::Elsewhere => gone.push(Absent { vm, destroyed: None }),
                Fate::Left(reason) => {
                    standing.insert(vm.record.spec.fleet.as_str());
                    left.push(LeftAlone { object: describe(vm), reason });
                }
            }
        }
        self.remove_volumes(&gone, &ledger, journal, &mut left).await?;
        self.remove_images(&ledger, &standing, journal, &mut left).await?;
        Ok(left)
    }

    async fn remove_vm(&self, vm: &Vm, guests: &[Resource], journal: &dyn Journal) -> Result<Fate, HypervisorError> {
        match self.try_remove_vm(vm, guests, journal).await {
            Ok(fate) => Ok(fate),
            Err(error @ HypervisorError::Journal(_)) => Err(error),
            Err(error) => Ok(Fate::Left(error.to_string())),
        }
    }

    async fn try_remove_vm(
        &self,
        vm: &Vm,
        guests: &[Resource],
        journal: &dyn Journal,
    ) -> Result<Fate, HypervisorError> {
        if vm.creation == Creation::Open {
            return Ok(Fate::Left("whether it was created cannot be told".into()));
        }
        let vmid = vm.record.vmid;
        let guest = guests.iter().find(|guest| guest.guest_id() == Some(vmid));
        if guest.is_some_and(|guest| guest.kind != "qemu") {
            return Ok(foreign(vm, "a container has its VMID".into()));
        }
        // It may have been moved, and be moved again while it waits for its turn.
        let mut node = guest.and_then(|guest| guest.node.clone()).unwrap_or_else(|| vm.record.node.clone());
        for _ in 0..MAX_MOVES {
            let fate = self.remove_from(vm, &node, journal).await?;
            if !matches!(fate, Fate::Elsewhere) {
                return Ok(fate);
            }
            match self.place_of(vmid).await? {
                Where::On(now) => node = now,
                Where::Hidden => return Ok(foreign(vm, "a guest that we may not see has its VMID".into())),
                Where::Nowhere => {
                    self.vmids.give_back(vmid).await;
                    return Ok(Fate::Gone);
                }
            }
        }
        Ok(Fate::Left("it is moved from node to node".into()))
    }

    async fn place_of(&self, vmid: u32) -> Result<Where, HypervisorError> {
        if cluster::is_free(&self.client, vmid).await? {
            return Ok(Where::Nowhere);
        }
        Ok(self.node_of(vmid).await?.map_or(Where::Hidden, Where::On))
    }

    async fn remove_from(&self, vm: &Vm, node: &str, journal: &dyn Journal) -> Result<Fate, HypervisorError> {
        let vmid = vm.record.vmid;
        let attached = Mutex::new(BTreeSet::new());
        let forbids = |config: &VmConfig| {
            let volumes = config.volumes.iter().map(|volume| volume.volid.clone()).collect();
            *attached.lock().unwrap_or_else(PoisonError::into_inner) = volumes;
            obstacle(vm, config)
        };
        let ours = Ours { mark: vm.record.mark(), node, forbids: &forbids };
        let _leave = self.gate.enter(node, Some(&vm.record.storage)).await;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let power = match cluster::power_of(&self.client, node, vmid).await {
                // Ours could be looked at: this is somebody's outside of the token's pool.
                Err(error) if error.is_forbidden() => return Ok(foreign(vm, HypervisorError::from(error).to_string())),
                power => power?,
            };
            if power.is_none() && vm.destroyed {
                return Ok(Fate::Gone);
            }
            if let Some(power) = power.filter(|power| power.status != "stopped") {
                if let Some(fate) = fate_of(vm, self.change_ours(&ours, Change::Stop, journal).await?) {
                    return Ok(fate);
                }
                if power.by_ha {
                    self.await_stop_by_ha(node, vmid).await?;
                }
            }
            match self.change_ours(&ours, Change::Destroy, journal).await {
                // A start whose answer was lost took effect after the stop.
                Err(error) if error.to_string().contains("is running") && rounds < MAX_ROUNDS => {}
                changed => {
                    if let Some(fate) = fate_of(vm, changed?) {
                        return Ok(fate);
                    }
                    self.vmids.give_back(vmid).await;
                    let volumes = attached.into_inner().unwrap_or_else(PoisonError::into_inner);
                    return Ok(Fate::Destroyed(Destroyed { node: node.to_owned(), volumes }));
                }
            }
        }
    }

    /// Waits, within the bound of repeats, until HA has stopped a VM that it was asked to stop.
    async fn await_stop_by_ha(&self, node: &str, vmid: u32) -> Result<(), CallError> {
        let (timing, since) = (self.client.timing(), Instant::now());
        while since.elapsed() < timing.retry_within {
            if cluster::power_of(&self.client, node, vmid).await?.is_none_or(|power| power.status == "stopped") {
                break;
            }
            tokio::time::sleep(jittered(timing.poll_longest)).await;
        }
        Ok(())
    }

    /// Recorded volumes whose VM is gone: a destruction that met an error leaves some.
    async fn remove_volumes(
        &self,
        gone: &[Absent<'_>],
        ledger: &Ledger,
        journal: &dyn Journal,
        left: &mut Vec<LeftAlone>,
    ) -> Result<(), HypervisorError> {
        let mut by_place: BTreeMap<(&str, &str), Vec<&Absent<'_>>> = BTreeMap::new();
        for absent in gone.iter().filter(|absent| absent.may_have_left_volumes()) {
            let record = &absent.vm.record;
            by_place.entry((&record.storage, &record.node)).or_default().push(absent);
        }
        let mut looked_through: BTreeMap<&str, Listing> = BTreeMap::new();
        let mut found = Remains::default();
        let mut cleared = Cleared::default();
        for ((storage, node), vms) in by_place {
            let listing = match looked_through.get(storage) {
                Some(listing) => listing.clone(),
                None => match self.list_volumes(node, storage).await {
                    Ok(listing) => {
                        if listing.shared {
                            looked_through.insert(storage, listing.clone());
                        }
                        listing
                    }
                    Err(error) => {
                        let object = format!("volumes of {} VMs on {storage} ({node})", vms.len());
                        let reason = format!("they cannot be listed: {error}");
                        self.remains(node, storage, &reason, journal).await?;
                        left.push(LeftAlone { object, reason });
                        continue;
                    }
                },
            };
            for absent in vms {
                if self.remove_volumes_of(absent, &listing, ledger, journal, &mut found).await? {
                    let (vmid, uuid) = (absent.vm.record.vmid, absent.vm.record.spec.uuid.clone());
                    cleared.vms.push(ClearedVm { vmid, uuid });
                }
            }
        }
        if !cleared.vms.is_empty() {
            let id = journal.intent(intent(kinds::NONE_REMAIN, "volumes of destroyed VMs", json!(cleared))).await?;
            journal.outcome(id, true, json!({ "warnings": [] })).await?;
        }
        left.append(&mut found.left);
        // Two of our VMs had the same VMID one after the other: what was the one's is not reported for the other.
        let Remains { removed, unlike, .. } = found;
        left.extend(unlike.into_iter().filter(|(place, _)| !removed.contains(place)).map(|(_, unlike)| unlike));
        Ok(())
    }

    async fn list_volumes(&self, recorded: &str, storage: &str) -> Result<Listing, HypervisorError> {
        let status = cluster::storage(&self.client, recorded, storage).await;
        let (node, shared) = match status {
            Ok(status) => (recorded.to_owned(), status.shared),
            // Where it is shared, any other node shows the same.
            Err(error) if error.is_offline() => {
                let other = self.node_for(recorded, true).await?;
                match cluster::storage(&self.client, &other, storage).await {
                    Ok(status) if status.shared => (other, true),
                    _ => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        };
        let volumes = cluster::volumes(&self.client, &node, storage, "images").await?;
        // PVE leaves out volumes of a VM that is gone where the token may not see all of a storage.
        let permissions = self.client.get(&["access", "permissions"], &[]).await;
        let sees_all = |held| privileges::holds(&held, &format!("/storage/{storage}"), "Datastore.Allocate");
        let is_whole = permissions.is_ok_and(sees_all);
        Ok(Listing { node, volumes, shared, is_whole })
    }

    /// Answers whether none of ours remains, so that whatever bears their names from now on is another's.
    async fn remove_volumes_of(
        &self,
        absent: &Absent<'_>,
        listing: &Listing,
        ledger: &Ledger,
        journal: &dyn Journal,
        found: &mut Remains,
    ) -> Result<bool, HypervisorError> {
        let vm = absent.vm;
        let (vmid, node) = (vm.record.vmid, &listing.node);
        let of_id: Vec<&Volume> =
            listing.volumes.iter().filter(|volume| volume.vmid == Some(u64::from(vmid))).collect();
        if of_id.is_empty() {
            return if listing.is_whole { Ok(true) } else { self.report_unseen(absent, journal, found).await };
        }
        match cluster::is_free(&self.client, vmid).await {
            Ok(true) => {}
            // Whoever has this VMID now, be it a guest that we may see or not, owns what bears its number.
            Ok(false) => return Ok(true),
            Err(error) => {
                let object = format!("volumes of VM {vmid} on {} ({node})", vm.record.storage);
                let reason = format!("whether another guest has its VMID cannot be told: {error}");
                self.remains(node, &vm.record.storage, &reason, journal).await?;
                found.left.push(LeftAlone { object, reason });
                return Ok(false);
            }
        }
        let recorded = match &vm.creation {
            Creation::Made(volumes) => Some(volumes.clone()),
            _ => self.volumes_by_log(vm).await,
        };
        let mut is_cleared = true;
        for volume in of_id {
            let (object, place) = (format!("{} on {node}", volume.volid), object_of(node, &volume.volid));
            let record = recorded.iter().flatten().find(|record| record.volid == volume.volid);
            let another = record.and_then(|record| not_recorded(record, volume, absent));
            let doubt = match record {
                None if recorded.is_some() => continue,
                None => Some(UNTOLD),
                Some(_) if another.is_some() => None,
                Some(_) => Self::doubt(volume, node, absent, ledger),
            };
            if let Some(doubt) = doubt {
                is_cleared = false;
                self.remains(node, &volume.volid, doubt, journal).await?;
            }
            if let Some(reason) = another.or(doubt.map(str::to_owned)) {
                found.unlike.push((place, LeftAlone { object, reason }));
            } else if !found.removed.contains(&place) {
                match self.delete_unless_taken(vm, node, volume, journal).await {
                    Ok(()) => _ = found.removed.insert(place),
                    Err(error @ HypervisorError::Journal(_)) => return Err(error),
                    Err(error) => {
                        is_cleared = false;
                        found.left.push(LeftAlone { object, reason: error.to_string() });
                    }
                }
            }
        }
        Ok(is_cleared)
    }

    /// Reports what may remain of a VM where the token sees no volumes of VMs that are gone: what the log of its destruction says was not
    /// removed. Answers whether none of ours remains.
    async fn report_unseen(
        &self,
        absent: &Absent<'_>,
        journal: &dyn Journal,
        found: &mut Remains,
    ) -> Result<bool, HypervisorError> {
        let VmRecord { vmid, node, storage, .. } = &absent.vm.record;
        let destroyed_on = absent.destroyed.as_ref().map_or(node, |destroyed| &destroyed.node);
        let lines = match self.log_of_destruction(destroyed_on, *vmid).await {
            Ok(lines) => lines,
            Err(error) => vec![format!("the log of its destruction cannot be read: {error}")],
        };
        for line in &lines {
            let (object, what) = match unremoved_disk(line) {
                Some(volid) => (format!("{volid} on {node}"), volid),
                None => (format!("volumes of VM {vmid} on {storage} ({node})"), storage.as_str()),
            };
            let reason = format!(
                "{line}; without Datastore.Allocate on /storage/{storage} the token cannot see whether it is there"
            );
            self.remains(node, what, &reason, journal).await?;
            found.left.push(LeftAlone { object, reason });
        }
        Ok(lines.is_empty())
    }

    /// What the log of a VM's last destruction on a node says was not removed. Nothing where no destruction of ours is on record.
    async fn log_of_destruction(&self, node: &str, vmid: u32) -> Result<Vec<String>, CallError> {
        let tasks = task::of_guest(&self.client, node, "qmdestroy", vmid).await?;
        let Some(newest) = tasks.first() else { return Ok(Vec::new()) };
        let log = task::log(&self.client, newest).await?;
        Ok(log.into_iter().filter(|line| unremoved_disk(line).is_some()).collect())
    }

    /// Why it cannot be told that a volume with a recorded name and size is still ours.
    fn doubt(volume: &Volume, node: &str, absent: &Absent<'_>, ledger: &Ledger) -> Option<&'static str> {
        let vm = absent.vm;
        let of_known_age = volume.ctime.is_some_and(|made| made > 0);
        let tried = || ledger.undeleted.contains(&(node.to_owned(), volume.volid.clone()));
        if let Some(destroyed) = &absent.destroyed {
            return (!destroyed.volumes.contains(&volume.volid)).then_some(NOT_ATTACHED);
        }
        match (&vm.creation, vm.doomed_at) {
            // The log of its creation names the volume.
            (Creation::Failed, None) => None,
            (_, None) => Some(NOT_OUR_REMOVAL),
            (_, Some(_)) => (!of_known_age && !tried()).then_some(TOO_LATE),
        }
    }

    /// Records that something may remain of a VM that is gone: nothing else in the journal says so.
    async fn remains(
        &self,
        node: &str,
        what: &str,
        reason: &str,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let details = json!({ "volid": what, "node": node, "at": now() });
        let id = journal.intent(intent(kinds::DELETE_VOLUME, &object_of(node, what), details)).await?;
        journal.outcome(id, false, json!({ "error": reason, "only_seen": true })).await?;
        Ok(())
    }

    /// Deletes a volume, unless somebody has taken its VMID since it was looked at.
    async fn delete_unless_taken(
        &self,
        vm: &Vm,
        node: &str,
        volume: &Volume,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        if !cluster::is_free(&self.client, vm.record.vmid).await? {
            return Ok(());
        }
        let object = object_of(node, &volume.volid);
        self.delete(&object, node, &vm.record.storage, &volume.volid, journal).await
    }

    /// Volumes that the log of our own creation task names: it ended half-way, so that no configuration tells. None where it cannot be
    /// read.
    async fn volumes_by_log(&self, vm: &Vm) -> Option<Vec<VolumeRecord>> {
        let upid: Upid = vm.upid.as_deref()?.parse().ok()?;
        let log = task::log(&self.client, &upid).await.ok()?;
        Some(log.iter().filter_map(|line| created_disk(line)).collect())
    }

    async fn remove_images(
        &self,
        ledger: &Ledger,
        standing: &BTreeSet<&str>,
        journal: &dyn Journal,
        left: &mut Vec<LeftAlone>,
    ) -> Result<(), HypervisorError> {
        for upload in ledger.uploads.iter().filter(|upload| !upload.deleted) {
            let object = format!("{} on {}", upload.record.volid, upload.record.node);
            if standing.contains(upload.record.fleet.as_str()) {
                left.push(LeftAlone { object, reason: "VMs of its fleet are left that boot from it".into() });
                continue;
            }
            match self.remove_image(upload, journal).await {
                Ok(None) => {}
                Ok(Some(reason)) => left.push(LeftAlone { object, reason }),
                Err(error @ HypervisorError::Journal(_)) => return Err(error),
                Err(error) => left.push(LeftAlone { object, reason: error.to_string() }),
            }
        }
        Ok(())
    }

    async fn remove_image(&self, upload: &Upload, journal: &dyn Journal) -> Result<Option<String>, HypervisorError> {
        let record = &upload.record;
        let Some(found) = self.find_image(record).await? else { return Ok(None) };
        if !record.is(&found) {
            let size = found.size.unwrap_or(0);
            return Ok(Some(format!(
                "it has {size} bytes, {} were uploaded: another file took its place",
                record.size_bytes
            )));
        }
        let node = self.node_for(&record.node, record.shared).await?;
        let object = object_of(&record.node, &record.volid);
        self.delete(&object, &node, &record.storage, &record.volid, journal).await?;
        Ok(None)
    }

    /// Whether a volume is gone once a deletion without an answer had time to show its effect.
    async fn went(&self, node: &str, volid: &str) -> Result<bool, CallError> {
        tokio::time::sleep(self.client.timing().in_flight).await;
        self.settle_tasks(node, "imgdel").await?;
        self.is_gone(node, volid).await
    }

    pub(super) async fn is_gone(&self, node: &str, volid: &str) -> Result<bool, CallError> {
        let storage = volid.split(':').next().unwrap_or_default();
        let content = if volid.contains(":iso/") { "iso" } else { "images" };
        let volumes = cluster::volumes(&self.client, node, storage, content).await?;
        Ok(!volumes.iter().any(|volume| volume.volid == volid))
    }

    /// Deletes one volume by its name, on a node that sees it; `object` is its name in the journal.
    async fn delete(
        &self,
        object: &str,
        node: &str,
        storage: &str,
        volid: &str,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let _leave = self.gate.enter(node, Some(storage)).await;
        let details = json!({ "volid": volid, "node": node, "at": now() });
        let id = journal.intent(intent(kinds::DELETE_VOLUME, object, details)).await?;
        let path = ["nodes", node, "storage", storage, "content", volid];
        let mut sends = 1;
        let deleted = loop {
            match self.client.change::<Option<String>>(Method::DELETE, &path, &[], Sending::UntilTaken).await {
                Ok(None) => break Ok(Vec::new()),
                Ok(Some(upid)) => {
                    journal.task(id, json!({ "upid": upid })).await?;
                    break self.await_task(&upid).await;
                }
                Err(error) if error.may_have_happened() => match self.went(node, volid).await {
                    Ok(true) => break Ok(Vec::new()),
                    Ok(false) if sends < MAX_SENDS => sends += 1,
                    _ => break Err(error.into()),
                },
                Err(error) => break Err(error.into()),
            }
        };
        let details = match &deleted {
            Ok(warnings) => json!({ "warnings": warnings }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        journal.outcome(id, deleted.is_ok(), details).await?;
        deleted.map(drop)
    }
}

/// A recorded VM that is not there (any more).
#[derive(Debug)]
struct Absent<'a> {
    vm: &'a Vm,
    /// As it was when this teardown destroyed it; none where it did not.
    destroyed: Option<Destroyed>,
}

impl Absent<'_> {
    fn may_have_left_volumes(&self) -> bool {
        self.vm.creation != Creation::Refused && (self.destroyed.is_some() || !self.vm.cleared)
    }

    /// When it was there for the last time that we know of, Unix seconds on the orchestrator's clock.
    fn ended(&self) -> Option<u64> {
        if self.destroyed.is_some() { Some(now()) } else { self.vm.doomed_at }
    }
}

/// Volumes on a storage.
#[derive(Debug, Clone)]
struct Listing {
    /// Node that was asked.
    node: String,
    volumes: Vec<Volume>,
    shared: bool,
    /// The token sees volumes of VMs that are gone.
    is_whole: bool,
}

/// What became of volumes whose VM is gone.
#[derive(Debug, Default)]
struct Remains {
    /// Those that are gone, by node and name.
    removed: BTreeSet<String>,
    /// Those that are not what a record says, by node and name.
    unlike: Vec<(String, LeftAlone)>,
    /// Those that could not be removed.
    left: Vec<LeftAlone>,
}

/// What a change means for the VM, unless it was made.
fn fate_of(vm: &Vm, changed: Changed) -> Option<Fate> {
    match changed {
        Changed::Done => None,
        Changed::Gone => Some(Fate::Elsewhere),
        Changed::Foreign(why) => Some(foreign(vm, why)),
        Changed::Forbidden(why) => Some(Fate::Left(why)),
    }
}

fn describe(vm: &Vm) -> String {
    format!("VM {} ({}) on {}", vm.record.vmid, vm.record.name, vm.record.node)
}

/// A VM under a recorded id that is not the recorded one. Where ours was refused, was never made or is destroyed, it was to be expected.
fn foreign(vm: &Vm, why: String) -> Fate {
    if vm.destroyed || vm.creation == Creation::Refused { Fate::Gone } else { Fate::Left(why) }
}

/// What forbids to destroy a VM that is ours.
fn obstacle(vm: &Vm, config: &VmConfig) -> Option<String> {
    if let Some(lock) = &config.lock {
        return Some(format!("it is locked ({lock}): another job works on it; when that has ended, clean up again"));
    }
    if config.protected {
        return Some("somebody set its protection: remove that if the VM may go".into());
    }
    if config.is_template {
        return Some("somebody made it a template, which clones may depend on: remove it by hand if it may go".into());
    }
    // PVE gives a freed volume's name to the next one of that VM: the name alone, all that a detached one has, does not tell.
    if let Some(detached) = config.volumes.iter().find(|attached| attached.is_unused()) {
        return Some(format!(
            "its {} is {}, which somebody detached: whether it is one of ours cannot be told, and it would go with the VM; remove it, or \
             move it to another VM first",
            detached.slot, detached.volid
        ));
    }
    let strange = config.volumes.iter().find(|attached| {
        let is = |volume: &VolumeRecord| {
            volume.volid == attached.volid && attached.serial.as_deref() == Some(&volume.serial)
        };
        let recorded = matches!(&vm.creation, Creation::Made(volumes) if volumes.iter().any(is));
        // Moved to another storage by somebody, or made by a task whose outcome was lost: place and serial tell.
        let asked = attached.slot.strip_prefix("scsi").and_then(|index| index.parse::<usize>().ok());
        let asked = asked.and_then(|index| vm.record.spec.disks.get(index));
        !recorded && asked.is_none_or(|disk| attached.serial.as_deref() != Some(&disk.serial))
    })?;
    Some(format!(
        "its {} is {}, a volume that we did not make and that would go with it: detach it from the VM first",
        strange.slot, strange.volid
    ))
}

/// Why a volume under a recorded name is not the recorded one.
fn not_recorded(record: &VolumeRecord, volume: &Volume, absent: &Absent<'_>) -> Option<String> {
    if volume.size.is_some_and(|size| size != record.size_bytes) {
        let size = volume.size.unwrap_or(0);
        return Some(format!("it has {size} bytes, ours had {}: another volume took its name", record.size_bytes));
    }
    let made = volume.ctime.filter(|made| *made > 0)?;
    // A creation may take long, and a volume's time may be that of its last write.
    if absent.ended().is_some_and(|ended| made > ended + CLOCK_SKEW_SECONDS) {
        return Some("it is younger than our VM's end: another volume took its name".into());
    }
    let upid = absent.vm.upid.as_deref().and_then(|upid| upid.parse::<Upid>().ok())?;
    let earliest = upid.started.saturating_sub(VOLUME_TIME_SLACK);
    (made < earliest).then(|| "it is older than our VM was: another volume has its name".into())
}

/// `Could not remove disk 'STORAGE:NAME', check manually: …` in the log of a destruction that succeeds all the same.
fn unremoved_disk(line: &str) -> Option<&str> {
    line.split_once("Could not remove disk '")?.1.split('\'').next()
}

/// `scsi0: successfully created disk 'STORAGE:NAME,…,size=10G'` in the log of a creation.
fn created_disk(line: &str) -> Option<VolumeRecord> {
    let (slot, rest) = line.split_once(": successfully created disk '")?;
    let drive = rest.strip_suffix('\'')?;
    let option = |name: &str| drive.split(',').find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
    Some(VolumeRecord {
        slot: slot.trim().into(),
        volid: drive.split(',').next()?.into(),
        serial: option("serial").unwrap_or_default().into(),
        size_bytes: vm::parse_size(option("size")?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_creation_names_its_disks() {
        let line = "scsi1: successfully created disk 'ceph:vm-90000-disk-1,backup=0,serial=w1-d2,size=10G'";
        let volume = created_disk(line).unwrap();
        assert_eq!((volume.volid.as_str(), volume.size_bytes), ("ceph:vm-90000-disk-1", 10 << 30));
        assert_eq!((volume.slot.as_str(), volume.serial.as_str()), ("scsi1", "w1-d2"));
        assert!(created_disk("transferred 1 GiB").is_none());
    }
}
