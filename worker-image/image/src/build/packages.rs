//! The Debian packages whose files go into the image: downloaded or taken from a directory, and unpacked, never installed.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{BuildError, BuildOptions, sha256, tools};

/// Names the current kernel: a package without files that depends on the versioned one.
const KERNEL_META: &str = "linux-image-cloud-amd64";
/// Packages beside the kernel; grub-common for GRUB's licence.
const OTHERS: [&str; 4] = ["busybox-static", "grub-common", "grub-efi-amd64-bin", "grub-pc-bin"];
/// Name of a versioned kernel package.
const KERNEL_PREFIX: &str = "linux-image-";
const KERNEL_SUFFIX: &str = "-cloud-amd64";

/// A package of which an image holds files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PackageUsed {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its `.deb`.
    pub sha256: String,
    /// Its source package.
    pub source: String,
    /// Version of that.
    pub source_version: String,
    /// Other source packages of which it holds parts, as `SOURCE (= VERSION), …`; empty for none.
    pub built_using: String,
}

pub(super) struct Packages {
    /// Where they are unpacked, all into one tree.
    pub(super) root: PathBuf,
    pub(super) used: Vec<PackageUsed>,
}

impl Packages {
    /// `uname -r` of the kernel.
    pub(super) fn kernel_release(&self) -> Result<String, BuildError> {
        let boot = self.root.join("boot");
        let entries = fs::read_dir(&boot).map_err(BuildError::io(&boot))?;
        entries
            .flatten()
            .find_map(|entry| entry.file_name().to_str()?.strip_prefix("vmlinuz-").map(str::to_owned))
            .ok_or_else(|| BuildError::Package { package: KERNEL_META.into(), problem: "it holds no kernel".into() })
    }
}

pub(super) fn unpack(options: &BuildOptions, work: &Path) -> Result<Packages, BuildError> {
    let debs = match &options.debs {
        Some(dir) => pick(dir)?,
        None => download(&options.cache_dir, work)?,
    };
    let root = work.join("packages");
    let mut used = Vec::new();
    for deb in debs {
        let field = |name: &str| {
            let format = format!("--showformat=${{{name}}}");
            let args = ["--show".as_ref(), format.as_ref(), deb.as_os_str()];
            tools::run("dpkg-deb", &args, work, 0).map(|value| value.trim().to_owned())
        };
        let content = fs::read(&deb).map_err(BuildError::io(&deb))?;
        used.push(PackageUsed {
            name: field("Package")?,
            version: field("Version")?,
            sha256: sha256(&content),
            source: field("source:Package")?,
            source_version: field("source:Version")?,
            built_using: field("Built-Using")?,
        });
        tools::run("dpkg-deb", &["--extract".as_ref(), deb.as_os_str(), root.as_os_str()], work, 0)?;
    }
    used.sort_by(|left, right| left.name.cmp(&right.name));
    Ok(Packages { root, used })
}

/// The packages in a directory: of each exactly one version, so that nobody has to guess which was meant.
fn pick(dir: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let entries = fs::read_dir(dir).map_err(BuildError::io(dir))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let is_kernel = |name: &str| {
        let release = name.strip_prefix(KERNEL_PREFIX).and_then(|rest| rest.strip_suffix(KERNEL_SUFFIX));
        release.is_some_and(|release| release.starts_with(|first: char| first.is_ascii_digit()))
    };
    let one = |package: &str, wanted: &dyn Fn(&str) -> bool| {
        let name = |path: &Path| {
            let file = path.file_name()?.to_str()?;
            file.strip_suffix(".deb")?.split_once('_').map(|(name, _)| name.to_owned())
        };
        let mut found = files.iter().filter(|path| name(path).is_some_and(|name| wanted(&name)));
        match (found.next(), found.next()) {
            (Some(deb), None) => Ok(deb.clone()),
            (None, _) => Err(BuildError::Package {
                package: package.into(),
                problem: format!("{} has none; fetch it with: apt-get download {package}", dir.display()),
            }),
            (Some(first), Some(second)) => Err(BuildError::Package {
                package: package.into(),
                problem: format!("{} and {} are both there; keep one", first.display(), second.display()),
            }),
        }
    };
    let mut debs = vec![one("linux-image-VERSION-cloud-amd64", &is_kernel)?];
    for package in OTHERS {
        debs.push(one(package, &|name| name == package)?);
    }
    Ok(debs)
}

/// Downloads what is not in the cache. Needs no root; apt checks each package's digest.
fn download(cache: &Path, work: &Path) -> Result<Vec<PathBuf>, BuildError> {
    fs::create_dir_all(cache).map_err(BuildError::io(cache))?;
    let cache = fs::canonicalize(cache).map_err(BuildError::io(cache))?;
    let mut debs = Vec::new();
    let kernel = current_kernel(&cache)?;
    for package in std::iter::once(kernel.as_str()).chain(OTHERS) {
        debs.push(fetch(package, &cache, work)?);
    }
    Ok(debs)
}

fn unavailable(package: &str, error: &BuildError) -> BuildError {
    BuildError::Package {
        package: package.into(),
        problem: format!(
            "apt knows no way to get it: {error}; run apt-get update as root first, or name a directory with the packages (--debs)"
        ),
    }
}

/// The kernel package that the meta package depends on.
fn current_kernel(cache: &Path) -> Result<String, BuildError> {
    let said = tools::run("apt-cache", &["depends", KERNEL_META], cache, 0)
        .map_err(|error| unavailable(KERNEL_META, &error))?;
    let names = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    names.map(str::trim).find(|name| name.ends_with(KERNEL_SUFFIX)).map(str::to_owned).ok_or_else(|| {
        BuildError::Package { package: KERNEL_META.into(), problem: format!("it depends on no kernel: {said}") }
    })
}

fn fetch(package: &str, cache: &Path, work: &Path) -> Result<PathBuf, BuildError> {
    let unavailable = |error| unavailable(package, &error);
    // One line: 'URI' FILE SIZE DIGEST. Asked in a directory without the file, or apt says nothing.
    let said = tools::run("apt-get", &["download", "--print-uris", package], work, 0).map_err(unavailable)?;
    let mut fields = said.lines().last().unwrap_or("").split(' ').skip(1);
    let (Some(file), Some(size)) = (fields.next(), fields.next().and_then(|size| size.parse::<u64>().ok())) else {
        return Err(BuildError::Package { package: package.into(), problem: format!("apt answered {said:?}") });
    };
    let deb = cache.join(file);
    // A download that broke off leaves a shorter file, or one under apt's name for partial files.
    if fs::metadata(&deb).is_ok_and(|metadata| metadata.len() == size) {
        return Ok(deb);
    }
    tools::run("apt-get", &["download", "--quiet", package], cache, 0).map_err(unavailable)?;
    Ok(deb)
}
