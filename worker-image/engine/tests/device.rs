//! What reaches the device and what comes back from it, with a FUSE file as a disk that the test serves itself.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may fail")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use load_engine::{Event, FillSpec, OnError, Pattern, Phase, Rate, Work, Workload, prepare};
use support::fuse::{Answer, Call, FuseDisk};
use support::{fill_job, job, load_job, run, run_whole, run_with};

const MIB: u64 = 1 << 20;

fn calm(_: usize, _: Call) -> Answer {
    Answer::Serve
}

#[test]
fn a_fill_reaches_every_byte_once_in_order_and_then_flushes() {
    let Some(disk) = FuseDisk::mount(3 * MIB + 4096 * 3, calm) else { return };
    let fill = FillSpec { block_bytes: 65_536, outstanding: 1, zero: false };
    run_whole(job(vec![disk.spec("disk")], Work::Fill(fill)));
    let calls = disk.take_calls();
    let mut next = 0;
    for call in &calls[..calls.len() - 1] {
        let Call::Write { offset, length } = *call else { panic!("{call:?} in a fill") };
        assert_eq!(offset, next);
        next += u64::from(length);
    }
    assert_eq!(next, disk.size_bytes);
    assert_eq!(calls.last(), Some(&Call::Flush));
}

#[test]
fn a_fill_with_several_in_flight_reaches_every_byte_once() {
    let Some(disk) = FuseDisk::mount(3 * MIB + 4096 * 3, calm) else { return };
    let fill = FillSpec { block_bytes: 65_536, outstanding: 8, zero: false };
    run_whole(job(vec![disk.spec("disk")], Work::Fill(fill)));
    let calls = disk.take_calls();
    let writes = calls.iter().map(|call| match *call {
        Call::Write { offset, length } => (offset, u64::from(length)),
        Call::Flush | Call::Read { .. } => (disk.size_bytes, 0),
    });
    let mut writes: Vec<(u64, u64)> = writes.collect();
    writes.sort_unstable();
    let end = writes.iter().fold(0, |next, &(offset, length)| {
        assert_eq!(offset, next);
        offset + length
    });
    assert_eq!(end, disk.size_bytes);
    assert_eq!(calls.iter().filter(|call| **call == Call::Flush).count(), 1);
    assert_eq!(calls.last(), Some(&Call::Flush), "the flush comes after all writes");
}

#[test]
fn a_job_stopped_before_its_start_does_no_io() {
    let Some(disk) = FuseDisk::mount(MIB, calm) else { return };
    let workload = Workload { outstanding: 4, read_percent: 0, ..Workload::default() };
    let prepared = prepare(load_job(vec![disk.spec("disk")], workload, 0, 1)).unwrap();
    let running = prepared.start(Instant::now() + Duration::from_secs(5), std::sync::mpsc::channel().0);
    running.stop();
    let outcome = running.join();
    assert_eq!(outcome.reason.as_deref(), Some("stopped before its end"));
    assert_eq!((disk.take_calls(), outcome.first_io), (vec![], None));
}

#[test]
fn a_job_that_starts_after_its_end_does_no_io_and_is_not_complete() {
    let Some(disk) = FuseDisk::mount(MIB, calm) else { return };
    for rate in [None, Some(Rate { iops: 50.0, per_disk: true, poisson: false })] {
        let workload = Workload { outstanding: 4, read_percent: 0, rate: rate.clone(), ..Workload::default() };
        let mut job = load_job(vec![disk.spec("disk")], workload, 1, 1);
        job.threads = 2;
        let (sender, seconds) = std::sync::mpsc::channel();
        let at = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let outcome = prepare(job).unwrap().start(at, sender).join();
        assert!(!outcome.complete);
        assert!(outcome.reason.is_some_and(|reason| reason.contains("started late")));
        assert_eq!((disk.take_calls(), outcome.first_io), (vec![], None), "rate {rate:?}");
        let whole = |event| matches!(event, Event::Second(second) if second.whole);
        assert!(!seconds.iter().any(whole), "no second was loaded");
        let pacing = outcome.disks[0].pacing.map(|pacing| (pacing.intended, pacing.missed));
        assert_eq!(pacing, rate.map(|_| (50, 50)));
    }
}

