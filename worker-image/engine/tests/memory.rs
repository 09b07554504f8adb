//! Memory: under its bound beside the buffers, and steady. One test, because it looks at the whole process.
//!
//! `LOAD_ENGINE_MEMORY_IOS` sets how many I/Os the steady part does (default 5 million; the figure to show is 10^8).

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::sync::mpsc::channel;
use std::time::Instant;

use load_engine::{Event, Job, Rate, Workload, prepare};
use support::{TestDisk, load_job, resident_bytes};

const MIB: u64 = 1 << 20;

/// Runs a job and gives the resident bytes at each of its seconds, and its I/Os.
fn watch(job: Job, end_after: u64) -> (Vec<u64>, u64, u64) {
    let prepared = prepare(job).unwrap();
    let buffers = prepared.report().buffer_bytes;
    let (sender, receiver) = channel();
    let running = prepared.start(Instant::now(), sender);
    let (mut resident, mut ios) = (Vec::new(), 0);
    for event in receiver {
        let Event::Second(second) = event else { panic!("{event:?}") };
        ios += second.ops.read.count + second.ops.write.count;
        resident.push(resident_bytes());
        if ios >= end_after {
            running.stop();
        }
    }
    drop(running);
    (resident, ios, buffers)
}

#[test]
fn memory_is_bounded_and_steady() {
    let disks: Vec<TestDisk> = (0..10).map(|_| TestDisk::new(4 * MIB)).collect();
    let specs = || (0_u64..).zip(&disks).map(|(number, disk)| disk.spec(&number.to_string())).collect::<Vec<_>>();
    let workload = Workload { block_bytes: 32_768, outstanding: 32, read_percent: 50, ..Workload::default() };
    let rate = Some(Rate { iops: 2000.0, per_disk: true, poisson: true });
    for workload in [Workload { rate, ..workload.clone() }, workload] {
        let before = resident_bytes();
        let mut job = load_job(specs(), workload, 0, 3);
        job.threads = 2;
        let (resident, _, buffers) = watch(job, u64::MAX);
        let most = resident.iter().max().unwrap().saturating_sub(before).saturating_sub(buffers);
        println!("{} KiB beside {} KiB of buffers", most / 1024, buffers / 1024);
        assert!(most < 32 * MIB, "{most} bytes beside the buffers");
    }
    let ios = std::env::var("LOAD_ENGINE_MEMORY_IOS").ok().and_then(|value| value.parse().ok()).unwrap_or(5_000_000);
    let mut job = load_job(specs(), Workload { outstanding: 32, read_percent: 50, ..Workload::default() }, 0, 3600);
    job.tuning.nop = true;
    job.tuning.reissue_batch = 32;
    let (resident, done, _) = watch(job, ios);
    assert!(done >= ios && resident.len() >= 2, "{done} I/Os in {} s", resident.len());
    let (first, last) = (resident[resident.len() / 2], resident[resident.len() - 1]);
    println!(
        "{done} I/Os, {} s; resident {} KiB halfway, {} KiB at the end",
        resident.len(),
        first / 1024,
        last / 1024
    );
    assert!(last < first + MIB, "{first} bytes resident halfway, {last} at the end");
}
