//! A case from its start to the export: samples are stored once, the result is what evaluating the same numbers without a database
//! gives, and what only the merge needed is gone afterwards.

use crate::support::{Bench, SEED, finished, finished_of, fleet, sample};
use analysis::case::{CaseState, Ending, WorkerInput};
use analysis::export::{Case, Export, HostLoad, HostSample, Ops, StorageHealth};
use plan::{Rate, RateIops};
use store::{
    DiskFill, NewFill, NewHostSample, Refusal, RunEnd, RunState, Store, StoreError, WorkerReady, WorkerResult,
    WorkerSample,
};
use worker_protocol::{DeviceCounters, DiskSettings, EngineReport, IoErrors, Phase, Stall};

#[expect(clippy::panic, reason = "a helper that fails fails its test")]
fn refusal(error: StoreError) -> Refusal {
    match error {
        StoreError::Refused { reason, .. } => *reason,
        other => panic!("not a refusal: {other}"),
    }
}

#[tokio::test]
async fn a_complete_case_is_exported_as_it_was_evaluated() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    for worker in &fleet {
        bench.finished(case, worker).await;
    }
    let fill = |verified_blocks| NewFill {
        footprint_bytes: 1_000_000_000,
        seconds: 12.5,
        disks: ["w1-d0", "w1-d1"]
            .map(|disk| DiskFill { worker: "w1".into(), disk: disk.into(), bytes: 500, seconds: 12.0, verified_blocks })
            .into(),
    };
    bench.store.add_fill(bench.run, &fill(0)).await.unwrap();
    bench.store.add_fill(bench.run, &fill(1000)).await.unwrap();

    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    assert_eq!(
        result,
        crate::support::fleet::evaluate(&fleet, crate::support::fleet::case(&fleet)),
        "as without a database"
    );
    assert_eq!(result.state, CaseState::Complete);
    bench.store.finish_case(case, &result).await.unwrap();

    let export = bench.store.load_export(bench.run).await.unwrap();
    let kept = &export.cases[0];
    assert_eq!(
        (kept.state.as_str(), kept.workload.as_str(), kept.pattern.as_str()),
        ("complete", "4k-random-70-30", "hot-spot")
    );
    let ios: usize = fleet.iter().map(|worker| worker.latencies(|_| true).len()).sum();
    assert_eq!(kept.ops.all.as_ref().unwrap().count, ios as u64);
    assert_eq!(kept.ops, result.figures.ops);
    assert_eq!(kept.seconds, result.seconds);
    assert_eq!(kept.precondition_seconds, result.precondition_seconds);
    assert_eq!(kept.per_disk, result.figures.per_disk);
    assert_eq!(kept.per_worker, result.figures.per_worker);
    assert_eq!(kept.finished.unwrap().to_string(), "2026-03-01T10:00:08.25Z");
    let fill = kept.fill.as_ref().unwrap();
    assert_eq!((fill.bytes, fill.seconds, fill.verified_blocks), (1000, 12.5, 2000));
    assert_eq!(bench.store.cluster_totals(case).await.unwrap(), result.cluster);
    let json = serde_json::to_string(&export).unwrap();
    assert_eq!(serde_json::from_str::<Export>(&json).unwrap(), export, "the contract reads what it writes");
    assert!(!json.contains("a-secret-token"), "the enrolment token is not stored");
    assert_eq!(export.run.environment["seed"], SEED.to_string());
}

#[tokio::test]
async fn hosts_and_storage_are_told_from_the_start_of_the_window() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    let load = |cpu_percent| HostLoad {
        host: "pve1".into(),
        cpu_percent,
        memory_used_bytes: Some(3 << 30),
        memory_bytes: Some(8 << 30),
        io_pressure_percent: None,
        io_wait_percent: Some(0.25),
    };
    let health = StorageHealth {
        status: "HEALTH_WARN".into(),
        checks: vec!["PG_DEGRADED".into()],
        recovery_bytes_per_second: 5_000_000,
        displaced_percent: 30.0,
        scrubbing: 2,
    };
    let samples = [("2026-03-01T10:00:01Z", Some(12.5), None), ("2026-03-01T10:00:05.75Z", None, Some(health))];
    for (at, cpu, storage) in samples.clone() {
        let sample = NewHostSample { at: at.parse().unwrap(), hosts: vec![load(cpu)], storage };
        bench.store.add_host_sample(case, &sample).await.unwrap();
    }
    let kept = bench.store.load_export(bench.run).await.unwrap().cases.remove(0).hosts;
    let expected = [(-1.25, Some(12.5), None), (3.5, None, samples[1].2.clone())].map(|(t, cpu, storage)| HostSample {
        t,
        hosts: vec![load(cpu)],
        storage,
    });
    assert_eq!(kept, expected, "the window starts at 10:00:02.25");
    let stranger = NewHostSample { at: samples[0].0.parse().unwrap(), hosts: Vec::new(), storage: None };
    assert!(bench.store.add_host_sample(store::CaseId(99), &stranger).await.is_err(), "there is no such case");
}

