//! Lists with filters, notes, and the deletion of runs.

use analysis::case::Ending;
use serde_json::json;
use store::{Effect, Intent, Outcome, Refusal, RunEnd, RunFilter, RunGroup, RunState, StoreError};
use worker_protocol::Phase;

use crate::files::sqlite3;
use crate::support::{Bench, fleet, new_run};

/// Ends the bench's run as failed, with all kinds of rows in it.
async fn ended(bench: &Bench) {
    let fleet = fleet();
    let case = bench.start_case(&fleet).await;
    bench.all_ticks(case, &fleet).await;
    for worker in &fleet {
        bench.finished(case, worker).await;
    }
    let fill =
        store::DiskFill { worker: "w1".into(), disk: "w1-d0".into(), bytes: 1, seconds: 1.0, verified_blocks: 1 };
    let fill = store::NewFill { footprint_bytes: 1_000_000_000, seconds: 1.0, disks: vec![fill] };
    bench.store.add_fill(bench.run, &fill).await.unwrap();
    let sample = store::NewHostSample { at: jiff::Timestamp::now(), hosts: Vec::new(), storage: None };
    bench.store.add_host_sample(case, &sample).await.unwrap();
    let result = bench.store.evaluate_case(case, Ending::Ran).await.unwrap();
    bench.store.finish_case(case, &result).await.unwrap();
    bench.store.add_event(bench.run, store::Level::Info, "it ran").await.unwrap();
    let end = RunEnd { state: RunState::Failed, reason: Some("a test".into()), planned_cases: 2 };
    bench.store.finish_run(bench.run, &end).await.unwrap();
}

/// Rows of every table that a run has rows in: whatever refers to a run, directly or through another table.
fn rows(bench: &Bench) -> Option<String> {
    let tables = "WITH RECURSIVE belongs (name) AS (VALUES ('runs') UNION SELECT t.name FROM belongs, pragma_table_list AS t, \
        pragma_foreign_key_list(t.name) AS f WHERE t.type = 'table' AND f.\"table\" = belongs.name) \
        SELECT group_concat('SELECT ''' || name || ''', count(*) FROM ' || name, ' UNION ALL ') FROM belongs";
    let count = sqlite3(bench.store.file(), tables)?;
    assert!(count.matches("count(*)").count() >= 12, "{count}");
    sqlite3(bench.store.file(), &count)
}

#[tokio::test]
async fn a_deleted_run_leaves_no_row_and_others_all_of_theirs() {
    let bench = Bench::new().await;
    let goes_on = bench.store.delete_run(bench.run, true).await.unwrap_err().to_string();
    assert!(goes_on.contains("the run is in state planned; only a run that has ended can be deleted"), "{goes_on}");
    ended(&bench).await;
    // A sample's histograms are there until its case is merged; a run that was killed keeps some.
    let other = Bench::new().await;
    let fleet = fleet();
    let case = other.start_case(&fleet).await;
    other.tick(case, &fleet, Phase::Sample, 0).await;
    let end = RunEnd { state: RunState::Failed, reason: None, planned_cases: 1 };
    other.store.finish_run(other.run, &end).await.unwrap();
    for bench in [&bench, &other] {
        let (kept, Some(before)) = (new_run(&bench.store, &bench.plan).await, rows(bench)) else {
            println!("skipped: sqlite3 is not installed");
            return;
        };
        assert!(before.contains("runs|2") && !before.contains("worker_seconds|0"), "{before}");
        bench.store.delete_run(bench.run, false).await.unwrap();
        let after = rows(bench).unwrap();
        // The other run was only planned.
        let left: Vec<&str> = after.lines().filter(|line| !line.ends_with("|0")).collect();
        assert_eq!(left, ["runs|1", "run_transitions|1"], "{after}");
        assert_eq!(bench.store.list_runs(10).await.unwrap().iter().map(|run| run.id).collect::<Vec<_>>(), [kept]);
        assert!(bench.store.delete_run(bench.run, false).await.unwrap_err().to_string().contains("there is no run"));
        assert!(bench.store.load_export(bench.run).await.is_err());
    }
}

/// A run's report and the logs of its fleets, and those of another run.
fn files(bench: &Bench, other: store::RunId) -> Vec<(std::path::PathBuf, bool)> {
    let dir = store::DataDir::new(bench.dir.path());
    let fleet = |run: store::RunId, number: u32| dir.logs().join(format!("{run}-{number}"));
    let logs = [(fleet(bench.run, 1), true), (fleet(bench.run, 12), true), (fleet(other, 1), false)];
    for (logs, _) in &logs {
        std::fs::create_dir_all(logs.join("monitors")).unwrap();
        std::fs::write(logs.join("worker-1.log"), "x").unwrap();
    }
    let reports = [(dir.report(bench.run), true), (dir.report(other), false)];
    std::fs::create_dir_all(reports[0].0.parent().unwrap()).unwrap();
    reports.iter().for_each(|(report, _)| std::fs::write(report, "x").unwrap());
    logs.into_iter().chain(reports).collect()
}

#[tokio::test]
async fn a_deleted_run_leaves_no_file_and_others_all_of_theirs() {
    let bench = Bench::new().await;
    ended(&bench).await;
    let other = new_run(&bench.store, &bench.plan).await;
    let files = files(&bench, other);
    bench.store.delete_run(other, true).await.unwrap_err();
    assert!(files.iter().all(|(path, _)| path.exists()), "nothing goes where a deletion is refused");
    bench.store.delete_run(bench.run, false).await.unwrap();
    for (path, its) in files {
        assert_eq!(path.exists(), !its, "{}", path.display());
    }
}

