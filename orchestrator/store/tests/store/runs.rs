//! Runs, their states, events and journal; finding a run.

use crate::support::{Bench, new_run};
use analysis::export::{EarlyEnd, How, PlannedCase};
use serde_json::json;
use store::{Effect, Intent, LATEST, Level, Outcome, RunEnd, RunFilter, RunGroup, RunState};

#[tokio::test]
async fn a_run_goes_through_its_states_and_each_is_recorded() {
    let bench = Bench::new().await;
    let path = [RunState::Provisioning, RunState::Enrolling, RunState::Filling, RunState::Preconditioning];
    for state in path.into_iter().chain([RunState::Sampling, RunState::TearingDown]) {
        bench.store.set_run_state(bench.run, state).await.unwrap();
    }
    let backwards = bench.store.set_run_state(bench.run, RunState::Sampling).await.unwrap_err();
    assert!(backwards.to_string().ends_with("a run cannot go from tearing-down to sampling"), "{backwards}");
    let final_state = bench.store.set_run_state(bench.run, RunState::Done).await.unwrap_err();
    assert!(final_state.to_string().contains("from tearing-down to done"), "only finish_run ends a run: {final_state}");
    let end = RunEnd { state: RunState::Done, reason: None, planned_cases: 2 };
    assert!(!bench.store.finish_run(bench.run, &end).await.unwrap(), "no case of two is complete");
    let again = bench.store.finish_run(bench.run, &end).await.unwrap_err();
    assert!(again.to_string().contains("from done to done"), "{again}");

    let run = bench.store.load_export(bench.run).await.unwrap().run;
    assert_eq!(
        (run.state.as_str(), run.complete, run.reason.as_deref()),
        ("done", false, Some("0 of 2 cases are complete"))
    );
    assert!(run.finished.unwrap() >= run.started);
    let words: Vec<&str> =
        run.environment["transitions"].as_array().unwrap().iter().map(|t| t["state"].as_str().unwrap()).collect();
    assert_eq!(
        words,
        ["planned", "provisioning", "enrolling", "filling", "preconditioning", "sampling", "tearing-down", "done"]
    );
    assert_eq!(run.plan["workers"]["count"], 2);
    assert_eq!(run.plan_yaml, "name: two workers\n");
}

#[tokio::test]
async fn who_ended_a_run_early_is_kept_with_the_cases_that_were_not_run() {
    for (how, state, group) in [
        (How::Stop, RunState::Stopped, Some(RunGroup::Stopped)),
        (How::Cancel, RunState::Cancelled, Some(RunGroup::Cancelled)),
        (How::Stop, RunState::Failed, None),
    ] {
        let mut bench = Bench::new().await;
        let workload = bench.plan.workloads[0].clone();
        bench.plan.workloads.push(plan::Workload { name: "second".into(), ..workload });
        bench.plan.footprints.push(plan::Footprint { bytes: 2_000_000_000, label: "2GB".into() });
        bench.run = new_run(&bench.store, &bench.plan).await;
        bench.start_case(&crate::support::fleet()).await;
        assert_eq!(bench.store.early_end(bench.run).await.unwrap(), None);
        let end = EarlyEnd { how, by: "alice".into(), at: jiff::Timestamp::UNIX_EPOCH, not_run: Vec::new() };
        bench.store.set_early_end(bench.run, &end).await.unwrap();
        assert_eq!(bench.store.early_end(bench.run).await.unwrap(), Some(end.clone()));
        let ended = RunEnd { state, reason: Some("alice did it".into()), planned_cases: 4 };
        assert!(!bench.store.finish_run(bench.run, &ended).await.unwrap(), "it is not complete");

        let case =
            |footprint: &str, workload: &str| PlannedCase { footprint: footprint.into(), workload: workload.into() };
        let first = &bench.plan.workloads[0].name;
        let not_run = vec![case("1GB", "second"), case("2GB", first), case("2GB", "second")];
        let kept = group.map(|_| EarlyEnd { not_run, ..end });
        assert_eq!(bench.store.load_export(bench.run).await.unwrap().run.ended_early, kept, "{state}");
        for other in RunGroup::ALL.into_iter().filter(|group| matches!(group, RunGroup::Stopped | RunGroup::Cancelled))
        {
            let filter = RunFilter { state: Some(other), ..RunFilter::all(10) };
            let listed = bench.store.filter_runs(&filter).await.unwrap();
            assert_eq!(listed.iter().any(|run| run.id == bench.run), Some(other) == group, "{state}, {other:?}");
        }
        assert!(bench.store.unfinished_runs().await.unwrap().iter().all(|run| run.id != bench.run), "it has ended");
    }
}

#[tokio::test]
async fn a_run_without_cases_can_be_complete_only_if_none_were_planned() {
    let bench = Bench::new().await;
    bench.store.set_run_state(bench.run, RunState::TearingDown).await.unwrap();
    let end = RunEnd { state: RunState::Done, reason: None, planned_cases: 0 };
    assert!(bench.store.finish_run(bench.run, &end).await.unwrap());
    assert!(bench.store.run_summary(bench.run).await.unwrap().complete);
    assert!(bench.store.unfinished_runs().await.unwrap().is_empty());
}

