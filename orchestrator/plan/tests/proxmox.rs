//! A plan's Proxmox target, guard and canary: what is read, and what each bad field is told.

#![expect(clippy::panic, reason = "a test ends at what it did not expect")]

use std::fs;
use std::path::Path;

use plan::proxmox::{
    Addressing, Aio, Cluster, DiskOptions, Format, Guard, Nodes, OnRestart, ProxmoxTarget, SecretSource, TaskLimits,
    TokenSource, Trust, VmidRange,
};
use plan::{Profiles, Target, TestPlan, parse};

/// A good plan with every field; each case changes a line of it.
const GOOD: &str = "\
name: Test
target:
  provider: proxmox
  endpoint: https://pve1.example.org
  token: { id: fc@pve!poc, secret_env: PVE_SECRET }
  tls: { ca_file: ca.pem }
  nodes: { pve1: 3, pve2: 1 }
  storage: ceph
  iso_storage: local
  bridge: vmbr0
  vlan: 120
  pool: poc
  vmids: { first: 7000, last: 7999 }
  name_prefix: it
  disks: { discard: true, ssd: true, aio: native, format: raw }
  limits: { cluster: 6, node: 2, storage: 3 }
  image: worker.iso
  addressing: { first: 192.0.2.50, prefix: 24, gateway: 192.0.2.1 }
guard: { min_free_percent: 12.5, ceph: false, io_error: false, quorum: false }
canary: false
on_restart: teardown
workers: { count: 4, disks: 2 }
footprints: [1GiB]
precondition: 1m
sample: 90s
workloads: [4k-random-read]
";

/// What must be there and nothing else.
const LEAST: &str = "\
name: Test
target: { provider: proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0 }
workers: { count: 4, disks: 2 }
footprints: [1GiB]
precondition: 1m
sample: 90s
workloads: [4k-random-read]
";