#[tokio::test]
async fn a_page_reads_what_it_shows_and_merges_nothing() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    let load = HostLoad {
        host: "pve1".into(),
        cpu_percent: Some(1.0),
        memory_used_bytes: None,
        memory_bytes: None,
        io_pressure_percent: None,
        io_wait_percent: None,
    };
    let at = "2026-03-01T10:00:05.75Z".parse().unwrap();
    let sample = NewHostSample { at, hosts: vec![load.clone()], storage: None };
    bench.store.add_host_sample(case, &sample).await.unwrap();
    assert_eq!(bench.store.latest_host_sample(case).await.unwrap(), Some(sample));
    assert!(bench.store.load_export(bench.run).await.unwrap().cases[0].ops.all.is_some(), "merged as far as it came");
    let running = bench.store.load_report(bench.run, u32::MAX).await.unwrap().cases.remove(0);
    assert_eq!((running.state.as_str(), running.ops.all.is_none(), running.seconds.len()), ("running", true, 0));
    assert_eq!((running.workers.expected, running.hosts.len(), running.hosts[0].hosts.len()), (2, 1, 0));

    for worker in &fleet {
        bench.finished(case, worker).await;
    }
    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    let whole = bench.store.load_export(bench.run).await.unwrap();
    assert_eq!(whole.cases[0].hosts[0].hosts, [load]);
    let stored = bench.store.read_ended(bench.run).await.unwrap();
    let cases: Vec<Case> = stored.cases.into_iter().map(|case| case.decode().unwrap()).collect();
    assert_eq!((stored.run, &cases), (whole.run.clone(), &whole.cases));
    assert_eq!(bench.store.load_case(bench.run, 0).await.unwrap(), whole);
    assert!(bench.store.load_case(bench.run, 1).await.unwrap().cases.is_empty());
    let report = bench.store.load_report(bench.run, u32::MAX).await.unwrap().cases.remove(0);
    assert_eq!((&report.seconds, &report.per_disk), (&whole.cases[0].seconds, &whole.cases[0].per_disk));
    let brief = bench.store.load_report(bench.run, 1).await.unwrap().cases.remove(0);
    let names = |case: &Case| -> Vec<(String, String)> {
        case.per_disk.iter().map(|disk| (disk.worker.clone(), disk.disk.clone())).collect()
    };
    assert_eq!((names(&brief), &brief.seconds), (names(&report), &report.seconds), "more than one disk");
    assert!(brief.per_disk.iter().all(|disk| disk.ops == Ops::default() && !disk.has_incident()));
    let figures = bench.store.load_figures(bench.run).await.unwrap().cases.remove(0);
    assert_eq!((figures.seconds.len(), figures.hosts.len(), &figures.ops), (0, 1, &whole.cases[0].ops));
    assert_eq!(running.missing_seconds, None);
    let missing = whole.cases[0].missing_seconds.unwrap();
    let planned = missing + u32::try_from(whole.cases[0].seconds.len()).unwrap();
    assert_eq!(
        (figures.missing_seconds, planned),
        (Some(missing), bench.plan.sample_seconds),
        "told without reading the seconds"
    );
    assert_eq!(bench.store.plan_yaml(bench.run).await.unwrap(), "name: two workers\n");
    bench.store.add_run_warning(bench.run, "mind the gap").await.unwrap();
    assert_eq!(bench.store.run_warnings(bench.run).await.unwrap(), ["mind the gap"]);
}

#[tokio::test]
async fn a_sample_that_is_sent_again_changes_nothing() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    bench.tick(case, &fleet, Phase::Sample, 3).await;
    bench.finished(case, &fleet[0]).await;
    bench.finished(case, &fleet[0]).await;
    let stored = bench.store.second_of_case(case, Phase::Sample, 3).await.unwrap();
    assert_eq!(stored.len(), 2);
    for (kept, worker) in stored.iter().zip(&fleet) {
        let sent = sample(worker, Phase::Sample, 3);
        assert_eq!((kept.second, &kept.sample.ops, &kept.disks), (3, &sent.ops, &sent.disks), "nothing of it is lost");
        assert_eq!((kept.sample.number, kept.sample.whole), (sent.number, true));
    }
    let result = bench.store.evaluate_case(case, Ending::Running).await.unwrap();
    assert_eq!(result.figures.per_disk.len(), 2, "w1's two disks, once");
}

