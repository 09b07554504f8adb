//! What carries our mark in the cluster, whoever made it.

use std::collections::BTreeSet;

use serde_json::json;

use super::create::intent;
use super::image::{ImageRecord, NAME_PREFIX};
use super::step::now;
use super::types::Resource;
use super::vm::{self, Attached, TAG, VmConfig, VmRecord, VolumeRecord, kinds};
use super::{Proxmox, cluster};
use crate::{DiskSpec, Found, HypervisorError, WorkerSpec};

impl Proxmox {
    pub(super) async fn find_marked(&self, fleet: Option<&str>) -> Result<Vec<Found>, HypervisorError> {
        let mut found = Vec::new();
        for guest in cluster::guests(&self.client).await?.iter().filter(|guest| is_tagged(guest)) {
            let (Some(vmid), Some(node)) = (guest.guest_id(), guest.node.as_deref()) else { continue };
            let config = match cluster::config(&self.client, node, vmid).await {
                Ok(config) => config,
                Err(error) if error.is_offline() => continue,
                Err(error) => return Err(error.into()),
            };
            let marked = config.as_ref().and_then(|config| marked(guest, node, vmid, config));
            found.extend(marked.filter(|found| fleet.is_none_or(|fleet| found.fleet == fleet)));
        }
        self.find_images(fleet, &mut found).await?;
        Ok(found)
    }

    async fn find_images(&self, fleet: Option<&str>, found: &mut Vec<Found>) -> Result<(), HypervisorError> {
        let storage = &self.settings.iso_storage;
        let mut seen = BTreeSet::new();
        for node in self.nodes().await? {
            let Ok(status) = cluster::storage(&self.client, &node, storage).await else { continue };
            if !status.active || !seen.insert(if status.shared { String::new() } else { node.clone() }) {
                continue;
            }
            for volume in cluster::volumes(&self.client, &node, storage, "iso").await? {
                let Some(of) = fleet_of_image(&volume.volid) else { continue };
                if fleet.is_some_and(|fleet| fleet != of) {
                    continue;
                }
                let (volid, size_bytes) = (volume.volid.clone(), volume.size.unwrap_or(0));
                let (node, storage, fleet) = (node.clone(), storage.clone(), of.to_owned());
                let record = ImageRecord { node: node.clone(), storage, volid, fleet, size_bytes, at: now() };
                found.push(Found {
                    object: format!("image {} on {node}", volume.volid),
                    fleet: of.to_owned(),
                    host: node,
                    record: intent(kinds::UPLOAD, &volume.volid, json!(record)),
                });
            }
        }
        Ok(())
    }
}

fn is_tagged(guest: &Resource) -> bool {
    let tags = guest.tags.as_deref().unwrap_or_default();
    guest.kind == "qemu" && tags.split([';', ',', ' ']).any(|tag| tag == TAG)
}

/// A VM whose mark agrees with its VMID, its UUID and its tags. A clone of ours, or a VM that only looks like ours, does not.
fn marked(guest: &Resource, node: &str, vmid: u32, config: &VmConfig) -> Option<Found> {
    let mark = config.mark.clone().filter(|mark| mark.vmid == vmid)?;
    if vm::disagreement(&mark, config).is_some() {
        return None;
    }
    let name = guest.name.clone().unwrap_or_default();
    let disks: Vec<&Attached> =
        config.volumes.iter().filter(|volume| volume.slot.starts_with("scsi") && volume.serial.is_some()).collect();
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
    let record = VmRecord { vmid, node: node.into(), storage, name: name.clone(), mac, spec, at: now() };
    let volumes: Vec<VolumeRecord> = disks.iter().map(|disk| volume_record(disk)).collect();
    let mut details = json!(record);
    details["volumes"] = json!(volumes);
    Some(Found {
        object: format!("VM {vmid} ({name}) on {node}"),
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
    name.split_once('-').map(|(_, fleet)| fleet).filter(|fleet| !fleet.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_tells_its_fleet() {
        assert_eq!(fleet_of_image("local:iso/fourcorners-0123456789ab-f-7.iso"), Some("f-7"));
        assert_eq!(fleet_of_image("local:iso/debian-12.iso"), None);
        assert_eq!(fleet_of_image("local:iso/fourcorners-0123456789ab-.iso"), None);
    }
}
