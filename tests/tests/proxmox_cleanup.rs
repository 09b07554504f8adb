//! What a killed run left on a cluster is listed and removed with the built binary, and nothing else is.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;

use end_to_end::fake::{Fake, idle_plan};
use end_to_end::{Answer, Site, wait_for};
use serde_json::{Value, json};

/// A site with a connection.
struct Test {
    fake: Fake,
    site: Site,
}

impl Test {
    fn new() -> Option<Self> {
        let fake = Fake::start()?;
        fake.grant_all_but(&[]);
        let test = Self { fake, site: Site::new() };
        test.fake.connect(&test.site);
        Some(test)
    }

    /// Somebody else's VMs that look like ours: by name, by tag, and a clone of one of ours.
    fn add_foreign(&self) {
        self.fake.run(
            "ours = pve.vm(90000)\n\
             pve.add_vm(100, ours.name + '-2')\n\
             pve.add_vm(101, 'x', config={'tags': ours.config['tags']})\n\
             pve.add_vm(102, ours.name, config=dict(ours.config, scsi0='ceph:vm-102-disk-0,serial=x,size=1G'))\n\
             pve.storages['ceph']['volumes']['vm-102-disk-0'] = {'content': 'images', 'size': 2**30, 'vmid': 102}\n\
             pve.vm(101).status = 'running'",
        );
    }

    fn foreign(&self) -> Value {
        self.fake.get("[(vm.vmid, vm.status, sorted((k, str(v)) for k, v in vm.config.items())) for vm in pve.vms if vm.vmid < 90000]")
    }

    fn items(&self, site: &Site, args: &[&str]) -> Vec<Value> {
        let mut command = site.command(["cleanup", "--dry-run", "--json"]);
        let answer = Answer::from(command.args(args).output().unwrap());
        assert!(answer.ok(), "{answer:?}");
        let listed: Value = serde_json::from_str(&answer.stdout).unwrap();
        assert_eq!(listed["removed"], false);
        listed["items"].as_array().unwrap().clone()
    }
}

#[test]
fn what_a_killed_run_left_is_listed_and_removed_and_nothing_else() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let run = test.fake.killed_run(&test.site);
    test.add_foreign();
    let (foreign, before) = (test.foreign(), test.fake.inventory());

    let items = test.items(&test.site, &[]);
    let objects: Vec<&str> = items.iter().map(|item| item["object"].as_str().unwrap()).collect();
    assert_eq!(objects.len(), 4, "two VMs, and an image on each node: {items:#?}");
    for part in ["VM 90000 (fourcorners-", "VM 90001 (fourcorners-", "image local:iso/fourcorners-"] {
        assert!(objects.iter().any(|object| object.starts_with(part)), "{part}: {objects:#?}");
    }
    assert!(items.iter().all(|item| item["run"] == *run && item["known_by"] == "journal and mark"), "{items:#?}");
    assert_eq!(test.fake.inventory(), before, "a dry run changes nothing");
    assert_eq!(test.site.state().as_deref(), Some("enrolling"), "nor the run");

    let unanswered = test.site.ask(["cleanup"]);
    assert!(!unanswered.ok() && unanswered.stderr.contains("--yes"), "{unanswered:?}");
    assert_eq!(test.fake.inventory(), before, "nor does a question that nobody answers");

    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(removed.ok() && removed.stdout.contains("All of it is gone"), "{removed:?}");
    assert_eq!(test.foreign(), foreign);
    assert_eq!(test.site.state().as_deref(), Some("failed"));
    test.fake.run("for vmid in (100, 101, 102):\n  pve.vms.remove(pve.vm(vmid))\ndel pve.storages['ceph']['volumes']['vm-102-disk-0']");
    assert_eq!(test.fake.inventory(), clean);
    let again = test.site.ask(["cleanup"]);
    assert!(again.ok() && again.stdout.contains("Nothing is left"), "{again:?}");
}