#[test]
fn an_open_loop_that_is_late_with_room_in_flight_is_the_generators_fault() {
    // This disk keeps the submitting call, so that the thread comes too late to its next starts.
    let slow = |_: usize, _: Call| Answer::NotBefore(Instant::now() + Duration::from_millis(15));
    let Some(disk) = FuseDisk::mount(MIB, slow) else { return };
    let judged = |outstanding| {
        let rate = Some(Rate { iops: 100.0, per_disk: true, poisson: false });
        let workload = Workload { rate, outstanding, ..Workload::default() };
        let outcome = run_whole(load_job(vec![disk.spec("disk")], workload, 0, 1)).outcome;
        outcome.warnings.iter().any(|warning| warning.contains("the generator limits the result"))
    };
    assert!(judged(256));
    // Another process may take the CPU for a moment; a few windows are enough to find one without.
    assert!((0..5).any(|_| !judged(1)), "the disk had as many in flight as it may");
}

#[test]
fn streams_are_strictly_sequential_at_the_device() {
    let Some(disk) = FuseDisk::mount(MIB, calm) else { return };
    let workload = Workload { pattern: Pattern::Sequential { streams: 2 }, read_percent: 0, ..Workload::default() };
    run_whole(load_job(vec![disk.spec("disk")], workload, 0, 1));
    let calls = disk.take_calls();
    assert!(calls.len() > 300, "only {} writes", calls.len());
    for (number, call) in (0_u64..).zip(&calls) {
        let offset = (number / 2 * 4096) % (MIB / 2) + (number % 2) * (MIB / 2);
        assert_eq!(*call, Call::Write { offset, length: 4096 }, "call {number}");
    }
}

#[test]
fn the_same_seed_gives_the_same_calls_and_another_seed_others() {
    let Some(disk) = FuseDisk::mount(8 * MIB, calm) else { return };
    let calls = |seed| {
        let workload = Workload { read_percent: 50, block_bytes: 8192, ..Workload::default() };
        let mut job = load_job(vec![disk.spec("disk")], workload, 0, 1);
        job.seed = seed;
        run_whole(job);
        disk.take_calls()
    };
    let (one, again, other) = (calls(1), calls(1), calls(2));
    let common = one.len().min(again.len()).min(other.len());
    assert!(common > 300, "only {common} calls");
    assert_eq!(one[..common], again[..common]);
    assert_ne!(one[..common], other[..common]);
}

#[test]
fn mix_sizes_and_hot_spots_at_the_device_are_what_was_asked() {
    let Some(disk) = FuseDisk::mount(16 * MIB, calm) else { return };
    let pattern = Pattern::HotSpot { io_percent: 90.0, space_percent: 10.0 };
    let workload = Workload { pattern, read_percent: 70, block_bytes: 8192, outstanding: 2, ..Workload::default() };
    run_whole(load_job(vec![disk.spec("disk")], workload, 0, 2));
    let calls = disk.take_calls();
    let whole_decks = calls.len() / 1000 * 1000;
    assert!(whole_decks >= 2000, "only {} calls", calls.len());
    let reads = calls.iter().filter(|call| matches!(call, Call::Read { .. })).count();
    // The deck under way may have up to 700 reads more or 300 fewer than its share.
    assert!((reads * 10).abs_diff(calls.len() * 7) <= 3000, "{reads} reads of {}", calls.len());
    let hot = calls.iter().filter(|call| {
        let (Call::Read { offset, length } | Call::Write { offset, length }) = **call else { panic!("{call:?}") };
        assert_eq!(length, 8192);
        assert!(offset.is_multiple_of(8192) && offset + 8192 <= 16 * MIB);
        offset < 205 * 8192
    });
    #[expect(clippy::cast_precision_loss, reason = "small counts")]
    let share = hot.count() as f64 / calls.len() as f64;
    assert!((share - 0.9).abs() < 0.03, "{share} of the I/Os are hot");
}

#[test]
fn flushes_come_after_the_writes_asked_for() {
    let Some(disk) = FuseDisk::mount(MIB, calm) else { return };
    let workload = Workload { read_percent: 0, flush_every_writes: Some(5), ..Workload::default() };
    let outcome = run_whole(load_job(vec![disk.spec("disk")], workload, 0, 1)).outcome;
    let calls = disk.take_calls();
    for (number, call) in calls.iter().enumerate() {
        assert_eq!(matches!(call, Call::Flush), number % 6 == 5, "call {number} is {call:?}");
    }
    let flushes = calls.iter().filter(|call| matches!(call, Call::Flush)).count() as u64;
    assert!(outcome.disks[0].flushes.abs_diff(flushes) <= 1);
}

