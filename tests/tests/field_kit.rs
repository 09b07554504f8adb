//! The field kit, unpacked in an empty folder and run with no network but loopback and without a compiler in reach.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    _scratch: tempfile::TempDir,
    folder: PathBuf,
}

impl Kit {
    /// Builds the archive and unpacks it where nothing else is.
    fn unpack() -> Self {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
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
        Self { _scratch: scratch, folder }
    }

    /// Runs the kit's own program in a network namespace with loopback alone and an environment of nothing but the system's paths.
    fn run(&self, arguments: &[&str]) -> Output {
        let script = "ip link set lo up && exec ./fourcorners \"$@\"";
        Command::new("unshare")
            .args(unshared())
            .args(["sh", "-c", script, "fourcorners"])
            .args(arguments)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
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
    for file in
        ["fourcorners", "fourcorners-worker.iso", "README.md", "docs/plan.md", "licences/INDEX.txt", "SHA256SUMS"]
    {
        assert!(kit.folder.join(file).is_file(), "{file} is in the kit");
    }
    let sums = Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&kit.folder)
        .output()
        .unwrap();
    assert!(sums.status.success(), "{}", String::from_utf8_lossy(&sums.stdout));
    assert!(listing(&kit.folder.join("licences")).len() > 100, "most packages ship a licence");

    let on_processes = kit.demo(&["demo", "--json"]);
    assert_eq!(complete_cases(&on_processes), 10, "{on_processes}");

    let on_vms = kit.demo(&["demo", "--vm", "--json"]);
    assert_eq!(on_vms["run"]["environment"]["place"]["isolation"], "vm", "{on_vms}");
    assert!(complete_cases(&on_vms) > 0 && complete_cases(&on_vms) == on_vms["cases"].as_array().unwrap().len());
}