#[test]
fn what_does_not_agree_is_left_with_its_reason_until_it_does() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let run = test.fake.killed_run(&test.site);
    test.fake.run("pve.vm(90000).config['lock'] = 'backup'");
    let left = test.site.ask(["cleanup", "--run", &run, "--yes"]);
    assert_eq!(left.code, Some(1), "{left:?}");
    assert!(left.stdout.contains("VM 90000") && left.stdout.contains("locked (backup)"), "{left:?}");
    assert_eq!(test.fake.get("[vm.vmid for vm in pve.vms]"), json!([90_000]));
    let items = test.items(&test.site, &["--run", "latest"]);
    assert!(items.iter().any(|item| item["object"].as_str().unwrap().starts_with("VM 90000")), "{items:#?}");
    test.fake.run("del pve.vm(90000).config['lock']");
    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(removed.ok(), "{removed:?}");
    assert_eq!(test.fake.inventory(), clean);
}

#[test]
fn without_the_database_the_marks_are_enough_once_the_fleet_is_named() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let run = test.fake.killed_run(&test.site);
    test.add_foreign();
    let (foreign, before) = (test.foreign(), test.fake.inventory());
    let fleet = format!("{run}-1");
    // Another machine, which knows the cluster by a plan alone.
    let other = Site::new();
    test.fake.connect(&other);
    let plan = other.plan(&idle_plan(&test.site));
    let plan = plan.to_str().unwrap();
    let items = test.items(&other, &["--plan", plan]);
    assert_eq!(items.len(), 4, "{items:#?}");
    let is_kept =
        |item: &Value| item["fleet"] == *fleet && item["kept"].as_str().is_some_and(|why| why.contains("--fleet"));
    assert!(items.iter().all(is_kept), "{items:#?}");
    let kept = other.ask(["cleanup", "--plan", plan, "--yes"]);
    assert!(kept.ok(), "{kept:?}");
    assert_eq!(test.fake.inventory(), before, "another orchestrator's workers stay unless they are named");
    let removed = other.ask(["cleanup", "--plan", plan, "--fleet", &fleet, "--yes"]);
    assert!(removed.ok(), "{removed:?}");
    assert_eq!(test.foreign(), foreign);
    test.fake.run("for vmid in (100, 101, 102):\n  pve.vms.remove(pve.vm(vmid))\ndel pve.storages['ceph']['volumes']['vm-102-disk-0']");
    assert_eq!(test.fake.inventory(), clean);
    assert!(fs::read_dir(other.data_dir().join("cleanup")).unwrap().next().is_none(), "its journal is gone with them");
    // The first one finds nothing of what its journal says, and closes it.
    let first = test.site.ask(["cleanup", "--yes"]);
    assert!(first.ok(), "{first:?}");
    let again = test.site.ask(["cleanup"]);
    assert!(again.ok() && again.stdout.contains("Nothing is left"), "{again:?}");
}

#[test]
fn a_cluster_that_does_not_answer_is_named_and_its_run_kept_for_later() {
    let Some(test) = Test::new() else { return };
    let _ = test.fake.killed_run(&test.site);
    let removed = test.site.ask(["connections", "remove", "lab"]);
    assert!(removed.ok(), "{removed:?}");
    let listed = test.site.ask(["cleanup", "--dry-run"]);
    assert!(!listed.ok() && listed.stdout.contains("no saved connection leads to"), "{listed:?}");
    test.fake.connect(&test.site);
    let found = wait_for("the connection", || {
        let answer = test.site.ask(["cleanup", "--yes"]);
        answer.ok().then_some(answer)
    });
    assert!(found.stdout.contains("All of it is gone"), "{found:?}");
}

#[test]
fn a_certificate_that_was_renewed_meanwhile_is_trusted_once_it_is_pinned_anew() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let _ = test.fake.killed_run(&test.site);
    let renewed = test.fake.get("pve.change_certificate()");
    let before = test.fake.inventory();
    let refused = test.site.ask(["cleanup", "--yes"]);
    assert!(!refused.ok() && refused.stdout.contains("is pinned"), "{refused:?}");
    assert!(refused.stdout.contains("kept: its place cannot be reached"), "{refused:?}");
    assert!(!refused.stdout.contains("gone"), "{refused:?}");
    assert_eq!(test.fake.inventory(), before);
    test.fake.connect_at(&test.site, &test.fake.url, renewed.as_str().unwrap(), &["--replace"]);
    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(removed.ok() && removed.stdout.contains("All of it is gone"), "{removed:?}");
    assert_eq!(test.fake.inventory(), clean);
}

