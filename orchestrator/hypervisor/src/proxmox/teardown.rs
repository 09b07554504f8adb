//! Removing what a journal records: VMs, volumes that remain of them, images. Whatever does not agree is left alone and reported.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::Method;
use serde_json::json;

use super::change::{Change, Changed, Ours};
use super::create::intent;
use super::error::CallError;
use super::image::object_of;
use super::ledger::{Creation, Ledger, Upload, Vm};
use super::recover::some_at_a_time;
use super::step::{MAX_SENDS, Sending, now};
use super::task::{self, Upid};
use super::types::{Resource, Volume};
use super::vm::{self, VmConfig, VolumeRecord, kinds};
use super::{Proxmox, cluster};
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

/// What became of a recorded VM.
#[derive(Debug)]
enum Fate {
    /// It is not there (any more).
    Gone,
    /// It is not on the node that was looked at.
    Elsewhere,
    /// It stays, and why.
    Left(String),
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
                Fate::Gone | Fate::Elsewhere => gone.push(vm),
                Fate::Left(reason) => {
                    standing.insert(vm.record.spec.fleet.as_str());
                    left.push(LeftAlone { object: describe(vm), reason });
                }
            }
        }
        self.remove_volumes(&gone, journal, &mut left).await?;
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
            match self.moved_from(&node, vmid).await? {
                Some(now) => node = now,
                None => {
                    self.vmids.give_back(vmid).await;
                    return Ok(Fate::Gone);
                }
            }
        }
        Ok(Fate::Left("it is moved from node to node".into()))
    }

    /// Where a VMID is that is not on `node`; none where it is nowhere that we may see.
    async fn moved_from(&self, node: &str, vmid: u32) -> Result<Option<String>, HypervisorError> {
        if cluster::is_free(&self.client, vmid).await? {
            return Ok(None);
        }
        Ok(self.node_of(vmid).await?.filter(|now| now != node))
    }

    async fn remove_from(&self, vm: &Vm, node: &str, journal: &dyn Journal) -> Result<Fate, HypervisorError> {
        let vmid = vm.record.vmid;
        let forbids = |config: &VmConfig| obstacle(vm, config);
        let ours = Ours { mark: vm.record.mark(), node, forbids: &forbids };
        let _leave = self.gate.enter(node, Some(&vm.record.storage)).await;
        let mut rounds = 0;
        loop {
            rounds += 1;
            let status = match cluster::status_of(&self.client, node, vmid).await {
                // Ours could be looked at: this is somebody's outside of the token's pool.
                Err(error) if error.is_forbidden() => return Ok(foreign(vm, HypervisorError::from(error).to_string())),
                status => status?,
            };
            if status.is_none() && vm.destroyed {
                return Ok(Fate::Gone);
            }
            let runs = status.is_some_and(|status| status != "stopped");
            if runs && let Some(fate) = fate_of(vm, self.change_ours(&ours, Change::Stop, journal).await?) {
                return Ok(fate);
            }
            match self.change_ours(&ours, Change::Destroy, journal).await {
                // A start whose answer was lost took effect after the stop.
                Err(error) if error.to_string().contains("is running") && rounds < MAX_ROUNDS => {}
                changed => {
                    if let Some(fate) = fate_of(vm, changed?) {
                        return Ok(fate);
                    }
                    self.vmids.give_back(vmid).await;
                    return Ok(Fate::Gone);
                }
            }
        }
    }

    /// Recorded volumes whose VM is gone: a destruction that met an error leaves some.
    async fn remove_volumes(
        &self,
        gone: &[&Vm],
        journal: &dyn Journal,
        left: &mut Vec<LeftAlone>,
    ) -> Result<(), HypervisorError> {
        let mut by_place: BTreeMap<(&str, &str), Vec<&Vm>> = BTreeMap::new();
        for vm in gone.iter().filter(|vm| vm.creation != Creation::Refused) {
            by_place.entry((&vm.record.storage, &vm.record.node)).or_default().push(vm);
        }
        let mut looked_through: BTreeMap<&str, Vec<Volume>> = BTreeMap::new();
        let mut found = Remains::default();
        for ((storage, node), vms) in by_place {
            let volumes = match looked_through.get(storage) {
                Some(volumes) => volumes.clone(),
                None => match self.list_volumes(node, storage).await {
                    Ok((volumes, shared)) => {
                        if shared {
                            looked_through.insert(storage, volumes.clone());
                        }
                        volumes
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
            for vm in vms {
                self.remove_volumes_of(vm, &volumes, journal, &mut found).await?;
            }
        }
        left.append(&mut found.left);
        // Two of our VMs had the same VMID one after the other: what was the one's is not reported for the other.
        let Remains { removed, unlike, .. } = found;
        left.extend(unlike.into_iter().filter(|(place, _)| !removed.contains(place)).map(|(_, unlike)| unlike));
        Ok(())
    }

    async fn list_volumes(&self, node: &str, storage: &str) -> Result<(Vec<Volume>, bool), HypervisorError> {
        let shared = cluster::storage(&self.client, node, storage).await?.shared;
        Ok((cluster::volumes(&self.client, node, storage, "images").await?, shared))
    }

    async fn remove_volumes_of(
        &self,
        vm: &Vm,
        volumes: &[Volume],
        journal: &dyn Journal,
        found: &mut Remains,
    ) -> Result<(), HypervisorError> {
        let (vmid, node) = (vm.record.vmid, &vm.record.node);
        let of_id: Vec<&Volume> = volumes.iter().filter(|volume| volume.vmid == Some(u64::from(vmid))).collect();
        if of_id.is_empty() {
            return Ok(());
        }
        match cluster::is_free(&self.client, vmid).await {
            Ok(true) => {}
            // Whoever has this VMID now, be it a guest that we may see or not, owns what bears its number.
            Ok(false) => return Ok(()),
            Err(error) => {
                let object = format!("volumes of VM {vmid} on {} ({node})", vm.record.storage);
                let reason = format!("whether another guest has its VMID cannot be told: {error}");
                self.remains(node, &vm.record.storage, &reason, journal).await?;
                found.left.push(LeftAlone { object, reason });
                return Ok(());
            }
        }
        let recorded = match &vm.creation {
            Creation::Made(volumes) => Some(volumes.clone()),
            _ => self.volumes_by_log(vm).await,
        };
        for volume in of_id {
            let (object, place) = (format!("{} on {node}", volume.volid), object_of(node, &volume.volid));
            let record = recorded.iter().flatten().find(|record| record.volid == volume.volid);
            let reason = match record {
                None if recorded.is_some() => continue,
                None => {
                    self.remains(node, &volume.volid, UNTOLD, journal).await?;
                    Some(UNTOLD.to_owned())
                }
                Some(record) => not_recorded(record, volume, vm),
            };
            if let Some(reason) = reason {
                found.unlike.push((place, LeftAlone { object, reason }));
            } else if !found.removed.contains(&place) {
                match self.delete_unless_taken(vm, volume, journal).await {
                    Ok(()) => _ = found.removed.insert(place),
                    Err(error @ HypervisorError::Journal(_)) => return Err(error),
                    Err(error) => found.left.push(LeftAlone { object, reason: error.to_string() }),
                }
            }
        }
        Ok(())
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
        journal.outcome(id, false, json!({ "error": reason })).await?;
        Ok(())
    }

    /// Deletes a volume, unless somebody has taken its VMID since it was looked at.
    async fn delete_unless_taken(
        &self,
        vm: &Vm,
        volume: &Volume,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        if !cluster::is_free(&self.client, vm.record.vmid).await? {
            return Ok(());
        }
        self.delete(&vm.record.node, &vm.record.storage, &volume.volid, journal).await
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
        self.delete(&record.node, &record.storage, &record.volid, journal).await?;
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

    /// Deletes one volume by its name.
    async fn delete(
        &self,
        node: &str,
        storage: &str,
        volid: &str,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let _leave = self.gate.enter(node, Some(storage)).await;
        let details = json!({ "volid": volid, "node": node, "at": now() });
        let id = journal.intent(intent(kinds::DELETE_VOLUME, &object_of(node, volid), details)).await?;
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
    let strange = config.volumes.iter().find(|attached| {
        // PVE gives a freed volume's name to the next one of that VM: the name alone does not tell.
        let is = |volume: &VolumeRecord| {
            volume.volid == attached.volid
                && (attached.is_unused() || attached.serial.as_deref() == Some(&volume.serial))
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
fn not_recorded(record: &VolumeRecord, volume: &Volume, vm: &Vm) -> Option<String> {
    if volume.size.is_some_and(|size| size != record.size_bytes) {
        let size = volume.size.unwrap_or(0);
        return Some(format!("it has {size} bytes, ours had {}: another volume took its name", record.size_bytes));
    }
    let upid = vm.upid.as_deref().and_then(|upid| upid.parse::<Upid>().ok())?;
    let made = volume.ctime.filter(|made| *made > 0)?;
    let earliest = upid.started.saturating_sub(VOLUME_TIME_SLACK);
    // A creation may take long, and a volume's time may be that of its last write.
    (made < earliest).then(|| "it is older than our VM was: another volume has its name".into())
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
