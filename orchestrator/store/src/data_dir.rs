//! The data directory, and the lock that keeps a second orchestrator off it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::{RunId, StoreError};

/// Name of the database in the data directory.
pub const DATABASE_FILE: &str = "fourcorners.sqlite";

/// Name of the lock file in the data directory.
pub const LOCK_FILE: &str = "orchestrator.lock";

/// A data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir {
    path: PathBuf,
}

/// Held by the one orchestrator on a data directory; the kernel releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct DataDirLock {
    _file: File,
}

impl DataDir {
    /// Names a data directory; touches nothing.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The database in it.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.path.join(DATABASE_FILE)
    }

    /// Directory of the workers' logs: `FLEET/` each.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    /// The report that is written when a run ends.
    #[must_use]
    pub fn report(&self, run: RunId) -> PathBuf {
        self.path.join("reports").join(format!("{run}.html"))
    }

    /// Creates the directory where it does not exist, and takes its lock.
    ///
    /// # Errors
    /// [`StoreError::Locked`] with the holder's process id, or [`StoreError::DataDir`] where the directory cannot be used.
    pub fn lock(&self) -> Result<DataDirLock, StoreError> {
        self.create()?;
        let path = self.path.join(LOCK_FILE);
        let fail = |action| {
            let path = path.clone();
            move |source| StoreError::DataDir { path, action, source }
        };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail("opened for writing"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Locked { holder: holder(&mut file), path }),
            Err(TryLockError::Error(source)) => return Err(fail("locked")(source)),
        }
        write_holder(&mut file).map_err(fail("written"))?;
        Ok(DataDirLock { _file: file })
    }

    /// Free space of the file system that holds the directory, or the nearest of its parents that exists, bytes.
    ///
    /// # Errors
    /// [`StoreError::DataDir`] where the kernel does not tell.
    pub fn available_bytes(&self) -> Result<u64, StoreError> {
        let there = self.path.ancestors().find(|path| !path.as_os_str().is_empty() && path.exists());
        let stat = rustix::fs::statvfs(there.unwrap_or(Path::new("."))).map_err(|error| StoreError::DataDir {
            path: self.path.clone(),
            action: "looked at for its free space",
            source: error.into(),
        })?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Creates the directory where it does not exist.
    pub(crate) fn create(&self) -> Result<(), StoreError> {
        fs::create_dir_all(&self.path).map_err(|source| StoreError::DataDir {
            path: self.path.clone(),
            action: "created",
            source,
        })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

/// The process id in a lock file; none while its holder is just writing it.
fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_lock_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = DataDir::new(dir.path().join("new"));
        let held = data_dir.lock().unwrap();
        let error = data_dir.lock().unwrap_err();
        assert!(matches!(error, StoreError::Locked { holder: Some(pid), .. } if pid == std::process::id()), "{error}");
        assert!(error.to_string().contains("--data-dir"), "{error}");
        drop(held);
        data_dir.lock().unwrap();
    }

    #[test]
    fn free_space_is_that_of_the_nearest_directory_that_exists() {
        let dir = tempfile::tempdir().unwrap();
        let free = |path: &Path| DataDir::new(path).available_bytes().unwrap();
        assert_eq!(free(Path::new("/proc/self/none/yet")), 0, "a file system without space");
        assert!(free(&dir.path().join("none/yet")) > 0);
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = DataDir::new(file.join("below")).lock().unwrap_err();
        assert!(matches!(&error, StoreError::DataDir { action: "created", .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{}: cannot be created", file.join("below").display())));

        // Nobody may create files in /sys, not even root.
        let error = DataDir::new("/sys/kernel").lock().unwrap_err();
        assert!(
            error.to_string().starts_with("/sys/kernel/orchestrator.lock: cannot be opened for writing"),
            "{error}"
        );
    }
}
