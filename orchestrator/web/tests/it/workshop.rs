//! Plans, profiles, the run under way and comparisons, asked for as a browser does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use analysis::export::{EarlyEnd, Event, HostLoad, How, PlannedCase, Second, SecondOp, StorageHealth};
use axum::body::Body;
use axum::http::{Method, StatusCode, header};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use plan::TestPlan;
use serde_json::Value;
use tower::ServiceExt as _;
use uuid::Uuid;
use web::{
    Answer, Beat, CaseSecond, DiskBeat, Finding, Findings, Health, Hub, LiveEnd, LiveProgress, StartError, Wanted,
    Workshop,
};

use crate::client::{Client, Interface};
use crate::router::ID;
use crate::samples;

/// Takes notes of what it is asked, and does nothing.
#[derive(Default)]
struct Notes {
    hub: Arc<Hub>,
    started: Mutex<Vec<String>>,
    /// Names of the plans that were rehearsed.
    rehearsed: Mutex<Vec<String>>,
    /// What was to end how, and for whom.
    ended: Mutex<Vec<(Uuid, How, String)>>,
    left: Mutex<Vec<String>>,
    /// What stays when the rest is removed.
    stuck: Mutex<Vec<String>>,
}

impl Workshop for Notes {
    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn start(&self, plan: TestPlan, yaml: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        Box::pin(async move {
            if plan.rehearsal {
                self.rehearsed.lock().unwrap().push(plan.name);
                return Ok(ID.parse().unwrap());
            }
            let mut started = self.started.lock().unwrap();
            started.push(yaml);
            match started.len() {
                1 => Ok(ID.parse().unwrap()),
                _ => Err(StartError::Busy { id: Some(ID.parse().unwrap()), name: plan.name }),
            }
        })
    }

    fn end<'a>(&'a self, id: Uuid, how: How, by: &'a str) -> BoxFuture<'a, bool> {
        self.ended.lock().unwrap().push((id, how, by.to_owned()));
        Box::pin(async move { id == ID.parse::<Uuid>().unwrap() })
    }

    fn left(&self, _: Uuid) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(self.left.lock().unwrap().clone()) })
    }

    fn tear_down(&self, _: Uuid) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async {
            let stuck = self.stuck.lock().unwrap().clone();
            self.left.lock().unwrap().clone_from(&stuck);
            Ok(stuck)
        })
    }

    fn findings<'a>(&'a self, _: &'a TestPlan, _: Wanted) -> BoxFuture<'a, Findings> {
        let finding =
            |severity, message: &str| Finding { severity, message: message.into(), remedy: "Make room.".into() };
        let list = vec![finding("warning", "the disk is <b>nearly</b> full")];
        Box::pin(std::future::ready(Findings { list, ..Findings::default() }))
    }
}

pub(crate) fn begin(hub: &Hub) {
    let plan = plan::parse("demo", plan::DEMO_PLAN, &plan::Profiles::shipped()).unwrap();
    hub.begin(ID.parse().unwrap(), Timestamp::now(), &plan, &plan::schedule(&plan, plan::FillRate::assumed()));
}

/// The same where hosts and storage tell how they are.
pub(crate) fn begin_on_cluster(hub: &Hub) {
    let plan = plan::parse("pve", plan::example("proxmox").unwrap(), &plan::Profiles::shipped()).unwrap();
    let schedule = plan::schedule(&plan, plan::FillRate::assumed());
    hub.begin(ID.parse().unwrap(), Timestamp::now(), &plan, &schedule);
}

