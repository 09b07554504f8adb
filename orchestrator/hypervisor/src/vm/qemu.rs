//! QEMU's command line for a worker VM; pure.

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Accelerator, DiskIo};
use crate::CreatedWorker;

/// First PCI slot of the data disks' controllers; eight share a slot. The slots before it hold the chipset, network and entropy.
const FIRST_DISK_SLOT: usize = 0x10;
const CONTROLLERS_A_SLOT: usize = 8;
/// Most threads for the data disks of a VM.
const MAX_IO_THREADS: usize = 4;

/// A limit on one data disk, set by QEMU: a device of known speed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    /// I/Os a second, reads and writes together; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second, reads and writes together; none for no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

/// All that a VM is made from.
pub(super) struct Machine<'a> {
    pub(super) worker: &'a CreatedWorker,
    pub(super) uuid: Uuid,
    pub(super) image: &'a Path,
    pub(super) accelerator: &'a Accelerator,
    pub(super) disk_io: &'a DiskIo,
    pub(super) throttles: &'a [Throttle],
}

/// The MAC of a worker's interface.
pub(super) fn mac(uuid: Uuid) -> String {
    crate::mac::of(&uuid.to_string())
}

/// A path as the value of one of QEMU's comma-separated options.
fn escaped(path: &Path) -> OsString {
    let text = path.as_os_str().as_encoded_bytes();
    let doubled: Vec<u8> =
        text.iter().flat_map(|byte| std::iter::repeat_n(*byte, if *byte == b',' { 2 } else { 1 })).collect();
    std::os::unix::ffi::OsStringExt::from_vec(doubled)
}

/// Options of QEMU. Its monitor listens at `monitor`, relative to its working directory: a socket's path may have 107 bytes only.
pub(super) fn arguments(machine: &Machine<'_>, console: &Path, monitor: &str) -> Vec<OsString> {
    let spec = &machine.worker.spec;
    let mut arguments: Vec<OsString> = Vec::new();
    let mut option = |name: &str, value: OsString| arguments.extend([name.into(), value]);
    option("-name", escaped(Path::new(&format!("{}/{}", spec.fleet, spec.name))));
    option("-machine", "pc".into());
    let (accelerator, cpu) = match machine.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Emulation { .. } => ("tcg,thread=multi", "qemu64"),
    };
    option("-accel", accelerator.into());
    option("-cpu", cpu.into());
    option("-smp", spec.vcpus.to_string().into());
    option("-m", format!("{}M", spec.memory_bytes >> 20).into());
    option("-uuid", machine.uuid.to_string().into());
    // The firmware boots the image and nothing else: a data disk may hold a boot sector by chance.
    option("-boot", "strict=on".into());
    let mut serial = OsString::from("file,id=serial,append=on,path=");
    serial.push(escaped(console));
    option("-chardev", serial);
    option("-serial", "chardev:serial".into());
    option("-qmp", format!("unix:{monitor},server=on,wait=off").into());
    for value in objects(machine) {
        option("-object", value.to_string().into());
    }
    for value in block_nodes(machine) {
        option("-blockdev", value.to_string().into());
    }
    option("-netdev", "user,id=net".into());
    for value in devices(machine) {
        option("-device", value.to_string().into());
    }
    arguments.extend(["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"].map(OsString::from));
    arguments
}

fn io_threads(machine: &Machine<'_>) -> usize {
    machine.worker.disks.len().min(MAX_IO_THREADS)
}

fn throttle(machine: &Machine<'_>, disk: usize) -> Option<Throttle> {
    let throttle = machine.throttles.get(disk.checked_rem(machine.throttles.len())?)?;
    Some(*throttle).filter(|throttle| *throttle != Throttle::default())
}

fn objects(machine: &Machine<'_>) -> Vec<Value> {
    let mut objects: Vec<Value> =
        (0..io_threads(machine)).map(|thread| json!({"qom-type": "iothread", "id": format!("io{thread}")})).collect();
    for disk in 0..machine.worker.disks.len() {
        let Some(Throttle { iops, bytes_per_second }) = throttle(machine, disk) else { continue };
        let limits = json!({"iops-total": iops.unwrap_or(0), "bps-total": bytes_per_second.unwrap_or(0)});
        objects.push(json!({"qom-type": "throttle-group", "id": format!("limit{disk}"), "limits": limits}));
    }
    objects
}

fn block_nodes(machine: &Machine<'_>) -> Vec<Value> {
    let mut nodes = vec![json!({"driver": "file", "node-name": "image", "filename": machine.image, "read-only": true})];
    for (at, disk) in machine.worker.disks.iter().enumerate() {
        let file = machine.disk_io.file_node(&format!("file{at}"), disk.path.as_deref().unwrap_or(Path::new("")));
        nodes.push(file);
        nodes.push(json!({"driver": "raw", "node-name": format!("raw{at}"), "file": format!("file{at}")}));
        if throttle(machine, at).is_some() {
            let group = format!("limit{at}");
            nodes.push(json!({"driver": "throttle", "node-name": format!("disk{at}"), "throttle-group": group, "file": format!("raw{at}")}));
        }
    }
    nodes
}

