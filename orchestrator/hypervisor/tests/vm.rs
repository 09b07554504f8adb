//! The local provider's VMs: real QEMU (plain emulation where KVM is of no use) and the real image, with a stand-in for the agent.
//!
//! About a minute on two idle cores, of which up to 15 s are the provider's own trial of KVM.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../worker-image/image/tests/common/mod.rs"]
mod common;
mod memory;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Orchestrator, image, lacking};
use futures_util::{StreamExt, stream};
use hypervisor::vm::{Accelerator, BOOT_BOUND, LocalVm, Throttle, VmOptions};
use hypervisor::{Bootstrap, CreatedWorker, Deployment, DiskSpec, Hypervisor, Severity, WorkerSpec, WorkerState};
use memory::{Memory, living};

const UUID: &str = "6a1c0000-0000-4000-8000-0000000000a1";
/// How long something that takes milliseconds may take on a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// Has this program's helper below act as an orchestrator, on the directory given.
const HELPER: &str = "FOURCORNERS_TEST_ORCHESTRATOR_DIR";
/// The same, for the helper that tries KVM.
const TRYING_HELPER: &str = "FOURCORNERS_TEST_TRYING_ORCHESTRATOR_DIR";

fn options(dir: &Path) -> VmOptions {
    VmOptions { image: image().0.clone(), ..options_without_image(dir) }
}

fn options_without_image(dir: &Path) -> VmOptions {
    VmOptions {
        disk_dir: dir.join("disks"),
        log_dir: dir.join("logs"),
        accelerator: Some(Accelerator::Emulation { why: "the test says so".into() }),
        ..VmOptions::default()
    }
}

fn spec() -> WorkerSpec {
    let disk = |serial: &str, mib: u64| DiskSpec { serial: serial.into(), size_bytes: mib << 20 };
    WorkerSpec {
        name: "worker-1".into(),
        uuid: UUID.into(),
        fleet: "fleet-7".into(),
        vcpus: 1,
        memory_bytes: 256 << 20,
        disks: vec![disk("FC-1", 65), disk("FC-2", 66)],
        ..WorkerSpec::default()
    }
}

fn bootstrap(orchestrator: &Orchestrator) -> Bootstrap {
    let urls = vec![orchestrator.url().replace("10.0.2.2", "127.0.0.1")];
    Bootstrap { urls, ca_sha256: "ab".repeat(32), token: "s3cret".into() }
}

/// Ids of the QEMU processes of a worker.
fn emulators() -> Vec<u32> {
    let of_worker = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"qemu-system-x86_64"))
            && words.any(|word| word == UUID.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(of_worker).collect()
}

async fn state(provider: &LocalVm, worker: &CreatedWorker) -> WorkerState {
    provider.observe(std::slice::from_ref(worker)).await.unwrap().remove(0).state
}