#[test]
fn an_error_stops_the_job_and_names_disk_offset_and_kernel() {
    let Some(disk) =
        FuseDisk::mount(MIB, |number, _| if number == 50 { Answer::Fail(libc::EIO) } else { Answer::Serve })
    else {
        return;
    };
    let ran = run(load_job(vec![disk.spec("disk-7")], Workload::default(), 0, 5));
    let calls = disk.take_calls();
    let Call::Read { offset, .. } = calls[50] else { panic!("not a read") };
    assert_eq!(calls.len(), 51, "nothing is issued after the error");
    let reason = ran.outcome.reason.unwrap();
    assert!(reason.starts_with("disk disk-7: read of 4096 bytes at offset"), "{reason}");
    assert!(reason.contains(&offset.to_string()) && reason.contains("Input/output error"), "{reason}");
    assert!(!ran.outcome.complete);
    assert_eq!(ran.outcome.failed_disk.as_deref(), Some("disk-7"));
    let disk = &ran.outcome.disks[0];
    assert_eq!((disk.ops.read.count, disk.ops.read.errors), (50, 1));
    assert_eq!((disk.errors[0].kind.as_str(), disk.errors[0].count), ("EIO", 1));
    assert_eq!(disk.errors[0].first_offsets, [offset]);
    assert!(ran.seconds.last().is_some_and(|second| !second.whole));
}

#[test]
fn a_short_transfer_is_an_error_and_never_an_io() {
    // The kernel asks for the rest by itself, and gets nothing more.
    let every_tenth = |_: usize, call: Call| match call {
        Call::Read { length, .. } | Call::Write { length, .. } if length < 4096 => Answer::Fail(libc::EIO),
        Call::Read { offset, .. } | Call::Write { offset, .. } if offset / 4096 % 10 == 9 => Answer::Short(512),
        _ => Answer::Serve,
    };
    let Some(disk) = FuseDisk::mount(MIB, every_tenth) else { return };
    for read_percent in [0, 100] {
        let workload = Workload { read_percent, on_error: OnError::Continue, ..Workload::default() };
        let ran = run(load_job(vec![disk.spec("disk")], workload, 0, 1));
        assert!(ran.outcome.complete, "{:?}", ran.outcome.reason);
        let asked = |length: u32| move |call: &&Call| matches!(**call, Call::Read { length: l, .. } | Call::Write { length: l, .. } if l == length);
        let made = disk.take_calls();
        let calls = made.iter().filter(asked(4096)).count() as u64;
        let short = made.iter().filter(asked(3584)).count() as u64;
        assert!(short > 10, "{short} of {calls} calls were short");
        let ops = &ran.outcome.disks[0].ops;
        let op = if read_percent == 0 { &ops.write } else { &ops.read };
        assert!(op.errors.abs_diff(short) <= 1, "{} errors of {calls} calls", op.errors);
        assert!(op.count.abs_diff(calls - short) <= 2, "{} of {calls} calls are I/Os", op.count);
        assert_eq!(op.bytes, op.count * 4096);
        assert_eq!(ran.outcome.disks[0].errors[0].kind, "short");
        let told: u64 = ran.seconds.iter().map(|second| second.ops.read.errors + second.ops.write.errors).sum();
        assert_eq!(told, op.errors);
    }
}

#[test]
fn a_job_goes_on_until_its_number_of_errors() {
    let Some(disk) =
        FuseDisk::mount(MIB, |number, _| if number % 5 == 4 { Answer::Fail(libc::ENOSPC) } else { Answer::Serve })
    else {
        return;
    };
    let workload = Workload { read_percent: 0, on_error: OnError::StopAfter { errors: 3 }, ..Workload::default() };
    let outcome = run(load_job(vec![disk.spec("disk")], workload, 0, 10)).outcome;
    assert!(!outcome.complete);
    assert!(
        outcome.reason.as_ref().is_some_and(|reason| reason.contains("No space left on device")),
        "{:?}",
        outcome.reason
    );
    assert_eq!((outcome.disks[0].ops.write.count, outcome.disks[0].ops.write.errors), (12, 3));
    assert_eq!((outcome.disks[0].errors[0].kind.as_str(), outcome.disks[0].errors[0].count), ("ENOSPC", 3));
}

