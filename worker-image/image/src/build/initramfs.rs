//! The worker's root file system: busybox, init, agent, and the kernel modules that a hypervisor's devices need.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};

use super::BuildError;
use crate::cpio::{Archive, Node};

/// What the worker loads at boot, with what each needs before it. NVMe and the serial port are built into the kernel.
const AT_BOOT: [&str; 15] = [
    // The power button, by which a hypervisor asks for an orderly shutdown.
    "evdev",
    "button",
    // KVM: Proxmox VE, QEMU on this machine, and clouds.
    "virtio_pci",
    "virtio-rng",
    "virtio_net",
    "virtio_blk",
    "virtio_scsi",
    // VMware.
    "vmxnet3",
    "vmw_pvscsi",
    // Hyper-V.
    "hv_vmbus",
    "hv_netvsc",
    "hv_storvsc",
    // Data disks on emulated IDE, where a hypervisor offers nothing better.
    "ata_piix",
    "ata_generic",
    "sd_mod",
];
/// In the image but loaded by nobody unless asked: devices of known speed for checking a worker.
const ON_DEMAND: [&str; 2] = ["null_blk", "scsi_debug"];
/// Commands of busybox that init and the DHCP script use, and a shell's usual ones for whoever looks at a worker.
const APPLETS: [&str; 22] = [
    "sh", "ls", "cat", "dmesg", "ps", "ip", "ifconfig", "route", "ping", "arping", "udhcpc", "mount", "umount",
    "lsmod", "insmod", "free", "top", "kill", "reboot", "poweroff", "sleep", "uname",
];

/// A kernel module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Module {
    pub(super) name: String,
    path: PathBuf,
    at_boot: bool,
}

/// The modules, each after those it needs.
pub(super) fn modules(root: &Path, kernel: &str) -> Result<Vec<Module>, BuildError> {
    let dir = merged(root, &format!("lib/modules/{kernel}"));
    let mut files = BTreeMap::new();
    collect(&dir.join("kernel"), &mut files)?;
    let builtin = dir.join("modules.builtin");
    let builtin = fs::read_to_string(&builtin).map_err(BuildError::io(&builtin))?;
    let builtin: Vec<String> = builtin.lines().filter_map(|line| module_name(Path::new(line))).collect();
    let mut ordered: Vec<Module> = Vec::new();
    let wanted = AT_BOOT.map(|name| (name, true)).into_iter().chain(ON_DEMAND.map(|name| (name, false)));
    for (name, at_boot) in wanted {
        add(&name.replace('-', "_"), at_boot, kernel, &files, &builtin, &mut ordered)?;
    }
    Ok(ordered)
}

fn add(
    name: &str,
    at_boot: bool,
    kernel: &str,
    files: &BTreeMap<String, PathBuf>,
    builtin: &[String],
    ordered: &mut Vec<Module>,
) -> Result<(), BuildError> {
    if builtin.iter().any(|other| other == name) || ordered.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(path) = files.get(name) else {
        return Err(BuildError::NoModule { kernel: kernel.into(), module: name.into() });
    };
    let content = fs::read(path).map_err(BuildError::io(path))?;
    for needed in needs(&content) {
        add(&needed, at_boot, kernel, files, builtin, ordered)?;
    }
    ordered.push(Module { name: name.into(), path: path.clone(), at_boot });
    Ok(())
}

/// A file or directory of the packages where they have it: below `/usr` since Debian 13, below the root before.
fn merged(root: &Path, path: &str) -> PathBuf {
    let plain = root.join(path);
    if plain.exists() { plain } else { root.join("usr").join(path) }
}

/// Files of all modules below `dir`, by the module's name.
fn collect(dir: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<(), BuildError> {
    for entry in fs::read_dir(dir).map_err(BuildError::io(dir))?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = module_name(&path) {
            files.insert(name, path);
        } else if path.file_name().is_some_and(|name| name.to_string_lossy().contains(".ko.")) {
            return Err(BuildError::CompressedModule { path });
        }
    }
    Ok(())
}

