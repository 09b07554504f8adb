//! What the end-to-end tests share: a data directory of their own, the built binary, and bounded waits.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

pub mod fake;
pub mod machines;
pub mod vm;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// No condition of these tests takes longer, on a busy machine either.
const BOUND: Duration = Duration::from_secs(90);
/// Between two looks at a condition.
const LOOK: Duration = Duration::from_millis(50);

/// The binary under test. `tests/run` builds it first; cargo does not build it for another package's tests.
///
/// # Panics
/// Where it was not built.
#[must_use]
pub fn binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    let binary = target.join("release/fourcorners");
    assert!(binary.exists(), "{} is missing: cargo build --release", binary.display());
    binary
}

/// Root of the checkout.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files under a directory that hold a text in the clear.
#[must_use]
pub fn files_with(dir: &Path, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if fs::read(&path).unwrap().windows(text.len()).any(|window| window == text.as_bytes()) {
            found.push(path);
        }
    }
    found
}

/// A data directory for one test, removed with it.
#[derive(Debug)]
pub struct Site {
    dir: tempfile::TempDir,
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Site {
    /// A new one on the file system of the build, which is a real disk where /tmp may not be.
    #[must_use]
    pub fn new() -> Self {
        let parent = workspace().join("target/tmp");
        fs::create_dir_all(&parent).unwrap();
        Self { dir: tempfile::tempdir_in(parent).unwrap() }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Writes a plan.
    #[must_use]
    pub fn plan(&self, yaml: &str) -> PathBuf {
        let path = self.path().join("plan.yaml");
        fs::write(&path, yaml).unwrap();
        path
    }

    /// The binary with this data directory.
    #[must_use]
    pub fn command<const N: usize>(&self, args: [&str; N]) -> Command {
        let mut command = Command::new(binary());
        command.arg("--data-dir").arg(self.data_dir()).args(args).stdin(Stdio::null());
        command
    }

    /// Runs a subcommand to its end.
    #[must_use]
    pub fn ask<const N: usize>(&self, args: [&str; N]) -> Answer {
        Answer::from(self.command(args).output().unwrap())
    }

    /// Runs a plan to its end.
    #[must_use]
    pub fn run(&self, yaml: &str) -> Answer {
        let plan = self.plan(yaml);
        self.ask(["run", plan.to_str().unwrap()])
    }

    /// Starts a plan and leaves it running.
    #[must_use]
    pub fn start(&self, yaml: &str) -> Running {
        let plan = self.plan(yaml);
        self.start_with(["run", plan.to_str().unwrap()])
    }

    /// Starts a subcommand and leaves it running.
    #[must_use]
    pub fn start_with<const N: usize>(&self, args: [&str; N]) -> Running {
        let mut command = self.command(args);
        Running { child: Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()) }
    }

    /// The latest run's JSON export.
    #[must_use]
    pub fn export(&self) -> Value {
        let answer = self.ask(["export", "latest", "--format", "json", "-o", "-"]);
        assert!(answer.ok(), "{answer:?}");
        serde_json::from_str(&answer.stdout).unwrap()
    }

    /// State of the latest run, if there is one.
    #[must_use]
    pub fn state(&self) -> Option<String> {
        let answer = self.ask(["runs", "--json"]);
        let runs: Value = serde_json::from_str(&answer.stdout).ok()?;
        Some(runs.get(0)?.get("state")?.as_str()?.to_owned())
    }

    /// Waits until the latest run is in this state.
    pub fn wait_for_state(&self, state: &str) {
        wait_for(&format!("state {state}"), || self.state().filter(|now| now == state));
    }

    /// Data disk files that exist.
    #[must_use]
    pub fn disk_files(&self) -> Vec<PathBuf> {
        let fleets = fs::read_dir(self.data_dir().join("disks")).into_iter().flatten().flatten();
        let mut files: Vec<_> = fleets
            .flat_map(|fleet| fs::read_dir(fleet.path()).into_iter().flatten().flatten())
            .map(|file| file.path())
            .collect();
        files.sort();
        files
    }

    /// Process ids of this site's workers, by the disks on their command lines.
    #[must_use]
    pub fn workers(&self) -> Vec<Pid> {
        self.processes(|line| line.contains("\0worker\0"))
    }

    /// Process ids of this site's VMs, by the disks on their command lines.
    #[must_use]
    pub fn emulators(&self) -> Vec<Pid> {
        self.processes(|line| line.split('\0').next().is_some_and(|program| program.ends_with("qemu-system-x86_64")))
    }

    fn processes(&self, wanted: impl Fn(&str) -> bool) -> Vec<Pid> {
        let mark = self.data_dir().join("disks");
        processes(|line| wanted(line) && line.contains(mark.to_str().unwrap()))
    }
}

/// Process ids by their command lines, in which a zero ends each argument.
fn processes(wanted: impl Fn(&str) -> bool) -> Vec<Pid> {
    let is_wanted = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        wanted(&String::from_utf8_lossy(&line))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut pids: Vec<i32> = pids.filter(is_wanted).collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(Pid::from_raw).collect()
}

/// What a finished command said.
#[derive(Debug)]
pub struct Answer {
    /// Exit status; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Answer {
    /// It ended well.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Self { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// A command that goes on; killed when dropped.
#[derive(Debug)]
pub struct Running {
    child: Option<Child>,
}

impl Running {
    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.as_ref().unwrap().id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    #[must_use]
    pub fn end(self) -> Answer {
        self.end_within(BOUND)
    }

    /// Waits for the end of what may take longer than everything else.
    #[must_use]
    pub fn end_within(mut self, bound: Duration) -> Answer {
        let mut child = self.child.take().unwrap();
        let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
        // Both pipes are drained, or a talkative child would never end.
        let out = std::thread::spawn(move || read_all(out.as_mut()));
        let err = std::thread::spawn(move || read_all(err.as_mut()));
        let status = wait_within(bound, "the command's end", || child.try_wait().unwrap());
        Answer { code: status.code(), stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn read_all(pipe: Option<&mut impl std::io::Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.read_to_end(&mut bytes).unwrap();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Looks again and again until there is an answer.
///
/// # Panics
/// Where there is none within the bound.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_within(BOUND, what, look)
}

/// [`wait_for`] with a bound of its own.
///
/// # Panics
/// Where there is no answer within the bound.
pub fn wait_within<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + bound;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {bound:?}");
        std::thread::sleep(LOOK);
    }
}

/// Says that a test cannot run here, and why; `tests/run` counts these lines.
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
}

/// A plan of two workers with one disk each. `more` adds or replaces nothing: give what is not here.
#[must_use]
pub fn small_plan(timings: &str, workloads: &str, more: &str) -> String {
    format!(
        "name: small\ntarget: {{provider: local}}\nworkers: {{count: 2, vcpus: 1, memory: 256MiB, disks: 1}}\n\
         {timings}\nworkloads: {workloads}\n{more}\n"
    )
}