#[test]
fn a_fill_on_a_full_disk_ends_with_the_kernels_words() {
    // As file systems do it: the last write that fits in part is short, all later ones fail.
    let is_full = AtomicBool::new(false);
    let full = move |_: usize, call: Call| match call {
        _ if is_full.load(Ordering::Relaxed) => Answer::Fail(libc::ENOSPC),
        Call::Write { offset, .. } if offset == MIB => {
            is_full.store(true, Ordering::Relaxed);
            Answer::Short(4096)
        }
        _ => Answer::Serve,
    };
    let Some(disk) = FuseDisk::mount(4 * MIB, full) else { return };
    let fill = FillSpec { block_bytes: 65_536, outstanding: 1, zero: false };
    let outcome = run(job(vec![disk.spec("disk-3")], Work::Fill(fill))).outcome;
    let reason = outcome.reason.unwrap();
    assert_eq!(
        reason,
        format!("disk disk-3: write of 61440 bytes at offset {}: No space left on device (os error 28)", MIB + 4096)
    );
    assert_eq!(outcome.disks[0].bytes, MIB, "only whole blocks count");
}

#[test]
fn a_stall_is_recorded_with_start_and_length_and_noticed_in_a_closed_loop() {
    let stalled = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&stalled);
    let base = Instant::now();
    let behaviour = move |_: usize, _: Call| {
        // Some time into the job, once.
        if base.elapsed() > Duration::from_millis(1500) && !once.swap(true, Ordering::Relaxed) {
            return Answer::NotBefore(Instant::now() + Duration::from_secs(2));
        }
        Answer::Serve
    };
    let Some(disk) = FuseDisk::mount(MIB, behaviour) else { return };
    let ran = run_whole(load_job(vec![disk.spec("disk")], Workload { outstanding: 4, ..Workload::default() }, 0, 5));
    assert!(stalled.load(Ordering::Relaxed));
    let stalls = &ran.outcome.disks[0].stalls;
    assert_eq!(stalls.len(), 1, "{stalls:?}");
    assert!((1_950_000_000..2_500_000_000).contains(&stalls[0].length_ns), "{stalls:?}");
    assert!((500_000_000..3_000_000_000).contains(&stalls[0].start_ns), "{stalls:?}");
    assert_eq!(ran.seconds.len(), 5, "every second is told, with or without I/O");
    assert!(ran.seconds.iter().all(|second| second.whole));
}

#[test]
fn an_open_loop_shows_a_stall_in_response_times_and_not_in_service_times() {
    let start = Arc::new(std::sync::OnceLock::<Instant>::new());
    let stall = (Duration::from_millis(1000), Duration::from_millis(3000));
    let behaviour = {
        let start = Arc::clone(&start);
        move |_: usize, _: Call| {
            let Some(&start) = start.get() else { return Answer::Serve };
            let since = start.elapsed();
            if since > stall.0 && since < stall.1 { Answer::NotBefore(start + stall.1) } else { Answer::Serve }
        }
    };
    let Some(disk) = FuseDisk::mount(MIB, behaviour) else { return };
    let rate = Some(Rate { iops: 500.0, per_disk: true, poisson: false });
    let workload = Workload { rate, outstanding: 8, ..Workload::default() };
    let mut job = load_job(vec![disk.spec("disk")], workload, 0, 6);
    job.tuning.trace_ios = 10_000;
    let ran = run_with(job, |at| start.set(at).unwrap());
    assert!(ran.outcome.complete, "{:?}", ran.outcome.reason);
    let trace = &ran.outcome.trace;
    let stall_ns = (1_000_000_000_u64, 3_000_000_000_u64);
    // All that should have started in the stall: the response time reaches to its end.
    let in_stall: Vec<_> =
        trace.iter().filter(|io| io.intended_ns > stall_ns.0 + 5_000_000 && io.intended_ns < stall_ns.1).collect();
    assert!((980..=1000).contains(&in_stall.len()), "{} I/Os should have started in the stall", in_stall.len());
    let mut long_service = 0;
    for io in in_stall {
        let (response, service) = (io.completed_ns - io.intended_ns, io.completed_ns - io.issued_ns);
        assert!(response >= stall_ns.1 - io.intended_ns, "{io:?} answered before the stall was over");
        long_service += u32::from(service > 200_000_000);
    }
    assert!(long_service <= 8, "{long_service} service times show the stall: more than were in flight");
    let disk = &ran.outcome.disks[0];
    let (response, service) = (&disk.ops.read.latencies, &disk.service.as_ref().unwrap().read.latencies);
    assert_eq!(response.count(), service.count());
    assert!(response.percentile_ns(75.0).unwrap() > 500_000_000, "a third of the I/Os waited up to 2 s");
    assert!(service.percentile_ns(99.0).unwrap() < 200_000_000);
    let pacing = disk.pacing.unwrap();
    assert_eq!(pacing.intended, 3000);
    assert_eq!(pacing.missed, 0);
    assert!((990..1500).contains(&pacing.late), "{pacing:?}");
    assert!(pacing.largest_lag_ns > 1_900_000_000);
}