/// A host, the storage, a warning and a word of the guard.
pub(crate) fn health_beat(cpu_percent: f64, status: &str) -> Beat {
    let load = HostLoad {
        host: "<i>pve1</i>".into(),
        cpu_percent: Some(cpu_percent),
        memory_used_bytes: Some(3 << 30),
        memory_bytes: Some(8 << 30),
        io_pressure_percent: Some(7.0),
        io_wait_percent: None,
    };
    let storage = StorageHealth {
        status: status.into(),
        checks: vec!["OSD_DOWN".into()],
        recovery_bytes_per_second: 5 << 20,
        displaced_percent: 12.5,
        scrubbing: 2,
    };
    let health = Health { at: Timestamp::now(), hosts: vec![load], storage: Some(storage) };
    let message = format!("the guard cannot look at the place (no route at {cpu_percent})");
    let event = Event { at: Timestamp::now(), level: "warning".into(), message };
    let warnings = Some(vec!["worker-1 was moved to pve2".to_owned()]);
    Beat { health: Some(health), events: vec![event], warnings, ..Beat::default() }
}

pub(crate) fn beat(at: u32) -> Beat {
    let op = SecondOp { iops: 10.0, mib_per_s: 1.0, mean_us: 5.0, p50_us: 4.0, p99_us: 7.0, max_us: 8.0 };
    let disks = [("w1".to_owned(), vec![DiskBeat { count: 10, sum_ns: 50_000, max_ns: 8_000, errors: 0 }])];
    let second = Second { t: at, read: Some(op), write: None };
    let second = CaseSecond { at, second: Some(second), asked: (true, false), disks: BTreeMap::from(disks) };
    let progress = LiveProgress {
        state: "sampling".into(),
        step: "1GiB: <i>x</i>".into(),
        step_index: 3,
        ..LiveProgress::default()
    };
    Beat { seconds: vec![second], progress: Some(progress), ..Beat::default() }
}

/// The next `count` messages of the feed: id, name and data.
async fn feed(
    client: &Client<'_>,
    interface: &Interface,
    query: &str,
    last: Option<&str>,
    count: usize,
) -> Vec<(String, String, Value)> {
    let mut request = client.request(Method::GET, &format!("/runs/{ID}/feed{query}"));
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = interface.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    let mut stream = response.into_body().into_data_stream();
    let mut text = String::new();
    while text.matches("\n\n").count() < count {
        let next = tokio::time::timeout(Duration::from_secs(60), stream.next()).await.unwrap();
        let Some(next) = next else { break };
        text.push_str(std::str::from_utf8(&next.unwrap()).unwrap());
    }
    text.split("\n\n").filter(|part| !part.is_empty()).map(message).collect()
}

fn message(text: &str) -> (String, String, Value) {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|value| value.trim_start_matches(':').trim().to_owned()).unwrap_or_default()
    };
    (field("id"), field("event"), serde_json::from_str(&field("data")).unwrap())
}

#[tokio::test]
async fn a_plan_is_judged_changed_downloaded_and_started_once() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(vec![samples::demo()], notes.clone()).await;
    let admin = interface.log_in("admin").await;
    let page = admin.get("/new").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("count: 2") && page.body.contains("Start this test"));
    assert!(page.body.contains("the disk is &#60;b&#62;nearly&#60;/b&#62; full"), "a finding is text");

    let bad = plan::DEMO_PLAN.replace("count: 2", "count: </textarea><script>1</script>");
    let judged = admin.post("/new/check", &[("yaml", &bad)]).await;
    let line = plan::DEMO_PLAN.lines().position(|line| line.contains("count: 2")).unwrap() + 1;
    assert!(
        judged.body.contains(&format!("data-line=\"{line}\"")) && judged.body.contains("data-field=\"workers.count\""),
        "{}",
        judged.body
    );
    assert!(!judged.body.contains("<script>1"), "{}", judged.body);
    let again = admin.post("/new", &[("yaml", &bad), ("action", "start")]).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    assert!(again.body.contains("Nothing was started") && !again.body.contains("</textarea><script>1"));
    assert_eq!(notes.started.lock().unwrap().len(), 0);

    let edited =
        admin.post("/new/edit", &[("yaml", plan::DEMO_PLAN), ("field", "workers.count"), ("value", "7")]).await.json();
    assert_eq!(edited["yaml"], plan::DEMO_PLAN.replace("count: 2", "count: 7"));
    let refused = admin.post("/new/edit", &[("yaml", "a: ["), ("field", "name"), ("value", "x")]).await.json();
    assert!(refused["why"].as_str().unwrap().contains("YAML"));
    assert_eq!(
        admin.post("/new/check", &[("yaml", plan::DEMO_PLAN), ("cache", "4K")]).await.status,
        StatusCode::UNPROCESSABLE_ENTITY
    );

    let file = admin.post("/new", &[("yaml", "name: ../../x\r\ny: 1"), ("action", "download")]).await;
    assert_eq!(file.body, "name: ../../x\ny: 1");
    assert_eq!(file.headers[header::CONTENT_DISPOSITION], "attachment; filename=\"x.yaml\"");

    let started = admin.post("/new", &[("yaml", &plan::DEMO_PLAN.replace('\n', "\r\n")), ("action", "start")]).await;
    assert_eq!((started.status, started.location()), (StatusCode::SEE_OTHER, &*format!("/runs/{ID}/live")));
    assert_eq!(notes.started.lock().unwrap()[0], plan::DEMO_PLAN, "line ends are the file's");
    let second = admin.post("/new", &[("yaml", plan::DEMO_PLAN), ("action", "start")]).await;
    assert_eq!(second.status, StatusCode::CONFLICT);
    assert!(second.body.contains("the run Demo goes on") && second.body.contains(&format!("/runs/{ID}/live")));
    let copied = admin.get(&format!("/new?run={ID}")).await;
    assert_eq!(copied.status, StatusCode::OK);
    assert_eq!(admin.get("/new?example=nothing").await.status, StatusCode::UNPROCESSABLE_ENTITY);
}

