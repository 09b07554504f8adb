//! Whole plans on a Proxmox VE cluster with real VMs: the built binary against fakepve, and a QEMU VM of the real worker image for each
//! VM that the cluster shows running.
//!
//! Minutes on two cores without KVM, most of them boots.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use analysis::export::{Case, Export};
use end_to_end::fake::{Fake, SECRET, TOKEN};
use end_to_end::machines::{Machines, Started};
use end_to_end::vm::{Image, image};
use end_to_end::{Answer, Running, Site, skip, wait_within};
use rustix::process::Signal;
use serde_json::Value;

const MIB: u64 = 1 << 20;
/// PVE allocates disks in these.
const GIB: u64 = 1 << 30;
/// Boots, fills and samples of one plan, emulated on a busy machine.
const PLAN_BOUND: Duration = Duration::from_secs(1200);
/// One at a time: each wants all CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// A cluster with machines, and a site that is connected to it.
struct Test {
    image: &'static Image,
    fake: Arc<Fake>,
    machines: Machines,
    site: Site,
    /// The cluster before anything was done to it.
    before: Value,
}

impl Test {
    /// None, with a line that says so, where it cannot be.
    fn new() -> Option<Self> {
        let image = image().inspect_err(|reason| skip(reason)).ok()?;
        let fake = Arc::new(Fake::start()?);
        fake.grant_all_but(&[]);
        // Somebody else's, so that "as before" is not "empty".
        fake.run(
            "pve.add_vm(100, 'customer', config={'scsi0': 'ceph:vm-100-disk-0,size=4G'})\n\
             pve.storages['ceph']['volumes']['vm-100-disk-0'] = {'content': 'images', 'size': 4 * 2**30, 'vmid': 100}\n\
             pve.store_file('local', 'debian.iso', 2**20)",
        );
        let site = Site::new();
        let args = ["connect", &fake.url, "--name", "lab", "--fingerprint", &fake.fingerprint, "--token-env", "T"];
        let answer = Answer::from(site.command(args).env("T", format!("{TOKEN}={SECRET}")).output().unwrap());
        assert!(answer.ok(), "{answer:?}");
        let machines = Machines::of(Arc::clone(&fake), site.path().join("machines"));
        let before = fake.inventory();
        Some(Self { image, fake, machines, site, before })
    }

    fn plan(&self, rest: &str) -> String {
        format!(
            "name: on VMs of a cluster\ntarget: {{provider: proxmox, connection: lab, nodes: [pve1, pve2], storage: ceph, \
             iso_storage: local, bridge: vmbr0, pool: poc, image: '{}'}}\n{rest}\n",
            self.image.path.display()
        )
    }

    /// Starts a plan. QEMU's user network has the host at 10.0.2.2, as a forwarded address of its loopback.
    fn start(&self, rest: &str) -> Running {
        let path = self.site.plan(&self.plan(rest));
        let path = path.to_str().unwrap();
        self.site.start_with(["run", path, "--worker-listen", "127.0.0.1:0", "--worker-address", "10.0.2.2"])
    }

    fn wait_for_sample(&self) {
        wait_within(PLAN_BOUND, "the first sample", || match self.site.state()?.as_str() {
            "failed" => panic!("{:?}", self.site.ask(["show"])),
            state => (state == "sampling").then_some(()),
        });
    }

    /// The cluster is as it was; the machines follow it at their next look.
    fn nothing_is_left(&self) {
        assert_eq!(self.fake.inventory(), self.before);
        wait_within(PLAN_BOUND, "the machines' end", || {
            (self.machines.running().is_empty() && self.machines.files().is_empty()).then_some(())
        });
    }
}

#[test]
fn a_plan_runs_on_three_vms_of_two_nodes_after_its_canary_and_leaves_the_cluster_as_it_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(test) = Test::new() else { return };
    let running = test.start(
        "canary: {wait: 15m}\nworkers: {count: 3, vcpus: 1, memory: 256MiB, disks: 3}\nfootprints: [72MiB, 288MiB]\nprecondition: 2s\nsample: 3s\n\
         workloads: [published/4k-random-read, published/8k-random-70-30]",
    );
    test.wait_for_sample();
    assert_eq!(test.machines.running().len(), 3);
    let answer = running.end_within(PLAN_BOUND);
    assert!(answer.ok(), "{answer:?}");
    test.nothing_is_left();
    turned_on(&test.machines.started());

    let json = test.site.export();
    let export: Export = serde_json::from_value(json.clone()).unwrap();
    assert!(export.run.complete && export.run.state == "done", "{:?}", export.run.reason);
    assert_eq!(export.cases.len(), 4);
    export.cases.iter().for_each(figures);
    let serials: BTreeSet<_> = test.machines.started()[2..].iter().flat_map(|vm| vm.disks.clone()).collect();
    let measured: BTreeSet<_> = export.cases[0].per_disk.iter().map(|disk| (disk.disk.clone(), GIB)).collect();
    assert_eq!(measured, serials, "what was measured are the VMs' disks");
    let place = &json["run"]["environment"]["place"];
    assert_eq!(place["provider"], "proxmox", "{place}");
    for worker in json["run"]["environment"]["workers"].as_array().unwrap() {
        assert_eq!(worker["hello"]["kernel"], test.image.report["manifest"]["kernel"], "it booted the image");
    }
    said(&export, &answer);
    let report = fs::read_to_string(test.site.data_dir().join(format!("reports/{}.html", export.run.id))).unwrap();
    for wanted in ["pve1", "pve2", "canary on pve1", "s after its start"] {
        assert!(report.contains(wanted), "{wanted} is missing in the report");
    }
}

