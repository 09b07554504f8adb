//! Files that change under the engine, and jobs that must be refused.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::time::{Duration, Instant};

use load_engine::{DiskSpec, Job, Pattern, PrepareError, Rate, Tuning, Workload, prepare};
use support::{TestDisk, fill_job, load_job, run_whole, run_with, verify_job};

const MIB: u64 = 1 << 20;

/// Runs a load of up to 30 s, does something to its file after a second, and gives reason and length of the run.
fn disturb(read_percent: u32, disturbance: impl FnOnce(&TestDisk)) -> (String, Duration, TestDisk) {
    let disk = TestDisk::new(8 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    let workload = Workload { read_percent, outstanding: 4, ..Workload::default() };
    let began = Instant::now();
    let ran = run_with(load_job(vec![disk.spec("disk")], workload, 0, 30), |_| {
        std::thread::sleep(Duration::from_secs(1));
        disturbance(&disk);
    });
    assert!(!ran.outcome.complete);
    assert_eq!(ran.outcome.failed_disk.as_deref(), Some("disk"));
    (ran.outcome.reason.unwrap(), began.elapsed(), disk)
}

#[test]
fn a_file_truncated_under_reads_ends_the_job() {
    let (reason, took, _) = disturb(100, |disk| {
        std::fs::OpenOptions::new().write(true).open(&disk.path).unwrap().set_len(MIB).unwrap();
    });
    assert!(reason.contains("short") || reason.contains("bytes now; it had"), "{reason}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_file_truncated_under_writes_ends_the_job_and_does_not_grow_beyond_its_size() {
    let (reason, took, disk) = disturb(0, |disk| {
        std::fs::OpenOptions::new().write(true).open(&disk.path).unwrap().set_len(0).unwrap();
    });
    assert!(reason.contains("bytes now; it had 8388608") || reason.contains("was truncated"), "{reason}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert!(std::fs::metadata(&disk.path).unwrap().len() <= 8 * MIB);
}

#[test]
fn a_deleted_file_ends_the_job() {
    let (reason, took, _) = disturb(0, |disk| std::fs::remove_file(&disk.path).unwrap());
    assert!(reason.contains("was deleted"), "{reason}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_replaced_file_ends_the_job() {
    let (reason, took, _) = disturb(50, |disk| {
        // In one step, and the old file lives on under another name: only the path tells.
        let new = disk.path.with_extension("new");
        std::fs::File::create(&new).unwrap().set_len(8 * MIB).unwrap();
        std::fs::hard_link(&disk.path, disk.path.with_extension("old")).unwrap();
        std::fs::rename(&new, &disk.path).unwrap();
    });
    assert!(reason.contains("was replaced"), "{reason}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn stopping_keeps_what_was_measured() {
    let disk = TestDisk::new(8 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    let prepared = prepare(load_job(vec![disk.spec("disk")], Workload::default(), 0, 60)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let running = prepared.start(Instant::now(), sender);
    let stopper = running.stopper();
    // Two whole seconds, then some of the third.
    let mut seconds: Vec<load_engine::Event> = receiver.iter().take(2).collect();
    stopper.stop();
    let outcome = running.join();
    seconds.extend(receiver);
    assert!(!outcome.complete);
    assert_eq!(outcome.reason.as_deref(), Some("stopped before its end"));
    let told: u64 = seconds
        .iter()
        .map(|event| match event {
            load_engine::Event::Second(second) => second.ops.read.count,
            load_engine::Event::Progress { .. } => 0,
        })
        .sum();
    assert_eq!(told, outcome.disks[0].ops.read.count);
    assert!(matches!(seconds.last(), Some(load_engine::Event::Second(second)) if !second.whole));
}

#[test]
fn stopping_a_fill_ends_it_at_once() {
    let disk = TestDisk::new(2048 * MIB);
    let prepared = prepare(fill_job(vec![disk.spec("disk")])).unwrap();
    let (sender, _receiver) = std::sync::mpsc::channel();
    let running = prepared.start(Instant::now(), sender);
    running.stop();
    let outcome = running.join();
    assert!(!outcome.complete);
    assert!(outcome.disks[0].bytes < 2048 * MIB);
}

#[test]
fn a_dropped_job_releases_its_threads() {
    let disk = TestDisk::new(8 * MIB);
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
        tasks
            .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "load-77"))
    };
    let mut job = load_job(vec![disk.spec("disk")], Workload { outstanding: 78, ..Workload::default() }, 0, 1);
    job.threads = 78;
    let prepared = prepare(job).unwrap();
    assert_eq!(threads().count(), 1);
    drop(prepared);
    let deadline = Instant::now() + Duration::from_secs(5);
    while threads().count() > 0 {
        assert!(Instant::now() < deadline, "the threads live on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_late_start_makes_the_window_incomplete() {
    let disk = TestDisk::new(8 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    let prepared = prepare(load_job(vec![disk.spec("disk")], Workload::default(), 0, 3)).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let at = Instant::now().checked_sub(Duration::from_millis(1500)).unwrap();
    let outcome = prepared.start(at, sender).join();
    assert!(!outcome.complete);
    let whole: Vec<bool> = receiver
        .iter()
        .filter_map(|event| if let load_engine::Event::Second(second) = event { Some(second.whole) } else { None })
        .collect();
    assert_eq!(whole, [false, false, true]);
    assert!(outcome.reason.unwrap().contains("started late"));
}

fn refused(change: impl FnOnce(&mut DiskSpec, &mut Workload, &mut Job)) -> PrepareError {
    let disk = TestDisk::new(MIB);
    let mut spec = disk.spec("disk");
    let mut workload = Workload { read_percent: 50, ..Workload::default() };
    let mut job = load_job(vec![], Workload::default(), 0, 1);
    change(&mut spec, &mut workload, &mut job);
    if job.disks.is_empty() {
        job.disks.push(spec);
    }
    if let load_engine::Work::Load(load) = &mut job.work {
        load.workload = workload;
    }
    let before = std::fs::read(&disk.path).unwrap();
    let error = prepare(job).unwrap_err();
    assert_eq!(std::fs::read(&disk.path).unwrap(), before, "nothing is written");
    error
}

fn rate(iops: f64) -> Rate {
    Rate { iops, per_disk: true, poisson: false }
}

#[test]
fn bad_jobs_are_refused_with_field_value_and_what_is_allowed() {
    let cases: [(&str, PrepareError); 15] = [
        ("threads: 0 is not in 1 to 256", refused(|_, _, job| job.threads = 0)),
        ("block_bytes: 1000 is not a multiple of 512", refused(|_, workload, _| workload.block_bytes = 1000)),
        ("read_percent: 101 is not in 0 to 100", refused(|_, workload, _| workload.read_percent = 101)),
        ("outstanding: 0 is not in 1 to 4096", refused(|_, workload, _| workload.outstanding = 0)),
        ("compression_ratio: 0.5 is not in 1 to 100", refused(|_, workload, _| workload.compression_ratio = 0.5)),
        ("duplication_ratio: NaN is not in 1 to 100", refused(|_, workload, _| workload.duplication_ratio = f64::NAN)),
        (
            "disk disk: the region 0 to 2097152 is not a part of its 1048576 bytes",
            refused(|disk, _, _| disk.region.end = 2 * MIB),
        ),
        ("has 1048576 bytes; it must have 1052672", refused(|disk, _, _| disk.size_bytes = MIB + 4096)),
        (
            "disk disk: its region of 1048576 bytes is smaller than a block of 2097152",
            refused(|_, workload, _| workload.block_bytes = 2 * MIB),
        ),
        (
            "256 blocks fit into the range; the pattern needs 300",
            refused(|_, workload, _| workload.pattern = Pattern::Sequential { streams: 300 }),
        ),
        ("rate.iops: 0 is not in", refused(|_, workload, _| workload.rate = Some(rate(0.0)))),
        ("rate.iops: 0.00", refused(|_, workload, _| workload.rate = Some(rate(1e-305)))),
        (
            "rate.iops: 7.5e-7 I/Os a second are left for a thread's part in a disk",
            refused(|_, workload, job| {
                (workload.rate, workload.outstanding, job.threads) = (Some(rate(1.5e-6)), 2, 2);
            }),
        ),
        ("tuning.trace_ios: 4000001 is not in", refused(|_, _, job| job.tuning.trace_ios = 4_000_001)),
        ("No such file or directory", refused(|disk, _, _| disk.path = "/nowhere/disk".into())),
    ];
    for (expected, error) in cases {
        assert!(error.to_string().contains(expected), "{error} does not say {expected}");
    }
}

#[test]
fn the_same_disk_twice_is_refused() {
    let disk = TestDisk::new(MIB);
    let error = prepare(fill_job(vec![disk.spec("one"), disk.spec("other")])).unwrap_err();
    assert!(error.to_string().contains("is there twice"), "{error}");
}

#[test]
fn too_much_buffer_memory_is_refused_before_it_is_taken() {
    let disk = TestDisk::new(64 * MIB);
    let workload = Workload { block_bytes: 64 * MIB, outstanding: 4096, ..Workload::default() };
    let error = prepare(load_job(vec![disk.spec("disk")], workload, 0, 1)).unwrap_err();
    assert!(error.to_string().contains("bytes of buffers"), "{error}");
}

#[test]
fn a_disk_opened_buffered_on_purpose_is_reported_so() {
    let disk = TestDisk::new(MIB);
    let mut job = verify_job(vec![disk.spec("disk")], 1);
    job.tuning = Tuning { direct: false, ..Tuning::default() };
    let report = prepare(job).unwrap().report().clone();
    assert!(!report.disks[0].direct);
    assert!(report.warnings.is_empty(), "what was asked for is no warning: {:?}", report.warnings);
}

/// CPUs that each engine thread of this process may use, as the kernel lists them.
fn cpus_of_engine_threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let status = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
    let engine = status.filter(|status| status.starts_with("Name:\tload-0\n"));
    let list =
        |status: String| status.lines().find_map(|line| Some(line.strip_prefix("Cpus_allowed_list:\t")?.to_owned()));
    engine.filter_map(list).collect()
}

#[test]
fn a_pinned_thread_has_one_cpu_and_too_many_threads_are_warned_of() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap().count();
    let disk = TestDisk::new(MIB);
    let job = |threads| {
        let outstanding = threads;
        let mut job = load_job(vec![disk.spec("disk")], Workload { outstanding, ..Workload::default() }, 0, 1);
        (job.threads, job.tuning.pin) = (threads, Some(true));
        job
    };
    let unpinned = |warnings: &[String]| warnings.iter().any(|warning| warning.contains("not pinned"));
    let prepared = prepare(job(1)).unwrap();
    assert!(!unpinned(&prepared.report().warnings), "{:?}", prepared.report().warnings);
    let lists = cpus_of_engine_threads();
    assert!(lists.iter().any(|list| list.parse::<usize>().is_ok()), "{lists:?}");
    let prepared = prepare(job(cpus + 1)).unwrap();
    assert!(unpinned(&prepared.report().warnings), "{:?}", prepared.report().warnings);
}