#[tokio::test]
async fn scripts_check_start_and_stop_plans() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(Vec::new(), notes.clone()).await;
    let admin = interface.log_in("admin").await;
    let post = async |path: &str, body: &str| {
        let request = admin.request(Method::POST, path).header("x-csrf-token", &admin.csrf);
        interface.send(request.body(Body::from(body.to_owned())).unwrap()).await
    };
    let checked = post("/api/v1/plans/check", plan::DEMO_PLAN).await.json();
    assert_eq!((&checked["valid"], &checked["schedule"]["cases"]), (&true.into(), &10.into()));
    assert_eq!(checked["findings"][0]["severity"], "warning");
    let bad = post("/api/v1/plans/check", "name: 1").await.json();
    assert!(bad["valid"] == false && bad["errors"]["problems"][0]["line"].is_number());
    let refused = post("/api/v1/runs", "name: 1").await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.body.contains("and ") && refused.body.contains("line 1"), "{}", refused.body);
    let started = post("/api/v1/runs", plan::DEMO_PLAN).await;
    assert_eq!((started.status, &started.json()["id"]), (StatusCode::CREATED, &Value::from(ID)));
    assert_eq!(post("/api/v1/runs", plan::DEMO_PLAN).await.status, StatusCode::CONFLICT);
    begin(&notes.hub);
    notes.hub.beat(beat(0));
    let stopped = post(&format!("/api/v1/runs/{ID}/stop"), "").await;
    assert_eq!(stopped.status, StatusCode::ACCEPTED);
    let does = stopped.json();
    assert_eq!((&does["finishes_case"], &does["not_run"]), (&true.into(), &9.into()), "{does}");
    assert!(does["words"].as_str().unwrap().contains(does["case"].as_str().unwrap()) && does["seconds"].is_number());
    let cancelled = post(&format!("/api/v1/runs/{ID}/cancel"), "").await;
    assert_eq!((cancelled.status, &cancelled.json()["finishes_case"]), (StatusCode::ACCEPTED, &false.into()));
    for how in ["stop", "cancel"] {
        let other = post(&format!("/api/v1/runs/{}/{how}", Uuid::nil()), "").await;
        assert_eq!(other.status, StatusCode::CONFLICT, "{how}");
    }
    let asked: Vec<(How, String)> = notes.ended.lock().unwrap().iter().map(|end| (end.1, end.2.clone())).collect();
    let admin = |how| (how, "admin".to_owned());
    assert_eq!(asked, [How::Stop, How::Cancel, How::Stop, How::Cancel].map(admin));
}

