//! A worker's VM as PVE is told to make it, and as it reads back: pure functions.

use serde::{Deserialize, Serialize};

use super::client::Form;
use super::settings::Settings;
use super::types::Setting;
use super::{Aio, DiskOptions, Format};
use crate::{Effect, WorkerSpec};

/// Most data disks of a VM: `scsi0` to `scsi30`, a controller each with `virtio-scsi-single`.
pub const MAX_DISKS: usize = 31;
/// Longest serial that a SCSI disk of QEMU shows.
pub const MAX_SERIAL_BYTES: usize = 20;
/// Longest id of a fleet: a UUID and the number of its deployment fit.
const MAX_FLEET_BYTES: usize = 64;
/// Longest name of a VM, as of a DNS label.
const MAX_NAME_BYTES: usize = 63;
/// First words of the line that marks a VM as ours.
const MARK: &str = "fourcorners-mark:";
/// First words of the line with the serials of a VM's data disks, by which they are told from disks that somebody attached.
const DISKS: &str = "fourcorners-disks:";
/// Tag of all VMs of ours.
pub(super) const TAG: &str = "fourcorners";

/// Bytes of a GiB: PVE allocates disks in these.
pub const GIB: u64 = 1 << 30;

/// Size that a data disk gets: rounded up to whole GiB, at least one.
#[must_use]
pub fn allocated_bytes(asked: u64) -> u64 {
    asked.div_ceil(GIB).max(1).saturating_mul(GIB)
}

/// The ownership mark in a VM's description. It names the VMID and the UUID, so that a clone of ours does not count as ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) fleet: String,
    pub(super) vmid: u32,
    pub(super) uuid: String,
}

impl Mark {
    fn line(&self) -> String {
        format!("{MARK} fleet={} vmid={} uuid={}", self.fleet, self.vmid, self.uuid)
    }

    /// The mark in a description.
    pub(super) fn find(description: &str) -> Option<Self> {
        let line = description.lines().find_map(|line| line.trim().strip_prefix(MARK))?;
        let field = |name: &str| {
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Self { fleet: field("fleet")?, vmid: field("vmid")?.parse().ok()?, uuid: field("uuid")?.to_lowercase() })
    }
}

/// All that identifies a VM that will exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VmRecord {
    pub(super) vmid: u32,
    pub(super) node: String,
    pub(super) storage: String,
    pub(super) name: String,
    pub(super) mac: String,
    /// The worker as it was asked for.
    pub(super) spec: WorkerSpec,
    /// When the intent was written, Unix seconds on the orchestrator's clock.
    pub(super) at: u64,
}

impl VmRecord {
    pub(super) fn mark(&self) -> Mark {
        Mark { fleet: self.spec.fleet.clone(), vmid: self.vmid, uuid: self.spec.uuid.to_lowercase() }
    }
}

/// A data disk as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    /// Place on the controller: `scsi0`.
    pub(super) slot: String,
    /// `STORAGE:NAME`.
    pub(super) volid: String,
    pub(super) serial: String,
    pub(super) size_bytes: u64,
}

