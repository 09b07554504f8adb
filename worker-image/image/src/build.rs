//! Building the ISO from Debian packages, as a plain user: nothing is installed but the tools, which must be there.

mod boot;
mod initramfs;
mod licences;
mod packages;
mod tools;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sha2::{Digest, Sha256};

pub use packages::PackageUsed;
pub use tools::{MissingTools, missing_tools};

use crate::files::replaceable;
use crate::{PersonaliseError, recognise};

/// Largest image, bytes: it is uploaded to a customer's datastore once a fleet.
pub const MAX_IMAGE_BYTES: u64 = 45_000_000;

/// What an image is built from.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// The static worker agent.
    pub worker: PathBuf,
    /// The static `worker-init`.
    pub init: PathBuf,
    /// The ISO to write; one that is there is replaced when the new one is whole.
    pub out: PathBuf,
    /// Where downloaded packages are kept for the next build.
    pub cache_dir: PathBuf,
    /// A directory of `.deb` files to use and nothing else: no network.
    pub debs: Option<PathBuf>,
    /// The time that all files in the image carry, seconds since 1970; none takes the kernel's build time, so that the same inputs
    /// give the same bytes.
    pub source_date_epoch: Option<u32>,
}

/// What SOURCE_DATE_EPOCH says, seconds since 1970; none where it is not set, or empty.
///
/// # Errors
/// It is no such number, for a person.
pub fn epoch_of_environment() -> Result<Option<u32>, String> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) if !text.is_empty() => {
            text.parse().map(Some).map_err(|_| format!("SOURCE_DATE_EPOCH={text}: seconds since 1970 are allowed"))
        }
        _ => Ok(None),
    }
}

/// What was built.
#[derive(Debug, Clone, Serialize)]
pub struct BuildReport {
    /// The ISO.
    pub iso: PathBuf,
    /// Its SHA-256, in hexadecimal digits: the image digest of every run that uses it.
    pub sha256: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// What it was made from.
    pub manifest: Manifest,
}

/// What an image was made from; also in the ISO as `/fourcorners/manifest.json`.
#[derive(Debug, Clone, Serialize)]
pub struct Manifest {
    /// `uname -r` of the kernel.
    pub kernel: String,
    /// Debian packages.
    pub packages: Vec<PackageUsed>,
    /// SHA-256 of the static worker.
    pub worker_sha256: String,
    /// SHA-256 of the static `worker-init`.
    pub init_sha256: String,
    /// Debian's version of the C library in worker and `worker-init`, where they name it.
    pub glibc: Option<String>,
    /// Kernel modules, in the order in which they are loaded.
    pub modules: Vec<String>,
    /// The time that all files carry, seconds since 1970.
    pub source_date_epoch: u32,
}

/// Why no image was built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Tools are not installed.
    #[error(transparent)]
    Missing(#[from] MissingTools),
    /// A package cannot be had.
    #[error("Debian package {package}: {problem}")]
    Package {
        /// Its name.
        package: String,
        /// What happened, with what to do.
        problem: String,
    },
    /// A tool failed.
    #[error("{command} failed ({status}): {output}")]
    Tool {
        /// The command line.
        command: String,
        /// How it ended.
        status: String,
        /// The last of what it printed.
        output: String,
    },
    /// A program for the image is not static.
    #[error(
        "{path}: it needs {interpreter}, which the image has not; build it static (RUSTFLAGS='-C target-feature=+crt-static')"
    )]
    NotStatic {
        /// The program.
        path: PathBuf,
        /// The dynamic loader it asks for.
        interpreter: String,
    },
    /// A program for the image is none.
    #[error("{path}: this is no 64-bit Linux program (ELF)")]
    NoProgram {
        /// The file.
        path: PathBuf,
    },
    /// A kernel module that the image needs is neither a file nor built in.
    #[error("kernel {kernel} has no module {module}, neither as a file nor built in")]
    NoModule {
        /// `uname -r`.
        kernel: String,
        /// The module.
        module: String,
    },
    /// A package is of another Debian than this knows.
    #[error(
        "{path}: kernel modules are compressed in this package, and the image's init loads plain ones (.ko): use the packages of Debian 12"
    )]
    CompressedModule {
        /// The module.
        path: PathBuf,
    },
    /// The image is larger than promised.
    #[error("the image has {bytes} bytes; at most {MAX_IMAGE_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The finished image has no usable slot.
    #[error(transparent)]
    Slot(#[from] PersonaliseError),
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own words.
        source: io::Error,
    },
}

