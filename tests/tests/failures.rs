//! What happens while a run goes on: workers that die, disks that vanish, no space, interrupts, a killed orchestrator.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use analysis::export::{Case, Export};
use end_to_end::{Answer, Site, small_plan, wait_for};
use rustix::process::{Signal, kill_process};

const INCOMPLETE: i32 = 3;
const CANCELLED: i32 = 130;

/// 64 MiB on two disks: filled in no time.
const QUICK_FILL: &str = "footprints: [64MiB]\nprecondition: 1s\nsample: 12s";
/// One write of 4 KiB at a time: slow enough to be interrupted.
const SLOW_FILL: &str =
    "footprints: [4GiB]\nfill: {block: 4KiB, outstanding_per_disk: 1}\nprecondition: 1s\nsample: 1s";
const READ_AND_WRITE: &str = "[published/4k-random-read, published/4k-random-write]";

fn export(site: &Site) -> Export {
    serde_json::from_value(site.export()).unwrap()
}

/// Waits until two seconds of the window are stored; a run that goes on can be exported, too.
fn measured_some(site: &Site) {
    wait_for("two seconds of the window", || (export(site).cases[0].seconds.len() >= 2).then_some(()));
}

fn nothing_is_left(site: &Site) {
    assert!(site.disk_files().is_empty(), "{:?}", site.disk_files());
    wait_for("the workers' end", || site.workers().is_empty().then_some(()));
}

fn ended_as(site: &Site, answer: &Answer, code: i32, state: &str) -> Export {
    assert_eq!(answer.code, Some(code), "{answer:?}");
    let export = export(site);
    assert_eq!(export.run.state, state, "{answer:?}");
    assert!(!export.run.complete);
    nothing_is_left(site);
    export
}

/// Figures of an incomplete case cover the seconds common to all workers, and say so.
fn covers_common_seconds(case: &Case) {
    assert_eq!(case.state, "incomplete", "{case:?}");
    let all = case.ops.all.as_ref().unwrap();
    assert!(case.window_seconds >= 1.0 && case.window_seconds < 12.0, "{} s", case.window_seconds);
    assert!((case.window_seconds - f64::from(u32::try_from(case.seconds.len()).unwrap())).abs() < 1e-9);
    let by_second: f64 =
        case.seconds.iter().flat_map(|second| [&second.read, &second.write]).flatten().map(|op| op.iops).sum();
    let iops_times_window = all.iops * case.window_seconds;
    assert!((by_second - iops_times_window).abs() < 1.0, "{by_second} and {iops_times_window}");
}

#[test]
fn a_worker_that_dies_in_the_sample_makes_the_case_incomplete_and_fails_the_run() {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, "on_worker_loss: fail"));
    site.wait_for_state("sampling");
    measured_some(&site);
    kill_process(site.workers()[0], Signal::KILL).unwrap();
    let export = ended_as(&site, &run.end(), INCOMPLETE, "failed");
    let reason = export.run.reason.unwrap();
    assert!(reason.contains("worker-") && reason.contains("signal: 9"), "{reason}");
    assert_eq!(export.cases.len(), 1, "no case after it");
    covers_common_seconds(&export.cases[0]);
}

#[test]
fn with_continue_the_run_goes_on_with_the_workers_left_and_says_so() {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, "on_worker_loss: continue"));
    site.wait_for_state("sampling");
    measured_some(&site);
    kill_process(site.workers()[0], Signal::KILL).unwrap();
    let export = ended_as(&site, &run.end(), INCOMPLETE, "done");
    assert_eq!(export.cases.len(), 2);
    covers_common_seconds(&export.cases[0]);
    let second = &export.cases[1];
    assert_eq!((second.workers.expected, second.workers.measured), (2, 1));
    assert_eq!(second.state, "incomplete");
    assert!(second.reason.as_ref().unwrap().contains("1 of 2"), "{:?}", second.reason);
    assert!((second.window_seconds - 12.0).abs() < 1e-9, "the worker left measured its whole window");
}

#[test]
fn a_worker_that_dies_in_the_fill_fails_the_run() {
    let site = Site::new();
    let run = site.start(&small_plan(SLOW_FILL, READ_AND_WRITE, "on_worker_loss: fail"));
    site.wait_for_state("filling");
    kill_process(site.workers()[1], Signal::KILL).unwrap();
    let export = ended_as(&site, &run.end(), INCOMPLETE, "failed");
    let reason = export.run.reason.unwrap();
    assert!(reason.contains("filling 4GiB") && reason.contains("worker-"), "{reason}");
    assert!(export.cases.is_empty());
}