/// What a spec asks that no VM can give.
pub(super) fn problem(spec: &WorkerSpec) -> Option<String> {
    let serial_ok = |serial: &str| {
        (1..=MAX_SERIAL_BYTES).contains(&serial.len())
            && serial.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if uuid::Uuid::parse_str(&spec.uuid).is_err() {
        return Some(format!("uuid: found {:?}, expected a UUID", spec.uuid));
    }
    if spec.disks.is_empty() || spec.disks.len() > MAX_DISKS {
        return Some(format!("disks: found {}, allowed are 1 to {MAX_DISKS}", spec.disks.len()));
    }
    let fleet_ok = spec.fleet.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if spec.fleet.is_empty() || spec.fleet.len() > MAX_FLEET_BYTES || !fleet_ok {
        return Some(format!(
            "fleet: found {:?}, allowed are 1 to {MAX_FLEET_BYTES} letters, digits, - and _",
            spec.fleet
        ));
    }
    let wrong = spec.disks.iter().find(|disk| !serial_ok(&disk.serial))?;
    Some(format!("serial: found {:?}, allowed are 1 to {MAX_SERIAL_BYTES} letters, digits, -, _ and .", wrong.serial))
}

/// Address of a worker's network card: locally administered, from its UUID.
pub(super) fn mac_of(uuid: &str) -> String {
    crate::mac::of(uuid)
}

/// `PREFIX-FLEET-WORKER` as a DNS label.
pub(super) fn name_of(prefix: &str, spec: &WorkerSpec) -> String {
    let clean = |text: &str| text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect::<String>();
    let (prefix, worker) = (clean(prefix), clean(&spec.name));
    let room = MAX_NAME_BYTES.saturating_sub(prefix.len() + worker.len() + 2);
    let fleet: String = clean(&spec.fleet).chars().take(room).collect();
    let mut name = format!("{prefix}-{fleet}-{worker}");
    name.truncate(MAX_NAME_BYTES);
    name.trim_end_matches('-').to_owned()
}

/// Parameters of `POST /nodes/{node}/qemu`.
pub(super) fn create_form(record: &VmRecord, settings: &Settings, iso: &str) -> Form {
    let mut form: Form = Vec::new();
    let mut put = |key: &str, value: String| form.push((key.to_owned(), value));
    let spec = &record.spec;
    put("vmid", record.vmid.to_string());
    put("name", record.name.clone());
    put("description", description(record));
    put("tags", format!("{TAG};{}", fleet_tag(&spec.fleet)));
    put("bios", "seabios".into());
    put("ostype", "l26".into());
    put("boot", "order=ide2".into());
    put("ide2", format!("{iso},media=cdrom"));
    put("cpu", "host".into());
    put("sockets", "1".into());
    put("cores", spec.vcpus.max(1).to_string());
    put("memory", (spec.memory_bytes >> 20).max(16).to_string());
    put("balloon", "0".into());
    put("onboot", "0".into());
    put("scsihw", "virtio-scsi-single".into());
    put("smbios1", format!("uuid={}", spec.uuid.to_lowercase()));
    let tag = settings.vlan.map(|vlan| format!(",tag={vlan}")).unwrap_or_default();
    put("net0", format!("virtio={},bridge={}{tag}", record.mac, settings.bridge));
    for (index, disk) in spec.disks.iter().enumerate() {
        put(&format!("scsi{index}"), drive(&record.storage, disk, &settings.disks));
    }
    if let Some(pool) = &settings.pool {
        put("pool", pool.clone());
    }
    form
}

fn drive(storage: &str, disk: &crate::DiskSpec, options: &DiskOptions) -> String {
    let gib = allocated_bytes(disk.size_bytes) / GIB;
    // werror=report: the default would pause the VM on a full storage. detect_zeroes=0: else zeros would be no writes at all.
    let mut drive = format!(
        "{storage}:{gib},serial={},iothread=1,cache=none,backup=0,replicate=0,detect_zeroes=0,werror=report,discard={},ssd={}",
        disk.serial,
        if options.discard { "on" } else { "ignore" },
        u8::from(options.ssd),
    );
    if let Some(aio) = options.aio {
        drive.push_str(match aio {
            Aio::IoUring => ",aio=io_uring",
            Aio::Native => ",aio=native",
            Aio::Threads => ",aio=threads",
        });
    }
    if let Some(format) = options.format {
        drive.push_str(match format {
            Format::Raw => ",format=raw",
            Format::Qcow2 => ",format=qcow2",
        });
    }
    drive
}

fn description(record: &VmRecord) -> String {
    let serials: Vec<&str> = record.spec.disks.iter().map(|disk| disk.serial.as_str()).collect();
    format!(
        "Worker {} of a Fourcorners storage test. Made by a program and removed by it.\n\n{}\n\n{DISKS} {}\n",
        record.spec.name,
        record.mark().line(),
        serials.join(" ")
    )
}

/// Tag of a fleet's VMs: lower case, as PVE keeps tags.
pub(super) fn fleet_tag(fleet: &str) -> String {
    format!("fc-{}", fleet.to_lowercase())
}

/// A VM's configuration as it reads back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct VmConfig {
    pub(super) uuid: Option<String>,
    pub(super) mark: Option<Mark>,
    /// Serials of the data disks that it was made with, by its description.
    pub(super) serials: Vec<String>,
    pub(super) tags: Vec<String>,
    pub(super) lock: Option<String>,
    pub(super) protected: bool,
    pub(super) is_template: bool,
    /// Every volume that destroying the VM would free, also one whose attachment or detachment waits for the next start. CD-ROMs are none.
    pub(super) volumes: Vec<Attached>,
}

