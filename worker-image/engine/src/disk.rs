//! Disks, opened and checked.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::error::PrepareError;
use crate::probe::{self, DiskKind};
use crate::spec::{DiskSpec, Tuning};

/// How long an exclusive open is tried again: the kernel releases a closed ring's files a little later than the close.
const BUSY_LIMIT: Duration = Duration::from_secs(2);

/// An open disk of a job.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) spec: DiskSpec,
    file: File,
    pub(crate) kind: DiskKind,
    pub(crate) direct: bool,
    /// Device number of a block device.
    pub(crate) device: Option<u64>,
    /// Smallest transfer, bytes.
    pub(crate) granularity: u64,
    /// A regular file is watched for deletion and truncation.
    watched: Option<Watched>,
}

/// What a regular file was when it was opened.
#[derive(Debug, Clone, Copy)]
struct Watched {
    /// Device and inode.
    identity: (u64, u64),
    /// Bytes that it had allocated, at most its size: a file system may allocate ahead, and takes that back later.
    allocated: u64,
}

impl Disk {
    /// Opens a disk for the job: exclusively where it is a block device that will be written.
    pub(crate) fn open(spec: &DiskSpec, writes: bool, tuning: &Tuning) -> Result<Self, PrepareError> {
        let io_error = |action| {
            let (disk, path) = (spec.id.clone(), spec.path.display().to_string());
            move |source| PrepareError::DiskIo { disk, action, path, source }
        };
        let metadata = fs::metadata(&spec.path).map_err(io_error("examine"))?;
        let character = tuning.character_devices && metadata.file_type().is_char_device();
        let kind = if character { DiskKind::File } else { probe::kind_of(&metadata).map_err(io_error("use"))? };
        if writes && !character {
            refuse_in_use(spec)?;
        }
        let exclusive = writes && kind == DiskKind::Block;
        let (file, direct) =
            open_file(&spec.path, writes, exclusive, tuning.direct && !character).map_err(io_error("open"))?;
        let size_bytes =
            if character { spec.size_bytes } else { probe::size_bytes(&file).map_err(io_error("find the size of"))? };
        let block = probe::logical_block_bytes(&file, &metadata).map_err(io_error("find the block size of"))?;
        let disk = Self {
            spec: spec.clone(),
            kind,
            direct,
            device: (kind == DiskKind::Block).then(|| metadata.rdev()),
            granularity: if direct { u64::from(block) } else { crate::limits::MIN_BLOCK_BYTES },
            watched: (kind == DiskKind::File && !character).then(|| Watched {
                identity: (metadata.dev(), metadata.ino()),
                allocated: (metadata.blocks() * 512).min(metadata.len()),
            }),
            file,
        };
        disk.check_size(size_bytes)?;
        Ok(disk)
    }

    fn check_size(&self, found: u64) -> Result<(), PrepareError> {
        if found == self.spec.size_bytes {
            return Ok(());
        }
        let problem = format!("{} has {found} bytes; it must have {}", self.spec.path.display(), self.spec.size_bytes);
        Err(PrepareError::Disk { disk: self.spec.id.clone(), problem })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// What happened to a disk under the engine: a file that was truncated, extended, deleted or replaced, a device of another size.
    /// `compressible`: the job's writes may shrink what a compressing file system allocates.
    pub(crate) fn changed(&self, compressible: bool) -> Option<String> {
        match self.look(compressible) {
            Ok(change) => change,
            Err(error) => Some(format!("{} cannot be examined any more: {error}", self.spec.path.display())),
        }
    }

    fn look(&self, compressible: bool) -> io::Result<Option<String>> {
        let Some(watched) = self.watched else {
            if self.device.is_none() {
                return Ok(None);
            }
            let size = probe::size_bytes(&self.file)?;
            return Ok((size != self.spec.size_bytes).then(|| self.other_size(size)));
        };
        let path = self.spec.path.display();
        let metadata = self.file.metadata()?;
        if metadata.nlink() == 0 {
            return Ok(Some(format!("{path} was deleted")));
        }
        let there = fs::metadata(&self.spec.path)?;
        if (there.dev(), there.ino()) != watched.identity {
            return Ok(Some(format!("{path} was replaced by another file")));
        }
        if metadata.len() != self.spec.size_bytes {
            return Ok(Some(self.other_size(metadata.len())));
        }
        // Truncated, and grown again by our own writes since the last look.
        let lost = !compressible && metadata.blocks() * 512 < watched.allocated / 8 * 7;
        Ok(lost.then(|| format!("{path} was truncated or lost blocks")))
    }

    fn other_size(&self, found: u64) -> String {
        format!("{} has {found} bytes now; it had {}", self.spec.path.display(), self.spec.size_bytes)
    }
}

fn refuse_in_use(spec: &DiskSpec) -> Result<(), PrepareError> {
    let deadline = Instant::now() + BUSY_LIMIT;
    loop {
        let probed = probe::probe_disk(&spec.path).map_err(|error| PrepareError::DiskIo {
            disk: spec.id.clone(),
            action: error.action,
            path: error.path,
            source: error.source,
        })?;
        let Some(reason) = probed.in_use else { return Ok(()) };
        if reason != probe::CLAIMED || Instant::now() > deadline {
            let problem = format!("{} must not be written: {reason}", spec.path.display());
            return Err(PrepareError::Disk { disk: spec.id.clone(), problem });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Opens with O_DIRECT, or without where the file system refuses just that.
fn open_file(path: &Path, writes: bool, exclusive: bool, direct: bool) -> io::Result<(File, bool)> {
    let exclusive = if exclusive { OFlags::EXCL } else { OFlags::empty() };
    let open = |flags: OFlags| {
        fs::OpenOptions::new()
            .read(true)
            .write(writes)
            .custom_flags((flags | exclusive).bits().cast_signed())
            .open(path)
    };
    if !direct {
        return Ok((open(OFlags::empty())?, false));
    }
    match open(OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok((open(OFlags::empty())?, false)),
        Err(error) => Err(error),
    }
}

/// A path that two disks of a job share.
pub(crate) fn same_path_twice(disks: &[DiskSpec]) -> Option<PathBuf> {
    let mut seen = std::collections::HashSet::new();
    disks
        .iter()
        .map(|disk| fs::canonicalize(&disk.path).unwrap_or_else(|_| disk.path.clone()))
        .find(|path| !seen.insert(path.clone()))
}
