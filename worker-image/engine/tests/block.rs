//! On block devices of the kernel: counters, queue settings, merges, claims, throttling, freezes, full file systems.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use load_engine::{DiskKind, Pattern, PrepareError, Rate, Workload, prepare, probe_disk};
use support::loop_device::{LoopDevice, Mounted, command};
use support::{disk, fill_job, load_job, run, run_whole, run_with, verify_job};

const MIB: u64 = 1 << 20;

#[test]
fn a_block_device_is_filled_read_back_and_counted_as_the_kernel_counts_it() {
    let Some(device) = LoopDevice::new(32 * MIB) else { return };
    let probe = probe_disk(&device.path).unwrap();
    assert_eq!((probe.kind, probe.size_bytes, probe.direct), (DiskKind::Block, 32 * MIB, true));
    assert_eq!(probe.in_use, None);
    run_whole(fill_job(vec![device.spec("disk")]));
    let verified = run_whole(verify_job(vec![device.spec("disk")], 1000)).outcome;
    assert_eq!(verified.disks[0].verified_blocks, 1000);
    let workload = Workload { block_bytes: 8192, read_percent: 70, outstanding: 8, ..Workload::default() };
    let outcome = run_whole(load_job(vec![device.spec("disk")], workload, 1, 2)).outcome;
    let (ops, counted) = (&outcome.disks[0].ops, outcome.disks[0].device.unwrap());
    assert!(ops.read.count > 1000 && ops.write.count > 500);
    for (ours, theirs) in [(ops.read.count, counted.reads), (ops.write.count, counted.writes)] {
        // The readings are taken a moment after the window's ends.
        assert!(ours.abs_diff(theirs) * 50 < ours, "{ours} I/Os, {theirs} requests");
    }
}

#[test]
fn settings_are_set_where_the_kernel_is_ours_and_put_back() {
    let Some(device) = LoopDevice::new(8 * MIB) else { return };
    let read = |file: &str| fs::read_to_string(device.sysfs(file)).unwrap();
    if fs::write(device.sysfs("queue/scheduler"), "mq-deadline").is_err() {
        println!("skipped: no scheduler but none in this kernel");
    }
    fs::write(device.sysfs("queue/nomerges"), "0").unwrap();
    let before = (read("queue/scheduler"), read("queue/nomerges"));
    let mut job = load_job(vec![device.spec("disk")], Workload::default(), 0, 1);
    job.own_kernel = true;
    job.tuning.pin = Some(false);
    let prepared = prepare(job.clone()).unwrap();
    let settings = &prepared.report().disks[0];
    assert_eq!((settings.scheduler.as_deref(), settings.nomerges), (Some("none"), Some(2)));
    assert_eq!(read("queue/nomerges").trim(), "2");
    drop(prepared);
    assert_eq!((read("queue/scheduler"), read("queue/nomerges")), before);
    assert!(run(job).outcome.complete);
    assert_eq!((read("queue/scheduler"), read("queue/nomerges")), before);
    let report = prepare(load_job(vec![device.spec("disk")], Workload::default(), 0, 1)).unwrap().report().clone();
    assert_eq!(report.disks[0].nomerges, Some(0), "a foreign kernel's settings are left alone");
}

#[test]
fn merged_requests_are_counted_and_warned_of() {
    let Some(device) = LoopDevice::new(32 * MIB) else { return };
    run_whole(fill_job(vec![device.spec("disk")]));
    let sequential = |nomerges: &str| {
        fs::write(device.sysfs("queue/nomerges"), nomerges).unwrap();
        let pattern = Pattern::Sequential { streams: 1 };
        let workload = Workload { pattern, read_percent: 0, outstanding: 32, ..Workload::default() };
        let mut job = load_job(vec![device.spec("disk")], workload, 0, 1);
        job.tuning.reissue_batch = 16;
        run_whole(job).outcome
    };
    let merged = sequential("0");
    assert!(merged.disks[0].device.unwrap().write_merges > 100, "{:?}", merged.disks[0].device);
    assert!(merged.disks[0].device_differs && !merged.judgements.is_empty());
    assert!(merged.warnings.iter().any(|warning| warning.contains("requests at the device")), "{:?}", merged.warnings);
    let single = sequential("2");
    assert_eq!(single.disks[0].device.unwrap().write_merges, 0);
    assert!(!single.disks[0].device_differs);
    assert!(!single.warnings.iter().any(|warning| warning.contains("requests at the device")), "{:?}", single.warnings);
}