#[tokio::test]
async fn events_and_warnings_are_kept_in_order() {
    let bench = Bench::new().await;
    for (level, message) in [(Level::Info, "first"), (Level::Error, "w2 was lost"), (Level::Warning, "third")] {
        bench.store.add_event(bench.run, level, message).await.unwrap();
    }
    for warning in ["no O_DIRECT", "said \"twice\"", "no O_DIRECT"] {
        bench.store.add_run_warning(bench.run, warning).await.unwrap();
    }
    bench.store.set_environment(bench.run, &json!({ "host": "here", "seed": "mine" })).await.unwrap();
    let run = bench.store.load_export(bench.run).await.unwrap().run;
    let events: Vec<(&str, &str)> =
        run.events.iter().map(|event| (event.level.as_str(), event.message.as_str())).collect();
    assert_eq!(events, [("info", "first"), ("error", "w2 was lost"), ("warning", "third")]);
    assert_eq!(run.warnings, ["no O_DIRECT", "said \"twice\""]);
    assert_eq!((&run.environment["host"], &run.environment["seed"]), (&json!("here"), &json!("mine")));
}

#[tokio::test]
async fn the_journal_knows_what_may_exist() {
    let bench = Bench::new().await;
    let details = json!({ "name": "fc-w1" });
    let intent = |kind, effect, object| Intent { kind, effect, object, details: &details };
    let create = bench.store.journal_intent(bench.run, &intent("create-vm", Effect::Create, None)).await.unwrap();
    let open = bench.store.open_intents(bench.run).await.unwrap();
    assert_eq!((open.len(), open[0].id, &open[0].intent, &open[0].task), (1, create, &details, &None));
    bench.store.journal_task(create, &json!("UPID:1")).await.unwrap();
    assert_eq!(bench.store.open_intents(bench.run).await.unwrap()[0].task, Some(json!("UPID:1")));
    assert!(bench.store.living_objects(bench.run).await.unwrap().is_empty(), "its outcome is not known");

    let ok = json!({});
    let outcome = |succeeded, object| Outcome { succeeded, object, details: &ok };
    bench.store.journal_outcome(create, &outcome(true, Some("vm:101"))).await.unwrap();
    let twice = bench.store.journal_outcome(create, &outcome(false, None)).await.unwrap_err();
    assert!(twice.to_string().contains("journal entry 1 has ended"), "{twice}");
    let refused =
        bench.store.journal_intent(bench.run, &intent("create-vm", Effect::Create, Some("vm:102"))).await.unwrap();
    bench.store.journal_outcome(refused, &outcome(false, None)).await.unwrap();
    let living =
        |entries: Vec<store::JournalEntry>| entries.into_iter().map(|entry| entry.object.unwrap()).collect::<Vec<_>>();
    assert_eq!(living(bench.store.living_objects(bench.run).await.unwrap()), ["vm:101"]);

    let destroy =
        bench.store.journal_intent(bench.run, &intent("destroy-vm", Effect::Destroy, Some("vm:101"))).await.unwrap();
    assert_eq!(living(bench.store.living_objects(bench.run).await.unwrap()), ["vm:101"], "not yet destroyed");
    bench.store.journal_outcome(destroy, &outcome(true, None)).await.unwrap();
    assert!(bench.store.living_objects(bench.run).await.unwrap().is_empty());
    assert!(bench.store.open_intents(bench.run).await.unwrap().is_empty());
    let anew =
        bench.store.journal_intent(bench.run, &intent("create-vm", Effect::Create, Some("vm:101"))).await.unwrap();
    bench.store.journal_outcome(anew, &outcome(true, None)).await.unwrap();
    assert_eq!(living(bench.store.living_objects(bench.run).await.unwrap()), ["vm:101"], "created anew after that");
}

#[tokio::test]
async fn a_run_is_found_by_what_is_unique() {
    let bench = Bench::new().await;
    let second = new_run(&bench.store, &bench.plan).await;
    assert_eq!(bench.store.find_run(LATEST).await.unwrap(), second);
    assert_eq!(bench.store.find_run(&bench.run.to_string().to_uppercase()).await.unwrap(), bench.run);
    let common: String = bench
        .run
        .to_string()
        .chars()
        .zip(second.to_string().chars())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a)
        .collect();
    let unique = &second.to_string()[..=common.len()];
    assert_eq!(bench.store.find_run(unique).await.unwrap(), second);
    let ambiguous = bench.store.find_run(&common).await.unwrap_err().to_string();
    for id in [bench.run, second] {
        assert!(ambiguous.contains(&id.to_string()), "{ambiguous}");
    }
    for asked in ["", "%", "ffffffff", "two workers"] {
        let error = bench.store.find_run(asked).await.unwrap_err().to_string();
        assert!(error.contains(&format!("no run is called {asked:?}")), "{error}");
        assert!(error.contains(&format!("{second} (two workers, planned)")), "{error}");
    }
    let ids: Vec<_> = bench.store.list_runs(10).await.unwrap().into_iter().map(|run| run.id).collect();
    assert_eq!(ids, [second, bench.run], "latest first");
    assert_eq!(bench.store.list_runs(1).await.unwrap().len(), 1);
}
