//! What the run does about harm, a guard that is blind, workers that are moved, and hosts under load.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::place::{Bench, Faults, PATIENCE};
use crate::{ONE_CASE, plan};

/// Its window is longer than any test waits.
fn long_case() -> String {
    plan(ONE_CASE).replace("sample: 1s", "sample: 600s")
}

#[tokio::test(flavor = "multi_thread")]
async fn harm_stops_the_load_and_what_was_measured_is_kept() {
    let bench = Bench::new(Faults::default()).await;
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&long_case()).await }
    });
    let mut progress = bench.progress.subscribe();
    let measured = progress.wait_for(|progress| progress.state == "sampling" && progress.iops.is_some());
    tokio::time::timeout(PATIENCE, measured).await.expect("a measured second in time").unwrap();
    bench.place.harm.store(true, Ordering::Relaxed);
    let (_, export) = running.await.unwrap();
    let why = "the load was stopped by the guard: min_free_percent: the disks have 3.0 % free";
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("failed", Some(why)));
    let case = &export.cases[0];
    let reason = case.reason.as_deref().unwrap();
    assert!(case.state == "incomplete" && reason.starts_with(why), "{}: {reason}", case.state);
    assert!(case.window_seconds >= 1.0 && case.window_seconds < 600.0, "{} s", case.window_seconds);
    assert!(case.ops.read.as_ref().unwrap().count > 0 && !case.seconds.is_empty());
    let said = export.run.events.iter().filter(|event| event.message.contains("stopped by the guard")).count();
    assert!(said >= 2, "at once and at the end: {:#?}", export.run.events);
    assert_eq!(bench.disk_files(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_is_busy_does_not_hold_the_load_on() {
    let bench = Bench::new(Faults::default()).await;
    let yaml = long_case().replace("4k-random-read", "4k-random-write");
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&yaml).await }
    });
    let mut progress = bench.progress.subscribe();
    let measured = progress.wait_for(|progress| progress.state == "sampling" && progress.iops.is_some());
    tokio::time::timeout(PATIENCE, measured).await.expect("a measured second in time").unwrap();
    let mut others = bench.connect().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut others).await.unwrap();
    bench.place.harm.store(true, Ordering::Relaxed);
    // Shorter than the store waits before it gives up.
    let still = async {
        loop {
            let before = bench.last_write();
            tokio::time::sleep(Duration::from_secs(1)).await;
            if bench.last_write() == before {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(8), still).await.expect("nothing is written any more");
    sqlx::query("ROLLBACK").execute(&mut others).await.unwrap();
    let (_, export) = running.await.unwrap();
    let reason = export.run.reason.unwrap();
    assert!(export.run.state == "failed" && reason.contains("min_free_percent"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn harm_stops_a_fill() {
    let bench = Bench::new(Faults { harm: true, ..Faults::default() }).await;
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    let reason = export.run.reason.unwrap();
    assert!(export.run.state == "failed" && reason.contains("min_free_percent"), "{reason}");
    assert_eq!((export.cases.len(), bench.disk_files()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_stays_blind_stops_the_load() {
    let bench = Bench::new(Faults { blind: true, ..Faults::default() }).await;
    let yaml = long_case().replace("workloads:", "initialise: none\nread_unwritten: true\nworkloads:");
    let (_, export) = bench.run(&yaml).await;
    let reason = export.run.reason.unwrap();
    assert!(reason.contains("blind: nobody could look for 1 s") && reason.contains("no route"), "{reason}");
    let first = export.run.events.iter().find(|event| event.message.contains("the guard cannot look")).unwrap();
    assert!(first.level == "warning" && first.message.contains("after 1 s"), "{first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_was_moved_is_reported_once_and_hosts_are_kept_with_the_case() {
    let bench = Bench::new(Faults { moves: Some("worker-2"), ..Faults::default() }).await;
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", true), "{:?}", export.run.reason);
    let moved = "worker worker-2 was moved from host-2 to host-9 during the run: figures of that time are disturbed";
    assert_eq!(export.run.warnings, [moved]);
    let events = export.run.events.iter().filter(|event| event.message == moved).count();
    assert_eq!(events, 1, "{:#?}", export.run.events);
    let hosts = &export.cases[0].hosts;
    let names: Vec<&str> = hosts[0].hosts.iter().map(|load| load.host.as_str()).collect();
    assert_eq!(names, ["host-1", "host-9"], "where they are in this case");
    assert_eq!((hosts[0].hosts[0].cpu_percent, hosts[0].hosts[0].io_pressure_percent), (Some(25.0), Some(12.5)));
    assert!(hosts.len() > 2 && hosts.windows(2).all(|pair| pair[0].t < pair[1].t), "{hosts:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_spread_over_the_hosts_that_the_place_names() {
    let bench = Bench::new(Faults::default()).await;
    let (_, export) = bench.run(&plan(ONE_CASE)).await;
    assert!(export.run.complete, "{:?}", export.run.reason);
    let mut placed: Vec<_> =
        bench.place.created.lock().unwrap().iter().map(|spec| (spec.name.clone(), spec.host.clone())).collect();
    placed.sort();
    let expected = [("worker-1", "host-1"), ("worker-2", "host-2")];
    assert_eq!(placed, expected.map(|(name, host)| (name.to_owned(), Some(host.to_owned()))));
}
