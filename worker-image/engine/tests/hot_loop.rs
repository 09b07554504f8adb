//! The hot loop neither allocates nor calls the kernel but for io_uring_enter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Instant;

use load_engine::{Event, Workload, prepare};
use support::{TestDisk, load_job, run_whole};

const MIB: u64 = 1 << 20;

/// The system's allocator, counting.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: everything is the system allocator's; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The tests of this file count in the whole process, so they run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

fn busy_job(sample_seconds: u32) -> (load_engine::Job, TestDisk) {
    let disk = TestDisk::new(MIB);
    let workload = Workload { outstanding: 32, read_percent: 70, ..Workload::default() };
    let mut job = load_job(vec![disk.spec("disk")], workload, 0, sample_seconds);
    job.tuning.nop = true;
    (job, disk)
}

#[test]
fn allocations_do_not_grow_with_the_ios() {
    let _alone = ALONE.lock();
    let (job, _disk) = busy_job(4);
    let (sender, receiver) = channel();
    let running = prepare(job).unwrap().start(Instant::now(), sender);
    let mut allocations = Vec::new();
    let mut ios = Vec::new();
    for event in receiver {
        let Event::Second(second) = event else { panic!("{event:?}") };
        ios.push(second.ops.read.count + second.ops.write.count);
        allocations.push(ALLOCATIONS.load(Ordering::Relaxed));
    }
    drop(running);
    // The collector's merging, and a look at the disk, take some each second; hundreds of thousands of I/Os take none.
    let in_one_second = allocations[2] - allocations[1];
    assert!(ios[2] > 50_000, "only {ios:?} I/Os");
    assert!(in_one_second < 2_000, "{in_one_second} allocations in a second of {} I/Os", ios[2]);
}

/// The process that is looked at; run by the test below with this variable set.
const TRACED: &str = "LOAD_ENGINE_TRACED";

#[test]
fn traced_process() {
    if std::env::var_os(TRACED).is_some() {
        run_whole(busy_job(2).0);
    }
}

#[test]
fn the_loop_calls_nothing_but_io_uring_enter() {
    let _alone = ALONE.lock();
    let log = tempfile::NamedTempFile::new().unwrap();
    let program = std::env::current_exe().unwrap();
    let traced = Command::new("strace")
        .args(["--follow-forks", "--quiet=all", "--output"])
        .arg(log.path())
        .arg(program)
        .args(["--exact", "traced_process"])
        .env(TRACED, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        println!("skipped: no strace, or it may not trace");
        return;
    }
    let log = std::fs::read_to_string(log.path()).unwrap();
    let calls: Vec<(&str, &str)> = log.lines().filter_map(call).collect();
    let engine = calls.iter().find(|(_, name)| *name == "io_uring_enter").unwrap().0;
    let mine: Vec<&str> = calls.iter().filter(|(thread, _)| *thread == engine).map(|(_, name)| *name).collect();
    let first = mine.iter().position(|name| *name == "io_uring_enter").unwrap();
    // The thread's CPU time is read when the window ends.
    let last = mine.iter().rposition(|name| *name == "clock_gettime").unwrap();
    let mut counts = HashMap::<&str, usize>::new();
    mine[first..last].iter().for_each(|name| *counts.entry(name).or_default() += 1);
    let enters = counts.remove("io_uring_enter").unwrap();
    assert!(enters > 1_000, "only {enters} enters");
    assert!(counts.is_empty(), "beside {enters} enters: {counts:?}");
}

/// Thread and system call of a line of strace's; none for other lines and second halves of calls.
fn call(line: &str) -> Option<(&str, &str)> {
    let (thread, rest) = line.split_once(' ')?;
    let name = rest.trim_start().split('(').next()?;
    name.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        .then_some((thread, name))
}
