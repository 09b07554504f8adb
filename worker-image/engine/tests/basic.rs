//! Fill, read-back and closed loop on files of the real file system.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::io::{Read, Seek, SeekFrom, Write};

use load_engine::{FillSpec, Pattern, Phase, VerifySpec, Work, Workload, prepare};
use support::{TestDisk, fill_job, job, load_job, run, run_whole, verify_job};

const MIB: u64 = 1 << 20;

#[test]
fn a_fill_writes_every_byte_and_a_read_back_finds_it() {
    // Not a whole number of blocks.
    let (one, other) = (TestDisk::new(17 * MIB + 12_288), TestDisk::new(9 * MIB));
    let disks = vec![one.spec("one"), other.spec("other")];
    let filled = run_whole(fill_job(disks.clone())).outcome;
    assert_eq!(filled.disks[0].bytes, 17 * MIB + 12_288);
    assert_eq!(filled.disks[1].bytes, 9 * MIB);
    assert!(filled.disks.iter().all(|disk| !disk.elapsed.is_zero()));
    let zero_free = std::fs::read(&one.path).unwrap();
    assert!(zero_free.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "a block was not written");
    let verified = run_whole(verify_job(disks, 1000)).outcome;
    assert_eq!(verified.disks[0].verified_blocks, 1000);
    assert_eq!(verified.disks[1].verified_blocks, 1000);
}

#[test]
fn a_fill_leaves_the_bytes_around_its_region_alone() {
    let disk = TestDisk::new(4 * MIB);
    std::fs::write(&disk.path, vec![0xaa; usize::try_from(4 * MIB).unwrap()]).unwrap();
    let mut spec = disk.spec("disk");
    spec.region = MIB + 4096..3 * MIB - 8192;
    run_whole(fill_job(vec![spec.clone()]));
    let bytes = std::fs::read(&disk.path).unwrap();
    let region = usize::try_from(spec.region.start).unwrap()..usize::try_from(spec.region.end).unwrap();
    assert!(bytes[..region.start].iter().chain(&bytes[region.end..]).all(|&byte| byte == 0xaa));
    assert!(!bytes[region].chunks(4096).any(|block| block.iter().all(|&byte| byte == 0xaa)));
}

#[test]
fn one_changed_byte_is_found_with_its_offset() {
    let disk = TestDisk::new(4 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(&disk.path).unwrap();
    file.seek(SeekFrom::Start(5 * 4096 + 77)).unwrap();
    let mut byte = [0];
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(5 * 4096 + 77)).unwrap();
    file.write_all(&[byte[0] ^ 1]).unwrap();
    file.sync_all().unwrap();
    let outcome = run(verify_job(vec![disk.spec("disk")], 4096)).outcome;
    assert!(!outcome.complete);
    assert_eq!(outcome.failed_disk.as_deref(), Some("disk"));
    assert_eq!(outcome.disks[0].verified_blocks, 1023, "all other blocks are as written");
    assert_eq!(outcome.disks[0].errors[0].kind, "mismatch");
    assert_eq!(outcome.disks[0].errors[0].first_offsets, [5 * 4096]);
}