#[tokio::test]
async fn a_plan_is_rehearsed_and_a_rehearsal_is_told_from_a_result_everywhere() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(vec![samples::rehearsal()], notes.clone()).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let page = admin.get("/new").await.body;
    assert!(page.contains("value=\"rehearse\"") && page.contains("Rehearsal takes about"), "{page}");
    let started = admin.post("/new", &[("yaml", plan::DEMO_PLAN), ("action", "rehearse")]).await;
    assert_eq!((started.status, started.location()), (StatusCode::SEE_OTHER, &*format!("/runs/{ID}/live")));
    let request = admin.request(Method::POST, "/api/v1/runs?rehearse=true").header("x-csrf-token", &admin.csrf);
    let called = interface.send(request.body(Body::from(plan::DEMO_PLAN)).unwrap()).await;
    assert_eq!(called.status, StatusCode::CREATED, "{}", called.body);
    assert_eq!(*notes.rehearsed.lock().unwrap(), ["Rehearsal of Demo", "Rehearsal of Demo"]);
    assert!(notes.started.lock().unwrap().is_empty());

    assert!(viewer.get("/").await.body.contains("<span class=\"pill rehearsal\">rehearsal</span>"));
    assert_eq!(viewer.get("/api/v1/runs").await.json()["runs"][0]["rehearsal"], true);
    assert_eq!(viewer.get(&format!("/api/v1/runs/{ID}")).await.json()["run"]["rehearsal"], true);
    for page in ["", "/cases/1", "/export.html"] {
        let body = viewer.get(&format!("/runs/{ID}{page}")).await.body;
        assert!(body.contains("rehearsal, no result"), "{page}");
    }
    assert!(viewer.get(&format!("/compare?run={ID}")).await.body.contains("a rehearsal: no result"));
    let csv = viewer.get(&format!("/runs/{ID}/export.csv")).await.body;
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",true")), "{csv}");
}

#[tokio::test]
async fn what_a_run_left_is_shown_and_torn_down_by_an_administrator() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(vec![samples::demo()], notes.clone()).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let (report, tear_down) = (format!("/runs/{ID}"), format!("/runs/{ID}/tear-down"));
    assert!(!admin.get(&report).await.body.contains("left behind"));
    assert!(admin.get(&tear_down).await.body.contains("Nothing is left of demo"));

    *notes.left.lock().unwrap() = vec!["VM 101 (<b>fc-1</b>) on pve1".to_owned(), "image x on pve2".to_owned()];
    let page = admin.get(&report).await.body;
    assert!(page.contains("2 left behind") && page.contains("VM 101 (&#60;b&#62;fc-1"), "{page}");
    assert!(page.contains(&format!("href=\"{tear_down}\"")));
    let seen = viewer.get(&report).await.body;
    assert!(seen.contains("2 left behind") && !seen.contains("Tear down…"), "{seen}");
    assert_eq!(viewer.get(&tear_down).await.status, StatusCode::FORBIDDEN);
    let asked = admin.get(&tear_down).await.body;
    assert!(asked.contains("Tear down what demo left?") && asked.contains("image x on pve2"), "{asked}");

    *notes.stuck.lock().unwrap() = vec!["image x on pve2 was left alone: locked".to_owned()];
    assert_eq!(admin.post(&tear_down, &[]).await.location(), report);
    let page = admin.get(&report).await.body;
    assert!(page.contains("Not all of it could be removed") && page.contains("locked"), "{page}");
    notes.stuck.lock().unwrap().clear();
    assert_eq!(admin.post(&tear_down, &[]).await.location(), report);
    let page = admin.get(&report).await.body;
    assert!(page.contains("All that the run had left is gone.") && !page.contains("left behind"), "{page}");

    let left = admin.get(&format!("/api/v1/runs/{ID}/leftovers")).await.json();
    assert_eq!(left["left"], serde_json::json!([]));
    let torn = admin.call(Method::POST, &format!("/api/v1/runs/{ID}/tear-down"), serde_json::json!({})).await;
    assert_eq!((torn.status, &torn.json()["left"]), (StatusCode::OK, &serde_json::json!([])));
}