/// A volume that a VM's configuration refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attached {
    pub(super) slot: String,
    pub(super) volid: String,
    pub(super) serial: Option<String>,
    pub(super) size_bytes: Option<u64>,
}

impl VmConfig {
    /// It is being created, or its creation broke off: what identifies it may not be there yet.
    pub(super) fn is_in_creation(&self) -> bool {
        self.lock.as_deref() == Some("create")
    }

    /// Reads the answer of `GET /nodes/{node}/qemu/{vmid}/pending`.
    pub(super) fn read(settings: &[Setting]) -> Self {
        let text = |key: &str| {
            let setting = settings.iter().find(|setting| setting.key == key)?;
            match if setting.pending.is_null() { &setting.value } else { &setting.pending } {
                serde_json::Value::String(text) => Some(text.clone()),
                serde_json::Value::Null => None,
                other => Some(other.to_string()),
            }
        };
        let is_set = |key: &str| text(key).is_some_and(|value| value == "1" || value == "true");
        let uuid = text("smbios1").and_then(|smbios| {
            smbios.split(',').find_map(|option| option.strip_prefix("uuid=")).map(str::to_lowercase)
        });
        let tags = text("tags").unwrap_or_default();
        let description = text("description").unwrap_or_default();
        Self {
            uuid,
            mark: Mark::find(&description),
            serials: serials_in(&description),
            tags: tags.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
            lock: text("lock"),
            protected: is_set("protection"),
            is_template: is_set("template"),
            volumes: volumes_in(settings),
        }
    }
}

fn serials_in(description: &str) -> Vec<String> {
    let line = description.lines().find_map(|line| line.trim().strip_prefix(DISKS)).unwrap_or_default();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Volumes that are attached now, then those that only will be.
fn volumes_in(settings: &[Setting]) -> Vec<Attached> {
    let drives = || settings.iter().filter(|setting| is_drive(&setting.key));
    let read = |setting: &Setting, value: &serde_json::Value| Attached::read(&setting.key, value.as_str()?);
    let mut volumes: Vec<Attached> = drives().filter_map(|drive| read(drive, &drive.value)).collect();
    for pending in drives().filter_map(|drive| read(drive, &drive.pending)) {
        if !volumes.contains(&pending) {
            volumes.push(pending);
        }
    }
    volumes
}

impl Attached {
    /// Detached from its controller, and still the VM's. Its options are gone then.
    pub(super) fn is_unused(&self) -> bool {
        self.slot.starts_with("unused")
    }

    fn read(slot: &str, drive: &str) -> Option<Self> {
        let mut volume = None;
        let (mut serial, mut size, mut is_cdrom) = (None, None, false);
        for option in drive.split(',') {
            match option.split_once('=') {
                None | Some(("file" | "volume", _)) => {
                    volume.get_or_insert(option.split_once('=').map_or(option, |(_, value)| value));
                }
                Some(("serial", value)) => serial = Some(value.to_owned()),
                Some(("size", value)) => size = parse_size(value),
                Some(("media", "cdrom")) => is_cdrom = true,
                Some(_) => {}
            }
        }
        let volume = volume.filter(|volume| *volume != "none" && *volume != "cdrom" && !is_cdrom)?;
        Some(Self { slot: slot.into(), volid: volume.into(), serial, size_bytes: size })
    }
}

fn is_drive(key: &str) -> bool {
    let name = key.trim_end_matches(|character: char| character.is_ascii_digit());
    name.len() < key.len() && matches!(name, "ide" | "sata" | "scsi" | "virtio" | "efidisk" | "tpmstate" | "unused")
}

/// A drive's size as PVE writes it (`10G`, `4096K`, bytes without a letter), in bytes.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        b'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    match digits.split_once('.') {
        None => digits.parse::<u64>().ok()?.checked_mul(1 << shift),
        Some((whole, fraction)) => {
            let scale = 10_u64.checked_pow(u32::try_from(fraction.len()).ok()?)?;
            let number = format!("{whole}{fraction}").parse::<u128>().ok()?;
            u64::try_from((number << shift) / u128::from(scale)).ok()
        }
    }
}

