//! What the journal's entries say of VMs and images: a pure fold.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image::{ImageRecord, object_of};
use super::vm::{VmRecord, VolumeRecord, kinds};
use crate::JournalEntry;

/// A VM that a journal records.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vm {
    pub(super) entry: i64,
    pub(super) record: VmRecord,
    pub(super) upid: Option<String>,
    pub(super) creation: Creation,
    /// Destroyed, by a later entry.
    pub(super) destroyed: bool,
    /// When its last destruction was begun, be it one that succeeded or not: Unix seconds on the orchestrator's clock.
    pub(super) doomed_at: Option<u64>,
    /// Its volumes were looked for after it was gone, and none of ours is there any more: what bears their names later is another's.
    pub(super) cleared: bool,
}

impl Vm {
    fn is(&self, vmid: u32, uuid: &str) -> bool {
        self.record.vmid == vmid && self.record.spec.uuid.eq_ignore_ascii_case(uuid)
    }
}

/// What is known of a VM's creation.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Creation {
    /// No outcome: the orchestrator ended in between.
    Open,
    /// It was made, with these volumes.
    Made(Vec<VolumeRecord>),
    /// PVE refused: what exists under its VMID is not ours.
    Refused,
    /// Its task failed; PVE should have cleaned up.
    Failed,
}

/// An image that a journal records.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Upload {
    pub(super) entry: i64,
    pub(super) record: ImageRecord,
    pub(super) upid: Option<String>,
    pub(super) is_open: bool,
    pub(super) deleted: bool,
}

/// A start, stop or destruction without an outcome.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenChange {
    pub(super) entry: i64,
    pub(super) kind: String,
    pub(super) upid: Option<String>,
    pub(super) target: Target,
}

/// A volume's deletion without an outcome.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OpenDeletion {
    pub(super) entry: i64,
    pub(super) upid: Option<String>,
    pub(super) volume: Doomed,
}

/// Volume that a deletion is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Doomed {
    pub(super) volid: String,
    pub(super) node: String,
    pub(super) at: u64,
}

/// VM that a change is about.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Target {
    pub(super) vmid: u32,
    pub(super) node: String,
    pub(super) uuid: String,
    pub(super) at: u64,
}

/// VMs of which no volume remains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cleared {
    pub(super) vms: Vec<ClearedVm>,
}

/// VM of which no volume remains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClearedVm {
    pub(super) vmid: u32,
    pub(super) uuid: String,
}

/// All that a journal records of this provider.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ledger {
    pub(super) vms: Vec<Vm>,
    pub(super) uploads: Vec<Upload>,
    pub(super) open: Vec<OpenChange>,
    pub(super) open_deletions: Vec<OpenDeletion>,
    /// Entries of VMs of which no volume remains, without an outcome.
    pub(super) open_clearings: Vec<i64>,
    /// Volumes that we tried to delete in vain, by node and name.
    pub(super) undeleted: BTreeSet<(String, String)>,
    /// Entries of ours that cannot be read: (entry, why).
    pub(super) unreadable: Vec<(i64, String)>,
    /// All UPIDs that entries name.
    pub(super) upids: Vec<String>,
}

impl Ledger {
    pub(super) fn read(entries: &[JournalEntry]) -> Self {
        let mut ledger = Self::default();
        for entry in entries.iter().filter(|entry| entry.intent.kind.starts_with("proxmox.")) {
            ledger.upids.extend(upid_of(entry));
            if let Err(error) = ledger.add(entry) {
                ledger.unreadable.push((entry.id, error.to_string()));
            }
        }
        ledger
    }

    fn add(&mut self, entry: &JournalEntry) -> Result<(), serde_json::Error> {
        let details = entry.intent.details.clone();
        match entry.intent.kind.as_str() {
            kinds::CREATE => self.vms.push(Vm {
                entry: entry.id,
                record: serde_json::from_value(details)?,
                upid: upid_of(entry),
                creation: creation_of(entry)?,
                destroyed: false,
                doomed_at: None,
                cleared: false,
            }),
            kinds::ADOPT => self.add_adopted(entry, details)?,
            kinds::UPLOAD => self.uploads.push(Upload {
                entry: entry.id,
                record: serde_json::from_value(details)?,
                upid: upid_of(entry),
                is_open: entry.outcome.is_none(),
                deleted: false,
            }),
            kinds::START | kinds::STOP | kinds::DESTROY => self.add_change(entry, details)?,
            kinds::DELETE_VOLUME => self.add_deletion(entry, details)?,
            kinds::NONE_REMAIN => self.add_clearing(entry, details)?,
            _ => {}
        }
        Ok(())
    }