#[tokio::test]
async fn the_live_page_tells_hosts_storage_and_the_guard_where_the_place_does() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(Vec::new(), notes.clone()).await;
    let viewer = interface.log_in("viewer").await;
    let live = format!("/runs/{ID}/live");
    begin(&notes.hub);
    let local = viewer.get(&live).await.body;
    assert!(local.contains("Hosts and storage") && local.contains("Not available"), "{local}");

    begin_on_cluster(&notes.hub);
    let before = viewer.get(&live).await.body;
    assert!(before.contains("the first sample comes with the first case") && !before.contains("Not available"));
    notes.hub.beat(health_beat(41.26, "HEALTH_WARN"));
    let page = viewer.get(&live).await.body;
    let shown = page.split("<section aria-labelledby=\"health\"").nth(1).unwrap().split("</section>").next().unwrap();
    for part in [
        "&#60;i&#62;pve1",
        "41.3",
        "3 GiB of 8 GiB",
        "HEALTH_WARN",
        "OSD_DOWN",
        "12.50 % displaced",
        "no route",
        "moved to pve2",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
}

#[tokio::test]
async fn a_run_is_followed_left_and_taken_up_again() {
    let notes = Arc::new(Notes::default());
    let interface = Interface::with_workshop(vec![samples::demo()], notes.clone()).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let live = format!("/runs/{ID}/live");
    assert_eq!(
        viewer.get(&live).await.location(),
        format!("/runs/{ID}"),
        "a run that does not go on here has a report"
    );

    begin(&notes.hub);
    notes.hub.beat(beat(0));
    let page = viewer.get(&live).await;
    assert!(page.body.contains("1GiB: &#60;i&#62;x&#60;/i&#62;") && !page.body.contains("<i>x</i>"), "{}", page.body);
    assert!(!page.body.contains("<form method=\"post\" action=\"/runs"), "a viewer has no such button");
    let steered = admin.get(&live).await.body;
    assert!(steered.contains("Stop the run</button>") && steered.contains("Cancel the run now</button>"));
    let island = page.body.split("id=\"watch-state\">").nth(1).unwrap().split("</script>").next().unwrap();
    let state: Value = serde_json::from_str(island).unwrap();
    let id = state["id"].as_str().unwrap();

    notes.hub.beat(beat(1));
    notes.hub.beat(beat(2));
    let missed = feed(&viewer, &interface, &format!("?after={id}"), None, 2).await;
    let seconds: Vec<&Value> = missed.iter().map(|(_, _, data)| &data["seconds"][0][0]).collect();
    assert_eq!(seconds, [1, 2], "what came between the page and its feed");
    let rest = feed(&viewer, &interface, &format!("?after={id}"), Some(&missed[0].0), 1).await;
    assert_eq!(rest[0].2["seconds"][0][0], 2, "the browser's own word is the newer one");
    let whole = feed(&viewer, &interface, "?after=1-1", None, 1).await;
    assert_eq!((whole[0].1.as_str(), whole[0].2["recent"].as_array().unwrap().len()), ("whole", 3));

    let event = Event { at: Timestamp::now(), level: "error".into(), message: "<script>alert(1)</script>".into() };
    notes.hub.beat(Beat { events: vec![event], ..Beat::default() });
    assert!(!viewer.get(&live).await.body.contains("<script>alert"));
    for how in ["stop", "cancel"] {
        assert_eq!(viewer.post(&format!("/runs/{ID}/{how}"), &[]).await.status, StatusCode::FORBIDDEN);
    }
    let run = ID.parse::<Uuid>().unwrap();
    let ending = |how| EarlyEnd { how, by: "<b>admin</b>".into(), at: Timestamp::now(), not_run: Vec::new() };
    assert_eq!(admin.post(&format!("/runs/{ID}/stop"), &[]).await.location(), live);
    notes.hub.ending(ending(How::Stop));
    let stopping = admin.get(&live).await.body;
    assert!(stopping.contains("is measured to its end, about") && stopping.contains("9 later cases are not run"));
    assert!(stopping.contains("&#60;b&#62;admin&#60;/b&#62; stops it") && !stopping.contains("<b>admin"));
    assert!(
        stopping.contains("data-end=\"stop\" hidden") && stopping.contains("data-end=\"cancel\">"),
        "a second press"
    );
    assert_eq!(admin.post(&format!("/runs/{ID}/cancel"), &[]).await.location(), live);
    notes.hub.ending(ending(How::Cancel));
    let cancelling = admin.get(&live).await.body;
    assert!(cancelling.contains("is cut now") && cancelling.contains("data-end=\"cancel\" hidden"), "{cancelling}");
    let asked: Vec<(Uuid, How)> = notes.ended.lock().unwrap().iter().map(|end| (end.0, end.1)).collect();
    assert_eq!(asked, [(run, How::Stop), (run, How::Cancel)]);

    notes
        .hub
        .end(ID.parse().unwrap(), LiveEnd { state: "cancelled".into(), reason: Some("cancelled by the user".into()) });
    let ended = admin.get(&live).await.body;
    assert!(ended.contains("cancelled by the user") && !ended.contains("Stop the run</button>"));
    let other = feed_of_another(&viewer, &interface).await;
    assert!(other.contains("event: gone"), "{other}");
    notes.hub.close();
    assert!(feed(&viewer, &interface, &format!("?after={id}"), None, 99).await.len() < 10, "a closed feed ends");
}