/// The disks as they were made, in the order of the spec; an error says what is missing.
pub(super) fn made_volumes(record: &VmRecord, config: &VmConfig) -> Result<Vec<VolumeRecord>, String> {
    let find = |index: usize, disk: &crate::DiskSpec| {
        let slot = format!("scsi{index}");
        let attached = config.volumes.iter().find(|volume| volume.slot == slot);
        let attached = attached.ok_or_else(|| format!("VM {} has no disk {slot}", record.vmid))?;
        if attached.serial.as_deref() != Some(&disk.serial) {
            return Err(format!(
                "VM {}: {slot} has the serial {:?}, not {}",
                record.vmid, attached.serial, disk.serial
            ));
        }
        let size_bytes = attached.size_bytes.filter(|size| *size >= disk.size_bytes).ok_or_else(|| {
            format!(
                "VM {}: {slot} reads back {:?} bytes, {} were asked",
                record.vmid, attached.size_bytes, disk.size_bytes
            )
        })?;
        Ok(VolumeRecord { slot, volid: attached.volid.clone(), serial: disk.serial.clone(), size_bytes })
    };
    record.spec.disks.iter().enumerate().map(|(index, disk)| find(index, disk)).collect()
}

/// Why a VM found under a recorded VMID is not the recorded one; none where it is.
pub(super) fn disagreement(recorded: &Mark, config: &VmConfig) -> Option<String> {
    if config.uuid.as_deref() != Some(&recorded.uuid) {
        return Some(format!(
            "its SMBIOS UUID is {}, not the recorded {}",
            config.uuid.as_deref().unwrap_or("not set"),
            recorded.uuid
        ));
    }
    if config.mark.as_ref() != Some(recorded) {
        return Some("its description does not carry our mark for this VMID, UUID and fleet".into());
    }
    let tag = fleet_tag(&recorded.fleet);
    if !config.tags.contains(&tag) {
        return Some(format!("it does not carry the tag {tag}"));
    }
    None
}

/// Kinds of journal entries and their effects.
pub(super) mod kinds {
    use super::Effect;

    pub(in super::super) const UPLOAD: &str = "proxmox.upload-image";
    pub(in super::super) const CREATE: &str = "proxmox.create-vm";
    pub(in super::super) const ADOPT: &str = "proxmox.adopt-vm";
    pub(in super::super) const START: &str = "proxmox.start-vm";
    pub(in super::super) const STOP: &str = "proxmox.stop-vm";
    pub(in super::super) const DESTROY: &str = "proxmox.destroy-vm";
    pub(in super::super) const DELETE_VOLUME: &str = "proxmox.delete-volume";
    pub(in super::super) const NONE_REMAIN: &str = "proxmox.no-volumes-remain";

