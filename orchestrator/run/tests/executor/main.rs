//! Whole runs, on the real store and with real agents, in a place that fails where it is told to.

#![expect(clippy::unwrap_used, reason = "a test's panic is its failure")]

mod canary;
mod ended_early;
mod guard;
mod liar;
mod place;

use std::sync::Arc;

use liar::Wrong;
use place::{Bench, Faults};

/// Two workers with one disk each; `more` is what differs. On a busy machine an engine starts late: preconditioning takes that up.
fn plan(more: &str) -> String {
    format!(
        "name: small\ntarget: {{provider: local}}\nworkers: {{count: 2, vcpus: 1, memory: 256MiB, disks: 1}}\n\
         precondition: 1s\nsample: 1s\n{more}\n"
    )
}

const ONE_CASE: &str = "footprints: [8MiB]\nworkloads: [4k-random-read]";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_is_removed_though_nobody_can_tell_what_was_still_there() {
    let bench = Bench::new(Faults { recover: true, ..Faults::default() }).await;
    bench.abandon(&plan(ONE_CASE)).await;
    assert_eq!(bench.disk_files(), 2);
    let recovered = bench.recover().await;
    assert_eq!((recovered.len(), &recovered[0].left), (1, &Vec::new()), "{recovered:#?}");
    assert_eq!(bench.disk_files(), 0);
    let export = bench.store.load_export(recovered[0].run).await.unwrap();
    assert_eq!(export.run.state, "failed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_plan_is_carried_out_and_all_that_it_asked_for_is_exported() {
    let bench = Bench::new(Faults::default()).await;
    let open_loop = "{name: open, block: 4KiB, pattern: hot-spot, hot_spot: {io_percent: 80, space_percent: 20}, \
                     range: {from_percent: 0, to_percent: 50}, align: 4KiB, read_percent: 50, outstanding_per_disk: 8, \
                     rate: {iops_per_worker: 200}, flush_every_writes: 10, on_error: continue, stall_threshold: 5s}";
    let yaml = plan(&format!("footprints: [8MiB, 16MiB]\nseed: 5\nworkloads:\n  - {open_loop}"));
    let (run, export) = bench.run(&yaml).await;
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("done", None));
    assert!(export.run.complete, "{:#?}", export.cases.iter().map(|case| &case.reason).collect::<Vec<_>>());
    let names: Vec<(&str, u64)> =
        export.cases.iter().map(|case| (&*case.footprint, case.fill.as_ref().unwrap().bytes)).collect();
    assert_eq!(names, [("8MiB", 8 << 20), ("16MiB", 8 << 20)], "the second footprint adds 8 MiB");

    let open = &export.cases[1];
    let options = open.options.as_ref().unwrap();
    assert_eq!((options.hot_spot.unwrap().io_percent, options.range.unwrap().to_percent), (80.0, 50.0));
    assert_eq!((options.on_error.as_str(), options.stall_seconds), ("continue", 5));
    let pacing = open.pacing.unwrap();
    assert_eq!(pacing.asked_iops, 400.0);
    assert!((395..=405).contains(&pacing.intended), "{pacing:?}");
    let (response, service) = (open.ops.all.as_ref().unwrap(), open.service.as_ref().unwrap().all.as_ref().unwrap());
    assert_eq!(response.count, service.count);
    let mean = |op: &analysis::export::Op| op.latency_us.as_ref().unwrap().mean;
    assert!(mean(service) <= mean(response), "service {} µs, response {} µs", mean(service), mean(response));
    for case in &export.cases {
        assert!(case.generator.is_some());
        for disk in &case.per_disk {
            let settings = disk.settings.as_ref().unwrap();
            assert_eq!((settings.kind.as_deref(), settings.threads), (Some("file"), 1));
        }
    }
    assert!(open.per_disk.iter().all(|disk| disk.flushes > 0), "a flush every 10 writes");
    let engine = &export.run.environment["workers"][0]["engine"];
    assert!(engine["granted"].is_array() && engine["buffer_bytes"].as_u64().unwrap() > 0, "{engine}");
    assert!(bench.store.living_objects(run).await.unwrap().is_empty() && bench.disk_files() == 0);
    assert!(bench.store.open_intents(run).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_deployed_anew_for_each_footprint() {
    let bench = Bench::new(Faults::default()).await;
    let yaml = plan("footprints: [4MiB, 8MiB]\ndeploy: per-footprint\nworkloads: [4k-random-read]");
    let (_, export) = bench.run(&yaml).await;
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", true), "{:?}", export.run.reason);
    let mut created = bench.place.created.lock().unwrap().clone();
    // Workers of one deployment are created at the same time.
    created.sort_by(|a, b| a.fleet.cmp(&b.fleet));
    let disks: Vec<u64> = created.iter().map(|worker| worker.disks[0].size_bytes).collect();
    assert_eq!(disks, [2 << 20, 2 << 20, 4 << 20, 4 << 20], "each deployment is as large as its footprint");
    assert!(created[0].fleet != created[2].fleet && created[0].uuid != created[2].uuid);
    let filled: Vec<u64> = export.cases.iter().map(|case| case.fill.as_ref().unwrap().bytes).collect();
    assert_eq!(filled, [4 << 20, 8 << 20], "the second footprint is filled whole");
    assert_eq!((&export.cases[0].service, &export.cases[0].pacing), (&None, &None), "a closed loop");
    let states: Vec<&str> = export.run.environment["transitions"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|transition| transition["state"].as_str())
        .collect();
    assert_eq!(states.iter().filter(|state| **state == "provisioning").count(), 2, "{states:?}");
    assert_eq!(bench.disk_files(), 0);
}

#[tokio::test]
async fn a_worker_that_cannot_be_created_ends_the_run_and_leaves_nothing() {
    let bench = Bench::new(Faults { create: Some("worker-2"), ..Faults::default() }).await;
    let (run, export) = bench.run(&plan(ONE_CASE)).await;
    let reason = export.run.reason.unwrap();
    assert_eq!((export.run.state.as_str(), reason.as_str()), ("failed", "worker-2: no memory for another worker"));
    assert!(export.cases.is_empty());
    assert_eq!(bench.disk_files(), 0, "the first worker's disk, and the second's, are gone");
    assert!(bench.store.living_objects(run).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_door_is_answered_before_the_first_worker_is_started() {
    let bench = Bench::new(Faults { knocks: true, ..Faults::default() }).await;
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("done", None));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_measured_stays_where_tearing_down_fails() {
    let bench = Bench::new(Faults { destroy: true, ..Faults::default() }).await;
    let (run, export) = bench.run(&plan(ONE_CASE)).await;
    assert_eq!(export.run.state, "failed");
    assert!(export.run.reason.as_deref().unwrap().contains("the disks are busy"), "{:?}", export.run.reason);
    assert_eq!((export.cases.len(), export.cases[0].state.as_str()), (1, "complete"));
    assert!(export.cases[0].ops.read.is_some());
    assert_eq!(bench.store.living_objects(run).await.unwrap().len(), 2, "the journal still knows what is left");
    assert_eq!(bench.disk_files(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_cancelled_while_its_workers_enrol() {
    let bench = Bench::new(Faults { silent: true, ..Faults::default() }).await;
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&plan(ONE_CASE)).await }
    });
    bench.wait_for_state("provisioning").await;
    let enrolling = async {
        loop {
            let runs = bench.store.unfinished_runs().await.unwrap();
            if runs.iter().any(|run| run.state == store::RunState::Enrolling) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(place::PATIENCE, enrolling).await.expect("enrolling in time");
    bench.brake.cancel("the user");
    let (_, export) = running.await.unwrap();
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("cancelled", Some("cancelled by the user")));
    assert_eq!((export.cases.len(), bench.disk_files()), (0, 0));
}

#[tokio::test]
async fn a_worker_that_ends_before_it_enrols_ends_the_run() {
    let bench = Bench::new(Faults { ends_at_once: Some("worker-1"), ..Faults::default() }).await;
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    let reason = export.run.reason.unwrap();
    assert_eq!(export.run.state, "failed");
    assert!(reason.starts_with("the workers did not enrol") && reason.contains("exit status 3"), "{reason}");
    assert_eq!(bench.disk_files(), 0);
}

/// The database itself refuses the row: nothing may be changed then.
#[tokio::test]
async fn nothing_is_created_where_the_journal_refuses() {
    let bench = Bench::new(Faults::default()).await;
    let mut connection = bench.connect().await;
    let refuse = "CREATE TRIGGER full BEFORE INSERT ON journal BEGIN SELECT RAISE(ABORT, 'the journal is full'); END";
    sqlx::query(refuse).execute(&mut connection).await.unwrap();
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    let reason = export.run.reason.unwrap();
    assert_eq!(export.run.state, "failed");
    assert!(reason.contains("nothing was changed") && reason.contains("the journal is full"), "{reason}");
    assert_eq!(bench.disk_files(), 0);
    assert!(bench.place.created.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_results_cannot_be_stored_is_torn_down_and_ends() {
    let of_a_canary = "BEFORE INSERT ON events WHEN NEW.message LIKE 'worker canary-% enrolled%'";
    for (canary, when) in [(false, "BEFORE INSERT ON worker_seconds"), (true, of_a_canary)] {
        let bench = Bench::new(Faults::default()).await;
        let refuse = format!("CREATE TRIGGER full {when} BEGIN SELECT RAISE(ABORT, 'the disk is full'); END");
        sqlx::query(sqlx::AssertSqlSafe(refuse)).execute(&mut bench.connect().await).await.unwrap();
        let error = bench.run_without_store(&plan(ONE_CASE), canary).await.to_string();
        assert!(error.contains("the disk is full"), "{error}");
        assert_eq!(bench.disk_files(), 0, "{when}");
        let run = bench.store.list_runs(1).await.unwrap()[0].id;
        let export = bench.store.load_export(run).await.unwrap();
        let reason = export.run.reason.unwrap();
        assert!(export.run.state == "failed" && reason.contains("the disk is full"), "{}: {reason}", export.run.state);
        assert!(export.cases.iter().all(|case| case.state != "running"));
        assert!(bench.store.unfinished_runs().await.unwrap().is_empty());
    }
}

/// Writes only, without a fill, so that the liar need not write anything.
fn lied_to(on_worker_loss: &str) -> String {
    let case = "footprints: [8MiB]\ninitialise: none\nworkloads: [4k-random-write]";
    plan(&format!("{case}\non_worker_loss: {on_worker_loss}")).replace("sample: 1s", "sample: 2s")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contradictory_sample_ends_its_workers_part_and_the_run_goes_on() {
    let bench = Bench::new(Faults { wrong: Some(("worker-2", Wrong::Sample)), ..Faults::default() }).await;
    let (_, export) = bench.run(&lied_to("continue")).await;
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", false), "{:?}", export.run.reason);
    let case = &export.cases[0];
    let reason = case.reason.as_deref().unwrap();
    assert_eq!(case.state, "incomplete");
    let contradiction = "worker-2, sample 2, writes: 1 I/Os of 4096 bytes cannot have moved 4095 bytes";
    assert!(reason.contains(contradiction), "{reason}");
    assert!(reason.contains("cover the 1 whole s"), "its samples before that were sound: {reason}");
    assert_eq!(case.per_disk.len(), 1, "the other worker's disk");
    assert_eq!(case.per_disk[0].window_seconds, 2.0);
    let set_aside = export.run.events.iter().any(|event| {
        event.message.starts_with("worker worker-2 is not used any more") && event.message.contains(contradiction)
    });
    assert!(set_aside, "{:#?}", export.run.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contradictory_sample_fails_the_run_where_the_plan_says_so() {
    let bench = Bench::new(Faults { wrong: Some(("worker-1", Wrong::Sample)), ..Faults::default() }).await;
    let (_, export) = bench.run(&lied_to("fail")).await;
    let reason = export.run.reason.unwrap();
    assert_eq!(export.run.state, "failed");
    assert!(reason.contains("4k-random-write: worker-1: ") && reason.contains("cannot have moved"), "{reason}");
    assert_eq!(bench.disk_files(), 0);
}
