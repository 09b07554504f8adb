//! What makes a case complete, incomplete, failed or cancelled, and what its figures then cover.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use analysis::case::{CaseInput, CaseResult, CaseState, Ending};
use analysis::export::WorkerCount;
use support::{FakeWorker, SAMPLE_SECONDS, SECOND_NS, START_AT_NS, case, evaluate};
use worker_protocol::{DeviceCounters, DiskSettings, EngineReport, IoErrors, Pacing, Phase, Rate, Stall};

fn fleet() -> Vec<FakeWorker> {
    vec![FakeWorker::new("w1", 11, 150_000, 500), FakeWorker::new("w2", 12, 300_000, 250)]
}

/// Evaluates the fleet's case after a change.
fn after(change: impl FnOnce(&mut CaseInput)) -> CaseResult {
    let fleet = fleet();
    let mut input = case(&fleet);
    change(&mut input);
    evaluate(&fleet, input)
}

fn drop_seconds(input: &mut CaseInput, worker: usize, dropped: std::ops::Range<u32>) {
    input.workers[worker].seconds.retain(|mark| mark.phase != Phase::Sample || !dropped.contains(&mark.second));
}

fn count_in(seconds: impl Fn(u32) -> bool + Copy) -> u64 {
    fleet().iter().map(|worker| worker.latencies(seconds).len() as u64).sum()
}

fn all_count(result: &CaseResult) -> Option<u64> {
    result.figures.ops.all.as_ref().map(|op| op.count)
}

#[track_caller]
fn assert_reason(result: &CaseResult, parts: &[&str]) {
    let reason = result.reason.as_deref().unwrap_or_default();
    for part in parts {
        assert!(reason.contains(part), "{reason:?} should say {part:?}");
    }
}

