//! What carries our mark in the cluster, whoever made it.

use std::collections::BTreeSet;

use serde_json::json;

use super::create::intent;
use super::image::{self, DIGEST_DIGITS, ImageRecord, NAME_PREFIX};
use super::step::now;
use super::types::Resource;
use super::vm::{self, Attached, TAG, VmConfig, VmRecord, VolumeRecord, kinds};
use super::{Proxmox, cluster};
use crate::{DiskSpec, Found, HypervisorError, LeftAlone, Search, WorkerSpec};

/// Stands for all nodes where a storage is shared.
const SHARED: &str = "";

impl Proxmox {
    pub(super) async fn find_marked(&self, fleet: Option<&str>) -> Result<Search, HypervisorError> {
        let mut search = Search::default();
        for guest in cluster::guests(&self.client).await?.iter().filter(|guest| is_tagged(guest, fleet)) {
            let (Some(vmid), Some(node)) = (guest.guest_id(), guest.node.as_deref()) else { continue };
            let config = match cluster::config(&self.client, node, vmid).await {
                Ok(config) => config,
                Err(error) if error.is_offline() => {
                    let object = object_of(vmid, guest, node);
                    search.unread.push(LeftAlone { object, reason: HypervisorError::from(error).to_string() });
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let marked = config.as_ref().and_then(|config| marked(guest, node, vmid, config));
            search.found.extend(marked.filter(|found| fleet.is_none_or(|fleet| found.fleet == fleet)));
        }
        self.find_images(fleet, &mut search).await?;
        Ok(search)
    }

    async fn find_images(&self, fleet: Option<&str>, search: &mut Search) -> Result<(), HypervisorError> {
        let storage = &self.settings.iso_storage;
        let mut seen = BTreeSet::new();
        let mut blind = Vec::new();
        // An image may be on a node that is offline now.
        let nodes = match &self.settings.nodes {
            Some(_) => self.nodes().await?,
            None => cluster::all_nodes(&self.client).await?,
        };
        for node in nodes {
            let status = match cluster::storage(&self.client, &node, storage).await {
                Ok(status) => status,
                Err(error) => {
                    blind.push(format!("images on {node}: {error}"));
                    continue;
                }
            };
            if !status.active {
                blind.push(format!("images on {node}: storage {storage} is not active there"));
                continue;
            }
            if !seen.insert(if status.shared { SHARED.to_owned() } else { node.clone() }) {
                continue;
            }
            for volume in cluster::volumes(&self.client, &node, storage, "iso").await? {
                let Some(of) = fleet_of_image(&volume.volid) else { continue };
                if fleet.is_some_and(|fleet| fleet != of) {
                    continue;
                }
                let (volid, size_bytes) = (volume.volid.clone(), volume.size.unwrap_or(0));
                let (node, storage, fleet) = (node.clone(), storage.clone(), of.to_owned());
                let record = ImageRecord {
                    node: node.clone(),
                    storage,
                    shared: status.shared,
                    volid,
                    fleet,
                    size_bytes,
                    at: now(),
                };
                search.found.push(Found {
                    object: format!("image {} on {node}", volume.volid),
                    fleet: of.to_owned(),
                    host: node,
                    record: image::upload_intent(&record),
                });
            }
        }
        // Any node shows all that is on shared storage.
        if !seen.contains(SHARED) {
            search.blind.append(&mut blind);
        }
        Ok(())
    }
}

/// Whether a VM has our tag, and that of the fleet where one is asked for.
fn is_tagged(guest: &Resource, fleet: Option<&str>) -> bool {
    let tags = guest.tags.as_deref().unwrap_or_default();
    let has = |wanted: &str| tags.split([';', ',', ' ']).any(|tag| tag == wanted);
    guest.kind == "qemu" && has(TAG) && fleet.is_none_or(|fleet| has(&vm::fleet_tag(fleet)))
}

fn object_of(vmid: u32, guest: &Resource, node: &str) -> String {
    format!("VM {vmid} ({}) on {node}", guest.name.as_deref().unwrap_or_default())
}

/// A VM whose mark agrees with its VMID, its UUID and its tags. A clone of ours, or a VM that only looks like ours, does not.
fn marked(guest: &Resource, node: &str, vmid: u32, config: &VmConfig) -> Option<Found> {
    let mark = config.mark.clone().filter(|mark| mark.vmid == vmid)?;
    if vm::disagreement(&mark, config).is_some() {
        return None;
    }
    let name = guest.name.clone().unwrap_or_default();
    // What somebody attached is not adopted with it: then it forbids the destruction.
    let is_its_own = |volume: &&Attached| volume.serial.as_ref().is_some_and(|serial| config.serials.contains(serial));
    let disks: Vec<&Attached> = config.volumes.iter().filter(is_its_own).collect();
    let storage = disks.first().and_then(|disk| disk.volid.split(':').next()).unwrap_or_default().to_owned();
    let spec = WorkerSpec {
        name: name.clone(),
        uuid: mark.uuid.clone(),
        fleet: mark.fleet.clone(),
        disks: disks.iter().map(|disk| disk_spec(disk)).collect(),
        host: Some(node.to_owned()),
        ..WorkerSpec::default()
    };
    let mac = vm::mac_of(&mark.uuid);
    let record = VmRecord { vmid, node: node.into(), storage, name, mac, spec, at: now() };
    let volumes: Vec<VolumeRecord> = disks.iter().map(|disk| volume_record(disk)).collect();
    let mut details = json!(record);
    details["volumes"] = json!(volumes);
    Some(Found {
        object: object_of(vmid, guest, node),
        fleet: mark.fleet,
        host: node.into(),
        record: intent(kinds::ADOPT, &vmid.to_string(), details),
    })
}

fn disk_spec(disk: &Attached) -> DiskSpec {
    DiskSpec { serial: disk.serial.clone().unwrap_or_default(), size_bytes: disk.size_bytes.unwrap_or(0) }
}

fn volume_record(disk: &Attached) -> VolumeRecord {
    VolumeRecord {
        slot: disk.slot.clone(),
        volid: disk.volid.clone(),
        serial: disk.serial.clone().unwrap_or_default(),
        size_bytes: disk.size_bytes.unwrap_or(0),
    }
}

/// The fleet in an image's name `STORAGE:iso/fourcorners-DIGEST-FLEET.iso`.
fn fleet_of_image(volid: &str) -> Option<&str> {
    let name = volid.split_once(":iso/")?.1.strip_prefix(NAME_PREFIX)?.strip_suffix(".iso")?;
    let (digest, fleet) = name.split_once('-')?;
    (digest.len() == DIGEST_DIGITS && !fleet.is_empty()).then_some(fleet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_tells_its_fleet() {
        assert_eq!(fleet_of_image("local:iso/fourcorners-0123456789ab-f-7.iso"), Some("f-7"));
        assert_eq!(fleet_of_image("local:iso/debian-12.iso"), None);
        assert_eq!(fleet_of_image("local:iso/fourcorners-debian-12.iso"), None);
        assert_eq!(fleet_of_image("local:iso/fourcorners-0123456789ab-.iso"), None);
    }
}
