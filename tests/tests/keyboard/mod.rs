//! A test by keyboard alone, from the login to the report on disk, which is what the API has and opens without a network.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use thirtyfour::Key;

use super::browser::{Browser, until};
use super::{Opened, PASSWORD};

const PLAN: &str = "name: By keyboard\ntarget: {provider: local}\nworkers: {count: 2, vcpus: 1, memory: 256MiB, disks: 1}\n\
                    footprints: [96MiB]\nprecondition: 0s\nsample: 3s\nworkloads: [4k-random-read]\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_test_is_made_and_started_by_keyboard_and_its_report_kept() {
    let Some(opened) = Opened::new().await else { return };
    let admin = &opened.admin;
    log_in(admin).await;
    let run = start(admin).await;
    follow(admin, &run).await;
    download(admin, &run, opened.site.path()).await;
    opened.admin.quit().await;
}

async fn log_in(admin: &Browser) {
    admin.tab_to(".who button").await;
    admin.keys(Key::Enter).await;
    until("the login, with the focus in it", || async { admin.is_at("form[action='/login'] input[name=name]").await })
        .await;
    admin.keys("admin").await;
    admin.tab_to("input[name=password]").await;
    admin.keys(PASSWORD).await;
    admin.keys(Key::Enter).await;
    until("the list of runs", || async { admin.text("h1").await == "Runs" }).await;
}

/// Writes the plan and starts it; answers the run.
async fn start(admin: &Browser) -> String {
    admin.tab_to("nav.pages a[href='/new']").await;
    admin.keys(Key::Enter).await;
    until("the new test", || async { admin.text("h1").await == "New test" }).await;
    admin.tab_to("#yaml").await;
    admin.control('a').await;
    admin.keys(PLAN.replace('\n', &Key::Enter.value().to_string())).await;
    until("the text", || async { admin.property("#yaml", "value").await == json!(PLAN) }).await;
    // The plan that the page came with has other footprints.
    let judged = async || admin.text("[data-verdict]").await.contains("96 MiB");
    until("its verdict", || async { judged().await && admin.text("[data-verdict] .verdict").await.contains("valid") })
        .await;
    admin.tab_to("[data-start]").await;
    admin.keys(Key::Enter).await;
    until("the live page", || async { admin.path().await.ends_with("/live") }).await;
    admin.path().await.trim_start_matches("/runs/").trim_end_matches("/live").to_owned()
}

async fn follow(admin: &Browser, run: &str) {
    admin.tab_to("input[name=span]").await;
    admin.keys(Key::Right).await;
    let whole = async || admin.property("input[name=span][value=whole]", "checked").await == json!(true);
    until("the whole run is chosen", || async { whole().await }).await;
    until("the end", || async { admin.shown("[data-live=end]").await }).await;
    admin.tab_to("[data-live=end] a").await;
    admin.keys(Key::Enter).await;
    until("the report", || async { admin.path().await == format!("/runs/{run}") }).await;
    until("its charts", || async { admin.count("html[data-charts]").await == 1 }).await;
}

async fn download(admin: &Browser, run: &str, site: &Path) {
    let dir = site.join("downloads");
    fs::create_dir(&dir).unwrap();
    admin.download_to(&dir).await;
    for (kind, same) in [
        ("html", format!("/runs/{run}/export.html")),
        ("csv", format!("/runs/{run}/export.csv")),
        ("json", format!("/api/v1/runs/{run}")),
    ] {
        admin.tab_to(&format!(".actions a[href='/runs/{run}/export.{kind}']")).await;
        admin.keys(Key::Enter).await;
        until("the download", || async { arrived(&dir, kind).is_some() }).await;
        let kept = fs::read_to_string(arrived(&dir, kind).unwrap()).unwrap();
        assert!(kept == admin.fetch(&same).await, "{kind}: {} bytes, which are not those of {same}", kept.len());
    }
    admin.asked_only_its_server().await;
    admin.open_file(&arrived(&dir, "html").unwrap()).await;
    until("the charts of the file", || async { admin.count("html[data-charts]").await == 1 }).await;
    assert!(admin.text("h1").await.contains("By keyboard") && admin.count(".chart .main-svg").await > 0);
    assert_eq!(admin.asked().await, json!([]), "the file asks for something");
}

/// The file of a kind that is there whole: until then its name ends otherwise.
fn arrived(dir: &Path, kind: &str) -> Option<PathBuf> {
    let mut paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.find(|path| path.extension().is_some_and(|extension| extension == kind))
}