#[test]
fn a_worker_that_dies_at_its_start_fails_the_run_before_anything_is_written() {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, ""));
    let worker = wait_for("a worker", || site.workers().first().copied());
    kill_process(worker, Signal::KILL).unwrap();
    let export = ended_as(&site, &run.end(), INCOMPLETE, "failed");
    let reason = export.run.reason.unwrap();
    assert!(reason.contains("worker-") && reason.contains("signal: 9"), "{reason}");
}

fn disturbed_disk(disturb: impl FnOnce(&Path)) -> (Site, Export) {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, "on_worker_loss: fail"));
    site.wait_for_state("sampling");
    let disk = site.disk_files()[0].clone();
    disturb(&disk);
    let answer = run.end();
    assert_eq!(answer.code, Some(INCOMPLETE), "{answer:?}");
    let export = export(&site);
    assert_eq!(export.run.state, "failed");
    let serial = disk.file_stem().unwrap().to_str().unwrap();
    let reason = export.run.reason.as_ref().unwrap();
    assert!(reason.contains(serial), "the disk {serial} is named: {reason}");
    assert_eq!(export.cases[0].state, "incomplete");
    (site, export)
}

#[test]
fn a_disk_file_truncated_under_a_worker_is_an_error_of_that_disk() {
    let (site, _) = disturbed_disk(|disk| OpenOptions::new().write(true).open(disk).unwrap().set_len(1 << 20).unwrap());
    nothing_is_left(&site);
}

#[test]
fn a_disk_file_deleted_under_a_worker_is_an_error_of_that_disk() {
    let (site, export) = disturbed_disk(|disk| fs::remove_file(disk).unwrap());
    nothing_is_left(&site);
    assert!(export.run.reason.unwrap().contains("deleted"));
}

#[test]
fn an_interrupt_cancels_cleanly_and_keeps_what_was_measured() {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, ""));
    site.wait_for_state("sampling");
    measured_some(&site);
    run.signal(Signal::INT);
    let export = ended_as(&site, &run.end(), CANCELLED, "cancelled");
    let case = &export.cases[0];
    assert_eq!(case.state, "cancelled");
    assert!(case.ops.read.as_ref().unwrap().count > 0 && !case.seconds.is_empty(), "what was measured is kept");
    assert!(case.window_seconds < 12.0);
}

#[test]
fn an_interrupt_in_the_fill_cancels_cleanly() {
    let site = Site::new();
    let run = site.start(&small_plan(SLOW_FILL, READ_AND_WRITE, ""));
    site.wait_for_state("filling");
    run.signal(Signal::TERM);
    ended_as(&site, &run.end(), CANCELLED, "cancelled");
}

#[test]
fn a_killed_orchestrator_takes_its_workers_along_and_the_next_start_cleans_up() {
    let site = Site::new();
    let run = site.start(&small_plan(QUICK_FILL, READ_AND_WRITE, ""));
    site.wait_for_state("sampling");
    measured_some(&site);
    run.signal(Signal::KILL);
    assert_eq!(run.end().code, None);
    wait_for("the workers' end", || site.workers().is_empty().then_some(()));
    assert_eq!(site.disk_files().len(), 2, "nobody could remove them yet");
    let bystander = site.disk_files()[0].with_file_name("somebody-elses.img");
    fs::write(&bystander, "not ours").unwrap();

    let next =
        site.run(&small_plan("footprints: [64MiB]\nprecondition: 1s\nsample: 1s", "[published/4k-random-read]", ""));
    assert!(next.ok(), "{next:?}");
    assert!(next.stderr.contains("ended as failed and cleaned up"), "{next:?}");
    assert_eq!(site.disk_files(), [bystander], "only what the journal records is removed");
    let cleaned = site.ask(["cleanup", "--dry-run"]);
    assert!(cleaned.ok() && cleaned.stdout.contains("Nothing is left"), "the journal says so, too: {cleaned:?}");
    let runs: serde_json::Value = serde_json::from_str(&site.ask(["runs", "--json"]).stdout).unwrap();
    let killed = runs.as_array().unwrap().iter().find(|run| run["state"] == "failed").unwrap();
    assert!(killed["reason"].as_str().unwrap().contains("orchestrator"), "{killed}");
    let id = killed["id"].as_str().unwrap();
    let export: Export = serde_json::from_str(&site.ask(["show", id, "--json"]).stdout).unwrap();
    assert!(!export.cases[0].seconds.is_empty(), "the samples stored before the kill are kept: {:?}", export.cases[0]);
}

/// A small file system of its own, unmounted at the end.
struct SmallFileSystem<'a> {
    site: &'a Site,
}

