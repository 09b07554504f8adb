//! Data disks as files: created once, marked by inode, and deleted only while path and inode still agree.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{CreatedDisk, DiskSpec, Effect, HypervisorError, Intent, Journal, JournalEntry, LeftAlone};

/// Kind of the journal entry that records a file's creation.
const CREATE: &str = "local.create-disk";
/// Kind of the journal entry that records a file's deletion.
const DELETE: &str = "local.delete-disk";

#[derive(Debug, Serialize, Deserialize)]
struct CreateIntent {
    path: PathBuf,
    size_bytes: u64,
}

/// What identifies the file made: a path alone could be somebody else's file by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(metadata: &fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// A file system's space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) total_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// Space of the file system that holds `dir`, or the nearest of its parents that exists.
pub(crate) fn space(dir: &Path) -> Result<Space, HypervisorError> {
    let there = nearest_existing(dir);
    let stat = rustix::fs::statvfs(there)
        .map_err(io::Error::from)
        .map_err(HypervisorError::io(format!("{}: cannot read its free space", dir.display())))?;
    Ok(Space {
        total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
        available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Type of the file system that holds `dir` (`ext4`), by the longest mount point above it.
pub(crate) fn file_system(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(nearest_existing(dir)).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (mount_point, kind) = (fields.next()?, fields.next()?);
            dir.starts_with(mount_point).then(|| (mount_point.len(), kind.to_owned()))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, kind)| kind)
}

pub(crate) fn nearest_existing(dir: &Path) -> &Path {
    dir.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists()).unwrap_or(Path::new("."))
}

/// Creates a sparse file of the disk's size; it must not exist.
pub(crate) async fn create(dir: &Path, disk: &DiskSpec, journal: &dyn Journal) -> Result<CreatedDisk, HypervisorError> {
    let path = dir.join(format!("{}.img", disk.serial));
    let size_bytes = create_at(&path, disk.size_bytes, journal).await?;
    Ok(CreatedDisk { serial: disk.serial.clone(), size_bytes, scsi_address: None, path: Some(path) })
}

/// Creates a sparse file, readable by its owner alone; it must not exist. Answers its size read back.
pub(crate) async fn create_at(path: &Path, size_bytes: u64, journal: &dyn Journal) -> Result<u64, HypervisorError> {
    let details = json!(CreateIntent { path: path.to_owned(), size_bytes });
    let object = path.display().to_string();
    let id = journal.intent(Intent { kind: CREATE.into(), effect: Effect::Create, object, details }).await?;
    match create_file(path, size_bytes) {
        Ok((identity, size_bytes)) => {
            journal.outcome(id, true, json!(identity)).await?;
            Ok(size_bytes)
        }
        Err(error) => {
            journal.outcome(id, false, json!({ "error": error.to_string() })).await?;
            Err(HypervisorError::io(format!("{}: cannot create the file", path.display()))(error))
        }
    }
}

/// With the directory, which goes again with its last file.
fn create_file(path: &Path, size_bytes: u64) -> io::Result<(Identity, u64)> {
    fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let sized = set_size(&file, size_bytes);
    if sized.is_err() {
        // Ours beyond doubt: create_new made it just now.
        fs::remove_file(path)?;
    }
    sized
}

fn set_size(file: &File, size_bytes: u64) -> io::Result<(Identity, u64)> {
    file.set_len(size_bytes)?;
    file.sync_all()?;
    let metadata = file.metadata()?;
    Ok((Identity::of(&metadata), metadata.len()))
}

/// Deletes the files that the entries record, and the fleet's directory where it is empty then.
pub(crate) async fn delete_recorded(
    root: &Path,
    recorded: &[JournalEntry],
    journal: &dyn Journal,
) -> Result<Vec<LeftAlone>, HypervisorError> {
    let mut left = Vec::new();
    for entry in recorded.iter().filter(|entry| entry.intent.kind == CREATE) {
        if let Err(reason) = delete(root, entry, journal).await? {
            left.push(reason);
        }
    }
    Ok(left)
}

