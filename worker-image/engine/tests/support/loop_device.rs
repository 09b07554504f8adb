//! A real block device: a loop device over a file on tmpfs, made with util-linux's `losetup`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]
#![allow(dead_code, reason = "each test file is a crate of its own and uses a part of this")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
    backing: tempfile::NamedTempFile,
}

impl LoopDevice {
    /// Makes a device; none, with the reason printed, where this process may not.
    pub(crate) fn new(size_bytes: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/shm").is_dir() {
            println!("skipped: a loop device needs root and /dev/shm");
            return None;
        }
        Self::over(tempfile::NamedTempFile::new_in("/dev/shm").unwrap(), size_bytes)
    }

    /// The same over a file of another place.
    pub(crate) fn over(backing: tempfile::NamedTempFile, size_bytes: u64) -> Option<Self> {
        backing.as_file().set_len(size_bytes).unwrap();
        let output = command("losetup", &["--find", "--show", backing.path().to_str().unwrap()]);
        match output {
            Ok(name) => Some(Self { path: name.trim().into(), size_bytes, backing }),
            Err(error) => {
                println!("skipped: no loop device: {error}");
                None
            }
        }
    }

    pub(crate) fn spec(&self, id: &str) -> load_engine::DiskSpec {
        super::disk(id, &self.path, self.size_bytes)
    }

    pub(crate) fn backing(&self) -> &Path {
        self.backing.path()
    }

    /// `loop0` and the like.
    pub(crate) fn name(&self) -> &str {
        self.path.file_name().unwrap().to_str().unwrap()
    }

    /// A file under `/sys/block/NAME`.
    pub(crate) fn sysfs(&self, file: &str) -> PathBuf {
        Path::new("/sys/block").join(self.name()).join(file)
    }

    /// Major and minor number as `MAJOR:MINOR`.
    pub(crate) fn number(&self) -> String {
        std::fs::read_to_string(self.sysfs("dev")).unwrap().trim().to_owned()
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = command("losetup", &["--detach", self.path.to_str().unwrap()]);
    }
}

/// A mounted ext4 file system on a loop device.
pub(crate) struct Mounted {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) device: LoopDevice,
}

impl Mounted {
    pub(crate) fn new(size_bytes: u64) -> Option<Self> {
        let device = LoopDevice::new(size_bytes)?;
        let path = device.path.to_str().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let made = command("mkfs.ext4", &["-q", "-F", "-m", "0", path])
            .and_then(|_| command("mount", &[path, directory.path().to_str().unwrap()]));
        match made {
            Ok(_) => Some(Self { directory, device }),
            Err(error) => {
                println!("skipped: no mounted ext4: {error}");
                None
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = command("umount", &["--lazy", self.directory.path().to_str().unwrap()]);
    }
}

/// Runs a command of the system, also from the sbin directories.
pub(crate) fn command(name: &str, arguments: &[&str]) -> Result<String, String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        Command::new(name).args(arguments).env("PATH", path).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
