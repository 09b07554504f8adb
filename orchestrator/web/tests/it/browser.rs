//! A real browser opens the report: as a file without any network, and as a page under its policy.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use analysis::export::{Event, Export};
use store::Role;
use web::{Progress, RunSource as _};

use crate::driver::Browser;
use crate::listener::Served;
use crate::router::ID;
use crate::samples;
use crate::source::{PASSWORD, Runs, add_user};
use crate::workshop;

/// A page takes a few seconds; a browser that hangs is killed.
const LIMIT: Duration = Duration::from_secs(120);

fn browser() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    let found =
        std::env::split_paths(&path).flat_map(|dir| names.map(|name| dir.join(name))).find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: none of {names:?} is installed");
    }
    found
}

/// The document after its scripts ran, and what the page wrote to the console.
struct Visit {
    dom: String,
    console: Vec<String>,
}

fn visit(browser: &Path, url: &str) -> Visit {
    let home = tempfile::tempdir().unwrap();
    let (dom, log) = (home.path().join("dom"), home.path().join("log"));
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr"])
        // Names resolve to nothing: whatever is not this machine cannot be reached.
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
            "--virtual-time-budget=30000",
            "--window-size=1280,1000",
        ])
        .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
        .args(["--dump-dom", url])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&dom).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not end within {LIMIT:?}:\n{}", std::fs::read_to_string(&log).unwrap());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = |file: &Path| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned();
    let console = read(&log).lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Visit { dom: read(&dom), console }
}

fn visit_file(browser: &Path, export: &Export) -> Visit {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    std::fs::write(&file, web::report_html(export).unwrap()).unwrap();
    visit(browser, &format!("file://{}", file.display()))
}

fn all_charts_are_drawn(visit: &Visit, count: usize) {
    assert!(visit.console.is_empty(), "{:#?}", visit.console);
    assert!(visit.dom.contains(&format!("data-charts=\"{count}\"")), "not all charts were reached");
    assert_eq!(visit.dom.matches("data-drawn=\"yes\"").count(), count);
    assert!(!visit.dom.contains("<div class=\"plot\">This chart could not be drawn"));
    let figures = visit.dom.split("<figure").skip(1);
    let drawn =
        figures.filter(|figure| figure.split("</figure>").next().unwrap().contains("class=\"main-svg\"")).count();
    assert_eq!(drawn, count);
}

#[test]
fn the_file_draws_its_charts_without_a_network() {
    let Some(browser) = browser() else { return };
    // Bars and percentiles a workload, a timeline a case.
    all_charts_are_drawn(&visit_file(&browser, &samples::demo()), 5 * 2 + 10);
    all_charts_are_drawn(&visit_file(&browser, &samples::incomplete()), 5 * 2 + 10);
    // The fourth workload has no figures, only preconditioning.
    all_charts_are_drawn(&visit_file(&browser, &samples::cancelled()), 3 * 2 + 4);
}

#[test]
fn hostile_names_are_text_in_a_browser() {
    let Some(browser) = browser() else { return };
    let mut export = samples::hostile();
    // Its workloads differ in nothing but their text, which the charts must show.
    export.cases.truncate(3);
    let visit = visit_file(&browser, &export);
    all_charts_are_drawn(&visit, 3 * 2 + 3);
    assert!(!visit.dom.contains("<img"), "a name became an element");
    assert!(visit.dom.contains("&lt;img src=x onerror=window.pwned=1&gt;"), "a name is not shown as it is");
}

