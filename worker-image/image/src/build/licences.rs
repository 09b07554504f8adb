//! Licences of all that the image holds, and where the sources are of what has to come with them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::packages::Packages;
use super::{BuildError, Manifest, PackageUsed};

/// Packages whose licence is in the package, beside the kernel's.
const LICENSED: [&str; 2] = ["busybox-static", "grub-common"];
/// What Debian's copyright files point to instead of repeating it: part of every Debian (base-files).
const COMMON_DIR: &str = "/usr/share/common-licenses";
const COMMON: [&str; 3] = ["GPL-2", "GPL-3", "LGPL-2.1"];
/// The C library that is linked into agent and init, of the machine that builds.
const GLIBC: [&str; 2] = ["/usr/share/doc/libc6-dev/copyright", "/usr/share/doc/libc6/copyright"];
/// Both licences of Rust's standard library and of this program.
const OURS: [(&str, &[u8]); 2] = [
    ("LICENSE-APACHE", include_bytes!("../../../../LICENSE-APACHE")),
    ("LICENSE-MIT", include_bytes!("../../../../LICENSE-MIT")),
];

const HEAD: &str = "\
What this image holds of others, and where its sources are.

The kernel, busybox and GRUB are Debian's packages, unchanged, and under the GNU General Public License (GPL-2, GPL-3; the files with the
packages' names say which part is under what). The GNU C Library is linked into busybox, agent and init; it is under the GNU Lesser General
Public License (LGPL-2.1). All texts are beside this file.

Debian keeps the complete source of every version of each package for good, with the scripts that build it:

";
const TAIL: &str = "\
On a Debian system, `apt-get source PACKAGE=VERSION` fetches the same while the version is current.

Offer: whoever hands this image on offers to whoever receives it, for three years from then, a complete copy of these sources on a medium
customary for it, for no more than the cost of handing it on. So that the C library can be replaced by a changed one, the sources of agent
and init come with it.

Rust's standard library is linked into agent and init: Copyright The Rust Project contributors, MIT or Apache-2.0 (LICENSE-MIT,
LICENSE-APACHE). So are the crates that the agent is made of; licences/INDEX.txt of the field kit names each with its licence and has its text.
";

/// Writes them into `folder`.
pub(super) fn write(packages: &Packages, manifest: &Manifest, folder: &Path) -> Result<(), BuildError> {
    fs::create_dir_all(folder).map_err(BuildError::io(folder))?;
    let put = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(BuildError::io(&path))
    };
    let copy = |name: &str, from: &Path| put(name, &fs::read(from).map_err(BuildError::io(from))?);
    let kernel_package = format!("linux-image-{}", manifest.kernel);
    for package in LICENSED.into_iter().chain([kernel_package.as_str()]) {
        copy(package, &packages.root.join("usr/share/doc").join(package).join("copyright"))?;
    }
    for name in COMMON {
        copy(name, &Path::new(COMMON_DIR).join(name))?;
    }
    copy("glibc", GLIBC.map(Path::new).into_iter().find(|path| path.exists()).unwrap_or(Path::new(GLIBC[0])))?;
    for (name, text) in OURS {
        put(name, text)?;
    }
    put("SOURCES.txt", sources(&manifest.packages, manifest.glibc.as_deref()).as_bytes())
}

/// Which sources belong to the packages and to the C library of this version.
fn sources(packages: &[PackageUsed], glibc: Option<&str>) -> String {
    let mut text = HEAD.to_owned();
    let mut add = |what: &str, (source, version): (&str, &str)| {
        // Writing to memory does not fail.
        let _ =
            writeln!(text, "{what}\n  {source} {version}\n  https://snapshot.debian.org/package/{source}/{version}/");
    };
    for package in packages {
        let what = format!("{} {}", package.name, package.version);
        add(&what, (&package.source, &package.source_version));
        for built_using in package.built_using.split(',').filter_map(exact) {
            add(&format!("{what}, in part"), built_using);
        }
    }
    match glibc {
        Some(version) => add("C library in agent and init", ("glibc", version)),
        None => text.push_str(
            "C library in agent and init: glibc, as it was where they were built; they do not name Debian's version.\n",
        ),
    }
    text + "\n" + TAIL
}

/// `SOURCE (= VERSION)`.
fn exact(built_using: &str) -> Option<(&str, &str)> {
    let (source, version) = built_using.trim().split_once(" (= ")?;
    Some((source, version.strip_suffix(')')?))
}

/// Debian's version of the GNU C Library that is linked into a program, where that has its banner.
pub(super) fn glibc_of(program: &[u8]) -> Option<String> {
    const BANNER: &[u8] = b"GNU C Library (Debian GLIBC ";
    let at = program.windows(BANNER.len()).position(|piece| piece == BANNER)? + BANNER.len();
    let version = program[at..].split(|byte| *byte == b')').next().filter(|version| version.len() < 64)?;
    String::from_utf8(version.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_named_with_its_exact_version_and_where_it_is_kept() {
        let package = |name: &str, source: &str, source_version: &str, built_using: &str| PackageUsed {
            name: name.into(),
            version: "1+b1".into(),
            sha256: String::new(),
            source: source.into(),
            source_version: source_version.into(),
            built_using: built_using.into(),
        };
        let packages = [
            package("linux-image-6.1-cloud-amd64", "linux-signed-amd64", "6.1.2+3", "linux (= 6.1.2-3)"),
            package("busybox-static", "busybox", "1:1.35.0-4", "glibc (= 2.36-9), other (= 1)"),
        ];
        let text = sources(&packages, Some("2.36-9+deb12u14"));
        for (source, version) in [
            ("linux-signed-amd64", "6.1.2+3"),
            ("linux", "6.1.2-3"),
            ("busybox", "1:1.35.0-4"),
            ("glibc", "2.36-9"),
            ("other", "1"),
            ("glibc", "2.36-9+deb12u14"),
        ] {
            let place = format!("\n  {source} {version}\n  https://snapshot.debian.org/package/{source}/{version}/\n");
            assert!(text.contains(&place), "{place} is missing in {text}");
        }
        assert!(text.contains("Offer:") && text.contains("three years"), "{text}");
    }

    #[test]
    fn the_c_library_is_known_by_its_banner() {
        let program = b"\x7fELF..GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\n\0";
        assert_eq!(glibc_of(program).unwrap(), "2.36-9+deb12u14");
        assert_eq!(glibc_of(b"\x7fELF"), None);
        assert_eq!(glibc_of(b"GNU C Library (Debian GLIBC \xff)"), None);
    }
}