#[test]
fn what_an_open_loop_cannot_start_is_missed() {
    let slow = |_: usize, _: Call| Answer::NotBefore(Instant::now() + Duration::from_millis(20));
    let Some(disk) = FuseDisk::mount(MIB, slow) else { return };
    let rate = Some(Rate { iops: 1000.0, per_disk: true, poisson: false });
    let workload = Workload { rate, outstanding: 2, ..Workload::default() };
    let ran = run_whole(load_job(vec![disk.spec("disk")], workload, 1, 2));
    let disk = &ran.outcome.disks[0];
    let pacing = disk.pacing.unwrap();
    assert_eq!(pacing.intended, 2000, "{pacing:?}");
    // About 150 of 3,000 can be started, all of them intended in the precondition.
    assert_eq!(pacing.missed, 2000, "{pacing:?}");
    assert!((1..200).contains(&disk.ops.read.count), "{}", disk.ops.read.count);
    assert!(pacing.largest_lag_ns > 1_900_000_000, "{pacing:?}");
}

#[test]
fn a_window_has_the_same_ios_in_seconds_totals_and_trace() {
    let Some(disk) = FuseDisk::mount(MIB, calm) else { return };
    let workload = Workload { outstanding: 3, read_percent: 40, ..Workload::default() };
    let mut job = load_job(vec![disk.spec("disk")], workload, 1, 2);
    job.tuning.trace_ios = 1_000_000;
    let ran = run_whole(job);
    for (number, second) in (0_u64..).zip(&ran.seconds) {
        let traced = |read| {
            let mine =
                ran.outcome.trace.iter().filter(|io| io.read == read && io.completed_ns / 1_000_000_000 == number);
            mine.map(|io| io.completed_ns - io.issued_ns).collect::<Vec<u64>>()
        };
        for (op, traced) in [(&second.ops.read, traced(true)), (&second.ops.write, traced(false))] {
            assert_eq!(op.count, traced.len() as u64, "second {number}");
            assert_eq!(op.latencies.exact().sum_ns, traced.iter().sum::<u64>());
        }
        assert_eq!(second.phase, if number == 0 { Phase::Precondition } else { Phase::Sample });
    }
    let window = ran.outcome.trace.iter().filter(|io| (1_000_000_000..3_000_000_000).contains(&io.completed_ns));
    let ops = &ran.outcome.disks[0].ops;
    assert_eq!(window.count() as u64, ops.read.count + ops.write.count);
}

#[test]
fn a_fill_is_read_back_through_the_device() {
    let Some(disk) = FuseDisk::mount(2 * MIB, calm) else { return };
    run_whole(fill_job(vec![disk.spec("disk")]));
    let outcome = run_whole(support::verify_job(vec![disk.spec("disk")], 100)).outcome;
    assert_eq!(outcome.disks[0].verified_blocks, 100);
    let calls = disk.take_calls();
    let mut offsets: Vec<u64> = calls
        .iter()
        .filter_map(|call| if let Call::Read { offset, .. } = call { Some(*offset) } else { None })
        .collect();
    offsets.sort_unstable();
    offsets.dedup();
    assert_eq!(offsets.len(), 100, "distinct blocks are read");
    assert!(disk.bytes().chunks(4096).all(|block| block != [1; 4096]), "no block kept its old bytes");
}

#[test]
fn a_device_that_blocks_the_submitting_call_does_not_hang_the_job() {
    let start = Instant::now();
    let until = start + Duration::from_secs(13);
    let dead = move |number: usize, _: Call| if number >= 20 { Answer::NotBefore(until) } else { Answer::Serve };
    let Some(disk) = FuseDisk::mount(MIB, dead) else { return };
    let mut job = load_job(vec![disk.spec("disk")], Workload::default(), 0, 1);
    job.tuning.drain_limit = Duration::from_secs(1);
    let ran = run(job);
    assert!(Instant::now() < until, "the job took {:?}", start.elapsed());
    assert!(!ran.outcome.complete);
    assert_eq!(ran.outcome.reason.as_deref(), Some("engine thread 0 did not report: it hangs in the kernel"));
}