#[tokio::test]
async fn a_second_sample_of_one_second_is_refused_and_nothing_of_its_tick_is_stored() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.tick(case, &fleet, Phase::Sample, 0).await;
    let next = sample(&fleet[1], Phase::Sample, 1);
    let mut twice = sample(&fleet[0], Phase::Sample, 0);
    twice.number = 77;
    let tick = [WorkerSample { worker: "w2", sample: &next }, WorkerSample { worker: "w1", sample: &twice }];
    let error = refusal(bench.store.add_samples(case, &tick).await.unwrap_err());
    assert_eq!(error.to_string(), "worker w1 sent sample second 0 twice, as numbers 2 and 77");
    assert!(bench.store.second_of_case(case, Phase::Sample, 1).await.unwrap().is_empty());
}

#[tokio::test]
async fn numbers_beyond_63_bits_are_refused() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    let mut wild = sample(&fleet[0], Phase::Sample, 0);
    wild.ops.write.sum_ns = u64::MAX;
    let error = bench.store.add_samples(case, &[WorkerSample { worker: "w1", sample: &wild }]).await.unwrap_err();
    assert!(matches!(refusal(error), Refusal::TooLarge { field: "sum_ns", value: u64::MAX }));
}

#[tokio::test]
async fn a_finished_case_takes_nothing_more_and_keeps_only_what_is_shown() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    let result = bench.store.evaluate_case(case, Ending::Cancelled).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    assert!(matches!(refusal(bench.store.finish_case(case, &result).await.unwrap_err()), Refusal::Ended { .. }));
    let late = sample(&fleet[0], Phase::Sample, 5);
    let error = bench.store.add_samples(case, &[WorkerSample { worker: "w1", sample: &late }]).await.unwrap_err();
    assert!(matches!(refusal(error), Refusal::Ended { what: "case", .. }));
    assert!(bench.store.second_of_case(case, Phase::Sample, 5).await.unwrap().is_empty(), "histograms are gone");
    let export = bench.store.load_export(bench.run).await.unwrap();
    assert_eq!((export.cases[0].state.as_str(), export.cases[0].seconds.len()), ("cancelled", 6));
    assert_eq!(export.cases[0].ops, result.figures.ops);
}

#[tokio::test]
async fn a_case_that_goes_on_is_exported_as_far_as_it_is_stored() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.tick(case, &fleet, Phase::Sample, 0).await;
    bench.tick(case, &fleet, Phase::Sample, 1).await;
    bench.tick(case, &fleet[..1], Phase::Sample, 2).await;
    let running = bench.store.load_export(bench.run).await.unwrap().cases.remove(0);
    assert_eq!((running.state.as_str(), running.seconds.len(), running.window_seconds), ("running", 2, 2.0));
    assert_eq!((running.reason, running.finished), (None, None));
    assert!(running.ops.all.unwrap().count > 0);

    // The orchestrator ends the run without ending the case: what was measured is still shown.
    let end = RunEnd { state: RunState::Failed, reason: Some("killed".into()), planned_cases: 1 };
    assert!(!bench.store.finish_run(bench.run, &end).await.unwrap());
    let left = bench.store.load_export(bench.run).await.unwrap().cases.remove(0);
    assert_eq!((left.state.as_str(), left.seconds.len()), ("incomplete", 2));
    assert!(left.reason.unwrap().starts_with("the run ended before the case did"));
}

#[tokio::test]
async fn a_lost_worker_and_an_engines_report_reach_the_export() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    let engine = EngineReport { threads: 3, warnings: vec!["memory is not locked".into()], ..EngineReport::default() };
    bench.store.set_engine(case, &WorkerReady { worker: "w1", engine: &engine }).await.unwrap();
    let stranger = bench.store.set_engine(case, &WorkerReady { worker: "w9", engine: &engine }).await.unwrap_err();
    assert!(stranger.to_string().contains("there is no worker in the case w9"), "{stranger}");
    bench.all_ticks(case, &fleet[..1]).await;
    bench.finished(case, &fleet[0]).await;
    bench.store.add_worker_failure(case, "w2", "the process ended with signal 9").await.unwrap();
    bench.store.add_worker_failure(case, "w2", "its session was lost").await.unwrap();
    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    let export = bench.store.load_export(bench.run).await.unwrap();
    let kept = &export.cases[0];
    assert_eq!(kept.state, "incomplete");
    let reason = kept.reason.as_ref().unwrap();
    assert!(reason.contains("w2: the process ended with signal 9"), "the first reason stays: {reason}");
    assert_eq!(kept.warnings, ["w1: memory is not locked"]);
    assert_eq!(export.run.environment["workers"][0]["engine"]["threads"], 3);
    assert_eq!(export.run.environment["version"], "0.1.0");
}

