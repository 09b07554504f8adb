//! Pages over a real store: what it keeps, what it refuses, and what is known of the run under way.

use std::fs;
use std::sync::Arc;

use analysis::export::How;
use axum::http::{Method, StatusCode};
use futures_util::future::BoxFuture;
use plan::{Profiles, TestPlan};
use serde_json::{Value, json};
use store::{DataDir, Effect, Intent, MAX_PROFILES, NewCase, NewRun, Outcome, Role, RunEnd, RunId, RunState, Store};
use uuid::Uuid;
use web::{
    AllowedHosts, Answer, App, Beat, Findings, Hub, Onlooker, Parts, SoFar, StartError, StoreSource, Wanted, Workshop,
};

use crate::client::{Client, Interface};
use crate::samples;
use crate::source::{add_user, new_store};

/// An interface over a store of its own.
async fn interface(workshop: impl FnOnce(&Store) -> Arc<dyn Workshop>) -> Interface {
    let (directory, store) = new_store().await;
    let workshop = workshop(&store);
    let listening = "127.0.0.1:8440".parse().unwrap();
    let runs = Arc::new(StoreSource::new(store.clone(), Arc::clone(workshop.hub())));
    let hosts = AllowedHosts::listening_on(listening);
    let app = App::new(Parts { runs, workshop, store: store.clone(), hosts, listening, secure: false }).unwrap();
    for (name, role) in [("admin", Role::Admin), ("viewer", Role::Viewer)] {
        add_user(&store, name, role).await;
    }
    Interface::of(directory, store, app)
}

fn demo() -> TestPlan {
    plan::parse("demo", plan::DEMO_PLAN, &Profiles::shipped()).unwrap()
}

async fn new_run(store: &Store) -> RunId {
    let (plan, environment) = (demo(), json!({}));
    let new = NewRun { plan: &plan, plan_yaml: plan::DEMO_PLAN, environment: &environment, seed: 7 };
    store.create_run(&new).await.unwrap()
}

async fn failed_run(store: &Store) -> RunId {
    let run = new_run(store).await;
    let end = RunEnd { state: RunState::Failed, reason: Some("a test".into()), planned_cases: 1 };
    store.finish_run(run, &end).await.unwrap();
    run
}