#[test]
fn a_failed_run_without_cases_opens() {
    let Some(browser) = browser() else { return };
    let visit = visit_file(&browser, &samples::empty());
    all_charts_are_drawn(&visit, 0);
    assert!(visit.dom.contains("This run failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_served_page_draws_its_charts_under_its_policy_and_follows_a_run() {
    let progress = Progress {
        phase: "256MiB: 8k-random-70-30, sample".to_owned(),
        case: Some("case 3 of 10".to_owned()),
        percent: 24.5,
        iops: Some(24_000.0),
        mib_per_s: Some(187.5),
        seconds_left: Some(93.0),
        ending: None,
    };
    let served = Served::start(Runs::new(vec![samples::running()], Some(progress)), None).await;
    let Some(browser) = Browser::start(&format!("http://{}", served.address)).await else { return served.stop().await };
    browser.enter(&served.app.enter_link().unwrap()).await;
    browser.goto(&format!("/runs/{ID}")).await;
    browser.find("html[data-charts]").await;
    let dom = browser.driver.source().await.unwrap();
    all_charts_are_drawn(&Visit { dom, console: browser.console(&[]).await }, 3 * 2 + 3);
    assert_eq!(browser.find("dd[data-live=iops]").await.text().await.unwrap(), "24,000", "the progress is not shown");
    assert_eq!(browser.find("dd[data-live=seconds_left]").await.text().await.unwrap(), "1 m 33 s");
    browser.asked_nobody_else().await;
    browser.end().await;
    served.stop().await;
}

/// What hosts, storage and the guard tell is followed, not only shown as it was when the page came.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_follows_hosts_storage_and_the_guard() {
    let hub = Arc::new(web::Hub::default());
    workshop::begin_on_cluster(&hub);
    let served = Served::with_hub(Runs::new(vec![samples::running()], None), None, Arc::clone(&hub)).await;
    let Some(browser) = Browser::start(&format!("http://{}", served.address)).await else { return served.stop().await };
    browser.enter(&served.app.enter_link().unwrap()).await;
    browser.goto(&format!("/runs/{ID}/live")).await;
    for (cpu_percent, status) in [(41.25, "HEALTH_WARN"), (57.5, "HEALTH_ERR")] {
        hub.beat(workshop::health_beat(cpu_percent, status));
        let guard = format!("no route at {cpu_percent}");
        for part in [&format!("{cpu_percent:.1}"), status, "12.50 % displaced", &guard, "moved to pve2"] {
            browser.shows_in("section[aria-labelledby=health]", part).await;
        }
    }
    let console = browser.console(&[]).await;
    assert!(console.is_empty(), "{console:#?}");
    browser.end().await;
    served.stop().await;
}

/// A page that has no feed says why in the server's words: it does not blame the connection, and does not ask for ever what it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_without_a_feed_says_why() {
    let hub = Arc::new(web::Hub::default());
    workshop::begin(&hub);
    let served = Served::with_hub(Runs::new(vec![samples::running()], None), None, Arc::clone(&hub)).await;
    for (name, role) in [("admin", Role::Admin), ("viola", Role::Viewer)] {
        add_user(&served.store, name, role).await;
    }
    let base = format!("http://{}", served.address);
    let Some(browser) = Browser::start(&base).await else { return served.stop().await };
    let (live, note) = (format!("/runs/{ID}/live"), ".watch-note");
    let log_in = async || {
        browser.fill("input[name=name]", "viola").await;
        browser.fill("input[name=password]", PASSWORD).await;
        browser.submit("/login").await;
        browser.arrives_at(&live).await;
    };
    browser.goto(&live).await;
    log_in().await;
    browser.shows_in(note, "Live: a new second").await;

    // Log-out in another tab; then this one takes up its feed again.
    let first = browser.driver.window().await.unwrap();
    let other = browser.driver.new_tab().await.unwrap();
    browser.driver.switch_to_window(other).await.unwrap();
    browser.goto("/account").await;
    browser.submit("/logout").await;
    browser.arrives_at("/login").await;
    browser.driver.close_window().await.unwrap();
    browser.driver.switch_to_window(first).await.unwrap();
    browser.shows_in(note, "Nobody is logged in, or the session has ended.").await;
    browser.find("[data-watch][data-feed=refused]").await;
    browser.shoot("live-logged-out").await;
    browser.click(".watch-note a").await;
    browser.arrives_at("/login").await;
    log_in().await;
    browser.shows_in(note, "Live: a new second").await;

    // Every seat is taken by somebody else; once they are gone, the page goes on by itself.
    browser.goto("/account").await;
    let cookie = browser.driver.get_all_cookies().await.unwrap().remove(0);
    let session = format!("{}={}", cookie.name, cookie.value);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let feed = || client.get(format!("{base}/runs/{ID}/feed")).header("cookie", &session).send();
    let mut seats = Vec::new();
    loop {
        let answer = feed().await.unwrap();
        if !answer.status().is_success() {
            break;
        }
        seats.push(answer);
    }
    browser.goto(&live).await;
    browser.shows_in(note, "Too many viewers. As many pages as there may be follow the run already.").await;
    seats.clear();
    browser.shows_in(note, "Live: a new second").await;
    let console = browser.console(&["the server responded with a status of"]).await;
    assert!(console.is_empty(), "{console:#?}");
    browser.end().await;
    served.stop().await;
}