fn read(yaml: &str) -> TestPlan {
    parse("plan.yaml", yaml, &Profiles::shipped()).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

fn target(plan: &TestPlan) -> &ProxmoxTarget {
    match &plan.target {
        Target::Proxmox(target) => target,
        Target::Local(_) => panic!("{plan:?}"),
    }
}

/// The messages of [`GOOD`] with `from` replaced by `to`, for each case.
fn messages(cases: &[(&str, &str)]) -> String {
    let one = |(from, to): &(&str, &str)| {
        assert!(GOOD.contains(from), "{from:?} is not in the plan");
        let errors = match parse("plan.yaml", &GOOD.replacen(from, to, 1), &Profiles::shipped()) {
            Err(errors) => errors.to_string(),
            Ok(_) => panic!("accepted: {to}"),
        };
        format!("{}\n    {}\n", to.escape_debug(), errors.replace('\n', "\n    "))
    };
    cases.iter().map(one).collect()
}

#[test]
fn an_mtu_is_read_within_its_bounds_and_shown() {
    let with = |mtu: &str| LEAST.replace("bridge: vmbr0", &format!("bridge: vmbr0, mtu: {mtu}"));
    for mtu in [576, 1400, 9216] {
        let plan = read(&with(&mtu.to_string()));
        assert_eq!(target(&plan).mtu, Some(mtu));
        let shown = plan::schedule(&plan, plan::FillRate::assumed()).render(&plan);
        assert!(shown.contains(&format!("addresses by DHCP, MTU {mtu}")), "{shown}");
    }
    assert_eq!(target(&read(LEAST)).mtu, None);
    for wrong in ["575", "9217", "jumbo", "1500.5", "-1"] {
        let errors = parse("plan.yaml", &with(wrong), &Profiles::shipped()).unwrap_err().to_string();
        let told = format!("target.mtu: found `{wrong}`; allowed: a whole number from 576 to 9216");
        assert!(errors.contains(&told), "{errors}");
    }
}

#[test]
fn every_field_is_read() {
    let plan = read(GOOD);
    let expected = ProxmoxTarget {
        cluster: Cluster::Given {
            endpoint: "https://pve1.example.org".into(),
            token: TokenSource { id: "fc@pve!poc".into(), secret: SecretSource::SecretEnv("PVE_SECRET".into()) },
            tls: Trust::CaFile("ca.pem".into()),
        },
        nodes: Some(Nodes::Counts([("pve1".into(), 3), ("pve2".into(), 1)].into())),
        storage: "ceph".into(),
        iso_storage: "local".into(),
        bridge: "vmbr0".into(),
        vlan: Some(120),
        pool: Some("poc".into()),
        vmids: VmidRange { first: 7000, last: 7999 },
        name_prefix: "it".into(),
        disks: DiskOptions { discard: true, ssd: true, aio: Some(Aio::Native), format: Some(Format::Raw) },
        limits: TaskLimits { cluster: 6, node: 2, storage: 3 },
        image: Some("worker.iso".into()),
        addressing: Addressing::Static {
            first: "192.0.2.50".parse().unwrap(),
            prefix: 24,
            gateway: Some("192.0.2.1".parse().unwrap()),
        },
        mtu: None,
    };
    assert_eq!(*target(&plan), expected);
    assert_eq!(plan.guard, Some(Guard { min_free_percent: 12.5, ceph: false, io_error: false, quorum: false }));
    assert_eq!((plan.canary, plan.on_restart), (false, OnRestart::Teardown));
}

#[test]
fn the_least_has_the_defaults_and_is_guarded() {
    let plan = read(LEAST);
    let target = target(&plan);
    assert_eq!(target.cluster, Cluster::Saved { connection: "lab".into() });
    assert_eq!((target.vmids.first, target.vmids.last), (90_000, 99_999));
    assert_eq!((target.limits.cluster, target.limits.node, target.limits.storage), (12, 4, 8));
    assert_eq!((&*target.name_prefix, target.addressing), ("fourcorners", Addressing::Dhcp));
    let guard = plan.guard.unwrap();
    assert!(guard.min_free_percent >= 20.0 && guard.ceph && guard.io_error && guard.quorum);
    assert_eq!((plan.canary, plan.canary_wait_seconds), (true, 180));
    assert_eq!(read(&format!("{LEAST}canary: {{ wait: 90s }}\n")).canary_wait_seconds, 90);
    let local =
        read(&LEAST.replace("proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0", "local"));
    assert_eq!((local.guard, local.canary), (None, false));
    let target = "local, isolation: vm";
    let vms = LEAST.replace("proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0", target);
    assert!(!read(&vms).canary, "this machine's VMs have one where the plan says so");
    let asked = read(&format!("{vms}canary: {{ wait: 5m }}\n"));
    assert_eq!((asked.canary, asked.canary_wait_seconds), (true, 300));
}

#[test]
fn a_fingerprint_is_kept_as_pve_writes_it() {
    let pinned = GOOD.replace("ca_file: ca.pem", &format!("fingerprint: \"{}\"", "0a".repeat(32)));
    let plan = read(&pinned);
    let Cluster::Given { tls: Trust::Fingerprint(fingerprint), .. } = &target(&plan).cluster else {
        panic!("{plan:?}")
    };
    assert_eq!(*fingerprint, vec!["0A"; 32].join(":"));
}

#[test]
fn connections() {
    insta::assert_snapshot!(messages(&[
        ("endpoint: https://pve1.example.org", "endpoint: pve1"),
        ("https://pve1.example.org", "http://pve1"),
        ("https://pve1.example.org", "https://a:b@pve1"),
        ("https://pve1.example.org", "https://pve1/api2"),
        ("https://pve1.example.org", "https://pve1:0"),
        ("https://pve1.example.org", "https://pve1:99999"),
        ("https://pve1.example.org", "https://1.2.3"),
        ("https://pve1.example.org", "\"https://[fd00::1\""),
        ("  endpoint: https://pve1.example.org\n", ""),
        ("  token: { id: fc@pve!poc, secret_env: PVE_SECRET }\n", ""),
        ("endpoint: https://pve1.example.org", "connection: lab"),
        ("fc@pve!poc", "fc@pve"),
        ("fc@pve!poc", "fc@pve!poc=6f1d"),
        ("secret_env: PVE_SECRET", "secret: 6f1d"),
        ("secret_env: PVE_SECRET", "secret_env: 6f1d-0000"),
        ("secret_env: PVE_SECRET", "secret_env: A, secret_file: b"),
        (", secret_env: PVE_SECRET", ""),
        ("{ ca_file: ca.pem }", "{ fingerprint: abcd }"),
        ("{ ca_file: ca.pem }", "{ insecure: true }"),
        ("ca_file: ca.pem", &format!("ca_file: ca.pem, fingerprint: {}", "ab".repeat(32))),
    ]));
}

#[test]
fn places() {
    insta::assert_snapshot!(messages(&[
        ("{ pve1: 3, pve2: 1 }", "[]"),
        ("{ pve1: 3, pve2: 1 }", "[pve1, pve1]"),
        ("{ pve1: 3, pve2: 1 }", "[\"a b\"]"),
        ("{ pve1: 3, pve2: 1 }", "pve1"),
        ("{ pve1: 3, pve2: 1 }", "{ pve1: 3 }"),
        ("{ pve1: 3, pve2: 1 }", "{ pve1: 0 }"),
        ("{ pve1: 3, pve2: 1 }", "{ pve1: 3, pve1: 1 }"),
        ("{ pve1: 3, pve2: 1 }", "{ pve1: many }"),
        ("{ pve1: 3, pve2: 1 }", "{}"),
        ("  storage: ceph\n", ""),
        ("iso_storage: local", "iso_storage: \"a,b\""),
        ("bridge: vmbr0", "bridge: \"vmbr0,tag=1\""),
        ("vlan: 120", "vlan: 4095"),
        ("pool: poc", "pol: poc"),
        ("first: 7000", "first: 99"),
        ("first: 7000", "first: 8000"),
        ("{ first: 7000, last: 7999 }", "{ first: 7000 }"),
        ("name_prefix: it", "name_prefix: -it"),
        ("aio: native", "aio: uring"),
        ("format: raw", "format: vmdk"),
        ("node: 2", "node: 0"),
        ("192.0.2.50", "192.0.2.252"),
        ("192.0.2.50", "192.0.2"),
        ("prefix: 24", "prefix: 31"),
        ("gateway: 192.0.2.1", "gateway: 192.0.2.51"),
        ("gateway: 192.0.2.1", "gateway: 192.0.3.1"),
        ("{ first: 192.0.2.50, prefix: 24, gateway: 192.0.2.1 }", "static"),
        ("workers: { count: 4, disks: 2 }", "workers: { count: 200, disks: 2 }"),
    ]));
}

#[test]
fn safety() {
    insta::assert_snapshot!(messages(&[
        ("min_free_percent: 12.5", "min_free_percent: 100"),
        ("min_free_percent: 12.5", "min_free_percent: -1"),
        ("ceph: false", "ceph: off"),
        ("quorum: false", "qorum: false"),
        ("canary: false", "canary: 1"),
        ("canary: false", "canary: { wait: 5s }"),
        ("canary: false", "canary: {}"),
        ("on_restart: teardown", "on_restart: resume"),
        ("provider: proxmox", "provider: proxmos"),
    ]));
    let local = LEAST.replace("proxmox, connection: lab, storage: ceph, iso_storage: local, bridge: vmbr0", "local");
    for field in ["guard: {}", "canary: true"] {
        let error = parse("plan.yaml", &format!("{local}{field}\n"), &Profiles::shipped()).unwrap_err().to_string();
        assert!(error.starts_with("plan.yaml:8:") && error.contains("provider: proxmox"), "{error}");
    }
}

#[test]
fn no_secret_is_in_a_validated_plan_or_its_schedule() {
    let plan = read(GOOD);
    let schedule = plan::schedule(&plan, plan::FillRate::assumed());
    insta::assert_snapshot!(schedule.render(&plan));
    let json = serde_json::to_value(&plan).unwrap();
    assert_eq!(json["target"]["token"], serde_json::json!({"id": "fc@pve!poc", "secret_env": "PVE_SECRET"}));
    assert_eq!(json["target"]["nodes"], serde_json::json!({"pve1": 3, "pve2": 1}));
}

#[test]
fn the_targets_of_the_page_are_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/proxmox.md");
    let page = fs::read_to_string(page).unwrap();
    let rest = "name: x\nworkers: {count: 6, disks: 2}\nfootprints: [1GiB]\nprecondition: 1m\nsample: 1m\nworkloads: [4k-random-read]\n";
    let shown: Vec<&str> = page.split("```yaml\n").skip(1).map(|text| text.split("```").next().unwrap()).collect();
    assert!(shown.len() >= 2, "the page shows a plan with a connection and one without");
    for yaml in shown {
        let plan = read(&format!("{rest}{yaml}"));
        assert_eq!(plan.guard, Some(Guard::default()));
        assert_eq!((target(&plan).vmids, target(&plan).limits), (VmidRange::default(), TaskLimits::default()));
    }
}
