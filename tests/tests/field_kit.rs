//! The field kit, unpacked in an empty folder and run with no network but loopback and without a compiler in reach.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// All that the kit's program may find: a shell for its children, what ends them, what sets up the namespace's loopback, and an emulator.
const TOOLS: [&str; 4] = ["sh", "setpriv", "ip", "qemu-system-x86_64"];
/// Set where the test is wanted.
const WANTED: &str = "FOURCORNERS_TEST_FIELD_KIT";

/// `unshare` into a network namespace of its own; a plain user needs a user namespace for it.
fn unshared() -> Vec<&'static str> {
    if rustix::process::geteuid().is_root() { vec!["--net"] } else { vec!["--user", "--map-root-user", "--net"] }
}

/// Why there can be no such namespace here, if so.
fn no_namespace() -> Option<String> {
    let probe = Command::new("unshare").args(unshared()).args(["ip", "link", "set", "lo", "up"]).output();
    match probe {
        Ok(answer) if answer.status.success() => None,
        Ok(answer) => Some(format!("unshare: {}", String::from_utf8_lossy(&answer.stderr).trim())),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

struct Kit {
    scratch: tempfile::TempDir,
    folder: PathBuf,
}

/// Where a program of this machine is.
fn installed(tool: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let place = places.find_map(|place| Some(place.join(tool)).filter(|place| place.exists()));
    assert!(place.is_some(), "{tool} is installed");
    place.unwrap()
}

/// A directory of links to [`TOOLS`] and nothing else.
fn tools(scratch: &Path) -> PathBuf {
    let dir = scratch.join("tools");
    fs::create_dir(&dir).unwrap();
    for tool in TOOLS {
        std::os::unix::fs::symlink(installed(tool), dir.join(tool)).unwrap();
    }
    dir
}

impl Kit {
    /// Builds the archive and unpacks it where nothing else is: outside the source tree, which the program would find.
    fn unpack() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        assert!(!scratch.path().starts_with(end_to_end::workspace()), "{:?}: set TMPDIR elsewhere", scratch.path());
        let made = Command::new(end_to_end::workspace().join("tests/dist"))
            .args(["--profile", "release", "--output"])
            .arg(scratch.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let archive = listing(scratch.path()).pop().unwrap();
        assert_eq!(archive.extension().unwrap(), "gz", "{archive:?}");
        let unpacked = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(scratch.path()).status().unwrap();
        assert!(unpacked.success());
        fs::remove_file(archive).unwrap();
        let folder = listing(scratch.path()).pop().unwrap();
        tools(scratch.path());
        Self { scratch, folder }
    }

    /// Runs the kit's own program in a network namespace with loopback alone and an environment of nothing but a path to [`TOOLS`].
    fn run(&self, arguments: &[&str]) -> Output {
        let script = "ip link set lo up && exec ./fourcorners \"$@\"";
        // By its path: it is not among the tools.
        Command::new(installed("unshare"))
            .args(unshared())
            .args(["/bin/sh", "-c", script, "fourcorners"])
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", self.scratch.path().join("tools"))
            .output()
            .unwrap()
    }

    fn demo(&self, arguments: &[&str]) -> serde_json::Value {
        let answer = self.run(arguments);
        let errors = String::from_utf8_lossy(&answer.stderr);
        assert!(answer.status.success(), "{arguments:?}: {errors}");
        serde_json::from_slice(&answer.stdout).unwrap()
    }
}

fn listing(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn complete_cases(export: &serde_json::Value) -> usize {
    export["cases"].as_array().unwrap().iter().filter(|case| case["state"] == "complete").count()
}

#[test]
fn the_kit_alone_runs_the_demo_on_processes_and_on_vms() {
    if std::env::var_os(WANTED).is_none() {
        println!("skipped: the field kit: it compiles everything a second time, static; set {WANTED}=1 to test it");
        return;
    }
    if let Some(reason) = no_namespace() {
        println!("skipped: the field kit without a network: {reason}");
        return;
    }
    if let Some(reason) = end_to_end::vm::lacking() {
        println!("skipped: the field kit: {reason}");
        return;
    }
    let kit = Kit::unpack();
    for file in [
        "fourcorners",
        "fourcorners-worker.iso",
        "README.md",
        "ARCHITECTURE.md",
        "docs/plan.md",
        "licences/INDEX.txt",
        "licences/SOURCES.txt",
        "licences/GPL-2",
        "licences/GPL-3",
        "licences/LGPL-2.1",
        "licences/glibc",
        "licences/rust-std/LICENSE-MIT",
        "SHA256SUMS",
    ] {
        assert!(kit.folder.join(file).is_file(), "{file} is in the kit");
    }
    let sums = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&kit.folder)
        .output()
        .unwrap();
    assert!(sums.status.success(), "{}", String::from_utf8_lossy(&sums.stdout));
    assert!(listing(&kit.folder.join("licences")).len() > 100, "most packages ship a licence");
    let sources = fs::read_to_string(kit.folder.join("licences/SOURCES.txt")).unwrap();
    assert!(sources.contains("snapshot.debian.org/package/glibc/") && sources.contains("Offer:"), "{sources}");

    let on_processes = kit.demo(&["demo", "--json"]);
    assert_eq!(complete_cases(&on_processes), 10, "{on_processes}");

    let on_vms = kit.demo(&["demo", "--vm", "--json"]);
    assert_eq!(on_vms["run"]["environment"]["place"]["isolation"], "vm", "{on_vms}");
    assert!(complete_cases(&on_vms) > 0 && complete_cases(&on_vms) == on_vms["cases"].as_array().unwrap().len());
}