fn devices(machine: &Machine<'_>) -> Vec<Value> {
    let mut devices = vec![
        json!({"driver": "ide-cd", "drive": "image", "bus": "ide.1", "bootindex": 0}),
        // Without its boot ROM: nobody boots from the network, and it takes time.
        json!({"driver": "virtio-net-pci", "netdev": "net", "mac": mac(machine.uuid), "romfile": "", "addr": "0x2"}),
        json!({"driver": "virtio-rng-pci", "addr": "0x3"}),
    ];
    let threads = io_threads(machine);
    for (at, disk) in machine.worker.disks.iter().enumerate() {
        let (slot, function) = (FIRST_DISK_SLOT + at / CONTROLLERS_A_SLOT, at % CONTROLLERS_A_SLOT);
        devices.push(json!({
            "driver": "virtio-scsi-pci",
            "id": format!("scsi{at}"),
            "addr": format!("{slot:#x}.{function}"),
            "multifunction": true,
            "iothread": format!("io{}", at % threads),
            "num_queues": machine.worker.spec.vcpus,
        }));
        let top = if throttle(machine, at).is_some() { "disk" } else { "raw" };
        devices.push(json!({
            "driver": "scsi-hd",
            "bus": format!("scsi{at}.0"),
            "drive": format!("{top}{at}"),
            "serial": disk.serial,
            "device_id": disk.serial,
            // A full or failing store is the worker's to see; by default the VM would be paused.
            "werror": "report",
            "rerror": "report",
        }));
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreatedDisk, WorkerSpec};

    fn worker(disks: usize) -> CreatedWorker {
        let disk = |at: usize| CreatedDisk {
            serial: format!("FC-{at}"),
            size_bytes: 1 << 20,
            scsi_address: None,
            path: Some(format!("/disks/{at},x.img").into()),
        };
        let spec = WorkerSpec {
            name: "w,1".into(),
            uuid: Uuid::nil().to_string(),
            fleet: "f".into(),
            vcpus: 2,
            memory_bytes: 256 << 20,
            ..WorkerSpec::default()
        };
        let disks = (0..disks).map(disk).collect();
        CreatedWorker { spec, disks, id: Uuid::nil().to_string(), mac: None }
    }

    fn line(worker: &CreatedWorker, throttles: &[Throttle]) -> String {
        let machine = Machine {
            worker,
            uuid: Uuid::from_u128(0x6a1c_0000_0000_4000_8000_0000_00ab_cdef),
            image: Path::new("/images/worker.iso"),
            accelerator: &Accelerator::Emulation { why: "a test".into() },
            disk_io: &DiskIo::best(),
            throttles,
        };
        let arguments = arguments(&machine, Path::new("/logs/a,b.log"), "m.qmp");
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_machine_is_what_was_asked() {
        let line = line(&worker(2), &[]);
        for wanted in [
            "-name f/w,,1",
            "-accel tcg,thread=multi",
            "-smp 2 -m 256M -uuid 6a1c0000-0000-4000-8000-000000abcdef",
            "path=/logs/a,,b.log",
            r#""mac":"02:C2:B1:7C:01:79""#,
            r#""filename":"/disks/1,x.img""#,
            r#""aio":"io_uring""#,
            r#""direct":true"#,
            r#""detect-zeroes":"off""#,
            r#""serial":"FC-1""#,
            r#""werror":"report""#,
        ] {
            assert!(line.contains(wanted), "{wanted} is missing in {line}");
        }
        assert!(!line.contains("throttle"), "{line}");
    }

    #[test]
    fn throttles_go_round_and_an_empty_one_is_none() {
        let limits = [
            Throttle { iops: Some(400), bytes_per_second: None },
            Throttle { iops: None, bytes_per_second: Some(20 << 20) },
            Throttle::default(),
        ];
        let line = line(&worker(4), &limits);
        assert_eq!(line.matches(r#""iops-total":400"#).count(), 2, "disks 0 and 3: {line}");
        assert_eq!(line.matches(r#""bps-total":20971520"#).count(), 1, "disk 1: {line}");
        assert!(line.contains(r#""drive":"raw2""#) && line.contains(r#""drive":"disk3""#), "{line}");
    }

    #[test]
    fn every_controller_has_a_place_of_its_own() {
        let count = super::super::MAX_DISKS;
        let worker = worker(count);
        let line = line(&worker, &[]);
        let places: std::collections::BTreeSet<&str> =
            line.split(r#""addr":""#).skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(places.len(), count + 2, "with network and entropy");
        assert!(places.contains("0x1f.7") && !places.contains("0x20.0"), "{places:?}");
    }
}
