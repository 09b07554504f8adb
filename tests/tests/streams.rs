//! Whoever stops listening does not stop the program: pipes that break, full devices, terminals that go away.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, OpenOptions};
use std::process::{Child, Command, Stdio};

use end_to_end::{Site, small_plan, wait_for};
use rustix::process::{Pid, Signal, kill_process};

const READ: &str = "[published/4k-random-read]";
const SHORT: &str = "footprints: [64MiB]\nprecondition: 1s\nsample: 1s";
const LONG: &str = "footprints: [64MiB]\nprecondition: 1s\nsample: 5m";
const CANCELLED: i32 = 130;

/// Starts a plan whose standard output and error nobody reads: both pipes are broken from the start.
fn unheard(site: &Site, timings: &str, more: &str) -> Ended {
    let plan = site.plan(&small_plan(timings, READ, more));
    let run = site.command(["run", plan.to_str().unwrap()]);
    // Where these tests run under nohup, hang-ups would be ignored by what they start, as it should be.
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(run.get_program()).args(run.get_args());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    Ended(child)
}

/// A child that is killed where a test fails.
struct Ended(Child);

impl Ended {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
    }

    fn code(&mut self) -> Option<i32> {
        wait_for("the end of the run", || self.0.try_wait().unwrap()).code()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_run_goes_on_where_nobody_reads_what_it_says() {
    let site = Site::new();
    assert_eq!(unheard(&site, SHORT, "").code(), Some(0));
    assert_eq!(site.state().as_deref(), Some("done"));
    assert_eq!(fs::read_dir(site.data_dir().join("reports")).unwrap().count(), 1);
}

#[test]
fn an_interrupt_is_heard_where_nobody_reads_what_the_run_says() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let site = Site::new();
        let mut run = unheard(&site, LONG, "");
        site.wait_for_state("sampling");
        run.signal(signal);
        assert_eq!(run.code(), Some(CANCELLED), "{signal:?}");
        assert_eq!(site.state().as_deref(), Some("cancelled"), "{signal:?}");
        assert!(site.disk_files().is_empty(), "{signal:?}: {:?}", site.disk_files());
    }
}

#[test]
fn a_run_outlives_its_terminal_where_nohup_asks_for_it() {
    let site = Site::new();
    let plan = site.plan(&small_plan("footprints: [64MiB]\nprecondition: 1s\nsample: 4s", READ, ""));
    let run = site.command(["run", plan.to_str().unwrap()]);
    let mut nohup = Command::new("nohup");
    nohup.arg(run.get_program()).args(run.get_args()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = Ended(nohup.spawn().unwrap());
    site.wait_for_state("sampling");
    run.signal(Signal::HUP);
    assert_eq!(run.code(), Some(0));
}

#[test]
fn results_go_to_pipes_that_break_and_to_devices_that_are_full() {
    let site = Site::new();
    let answer = site.run(&small_plan(SHORT, READ, ""));
    assert!(answer.ok(), "{answer:?}");
    let plan = site.path().join("plan.yaml");
    let subcommands: [&[&str]; 6] = [
        &["runs"],
        &["runs", "--json"],
        &["show"],
        &["show", "--json"],
        &["export", "latest", "--format", "html", "-o", "-"],
        &["check", plan.to_str().unwrap()],
    ];
    for subcommand in subcommands {
        let mut command = site.command([]);
        command.args(subcommand).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.as_ref()), (Some(0), ""), "{subcommand:?} into a broken pipe");

        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = site.command([]);
        let output = command.args(subcommand).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{subcommand:?} into a full device: {said}");
        assert!(said.starts_with("error: standard output: No space left"), "{subcommand:?}: {said}");
    }
}

#[test]
fn a_file_that_is_no_plan_is_refused_in_few_words_however_long_it_is() {
    let answer = Site::new().ask(["check", "/dev/zero"]);
    assert_eq!(answer.code, Some(1));
    assert!(answer.stderr.contains("/dev/zero") && answer.stderr.contains("at most 1048576 bytes"), "{answer:?}");
    assert!(answer.stderr.len() < 1_000, "{} bytes", answer.stderr.len());
}

#[test]
fn the_disks_of_a_killed_run_are_removed_from_where_that_run_had_them() {
    let site = Site::new();
    let elsewhere = site.path().join("elsewhere");
    let plan = small_plan(LONG, READ, "");
    let plan = plan.replace("provider: local", &format!("provider: local, disk_dir: {}", elsewhere.display()));
    let plan = site.plan(&plan);
    let mut command = site.command(["run", plan.to_str().unwrap()]);
    let mut run = Ended(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    site.wait_for_state("sampling");
    run.signal(Signal::KILL);
    assert_eq!(run.code(), None);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);

    let answer = site.run(&small_plan(SHORT, READ, ""));
    assert!(answer.ok(), "{answer:?}");
    assert!(answer.stderr.contains("ended as failed and cleaned up"), "{answer:?}");
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
}
