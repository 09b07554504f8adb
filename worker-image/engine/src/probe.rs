//! What a disk is, and whether it is free to be used.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::ProbeError;

/// Block device or regular file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiskKind {
    /// A block device.
    Block,
    /// A regular file.
    File,
}

/// A disk as this machine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskProbe {
    /// Exact size, bytes.
    pub size_bytes: u64,
    /// Logical block size, bytes: the smallest direct transfer.
    pub logical_block_bytes: u32,
    /// O_DIRECT is possible.
    pub direct: bool,
    /// Block device or regular file.
    pub kind: DiskKind,
    /// Why it must not be written (mounted, partitioned, held, swap …), if so.
    pub in_use: Option<String>,
}

/// Examines a block device or regular file; opens it for reading only and changes nothing.
///
/// # Errors
/// [`ProbeError`] where it cannot be opened or examined, or is neither block device nor regular file.
pub fn probe_disk(path: &Path) -> Result<DiskProbe, ProbeError> {
    let fail = |action| move |source: io::Error| ProbeError { action, path: path.display().to_string(), source };
    let metadata = fs::metadata(path).map_err(fail("examine"))?;
    let kind = kind_of(&metadata).map_err(fail("use"))?;
    let (file, direct) = open_reading(path).map_err(fail("open"))?;
    Ok(DiskProbe {
        size_bytes: size_bytes(&file).map_err(fail("find the size of"))?,
        logical_block_bytes: logical_block_bytes(&file, &metadata).map_err(fail("find the block size of"))?,
        direct,
        kind,
        in_use: in_use(path, &metadata, kind).map_err(fail("find users of"))?,
    })
}

pub(crate) fn kind_of(metadata: &fs::Metadata) -> io::Result<DiskKind> {
    let file_type = metadata.file_type();
    if file_type.is_block_device() {
        Ok(DiskKind::Block)
    } else if file_type.is_file() {
        Ok(DiskKind::File)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a block device nor a regular file"))
    }
}

fn open_reading(path: &Path) -> io::Result<(File, bool)> {
    let open = |flags: OFlags| fs::OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    match open(OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(OFlags::empty())?, false)),
        Err(error) => Err(error),
    }
}

/// Size of a block device or file, bytes.
pub(crate) fn size_bytes(mut file: &File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

/// The smallest direct transfer, bytes.
pub(crate) fn logical_block_bytes(file: &File, metadata: &fs::Metadata) -> io::Result<u32> {
    if metadata.file_type().is_block_device() {
        return Ok(rustix::fs::ioctl_blksszget(file.as_fd())?);
    }
    Ok(sysfs_u32(&queue_of(metadata.dev()).join("logical_block_size")).unwrap_or(FILE_BLOCK_BYTES))
}

/// Logical block size of a file whose file system has no block device beneath it, bytes.
const FILE_BLOCK_BYTES: u32 = 4096;

/// `/sys/dev/block/MAJOR:MINOR`.
pub(crate) fn sysfs_of(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// The queue directory of a device; that of the whole disk for a partition.
pub(crate) fn queue_of(device: u64) -> PathBuf {
    let own = sysfs_of(device);
    let queue = own.join("queue");
    if queue.exists() { queue } else { own.join("../queue") }
}

pub(crate) fn sysfs_u32(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Why a disk must not be written, if so.
fn in_use(path: &Path, metadata: &fs::Metadata, kind: DiskKind) -> io::Result<Option<String>> {
    let swap = swap_of(path, metadata);
    if swap.is_some() {
        return Ok(swap);
    }
    match kind {
        DiskKind::Block => block_in_use(path, metadata.rdev()),
        DiskKind::File => Ok(backing_of(path)),
    }
}

fn block_in_use(path: &Path, device: u64) -> io::Result<Option<String>> {
    if let Some(mount) = mount_of(device)? {
        return Ok(Some(format!("mounted on {mount}")));
    }
    let sysfs = sysfs_of(device);
    if let Some(partition) = names_in(&sysfs).into_iter().find(|name| sysfs.join(name).join("partition").exists()) {
        return Ok(Some(format!("partitioned: {partition}")));
    }
    if let Some(holder) = names_in(&sysfs.join("holders")).into_iter().next() {
        return Ok(Some(format!("held by {holder}")));
    }
    let exclusive = fs::OpenOptions::new().read(true).custom_flags(OFlags::EXCL.bits().cast_signed()).open(path);
    match exclusive {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Some("claimed by another user".to_owned())),
        Err(error) => Err(error),
        Ok(_) => Ok(None),
    }
}

fn names_in(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Where a device is mounted, by this process's mount table.
fn mount_of(device: u64) -> io::Result<Option<String>> {
    let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mount = table.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        (fields.get(2) == Some(&number.as_str())).then(|| (*fields.get(4).unwrap_or(&"?")).to_owned())
    });
    Ok(mount)
}

fn swap_of(path: &Path, metadata: &fs::Metadata) -> Option<String> {
    let table = fs::read_to_string("/proc/swaps").ok()?;
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).find_map(|swap| {
        let other = fs::metadata(swap).ok()?;
        let same = (other.dev(), other.ino()) == (metadata.dev(), metadata.ino());
        same.then(|| format!("{} is swap", path.display()))
    })
}

/// The loop device that a file backs, if any.
fn backing_of(path: &Path) -> Option<String> {
    let path = fs::canonicalize(path).ok()?;
    names_in(Path::new("/sys/block")).into_iter().find_map(|name| {
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()?;
        (Path::new(backing.trim_end()) == path).then(|| format!("it backs /dev/{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_probed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(123 << 10).unwrap();
        let probe = probe_disk(file.path()).unwrap();
        assert_eq!(probe.size_bytes, 123 << 10);
        assert_eq!(probe.kind, DiskKind::File);
        assert_eq!(probe.in_use, None);
        assert!(probe.logical_block_bytes.is_power_of_two());
    }

    #[test]
    fn neither_file_nor_device_is_an_error_with_its_path() {
        let error = probe_disk(Path::new("/dev/null")).unwrap_err();
        assert!(error.to_string().contains("/dev/null"), "{error}");
        assert!(error.to_string().contains("neither a block device nor a regular file"), "{error}");
        assert!(probe_disk(Path::new("/nowhere/at/all")).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn the_mounted_root_device_is_in_use() {
        let root = fs::metadata("/").unwrap().dev();
        let Some(mount) = mount_of(root).unwrap() else {
            println!("skipped: the root file system has no device in the mount table");
            return;
        };
        assert!(mount.starts_with('/'));
    }
}
