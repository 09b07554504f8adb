//! What the tests share.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may fail the test")]
#![allow(dead_code, reason = "each test file is a crate of its own and uses a part of this")]

pub(crate) mod fuse;
pub(crate) mod loop_device;

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use load_engine::{
    DiskSpec, Event, FillSpec, Job, LoadSpec, Outcome, Second, Tuning, VerifySpec, Work, Workload, prepare,
};

/// A file of `size_bytes` on a real file system (the build directory), and its disk.
pub(crate) struct TestDisk {
    pub(crate) path: PathBuf,
    pub(crate) size_bytes: u64,
    _directory: tempfile::TempDir,
}

impl TestDisk {
    pub(crate) fn new(size_bytes: u64) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
        Self { path, size_bytes, _directory: directory }
    }

    pub(crate) fn spec(&self, id: &str) -> DiskSpec {
        disk(id, &self.path, self.size_bytes)
    }
}

/// All of a disk.
pub(crate) fn disk(id: &str, path: &Path, size_bytes: u64) -> DiskSpec {
    DiskSpec { id: id.to_owned(), path: path.to_owned(), size_bytes, region: 0..size_bytes, data_seed: 42 }
}

pub(crate) fn job(disks: Vec<DiskSpec>, work: Work) -> Job {
    Job { disks, threads: 1, work, seed: 7, own_kernel: false, tuning: Tuning::default() }
}

pub(crate) fn fill_job(disks: Vec<DiskSpec>) -> Job {
    job(disks, Work::Fill(FillSpec::default()))
}

pub(crate) fn verify_job(disks: Vec<DiskSpec>, blocks: u32) -> Job {
    job(disks, Work::Verify(VerifySpec { blocks, block_bytes: 4096, zero: false }))
}

pub(crate) fn load_job(
    disks: Vec<DiskSpec>,
    workload: Workload,
    precondition_seconds: u32,
    sample_seconds: u32,
) -> Job {
    job(disks, Work::Load(LoadSpec { workload, precondition_seconds, sample_seconds }))
}

/// What a job told and how it ended.
pub(crate) struct Ran {
    pub(crate) seconds: Vec<Second>,
    pub(crate) progress: Vec<(u64, u64)>,
    pub(crate) outcome: Outcome,
}

/// Runs a job to its end.
pub(crate) fn run(job: Job) -> Ran {
    run_with(job, |_| {})
}

/// Runs a job and calls `meanwhile` with its start right after it was started.
pub(crate) fn run_with(job: Job, meanwhile: impl FnOnce(Instant)) -> Ran {
    let prepared = prepare(job).unwrap_or_else(|error| panic!("{error}"));
    let (sender, receiver) = channel();
    let start = Instant::now() + Duration::from_millis(20);
    let running = prepared.start(start, sender);
    meanwhile(start);
    let outcome = running.join();
    let mut ran = Ran { seconds: Vec::new(), progress: Vec::new(), outcome };
    for event in receiver {
        match event {
            Event::Second(second) => ran.seconds.push(*second),
            Event::Progress { bytes_done, bytes_total } => ran.progress.push((bytes_done, bytes_total)),
        }
    }
    ran
}

/// Runs a job that must be complete.
pub(crate) fn run_whole(job: Job) -> Ran {
    let ran = run(job);
    assert!(ran.outcome.complete, "{:?}", ran.outcome.reason);
    ran
}

/// Memory of this process that is in RAM, bytes.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