#[test]
fn a_cluster_whose_node_of_then_is_dead_is_reached_by_another_that_a_plan_names() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let run = test.fake.killed_run(&test.site);
    // The address that the run used leads nowhere any more.
    let removed = test.site.ask(["connections", "remove", "lab"]);
    assert!(removed.ok(), "{removed:?}");
    let other = test.fake.url.replace("127.0.0.1", "localhost");
    test.fake.connect_at(&test.site, &other, &test.fake.fingerprint, &[]);
    let plan = test.site.plan(&idle_plan(&test.site));
    let plan = plan.to_str().unwrap();
    let alone = test.site.ask(["cleanup", "--yes"]);
    assert!(!alone.ok() && alone.stdout.contains("its place cannot be reached"), "{alone:?}");
    let listed = test.site.ask(["cleanup", "--plan", plan, "--dry-run", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let items = listed["items"].as_array().unwrap();
    assert_eq!(items.len(), 4, "{items:#?}");
    assert!(items.iter().all(|item| item["run"] == *run && item["kept"].is_null()), "{items:#?}");
    let removed = test.site.ask(["cleanup", "--plan", plan, "--yes"]);
    assert!(removed.ok(), "{removed:?}");
    assert_eq!(test.fake.inventory(), clean);
    let again = test.site.ask(["cleanup", "--plan", plan, "--dry-run", "--json"]);
    let again: Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(again["items"], json!([]), "{again}");
}

#[test]
fn what_is_on_a_node_that_is_offline_is_not_called_gone() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let run = test.fake.killed_run(&test.site);
    test.fake.run("pve.set_node_offline('pve2')");
    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(!removed.ok() && removed.stdout.contains("No route to host"), "{removed:?}");
    // Another orchestrator's eyes, without the journal.
    let other = Site::new();
    test.fake.connect(&other);
    let plan = other.plan(&idle_plan(&test.site));
    let listed = other.ask(["cleanup", "--plan", plan.to_str().unwrap(), "--dry-run"]);
    assert!(!listed.ok() && listed.stdout.contains("Not looked at: VM 90001"), "{listed:?}");
    assert!(!listed.stdout.contains("Nothing is left"), "{listed:?}");
    let fleet = format!("{run}-1");
    let named = other.ask(["cleanup", "--plan", plan.to_str().unwrap(), "--fleet", &fleet, "--yes"]);
    assert!(!named.ok() && named.stdout.contains("All that was found is gone"), "{named:?}");
    assert!(named.stdout.contains("Not looked at: images on pve2"), "{named:?}");
    assert!(fs::read_dir(other.data_dir().join("cleanup")).unwrap().next().is_some(), "its journal stays");
    test.fake.run("pve.set_node_offline('pve2', False)");
    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(removed.ok(), "{removed:?}");
    assert_eq!(test.fake.inventory(), clean);
}

#[test]
fn volumes_that_outlive_their_vms_are_known_until_they_are_gone() {
    let Some(test) = Test::new() else { return };
    let clean = test.fake.inventory();
    let _ = test.fake.killed_run(&test.site);
    // The storage is away while the VMs are destroyed: PVE removes their configurations all the same.
    test.fake.run(
        "pve.free = pve._qm_free\n\
         pve._qm_free = lambda volid: None\n\
         def away(request):\n\
         \x20 if request.path.endswith('/storage/ceph/content'):\n\
         \x20   raise PveError(500, 'the storage is away')\n\
         pve.before = away",
    );
    let left = test.site.ask(["cleanup", "--yes"]);
    assert!(!left.ok() && left.stdout.contains("the storage is away"), "{left:?}");
    assert_eq!(test.fake.get("[len(pve.vms), len(pve.storages['ceph']['volumes'])]"), json!([0, 4]));
    test.fake.run("pve._qm_free = pve.free\npve.before = None");
    let items = test.items(&test.site, &[]);
    assert!(items.iter().any(|item| item["object"].as_str().unwrap().starts_with("volume ceph")), "{items:#?}");
    let removed = test.site.ask(["cleanup", "--yes"]);
    assert!(removed.ok() && removed.stdout.contains("All of it is gone"), "{removed:?}");
    let mut after = test.fake.inventory();
    after["storages"]["ceph"]["avail"] = clean["storages"]["ceph"]["avail"].clone();
    assert_eq!(after, clean);
    let again = test.site.ask(["cleanup"]);
    assert!(again.ok() && again.stdout.contains("Nothing is left"), "{again:?}");
}