#[test]
fn a_device_that_is_mounted_or_held_is_not_written() {
    let Some(mounted) = Mounted::new(16 * MIB) else { return };
    let in_use = probe_disk(&mounted.device.path).unwrap().in_use.unwrap();
    assert!(in_use.starts_with("mounted on"), "{in_use}");
    let error = prepare(fill_job(vec![mounted.device.spec("disk")])).unwrap_err();
    assert!(matches!(&error, PrepareError::Disk { disk, .. } if disk == "disk"), "{error}");
    assert!(error.to_string().contains("mounted on"), "{error}");
    let backing = probe_disk(mounted.device.backing()).unwrap().in_use.unwrap();
    assert!(backing.contains(mounted.device.name()), "{backing}");
}

#[test]
fn a_device_in_a_job_is_claimed_until_its_end() {
    let Some(device) = LoopDevice::new(8 * MIB) else { return };
    let writes = || load_job(vec![device.spec("disk")], Workload { read_percent: 0, ..Workload::default() }, 0, 1);
    let first = prepare(writes()).unwrap();
    let error = prepare(writes()).unwrap_err();
    assert!(error.to_string().contains("claimed by another user"), "{error}");
    drop(first);
    prepare(writes()).unwrap();
}

#[test]
fn a_throttled_device_is_measured_at_its_known_rate() {
    let Some(device) = LoopDevice::new(16 * MIB) else { return };
    run_whole(fill_job(vec![device.spec("disk")]));
    let Some(group) = Throttle::new(&device.number(), 400) else { return };
    let prepared =
        prepare(load_job(vec![device.spec("disk")], Workload { outstanding: 4, ..Workload::default() }, 1, 3));
    let prepared = prepared.unwrap();
    group.take_threads();
    let (sender, _receiver) = std::sync::mpsc::channel();
    let outcome = prepared.start(std::time::Instant::now(), sender).join();
    let iops = outcome.disks[0].ops.read.count / 3;
    assert!((380..=440).contains(&iops), "{iops} IOPS where 400 are allowed");
    let mean_ms = outcome.disks[0].ops.read.latencies.mean_ns().unwrap() / 1e6;
    assert!((9.0..=11.0).contains(&mean_ms), "4 outstanding at 400 IOPS take 10 ms by Little's law, not {mean_ms}");
}

/// A cgroup that allows so many reads a second from a device.
struct Throttle {
    directory: PathBuf,
}

impl Throttle {
    fn new(device: &str, iops: u32) -> Option<Self> {
        let directory = PathBuf::from("/sys/fs/cgroup/blkio").join(format!("load-engine-{}", std::process::id()));
        let limit = directory.join("blkio.throttle.read_iops_device");
        let made = fs::create_dir(&directory).and_then(|()| fs::write(limit, format!("{device} {iops}")));
        if let Err(error) = made {
            println!("skipped: no blkio cgroup: {error}");
            let _ = fs::remove_dir(&directory);
            return None;
        }
        Some(Self { directory })
    }

