//! What a run left on a cluster that was silent when its orchestrator came back: shown by its report, removed from the browser by who may.

use end_to_end::Site;
use end_to_end::fake::Fake;
use serde_json::{Value, json};

use super::browser::{Browser, Driver, until};
use super::{Opened, become_viewer};

/// Whatever is asked, the cluster fails.
const SILENT: &str = "def before(request):\n    raise PveError(500, 'the cluster burns')\npve.before = before";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_left_is_shown_and_removed_from_the_browser_and_a_viewer_only_looks() {
    let (Some(driver), Some(fake)) = (Driver::start(), Fake::start()) else { return };
    fake.grant_all_but(&[]);
    let site = Site::new();
    fake.connect(&site);
    let clean = fake.inventory();
    let run = fake.killed_run(&site);
    fake.run(SILENT);
    let opened = Opened::at(driver, site).await;
    let (admin, report) = (&opened.admin, format!("/runs/{run}"));

    let left = shown(admin, &report).await;
    assert!(left.iter().any(|object| object.starts_with("VM 90000")), "{left:?}");
    assert!(left.iter().any(|object| object.starts_with("image local:iso/fourcorners-")), "{left:?}");
    admin.shoot("report-left-behind").await;
    let viewer = opened.driver.open(&opened.server.origin).await;
    become_viewer(admin, &viewer).await;
    a_viewer_only_looks(&viewer, &report).await;

    // The cluster is still silent: nothing is removed, and the page says why.
    ask(admin, &report).await;
    assert_eq!(lines(admin, "ul.left").await, left, "the question names what goes");
    admin.shoot("tear-down").await;
    admin.click("button.danger").await;
    until("the cluster's own words", || async { admin.text(".flash.bad").await.contains("the cluster burns") }).await;
    assert_eq!(shown(admin, &report).await, left);

    // It is back, and a VM is in somebody else's hands.
    fake.run("pve.before = None\npve.vm(90000).config['lock'] = 'backup'");
    ask(admin, &report).await;
    admin.click("button.danger").await;
    until("what is locked", || async { admin.text(".flash.bad").await.contains("locked (backup)") }).await;
    assert_eq!(fake.get("[vm.vmid for vm in pve.vms]"), json!([90_000]));
    let kept = shown(admin, &report).await;
    assert!(kept.len() < left.len() && kept.iter().any(|object| object.starts_with("VM 90000")), "{kept:?}");

    fake.run("del pve.vm(90000).config['lock']");
    ask(admin, &report).await;
    admin.click("button.danger").await;
    until("all is gone", || async { admin.text(".flash.good").await == "All that the run had left is gone." }).await;
    assert_eq!((admin.path().await, admin.count(".left-behind").await), (report.clone(), 0));
    assert_eq!(fake.inventory(), clean);
    ask_again(admin, &report).await;
    admin.asked_only_its_server().await;
    viewer.quit().await;
    opened.admin.quit().await;
}

/// What the report says to be left, which is what the API says, too.
async fn shown(browser: &Browser, report: &str) -> Vec<String> {
    browser.go(report).await;
    until("what is left", || async { browser.shown(".left-behind").await }).await;
    let left = lines(browser, ".left-behind ul").await;
    assert_eq!(browser.text("#left").await, format!("{} left behind", left.len()));
    let told: Value = serde_json::from_str(&browser.fetch(&format!("/api/v1{report}/leftovers")).await).unwrap();
    assert_eq!(told["left"], json!(left));
    left
}

async fn lines(browser: &Browser, list: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for place in 1..=browser.count(&format!("{list} > li")).await {
        lines.push(browser.text(&format!("{list} > li:nth-child({place})")).await);
    }
    lines
}

/// From the report to the question.
async fn ask(admin: &Browser, report: &str) {
    admin.go(report).await;
    admin.click(".left-behind a.button").await;
    until("the question", || async { admin.text("#ask").await == "Tear down what left behind left?" }).await;
    assert_eq!(admin.path().await, format!("{report}/tear-down"));
}

/// There is nothing to press any more.
async fn ask_again(admin: &Browser, report: &str) {
    admin.go(&format!("{report}/tear-down")).await;
    until("the answer", || async { admin.text("#ask").await == "Nothing is left of left behind" }).await;
    assert_eq!(admin.count("button.danger").await, 0);
}

async fn a_viewer_only_looks(viewer: &Browser, report: &str) {
    assert!(!shown(viewer, report).await.is_empty());
    assert!(viewer.text(".left-behind").await.contains("An administrator can tear them down"));
    assert_eq!(viewer.count(".left-behind a").await, 0, "a viewer has nothing to press");
    let csrf = viewer.attribute("input[name=csrf]", "value").await.unwrap();
    let asked = format!("{report}/tear-down");
    assert_eq!(viewer.post(&asked, &format!("csrf={csrf}")).await, 403);
    viewer.go(&asked).await;
    assert!(viewer.text("main").await.contains("For administrators"));
    assert!(!shown(viewer, report).await.is_empty(), "it is still there");
}