#[test]
fn a_case_in_which_all_went_well_covers_the_window() {
    let result = after(|_| {});
    assert_eq!((result.state, &result.reason), (CaseState::Complete, &None));
    assert_eq!(result.warnings, Vec::<String>::new());
    assert_eq!(result.figures.window_seconds, 6.0);
    assert_eq!(result.figures.workers, WorkerCount { expected: 2, measured: 2 });
    assert_eq!(all_count(&result), Some(count_in(|_| true)));
    assert_eq!(result.cluster.read.count + result.cluster.write.count, count_in(|_| true));
    assert_eq!(result.figures.per_disk.len(), 4);
    assert_eq!(result.seconds.iter().map(|second| second.t).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(result.precondition_seconds.len(), 2);
    assert_eq!((result.figures.start_skew_us, result.figures.clock_drift_us), (Some(0.0), Some(0.7)));
    assert_eq!(result.figures.steady_state.unwrap().verdict, "not-evaluated");
}

#[test]
fn a_late_worker_leaves_the_seconds_after_its_start() {
    let result = after(|input| {
        let started = START_AT_NS + 4 * SECOND_NS + SECOND_NS / 4;
        input.workers[1].finished.as_mut().unwrap().started_worker_ns = started;
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w2 started 2.250 s after the window", "cover the 3 whole s"]);
    assert_eq!(result.figures.window_seconds, 3.0);
    assert_eq!(all_count(&result), Some(count_in(|second| second >= 3)));
    assert_eq!(result.figures.start_skew_us, Some(4.25e6 - 3.0));
    let own: Vec<f64> = result.figures.per_worker.iter().map(|part| part.window_seconds).collect();
    assert_eq!(own, [6.0, 3.75], "each worker's figures have a window of their own");
    assert!(result.figures.per_disk[3].ops.all.is_some());
    assert_eq!(result.figures.per_disk[3].window_seconds, 3.75);
}

#[test]
fn a_worker_that_left_early_leaves_the_seconds_before() {
    let result = after(|input| {
        drop_seconds(input, 0, 4..SAMPLE_SECONDS);
        let finished = input.workers[0].finished.as_mut().unwrap();
        finished.complete = false;
        finished.reason = Some("EIO on w1-d0".into());
        finished.ended_worker_ns = START_AT_NS + 6 * SECOND_NS + SECOND_NS / 2;
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w1 left early: EIO on w1-d0", "cover the 4 whole s"]);
    assert_eq!(all_count(&result), Some(count_in(|second| second < 4)));
    assert_eq!(result.figures.per_worker[0].window_seconds, 4.5);
    assert_eq!(result.figures.workers.measured, 2);
}

#[test]
fn a_gap_stays_a_gap() {
    let result = after(|input| drop_seconds(input, 1, 2..4));
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w2 lacks 2 of 6 s of the window (seconds 2 to 3)", "cover the 4 whole s"]);
    assert_eq!(result.seconds.iter().map(|second| second.t).collect::<Vec<_>>(), [0, 1, 4, 5]);
    assert_eq!(all_count(&result), Some(count_in(|second| !(2..4).contains(&second))));
    assert_eq!(result.figures.per_worker[1].window_seconds, 6.0, "its disks' totals do cover the window");
}

#[test]
fn a_second_that_is_not_whole_is_no_cluster_second() {
    let result = after(|input| {
        input.workers[0]
            .seconds
            .iter_mut()
            .filter(|mark| mark.phase == Phase::Sample && mark.second == 5)
            .for_each(|mark| mark.whole = false);
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_eq!(result.figures.window_seconds, 5.0);
    assert_eq!(all_count(&result), Some(count_in(|second| second < 5)));
}

#[test]
fn a_worker_lost_midway_leaves_the_common_seconds() {
    let result = after(|input| {
        drop_seconds(input, 1, 3..SAMPLE_SECONDS);
        input.workers[1].finished = None;
        input.workers[1].failure = Some("its session was lost and did not come back within 60 s".into());
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w2: its session was lost", "cover the 3 whole s"]);
    assert_eq!(all_count(&result), Some(count_in(|second| second < 3)));
    let lost = &result.figures.per_worker[1];
    assert_eq!(lost.window_seconds, 3.0);
    assert_eq!(lost.ops.all.as_ref().unwrap().count, fleet()[1].latencies(|second| second < 3).len() as u64);
    assert_eq!(result.figures.per_disk.len(), 2, "the lost worker's disks have no totals");
}

#[test]
fn without_a_common_second_the_cluster_has_no_figures() {
    let result = after(|input| {
        drop_seconds(input, 1, 0..SAMPLE_SECONDS);
        input.workers[1].finished = None;
        input.workers[1].failure = Some("the process ended with signal 9".into());
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["signal 9", "no whole second of the window is common to all workers"]);
    assert_eq!(result.figures.ops, analysis::export::Ops::default());
    assert_eq!((result.figures.window_seconds, result.figures.workers.measured), (0.0, 0));
    assert_eq!(result.figures.per_worker.len(), 1, "what the other worker measured is kept");
    assert!(result.seconds.is_empty());
}

#[test]
fn a_case_without_a_worker_lost_before_is_measured_and_said_to_be_incomplete() {
    let result = after(|input| input.expected_workers = 3);
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["2 of 3 workers were there"]);
    assert_eq!(result.figures.workers, WorkerCount { expected: 3, measured: 2 });
    assert_eq!(result.figures.window_seconds, 6.0, "those left were measured over the window");
    assert_eq!(all_count(&result), Some(count_in(|_| true)));
}

#[test]
fn seconds_that_contradict_the_totals_are_said() {
    let result = after(|input| {
        input.workers[0].seconds.iter_mut().filter(|mark| mark.phase == Phase::Sample).take(1).for_each(|mark| {
            mark.read_count += 1;
        });
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w1 counted", "by second", "by disk", "cover the 6 whole s"]);
}

#[test]
fn totals_that_contradict_themselves_are_said() {
    let result = after(|input| {
        input.workers[1].finished.as_mut().unwrap().disks[0].ops.read.count += 1;
    });
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["worker w2, disk w2-d0, reads: "]);
    assert_eq!(all_count(&result), Some(count_in(|_| true)), "the seconds are sound");
    assert_eq!(result.figures.per_disk.len(), 2);
}

#[test]
fn disks_that_were_not_assigned_are_said() {
    let result = after(|input| input.workers[1].finished.as_mut().unwrap().disks[0].serial = "sda".into());
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w2 reported 2 disks that are not the 2 assigned"]);
}

#[test]
fn cancelled_failed_and_running_cases_keep_what_was_measured() {
    let early = |input: &mut CaseInput, ending| {
        input.ending = ending;
        for worker in 0..2 {
            drop_seconds(input, worker, 2..SAMPLE_SECONDS);
            input.workers[worker].finished = None;
        }
    };
    let cancelled = after(|input| early(input, Ending::Cancelled));
    assert_eq!(cancelled.state, CaseState::Cancelled);
    assert_reason(&cancelled, &["the run was cancelled", "cover the 2 whole s"]);
    assert_eq!(all_count(&cancelled), Some(count_in(|second| second < 2)));
    let stopped = after(|input| early(input, Ending::Stopped));
    assert_eq!(stopped.state, CaseState::Cancelled, "a stop cuts a case only before its window");
    assert_reason(&stopped, &["the run was stopped before the window of this case began"]);

    let running = after(|input| early(input, Ending::Running));
    assert_eq!((running.state, &running.reason), (CaseState::Running, &None));
    assert_eq!(all_count(&running), Some(count_in(|second| second < 2)));
    assert_eq!(running.figures.steady_state, None);

    let failed = after(|input| {
        early(input, Ending::Failed("w1 could not open w1-d0: ENOENT".into()));
        input.workers.iter_mut().for_each(|worker| worker.seconds.clear());
    });
    assert_eq!((failed.state, all_count(&failed)), (CaseState::Failed, None));
    assert_reason(&failed, &["could not open w1-d0: ENOENT"]);

    let nobody = evaluate(&[], CaseInput { expected_workers: 2, ..case(&[]) });
    assert_eq!(nobody.state, CaseState::Failed);
    assert_reason(&nobody, &["0 of 2 workers were there"]);
}

#[test]
fn a_worker_that_says_nothing_at_the_end_is_named() {
    let result = after(|input| input.workers[0].finished = None);
    assert_eq!(result.state, CaseState::Incomplete);
    assert_reason(&result, &["w1 did not report its end"]);
}

#[test]
fn warnings_name_who_and_what() {
    let result = after(|input| {
        input.reads_unwritten = true;
        for worker in &mut input.workers {
            let disks =
                vec![DiskSettings { serial: worker.disks[0].clone(), direct: false, ..DiskSettings::default() }];
            let warnings = vec!["memory is not locked".into()];
            worker.engine = Some(EngineReport { disks, warnings: warnings.clone(), ..EngineReport::default() });
            worker.finished.as_mut().unwrap().warnings = warnings;
        }
        let finished = input.workers[0].finished.as_mut().unwrap();
        finished.thread_cpu = vec![0.5, 0.97];
        finished.steal = Some(0.2);
        finished.io_wq_cpu = 0.3;
        let disk = &mut finished.disks[1];
        disk.ops.read.errors = 3;
        disk.errors = vec![IoErrors { kind: "EIO".into(), count: 3, first_offsets: vec![8192] }];
        let (reads, writes) = (disk.ops.read.count + 3, disk.ops.write.count / 2);
        disk.device = Some(DeviceCounters { reads, writes, differs: true, ..DeviceCounters::default() });
        disk.stalls = vec![
            Stall { start_ns: -2_500_000_000, length_ns: 1_500_000_000 },
            Stall { start_ns: 1_000_000_000, length_ns: 2_000_000_000 },
        ];
        disk.unfinished = 4;
        disk.oldest_unfinished_ns = 30 * SECOND_NS;
    });
    assert_eq!(result.state, CaseState::Complete);
    let expected = [
        "bytes that were never written are read",
        "w1/w1-d1: 3 I/Os failed or were short (3 EIO, the first at byte 8192)",
        "w1/w1-d1: the device completed ",
        "w1/w1-d1: 2 stalls, 3.5 s together; the longest: no I/O completed for 2.0 s from 1.0 s after the start of the window",
        "w1/w1-d1: an I/O in flight at the end of the window had waited 30000.0 ms",
        "w1/w1-d0, w2/w2-d0: no O_DIRECT",
        "w1, w2: memory is not locked",
        "w1: the load generator, not the storage, may limit this figure: engine thread 1 used 97 % of its CPU, the hypervisor took \
         20 % of the CPU time, kernel worker threads (io-wq) did I/O that was not done inline, and used 0.30 CPUs",
    ];
    for start in expected {
        assert!(result.warnings.iter().any(|warning| warning.starts_with(start)), "{start}: {:#?}", result.warnings);
    }
    assert_eq!(result.warnings.len(), expected.len(), "{:#?}", result.warnings);
    assert_eq!(result.figures.unfinished.count, 4);
    assert_eq!(result.figures.unfinished.oldest_us, Some(3e7));
    assert_eq!(result.figures.ops.read.unwrap().errors, 3);
    let generator = result.figures.generator.unwrap();
    let findings: Vec<(&str, &str, Option<u32>, f64)> =
        generator.findings.iter().map(|one| (one.worker.as_str(), one.kind.as_str(), one.thread, one.value)).collect();
    let expected = [("w1", "thread-cpu", Some(1), 0.97), ("w1", "steal", None, 0.2), ("w1", "io-wq", None, 0.3)];
    assert!(generator.may_limit);
    assert_eq!(findings, expected);
    let disk = &result.figures.per_disk[1];
    assert_eq!((disk.io_errors[0].kind.as_str(), &disk.io_errors[0].first_offsets), ("EIO", &vec![8192]));
    assert_eq!((disk.stalls[0].start_seconds, disk.stalls[1].length_seconds), (-2.5, 2.0));
    assert!(disk.device.unwrap().differs);
    assert_eq!((disk.unfinished.count, disk.unfinished.oldest_us), (4, Some(3e7)));
    assert!(!result.figures.per_disk[0].settings.as_ref().unwrap().direct);
    assert_eq!(disk.settings, None, "the engine did not report this disk");
    assert_eq!(result.figures.per_worker[0].generator.as_ref().unwrap().thread_cpu, [0.5, 0.97]);
}

#[test]
fn an_open_loop_in_time_may_poll_and_one_that_is_late_may_not() {
    let findings = |late, missed| {
        let result = after(|input| {
            let finished = input.workers[0].finished.as_mut().unwrap();
            finished.thread_cpu = vec![1.0];
            finished.disks[0].pacing = Some(Pacing { intended: 1000, late, missed, largest_lag_ns: 0 });
        });
        result.figures.generator.unwrap().findings.len()
    };
    assert_eq!(findings(5, 5), 0);
    assert_eq!(findings(5, 6), 1);
}

#[test]
fn a_generator_within_its_limits_and_a_device_that_agrees_are_no_warning() {
    let result = after(|input| {
        let finished = input.workers[0].finished.as_mut().unwrap();
        finished.thread_cpu = vec![0.9];
        finished.steal = Some(0.05);
        finished.io_wq_cpu = 0.005;
        let disk = &mut finished.disks[0];
        disk.device = Some(DeviceCounters { reads: disk.ops.read.count + 2, ..DeviceCounters::default() });
    });
    assert_eq!(result.warnings, Vec::<String>::new());
    assert_eq!(result.figures.generator, Some(analysis::export::Generator::default()));
    let lost = after(|input| input.workers.iter_mut().for_each(|worker| worker.finished = None));
    assert_eq!(lost.figures.generator, None, "nobody said how much it used");
}

#[test]
fn errors_and_stalls_outside_the_window_are_said_to_be_outside() {
    let result = after(|input| {
        let disk = &mut input.workers[1].finished.as_mut().unwrap().disks[0];
        disk.errors = vec![IoErrors { kind: "ENOSPC".into(), count: 2, first_offsets: vec![512] }];
        disk.stalls = vec![Stall { start_ns: -1_500_000_000, length_ns: 1_200_000_000 }];
    });
    assert_eq!(
        result.warnings,
        [
            "w2/w2-d0: 2 I/Os failed or were short outside the window (2 ENOSPC, the first at byte 512)",
            "w2/w2-d0: no I/O completed for 1.2 s from -1.5 s after the start of the window",
        ]
    );
}

/// An open loop of the fleet at `iops` a disk.
fn open_loop(iops: f64, change: impl FnOnce(&mut CaseInput)) -> CaseResult {
    let fleet = fleet();
    let mut input = case(&fleet);
    input.workers = fleet.iter().map(FakeWorker::open_loop_input).collect();
    input.rate = Some(Rate { iops, per_disk: true, poisson: false });
    change(&mut input);
    evaluate(&fleet, input)
}

#[test]
fn an_open_loop_has_service_time_and_pacing_at_every_level() {
    // 500 and 250 I/Os a second over two disks each.
    let result = open_loop(187.5, |_| {});
    assert_eq!(result.state, CaseState::Complete);
    assert_eq!(result.warnings, Vec::<String>::new(), "750 asked, 750 achieved");
    let (response, service) = (result.figures.ops.all.unwrap(), result.figures.service.unwrap().all.unwrap());
    assert_eq!((service.count, service.iops), (response.count, response.iops));
    let latency = service.latency_us.unwrap();
    assert!(latency.p99 < response.latency_us.unwrap().p99 / 3.0);
    let pacing = result.figures.pacing.unwrap();
    assert_eq!((pacing.asked_iops, pacing.late, pacing.missed, pacing.largest_lag_us), (750.0, 18, 4, 63.0));
    assert_eq!(pacing.intended, response.count + 4);
    assert_eq!(result.cluster_service.unwrap().read.count, result.cluster.read.count);
    let worker = &result.figures.per_worker[1];
    assert_eq!((worker.pacing.unwrap().asked_iops, worker.pacing.unwrap().late), (375.0, 9));
    assert_eq!(worker.service.as_ref().unwrap().all.as_ref().unwrap().count, worker.ops.all.as_ref().unwrap().count);
    let disk = &result.figures.per_disk[1];
    assert_eq!((disk.pacing.unwrap().asked_iops, disk.pacing.unwrap().late), (187.5, 0));
    assert!(disk.service.is_some());
}

#[test]
fn a_rate_that_was_not_kept_is_said() {
    let result = open_loop(200.0, |input| {
        input.workers[0].finished.as_mut().unwrap().disks[0].pacing.as_mut().unwrap().late = 500;
    });
    assert_eq!(result.warnings[0], "open loop: 800.0 IOPS were asked, 750.0 achieved (6.2 % below)");
    assert!(
        result.warnings[1].contains("509 started late (by up to 0.1 ms) and 4 not at all"),
        "{:?}",
        result.warnings
    );
    let per_worker = open_loop(0.0, |input| {
        input.rate = Some(Rate { iops: 375.0, per_disk: false, poisson: true });
    });
    assert_eq!(per_worker.figures.per_disk[3].pacing.unwrap().asked_iops, 187.5);
    assert_eq!(per_worker.figures.pacing.unwrap().asked_iops, 750.0);
}

#[test]
fn without_the_whole_window_there_is_no_service_time() {
    let result = open_loop(187.5, |input| drop_seconds(input, 1, 2..4));
    assert_eq!(result.state, CaseState::Incomplete);
    assert_eq!((&result.figures.service, &result.cluster_service), (&None, &None));
    assert!(result.figures.per_worker[1].service.is_some(), "its disks' totals cover the window");
    let contradicting = open_loop(187.5, |input| {
        let disk = &mut input.workers[0].finished.as_mut().unwrap().disks[0];
        disk.service = Some(worker_protocol::Ops::default());
    });
    assert_reason(&contradicting, &["w1, disk w1-d0: service times of (0, 0) reads and writes"]);
}
