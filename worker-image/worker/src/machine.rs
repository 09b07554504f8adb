//! The machine that the agent runs on: its identity, its network cards and all of its disks, as `/sys` shows them.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// MAC addresses that are told; a machine with more is known by these.
const MAX_MACS: usize = 64;
/// `type` of an Ethernet interface (ARPHRD_ETHER).
const ETHERNET: &str = "1";
/// Sectors of `/sys/block/*/size` are of this many bytes whatever the disk's are.
const SECTOR_BYTES: u64 = 512;
/// `device/type` of a SCSI device that is a disk.
const SCSI_DISK: &str = "0";

/// Where a machine's `/sys` and `/dev` are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    sys: PathBuf,
    dev: PathBuf,
}

/// A disk of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineDisk {
    /// Its own serial, else `scsi-` and its address, else its kernel name.
    pub(crate) serial: String,
    /// `CONTROLLER:CHANNEL:TARGET:LUN`, controllers counted among those that carry disks.
    pub(crate) scsi_address: Option<String>,
    pub(crate) path: PathBuf,
    /// As the kernel reports it.
    pub(crate) size_bytes: u64,
}

/// A SCSI device's numbers as the kernel counts them: host, channel, target, LUN.
type ScsiNumbers = [u64; 4];

impl Machine {
    /// This machine.
    #[must_use]
    pub fn this() -> Self {
        Self { sys: "/sys".into(), dev: "/dev".into() }
    }

    /// One whose `/sys` and `/dev` are elsewhere, for tests.
    #[must_use]
    pub fn at(sys: PathBuf, dev: PathBuf) -> Self {
        Self { sys, dev }
    }

    /// SMBIOS UUID as the kernel shows it; none where there is none, or only root may read it.
    pub(crate) fn uuid(&self) -> Option<String> {
        text(&self.sys.join("class/dmi/id/product_uuid"))
    }

    /// MAC addresses of its Ethernet interfaces, lower case, sorted.
    pub(crate) fn macs(&self) -> Vec<String> {
        let interfaces = self.sys.join("class/net");
        let mac = |name: String| {
            let interface = interfaces.join(name);
            let ethernet = text(&interface.join("type"))? == ETHERNET;
            text(&interface.join("address")).filter(|mac| ethernet && mac.bytes().any(|byte| !b"0:".contains(&byte)))
        };
        let macs: BTreeSet<String> =
            names(&interfaces).into_iter().filter_map(mac).map(|mac| mac.to_lowercase()).collect();
        macs.into_iter().take(MAX_MACS).collect()
    }

    /// Every disk, in order of name: no CD-ROM, floppy, loop or RAM device, nothing made of other disks, no partition, and no drive
    /// without a medium.
    pub(crate) fn disks(&self) -> Vec<MachineDisk> {
        let block = self.sys.join("block");
        let found: Vec<(String, u64)> = names(&block)
            .into_iter()
            .filter(|name| is_disk(&block.join(name)))
            .map(|name| (name.clone(), size_bytes(&block.join(&name))))
            .filter(|(_, size_bytes)| *size_bytes > 0)
            .collect();
        let numbers: Vec<Option<ScsiNumbers>> = found.iter().map(|(name, _)| scsi_numbers(&block.join(name))).collect();
        let hosts: BTreeSet<u64> = numbers.iter().flatten().map(|numbers| numbers[0]).collect();
        let disk = |((name, size_bytes), numbers): ((String, u64), Option<ScsiNumbers>)| {
            let scsi_address = numbers.map(|numbers| address(&hosts, numbers));
            let unnamed = || scsi_address.as_ref().map_or_else(|| name.clone(), |address| format!("scsi-{address}"));
            let serial = serial(&block.join(&name)).unwrap_or_else(unnamed);
            MachineDisk { serial, scsi_address, path: self.dev.join(&name), size_bytes }
        };
        found.into_iter().zip(numbers).map(disk).collect()
    }
}

/// Whether a block device stands for a disk. What is made of files, memory or other disks has no `device`.
fn is_disk(block: &Path) -> bool {
    let device = block.join("device");
    let name = block.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let other = name.starts_with("sr") || name.starts_with("fd");
    // A path of a multipath NVMe namespace, which is a device of its own.
    let hidden = text(&block.join("hidden")).is_some_and(|hidden| hidden == "1");
    let other_scsi = scsi_numbers(block).is_some() && text(&device.join("type")).is_some_and(|kind| kind != SCSI_DISK);
    device.exists() && !other && !hidden && !other_scsi
}

fn size_bytes(block: &Path) -> u64 {
    let sectors = text(&block.join("size")).and_then(|sectors| sectors.parse::<u64>().ok());
    sectors.unwrap_or(0).saturating_mul(SECTOR_BYTES)
}

fn serial(block: &Path) -> Option<String> {
    // virtio-blk has it itself, NVMe at its controller.
    text(&block.join("serial"))
        .or_else(|| text(&block.join("device/serial")))
        .or_else(|| unit_serial(&fs::read(block.join("device/vpd_pg80")).ok()?))
}

/// The serial of SCSI's "Unit Serial Number" page (SPC-4, 7.8.17): four bytes, the last two the length, then the text.
fn unit_serial(page: &[u8]) -> Option<String> {
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let serial = String::from_utf8_lossy(page.get(4..4 + length)?).trim_matches(['\0', ' ']).to_owned();
    Some(serial).filter(|serial| !serial.is_empty())
}

fn scsi_numbers(block: &Path) -> Option<ScsiNumbers> {
    let device = fs::canonicalize(block.join("device")).ok()?;
    let numbers: Vec<u64> = device.file_name()?.to_str()?.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}

