//! A cluster from the browser: added with its certificate confirmed, tested, looked through, chosen for a new test whose preflight
//! follows the typing, used by a run, removed. The cluster is fakepve, and some of its words are an attacker's.

use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use end_to_end::fake::{Fake, SECRET, TOKEN};
use end_to_end::{Site, files_with};
use serde_json::{Value, json};

use super::browser::{self, Browser, Driver, until};
use super::set_up;

/// In the cluster's words, where a page that took them for HTML would run it.
const EVIL: &str = "<img src=x onerror=document.title='evil'>";

struct Test {
    fake: Fake,
    site: Site,
    server: browser::Server,
    admin: Browser,
}

impl Test {
    /// None, with a line that says so, where it cannot be.
    async fn new(driver: &Driver) -> Option<Self> {
        let fake = Fake::start()?;
        fake.grant_all_but(&[]);
        fake.run(&format!(
            "bridges = [{{'iface': 'vmbr0', 'type': 'bridge', 'active': 1, 'bridge_vlan_aware': 1}}, {{'iface': {EVIL:?}, 'type': 'bridge', 'active': 1}}]\n\
             pve.bridges = {{'pve1': bridges, 'pve2': bridges}}"
        ));
        let site = Site::new();
        let log = fs::File::create(site.path().join("log")).unwrap();
        let mut command = site.command(["serve", "--listen", "127.0.0.1:0"]);
        let command = command.env("FOURCORNERS_LOG", "trace").env("FOURCORNERS_WORKER_LISTEN", "0.0.0.0:0");
        let server = browser::Server::of(command.stderr(Stdio::from(log)));
        let admin = driver.open(&server.origin).await;
        set_up(&admin, &server).await;
        Some(Self { fake, site, server, admin })
    }

    /// Requests that carried the token.
    fn asked(&self) -> Value {
        self.fake.get("pve.credentials")
    }

