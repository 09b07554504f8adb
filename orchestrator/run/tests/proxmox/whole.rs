//! A plan from the empty cluster to the empty cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use run::{Link, WatchTimes};
use serde_json::json;

use crate::fakes::quick;
use crate::followed::{Bench, Kill, PATIENCE, plan, request};

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_carried_out_after_a_canary_and_leaves_the_cluster_as_it_was() {
    let Some(bench) = Bench::start() else { return };
    let before = bench.fake.inventory();
    bench.fake.run("pve.task_ends['qmstop'] = 'WARNINGS: 1'");
    let (_, export) = bench.run(&plan("3s"), true).await;
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", true), "{:?}", export.run.reason);
    let mut warned = export.run.warnings.clone();
    warned.sort();
    let odd =
        [(9000, "pve1"), (9001, "pve2")].map(|(vm, node)| format!("qmstop {vm} on {node}: WARN: something is odd"));
    assert_eq!(warned, odd, "each once, though canaries and workers had the same ids");
    let flown =
        export.run.events.iter().filter(|event| event.message.contains("read back as written, removed")).count();
    assert_eq!(flown, 2, "one canary a node: {:#?}", export.run.events);
    let hosts = &export.cases[0].hosts;
    let nodes: Vec<&str> = hosts[0].hosts.iter().map(|load| load.host.as_str()).collect();
    assert_eq!(nodes, ["pve1", "pve2"], "workers are spread over the nodes");
    assert!(hosts[0].storage.as_ref().is_some_and(|storage| storage.status == "HEALTH_OK"), "{hosts:?}");
    assert_eq!(bench.fake.requests("POST", "/upload"), 4, "an image a fleet and node");
    assert_eq!(bench.fake.inventory(), before);
    assert_eq!(bench.fake.get("pve.running_tasks()"), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_the_cluster_under_load_reaches_the_run() {
    let Some(bench) = Bench::start() else { return };
    let bench = Arc::new(bench);
    let before = bench.fake.inventory();
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&plan("600s"), false).await }
    });
    let mut progress = bench.progress.subscribe();
    let measured = progress.wait_for(|progress| progress.state == "sampling" && progress.iops.is_some());
    tokio::time::timeout(PATIENCE, measured).await.expect("a measured second in time").unwrap();
    let first = bench.fake.get("[vm.node for vm in pve.vms]");
    assert_eq!(first, json!(["pve1", "pve2"]));
    bench.fake.run("pve.vms[1].node = 'pve1'");
    let store = bench.store().await;
    let run = store.find_run("latest").await.unwrap();
    let told = async {
        while !store.load_export(run).await.unwrap().run.warnings.iter().any(|text| text.contains("was moved")) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the move is told in time");
    bench.fake.run("pve.vms[1].node = 'pve2'\npve.storages['ceph'].update(avail=190 * 2**30)");
    let (_, export) = running.await.unwrap();
    let reason = export.run.reason.as_deref().unwrap();
    assert!(reason.contains("stopped by the guard: min_free_percent: storage ceph has 19.0 % free"), "{reason}");
    let case = &export.cases[0];
    assert!(case.state == "incomplete" && case.window_seconds < 600.0, "{} {}", case.state, case.window_seconds);
    assert!(case.ops.read.as_ref().unwrap().count > 0);
    let moved = export.run.warnings.iter().find(|text| text.contains("was moved from pve2 to pve1 during the run"));
    assert!(moved.is_some(), "{:?}", export.run.warnings);
    bench.fake.run("pve.storages['ceph'].update(avail=1000 * 2**30)");
    let mut after = bench.fake.inventory();
    after["storages"]["ceph"]["avail"] = before["storages"]["ceph"]["avail"].clone();
    assert_eq!(after, before, "it is torn down all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_cannot_create_is_named_by_the_canary() {
    let Some(bench) = Bench::start() else { return };
    let before = bench.fake.inventory();
    bench.fake.run(
        "def refuse(values):\n\
         \x20 if values['node'] == 'pve2':\n\
         \x20   raise PveError(500, 'no such bridge vmbr0')\n\
         pve.before_create = refuse",
    );
    let (_, export) = bench.run(&plan("1s"), true).await;
    let reason = export.run.reason.as_deref().unwrap();
    assert!(reason.starts_with("canary on pve2 failed at creating the worker:"), "{reason}");
    assert!(reason.contains("no such bridge") && !reason.contains("pve1 failed"), "{reason}");
    assert_eq!((export.run.state.as_str(), export.cases.len()), ("failed", 0));
    assert_eq!(bench.fake.inventory(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_that_do_not_boot_or_do_not_get_through_are_named_by_node_within_the_canarys_bound() {
    let Some(bench) = Bench::start() else { return };
    let before = bench.fake.inventory();
    bench.fake.run("pve.sent_of = {'pve2': 1710}");
    let (store, provider) = (bench.store().await, bench.provider(true, Kill::default(), quick()));
    let (place, mut request) = (bench.place(&provider), request(&plan("1s"), false));
    request.plan.canary_wait_seconds = 2;
    let flying = run::canary(&store, &place, &request, bench.progress.clone(), bench.brake.clone());
    let report = tokio::time::timeout(PATIENCE, flying).await.expect("its bound is short").unwrap();
    let broken: Vec<(&str, Link)> =
        report.hosts.iter().filter_map(|host| Some((host.host.as_deref()?, host.failure.as_ref()?.0))).collect();
    assert_eq!(broken, [("pve1", Link::Boot), ("pve2", Link::Reach)], "{report:#?}");
    let why = report.failure().unwrap();
    for part in
        ["canary on pve1 failed at booting:", "canary on pve2 failed at reaching the orchestrator:", "1710 bytes"]
    {
        assert!(why.contains(part), "{part} in {why}");
    }
    assert_eq!(bench.fake.inventory(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_goes_offline_under_load_ends_the_run_and_what_it_has_is_removed_once_it_is_back() {
    let Some(bench) = Bench::start() else { return };
    let before = bench.fake.inventory();
    let (store, provider) = (bench.store().await, bench.provider(false, Kill::default(), quick()));
    let (place, request) = (bench.place(&provider), request(&plan("600s"), false));
    let running = run::execute(&store, &place, &request, bench.progress.clone(), bench.brake.clone());
    let failing = async {
        let mut progress = bench.progress.subscribe();
        progress.wait_for(|progress| progress.state == "sampling" && progress.iops.is_some()).await.unwrap();
        bench.fake.run("pve.set_node_offline('pve2')");
        provider.lose_agents_on("pve2");
        std::future::pending::<()>().await;
    };
    let run = tokio::select! {
        run = tokio::time::timeout(PATIENCE, running) => run.expect("the run ends in time").unwrap(),
        () = failing => unreachable!(),
    };
    let export = store.load_export(run).await.unwrap();
    let reason = export.run.reason.as_deref().unwrap();
    assert!(export.run.state == "failed" && reason.contains("worker-2"), "{reason}");
    let case = &export.cases[0];
    assert!(case.state == "incomplete" && case.ops.read.as_ref().unwrap().count > 0, "what was measured is kept");
    let left = export.run.warnings.iter().find(|text| text.contains("on pve2 was left alone")).unwrap();
    assert!(left.contains("No route to host"), "{left}");
    assert_eq!(bench.fake.get("[vm.node for vm in pve.vms]"), json!(["pve2"]), "the other node's VM is gone");
    bench.fake.run("pve.set_node_offline('pve2', False)");
    assert_eq!(run::clean_up(&store, run, &provider, &[]).await.unwrap(), Vec::<String>::new());
    assert_eq!(bench.fake.inventory(), before);
    assert!(run::leftovers(&store, run).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_brought_is_named_by_the_canary() {
    let Some(bench) = Bench::start() else { return };
    let before = bench.fake.inventory();
    bench.fake.run("pve.fail('POST', '/nodes/{node}/storage/{storage}/upload', 500, 'no space for a test')");
    let (_, export) = bench.run(&plan("1s"), true).await;
    let reason = export.run.reason.as_deref().unwrap();
    assert!(reason.starts_with("canary on pve1 failed at bringing the image:"), "{reason}");
    assert!(reason.contains("no space for a test") && reason.contains("canary on pve2 failed at"), "{reason}");
    assert_eq!(bench.fake.inventory(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breach_stops_the_load_within_15_s_at_the_intervals_of_a_real_run() {
    let Some(bench) = Bench::start() else { return };
    let (store, provider) = (bench.store().await, bench.provider(false, Kill::default(), quick()));
    let (place, mut request) = (bench.place(&provider), request(&plan("600s"), false));
    request.options.watch = WatchTimes::default();
    let running = run::execute(&store, &place, &request, bench.progress.clone(), bench.brake.clone());
    let harmed = async {
        let mut progress = bench.progress.subscribe();
        progress.wait_for(|progress| progress.state == "sampling" && progress.iops.is_some()).await.unwrap();
        bench.fake.run("pve.ceph['health'] = 'HEALTH_ERR'");
        let since = Instant::now();
        progress.wait_for(|progress| progress.state != "sampling").await.unwrap();
        since.elapsed()
    };
    let both = async { tokio::join!(running, harmed) };
    let (run, took) = tokio::time::timeout(PATIENCE, both).await.expect("the run ends in time");
    assert!(took <= Duration::from_secs(15), "{took:?}");
    let export = store.load_export(run.unwrap()).await.unwrap();
    let reason = export.run.reason.as_deref().unwrap();
    assert!(reason.contains("stopped by the guard: ceph: Ceph is in HEALTH_ERR"), "{reason}");
    assert!(export.cases[0].ops.read.as_ref().unwrap().count > 0, "what was measured is kept");
}