async fn feed_of_another(client: &Client<'_>, interface: &Interface) -> String {
    let request = client.request(Method::GET, &format!("/runs/{}/feed", Uuid::nil())).body(Body::empty()).unwrap();
    let answered = tokio::time::timeout(Duration::from_secs(60), interface.send(request)).await;
    answered.unwrap().body
}

#[tokio::test]
async fn own_profiles_are_kept_changed_and_deleted_and_shipped_ones_are_not() {
    let interface = Interface::with_workshop(Vec::new(), Arc::new(Notes::default())).await;
    let (admin, viewer) = (interface.log_in("admin").await, interface.log_in("viewer").await);
    let shipped = admin.get("/profiles/deep/4k-random-read").await;
    assert!(shipped.body.contains("outstanding_per_disk: 16") && !shipped.body.contains("<textarea"));
    let yaml = "name: mine\ndescription: <b>mine</b>\nblock: 8KiB\npattern: random\nread_percent: 50\noutstanding_per_disk: 3\n";
    let kept = admin.post("/profiles/new", &[("yaml", yaml)]).await;
    assert_eq!(kept.location(), "/profiles");
    let list = viewer.get("/profiles").await.body;
    assert!(
        list.contains("/profiles/own/mine") && list.contains("&#60;b&#62;mine") && !list.contains("/delete"),
        "{list}"
    );
    let plan = plan::DEMO_PLAN.replace("  - 4k-random-read\n", "  - own/mine\n");
    assert!(admin.post("/new/check", &[("yaml", &plan)]).await.body.contains(">valid<"));

    assert_eq!(admin.post("/profiles/new", &[("yaml", yaml)]).await.status, StatusCode::CONFLICT, "the name is taken");
    let bad = admin.post("/profiles/new", &[("yaml", &yaml.replace("8KiB", "8K")), ("was", "mine")]).await;
    assert_eq!(bad.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(bad.body.contains("data-line=\"3\""), "{}", bad.body);
    let renamed = yaml.replace("name: mine", "name: other");
    assert_eq!(admin.post("/profiles/new", &[("yaml", &renamed), ("was", "mine")]).await.location(), "/profiles");
    let names: Vec<String> = interface.store.list_profiles().await.unwrap().into_iter().map(|own| own.name).collect();
    assert_eq!(names, ["other"]);
    assert_eq!(admin.post("/profiles/deep/4k-random-read/delete", &[]).await.status, StatusCode::CONFLICT);
    assert_eq!(admin.post("/profiles/own/other/delete", &[]).await.location(), "/profiles");
    assert!(interface.store.list_profiles().await.unwrap().is_empty());
    for path in ["/profiles/own/other", "/profiles/plans/demo", "/profiles/..%2f..%2fetc/passwd"] {
        assert_eq!(admin.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn cases_of_several_runs_stand_side_by_side_with_their_differences_first() {
    let mut other = samples::incomplete();
    other.run.id = Uuid::now_v7().to_string();
    other.run.plan["workers"]["count"] = 99.into();
    let mut hostile = samples::hostile();
    hostile.run.id = Uuid::now_v7().to_string();
    let ids = [ID.to_owned(), other.run.id.clone(), hostile.run.id.clone()];
    let interface = Interface::new(vec![samples::demo(), other, hostile]).await;
    let viewer = interface.log_in("viewer").await;
    let picker = viewer.get("/compare").await.body;
    assert!(ids.iter().all(|id| picker.contains(id.as_str())));
    let one = viewer.get(&format!("/compare?run={ID}")).await.body;
    assert!(one.contains("Side by side") && one.contains("What differs"), "footprints within a run");
    let two = viewer.get(&format!("/compare?case={ID}:0&case={}:0", ids[1])).await.body;
    let (differs, figures) = (two.find("plan.workers.count").unwrap(), two.find("Side by side").unwrap());
    assert!(differs < figures, "differences come first");
    assert!(two.contains("<td class=\"num soft\">×") && two.contains("\"kind\":\"percentiles\""));
    let ugly = viewer.get(&format!("/compare?case={ID}:0&case={}:0", ids[2])).await.body;
    assert!(!ugly.contains("<script>window") && !ugly.contains("<img"), "names are text");
    let none = viewer.get(&format!("/compare?case={ID}:9999")).await;
    assert_eq!(none.status, StatusCode::OK, "a case that a run does not have is left out");
    assert_eq!(viewer.get(&format!("/compare?run={}", Uuid::nil())).await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_run_that_was_stopped_is_told_from_one_that_was_cancelled_everywhere() {
    let case = |footprint: &str, workload: &str| PlannedCase { footprint: footprint.into(), workload: workload.into() };
    let mut stopped = samples::demo();
    stopped.run.state = "stopped".into();
    stopped.run.complete = false;
    stopped.run.reason = Some("stopped by <b>alice</b>; 1 case was not run".into());
    let last = stopped.cases.pop().unwrap();
    let not_run = vec![case(&last.footprint, &last.workload)];
    let at = "2026-03-01T10:00:00Z".parse().unwrap();
    stopped.run.ended_early = Some(EarlyEnd { how: How::Stop, by: "<b>alice</b>".into(), at, not_run });
    let interface = Interface::with_workshop(vec![stopped], Arc::new(Notes::default())).await;
    let viewer = interface.log_in("viewer").await;
    assert!(viewer.get("/").await.body.contains("<span class=\"pill bad\">stopped</span>"));
    assert!(viewer.get("/").await.body.contains("<option value=\"stopped\""), "a filter");
    for page in ["", "/export.html"] {
        let body = viewer.get(&format!("/runs/{ID}{page}")).await.body;
        for part in
            ["This run was stopped early", "<dt>Stopped by</dt><dd>&#60;b&#62;alice&#60;/b&#62;, <time", "not run"]
        {
            assert!(body.contains(part), "{page} lacks {part}");
        }
        assert!(!body.contains("not measured"), "{page}: it was not asked for");
    }
    let export = viewer.get(&format!("/api/v1/runs/{ID}")).await.json();
    assert_eq!((&export["run"]["state"], &export["run"]["ended_early"]["how"]), (&"stopped".into(), &"stop".into()));
    assert_eq!(export["run"]["ended_early"]["not_run"][0]["workload"], last.workload);
    let csv = viewer.get(&format!("/runs/{ID}/export.csv")).await.body;
    assert!(csv.lines().skip(1).all(|line| line.contains(",stopped,")), "{csv}");
    assert!(viewer.get(&format!("/compare?run={ID}")).await.body.contains("<span class=\"pill bad\">stopped</span>"));
}