impl BuildError {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

/// Builds the image.
///
/// # Errors
/// See [`BuildError`]; then `out` is as it was.
pub fn build(options: &BuildOptions) -> Result<BuildReport, BuildError> {
    tools::check(options.debs.is_none())?;
    let worker = static_program(&options.worker)?;
    let init = static_program(&options.init)?;
    let work = tempfile::tempdir().map_err(BuildError::io(Path::new("temporary directory")))?;
    let packages = packages::unpack(&absolute(options)?, work.path())?;
    let kernel = packages.kernel_release()?;
    let vmlinuz = packages.root.join(format!("boot/vmlinuz-{kernel}"));
    let source_date_epoch = match options.source_date_epoch {
        Some(epoch) => epoch,
        None => built_at(&vmlinuz)?,
    };
    let modules = initramfs::modules(&packages.root, &kernel)?;
    let manifest = Manifest {
        kernel,
        packages: packages.used.clone(),
        worker_sha256: sha256(&worker),
        init_sha256: sha256(&init),
        glibc: licences::glibc_of(&worker).or_else(|| licences::glibc_of(&init)),
        modules: modules.iter().map(|module| module.name.clone()).collect(),
        source_date_epoch,
    };
    let initramfs = initramfs::assemble(&packages.root, &modules, worker, init, source_date_epoch)?;
    let iso = work.path().join("worker.iso");
    boot::make_iso(
        &boot::Parts { packages: &packages, vmlinuz: &vmlinuz, initramfs: &initramfs, manifest: &manifest },
        work.path(),
        &iso,
    )?;
    finish(&iso, options, manifest)
}

/// Tools run in a directory of their own, where a relative path leads elsewhere.
fn absolute(options: &BuildOptions) -> Result<BuildOptions, BuildError> {
    let absolute = |path: &PathBuf| std::path::absolute(path).map_err(BuildError::io(path));
    let debs = options.debs.as_ref().map(absolute).transpose()?;
    Ok(BuildOptions { debs, cache_dir: absolute(&options.cache_dir)?, ..options.clone() })
}

fn finish(iso: &Path, options: &BuildOptions, manifest: Manifest) -> Result<BuildReport, BuildError> {
    let size_bytes = fs::metadata(iso).map_err(BuildError::io(iso))?.len();
    if size_bytes > MAX_IMAGE_BYTES {
        return Err(BuildError::TooLarge { bytes: size_bytes });
    }
    recognise(iso)?;
    let content = fs::read(iso).map_err(BuildError::io(iso))?;
    let out = &replaceable(&options.out).map_err(BuildError::io(&options.out))?;
    let dir = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(BuildError::io(dir))?;
    let copy = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .tempfile_in(dir)
        .map_err(BuildError::io(dir))?;
    fs::write(copy.path(), &content).map_err(BuildError::io(copy.path()))?;
    copy.persist(out).map_err(|error| BuildError::io(out)(error.error))?;
    Ok(BuildReport { iso: out.clone(), sha256: sha256(&content), size_bytes, manifest })
}

fn built_at(vmlinuz: &Path) -> Result<u32, BuildError> {
    let mtime = fs::metadata(vmlinuz).map_err(BuildError::io(vmlinuz))?.mtime();
    Ok(u32::try_from(mtime).unwrap_or(0))
}

fn sha256(content: &[u8]) -> String {
    hex(Sha256::new_with_prefix(content))
}

/// A digest in hexadecimal digits.
pub(crate) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads a program for the image, which has no dynamic loader.
fn static_program(path: &Path) -> Result<Vec<u8>, BuildError> {
    let no_program = || BuildError::NoProgram { path: path.into() };
    // A device has no end.
    if !fs::metadata(path).map_err(BuildError::io(path))?.is_file() {
        return Err(no_program());
    }
    let content = fs::read(path).map_err(BuildError::io(path))?;
    match elf_interpreter(&content).ok_or_else(no_program)? {
        Some(interpreter) => Err(BuildError::NotStatic { path: path.into(), interpreter }),
        None => Ok(content),
    }
}

/// The dynamic loader that a 64-bit ELF program names in its PT_INTERP header, if it does (System V ABI, "ELF Header" and "Program
/// Header"); none at all where it is no such program, or damaged.
fn elf_interpreter(elf: &[u8]) -> Option<Option<String>> {
    /// ELF, 64-bit, little-endian.
    const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
    const PT_INTERP: u64 = 3;
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let field = elf.get(at..at.checked_add(bytes)?)?;
        Some(field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let position = |at: usize, bytes: usize| number(at, bytes).and_then(|value| usize::try_from(value).ok());
    if !elf.starts_with(IDENTITY) {
        return None;
    }
    let (table, entry_bytes, entries) = (position(0x20, 8)?, position(0x36, 2)?, position(0x38, 2)?);
    for entry in 0..entries {
        let header = table.checked_add(entry * entry_bytes)?;
        if number(header, 4)? == PT_INTERP {
            let (from, bytes) = (position(header.checked_add(0x08)?, 8)?, position(header.checked_add(0x20)?, 8)?);
            let name = elf.get(from..from.checked_add(bytes)?)?;
            return Some(Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_absolute_before_a_tool_runs_elsewhere() {
        let options = BuildOptions {
            worker: "w".into(),
            init: "i".into(),
            out: "o".into(),
            cache_dir: "cache".into(),
            debs: Some("debs".into()),
            source_date_epoch: None,
        };
        let here = std::env::current_dir().unwrap();
        let absolute = absolute(&options).unwrap();
        assert_eq!((absolute.debs.unwrap(), absolute.cache_dir), (here.join("debs"), here.join("cache")));
    }

    #[test]
    fn programs_are_told_from_what_is_none_and_damaged_ones_do_no_harm() {
        let this = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(elf_interpreter(&this).unwrap().unwrap().contains("ld-linux"), "the test itself is dynamic");
        let mut damaged = this.clone();
        damaged[0x20..0x28].fill(0xff);
        damaged[0x36..0x3a].fill(0xff);
        for none in [&b"#!/bin/sh\n"[..], b"\x7fELF", &this[..0x30], &damaged] {
            assert_eq!(elf_interpreter(none), None);
        }
        for special in ["/dev/zero", "/"] {
            let error = static_program(Path::new(special)).unwrap_err();
            assert!(matches!(error, BuildError::NoProgram { .. }), "{special}: {error}");
        }
    }
}