    /// Puts the engine threads of this process under the limit.
    fn take_threads(&self) {
        for task in fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok) {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.starts_with("load-") {
                let id = task.file_name().to_string_lossy().into_owned();
                // A thread of another test may be gone meanwhile.
                let _ = fs::write(self.directory.join("tasks"), id);
            }
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let root = Path::new("/sys/fs/cgroup/blkio/tasks");
        for task in fs::read_to_string(self.directory.join("tasks")).unwrap_or_default().lines() {
            let _ = fs::write(root, task);
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

#[test]
fn a_frozen_file_system_is_a_stall() {
    let Some(mounted) = Mounted::new(32 * MIB) else { return };
    let path = mounted.directory.path().join("disk");
    fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    run_whole(fill_job(vec![disk("disk", &path, 8 * MIB)]));
    let workload = Workload { read_percent: 0, outstanding: 2, ..Workload::default() };
    let mount = mounted.directory.path().to_str().unwrap().to_owned();
    let ran = run_with(load_job(vec![disk("disk", &path, 8 * MIB)], workload, 0, 5), move |_| {
        std::thread::sleep(Duration::from_millis(1000));
        command("fsfreeze", &["--freeze", &mount]).unwrap();
        std::thread::sleep(Duration::from_millis(2000));
        command("fsfreeze", &["--unfreeze", &mount]).unwrap();
    });
    assert!(ran.outcome.complete, "{:?}", ran.outcome.reason);
    let longest = ran.outcome.disks[0].stalls.iter().map(|stall| stall.length_ns).max().unwrap_or(0);
    assert!((1_900_000_000..3_000_000_000).contains(&longest), "{:?}", ran.outcome.disks[0].stalls);
}

#[test]
fn what_never_completes_is_left_to_the_kernel_with_its_memory() {
    let Some(mounted) = Mounted::new(32 * MIB) else { return };
    let path = mounted.directory.path().join("disk");
    fs::File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    run_whole(fill_job(vec![disk("disk", &path, 8 * MIB)]));
    let workload = Workload { read_percent: 0, outstanding: 2, ..Workload::default() };
    let mut job = load_job(vec![disk("disk", &path, 8 * MIB)], workload, 0, 3);
    job.tuning.drain_limit = Duration::from_secs(1);
    let mount = mounted.directory.path().to_str().unwrap().to_owned();
    let ran = run_with(job, |_| {
        std::thread::sleep(Duration::from_millis(1000));
        command("fsfreeze", &["--freeze", &mount]).unwrap();
    });
    command("fsfreeze", &["--unfreeze", &mount]).unwrap();
    let outcome = ran.outcome;
    assert_eq!(outcome.disks[0].unfinished, 2);
    assert!(
        outcome.disks[0].oldest_unfinished > Duration::from_millis(1500),
        "{:?}",
        outcome.disks[0].oldest_unfinished
    );
    assert_eq!(ran.seconds.len(), 3, "the seconds of the stall are told");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("stay with the kernel")), "{:?}", outcome.warnings);
}

#[test]
fn a_device_that_never_answers_does_not_keep_the_job_that_would_put_its_settings_back() {
    let Some(below) = Mounted::new(48 * MIB) else { return };
    let backing = tempfile::NamedTempFile::new_in(below.directory.path()).unwrap();
    let Some(device) = LoopDevice::over(backing, 16 * MIB) else { return };
    run_whole(fill_job(vec![device.spec("disk")]));
    let scheduler = device.sysfs("queue/scheduler");
    if fs::write(&scheduler, "mq-deadline").is_err() {
        println!("skipped: no scheduler but none in this kernel");
        return;
    }
    let before = fs::read_to_string(&scheduler).unwrap();
    let workload = Workload { read_percent: 0, outstanding: 2, ..Workload::default() };
    let mut job = load_job(vec![device.spec("disk")], workload, 0, 2);
    job.own_kernel = true;
    job.tuning.pin = Some(false);
    job.tuning.drain_limit = Duration::from_secs(1);
    let mount = below.directory.path().to_str().unwrap().to_owned();
    // A kernel that holds the job until the file system is thawed would hold it for ever; this thaws it in the end, so that the test can fail.
    let (ended, over) = std::sync::mpsc::channel::<()>();
    let thaw = std::thread::spawn(move || {
        let in_time = over.recv_timeout(Duration::from_secs(30)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        command("fsfreeze", &["--unfreeze", &mount]).unwrap();
        in_time
    });
    let mount = below.directory.path().to_str().unwrap().to_owned();
    let outcome = run_with(job, |_| {
        std::thread::sleep(Duration::from_millis(500));
        command("fsfreeze", &["--freeze", &mount]).unwrap();
    })
    .outcome;
    drop(ended);
    assert!(thaw.join().unwrap(), "the job went on until the device answered");
    assert!(outcome.warnings.iter().any(|warning| warning.contains("could not be put back")), "{:?}", outcome.warnings);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while fs::read_to_string(&scheduler).unwrap() != before {
        assert!(std::time::Instant::now() < deadline, "the scheduler is put back once the device answers");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_device_that_holds_an_io_does_not_keep_the_preparation_that_would_change_its_settings() {
    let Some(below) = Mounted::new(48 * MIB) else { return };
    let backing = tempfile::NamedTempFile::new_in(below.directory.path()).unwrap();
    let Some(device) = LoopDevice::over(backing, 16 * MIB) else { return };
    let scheduler = device.sysfs("queue/scheduler");
    if fs::write(&scheduler, "mq-deadline").is_err() {
        println!("skipped: no scheduler but none in this kernel");
        return;
    }
    let before = fs::read_to_string(&scheduler).unwrap();
    let mut job = load_job(vec![device.spec("disk")], Workload::default(), 0, 1);
    (job.own_kernel, job.tuning.pin) = (true, Some(false));
    let mount = below.directory.path().to_str().unwrap().to_owned();
    command("fsfreeze", &["--freeze", &mount]).unwrap();
    let of = format!("of={}", device.path.display());
    let mut stuck = std::process::Command::new("dd")
        .args(["if=/dev/zero", &of, "bs=4096", "count=1", "oflag=direct", "status=none"])
        .spawn()
        .unwrap();
    // A kernel that holds the preparation until then would hold it for ever; this thaws in the end, so that the test can fail.
    let (ended, over) = std::sync::mpsc::channel::<()>();
    let thaw = std::thread::spawn(move || {
        let in_time = over.recv_timeout(Duration::from_secs(40)) != Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        command("fsfreeze", &["--unfreeze", &mount]).unwrap();
        in_time
    });
    let holds_io = wait_until(|| {
        let inflight = fs::read_to_string(device.sysfs("inflight")).unwrap();
        inflight.split_whitespace().any(|count| count != "0")
    });
    let prepared = prepare(job).map(drop);
    drop(ended);
    assert!(thaw.join().unwrap(), "the preparation went on until the device answered");
    stuck.wait().unwrap();
    assert!(holds_io, "dd's write is in flight");
    let error = prepared.unwrap_err();
    assert_eq!(error.disk(), Some("disk"));
    assert!(error.to_string().contains("could not be set within"), "{error}");
    // The thread that was left behind sets it and finds nobody; then it is as before.
    let threads_gone =
        || !thread_names().any(|name| name.starts_with("load-queue") || name.starts_with("load-restore"));
    assert!(wait_until(threads_gone));
    assert_eq!(fs::read_to_string(&scheduler).unwrap(), before);
}

fn thread_names() -> impl Iterator<Item = String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok())
}

/// Whether a condition comes true within some seconds.
fn wait_until(condition: impl Fn() -> bool) -> bool {
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while !condition() {
        if std::time::Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[test]
fn the_device_is_read_at_the_start_of_a_window_that_starts_at_once() {
    let Some(device) = LoopDevice::new(8 * MIB) else { return };
    run_whole(fill_job(vec![device.spec("disk")]));
    // 20 ms would be 40 reads.
    let rate = Some(Rate { iops: 2000.0, per_disk: true, poisson: false });
    let job = load_job(vec![device.spec("disk")], Workload { rate, outstanding: 8, ..Workload::default() }, 0, 1);
    let mut found = Vec::new();
    // Another process may take the CPU at the wrong moment; a few windows are enough to find one without.
    let exact = (0..5).any(|_| {
        let (sender, _receiver) = std::sync::mpsc::channel();
        let outcome = prepare(job.clone()).unwrap().start(std::time::Instant::now(), sender).join();
        let (ours, device) = (outcome.disks[0].ops.read.count, outcome.disks[0].device.unwrap().reads);
        found.push((ours, device));
        ours.abs_diff(device) < 10
    });
    assert!(exact, "I/Os and the device's: {found:?}");
}

#[test]
fn the_reported_settings_are_the_kernels() {
    let Some(device) = LoopDevice::new(8 * MIB) else { return };
    let report = prepare(load_job(vec![device.spec("disk")], Workload::default(), 0, 1)).unwrap().report().clone();
    let number = |file: &str| fs::read_to_string(device.sysfs(file)).unwrap().trim().parse::<u32>().ok();
    let settings = &report.disks[0];
    assert_eq!(settings.nr_requests, number("queue/nr_requests"));
    assert_eq!(settings.max_sectors_kb, number("queue/max_sectors_kb"));
    assert_eq!(settings.nomerges, number("queue/nomerges"));
    assert!(settings.nr_requests.is_some() && settings.max_sectors_kb.is_some(), "{settings:?}");
    let clock = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap();
    assert_eq!(report.clock_source, clock.trim());
}

#[test]
fn no_space_left_ends_a_fill_with_disk_and_offset() {
    let Some(mounted) = Mounted::new(16 * MIB) else { return };
    let path = mounted.directory.path().join("disk");
    fs::File::create(&path).unwrap().set_len(64 * MIB).unwrap();
    let outcome = run(fill_job(vec![disk("disk-9", &path, 64 * MIB)])).outcome;
    let reason = outcome.reason.unwrap();
    assert!(reason.starts_with("disk disk-9: write of ") && reason.contains("at offset"), "{reason}");
    assert!(reason.ends_with("No space left on device (os error 28)"), "{reason}");
    assert_eq!(outcome.failed_disk.as_deref(), Some("disk-9"));
    assert!(outcome.disks[0].bytes < 16 * MIB);
}

#[test]
fn streams_at_depth_arrive_in_order_at_the_block_layer() {
    let Some(device) = LoopDevice::new(16 * MIB) else { return };
    run_whole(fill_job(vec![device.spec("disk")]));
    fs::write(device.sysfs("queue/nomerges"), "2").unwrap();
    let Some(tracing) = Tracing::start(&device) else { return };
    let pattern = Pattern::Sequential { streams: 1 };
    let workload = Workload { pattern, outstanding: 8, ..Workload::default() };
    run_whole(load_job(vec![device.spec("disk")], workload, 0, 1));
    let sectors = tracing.queued_sectors();
    assert!(sectors.len() > 500, "only {} requests traced", sectors.len());
    for pair in sectors.windows(2) {
        assert_eq!(pair[1], (pair[0] + 8) % (16 * MIB / 512), "after sector {}", pair[0]);
    }
}

/// The kernel's own record of what is queued to a device, in an instance of tracefs of its own.
struct Tracing {
    instance: PathBuf,
}

impl Tracing {
    fn start(device: &LoopDevice) -> Option<Self> {
        let root = Path::new("/sys/kernel/tracing");
        if !root.join("events").is_dir() {
            let _ = command("mount", &["-t", "tracefs", "tracefs", "/sys/kernel/tracing"]);
        }
        let instance = root.join("instances").join(format!("load-engine-{}", std::process::id()));
        let (major, minor) = device.number().split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned()))?;
        let number = (major.parse::<u32>().ok()? << 20) | minor.parse::<u32>().ok()?;
        let event = instance.join("events/block/block_bio_queue");
        let started = fs::create_dir(&instance)
            .and_then(|()| fs::write(instance.join("buffer_size_kb"), "8192"))
            .and_then(|()| fs::write(event.join("filter"), format!("dev == {number}")))
            .and_then(|()| fs::write(event.join("enable"), "1"));
        if let Err(error) = started {
            println!("skipped: no tracefs: {error}");
            let _ = fs::remove_dir(&instance);
            return None;
        }
        Some(Self { instance })
    }

    /// Start sectors in the order of their arrival, of the time of which every arrival is kept.
    fn queued_sectors(&self) -> Vec<u64> {
        let trace = fs::read_to_string(self.instance.join("trace")).unwrap();
        let queued: Vec<Queued> = trace.lines().filter_map(Queued::parse).collect();
        // A CPU whose ring ran over has lost its earliest; a thread that changed its CPU leaves a gap there in the other's record.
        let first = |cpu: u32| queued.iter().find(|queued| queued.cpu == cpu).map(|queued| queued.at_us);
        let cpus: BTreeSet<u32> = queued.iter().map(|queued| queued.cpu).collect();
        let complete_after = cpus.into_iter().filter(|&cpu| self.ran_over(cpu)).filter_map(first).max().unwrap_or(0);
        queued.iter().filter(|queued| queued.at_us > complete_after).map(|queued| queued.sector).collect()
    }

    fn ran_over(&self, cpu: u32) -> bool {
        let stats = fs::read_to_string(self.instance.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap();
        let lost = stats.lines().find_map(|line| line.strip_prefix("overrun: ")).unwrap();
        lost.trim() != "0"
    }
}

/// `lane-1-77 [001] ..... 12.345678: block_bio_queue: 7,0 R 960 + 8 [lane-1]`.
struct Queued {
    cpu: u32,
    at_us: u64,
    sector: u64,
}

impl Queued {
    fn parse(line: &str) -> Option<Self> {
        let (head, request) = line.split_once(": block_bio_queue: ")?;
        let cpu = head.split_once('[')?.1.split_once(']')?.0.parse().ok()?;
        let at_us = head.rsplit(' ').next()?.replace('.', "").parse().ok()?;
        let sector = request.split_once(" + ")?.0.rsplit(' ').next()?.parse().ok()?;
        Some(Self { cpu, at_us, sector })
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/block/block_bio_queue/enable"), "0");
        let _ = fs::remove_dir(&self.instance);
    }
}