    pub(in super::super) fn effect(kind: &str) -> Effect {
        match kind {
            UPLOAD | CREATE | ADOPT => Effect::Create,
            START | STOP | NONE_REMAIN => Effect::Change,
            _ => Effect::Destroy,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn setting(key: &str, value: Value, pending: Value) -> Setting {
        Setting { key: key.into(), value, pending }
    }

    #[test]
    fn a_disk_is_rounded_up_to_whole_gib() {
        for (asked, gib) in [(0, 1), (1, 1), (GIB, 1), (GIB + 1, 2), (8_000_000_000_000, 7_451), (8 << 40, 8_192)] {
            assert_eq!(allocated_bytes(asked), gib * GIB, "{asked}");
        }
        assert!(allocated_bytes(u64::MAX) >= u64::MAX - GIB, "no overflow");
    }

    #[test]
    fn sizes_are_read_as_pve_writes_them() {
        for (text, bytes) in [
            ("10G", 10 << 30),
            ("4096K", 4 << 20),
            ("12M", 12 << 20),
            ("1.5T", 3 << 39),
            ("512", 512),
            ("0.5G", 1 << 29),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "G", "10X", "-1G", "1,5G", "99999999999999T"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
    }

    #[test]
    fn a_configuration_has_every_volume_that_is_or_will_be_attached_once() {
        let config = VmConfig::read(&[
            setting("scsi0", json!("ceph:vm-9-disk-0,serial=a,size=1G"), Value::Null),
            setting("scsi1", json!("ceph:vm-9-disk-1,size=2G"), json!("nfs:9/vm-9-disk-0.qcow2,size=2G")),
            setting("virtio3", Value::Null, json!("ceph:vm-9-disk-3")),
            setting("efidisk0", json!("file=ceph:vm-9-disk-4,size=528K"), Value::Null),
            setting("unused0", json!("ceph:vm-9-disk-5"), Value::Null),
            setting("ide2", json!("local:iso/x.iso,media=cdrom,size=1M"), Value::Null),
            setting("sata0", json!("none,media=cdrom"), Value::Null),
            setting("scsihw", json!("virtio-scsi-single"), Value::Null),
        ]);
        let volumes: Vec<(&str, &str)> =
            config.volumes.iter().map(|volume| (volume.slot.as_str(), volume.volid.as_str())).collect();
        assert_eq!(
            volumes,
            [
                ("scsi0", "ceph:vm-9-disk-0"),
                ("scsi1", "ceph:vm-9-disk-1"),
                ("efidisk0", "ceph:vm-9-disk-4"),
                ("unused0", "ceph:vm-9-disk-5"),
                ("scsi1", "nfs:9/vm-9-disk-0.qcow2"),
                ("virtio3", "ceph:vm-9-disk-3"),
            ]
        );
        assert_eq!((config.volumes[0].serial.as_deref(), config.volumes[0].size_bytes), (Some("a"), Some(GIB)));
    }

    #[test]
    fn a_mark_and_serials_are_read_back_from_the_notes_that_they_were_written_to() {
        let disk = |serial: &str| crate::DiskSpec { serial: serial.into(), size_bytes: GIB };
        let spec = WorkerSpec {
            name: "w1".into(),
            uuid: "6A1C0000-0000-4000-8000-000000000001".into(),
            fleet: "fleet-7".into(),
            disks: vec![disk("w1-d1"), disk("w1-d2")],
            ..WorkerSpec::default()
        };
        let of = |text: &str| text.to_owned();
        let record = VmRecord { vmid: 9, node: of("a"), storage: of("s"), name: of("n"), mac: of("m"), spec, at: 0 };
        let notes = format!("for Anna\n{}\nkept", description(&record));
        let config = VmConfig::read(&[
            setting("description", json!(notes), Value::Null),
            setting("smbios1", json!("base64=1,uuid=6A1C0000-0000-4000-8000-000000000001"), Value::Null),
            setting("tags", json!("x;fc-fleet-7"), Value::Null),
        ]);
        assert_eq!(config.mark, Some(record.mark()));
        assert_eq!(config.serials, ["w1-d1", "w1-d2"]);
        assert_eq!(disagreement(&record.mark(), &config), None);
        assert!(disagreement(&Mark { vmid: 10, ..record.mark() }, &config).unwrap().contains("mark"));
    }
}
