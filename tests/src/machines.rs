//! The machines of a fake Proxmox VE cluster: a QEMU VM for each VM that the cluster shows running, built from its configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;
use serde_json::Value;

use crate::fake::Fake;
use crate::processes;

/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(200);
/// What the cluster shows: its VMs, and the files on the storage for images.
const INVENTORY: &str = "{'vms': [{'vmid': vm.vmid, 'node': vm.node, 'running': vm.status == 'running', \
                         'config': dict((key, str(value)) for key, value in vm.config.items())} for vm in pve.vms], \
                         'files': sorted(pve.storages['local']['files'])}";

/// Runs QEMU VMs as the cluster shows its own, until it is dropped; then none is left.
#[derive(Debug)]
pub struct Machines {
    dir: PathBuf,
    started: Arc<Mutex<Vec<Started>>>,
    ended: Arc<AtomicBool>,
    agent: Option<JoinHandle<()>>,
}

/// A VM that was turned on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Its name in the cluster.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Serial and size of each data disk, bytes.
    pub disks: Vec<(String, u64)>,
}

impl Machines {
    /// Watches this cluster from now on. Disks and images are kept in `dir`.
    ///
    /// # Panics
    /// Where `dir` cannot be made.
    #[must_use]
    pub fn of(fake: Arc<Fake>, dir: PathBuf) -> Self {
        let (images, vms) = (dir.join("images"), dir.join("vms"));
        [&images, &vms].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
        fake.run(&format!("pve.uploads_dir = {:?}", images.to_str().unwrap()));
        let (started, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let mut agent = Agent { fake, images, vms, running: BTreeMap::new(), started: Arc::clone(&started) };
        let end = Arc::clone(&ended);
        let agent = std::thread::spawn(move || {
            while !end.load(Ordering::Relaxed) {
                agent.look();
                std::thread::sleep(LOOK);
            }
        });
        Self { dir, started, ended, agent: Some(agent) }
    }

    /// The VMs that were turned on so far, in order.
    ///
    /// # Panics
    /// Where the agent has.
    #[must_use]
    pub fn started(&self) -> Vec<Started> {
        self.started.lock().unwrap().clone()
    }

    /// Process ids of the VMs that run.
    #[must_use]
    pub fn running(&self) -> Vec<Pid> {
        let dir = self.dir.to_str().unwrap();
        processes(|line| line.split('\0').next().is_some_and(|program| program.ends_with(QEMU)) && line.contains(dir))
    }

    /// Disks and images that exist.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        entries(&self.dir.join("vms")).flat_map(|vm| entries(&vm)).chain(entries(&self.dir.join("images"))).collect()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // An agent that panicked has said so, and the VMs end with it.
        let _ = self.agent.take().map(JoinHandle::join);
    }
}

const QEMU: &str = "qemu-system-x86_64";

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

struct Agent {
    fake: Arc<Fake>,
    images: PathBuf,
    /// A directory for each VM, by its UUID: a VMID may be given again at any time.
    vms: PathBuf,
    running: BTreeMap<String, Running>,
    started: Arc<Mutex<Vec<Started>>>,
}

/// A VM's process; ends with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Agent {
    fn look(&mut self) {
        // Before the inventory: what is kept by then, that knows.
        let (kept_vms, kept_images): (Vec<_>, Vec<_>) = (entries(&self.vms).collect(), entries(&self.images).collect());
        let inventory = self.fake.get(INVENTORY);
        let vms: Vec<Vm> = inventory["vms"].as_array().unwrap().iter().filter_map(Vm::read).collect();
        self.tell_the_ended(&vms);
        let there: BTreeSet<&str> = vms.iter().map(|vm| vm.uuid.as_str()).collect();
        self.running.retain(|uuid, _| vms.iter().any(|vm| vm.uuid == *uuid && vm.is_on));
        for dir in kept_vms.iter().filter(|dir| !there.contains(name_of(dir))) {
            fs::remove_dir_all(dir).unwrap();
        }
        let files: BTreeSet<&str> = inventory["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for image in kept_images.iter().filter(|image| !files.contains(name_of(image))) {
            fs::remove_file(image).unwrap();
        }
        for vm in vms.iter().filter(|vm| vm.is_on) {
            if !self.running.contains_key(&vm.uuid) {
                self.start(vm);
            }
        }
    }

    /// A VM whose guest turned it off is one that the cluster shows stopped at the next look.
    fn tell_the_ended(&mut self, vms: &[Vm]) {
        for (uuid, running) in &mut self.running {
            let has_ended = running.0.try_wait().unwrap().is_some();
            if let Some(vm) = vms.iter().find(|vm| has_ended && vm.uuid == *uuid) {
                self.fake.run(&format!(
                    "vm = pve.vm({})\nif vm and {uuid:?} in str(vm.config.get('smbios1')):\n    vm.status = vm.qmpstatus = 'stopped'",
                    vm.vmid
                ));
            }
        }
    }

    fn start(&mut self, vm: &Vm) {
        let dir = self.vms.join(&vm.uuid);
        fs::create_dir_all(&dir).unwrap();
        for disk in &vm.disks {
            let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(disk.path(&dir)).unwrap();
            file.set_len(disk.bytes).unwrap();
        }
        let arguments = vm.arguments(&dir, &self.images);
        let child = Command::new(QEMU).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let disks = vm.disks.iter().map(|disk| (disk.serial.clone(), disk.bytes)).collect();
        let started = Started { name: vm.config["name"].clone(), node: vm.node.clone(), disks };
        self.started.lock().unwrap().push(started);
        self.running.insert(vm.uuid.clone(), Running(child));
    }
}

