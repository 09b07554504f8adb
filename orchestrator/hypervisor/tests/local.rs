//! The local provider against the real file system and real processes (`/bin/sh` in the worker's place).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod memory;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hypervisor::local::Local;
use hypervisor::{
    Bootstrap, CreatedWorker, Deployment, DiskSpec, Hypervisor, JournalEntry, Severity, WorkerSpec, WorkerState,
};
use memory::{Memory, living};

struct Place {
    dir: tempfile::TempDir,
    local: Local,
}

/// A provider whose worker program is a shell script with the given body.
fn place(script: &str) -> Place {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let local = Local::new(dir.path().join("disks"), dir.path().join("logs"), program);
    Place { dir, local }
}

fn spec() -> WorkerSpec {
    let disk = |serial: &str| DiskSpec { serial: serial.into(), size_bytes: 3 << 20 };
    WorkerSpec {
        name: "worker-1".into(),
        uuid: "6a1c".into(),
        fleet: "fleet-7".into(),
        vcpus: 1,
        memory_bytes: 1 << 28,
        disks: vec![disk("d1"), disk("d2")],
        ..WorkerSpec::default()
    }
}

fn disk_path(place: &Place, serial: &str) -> PathBuf {
    place.dir.path().join("disks/fleet-7").join(format!("{serial}.img"))
}

async fn observed(local: &Local, worker: &CreatedWorker, wanted: impl Fn(&WorkerState) -> bool) -> WorkerState {
    let bound = Instant::now() + Duration::from_secs(20);
    loop {
        let state = local.observe(std::slice::from_ref(worker)).await.unwrap().remove(0).state;
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < bound, "still {state:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_worker_lives_from_creation_to_destruction_and_leaves_nothing() {
    let place = place("echo started $@; echo token $FOURCORNERS_WORKER_TOKEN; cat; echo closed");
    let journal = Memory::default();
    let worker = place.local.create_worker(&spec(), &journal).await.unwrap();
    assert_eq!(worker.disks[1].size_bytes, 3 << 20);
    assert_eq!(fs::metadata(disk_path(&place, "d2")).unwrap().len(), 3 << 20);

    let urls = ["wss://127.0.0.1:9/x", "wss://192.0.2.7:9/x"].map(str::to_owned).to_vec();
    let bootstrap = Bootstrap { urls, ca_sha256: "ab".repeat(32), token: "s3cret".into() };
    place.local.start_worker(&worker, &bootstrap, &journal).await.unwrap();
    observed(&place.local, &worker, |state| *state == WorkerState::Running).await;

    let left = place.local.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left, vec![]);
    assert_eq!(files(&place.dir.path().join("disks")), 0, "disks and their directory are gone");
    let log = fs::read_to_string(place.dir.path().join("logs/fleet-7/worker-1.log")).unwrap();
    let arguments =
        format!("--url wss://127.0.0.1:9/x --url wss://192.0.2.7:9/x --ca-sha256 {} --uuid 6a1c", "ab".repeat(32));
    let started = log.lines().find(|line| line.starts_with("started ")).unwrap();
    assert!(started.contains(&arguments) && started.contains("--disk d1="), "{log}");
    assert!(!started.contains("s3cret"), "a command line is visible to every user: {started}");
    assert!(log.contains("token s3cret") && log.ends_with("closed\n"), "ended by its closed input: {log}");
    assert!(!format!("{:?}", journal.entries()).contains("s3cret"), "no secret in the journal");
    assert!(journal.entries().iter().all(|entry| entry.outcome.is_some() && entry.task.is_none()));
}

#[tokio::test]
async fn a_stopped_worker_keeps_its_disks() {
    let place = place("cat; echo closed");
    let journal = Memory::default();
    let worker = place.local.create_worker(&spec(), &journal).await.unwrap();
    let bootstrap = Bootstrap { urls: Vec::new(), ca_sha256: String::new(), token: String::new() };
    place.local.start_worker(&worker, &bootstrap, &journal).await.unwrap();
    place.local.stop_worker(&worker, &journal).await.unwrap();
    let log = fs::read_to_string(place.dir.path().join("logs/fleet-7/worker-1.log")).unwrap();
    assert_eq!(log, "closed\n");
    assert!(disk_path(&place, "d1").exists());
}

#[tokio::test]
async fn the_end_of_a_worker_is_seen_with_its_last_words() {
    let place = place("echo no such device >&2; exit 3");
    let journal = Memory::default();
    let worker = place.local.create_worker(&spec(), &journal).await.unwrap();
    let bootstrap = Bootstrap { urls: Vec::new(), ca_sha256: String::new(), token: String::new() };
    place.local.start_worker(&worker, &bootstrap, &journal).await.unwrap();
    let state = observed(&place.local, &worker, |state| matches!(state, WorkerState::Ended(_))).await;
    let WorkerState::Ended(why) = state else { unreachable!() };
    assert!(why.contains("exit status: 3") && why.contains("no such device"), "{why}");
}

#[tokio::test]
async fn a_file_that_took_the_place_of_ours_is_left_alone() {
    let place = place("");
    let journal = Memory::default();
    place.local.create_worker(&spec(), &journal).await.unwrap();
    // Kept elsewhere, so that the file system cannot give its inode to the new file.
    fs::rename(disk_path(&place, "d1"), place.dir.path().join("moved")).unwrap();
    fs::write(disk_path(&place, "d1"), "a customer's file").unwrap();
    let left = place.local.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left.len(), 1);
    assert!(left[0].object.ends_with("d1.img") && left[0].reason.contains("inode"), "{left:?}");
    assert_eq!(fs::read_to_string(disk_path(&place, "d1")).unwrap(), "a customer's file");
    assert!(!disk_path(&place, "d2").exists());
}