/// One canary a node with one disk of 1 GiB, then the workers, spread evenly.
fn turned_on(started: &[Started]) {
    let [first, second, workers @ ..] = started else { panic!("{started:?}") };
    for (canary, node) in [first, second].into_iter().zip(["pve1", "pve2"]) {
        assert!(canary.name.contains("canary") && canary.disks.len() == 1, "{started:?}");
        assert!(canary.disks[0].1 == GIB && [first, second].iter().any(|one| one.node == node), "{started:?}");
    }
    assert_eq!(workers.len(), 3, "{started:?}");
    let on_first = workers.iter().filter(|vm| vm.node == "pve1").count();
    assert!((1..=2).contains(&on_first), "{started:?}");
    let whole = |vm: &Started| vm.disks.len() == 3 && vm.disks.iter().all(|(_, bytes)| *bytes == GIB);
    assert!(workers.iter().all(|vm| vm.name.contains("worker") && whole(vm)), "{started:?}");
}

/// A case of the plan above.
fn figures(case: &Case) {
    let name = format!("{} {}", case.footprint, case.workload);
    assert_eq!(case.state, "complete", "{name}: {:?}", case.reason);
    let region = if case.footprint_bytes == 72 * MIB { 8 * MIB } else { 32 * MIB };
    assert_eq!((case.region_bytes, case.effective_bytes), (region, region * 9), "{name}");
    assert_eq!((case.workers.expected, case.workers.measured), (3, 3), "{name}");
    let fill = case.fill.as_ref().unwrap();
    let new_bytes = if case.footprint_bytes == 72 * MIB { 72 * MIB } else { 216 * MIB };
    assert_eq!((fill.bytes, fill.verified_blocks), (new_bytes, 9_000), "{name}: only the new bytes are filled");
    let all = case.ops.all.as_ref().unwrap();
    assert_eq!((all.bytes, all.errors), (all.count * case.block_bytes, 0), "{name}");
    let by_disk: Vec<u64> = case.per_disk.iter().map(|disk| disk.ops.all.as_ref().unwrap().count).collect();
    let by_worker: Vec<u64> = case.per_worker.iter().map(|worker| worker.ops.all.as_ref().unwrap().count).collect();
    assert!(by_disk.len() == 9 && by_disk.iter().all(|count| *count > 0), "{name}: {by_disk:?}");
    assert!(by_worker.len() == 3 && by_worker.iter().all(|count| *count > 0), "{name}: {by_worker:?}");
    assert_eq!((by_disk.iter().sum(), by_worker.iter().sum()), (all.count, all.count), "{name}");
    assert_eq!(case.seconds.len(), 3, "{name}");
    assert!(!case.hosts.is_empty(), "{name}: the nodes were sampled");
    for sample in &case.hosts {
        let hosts: Vec<&str> = sample.hosts.iter().map(|load| load.host.as_str()).collect();
        assert_eq!(hosts, ["pve1", "pve2"], "{name}");
        assert!(sample.hosts.iter().all(|load| load.memory_bytes > Some(0)), "{name}: {sample:?}");
    }
}

/// The canary's way and each VM's time to its enrolment are events, and the latter were printed.
fn said(export: &Export, answer: &Answer) {
    let messages: Vec<&str> = export.run.events.iter().map(|event| event.message.as_str()).collect();
    let at = |start: &str| messages.iter().position(|message| message.starts_with(start));
    for node in ["pve1", "pve2"] {
        let canary = at(&format!("canary on {node}: enrolled as ")).unwrap();
        for wanted in
            ["1073741824 bytes seen", "1000 blocks read back as written", "removed", "MTU to the orchestrator 1500"]
        {
            assert!(messages[canary].contains(wanted), "{wanted} in {}", messages[canary]);
        }
        assert!(canary < at("worker worker-1 enrolled ").unwrap(), "{messages:#?}");
    }
    for worker in ["worker-1", "worker-2", "worker-3"] {
        assert!(at(&format!("worker {worker} enrolled ")).is_some(), "{messages:#?}");
    }
    assert!(answer.stderr.contains("From start to enrolment: worker-1 "), "{}", answer.stderr);
}

#[test]
fn an_orchestrator_killed_while_its_vms_run_leaves_the_cluster_as_it_was_once_it_is_started_again() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(test) = Test::new() else { return };
    let running = test.start(
        "workers: {count: 2, vcpus: 1, memory: 256MiB, disks: 2}\nfootprints: [32MiB]\nprecondition: 1s\nsample: 1h\n\
         workloads: [published/4k-random-read]\ncanary: false\non_restart: teardown",
    );
    test.wait_for_sample();
    running.signal(Signal::KILL);
    let _ = running.end();
    assert_eq!(test.machines.running().len(), 2, "the VMs outlive the orchestrator");
    assert_ne!(test.fake.inventory(), test.before);

    let again = test.site.start_with(["serve", "--listen", "127.0.0.1:0"]);
    wait_within(PLAN_BOUND, "the end of the run", || test.site.state().filter(|state| state == "failed"));
    test.nothing_is_left();
    again.signal(Signal::INT);
    let answer = again.end();
    assert!(answer.ok() && answer.stderr.contains("was ended as failed and cleaned up"), "{answer:?}");
    let export: Export = serde_json::from_value(test.site.export()).unwrap();
    assert_eq!(export.run.reason.as_deref(), Some("the orchestrator ended before the run did"));
    assert_eq!(export.cases.len(), 1);
    assert_eq!(export.cases[0].state, "incomplete", "{:?}", export.cases[0].reason);
}