#[tokio::test]
async fn the_page_of_the_case_under_way_has_the_figures_so_far_and_no_other_page_has() {
    let hub = Arc::new(Hub::default());
    let interface = interface(|_| Arc::new(Onlooker::new(Arc::clone(&hub)))).await;
    let (store, plan, run) = (&interface.store, demo(), new_run(&interface.store).await);
    for state in [RunState::Provisioning, RunState::Enrolling, RunState::Filling] {
        store.set_run_state(run, state).await.unwrap();
    }
    store.set_run_state(run, RunState::Sampling).await.unwrap();
    for ordinal in 0..2 {
        let footprint = &plan.footprints[0];
        let new = NewCase {
            ordinal,
            footprint,
            region_bytes: plan.region_bytes(footprint),
            effective_bytes: plan.effective_bytes(footprint),
            workload: &plan.workloads[usize::try_from(ordinal).unwrap()],
            precondition_seconds: 1,
            sample_seconds: 5,
            expected_workers: 2,
            reads_unwritten: false,
            workers: Vec::new(),
        };
        store.start_case(run, &new).await.unwrap();
    }
    hub.begin(run.0, jiff::Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
    let ops = samples::demo().cases[0].ops.clone();
    let so_far = Some(SoFar { ordinal: 1, workers: 2, seconds: 3, ops });
    hub.beat(Beat { layout: Some(Vec::new()), so_far, ..Beat::default() });
    let viewer = interface.log_in("viewer").await;
    let shows = async |path: String| viewer.get(&path).await.body.contains("48,000");
    assert!(shows(format!("/runs/{}", run.0)).await, "the whole report");
    assert!(shows(format!("/runs/{}/cases/2", run.0)).await, "the case under way");
    assert!(!shows(format!("/runs/{}/cases/1", run.0)).await, "another one");
    assert_eq!(viewer.get(&format!("/runs/{}/cases/3", run.0)).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_deleted_run_takes_its_files_along_and_a_deletion_that_broke_off_says_what_is_gone() {
    let interface = interface(|_| Arc::new(Onlooker::default())).await;
    let admin = interface.log_in("admin").await;
    let run = failed_run(&interface.store).await;
    let dir = DataDir::new(interface.store.file().parent().unwrap());
    let logs = dir.logs().join(format!("{run}-1"));
    fs::create_dir_all(&logs).unwrap();
    fs::write(logs.join("worker-1.log"), "x").unwrap();
    // Where the reports' directory should be, there is a file: nobody can remove a report from it.
    let reports = dir.report(run).parent().unwrap().to_owned();
    fs::write(&reports, "x").unwrap();
    let path = format!("/runs/{run}/delete");
    let broken = admin.post(&path, &[]).await;
    assert_eq!(broken.status, StatusCode::INTERNAL_SERVER_ERROR);
    for part in [
        "Not all of the run was deleted",
        &format!("Removed were {}", logs.display()),
        "the run itself is still there",
        "then delete the run again",
    ] {
        assert!(broken.body.contains(part), "{part}: {}", broken.body);
    }
    assert!(!broken.body.contains("Nothing was") && !logs.exists(), "{}", broken.body);
    assert!(admin.get("/").await.body.contains(&run.to_string()), "it is listed");
    fs::remove_file(&reports).unwrap();
    fs::create_dir(&reports).unwrap();
    fs::write(dir.report(run), "x").unwrap();
    assert_eq!(admin.post(&path, &[]).await.location(), "/");
    assert!(!dir.report(run).exists() && !admin.get("/").await.body.contains(&run.to_string()));
}

/// What is no fault of the store is no fault of the server, and says what to do.
#[tokio::test]
async fn what_the_store_refuses_is_told_with_its_remedy() {
    let interface = interface(|_| Arc::new(Onlooker::default())).await;
    let admin = interface.log_in("admin").await;
    let profile = |name: &str| {
        format!(
            "name: {name}\ndescription: x\nblock: 8KiB\npattern: random\nread_percent: 70\noutstanding_per_disk: 4\n"
        )
    };
    for number in 0..MAX_PROFILES {
        let name = format!("p{number}");
        interface.store.put_profile(&name, &profile(&name)).await.unwrap();
    }
    let one_more = admin.post("/profiles/new", &[("yaml", &profile("one-more"))]).await;
    assert_eq!(one_more.status, StatusCode::CONFLICT, "{}", one_more.body);
    for part in ["There are 500 own profiles already", "Delete one", "name: one-more"] {
        assert!(one_more.body.contains(part), "{part}: {}", one_more.body);
    }
    let replaced = admin.post("/profiles/new", &[("yaml", &profile("p7")), ("was", "p7")]).await;
    assert_eq!(replaced.location(), "/profiles", "{}", replaced.body);

    let (failed, goes_on) = (failed_run(&interface.store).await, new_run(&interface.store).await);
    leave_behind(&interface.store, failed).await;
    for (run, words) in [(failed, "Tear them down first"), (goes_on, "Wait for its end, or stop it")] {
        let refused = admin.call(Method::DELETE, &format!("/api/v1/runs/{run}"), Value::Null).await;
        assert_eq!(refused.status, StatusCode::CONFLICT, "{}", refused.body);
        assert!(refused.json()["error"]["remedy"].as_str().unwrap().contains(words), "{}", refused.body);
    }
    let taken = admin.call(Method::POST, "/api/v1/users", json!({"name": "viewer", "role": "viewer"})).await;
    assert_eq!(taken.status, StatusCode::CONFLICT, "{}", taken.body);
    assert!(taken.json()["error"]["remedy"].as_str().unwrap().contains("Choose another name"), "{}", taken.body);
    // On a page, the message after a form has both.
    assert_eq!(admin.post("/users", &[("name", "viewer"), ("role", "viewer")]).await.location(), "/users");
    let page = admin.get("/users").await.body;
    assert!(page.contains("There is a user") && page.contains("What to do: Choose another name."), "{page}");
}

async fn leave_behind(store: &Store, run: RunId) {
    let details = json!({});
    let intent = Intent { kind: "create-vm", effect: Effect::Create, object: None, details: &details };
    let made = store.journal_intent(run, &intent).await.unwrap();
    let outcome = Outcome { succeeded: true, object: Some("vm:101"), details: &details };
    store.journal_outcome(made, &outcome).await.unwrap();
}

/// Removes one of two things, then fails.
struct Half {
    hub: Arc<Hub>,
    left: std::sync::Mutex<Vec<String>>,
    removes: bool,
}

impl Workshop for Half {
    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn start(&self, _: TestPlan, _: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        Box::pin(async { Err(StartError::Closed("it only tears down")) })
    }

    fn end<'a>(&'a self, _: Uuid, _: How, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }

    fn left(&self, _: Uuid) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(self.left.lock().unwrap().clone()) })
    }

    fn tear_down(&self, _: Uuid) -> BoxFuture<'_, Result<Vec<String>, String>> {
        if self.removes {
            self.left.lock().unwrap().remove(0);
        }
        Box::pin(async { Err("the cluster does not answer".to_owned()) })
    }

    fn findings<'a>(&'a self, _: &'a TestPlan, _: Wanted) -> BoxFuture<'a, Findings> {
        Box::pin(async { Findings::default() })
    }
}

