//! A test from the browser: written, started, watched live, stopped, its report opened and compared; and the viewer who may only look.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod browser;
mod clusters;
mod keyboard;
mod rehearsal;
mod tear_down;

use std::time::Duration;

use browser::{Browser, Driver, until};
use end_to_end::Site;
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery staple";

/// Long enough to be looked at from all sides; the test stops it.
const PLAN: &str = "name: Watched <b>run</b>\ntarget: {provider: local}\nworkers:\n  count: 2\n  vcpus: 1\n  memory: 256MiB\n  disks: 3\n\
                    footprints: [96MiB, 192MiB]\nprecondition: 4s\nsample: 10m\nworkloads:\n  - 8k-random-70-30\n  - 4k-random-read\n";

/// A site that is served, and its administrator in a browser. In the order in which they go.
struct Opened {
    admin: Browser,
    server: browser::Server,
    site: Site,
    driver: Driver,
}

impl Opened {
    /// A new site; none, with a line that says so, where there is no browser.
    async fn new() -> Option<Self> {
        Some(Self::at(Driver::start()?, Site::new()).await)
    }

    async fn at(driver: Driver, site: Site) -> Self {
        let server = browser::Server::start(&site);
        let admin = driver.open(&server.origin).await;
        set_up(&admin, &server).await;
        Self { admin, server, site, driver }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_written_started_watched_stopped_and_compared_and_a_viewer_only_looks() {
    let Some(Opened { admin, server, site, driver }) = Opened::new().await else { return };
    write_a_plan(&admin).await;
    let run = start(&admin).await;
    watch(&admin).await;
    second_start_is_refused(&admin, &run).await;
    let viewer = driver.open(&server.origin).await;
    become_viewer(&admin, &viewer).await;
    viewer_only_looks(&viewer, &run).await;
    stop(&admin, &run).await;
    // The viewer's page has heard of it, too.
    until("the viewer sees the end", || async { viewer.shown("[data-live=end]").await }).await;
    open_the_report_and_compare(&admin, &run).await;
    profiles(&admin).await;
    assert!(site.disk_files().is_empty(), "disks are removed: {:?}", site.disk_files());
    assert_eq!(site.workers(), vec![]);
    for browser in [admin, viewer] {
        browser.asked_only_its_server().await;
        browser.quit().await;
    }
}

async fn set_up(admin: &Browser, server: &browser::Server) {
    admin.go(&server.set_up).await;
    for (name, value) in [("password", PASSWORD), ("repeated", PASSWORD)] {
        admin.fill(&format!("input[name={name}]"), value).await;
    }
    admin.click("form.stack button").await;
    until("the list of runs", || async { admin.text("h1").await == "Runs" }).await;
}

/// The text is judged as it is typed: a mistake is marked by line and field; a field changes the text and nothing else.
async fn write_a_plan(admin: &Browser) {
    admin.go("/new").await;
    admin.write("#yaml", &PLAN.replace("count: 2", "count: zwei")).await;
    until("the problem is told", || async { admin.text("[data-verdict] .problems").await.contains("workers.count") })
        .await;
    assert_eq!(admin.text(".editor .lines .bad").await, "4", "the line is marked");
    assert_eq!(admin.attribute("[data-field='workers.count']", "aria-invalid").await.as_deref(), Some("true"));
    assert_eq!(admin.property("[data-start]", "disabled").await, json!(true));
    admin.shoot("new-problem").await;

    admin.write("#yaml", &PLAN.replace("count: 2", "count: 1")).await;
    until("the plan is valid", || async { admin.text("[data-verdict] .verdict").await.contains("valid") }).await;
    admin.change("[data-field='workers.count']", "2").await;
    until("the text follows", || async { admin.property("#yaml", "value").await == json!(PLAN) }).await;
    admin.click("[data-workload='published/4k-random-read']").await;
    let fewer = PLAN.replace("  - 4k-random-read\n", "");
    until("the workload is gone", || async { admin.property("#yaml", "value").await == json!(fewer) }).await;
    admin.click("[data-workload='published/4k-random-read']").await;
    until("it is back", || async {
        admin.property("#yaml", "value").await.as_str().unwrap().contains("  - published/4k-random-read\n")
    })
    .await;
    admin.change("[data-cache]", "100MiB").await;
    until("footprints are labelled", || async { admin.text(".cost").await.contains("fits the cache") }).await;
    let verdict = admin.text("[data-verdict]").await;
    for part in ["16 MiB", "32 MiB", "192 MiB", "partly: 52 % fit at most", "2 × 3", "ends about"] {
        assert!(verdict.contains(part), "{part} is not in {verdict}");
    }
    admin.shoot("new").await;
}

async fn start(admin: &Browser) -> String {
    let run = press(admin, "[data-start]").await;
    assert_eq!(admin.text("h1").await, "Watched <b>run</b>", "a name is text");
    run
}

/// Values come and change, also after the page was loaded again.
async fn watch(admin: &Browser) {
    let iops = || async { admin.text("[data-op=read] [data-figure=iops]").await };
    until("IOPS of the first second", || async { !["–", ""].contains(&&*iops().await) }).await;
    let (first, seconds) = (iops().await, admin.seconds().await);
    until("IOPS that change", || async { iops().await != first && admin.seconds().await > seconds + 3 }).await;
    until("the map of disks", || async { admin.count(".heat td").await == 6 }).await;
    until("the chart", || async { admin.count("[data-plot] .main-svg").await > 0 }).await;
    assert!(!admin.text("[data-op=write] [data-figure=p99_us]").await.is_empty());
    assert!(admin.text("[data-live=heat-note]").await.contains("Median"));
    assert_eq!(admin.count(".steps .now").await, 1);
    assert!(admin.count(".steps .done").await >= 2, "the workers were started and the disks filled");
    until("the sample", || async { admin.text("[data-live=step]").await.contains("sample") }).await;
    let before = admin.seconds().await;
    admin.reload().await;
    until("the page goes on after a reload", || async { admin.seconds().await > before }).await;
    assert!(admin.text("[data-live=note]").await.starts_with("Live"), "{}", admin.text("[data-live=note]").await);
    // The tools leave a page that goes on while it is drawn.
    admin.shoot("live").await;
    admin.choose("input[name=span][value=whole]").await;
    admin.choose("input[name=figure][value=iops]").await;
    until("the map shows IOPS", || async { admin.text("[data-live=heat-note]").await.contains("IOPS") }).await;
}

async fn second_start_is_refused(admin: &Browser, run: &str) {
    admin.go("/new").await;
    admin.click("[data-start]").await;
    until("the refusal", || async { admin.text(".flash.bad").await.contains("goes on") }).await;
    assert!(admin.attribute(".flash.bad a", "href").await.unwrap().contains(run));
}

async fn become_viewer(admin: &Browser, viewer: &Browser) {
    admin.go("/users").await;
    admin.fill("form.row input[name=name]", "viola").await;
    admin.click("form.row button").await;
    until("the link", || async { admin.count("#secret").await == 1 }).await;
    let link = admin.text("#secret").await;
    viewer.go(link.split_once("/password/").map(|(_, secret)| format!("/password/{secret}")).unwrap().as_str()).await;
    for name in ["password", "repeated"] {
        viewer.fill(&format!("input[name={name}]"), PASSWORD).await;
    }
    viewer.click("form.stack button").await;
    until("the viewer is in", || async { viewer.text(".who").await.contains("viola") }).await;
}

async fn viewer_only_looks(viewer: &Browser, run: &str) {
    viewer.go(&format!("/runs/{run}/live")).await;
    until("the viewer sees seconds", || async { viewer.seconds().await > 2 }).await;
    assert_eq!(viewer.count("[data-end]").await, 0, "no button that ends it");
    let csrf = viewer.attribute("input[name=csrf]", "value").await.unwrap();
    for (path, more) in [
        (format!("/runs/{run}/stop"), ""),
        (format!("/runs/{run}/cancel"), ""),
        ("/new".to_owned(), "&action=start"),
        ("/profiles/new".to_owned(), ""),
    ] {
        let body = format!("csrf={csrf}&yaml=name%3A+x{more}");
        assert_eq!(viewer.post(&path, &body).await, 403, "{path}");
    }
    viewer.go("/new").await;
    assert!(viewer.text("main").await.contains("For administrators"));
    viewer.go(&format!("/runs/{run}/live")).await;
    until("the run goes on", || async { viewer.text("[data-live=step]").await.contains("sample") }).await;
}

async fn stop(admin: &Browser, run: &str) {
    admin.go(&format!("/runs/{run}/live")).await;
    admin.click("[data-end=stop] summary").await;
    until("what it does", || async { admin.text("[data-live=stop-words]").await.contains("is measured to its end") })
        .await;
    admin.shoot("live-stop").await;
    admin.click("[data-end=stop] button").await;
    until("the stop", || async { admin.text("[data-live=ending]").await.contains("stops it") }).await;
    assert!(!admin.shown("[data-end=stop]").await, "once is enough");
    admin.click("[data-end=cancel] summary").await;
    until("what it does", || async { admin.text("[data-live=cancel-words]").await.contains("is cut now") }).await;
    admin.click("[data-end=cancel] button").await;
    until("the end", || async { admin.shown("[data-live=end]").await }).await;
    assert_eq!(admin.text("[data-live=end-state]").await.to_lowercase(), "cancelled");
    assert!(admin.text("[data-log]").await.contains("cancelled"));
    admin.shoot("live-ended").await;
}

async fn open_the_report_and_compare(admin: &Browser, run: &str) {
    admin.click("[data-live=end] a").await;
    until("the report", || async { admin.path().await == format!("/runs/{run}") }).await;
    assert!(admin.text("main").await.to_lowercase().contains("cancelled"));
    admin.go(&format!("/compare?run={run}")).await;
    until("the comparison", || async { admin.text("main").await.contains("Side by side") }).await;
    until("the curves", || async { admin.count(".chart .main-svg").await > 0 }).await;
    admin.shoot("compare").await;
    // The live page of a run that has ended in this server still tells its end.
    admin.go(&format!("/new?run={run}")).await;
    assert!(admin.property("#yaml", "value").await.as_str().unwrap().starts_with("name: Watched <b>run</b>"));
}

async fn profiles(admin: &Browser) {
    admin.go("/profiles/new?from=deep/4k-random-read").await;
    let copy = admin.property("#yaml", "value").await;
    let own = copy
        .as_str()
        .unwrap()
        .replace("name: 4k-random-read", "name: mine")
        .replace("outstanding_per_disk: 16", "outstanding_per_disk: 3");
    admin.write("#yaml", &own.replace("4KiB", "4K")).await;
    until("the problem", || async { admin.text("[data-verdict]").await.contains("block") }).await;
    admin.write("#yaml", &own).await;
    until("it is valid", || async { admin.text("[data-verdict]").await.contains("valid") }).await;
    admin.shoot("profile").await;
    admin.click("[data-start]").await;
    until("the list", || async { admin.text("main").await.contains("own/mine was kept") }).await;
    admin.shoot("profiles").await;
    // A plan can use it.
    write_valid(admin, &PLAN.replace("4k-random-read", "own/mine")).await;
}

/// A plan that may be started. The page comes with a plan that is valid, too: only a verdict after the writing is of this one, and until it is
/// there it may yet move the buttons away from under a click.
async fn write_valid(admin: &Browser, plan: &str) {
    admin.go("/new").await;
    admin.write("#yaml", plan).await;
    judged_valid(admin).await;
}

async fn judged_valid(admin: &Browser) {
    let judged = async || admin.attribute("form[data-plan]", "data-checked").await.is_some();
    let valid = async || admin.text("[data-verdict] .verdict").await.contains("valid");
    until("the plan is judged and valid", || async { judged().await && valid().await }).await;
}

/// A run that ends by itself, and two runs side by side.
#[tokio::test(flavor = "multi_thread")]
async fn runs_started_one_after_the_other_from_the_browser_are_compared() {
    let Some(opened) = Opened::new().await else { return };
    let admin = &opened.admin;
    let mut runs = Vec::new();
    for disks in [1, 2] {
        let plan = format!(
            "name: Short\ntarget: {{provider: local}}\nworkers: {{count: 2, vcpus: 1, memory: 256MiB, disks: {disks}}}\n\
             footprints: [32MiB, 64MiB]\nprecondition: 0s\nsample: 3s\nworkloads: [8k-random-70-30, 4k-random-read]\n"
        );
        write_valid(admin, &plan).await;
        runs.push(press(admin, "[data-start]").await);
        until("the run's end", || async { admin.shown("[data-live=end]").await }).await;
        assert_eq!(admin.text("[data-live=end-state]").await.to_lowercase(), "done");
        assert_eq!(admin.text("[data-live=percent]").await, "100 %");
        assert!(admin.seconds().await >= 10, "all seconds of four cases: {}", admin.seconds().await);
    }
    admin.go(&format!("/compare?run={}&run={}", runs[0], runs[1])).await;
    until("the comparison", || async { admin.count(".versus").await == 1 }).await;
    let differences = admin.text(".differences").await;
    assert!(differences.contains("plan.workers.disks"), "{differences}");
    assert!(!differences.contains("seed"), "what is incidental is left out: {differences}");
    assert!(admin.text(".versus").await.contains('×'));
    until("the curves", || async { admin.count(".chart .main-svg").await > 0 }).await;
    admin.shoot("compare-runs").await;
    stop_with_a_whole_result(&opened).await;
    admin.asked_only_its_server().await;
    opened.admin.quit().await;
}

/// A plan that is opened from a file, and stopped in its first case: that one has its whole result, the other is not run.
async fn stop_with_a_whole_result(Opened { admin, site, .. }: &Opened) {
    let file = site.plan(
        "name: Of a file\ntarget: {provider: local}\nworkers: {count: 2, vcpus: 1, memory: 256MiB, disks: 1}\n\
         footprints: [32MiB]\nprecondition: 0s\nsample: 15s\nworkloads: [8k-random-70-30, 4k-random-read]\n",
    );
    admin.go("/new").await;
    admin.upload("[data-upload]", &file).await;
    judged_valid(admin).await;
    assert!(admin.property("#yaml", "value").await.as_str().unwrap().starts_with("name: Of a file"));
    let run = press(admin, "[data-start]").await;
    until("the sample", || async { admin.text("[data-live=step]").await.contains("sample") }).await;
    admin.click("[data-end=stop] summary").await;
    until("what it does", || async { admin.text("[data-live=stop-words]").await.contains("is measured to its end") })
        .await;
    admin.click("[data-end=stop] button").await;
    until("the end", || async { admin.shown("[data-live=end]").await }).await;
    assert_eq!(admin.text("[data-live=end-state]").await.to_lowercase(), "stopped");
    admin.go(&format!("/runs/{run}")).await;
    let report = admin.text("main").await.to_lowercase();
    assert!(report.contains("stopped by"), "{report}");
    admin.shoot("report-stopped").await;
    let export = site.export();
    let (told, cases) = (&export["run"], export["cases"].as_array().unwrap());
    assert_eq!((&told["name"], &told["state"]), (&json!("Of a file"), &json!("stopped")));
    let seconds = cases[0]["seconds"].as_array().unwrap().len();
    assert_eq!((cases.len(), &cases[0]["state"], seconds), (1, &json!("complete"), 15), "{told}");
}

/// Presses what starts the plan; answers the run whose live page comes.
async fn press(admin: &Browser, button: &str) -> String {
    admin.click(button).await;
    until("the live page", || async { admin.path().await.ends_with("/live") }).await;
    admin.path().await.trim_start_matches("/runs/").trim_end_matches("/live").to_owned()
}

/// The canary and the plan at its smallest, told from a result wherever it is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_rehearsed_from_the_browser() {
    let Some(opened) = Opened::new().await else { return };
    let admin = &opened.admin;
    write_valid(admin, PLAN).await;
    let run = press(admin, "button[value=rehearse]").await;
    until("the rehearsal's end", || async { admin.shown("[data-live=end]").await }).await;
    assert_eq!(admin.text("[data-live=end-state]").await.to_lowercase(), "done", "{}", admin.text("main").await);
    assert!(admin.text("[data-health]").await.contains("Not available"));
    assert!(admin.text("[data-warnings]").await.contains("Its figures are no result"));
    admin.shoot("live-rehearsal").await;
    admin.go(&format!("/runs/{run}")).await;
    assert!(admin.text(".banner.rehearsal").await.to_lowercase().contains("no result"));
    assert!(admin.text("main").await.contains("enrolled as"), "the canary's report is an event");
    admin.go("/").await;
    assert_eq!(admin.text(".pill.rehearsal").await, "rehearsal");
    admin.shoot("runs-rehearsal").await;

    let export = opened.site.export();
    let (told, cases) = (&export["run"], export["cases"].as_array().unwrap());
    assert_eq!((&told["rehearsal"], &told["name"]), (&json!(true), &json!("Rehearsal of Watched <b>run</b>")));
    assert_eq!((cases.len(), &told["complete"]), (4, &json!(true)), "two footprints, two workloads");
    assert!(cases.iter().all(|case| case["window_seconds"] == 3.0), "seconds a case");
    assert_eq!(cases[0]["region_bytes"], 16 << 20);
    let left = opened.site.disk_files();
    assert!(left.is_empty(), "disks are removed: {left:?}");
    opened.admin.quit().await;
}

/// A browser has six connections to a server: more tabs than that follow a run, and none of them starves.
#[tokio::test(flavor = "multi_thread")]
async fn more_tabs_than_a_browser_has_connections_follow_a_run() {
    let Some(opened) = Opened::new().await else { return };
    let admin = &opened.admin;
    write_valid(admin, PLAN).await;
    let run = press(admin, "[data-start]").await;
    let live = format!("/runs/{run}/live");
    let mut tabs = Vec::new();
    for _ in 0..8 {
        tabs.push(admin.tab(&live).await);
    }
    until("the last of eight tabs follows", || async { admin.seconds().await > 2 }).await;
    let seconds = admin.seconds().await;
    until("and goes on", || async { admin.seconds().await > seconds + 2 }).await;
    admin.front(&tabs[0]).await;
    until("the first goes on where it was", || async { admin.seconds().await > seconds + 3 }).await;
    assert_eq!(admin.attribute("[data-watch]", "data-feed").await.as_deref(), Some("open"));
    admin.tab("/profiles").await;
    assert_eq!(admin.text("h1").await, "Workload profiles");
    admin.go(&live).await;
    stop(admin, &run).await;
    opened.admin.quit().await;
}

/// What the browser's tools answer is looked at, not trusted.
#[test]
fn the_plans_of_this_test_are_valid_where_they_should_be() {
    let site = Site::new();
    let plan = site.plan(PLAN);
    let answer = site.ask(["check", plan.to_str().unwrap(), "--json"]);
    let value: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(value["valid"], true, "{answer:?}");
    assert!(Duration::from_secs(value["schedule"]["total_seconds"].as_u64().unwrap()) > Duration::from_secs(600));
}