/// Records how creations and deletions ended whose orchestrator did not live to record it. What cannot be told stays open.
pub(crate) async fn settle(recorded: &[JournalEntry], journal: &dyn Journal) -> Result<(), HypervisorError> {
    let creation = |entry: &JournalEntry| -> Option<CreateIntent> {
        let made =
            recorded.iter().find(|made| made.intent.kind == CREATE && made.intent.object == entry.intent.object)?;
        serde_json::from_value(made.intent.details.clone()).ok()
    };
    for entry in recorded.iter().filter(|entry| entry.outcome.is_none()) {
        let Some(CreateIntent { path, size_bytes }) = creation(entry) else { continue };
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(_) => continue,
        };
        let not_done = json!({ "error": "the orchestrator ended before it was done" });
        match (&*entry.intent.kind, found) {
            (CREATE, None) => journal.outcome(entry.id, false, not_done).await?,
            (CREATE, Some(found)) if is_untouched(&found, size_bytes) => {
                journal.outcome(entry.id, true, json!(Identity::of(&found))).await?;
            }
            (DELETE, None) => journal.outcome(entry.id, true, json!({ "found": false })).await?,
            (DELETE, Some(_)) => journal.outcome(entry.id, false, not_done).await?,
            _ => {}
        }
    }
    Ok(())
}

/// As it was created: nobody has written to it.
fn is_untouched(metadata: &fs::Metadata, size_bytes: u64) -> bool {
    metadata.is_file() && (metadata.len() == size_bytes || metadata.len() == 0) && metadata.blocks() == 0
}

async fn delete(
    root: &Path,
    entry: &JournalEntry,
    journal: &dyn Journal,
) -> Result<Result<(), LeftAlone>, HypervisorError> {
    let Ok(CreateIntent { path, size_bytes }) = serde_json::from_value(entry.intent.details.clone()) else {
        return Ok(Err(LeftAlone {
            object: format!("journal entry {}", entry.id),
            reason: "its intent cannot be read".into(),
        }));
    };
    let left = |reason: &str| Ok(Err(LeftAlone { object: path.display().to_string(), reason: reason.into() }));
    if !path.starts_with(root) {
        return left("it is outside the directory of this provider's data disks");
    }
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            remove_empty(root, &path);
            return Ok(Ok(()));
        }
        Err(error) => return left(&format!("it cannot be looked at: {error}")),
    };
    match entry.outcome.clone().map(|outcome| serde_json::from_value::<Identity>(outcome.details)) {
        Some(Ok(identity)) if !metadata.is_file() || identity != Identity::of(&metadata) => {
            return left("another file took its place (its inode is not the recorded one)");
        }
        // The orchestrator ended between creation and outcome: an untouched file of the size that was asked is the one.
        None if !is_untouched(&metadata, size_bytes) => {
            return left("its creation was not recorded to the end and it is not an empty file of the recorded size");
        }
        Some(Err(_)) => return left("its creation was recorded as failed, so the file there is not ours"),
        _ => {}
    }
    let object = path.display().to_string();
    let id =
        journal.intent(Intent { kind: DELETE.into(), effect: Effect::Destroy, object, details: json!({}) }).await?;
    let removed = fs::remove_file(&path);
    let error = removed.as_ref().err().map(ToString::to_string);
    journal.outcome(id, removed.is_ok(), json!({ "error": error })).await?;
    removed.map_err(HypervisorError::io(format!("{}: cannot delete the data disk", path.display())))?;
    remove_empty(root, &path);
    Ok(Ok(()))
}

/// Removes the directory of a file that is gone, where it was the last in it.
fn remove_empty(root: &Path, path: &Path) {
    if let Some(dir) = path.parent().filter(|dir| *dir != root) {
        // Fails while other disks are still there, and that is right.
        let _ = fs::remove_dir(dir);
    }
}