    /// No page shows the secret, and what the cluster says is text.
    async fn page_is_tame(&self) {
        let page = self.admin.property("html", "outerHTML").await;
        assert!(!page.as_str().unwrap().contains(SECRET));
        assert_eq!(self.admin.count("img").await, 0);
        assert!(!self.admin.text("title").await.contains("evil"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_added_tested_chosen_for_a_test_and_removed() {
    let Some(driver) = Driver::start() else { return };
    let Some(test) = Test::new(&driver).await else { return };
    add(&test).await;
    look_through(&test).await;
    a_viewer_changes_nothing(&test, &driver).await;
    let plan = choose_for_a_test(&test).await;
    follow_the_typing(&test).await;
    a_run_keeps_it(&test, &plan).await;
    change_and_remove(&test).await;
    test.admin.asked_only_its_server().await;
    test.admin.quit().await;
    assert!(files_with(test.site.path(), SECRET).is_empty(), "{:?}", files_with(test.site.path(), SECRET));
    drop(test.server);
}

async fn add(test: &Test) {
    let (admin, asked) = (&test.admin, test.asked());
    admin.go("/clusters").await;
    admin.shoot("clusters-empty").await;
    admin.click("a.button[href='/clusters/new']").await;
    until("the form", || async { admin.count("input[name=endpoint]").await == 1 }).await;
    assert_eq!(admin.count("input[name=secret]").await, 0, "nothing secret before the certificate was seen");
    admin.fill("input[name=name]", "lab").await;
    admin.fill("input[name=endpoint]", &test.fake.url.replace("https", "http")).await;
    admin.click("button[value=look]").await;
    until("the refusal", || async { admin.text(".flash.bad").await.contains("expected https://HOST") }).await;
    admin.click("input[value=authority]").await;
    until("the field for an authority", || async { admin.shown("textarea[name=ca]").await }).await;
    admin.shoot("cluster-where").await;
    admin.click("input[value=fingerprint]").await;
    admin.fill("input[name=endpoint]", &test.fake.url).await;
    admin.click("button[value=look]").await;
    until("the certificate", || async { admin.text("#sha256").await == test.fake.fingerprint }).await;
    assert_eq!(test.asked(), asked, "the token was not sent");
    admin.shoot("cluster-certificate").await;

    test.fake.grant_all_but(&["SDN.Use", "Datastore.AllocateTemplate"]);
    give_token(admin).await;
    until("what the token lacks", || async { admin.text(".problems").await.contains("lacks SDN.Use") }).await;
    assert!(admin.text(".problems").await.contains("recipe"), "what to do");
    assert_eq!(admin.property("input[name=secret]", "value").await, json!(""), "a secret is never sent back");
    test.page_is_tame().await;
    admin.shoot("cluster-refused").await;
    test.fake.grant_all_but(&[]);
    give_token(admin).await;
    until("the cluster", || async { admin.path().await == "/clusters/saved/lab" }).await;
    assert!(admin.text(".flash.good").await.contains("saved"));
}

/// The second step, filled in and sent.
async fn give_token(admin: &Browser) {
    admin.fill("input[name=token]", TOKEN).await;
    admin.fill("input[name=secret]", SECRET).await;
    admin.click("input[name=confirmed]").await;
    admin.click("button[value=save]").await;
}

async fn look_through(test: &Test) {
    let admin = &test.admin;
    let page = admin.text("main").await;
    for part in ["Proxmox VE", "pve1", "pve2", "ceph", "vmbr0", "shared: pve1, pve2", EVIL] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    test.page_is_tame().await;
    test.fake.run("pve.nodes['pve2']['online'] = False");
    admin.click("form[action$='/test'] button").await;
    until("the node that went", || async { admin.text("main table").await.contains("offline") }).await;
    admin.shoot("cluster").await;
    test.fake.run("def before(request):\n    raise PveError(500, 'the cluster burns')\npve.before = before");
    admin.click("form[action$='/test'] button").await;
    until("the cluster's own words", || async { admin.text(".flash.bad").await.contains("the cluster burns") }).await;
    assert!(admin.text(".flash.bad").await.contains("What to do: look at"));
    admin.shoot("cluster-unusable").await;
    // One that cannot be read hides no other, and can be forgotten.
    let broken = test.site.data_dir().join("connections/old.json");
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(broken).unwrap();
    admin.go("/clusters").await;
    until("both are listed", || async {
        let listed = admin.text("main table").await;
        ["not usable", "cannot be read", "What to do:"].iter().all(|part| listed.contains(part))
    })
    .await;
    admin.shoot("clusters").await;
    admin.click("a[aria-label='Remove old']").await;
    until("the question", || async { admin.text("main").await.contains("Forget the connection old?") }).await;
    admin.click("main form button.danger").await;
    until("the list", || async { admin.text("main").await.contains("The connection old is forgotten") }).await;
    test.fake.run("pve.before = None\npve.nodes['pve2']['online'] = True");
    admin.click("button[aria-label='Test lab']").await;
    until("it answers again", || async { admin.text(".flash.good").await.contains("every privilege") }).await;
    let listed = admin.fetch("/api/v1/clusters").await;
    assert!(listed.contains("\"usable\"") && !listed.contains(SECRET), "{listed}");
    let inventory = admin.fetch("/api/v1/clusters/lab/inventory").await;
    assert!(inventory.contains("\"vmbr0\"") && !inventory.contains(SECRET), "{inventory}");
}

async fn a_viewer_changes_nothing(test: &Test, driver: &Driver) {
    let viewer = driver.open(&test.server.origin).await;
    super::become_viewer(&test.admin, &viewer).await;
    viewer.go("/clusters").await;
    assert!(viewer.text("main table").await.contains("lab"));
    assert_eq!(viewer.count("main form, main a.button, main a.harm").await, 0, "a viewer has nothing to press");
    viewer.go("/clusters/saved/lab").await;
    assert!(viewer.text("main").await.contains("vmbr0"));
    let csrf = viewer.attribute("input[name=csrf]", "value").await.unwrap();
    for path in ["/clusters/new", "/clusters/saved/lab/test", "/clusters/saved/lab/edit", "/clusters/saved/lab/remove"]
    {
        assert_eq!(viewer.post(path, &format!("csrf={csrf}&step=save&confirmed=yes")).await, 403, "{path}");
    }
    viewer.quit().await;
}

/// The fields make the text; answers the plan with an image that is none.
async fn choose_for_a_test(test: &Test) -> String {
    let admin = &test.admin;
    admin.go("/new").await;
    let text = || async { admin.property("#yaml", "value").await.as_str().unwrap_or_default().to_owned() };
    admin.pick("[data-field='target.connection']", "lab").await;
    until("the storages", || async {
        admin.count("select[data-field='target.storage'] option[value=ceph]").await == 1
    })
    .await;
    until("the missing fields are marked", || async {
        admin.attribute("[data-field='target.bridge']", "aria-invalid").await.as_deref() == Some("true")
    })
    .await;
    for (field, value) in [("storage", "ceph"), ("iso_storage", "local"), ("bridge", "vmbr0")] {
        admin.pick(&format!("[data-field='target.{field}']"), value).await;
        let line = format!("  {field}: {value}\n");
        until("the text follows", || async { text().await.contains(&line) }).await;
    }
    admin.change("[data-field='target.pool']", "poc").await;
    admin.change("[data-field='target.vlan']", "120").await;
    admin.click("[data-node=pve1]").await;
    admin.change("[data-field='target.vmids.first']", "95000").await;
    admin.click("[data-field='guard.ceph']").await;
    let made = "target:\n  provider: proxmox\n  connection: lab\n  storage: ceph\n  iso_storage: local\n  bridge: vmbr0\n  pool: poc\n  vlan: 120\n  \
                nodes: [pve1]\n  vmids: { first: 95000, last: 99999 }\n";
    until("the last change", || async { text().await.contains("guard:") }).await;
    assert!(text().await.contains(made) && text().await.contains("guard: { ceph: false }"), "{}", text().await);
    until("the preflight", || async { admin.text("[data-verdict]").await.contains("storage ceph") }).await;
    assert!(admin.text("[data-place]").await.contains(EVIL), "a bridge's name is text");
    test.page_is_tame().await;

    // The other way: the text makes the fields.
    let image = test.site.path().join("image.iso");
    fs::write(&image, "no image").unwrap();
    let plan = text()
        .await
        .replace("vlan: 120", "vlan: 121")
        .replace("  pool: poc\n", &format!("  pool: poc\n  image: '{}'\n", image.display()));
    admin.write("#yaml", &plan).await;
    until("the field follows", || async {
        admin.property("[data-field='target.vlan']", "value").await == json!("121")
    })
    .await;
    assert_eq!(admin.property("[data-field='guard.ceph']", "checked").await, json!(false));
    assert_eq!(admin.property("[data-node=pve1]", "checked").await, json!(true));
    settled(admin).await;
    admin.shoot("new-cluster").await;
    plan
}

/// The cluster has answered.
async fn settled(admin: &Browser) {
    until("the cluster's answer", || async {
        admin.count("[data-anew]").await == 1 && admin.count("[data-pending]").await == 0
    })
    .await;
}

async fn follow_the_typing(test: &Test) {
    let admin = &test.admin;
    // What is a minute old is asked for again: a machine that is slower than that types once more.
    loop {
        ask_again(admin).await;
        let (since, asked) = (Instant::now(), test.asked());
        for name in ["A", "An", "Another"] {
            let before = checked(admin).await;
            admin.change("[data-field=name]", name).await;
            until("the name is judged", || async { checked(admin).await != before }).await;
        }
        settled(admin).await;
        if since.elapsed() < Duration::from_secs(50) {
            assert_eq!(test.asked(), asked, "typing asks the cluster nothing");
            break;
        }
    }
    test.fake.grant_all_but(&["SDN.Use"]);
    ask_again(admin).await;
    assert!(admin.text(".problems .blocker").await.contains("SDN.Use"), "{}", admin.text("[data-verdict]").await);
    assert_eq!(admin.property("[data-start]", "disabled").await, json!(true));
    admin.shoot("new-cluster-blocked").await;
    test.fake.grant_all_but(&[]);
    ask_again(admin).await;
    assert_eq!(admin.property("[data-start]", "disabled").await, json!(false));
}

/// How many verdicts the page has had.
async fn checked(admin: &Browser) -> Option<String> {
    admin.attribute("form[data-plan]", "data-checked").await
}

/// The button that asks the cluster anew, and its answer.
async fn ask_again(admin: &Browser) {
    settled(admin).await;
    let before = checked(admin).await;
    admin.click("[data-anew]").await;
    until("the answer", || async { checked(admin).await != before }).await;
    settled(admin).await;
}

/// While a run uses it, a connection stays; then the run ends where its image is none.
async fn a_run_keeps_it(test: &Test, plan: &str) {
    let admin = &test.admin;
    admin.go("/clusters").await;
    // The run's own preflight is held up: whatever asks the cluster now is the run.
    test.fake.run("pve.refused = 0\ndef before(request):\n    pve.refused += 1\n    raise PveError(503, 'busy')\npve.before = before");
    admin.start_plan(&format!("{plan}canary: false\n")).await;
    until("the run's first question", || async { test.fake.get("pve.refused") != json!(0) }).await;
    admin.go("/clusters/saved/lab/remove").await;
    admin.click("button.danger").await;
    until("the refusal", || async { admin.text(".flash.bad").await.contains("The run Demo uses the connection lab") })
        .await;
    test.fake.run("pve.before = None");
    until("the run's end", || async { admin.fetch("/api/v1/runs").await.contains("\"failed\"") }).await;
    let runs = admin.fetch("/api/v1/runs").await;
    assert!(runs.contains("no bootstrap slot"), "it came as far as its image: {runs}");
    start_from_the_page(admin, plan).await;
}

/// As from the command line: the workers' listener is open before the image is made for it.
async fn start_from_the_page(admin: &Browser, plan: &str) {
    admin.go("/new").await;
    admin.write("#yaml", &format!("{plan}canary: false\n")).await;
    until("the text is judged", || async { admin.text("[data-verdict] .problems").await.contains("storage ceph") })
        .await;
    settled(admin).await;
    // The run before is recorded as ended a moment before the next may begin. Then the live page, or the report where the run ended
    // before anybody could follow it.
    until("the run's page", || async {
        if admin.path().await == "/new" {
            admin.click("[data-start]").await;
        }
        admin.path().await.starts_with("/runs/")
    })
    .await;
    until("the end", || async { admin.text("main").await.contains("no bootstrap slot") }).await;
}

async fn change_and_remove(test: &Test) {
    let admin = &test.admin;
    admin.go("/clusters/saved/lab/edit").await;
    assert_eq!(admin.property("input[name=endpoint]", "value").await, json!(test.fake.url));
    admin.click("input[value=authority]").await;
    let certificate = fs::read_to_string(&test.fake.certificate).unwrap();
    admin.write("textarea[name=ca]", &certificate).await;
    admin.click("button[value=look]").await;
    until("the second step", || async { admin.count("input[name=secret]").await == 1 }).await;
    admin.click("button[value=save]").await;
    // The run before is recorded as ended a moment before it lets go of its connection.
    until("it is changed", || async {
        if admin.text(".flash.bad").await.contains("uses the connection lab") {
            admin.click("button[value=save]").await;
        }
        admin.text(".flash.good").await.contains("was changed")
    })
    .await;
    assert!(admin.text("main").await.contains("issued by a given authority"));
    // The saved secret goes to no other address that only this system's authorities vouch for.
    admin.go("/clusters/saved/lab/edit").await;
    admin.click("input[value=system]").await;
    admin.fill("input[name=endpoint]", &test.fake.url.replace("127.0.0.1", "localhost")).await;
    admin.click("button[value=look]").await;
    until("the second step", || async { admin.count("input[name=secret]").await == 1 }).await;
    let asked = test.asked();
    admin.click("button[value=save]").await;
    until("the refusal", || async { admin.text(".flash.bad").await.contains("The token's secret is needed") }).await;
    assert_eq!(test.asked(), asked);
    admin.go("/clusters/saved/lab/remove").await;
    admin.shoot("cluster-remove").await;
    admin.click("button.danger").await;
    until("it is forgotten", || async { admin.text(".flash.good").await.contains("is forgotten") }).await;
    assert!(!test.site.data_dir().join("connections/lab.json").exists());
    assert!(!test.site.data_dir().join("connections/lab.pem").exists());
}