fn soon(what: &str, mut done: impl FnMut() -> bool) {
    let bound = Instant::now() + SOON;
    while !done() {
        assert!(Instant::now() < bound, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One at a time: they look for the same VM, and each wants a CPU.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_boots_calls_is_reset_calls_again_and_leaves_nothing() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let orchestrator = Orchestrator::start();
    let throttles = vec![Throttle::default(), Throttle { iops: Some(100), bytes_per_second: None }];
    let provider = LocalVm::new(VmOptions { throttles, ..options(dir.path()) });
    let journal = Memory::default();
    let worker = provider.create_worker(&spec(), &journal).await.unwrap();
    let started = Instant::now();
    provider.start_worker(&worker, &bootstrap(&orchestrator), &journal).await.unwrap();
    let logs = dir.path().join("logs/fleet-7");
    let log = || {
        let read = |name: &str| fs::read(logs.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&[read("worker-1.log"), read("worker-1.console.log")].concat()).into_owned()
    };
    let report = orchestrator.answer(log, "measure");
    println!(
        "BIOS, 1 CPU, 256 MiB: {:.1} s from power-on to the agent's first request",
        started.elapsed().as_secs_f64()
    );
    for wanted in [
        format!("url {}\n", orchestrator.url()),
        format!("uuid {UUID}\n"),
        "token s3cret\n".into(),
        format!(" {} FC-1\n", 65 << 11),
        format!(" {} FC-2\n", 66 << 11),
        "net eth0 02:78:9b:dd:75:d7 mtu 1500\n".into(),
    ] {
        assert!(report.contains(&wanted), "{wanted:?} in {report}");
    }
    assert_eq!(state(&provider, &worker).await, WorkerState::Running);
    let measured = orchestrator.answer(log, "wait");
    let field = |start: String, at: usize| {
        let line = measured.lines().find(|line| line.starts_with(&start)).unwrap();
        line.split(' ').nth(at).unwrap().to_owned()
    };
    // Which one is sda depends on which was probed first.
    let rate = |serial: &str| {
        let name = ["sda", "sdb"].into_iter().find(|name| field(format!("disk {name} "), 3) == serial).unwrap();
        field(format!("rate {name} "), 2).parse::<f64>().unwrap()
    };
    println!("reads a second: free disk {}, disk limited to 100: {}", rate("FC-1"), rate("FC-2"));
    assert!((95.0..=105.0).contains(&rate("FC-2")) && rate("FC-1") > 150.0, "{measured}");

    provider.reset(UUID).await.unwrap();
    let again = orchestrator.answer(log, "wait");
    assert!(again.contains(&format!("uuid {UUID}\n")), "{again}");

    assert_eq!(emulators().len(), 1);
    let stopping = Instant::now();
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert!(stopping.elapsed() < SOON, "it quits and is not waited for");
    assert_eq!(emulators(), Vec::<u32>::new());
    assert_eq!(state(&provider, &worker).await, WorkerState::Unknown);
    assert_eq!(fs::read_dir(dir.path().join("disks")).unwrap().count(), 0, "disks, image and directory are gone");
    assert_eq!(fs::read_dir(logs.join("monitors")).unwrap().count(), 0);
    assert!(log().contains("Secure Boot has to be off"), "the console stays: {}", log());
    let entries = journal.entries();
    assert!(!format!("{entries:?}").contains("s3cret"), "no secret in the journal");
    assert!(entries.iter().all(|entry| entry.outcome.as_ref().is_some_and(|outcome| outcome.succeeded)), "{entries:?}");
    let stop = entries.iter().find(|entry| entry.intent.kind == "local-vm.stop-worker").unwrap();
    assert_eq!(stop.outcome.as_ref().unwrap().details["state"], "quit");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_whose_supervisor_is_killed_is_gone_and_seen_to_be() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let provider = LocalVm::new(options(dir.path()));
    let journal = Memory::default();
    let worker = provider.create_worker(&spec(), &journal).await.unwrap();
    provider.start_worker(&worker, &bootstrap(&Orchestrator::start()), &journal).await.unwrap();
    soon("the VM runs", || emulators().len() == 1);
    let start = journal.entries().into_iter().find(|entry| entry.intent.kind == "local-vm.start-worker").unwrap();
    let supervisor = start.outcome.unwrap().details["pid"].to_string();
    assert!(Command::new("kill").args(["-9", &supervisor]).status().unwrap().success());
    soon("the VM is gone", || emulators().is_empty());
    let bound = Instant::now() + SOON;
    while state(&provider, &worker).await == WorkerState::Running {
        assert!(Instant::now() < bound, "its end is not seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
}

/// Not a test of its own: the orchestrator that the next test kills. Does nothing unless it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn helper_orchestrator() {
    let Some(dir) = std::env::var_os(HELPER).map(PathBuf::from) else { return };
    let provider = LocalVm::new(options(&dir));
    let journal = Memory::default();
    let worker = provider.create_worker(&spec(), &journal).await.unwrap();
    provider.start_worker(&worker, &bootstrap(&Orchestrator::start()), &journal).await.unwrap();
    tokio::time::sleep(SOON * 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_vm_outlives_a_killed_orchestrator() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let mut orchestrator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_orchestrator"])
        .env(HELPER, dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let bound = Instant::now() + common::BOOT_BOUND;
    while emulators().is_empty() && Instant::now() < bound {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let running = emulators();
    orchestrator.kill().unwrap();
    orchestrator.wait().unwrap();
    assert_eq!(running.len(), 1, "the VM of the orchestrator that was killed");
    soon("the VM is gone", || emulators().is_empty());
}

/// Not a test of its own: the orchestrator that the next test kills while it tries KVM. Does nothing unless it is asked to.
#[tokio::test(flavor = "multi_thread")]
async fn helper_that_tries_kvm() {
    let Some(dir) = std::env::var_os(TRYING_HELPER).map(PathBuf::from) else { return };
    let image = dir.join("image.iso");
    LocalVm::new(VmOptions { image, accelerator: None, ..options_without_image(&dir) }).accelerator().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_trial_of_kvm_outlives_a_killed_orchestrator() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        println!("skipped: /dev/kvm cannot be opened, so that nothing is tried: {error}");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Boots nothing, and hangs with it for as long as it may.
    fs::write(dir.path().join("image.iso"), [7; 100_000]).unwrap();
    let (bin, emulator) = (dir.path().join("bin"), dir.path().join("emulator"));
    fs::create_dir(&bin).unwrap();
    // KVM may be of no use here: QEMU emulates instead, and says which process it is.
    let path = std::env::var("PATH").unwrap();
    let script = format!(
        "#!/bin/sh\nPATH='{path}'\necho $$ >'{0}.new'\nmv '{0}.new' '{0}'\nshift 4\nexec qemu-system-x86_64 -accel tcg \"$@\"\n",
        emulator.display()
    );
    let stand_in = bin.join("qemu-system-x86_64");
    fs::write(&stand_in, script).unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let mut orchestrator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "helper_that_tries_kvm"])
        .env(TRYING_HELPER, dir.path())
        .env("PATH", format!("{}:{path}", bin.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    soon("the trial runs", || emulator.exists());
    let process = PathBuf::from("/proc").join(fs::read_to_string(&emulator).unwrap().trim());
    assert!(process.exists(), "it is tried for {} s", BOOT_BOUND.as_secs());
    orchestrator.kill().unwrap();
    orchestrator.wait().unwrap();
    soon("the trial is gone", || !process.exists());
}

/// Kills the orchestrator at one operation of its journal and starts another; what is wrong then, if anything. The VM boots nothing.
async fn kill_and_restart(kill: Option<(usize, bool)>) -> (usize, Option<String>) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image.iso");
    fs::write(&image, [&[7; 100_000], worker_image::slot::empty().as_slice()].concat()).unwrap();
    let options = VmOptions { image, ..options_without_image(dir.path()) };
    let killed = kill.map_or_else(Memory::default, |(at, committed)| Memory::killed_at(at, committed));
    let provider = LocalVm::new(options.clone());
    let live = async {
        let worker = provider.create_worker(&spec(), &killed).await.unwrap();
        let urls = vec!["wss://127.0.0.1:9/x".to_owned()];
        let bootstrap = Bootstrap { urls, ca_sha256: "ab".repeat(32), token: "s3cret".into() };
        provider.start_worker(&worker, &bootstrap, &killed).await.unwrap();
        assert_eq!(provider.destroy(&killed.entries(), &killed).await.unwrap(), vec![]);
    };
    let lived = killed.until_killed(live).await;
    // The VMs' supervisors see their input closed.
    drop(provider);
    let (next, journal) = (LocalVm::new(options), Memory::of(killed.entries()));
    next.recover(&journal.entries(), &journal).await.unwrap();
    let left = next.destroy(&journal.entries(), &journal).await.unwrap();
    let entries = journal.entries();
    let files = fs::read_dir(dir.path().join("disks")).map_or(0, Iterator::count);
    let sound = lived.is_some() == kill.is_none() && left.is_empty() && files == 0 && living(&entries).is_empty();
    (killed.operations(), (!sound).then(|| format!("{kill:?}: {left:?}, {files} files, {entries:#?}")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_step_of_the_journal_leaves_nothing() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let (operations, problem) = kill_and_restart(None).await;
    assert_eq!((operations, problem), (16, None), "two disks, an image and a VM, each made and ended");
    let kills = (0..operations).flat_map(|at| [(at, false), (at, true)]);
    let kills = kills.map(async |kill| kill_and_restart(Some(kill)).await.1);
    let problems: Vec<String> = stream::iter(kills).buffer_unordered(4).filter_map(async |it| it).collect().await;
    assert!(problems.is_empty(), "{} of {}: {}", problems.len(), 2 * operations, problems[0]);
    soon("no VM is left", || emulators().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_this_machine_can_do_is_found_out_within_a_bound_and_said() {
    if let Some(reason) = lacking(&[]) {
        println!("skipped: {reason}");
        return;
    }
    let _alone = ONE_AT_A_TIME.lock().await;
    let dir = tempfile::tempdir().unwrap();
    let provider = LocalVm::new(VmOptions { accelerator: None, ..options(dir.path()) });
    let started = Instant::now();
    let accelerator = provider.accelerator().await.clone();
    assert!(started.elapsed() < BOOT_BOUND + SOON);
    println!("{accelerator:?}, found out in {:.1} s", started.elapsed().as_secs_f64());
    assert!(!matches!(&accelerator, Accelerator::Emulation { why } if why.is_empty()));
    assert_eq!(emulators(), Vec::<u32>::new());
    let described = provider.describe().await;
    println!("{described}");
    assert_eq!(described["isolation"], "vm");
    assert_eq!(described["image_sha256"], image().1["sha256"]);
    assert!(described["emulator"].as_str().unwrap().contains("QEMU"));
    assert!(["io_uring", "native", "threads"].map(serde_json::Value::from).contains(&described["disk_io"]["aio"]));
    let direct = described["disk_io"]["direct"].as_bool().unwrap();
    assert!(direct || !described["disk_io"]["refused"].as_array().unwrap().is_empty(), "why not is said");

    let deployment =
        Deployment { workers: 2, disks_per_worker: 2, disk_bytes: 1 << 20, vcpus: 1, memory_bytes: 256 << 20 };
    let blockers = provider.preflight(&deployment).await.unwrap();
    assert!(blockers.iter().all(|finding| finding.severity == Severity::Warning), "{blockers:?}");
    let emulated = matches!(accelerator, Accelerator::Emulation { .. });
    assert_eq!(blockers.iter().any(|finding| finding.message.contains("software emulation")), emulated, "{blockers:?}");
}

#[tokio::test]
async fn what_cannot_be_deployed_is_said_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let provider = LocalVm::new(VmOptions {
        disk_dir: dir.path().into(),
        image: dir.path().join("none.iso"),
        accelerator: Some(Accelerator::Kvm),
        ..VmOptions::default()
    });
    let deployment =
        Deployment { workers: 100_000, disks_per_worker: 129, disk_bytes: 1 << 20, vcpus: 1, memory_bytes: 128 << 20 };
    let findings = provider.preflight(&deployment).await.unwrap();
    let blockers: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Blocker)
        .map(|finding| format!("{}: {}", finding.message, finding.remedy))
        .collect();
    let said = blockers.join("\n");
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        assert!(
            blockers.len() == 1 && said.contains("apt-get install --no-install-recommends qemu-system-x86"),
            "{said}"
        );
        return;
    }
    for wanted in [
        "none.iso: no worker image",
        "has 128MiB of memory and needs 256MiB",
        "128 data disks, not 129",
        "are available: use fewer workers",
    ] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let wrong = dir.path().join("wrong.iso");
    fs::write(&wrong, "an installer").unwrap();
    let provider = LocalVm::new(VmOptions { disk_dir: dir.path().into(), image: wrong, ..VmOptions::default() });
    let small = Deployment { workers: 1, disks_per_worker: 1, disk_bytes: 1 << 20, vcpus: 1, memory_bytes: 256 << 20 };
    let findings = provider.preflight(&small).await.unwrap();
    let said: Vec<&str> = findings.iter().map(|finding| finding.message.as_str()).collect();
    assert!(said.iter().any(|said| said.contains("this is not a worker image")), "{said:?}");
    assert!(!said.iter().any(|said| said.contains("emulation")), "nothing was tried with it: {said:?}");
}

#[test]
fn without_qemu_the_package_to_install_is_named() {
    // The test above in an environment without programs.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "what_cannot_be_deployed_is_said_before_anything_is_made"])
        .env("PATH", "/nonexistent")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