#[tokio::test]
async fn a_deletion_that_broke_off_says_what_is_gone_and_is_completed_by_the_next() {
    let bench = Bench::new().await;
    ended(&bench).await;
    let other = new_run(&bench.store, &bench.plan).await;
    let files = files(&bench, other);
    // A report that nobody can remove, not even root.
    let report = store::DataDir::new(bench.dir.path()).report(bench.run);
    let reports = report.parent().unwrap();
    std::fs::rename(reports, reports.with_extension("aside")).unwrap();
    std::fs::write(reports, "no directory").unwrap();
    let error = bench.store.delete_run(bench.run, false).await.unwrap_err();
    let words = error.to_string();
    let StoreError::HalfDeleted { removed, gone: false, .. } = error else { panic!("{words}") };
    assert_eq!(removed, files[..2].iter().map(|(path, _)| path.clone()).collect::<Vec<_>>());
    assert!(
        words.contains(&report.display().to_string())
            && words.ends_with("The run is still there, with all that it measured"),
        "{words}"
    );
    assert!(bench.store.load_export(bench.run).await.is_ok(), "it is listed until its files are gone");
    std::fs::remove_file(reports).unwrap();
    std::fs::rename(reports.with_extension("aside"), reports).unwrap();
    bench.store.delete_run(bench.run, false).await.unwrap();
    assert!(!report.exists() && bench.store.run_summary(bench.run).await.is_err());
}

#[tokio::test]
async fn what_a_run_left_behind_is_not_forgotten_unasked() {
    let bench = Bench::new().await;
    let (details, outcome) = (json!({}), json!({}));
    let intent = |kind, object| Intent { kind, effect: Effect::Create, object, details: &details };
    let made = bench.store.journal_intent(bench.run, &intent("create-vm", None)).await.unwrap();
    let outcome = Outcome { succeeded: true, object: Some("vm:101"), details: &outcome };
    bench.store.journal_outcome(made, &outcome).await.unwrap();
    bench.store.journal_intent(bench.run, &intent("create-disk", None)).await.unwrap();
    let end = RunEnd { state: RunState::Failed, reason: None, planned_cases: 0 };
    bench.store.finish_run(bench.run, &end).await.unwrap();
    let refused = bench.store.delete_run(bench.run, false).await.unwrap_err().to_string();
    assert!(refused.ends_with("does not say that these were removed: vm:101, create-disk"), "{refused}");
    assert!(bench.store.run_summary(bench.run).await.is_ok());
    bench.store.delete_run(bench.run, true).await.unwrap();
    assert!(bench.store.run_summary(bench.run).await.is_err());
}

#[tokio::test]
async fn runs_are_found_by_state_name_note_and_age() {
    let bench = Bench::new().await;
    ended(&bench).await;
    let running = new_run(&bench.store, &bench.plan).await;
    bench.store.set_note(bench.run, "node 3 had a Failed disk, 100% sure").await.unwrap();
    let found = async |filter: RunFilter| -> Vec<store::RunId> {
        bench.store.filter_runs(&filter).await.unwrap().into_iter().map(|run| run.id).collect()
    };
    let all = || RunFilter::all(10);
    let text = |words: &str| RunFilter { text: Some(words.into()), ..all() };
    assert_eq!(found(all()).await, [running, bench.run]);
    assert_eq!(found(RunFilter { state: Some(RunGroup::GoingOn), ..all() }).await, [running]);
    assert_eq!(found(RunFilter { state: Some(RunGroup::Failed), ..all() }).await, [bench.run]);
    assert!(found(RunFilter { state: Some(RunGroup::Complete), ..all() }).await.is_empty());
    assert_eq!(found(text("TWO WORK")).await, [running, bench.run]);
    assert_eq!(found(text("failed disk")).await, [bench.run]);
    assert_eq!(found(text("100%")).await, [bench.run], "a percent sign is one");
    assert!(found(text("_")).await.is_empty());
    bench.store.set_note(running, "Messung in MÜNCHEN, Προς τα ΠΆΝΩ").await.unwrap();
    for words in ["münchen", "München", "MÜNCHEN", "πάνω", "ΠΡΟΣ"] {
        assert_eq!(found(text(words)).await, [running], "{words}");
    }
    assert_eq!(found(RunFilter { limit: 1, ..text("two work") }).await, [running], "the latest of those that have it");
    assert_eq!(found(RunFilter { before: Some(running), ..all() }).await, [bench.run]);
    assert_eq!(bench.store.run_summary(bench.run).await.unwrap().note, "node 3 had a Failed disk, 100% sure");
    for group in RunGroup::ALL {
        assert_eq!(RunGroup::from_word(group.as_str()), Some(group));
    }
}

/// Two administrators, or a double click: the run is gone for each, and nobody is told that it is still there.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_several_delete_at_once_is_gone_for_each_of_them() {
    let bench = Bench::new().await;
    ended(&bench).await;
    let (store, run) = (&bench.store, bench.run);
    let ends = futures_util::future::join_all((0..8).map(|_| store.delete_run(run, false))).await;
    assert!(ends.iter().any(Result::is_ok));
    for error in ends.into_iter().filter_map(Result::err) {
        let absent =
            matches!(&error, store::StoreError::Refused { reason, .. } if matches!(**reason, Refusal::Absent { .. }));
        assert!(absent, "{error}");
    }
    assert!(store.run_summary(run).await.is_err());
}
