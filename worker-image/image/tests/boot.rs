//! The image itself: its build, and boots in QEMU (plain emulation) up to the agent's first request, with a stand-in for the agent that
//! crashes when told to. The image with its real agent is booted by `tests/tests/image_vm.rs`.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod qemu;

use std::fs;
use std::path::Path;

use common::{Orchestrator, build_image, image, lacking};
use qemu::Vm;
use worker_image::{BOOTSTRAP_VERSION, Bootstrap, personalise};

fn bootstrap(orchestrator: &Orchestrator) -> Bootstrap {
    Bootstrap {
        version: BOOTSTRAP_VERSION,
        orchestrator_urls: vec![orchestrator.url()],
        ca_sha256: "ab".repeat(32),
        token: "s3cret-of-the-fleet".into(),
        mtu: None,
        static_addressing: None,
    }
}

fn personal(dir: &Path, bootstrap: &Bootstrap) -> std::path::PathBuf {
    let iso = dir.join("personal.iso");
    personalise(&image().0, &iso, bootstrap).unwrap();
    iso
}

fn args(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

fn user_network() -> Vec<String> {
    args(&[
        "-netdev",
        "user,id=n0",
        "-device",
        "virtio-net-pci,netdev=n0,mac=52:54:00:00:00:01",
        "-device",
        "virtio-rng-pci",
    ])
}

#[test]
fn the_same_inputs_give_the_same_bytes_below_45_mb() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let (first, report) = image();
    let dir = tempfile::tempdir().unwrap();
    let second = dir.path().join("second.iso");
    assert_eq!(build_image(&second, &[])["sha256"], report["sha256"]);
    assert!(fs::read(first).unwrap() == fs::read(&second).unwrap());
    let bytes = fs::metadata(first).unwrap().len();
    assert!(bytes < 45_000_000, "{bytes} bytes");
    println!("image: {bytes} bytes, sha256 {}", report["sha256"]);
    let other = build_image(&second, &["--source-date-epoch", "1700000000"]);
    assert_ne!(other["sha256"], report["sha256"], "the time given is the time used");
}

/// The packages that the test image was made from, as files.
fn packages(report: &serde_json::Value) -> Vec<std::path::PathBuf> {
    let cache = image().0.ancestors().nth(2).unwrap().join("image-packages");
    let used = report["manifest"]["packages"].as_array().unwrap();
    let text = |package: &serde_json::Value, field: &str| package[field].as_str().unwrap().replace(':', "%3a");
    used.iter().map(|used| cache.join(format!("{}_{}_amd64.deb", text(used, "name"), text(used, "version")))).collect()
}

#[test]
fn without_a_network_the_packages_of_a_directory_give_the_same_image() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let report = &image().1;
    let dir = tempfile::tempdir().unwrap();
    let debs = dir.path().join("debs");
    fs::create_dir(&debs).unwrap();
    for package in packages(report) {
        std::os::unix::fs::symlink(&package, debs.join(package.file_name().unwrap())).unwrap();
    }
    let iso = dir.path().join("offline.iso");
    let offline = build_image(&iso, &["--debs", debs.to_str().unwrap()]);
    assert_eq!(offline["sha256"], report["sha256"]);

    let busybox =
        fs::read_dir(&debs).unwrap().flatten().find(|entry| entry.file_name().to_string_lossy().starts_with("busybox"));
    fs::remove_file(busybox.unwrap().path()).unwrap();
    let program = std::env::current_exe().unwrap();
    let failed = image_build(&program, &["--debs".as_ref(), debs.as_os_str()], None);
    assert!(failed.contains("needs /lib64/ld-linux"), "a dynamic agent is refused first: {failed}");
    let agent =
        image().0.ancestors().nth(2).unwrap().join("static/x86_64-unknown-linux-gnu/release/examples/agent-stand-in");
    let failed = image_build(&agent, &["--debs".as_ref(), debs.as_os_str()], None);
    assert!(failed.contains("busybox-static") && failed.contains("apt-get download busybox-static"), "{failed}");
}

/// What the builder says when it fails.
fn image_build(worker: &Path, more: &[&std::ffi::OsStr], path: Option<&str>) -> String {
    let dir = tempfile::tempdir().unwrap();
    let iso = dir.path().join("never.iso");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_image-build"));
    command
        .arg("--worker")
        .arg(worker)
        .arg("--init")
        .arg(worker)
        .arg("--out")
        .arg(&iso)
        .arg("--cache-dir")
        .arg(dir.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    let output = command.args(more).output().unwrap();
    assert!(!output.status.success() && !iso.exists());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn missing_tools_are_named_with_the_command_that_installs_them() {
    let said = image_build(Path::new("/nonexistent"), &[], Some("/nonexistent"));
    for wanted in ["xorriso", "grub-mkimage", "apt-get install --no-install-recommends", "grub-common", "mtools"] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
}

#[test]
fn a_bios_vm_calls_restarts_a_crashed_agent_and_powers_off_when_its_fleet_ends() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let orchestrator = Orchestrator::start();
    let iso = personal(dir.path(), &bootstrap(&orchestrator));
    let mut vm = Vm::boot(&iso, dir.path(), "pc", &user_network());
    let report = orchestrator.answer(|| vm.console(), "crash");
    println!(
        "BIOS, 1 CPU, 256 MiB: {:.1} s from power-on to the agent's first request",
        vm.started.elapsed().as_secs_f64()
    );
    let uuid = "00112233-4455-6677-8899-aabbccddeeff";
    let digest = "ab".repeat(32);
    let wanted = format!("arguments --bootstrap /bootstrap\nurl {}\nca_sha256 {digest}\n", orchestrator.url());
    assert!(report.starts_with(&wanted), "{report}");
    assert!(report.contains("token s3cret-of-the-fleet\n") && report.contains(&format!("uuid {uuid}\n")), "{report}");
    assert!(report.contains("net eth0 52:54:00:00:00:01 mtu 1500\n"), "{report}");

    let wanted = ["Secure Boot has to be off", "10.0.2.15/24 (DHCP, router 10.0.2.2", "last it ended with signal 6"];
    vm.shows(&wanted);
    orchestrator.answer(|| vm.console(), "end");
    vm.ends();
    let console = vm.console();
    assert!(
        console.contains("powering off") && console.contains(uuid) && console.contains(&orchestrator.url()),
        "{console}"
    );
    assert!(!console.contains("s3cret"), "the token is never shown: {console}");
    assert!(!console.contains("cannot load") && !console.contains("cannot mount"), "{console}");
}

#[test]
fn an_image_that_was_not_personalised_says_so() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut vm = Vm::boot(&image().0, dir.path(), "pc", &args(&["-device", "e1000"]));
    vm.shows(&["this image is not personalised", "NO INTERFACE that this image can drive"]);
}