/// The kernel numbers hosts as drivers find them, IDE's included: only their order among those with disks is the hypervisor's.
fn address(hosts: &BTreeSet<u64>, [host, channel, target, lun]: ScsiNumbers) -> String {
    let controller = hosts.range(..host).count();
    format!("{controller}:{channel}:{target}:{lun}")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

/// A file's text without blanks around it; none where it is empty or cannot be read.
fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        directory: tempfile::TempDir,
    }

    impl Fake {
        fn new() -> Self {
            Self { directory: tempfile::tempdir().unwrap() }
        }

        fn machine(&self) -> Machine {
            Machine::at(self.directory.path().join("sys"), "/dev".into())
        }

        fn file(&self, path: &str, content: impl AsRef<[u8]>) {
            let path = self.directory.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// A block device of 1 GiB; a SCSI one has its numbers.
        fn block(&self, name: &str, scsi: Option<&str>) {
            self.file(&format!("block/{name}/size"), "2097152\n");
            let device = match scsi {
                Some(numbers) => format!("devices/scsi/{numbers}"),
                None => format!("devices/virtual/{name}-device"),
            };
            self.file(&format!("{device}/type"), "0\n");
            let sys = self.directory.path().join("sys");
            std::os::unix::fs::symlink(sys.join(device), sys.join(format!("block/{name}/device"))).unwrap();
        }
    }

    fn brief(disks: &[MachineDisk]) -> Vec<(&str, Option<&str>, &str)> {
        disks
            .iter()
            .map(|disk| (disk.serial.as_str(), disk.scsi_address.as_deref(), disk.path.to_str().unwrap()))
            .collect()
    }

    #[test]
    fn identity_is_what_the_firmware_and_the_network_cards_say() {
        let fake = Fake::new();
        assert_eq!((fake.machine().uuid(), fake.machine().macs()), (None, Vec::new()));
        fake.file("class/dmi/id/product_uuid", "00112233-4455-6677-8899-AABBCCDDEEFF\n");
        let interfaces = [
            ("lo", "772", "00:00:00:00:00:00"),
            ("eth1", "1", "52:54:00:AB:00:02"),
            ("eth0", "1", "52:54:00:ab:00:01"),
            ("vlan1", "1", "52:54:00:ab:00:01"),
            ("dummy", "1", "00:00:00:00:00:00"),
            ("tun0", "65534", ""),
        ];
        for (name, kind, mac) in interfaces {
            fake.file(&format!("class/net/{name}/type"), kind);
            fake.file(&format!("class/net/{name}/address"), format!("{mac}\n"));
        }
        assert_eq!(fake.machine().uuid().unwrap(), "00112233-4455-6677-8899-AABBCCDDEEFF");
        assert_eq!(fake.machine().macs(), ["52:54:00:ab:00:01", "52:54:00:ab:00:02"]);
    }

    #[test]
    fn disks_are_found_with_serial_address_and_size() {
        let fake = Fake::new();
        for name in ["loop0", "ram0", "zram0", "dm-0", "md0"] {
            fake.file(&format!("block/{name}/size"), "2097152\n");
        }
        fake.block("sr0", Some("0:0:0:0"));
        fake.block("fd0", None);
        // The kernel counted two IDE hosts first.
        fake.block("sda", Some("2:0:0:1"));
        fake.file("devices/scsi/2:0:0:1/vpd_pg80", b"\x00\x80\x00\x06FC-01 and more");
        fake.block("sdb", Some("5:0:1:0"));
        fake.file("devices/scsi/5:0:1:0/vpd_pg80", b"\x00\x80\x00\x09FC-01");
        fake.block("sdaa", Some("5:0:0:0"));
        fake.file("block/sdaa/sdaa1/partition", "1\n");
        fake.block("vda", None);
        fake.file("block/vda/serial", "virtio-serial");
        fake.block("nvme0n1", None);
        fake.file("devices/virtual/nvme0n1-device/serial", "nvme-serial         \n");
        fake.block("nvme0c0n1", None);
        fake.file("block/nvme0c0n1/hidden", "1\n");
        fake.block("vdb", None);
        fake.file("block/vdb/size", "0\n");
        fake.block("vdc", None);
        let disks = fake.machine().disks();
        let expected = [
            ("FC-01", Some("0:0:0:1"), "/dev/sda"),
            ("scsi-1:0:1:0", Some("1:0:1:0"), "/dev/sdb"),
            ("virtio-serial", None, "/dev/vda"),
            ("vdc", None, "/dev/vdc"),
            ("scsi-1:0:0:0", Some("1:0:0:0"), "/dev/sdaa"),
            ("nvme-serial", None, "/dev/nvme0n1"),
        ];
        assert_eq!(brief(&disks), expected);
        assert!(disks.iter().all(|disk| disk.size_bytes == 1 << 30));
    }

    #[test]
    fn a_scsi_device_that_is_no_disk_is_left_alone() {
        let fake = Fake::new();
        fake.block("sda", Some("0:0:0:0"));
        fake.file("devices/scsi/0:0:0:0/type", "5\n");
        assert_eq!(fake.machine().disks(), []);
    }

    #[test]
    fn this_machine_can_be_looked_at() {
        let disks = Machine::this().disks();
        assert!(disks.iter().all(|disk| disk.size_bytes > 0 && disk.path.starts_with("/dev")), "{disks:?}");
        assert!(Machine::this().macs().iter().all(|mac| mac.len() == 17 && mac.chars().nth(2) == Some(':')));
    }
}