#[test]
fn zeros_are_filled_and_read_back() {
    let disk = TestDisk::new(2 * MIB);
    std::fs::write(&disk.path, vec![0xaa; usize::try_from(2 * MIB).unwrap()]).unwrap();
    let fill = FillSpec { zero: true, ..FillSpec::default() };
    run_whole(job(vec![disk.spec("disk")], Work::Fill(fill)));
    let verify = VerifySpec { blocks: 512, block_bytes: 4096, zero: true };
    let outcome = run_whole(job(vec![disk.spec("disk")], Work::Verify(verify))).outcome;
    assert_eq!(outcome.disks[0].verified_blocks, 512);
    assert!(std::fs::read(&disk.path).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn seconds_add_up_to_the_disks_totals_and_the_window_is_whole() {
    let (one, other) = (TestDisk::new(8 * MIB), TestDisk::new(8 * MIB));
    let disks = vec![one.spec("one"), other.spec("other")];
    run_whole(fill_job(disks.clone()));
    let workload = Workload { read_percent: 70, block_bytes: 8192, outstanding: 4, ..Workload::default() };
    for threads in [1, 2, 4] {
        let mut job = load_job(disks.clone(), workload.clone(), 1, 2);
        job.threads = threads;
        let ran = run_whole(job);
        let phases: Vec<(Phase, u32, bool)> =
            ran.seconds.iter().map(|second| (second.phase, second.index, second.whole)).collect();
        let expected = [(Phase::Precondition, 0, true), (Phase::Sample, 0, true), (Phase::Sample, 1, true)];
        assert_eq!(phases, expected, "{threads} threads");
        let sample = || ran.seconds.iter().filter(|second| second.phase == Phase::Sample);
        let mut merged = load_engine::Ops::default();
        for second in sample() {
            for (total, part) in [(&mut merged.read, &second.ops.read), (&mut merged.write, &second.ops.write)] {
                total.count += part.count;
                total.bytes += part.bytes;
                total.latencies.merge(&part.latencies);
            }
        }
        let mut totals = load_engine::Ops::default();
        for disk in &ran.outcome.disks {
            for (total, part) in [(&mut totals.read, &disk.ops.read), (&mut totals.write, &disk.ops.write)] {
                assert_eq!(part.count, part.latencies.count());
                assert!(part.count > 0, "{threads} threads: {disk:?}");
                total.count += part.count;
                total.bytes += part.bytes;
                total.latencies.merge(&part.latencies);
            }
        }
        assert_eq!(merged, totals, "{threads} threads");
        assert_eq!(totals.read.bytes, totals.read.count * 8192);
        for (index, disk) in ran.outcome.disks.iter().enumerate() {
            let counted: u64 =
                sample().map(|second| second.disks[index].read_count + second.disks[index].write_count).sum();
            assert_eq!(counted, disk.ops.read.count + disk.ops.write.count);
            let sum: u64 = sample().map(|second| second.disks[index].sum_ns).sum();
            assert_eq!(sum, disk.ops.read.latencies.exact().sum_ns + disk.ops.write.latencies.exact().sum_ns);
            assert!(disk.unfinished > 0 && disk.unfinished <= 4, "{} unfinished of 4 outstanding", disk.unfinished);
        }
    }
}

#[test]
fn every_pattern_runs_on_one_and_on_several_threads() {
    let disk = TestDisk::new(16 * MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    let patterns = [
        Pattern::Random,
        Pattern::Sequential { streams: 3 },
        Pattern::Permutation,
        Pattern::HotSpot { io_percent: 80.0, space_percent: 20.0 },
    ];
    for (threads, pattern) in [1, 2].into_iter().flat_map(|threads| patterns.clone().map(|pattern| (threads, pattern)))
    {
        let workload = Workload { pattern, outstanding: 4, ..Workload::default() };
        let mut job = load_job(vec![disk.spec("disk")], workload, 0, 1);
        job.threads = threads;
        let outcome = run_whole(job).outcome;
        assert!(outcome.disks[0].ops.read.count > 0);
        assert_eq!(outcome.disks[0].ops.write.count, 0);
        assert_eq!(outcome.thread_cpu.len(), threads as usize);
    }
}

#[test]
fn every_rung_of_the_ladder_works_with_and_without_registered_buffers() {
    let disk = TestDisk::new(MIB);
    run_whole(fill_job(vec![disk.spec("disk")]));
    for (first_rung, register_buffers) in (0..5).zip([true, false].into_iter().cycle()) {
        let mut job = load_job(vec![disk.spec("disk")], Workload { outstanding: 4, ..Workload::default() }, 0, 1);
        job.tuning.first_rung = first_rung;
        job.tuning.register_buffers = register_buffers;
        let prepared = prepare(job.clone()).unwrap();
        let granted = &prepared.report().granted;
        assert_eq!(granted.iter().any(|flag| flag == "registered buffers"), register_buffers);
        assert_eq!(
            granted.iter().any(|flag| flag == "DEFER_TASKRUN"),
            first_rung < 2,
            "rung {first_rung}: {granted:?}"
        );
        drop(prepared);
        assert!(run_whole(job).outcome.disks[0].ops.read.count > 0);
    }
}
