//! Disks appear one after another while drivers probe; the agent looks only once they have stopped.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The set of disks must be unchanged for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Then the agent starts with the disks there are; the orchestrator says which are missing.
const PATIENCE: Duration = Duration::from_secs(30);
/// A SCSI device of this type is a disk.
const SCSI_DISK_TYPE: &str = "0";
/// Sectors of `/sys/block/*/size` are of this many bytes whatever the disk's are.
const SECTOR_BYTES: u64 = 512;

/// The disks of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Disks {
    /// Whether more are unlikely to appear.
    pub(crate) settled: bool,
    /// Name and size, bytes, in order of name.
    pub(crate) found: Vec<(String, u64)>,
    /// SCSI disks without a block device as yet.
    pub(crate) awaited: usize,
}

/// Watches the disks appear.
pub(crate) struct Settling {
    since: Instant,
    changed: Instant,
    disks: Disks,
}

impl Settling {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), changed: Instant::now(), disks: Disks::default() }
    }

    /// The disks now. Once settled they are not looked at again.
    pub(crate) fn tick(&mut self) -> Disks {
        if !self.disks.settled {
            let (found, awaited) = (found(), awaited());
            if found != self.disks.found || awaited != self.disks.awaited {
                self.changed = Instant::now();
            }
            let settled = awaited == 0 && self.changed.elapsed() >= QUIET || self.since.elapsed() >= PATIENCE;
            self.disks = Disks { settled, found, awaited };
        }
        self.disks.clone()
    }
}

fn entries(dir: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// Names of the block devices that stand for a disk (not loop, RAM, CD or floppy).
fn names() -> Vec<String> {
    let is_device = |name: &String| Path::new("/sys/block").join(name).join("device").exists();
    let is_disk = |name: &String| !name.starts_with("sr") && !name.starts_with("fd");
    entries("/sys/block").into_iter().filter(|name| is_device(name) && is_disk(name)).collect()
}

fn found() -> Vec<(String, u64)> {
    let size = |name: &String| {
        let sectors = fs::read_to_string(format!("/sys/block/{name}/size")).ok();
        sectors.and_then(|sectors| sectors.trim().parse::<u64>().ok()).unwrap_or(0) * SECTOR_BYTES
    };
    names().into_iter().map(|name| (name.clone(), size(&name))).collect()
}

fn awaited() -> usize {
    let is_disk = |device: &String| {
        let kind = fs::read_to_string(format!("/sys/bus/scsi/devices/{device}/type"));
        kind.is_ok_and(|kind| kind.trim() == SCSI_DISK_TYPE)
    };
    let has_block = |device: &String| Path::new("/sys/bus/scsi/devices").join(device).join("block").exists();
    entries("/sys/bus/scsi/devices").iter().filter(|device| is_disk(device) && !has_block(device)).count()
}