/// Hours of seconds and events leave a live page with as many elements as its first minutes did.
#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_does_not_grow_with_its_run() {
    let hub = Arc::new(web::Hub::default());
    workshop::begin(&hub);
    let layout = vec![("w1".to_owned(), vec!["d1".to_owned()])];
    hub.beat(web::Beat { layout: Some(layout), ..web::Beat::default() });
    let served = Served::with_hub(Runs::new(vec![samples::running()], None), None, Arc::clone(&hub)).await;
    let Some(browser) = Browser::start(&format!("http://{}", served.address)).await else { return served.stop().await };
    let link = served.app.enter_link().unwrap();
    browser.goto(&link).await;
    browser.shoot("enter").await;
    browser.enter(&link).await;
    browser.goto(&format!("/runs/{ID}/live")).await;
    let mut at = 0;
    let mut feed = async |seconds: u32| {
        for _ in 0..seconds {
            let message = format!("event {at}");
            let event = Event { at: jiff::Timestamp::now(), level: "info".into(), message };
            hub.beat(web::Beat { events: vec![event], ..workshop::beat(at) });
            at += 1;
            // In pieces that a browser takes; what it cannot take comes as a whole, as after a sleep.
            if at % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        browser.shows(&format!("event {}", at - 1)).await;
        // The page is drawn after its events are.
        browser.find(&format!("[data-watch][data-newest='{}']", at - 1)).await;
        let script =
            "return [document.getElementsByTagName('*').length, document.querySelectorAll('[data-log] li').length];";
        let counted = browser.driver.execute(script, Vec::new()).await.unwrap().json().clone();
        (counted[0].as_i64().unwrap(), counted[1].as_i64().unwrap())
    };
    let (elements, lines) = feed(600).await;
    let (later, later_lines) = feed(6_000).await;
    assert_eq!((lines, later_lines), (200, 200));
    // Axes have other ticks as time goes on.
    assert!((later - elements).abs() < 100, "{elements} elements, then {later}");
    browser.end().await;
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_printed_within_its_paper_and_without_buttons() {
    let mut export = samples::incomplete();
    (export.run.id, export.run.rehearsal) = (ID.to_owned(), true);
    let mut calm = samples::demo();
    calm.run.id = uuid::Uuid::now_v7().to_string();
    let compared = format!("/compare?case={}:6&case={ID}:6&case={ID}:7", calm.run.id);
    let runs = Runs::new(vec![export, calm], None);
    runs.set_note(ID.parse().unwrap(), "Node 3 had a failed disk.\nIt was replaced at noon.").await.unwrap();
    let served = Served::start(runs, None).await;
    let Some(browser) = Browser::start(&format!("http://{}", served.address)).await else { return served.stop().await };
    browser.enter(&served.app.enter_link().unwrap()).await;
    browser.goto(&format!("/runs/{ID}")).await;
    browser.find("html[data-charts]").await;
    browser.shoot_print("report-print").await;
    let text = browser.text().await;
    assert!(text.contains("It was replaced at noon."), "{text}");
    browser.goto(&format!("/runs/{ID}/cases/7")).await;
    browser.find("html[data-charts]").await;
    browser.shows("pve2").await;
    browser.shoot("case").await;
    browser.goto(&compared).await;
    browser.find("html[data-charts]").await;
    browser.shows("37 (37 EIO)").await;
    browser.shoot("compare-disturbed").await;
    browser.shoot_print("compare-print").await;
    browser.end().await;
    served.stop().await;
}

/// 5 h 45 m east of UTC, where no server of ours is: a time that is shown in UTC or in the server's zone has another hour and another minute.
#[tokio::test(flavor = "multi_thread")]
async fn times_are_those_of_the_browser_s_zone() {
    const ZONE: &str = "Asia/Kathmandu";
    let (utc, here) = ("2026-11-30 08:15:00", "2026-11-30 14:00:00");
    let started = samples::running().run.started;
    assert_eq!(started.strftime("%Y-%m-%d %H:%M:%S").to_string(), utc);
    assert_eq!(started.in_tz(ZONE).unwrap().strftime("%Y-%m-%d %H:%M:%S").to_string(), here);
    let hub = Arc::new(web::Hub::default());
    workshop::begin(&hub);
    let message = "the run began".to_owned();
    hub.beat(web::Beat { events: vec![Event { at: started, level: "info".into(), message }], ..web::Beat::default() });
    let served = Served::with_hub(Runs::new(vec![samples::running()], None), None, Arc::clone(&hub)).await;
    let base = format!("http://{}", served.address);
    let Some(browser) = Browser::start_in(&base, Some(ZONE)).await else { return served.stop().await };
    browser.enter(&served.app.enter_link().unwrap()).await;
    let times = "return [Intl.DateTimeFormat().resolvedOptions().timeZone, \
        ...[...document.querySelectorAll('main time')].map(time => time.textContent)];";
    for page in ["/".to_owned(), "/compare".to_owned(), format!("/runs/{ID}")] {
        browser.goto(&page).await;
        browser.shows("14:00:00").await;
        let shown: Vec<String> =
            serde_json::from_value(browser.driver.execute(times, Vec::new()).await.unwrap().json().clone()).unwrap();
        assert!(["Asia/Kathmandu", "Asia/Katmandu"].contains(&shown[0].as_str()), "{page}: {shown:?}");
        assert!(shown[1..].iter().any(|time| time.contains("14:00:00")), "{page}: {shown:?}");
        assert!(shown[1..].iter().all(|time| !time.contains("UTC") && !time.contains("08:15:00")), "{page}: {shown:?}");
    }
    // What comes by the feed is made by the script alone.
    browser.goto(&format!("/runs/{ID}/live")).await;
    browser.shows("14:00:00").await;
    let message = "one hour later".to_owned();
    let at = started + jiff::SignedDuration::from_hours(1);
    hub.beat(web::Beat { events: vec![Event { at, level: "info".into(), message }], ..web::Beat::default() });
    browser.shows("one hour later").await;
    browser.shows("15:00:00").await;
    let text = browser.text().await;
    assert!(["08:15:00", "09:15:00"].iter().all(|utc| !text.contains(utc)), "{text}");
    browser.end().await;

    // A report as one file, by itself.
    let Some(browser) = Browser::start_in("file://", Some(ZONE)).await else { return served.stop().await };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.html");
    std::fs::write(&file, web::report_html(&samples::running()).unwrap()).unwrap();
    browser.goto(&file.display().to_string()).await;
    browser.shows(here).await;
    assert!(!browser.text().await.contains(utc), "a time is left in UTC");
    browser.end().await;
    served.stop().await;
}