async fn tear_down_fails(removes: bool) -> String {
    let left = std::sync::Mutex::new(vec!["VM 101".to_owned(), "VM 102".to_owned()]);
    let interface = interface(|_| Arc::new(Half { hub: Arc::default(), left, removes })).await;
    let admin: Client<'_> = interface.log_in("admin").await;
    let run = failed_run(&interface.store).await;
    let page = format!("/runs/{run}");
    assert_eq!(admin.post(&format!("{page}/tear-down"), &[]).await.location(), page);
    let body = admin.get(&page).await.body;
    assert!(body.contains("the cluster does not answer") && body.contains("What to do: Set that right"), "{body}");
    body
}

#[tokio::test]
async fn a_tear_down_that_broke_off_says_what_is_gone() {
    let some = tear_down_fails(true).await;
    assert!(some.contains("Removed before that:\nVM 101</p>") && !some.contains("Nothing was removed"), "{some}");
    let none = tear_down_fails(false).await;
    assert!(none.contains("Nothing was removed: the cluster does not answer."), "{none}");
}

#[tokio::test]
async fn the_list_leads_to_a_new_test_and_keeps_its_filter() {
    let interface = interface(|_| Arc::new(Onlooker::default())).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let main = |body: String| body.split("<main").nth(1).unwrap().to_owned();
    assert!(main(admin.get("/").await.body).contains("href=\"/new\""));
    let empty = main(viewer.get("/").await.body);
    assert!(!empty.contains("/new") && empty.contains("an administrator starts one"), "{empty}");

    let mut runs = Vec::new();
    for _ in 0..102 {
        runs.push(failed_run(&interface.store).await);
    }
    let first = viewer.get("/?state=failed&text=D%C3%89MO").await.body;
    assert!(first.contains("No run is like that"), "{first}");
    let first = viewer.get("/?state=failed&text=DEMO").await.body;
    let older = format!("/?state=failed&#38;text=DEMO&#38;before={}", runs[2]);
    assert!(first.contains(&format!("href=\"{older}\"")) && !first.contains("Newest runs"), "{first}");
    let later = viewer.get(&older.replace("&#38;", "&")).await.body;
    assert!(later.contains("<a href=\"/?state=failed&#38;text=DEMO\">Newest runs</a>"), "{later}");
    let unfiltered = viewer.get(&format!("/?before={}", runs[2])).await.body;
    assert!(unfiltered.contains("<a href=\"/\">Newest runs</a>"), "{unfiltered}");
}
