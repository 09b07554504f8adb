//! The orchestrator is killed between any two steps of its journal in the database; the next one tears down what that records.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use hypervisor::Hypervisor;
use hypervisor::proxmox::Timing;
use serde_json::json;

use crate::fakes::quick;
use crate::followed::{Bench, Kill, plan, request};

/// Kills tried at a time, each with a cluster and a database of its own.
const AT_A_TIME: usize = 24;
/// Seconds that each task of the cluster takes.
const TASK_SECONDS: f64 = 0.3;

/// A call that is under way when the kill comes may take so long to show its effect, on a machine that is busy.
fn timing() -> Timing {
    Timing { in_flight: Duration::from_millis(1500), retry_within: Duration::from_secs(10), ..quick() }
}

/// From the empty cluster to running VMs, and by a cancellation back. True where it came to its end.
async fn live(bench: &Bench, kill: Kill) -> (bool, usize) {
    let (store, provider) = (bench.store().await, bench.provider(true, kill, timing()));
    let (place, request) = (bench.place(&provider), request(&plan("1s"), false));
    let cancel = async {
        while provider.started.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bench.brake.cancel("the user");
        std::future::pending::<()>().await;
    };
    let lived = tokio::select! {
        run = run::execute(&store, &place, &request, bench.progress.clone(), bench.brake.clone()) => run.is_ok(),
        () = provider.kill.killed.notified() => false,
        () = cancel => false,
    };
    // What was handed to the database by then is in it; after a process's death it would be now, or never.
    store.close().await.unwrap();
    (lived, provider.kill.operations.load(Ordering::Relaxed))
}

/// Kills at one operation, then starts again; what is wrong then, if anything.
async fn kill_and_restart(bench: Bench, at: usize, committed: bool) -> Option<String> {
    let before = bench.fake.inventory();
    let kill = Kill { at: Some((at, committed)), ..Kill::default() };
    let (lived, _) = live(&bench, kill).await;
    let problem = |what: String| Some(format!("operation {at}, committed {committed}: {what}"));
    if lived {
        return problem("it was not killed".into());
    }
    // What the next process finds on disk.
    let store = bench.store().await;
    let place = async |_| {
        let provider = bench.provider(true, Kill::default(), timing());
        Ok::<Box<dyn Hypervisor>, String>(Box::new(provider))
    };
    let ended = match run::recover(&store, place).await {
        Ok(ended) => ended,
        Err(error) => return problem(error.to_string()),
    };
    if ended.len() != 1 || !ended[0].left.is_empty() {
        return problem(format!("{ended:?}"));
    }
    let run = ended[0].run;
    let (export, open) = (store.load_export(run).await.unwrap(), store.open_intents(run).await.unwrap());
    // One that was being cancelled, and measured nothing, has ended as it was asked to.
    let state = if export.run.ended_early.is_some() { "cancelled" } else { "failed" };
    if export.run.state != state || !open.is_empty() {
        return problem(format!("{}, not {state}, still open: {open:#?}", export.run.state));
    }
    if bench.fake.get("pve.running_tasks()") != json!([]) {
        return problem(format!("tasks still run: {}", bench.fake.get("pve.running_tasks()")));
    }
    let after = bench.fake.inventory();
    (after != before).then(|| format!("operation {at}, committed {committed}: {after:#}\nbefore: {before:#}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_at_any_step_of_the_journal_leaves_the_cluster_as_it_was() {
    let start = || {
        let bench = Bench::start()?;
        bench.fake.run(&format!("pve.task_secs = {TASK_SECONDS}"));
        Some(bench)
    };
    let Some(bench) = start() else { return };
    let before = bench.fake.inventory();
    let (lived, operations) = live(&bench, Kill::default()).await;
    assert!(lived && operations >= 30, "{operations}");
    assert_eq!(bench.fake.inventory(), before);
    let kills = (0..operations).flat_map(|at| [(at, false), (at, true)]);
    let kills = kills.map(|(at, committed)| kill_and_restart(start().unwrap(), at, committed));
    let problems: Vec<String> =
        stream::iter(kills).buffer_unordered(AT_A_TIME).filter_map(async |it| it).collect().await;
    assert!(problems.is_empty(), "{} of {}: {}", problems.len(), 2 * operations, problems[0]);
}