impl<'a> SmallFileSystem<'a> {
    fn mount(site: &'a Site, bytes: u64) -> Option<Self> {
        let image = site.path().join("image");
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        let mount_point = site.path().join("small");
        fs::create_dir(&mount_point).unwrap();
        let steps: [(&str, Vec<&Path>); 2] =
            [("mkfs.ext4", vec![Path::new("-q"), &image]), ("mount", vec![Path::new("-oloop"), &image, &mount_point])];
        for (program, args) in steps {
            match Command::new(program).args(args).output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    end_to_end::skip(&format!("{program}: {}", String::from_utf8_lossy(&output.stderr)));
                    return None;
                }
                Err(error) => {
                    end_to_end::skip(&format!("{program}: {error}"));
                    return None;
                }
            }
        }
        Some(Self { site })
    }

    fn path(&self) -> std::path::PathBuf {
        self.site.path().join("small")
    }
}

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.path()).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

#[test]
fn no_space_left_during_the_fill_fails_the_run_with_the_disk_and_the_kernels_words() {
    let site = Site::new();
    let Some(small) = SmallFileSystem::mount(&site, 1200 << 20) else { return };
    let more = "on_worker_loss: fail";
    let timings = "footprints: [400MiB]\nfill: {block: 4KiB, outstanding_per_disk: 1}\nprecondition: 1s\nsample: 1s";
    let target = format!("target: {{provider: local, disk_dir: {}}}", small.path().join("disks").display());
    let yaml = small_plan(timings, READ_AND_WRITE, more).replace("target: {provider: local}", &target);
    let run = site.start(&yaml);
    site.wait_for_state("filling");
    fill_up(&small.path());
    let answer = run.end();
    assert_eq!(answer.code, Some(INCOMPLETE), "{answer:?}");
    let reason = export(&site).run.reason.unwrap();
    assert!(
        reason.contains("No space left on device") && reason.contains("w1d1") | reason.contains("w2d1"),
        "{reason}"
    );
    assert_eq!(fs::read_dir(small.path().join("disks")).unwrap().count(), 0, "disks are removed");
}

/// Takes all the space, as a neighbour might.
fn fill_up(dir: &Path) {
    let mut file = fs::File::create(dir.join("neighbour")).unwrap();
    let block = vec![7_u8; 1 << 20];
    // Until the file system is full; then the rest in small steps.
    while file.write_all(&block).is_ok() {}
    while file.write_all(&block[..4096]).is_ok() {}
    // What is delayed in memory may have found no place.
    let _ = file.sync_all();
}

#[test]
fn a_data_directory_without_room_for_results_is_refused_before_anything_is_made() {
    let site = Site::new();
    let Some(small) = SmallFileSystem::mount(&site, 48 << 20) else { return };
    let data_dir = small.path().join("data");
    let disks = format!("target: {{provider: local, disk_dir: {}}}", site.path().join("disks").display());
    let yaml = small_plan(QUICK_FILL, READ_AND_WRITE, "").replace("target: {provider: local}", &disks);
    let plan = site.plan(&yaml);
    for subcommand in ["check", "run"] {
        let mut command = Command::new(end_to_end::binary());
        let args = [Path::new("--data-dir"), data_dir.as_path(), Path::new(subcommand), plan.as_path()];
        let answer = Answer::from(command.args(args).output().unwrap());
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert_eq!(answer.code, Some(1), "{said}");
        assert!(said.contains("the data directory has ") && said.contains("MiB free, the results"), "{said}");
        assert!(!data_dir.exists() && !site.path().join("disks").exists(), "{subcommand} made something");
    }
}

/// A server that answers has all it needs, its handlers of signals among it.
fn is_healthy(address: SocketAddr) -> bool {
    let asked = || {
        let mut connection = TcpStream::connect(address)?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(connection, "GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer.starts_with("HTTP/1.1 200"))
    };
    asked().unwrap_or(false)
}

#[test]
fn a_run_leaves_its_results_in_the_database_and_no_log_beside_it() {
    let site = Site::new();
    let yaml = small_plan("footprints: [64MiB]\nprecondition: 1s\nsample: 1s", "[published/4k-random-read]", "");
    let answer = site.run(&yaml);
    assert!(answer.ok(), "{answer:?}");
    let left_open = || -> Vec<String> {
        let names = fs::read_dir(site.data_dir()).unwrap().map(|file| file.unwrap().file_name());
        names.filter_map(|name| name.into_string().ok()).filter(|name| name.contains("sqlite-")).collect()
    };
    assert_eq!(left_open(), Vec::<String>::new(), "it was closed");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let serving = site.start_with(["serve", "--listen", &address.to_string()]);
    wait_for("the server", || is_healthy(address).then_some(()));
    assert!(!left_open().is_empty(), "it is open");
    serving.signal(Signal::INT);
    let answer = serving.end();
    assert!(answer.ok(), "{answer:?}");
    assert_eq!(left_open(), Vec::<String>::new(), "the server closes it, too");
    let cleaned = site.ask(["cleanup"]);
    assert!(cleaned.ok() && left_open().is_empty(), "{cleaned:?}");
}