fn module_name(path: &Path) -> Option<String> {
    let file = path.file_name()?.to_str()?;
    file.strip_suffix(".ko").map(|name| name.replace('-', "_"))
}

/// The modules that a module's `depends=` field names: the text in its `.modinfo` section, between zero bytes.
fn needs(module: &[u8]) -> Vec<String> {
    const FIELD: &[u8] = b"\0depends=";
    let Some(at) = module.windows(FIELD.len()).position(|piece| piece == FIELD) else { return Vec::new() };
    let value = &module[at + FIELD.len()..];
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let value = String::from_utf8_lossy(&value[..end]);
    value.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

/// The compressed archive.
pub(super) fn assemble(
    root: &Path,
    modules: &[Module],
    worker: Vec<u8>,
    init: Vec<u8>,
    mtime: u32,
) -> Result<Vec<u8>, BuildError> {
    let read = |path: &Path| fs::read(path).map_err(BuildError::io(path));
    let mut archive = Archive::default();
    for dir in ["dev", "proc", "sys", "run", "tmp", "etc"] {
        archive.add(dir, Node::Directory);
    }
    archive.add("dev/console", Node::CharDevice { major: 5, minor: 1 });
    archive.add("dev/null", Node::CharDevice { major: 1, minor: 3 });
    archive.file("init", init, true);
    archive.file("bin/worker", worker, true);
    archive.file("bin/busybox", read(&merged(root, "bin/busybox"))?, true);
    for applet in APPLETS {
        archive.add(&format!("bin/{applet}"), Node::Link("busybox".into()));
    }
    archive.file("etc/dhcp-lease", include_str!("../../init/dhcp-lease.sh"), true);
    let mut at_boot = String::new();
    for module in modules {
        let file = format!("{}.ko", module.name);
        if module.at_boot {
            at_boot.push_str(&file);
            at_boot.push('\n');
        }
        archive.file(&format!("lib/modules/{file}"), read(&module.path)?, false);
    }
    archive.file("lib/modules/at-boot", at_boot, false);
    Ok(compress(&archive.bytes(mtime)))
}

/// gzip without name or time. The kernel unpacks it faster than xz under emulation, and the slot's marker cannot occur in it.
fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "6.1.0-1-cloud-amd64";

    /// Packages unpacked: every module of the image as a file with this ending, below this directory.
    fn unpacked(below: &str, ending: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join(below).join("lib/modules").join(KERNEL);
        fs::create_dir_all(modules.join("kernel/drivers")).unwrap();
        fs::write(modules.join("modules.builtin"), "").unwrap();
        for name in AT_BOOT.iter().chain(&ON_DEMAND) {
            fs::write(modules.join(format!("kernel/drivers/{name}{ending}")), "\0depends=\0").unwrap();
        }
        fs::create_dir_all(root.path().join(below).join("bin")).unwrap();
        fs::write(root.path().join(below).join("bin/busybox"), "busybox").unwrap();
        root
    }

    #[test]
    fn packages_below_the_root_and_below_usr_give_the_same() {
        let assembled = ["", "usr"].map(|below| {
            let root = unpacked(below, ".ko");
            let modules = modules(root.path(), KERNEL).unwrap();
            assert_eq!(modules.len(), AT_BOOT.len() + ON_DEMAND.len());
            assemble(root.path(), &modules, b"worker".to_vec(), b"init".to_vec(), 0).unwrap()
        });
        assert!(assembled[0] == assembled[1]);
    }

    #[test]
    fn compressed_modules_are_refused_by_name() {
        let root = unpacked("usr", ".ko.xz");
        let error = modules(root.path(), KERNEL).unwrap_err().to_string();
        assert!(error.contains(".ko.xz: kernel modules are compressed") && error.contains("Debian 12"), "{error}");
    }
}