fn name_of(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// A VM as the cluster shows it.
struct Vm {
    vmid: u64,
    node: String,
    uuid: String,
    is_on: bool,
    config: BTreeMap<String, String>,
    disks: Vec<Disk>,
}

struct Disk {
    index: u32,
    serial: String,
    bytes: u64,
    options: BTreeMap<String, String>,
}

impl Disk {
    fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("scsi{}.raw", self.index))
    }
}

impl Vm {
    /// None for one without a UUID, which is not ours.
    fn read(vm: &Value) -> Option<Self> {
        let config: BTreeMap<String, String> = serde_json::from_value(vm["config"].clone()).unwrap();
        let uuid = options(config.get("smbios1")?).1.get("uuid")?.clone();
        let disks = config.iter().filter_map(|(key, value)| {
            let index = key.strip_prefix("scsi")?.parse().ok()?;
            let (_, options) = options(value);
            Some(Disk { index, serial: options["serial"].clone(), bytes: bytes(&options["size"]), options })
        });
        Some(Self {
            vmid: vm["vmid"].as_u64().unwrap(),
            node: vm["node"].as_str().unwrap().to_owned(),
            uuid,
            is_on: vm["running"].as_bool().unwrap(),
            disks: disks.collect(),
            config,
        })
    }

    /// QEMU's options, devices named and placed as PVE does. Emulated everywhere, so that the test is the same everywhere.
    fn arguments(&self, dir: &Path, images: &Path) -> Vec<String> {
        let of = |key: &str| self.config[key].as_str();
        assert_eq!((of("bios"), of("scsihw"), of("balloon")), ("seabios", "virtio-scsi-single", "0"));
        let (image, _) = options(of("ide2"));
        let image = images.join(image.split_once(":iso/").unwrap().1);
        let (_, net) = options(of("net0"));
        let mut arguments: Vec<String> = format!(
            "-nodefaults -no-user-config -machine pc -accel tcg,thread=multi -cpu qemu64 -smp {} -m {} -smbios type=1,uuid={} \
             -boot strict=on -vga std -display none -netdev user,id=net0 \
             -device virtio-net-pci,netdev=net0,id=net0,mac={},romfile={} \
             -drive file={},if=none,id=drive-ide2,media=cdrom,readonly=on -device ide-cd,bus=ide.1,unit=0,drive=drive-ide2,id=ide2{}",
            of("cores"),
            of("memory"),
            self.uuid,
            net["virtio"],
            self.boot_index("net0"),
            image.display(),
            self.boot_index("ide2")
        )
        .split(' ')
        .map(str::to_owned)
        .collect();
        for disk in &self.disks {
            let Disk { index, serial, .. } = disk;
            arguments.extend([
                "-object".into(),
                format!("iothread,id=iothread-virtioscsi{index}"),
                "-device".into(),
                format!("virtio-scsi-pci,id=virtioscsi{index},iothread=iothread-virtioscsi{index}"),
                "-drive".into(),
                format!(
                    "file={},if=none,id=drive-scsi{index},format=raw,cache={},detect-zeroes=off,werror={}",
                    disk.path(dir).display(),
                    disk.options["cache"],
                    disk.options["werror"]
                ),
                "-device".into(),
                format!(
                    "scsi-hd,bus=virtioscsi{index}.0,channel=0,scsi-id=0,lun={index},drive=drive-scsi{index},id=scsi{index},\
                     device_id=drive-scsi{index},serial={serial}{}",
                    self.boot_index(&format!("scsi{index}"))
                ),
            ]);
        }
        arguments
    }

    /// A device's place in the boot order; what is not in it is not booted.
    fn boot_index(&self, device: &str) -> String {
        let order = self.config["boot"].strip_prefix("order=").unwrap();
        order.split(';').position(|one| one == device).map(|at| format!(",bootindex={}", 100 + at)).unwrap_or_default()
    }
}

/// The options of a property string, and what stands before them.
fn options(text: &str) -> (String, BTreeMap<String, String>) {
    let (mut first, mut options) = (String::new(), BTreeMap::new());
    for option in text.split(',') {
        match option.split_once('=') {
            Some((key, value)) => {
                options.insert(key.to_owned(), value.to_owned());
            }
            None => first = option.to_owned(),
        }
    }
    (first, options)
}

/// A size as PVE writes it: whole K, M, G or T.
fn bytes(size: &str) -> u64 {
    let (digits, unit) = size.split_at(size.len() - 1);
    let shift = 10 * (1 + "KMGT".find(unit).unwrap());
    digits.parse::<u64>().unwrap() << shift
}
