//! Runs that a person ends before their plan is through.

use std::sync::Arc;

use analysis::export::{Export, How};
use hypervisor::Hypervisor;
use run::Brake;
use store::{NewRun, RunId, RunState};

use crate::place::{Bench, Faults, PATIENCE};
use crate::plan;

/// Two footprints with two cases each. A window is long enough to be ended in the middle of it.
const FOUR_CASES: &str = "footprints: [4MiB, 8MiB]\nworkloads: [4k-random-read, 4k-random-write]";

/// Carries four cases out and ends them as `end` says once the run is in this state.
async fn ended_in(state: &str, precondition: &str, end: impl FnOnce(&Brake)) -> (RunId, Export, Arc<Bench>) {
    // Workers that never call are waited for until somebody ends the run.
    let bench = Bench::new(Faults { silent: state == "provisioning", ..Faults::default() }).await;
    let yaml = plan(FOUR_CASES).replace("sample: 1s", "sample: 3s").replace("precondition: 1s", precondition);
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&yaml).await }
    });
    bench.wait_for_state(state).await;
    end(&bench.brake);
    let (run, export) = running.await.unwrap();
    assert!(export.run.finished.is_some() && !export.run.complete);
    assert!(bench.store.living_objects(run).await.unwrap().is_empty() && bench.disk_files() == 0, "nothing is left");
    (run, export, bench)
}

fn not_run(export: &Export) -> Vec<(&str, &str)> {
    let end = export.run.ended_early.as_ref().unwrap();
    end.not_run.iter().map(|case| (&*case.footprint, &*case.workload)).collect()
}

fn has_event(export: &Export, words: &str) -> bool {
    export.run.events.iter().any(|event| event.message.contains(words))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_waits_for_the_result_of_the_case_that_is_measured_and_runs_no_other() {
    let (_, export, _bench) = ended_in("sampling", "precondition: 1s", |brake| brake.stop("alice")).await;
    let reason = export.run.reason.as_deref();
    assert_eq!((export.run.state.as_str(), reason), ("stopped", Some("stopped by alice; 3 cases were not run")));
    let case = &export.cases[0];
    assert_eq!((export.cases.len(), case.state.as_str(), case.window_seconds), (1, "complete", 3.0), "{case:?}");
    let rest = [("4MiB", "4k-random-write"), ("8MiB", "4k-random-read"), ("8MiB", "4k-random-write")];
    assert_eq!(not_run(&export), rest);
    let end = export.run.ended_early.as_ref().unwrap();
    assert_eq!((end.how, end.by.as_str()), (How::Stop, "alice"));
    assert!(end.at >= export.run.started && end.at <= export.run.finished.unwrap());
    assert!(has_event(&export, "alice stops the run") && has_event(&export, "3 cases were not run"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_after_a_stop_cuts_the_case_and_keeps_what_was_measured() {
    let (_, export, _bench) = ended_in("sampling", "precondition: 1s", |brake| {
        brake.stop("alice");
        brake.cancel("bob");
    })
    .await;
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("cancelled", Some("cancelled by bob")));
    let case = &export.cases[0];
    assert_eq!((export.cases.len(), case.state.as_str()), (1, "cancelled"));
    assert!(case.window_seconds < 3.0 && case.reason.as_deref().unwrap().contains("the run was cancelled"), "{case:?}");
    assert_eq!(not_run(&export).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_while_nothing_is_measured_ends_the_run_at_once() {
    let (_, export, _bench) = ended_in("preconditioning", "precondition: 90s", |brake| brake.stop("alice")).await;
    assert_eq!(export.run.state, "stopped");
    let case = &export.cases[0];
    assert_eq!((export.cases.len(), case.state.as_str()), (1, "cancelled"), "it has no result");
    assert!(
        case.ops.all.is_none() && case.reason.as_deref().unwrap().contains("stopped before the window"),
        "{case:?}"
    );
    assert_eq!(not_run(&export).len(), 3);

    let (_, export, _bench) = ended_in("provisioning", "precondition: 1s", |brake| brake.stop("alice")).await;
    assert_eq!((export.run.state.as_str(), export.cases.len()), ("stopped", 0));
    assert_eq!(not_run(&export).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_in_the_last_case_leaves_nothing_out() {
    let bench = Bench::new(Faults::default()).await;
    let running = tokio::spawn({
        let bench = Arc::clone(&bench);
        async move { bench.run(&plan(crate::ONE_CASE)).await }
    });
    bench.wait_for_state("sampling").await;
    bench.brake.stop("alice");
    let (_, export) = running.await.unwrap();
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", true), "{:?}", export.run.reason);
    assert_eq!(export.run.ended_early, None, "it ended by itself");
}

/// A run of which an orchestrator that was killed left this.
async fn recovered(state: RunState, how: Option<How>) -> Export {
    let bench = Bench::new(Faults::default()).await;
    let plan = plan::parse("plan.yaml", &plan(FOUR_CASES), &plan::Profiles::shipped()).unwrap();
    let environment = serde_json::json!({});
    let new = NewRun { plan: &plan, plan_yaml: "", environment: &environment, seed: 1 };
    let run = bench.store.create_run(&new).await.unwrap();
    for state in [RunState::Provisioning, RunState::Enrolling, RunState::Filling, state] {
        bench.store.set_run_state(run, state).await.unwrap();
    }
    if let Some(how) = how {
        let brake = Brake::default();
        brake.ask(how, "alice");
        bench.store.set_early_end(run, &brake.asked().unwrap()).await.unwrap();
    }
    let place = {
        let bench = Arc::clone(&bench);
        async move |_| Ok(Box::new(bench.place_anew()) as Box<dyn Hypervisor>)
    };
    let recovered = tokio::time::timeout(PATIENCE, run::recover(&bench.store, place)).await.unwrap().unwrap();
    assert_eq!(recovered.len(), 1);
    let export = bench.store.load_export(run).await.unwrap();
    assert_eq!(recovered[0].state.as_str(), export.run.state, "what is told is what is stored");
    export
}

#[tokio::test]
async fn a_run_that_was_killed_while_it_ended_early_has_ended_as_it_was_asked_to() {
    let stopped = recovered(RunState::TearingDown, Some(How::Stop)).await;
    assert_eq!(stopped.run.state, "stopped");
    assert_eq!((not_run(&stopped).len(), stopped.run.ended_early.as_ref().unwrap().by.as_str()), (4, "alice"));
    let cancelled = recovered(RunState::TearingDown, Some(How::Cancel)).await;
    assert_eq!(
        (cancelled.run.state.as_str(), cancelled.run.reason.as_deref()),
        ("cancelled", Some("cancelled by alice"))
    );
    let nobody = recovered(RunState::TearingDown, None).await;
    assert_eq!((nobody.run.state.as_str(), nobody.run.ended_early), ("failed", None));
}