#[tokio::test]
async fn what_is_acknowledged_survives_a_copy_of_the_files_taken_at_that_moment() {
    let (bench, fleet) = (Bench::new().await, fleet());
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    let worker_end = finished(&fleet[0]);
    assert!(worker_end.complete);
    bench.finished(case, &fleet[0]).await;
    // As after a kill: no close, no checkpoint.
    let copy = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(bench.dir.path()).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_string_lossy().ends_with("-shm") {
            std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    let revived = Store::open(&store::DataDir::new(copy.path())).await.unwrap();
    assert_eq!(revived.unfinished_runs().await.unwrap()[0].id, bench.run);
    let left = revived.list_cases(bench.run).await.unwrap();
    assert_eq!((left.len(), left[0].state.as_str(), left[0].workload.as_str()), (1, "running", "4k-random-70-30"));
    let (ours, theirs) =
        (bench.store.evaluate_case(case, Ending::Ran).await, revived.evaluate_case(left[0].id, Ending::Ran).await);
    assert_eq!(ours.unwrap(), theirs.unwrap());
}

/// What the engine tells beside its I/Os goes through the database and comes out as it was judged without one.
#[tokio::test]
async fn an_open_loop_with_all_that_can_be_told_is_stored_and_exported() {
    let (mut bench, fleet) = (Bench::new().await, fleet());
    bench.plan.workloads[0].rate = Some(Rate { iops: RateIops::IopsPerWorker(300.0), poisson: false });
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    let mut input = crate::support::fleet::case(&fleet);
    input.rate = Some(worker_protocol::Rate { iops: 300.0, per_disk: false, poisson: false });
    input.workers = fleet.iter().map(crate::support::fleet::FakeWorker::open_loop_input).collect();
    tell_everything(&mut input.workers[0]);
    for worker in &input.workers {
        if let Some(engine) = &worker.engine {
            bench.store.set_engine(case, &WorkerReady { worker: &worker.worker, engine }).await.unwrap();
        }
        let finished = finished_of(worker.clone());
        let result = WorkerResult { worker: &worker.worker, finished: &finished, offset_ns: Some(700) };
        bench.store.add_disk_results(case, &result).await.unwrap();
    }
    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    assert_eq!(result, crate::support::fleet::evaluate(&fleet, input), "as without a database");
    bench.store.finish_case(case, &result).await.unwrap();
    assert_eq!(bench.store.cluster_service_totals(case).await.unwrap(), result.cluster_service);
    assert!(result.cluster_service.is_some());

    let kept = bench.store.load_export(bench.run).await.unwrap().cases.remove(0);
    let options = kept.options.as_ref().unwrap();
    assert_eq!((options.rate.as_ref().unwrap().iops, options.rate.as_ref().unwrap().per.as_str()), (300.0, "worker"));
    assert_eq!(options.range.unwrap().to_percent, 50.0);
    assert_eq!(options.hot_spot.unwrap().space_percent, 10.0);
    assert_eq!((&kept.service, &kept.pacing), (&result.figures.service, &result.figures.pacing));
    assert_eq!(kept.pacing.unwrap().asked_iops, 600.0);
    assert_eq!(kept.generator, result.figures.generator);
    assert_eq!((&kept.per_worker, &kept.per_disk), (&result.figures.per_worker, &result.figures.per_disk));
    let disk = &kept.per_disk[0];
    assert_eq!((disk.flushes, disk.io_errors[0].count, disk.stalls.len()), (17, 3, 1));
    assert_eq!(disk.settings.as_ref().unwrap().scheduler.as_deref(), Some("none"));
    assert!(disk.device.unwrap().differs);
    let used = kept.per_worker[0].generator.as_ref().unwrap();
    assert_eq!((used.thread_cpu.as_slice(), used.io_wq_cpu, used.steal), (&[0.95][..], 0.25, Some(0.125)));
    assert_eq!(bench.store.cluster_service_totals(store::CaseId(999)).await.unwrap(), None);
}

fn tell_everything(worker: &mut WorkerInput) {
    let serial = worker.disks[0].clone();
    let settings =
        DiskSettings { serial, direct: true, scheduler: Some("none".into()), threads: 1, ..DiskSettings::default() };
    worker.engine =
        Some(EngineReport { threads: 1, buffer_bytes: 4096, disks: vec![settings], ..EngineReport::default() });
    let finished = worker.finished.as_mut().unwrap();
    (finished.thread_cpu, finished.io_wq_cpu, finished.steal) = (vec![0.95], 0.25, Some(0.125));
    let disk = &mut finished.disks[0];
    disk.flushes = 17;
    disk.errors = vec![IoErrors { kind: "short".into(), count: 3, first_offsets: vec![0, 4096] }];
    disk.stalls = vec![Stall { start_ns: -1, length_ns: 2_000_000_000 }];
    disk.device = Some(DeviceCounters { reads: 1, read_merges: 2, writes: 3, write_merges: 4, differs: true });
    (disk.unfinished, disk.oldest_unfinished_ns) = (2, 5_000);
}