#[tokio::test]
async fn a_file_that_was_there_before_is_never_touched() {
    let place = place("");
    let journal = Memory::default();
    fs::create_dir_all(disk_path(&place, "d1").parent().unwrap()).unwrap();
    fs::write(disk_path(&place, "d1"), "older").unwrap();
    let error = place.local.create_worker(&spec(), &journal).await.unwrap_err();
    assert!(error.to_string().contains("d1.img"), "{error}");
    let mut entries = journal.entries();
    assert_eq!(place.local.destroy(&entries, &journal).await.unwrap().len(), 1);
    // The same, had the orchestrator been killed before the outcome was written.
    entries[0].outcome = None;
    assert_eq!(place.local.destroy(&entries, &journal).await.unwrap().len(), 1);
    assert_eq!(fs::read_to_string(disk_path(&place, "d1")).unwrap(), "older");
}

#[tokio::test]
async fn a_creation_without_outcome_is_cleaned_up() {
    let place = place("");
    let journal = Memory::default();
    place.local.create_worker(&spec(), &journal).await.unwrap();
    let entries: Vec<_> = journal.entries().into_iter().map(|entry| JournalEntry { outcome: None, ..entry }).collect();
    assert_eq!(place.local.destroy(&entries, &journal).await.unwrap(), vec![]);
    assert!(!disk_path(&place, "d1").exists() && !disk_path(&place, "d2").exists());
}

#[tokio::test]
async fn nothing_is_made_that_the_journal_refuses() {
    let place = place("");
    let journal = Memory::refusing();
    let error = place.local.create_worker(&spec(), &journal).await.unwrap_err();
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(files(&place.dir.path().join("disks/fleet-7")), 0);
}

#[tokio::test]
async fn a_deployment_larger_than_the_file_system_is_blocked_with_both_figures() {
    let place = place("");
    let deployment = Deployment {
        workers: 16,
        disks_per_worker: 10,
        disk_bytes: 100_000_000_000_000,
        vcpus: 1,
        memory_bytes: 1 << 28,
    };
    let findings = place.local.preflight(&deployment).await.unwrap();
    let blocker = findings.iter().find(|finding| finding.severity == Severity::Blocker).unwrap();
    for part in ["need 14.21PiB and 512MiB stay free", "are available"] {
        assert!(blocker.message.contains(part), "{part}: {blocker:?}");
    }
    let digits = blocker.message.split(|letter: char| !letter.is_ascii_digit()).map(str::len).max();
    assert!(digits < Some(7), "sizes are for people: {}", blocker.message);
}

/// From nothing to running workers and back.
async fn live(local: &Local, journal: &Memory) {
    let worker = local.create_worker(&spec(), journal).await.unwrap();
    let bootstrap = Bootstrap { urls: Vec::new(), ca_sha256: String::new(), token: String::new() };
    local.start_worker(&worker, &bootstrap, journal).await.unwrap();
    assert_eq!(local.destroy(&journal.entries(), journal).await.unwrap(), vec![]);
}

/// Kills the orchestrator at one operation of its journal and starts another; what is wrong then, if anything.
async fn kill_and_restart(at: usize, committed: bool) -> Option<String> {
    let Place { dir, local } = place("cat");
    let disks = dir.path().join("disks/fleet-7");
    fs::create_dir_all(&disks).unwrap();
    fs::write(disks.join("d3.img"), "somebody else's").unwrap();
    let killed = Memory::killed_at(at, committed);
    let lived = killed.until_killed(live(&local, &killed)).await;
    // The workers' input is closed with their orchestrator.
    drop(local);
    let next = Local::new(dir.path().join("disks"), dir.path().join("logs"), dir.path().join("program"));
    let journal = Memory::of(killed.entries());
    let back = next.recover(&journal.entries(), &journal).await.unwrap();
    let left = next.destroy(&journal.entries(), &journal).await.unwrap();
    let entries = journal.entries();
    let names: Vec<_> = fs::read_dir(&disks).unwrap().map(|file| file.unwrap().file_name()).collect();
    let sound =
        lived.is_none() && back.is_empty() && left.is_empty() && names == ["d3.img"] && living(&entries).is_empty();
    (!sound).then(|| format!("operation {at}, committed {committed}: {left:?}, {names:?}, {entries:#?}"))
}

#[tokio::test]
async fn a_kill_at_any_step_of_the_journal_leaves_nothing_and_takes_nothing_of_others() {
    let place = place("cat");
    let journal = Memory::default();
    live(&place.local, &journal).await;
    let operations = journal.operations();
    assert_eq!(operations, 12, "two disks and a process, each made and ended, two operations each");
    for at in 0..operations {
        for committed in [false, true] {
            assert_eq!(kill_and_restart(at, committed).await, None);
        }
    }
}

#[tokio::test]
async fn a_file_in_the_place_of_one_whose_creation_was_not_recorded_stays() {
    let place = place("");
    let journal = Memory::default();
    place.local.create_worker(&spec(), &journal).await.unwrap();
    let entries: Vec<_> = journal.entries().into_iter().map(|entry| JournalEntry { outcome: None, ..entry }).collect();
    fs::write(disk_path(&place, "d1"), "a customer's file").unwrap();
    let restarted = Memory::of(entries);
    place.local.recover(&restarted.entries(), &restarted).await.unwrap();
    let left = place.local.destroy(&restarted.entries(), &restarted).await.unwrap();
    assert!(left.len() == 1 && left[0].object.ends_with("d1.img"), "{left:?}");
    assert_eq!(fs::read_to_string(disk_path(&place, "d1")).unwrap(), "a customer's file");
    assert!(!disk_path(&place, "d2").exists());
}