    fn add_adopted(&mut self, entry: &JournalEntry, details: Value) -> Result<(), serde_json::Error> {
        #[derive(Deserialize)]
        struct Adopted {
            #[serde(flatten)]
            record: VmRecord,
            volumes: Vec<VolumeRecord>,
        }
        let Adopted { record, volumes } = serde_json::from_value(details)?;
        let creation = Creation::Made(volumes);
        let (entry, upid) = (entry.id, None);
        self.vms.push(Vm { entry, record, upid, creation, destroyed: false, doomed_at: None, cleared: false });
        Ok(())
    }

    fn add_clearing(&mut self, entry: &JournalEntry, details: Value) -> Result<(), serde_json::Error> {
        let Cleared { vms } = serde_json::from_value(details)?;
        match &entry.outcome {
            None => self.open_clearings.push(entry.id),
            Some(outcome) if outcome.succeeded => {
                let is_cleared = |vm: &&mut Vm| vms.iter().any(|cleared| vm.is(cleared.vmid, &cleared.uuid));
                self.vms.iter_mut().filter(is_cleared).for_each(|vm| vm.cleared = true);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn add_change(&mut self, entry: &JournalEntry, details: Value) -> Result<(), serde_json::Error> {
        let target: Target = serde_json::from_value(details)?;
        if entry.intent.kind == kinds::DESTROY {
            // It was there (again): its volumes are to be looked for (again).
            for vm in self.vms.iter_mut().filter(|vm| vm.is(target.vmid, &target.uuid)) {
                (vm.doomed_at, vm.cleared) = (Some(target.at), false);
            }
        }
        match &entry.outcome {
            None => {
                let (kind, upid) = (entry.intent.kind.clone(), upid_of(entry));
                self.open.push(OpenChange { entry: entry.id, kind, upid, target });
            }
            Some(outcome) if outcome.succeeded && entry.intent.kind == kinds::DESTROY => {
                self.vms.iter_mut().filter(|vm| vm.is(target.vmid, &target.uuid)).for_each(|vm| vm.destroyed = true);
            }
            Some(_) => {}
        }
        Ok(())
    }

    fn add_deletion(&mut self, entry: &JournalEntry, details: Value) -> Result<(), serde_json::Error> {
        let volume: Doomed = serde_json::from_value(details)?;
        match &entry.outcome {
            None => self.open_deletions.push(OpenDeletion { entry: entry.id, upid: upid_of(entry), volume }),
            Some(outcome) if outcome.succeeded => {
                self.undeleted.remove(&(volume.node, volume.volid));
                // With shared storage another node may have been asked.
                let same = |record: &ImageRecord| object_of(&record.node, &record.volid) == entry.intent.object;
                for upload in self.uploads.iter_mut().filter(|upload| same(&upload.record)) {
                    upload.deleted = true;
                }
            }
            // One that was only seen and left is none that we knew for ours.
            Some(outcome) if outcome.details["only_seen"] == true => {}
            Some(_) => _ = self.undeleted.insert((volume.node, volume.volid)),
        }
        Ok(())
    }
}

fn upid_of(entry: &JournalEntry) -> Option<String> {
    Some(entry.task.as_ref()?.get("upid")?.as_str()?.to_owned())
}

fn creation_of(entry: &JournalEntry) -> Result<Creation, serde_json::Error> {
    let Some(outcome) = &entry.outcome else { return Ok(Creation::Open) };
    if outcome.succeeded {
        return serde_json::from_value(outcome.details["volumes"].clone()).map(Creation::Made);
    }
    Ok(if outcome.details["refused"] == true { Creation::Refused } else { Creation::Failed })
}
