//! Every finding of the preflight, each with its remedy, and nothing found where nothing is wrong.

use hypervisor::proxmox::{Guard, Nodes, Proxmox, Settings, VmidRange};
use hypervisor::{Deployment, Finding, Hypervisor, Severity};
use serde_json::json;

use crate::fakes::{Fake, GIB, deployment};

/// ACL of the recipe in docs/proxmox.md: (path, privileges).
pub(crate) const ACL: [(&str, &[&str]); 5] = [
    ("/", &["Sys.Audit"]),
    (
        "/pool/poc",
        &[
            "Pool.Audit",
            "VM.Allocate",
            "VM.Audit",
            "VM.Config.CDROM",
            "VM.Config.CPU",
            "VM.Config.Disk",
            "VM.Config.HWType",
            "VM.Config.Memory",
            "VM.Config.Network",
            "VM.Config.Options",
            "VM.PowerMgmt",
        ],
    ),
    ("/storage/ceph", &["Datastore.Allocate", "Datastore.AllocateSpace", "Datastore.Audit"]),
    ("/storage/local", &["Datastore.Allocate", "Datastore.AllocateTemplate", "Datastore.Audit"]),
    ("/sdn/zones/localnetwork/vmbr0", &["SDN.Use"]),
];

/// Grants the recipe's ACL but for one privilege on one path. PVE's rule, that a nearer path replaces what is inherited, holds by
/// the provider's own reading; fakepve adds up.
pub(crate) fn grant(fake: &Fake, without: Option<(&str, &str)>) {
    fake.run("pve.pools['poc'] = set()\npve.acl = {}");
    for (path, privileges) in ACL {
        let kept = privileges.iter().filter(|privilege| without != Some((path, **privilege)));
        let list = kept.map(|privilege| format!("{privilege:?}")).collect::<Vec<_>>().join(", ");
        fake.run(&format!("pve.grant('fc@pve!poc', {path:?}, *[{list}])"));
    }
}

fn in_pool(settings: &mut Settings) {
    settings.pool = Some("poc".into());
}

async fn findings(provider: &Proxmox, deployment: &Deployment) -> Vec<Finding> {
    provider.preflight(deployment).await.unwrap()
}

fn blockers(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.severity == Severity::Blocker).collect()
}

/// The one blocker that a broken cluster gives, and that nothing else is said to be wrong.
async fn only_blocker(fake: &Fake, change: impl FnOnce(&mut Settings), deployment: &Deployment) -> Finding {
    let found = findings(&fake.provider_with(change), deployment).await;
    let blockers = blockers(&found);
    assert_eq!(blockers.len(), 1, "{found:#?}");
    assert!(!blockers[0].remedy.is_empty());
    blockers[0].clone()
}

/// The first warning that holds a text.
fn warning<'a>(findings: &'a [Finding], text: &str) -> &'a Finding {
    let found = findings.iter().find(|finding| finding.severity == Severity::Warning && finding.message.contains(text));
    found.unwrap_or_else(|| panic!("no warning of {text:?} in {findings:#?}"))
}

#[tokio::test]
async fn a_sound_cluster_gives_notes_only_and_nothing_is_changed() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    fake.run("pve.answers['/nodes/{node}/ceph/pool'] = [{'pool': 2, 'pool_name': 'rbd', 'size': 3, 'min_size': 2, 'type': 'replicated'}]");
    let before = fake.inventory();
    let found = findings(&fake.provider_with(in_pool), &deployment(4)).await;
    assert!(found.iter().all(|finding| finding.severity == Severity::Note), "{found:#?}");
    assert_eq!(found.len(), 1);
    for part in ["4 VMs with 8 data disks take 24.0 GiB", "3 copies", "72.0 GiB of raw space"] {
        assert!(found[0].message.contains(part), "{part} in {}", found[0].message);
    }
    assert_eq!(fake.get("sorted(set(m for m, p, b in pve.requests))"), json!(["GET"]));
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_token_without_any_single_privilege_is_told_which_and_how_to_grant_it() {
    let Some(fake) = Fake::start() else { return };
    for (path, privileges) in ACL {
        for privilege in privileges {
            grant(&fake, Some((path, privilege)));
            let found = findings(&fake.provider_with(in_pool), &deployment(2)).await;
            let lacks =
                found.iter().find(|f| f.message.contains("lacks")).unwrap_or_else(|| panic!("{privilege}: {found:#?}"));
            let said = format!("token fc@pve!poc lacks {privilege} on {path}");
            assert!(lacks.message.starts_with(&said), "{said}: {}", lacks.message);
            assert!(lacks.remedy.contains(&format!("pveum acl modify {path} ")), "{}", lacks.remedy);
            assert!(lacks.remedy.contains(&format!("--privs \"{privilege}\"")), "{}", lacks.remedy);
            let optional = (path, *privilege) == ("/storage/ceph", "Datastore.Allocate");
            assert_eq!(lacks.severity, if optional { Severity::Warning } else { Severity::Blocker }, "{privilege}");
            assert!(!found.iter().any(|finding| finding.message.contains("no bridge")), "{found:#?}");
        }
    }
}

#[tokio::test]
async fn without_a_pool_the_privileges_are_needed_on_all_vms() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let found = findings(&fake.provider(), &deployment(2)).await;
    assert!(blockers(&found)[0].message.contains("VM.PowerMgmt on /vms"), "{found:#?}");
}

#[tokio::test]
async fn bridges_that_a_missing_privilege_hides_are_not_called_missing() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, Some(("/sdn/zones/localnetwork/vmbr0", "SDN.Use")));
    fake.run("pve.bridges = {}");
    let finding = only_blocker(&fake, in_pool, &deployment(2)).await;
    assert!(finding.message.contains("SDN.Use") && finding.message.contains("does not even list"), "{finding:?}");
}

#[tokio::test]
async fn quorum_nodes_and_versions() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.lose_quorum()");
    assert!(only_blocker(&fake, |_| {}, &deployment(2)).await.message.contains("no quorum"));
    fake.run("pve.regain_quorum()\npve.set_node_offline('pve2')");
    let both = |settings: &mut Settings| settings.nodes = Some(Nodes::Evenly(vec!["pve1".into(), "pve2".into()]));
    assert_eq!(only_blocker(&fake, both, &deployment(2)).await.message, "node pve2 is offline");
    let found = findings(&fake.provider(), &deployment(2)).await;
    warning(&found, "node pve2 is offline; no worker goes there");
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    fake.run("pve.set_node_offline('pve2', False)");
    let unknown = |settings: &mut Settings| settings.nodes = Some(Nodes::Evenly(vec!["pve7".into()]));
    assert_eq!(only_blocker(&fake, unknown, &deployment(1)).await.message, "the cluster has no node pve7");
    let counts = |settings: &mut Settings| settings.nodes = Some(Nodes::Counts([("pve1".into(), 3)].into()));
    assert!(only_blocker(&fake, counts, &deployment(2)).await.message.contains("add up to 3"));
    fake.run("pve.version = '8.4.1'");
    warning(&findings(&fake.provider(), &deployment(2)).await, "not tested with 8");
    fake.run("pve.version = '7.4-3'");
    assert!(only_blocker(&fake, |_| {}, &deployment(2)).await.message.contains("older than 8"));
}

#[tokio::test]
async fn the_storage_under_test() {
    let Some(fake) = Fake::start() else { return };
    let wrong = |settings: &mut Settings| settings.storage = "cehp".into();
    let found = findings(&fake.provider_with(wrong), &deployment(2)).await;
    assert!(
        blockers(&found)[0].message.contains("shows no storage cehp") && found[0].message.contains("ceph"),
        "{found:#?}"
    );
    fake.run("pve.storages['ceph']['active'] = 0");
    let found = findings(&fake.provider(), &deployment(2)).await;
    assert!(
        blockers(&found).iter().all(|finding| finding.message.contains("ceph is not active on node")),
        "{found:#?}"
    );
    assert_eq!(blockers(&found).len(), 2, "once a node");
    fake.run("pve.storages['ceph'].update(active=1, content='rootdir')");
    assert!(
        blockers(&findings(&fake.provider(), &deployment(2)).await)[0].message.contains("allows rootdir, not images")
    );
    fake.run("pve.storages['ceph'].update(content='images', nodes='pve1')");
    assert!(only_blocker(&fake, |_| {}, &deployment(2)).await.message.contains("not set up for node pve2"));
    fake.run("pve.storages['ceph'].pop('nodes')");
    let large = Deployment { disk_bytes: 300 * GIB, ..deployment(2) };
    let finding = only_blocker(&fake, |_| {}, &large).await;
    assert!(finding.message.contains("1000.0 GiB free, the data disks need 1200.0 GiB"), "{finding:?}");
    let close = Deployment { disk_bytes: 210 * GIB, ..deployment(2) };
    let finding = only_blocker(&fake, |_| {}, &close).await;
    assert!(finding.message.contains("16.0 % free") && finding.message.contains("the guard keeps 20 %"), "{finding:?}");
}

#[tokio::test]
async fn replication_is_that_of_the_pool_the_data_is_in_or_it_is_not_told() {
    let Some(fake) = Fake::start() else { return };
    let pool =
        |name: &str, size: u32, kind: &str| format!("{{'pool_name': '{name}', 'size': {size}, 'type': '{kind}'}}");
    let pools = [
        pool(".mgr", 3, "replicated"),
        pool("vms", 2, "replicated"),
        pool("ceph", 4, "replicated"),
        pool("ec", 6, "erasure"),
    ];
    let told = async |config: &str, pools: &[String], readable: bool| {
        fake.run(&format!("pve.answers['/nodes/{{node}}/ceph/pool'] = [{}]", pools.join(", ")));
        fake.run(&format!("pve.answers['/storage'] = [dict({config}, storage='ceph')]\npve.failures = {{}}"));
        if !readable {
            fake.run("pve.answers.pop('/storage')\npve.fail('GET', '/json/storage', 500, 'refused for a test')");
        }
        let found = findings(&fake.provider(), &deployment(2)).await;
        let note = found.iter().find(|finding| finding.message.contains("data disks take 12.0 GiB")).unwrap();
        note.message.split_once("; its ").unwrap().1.to_owned()
    };
    let copies = |told: &str| told.split(", so").next().unwrap_or_default().to_owned();
    assert_eq!(copies(&told("{'pool': 'vms'}", &pools, true).await), "pool keeps 2 copies");
    assert_eq!(copies(&told("{'pool': 'vms', 'data-pool': 'ceph'}", &pools, true).await), "pool keeps 4 copies");
    assert_eq!(copies(&told("{}", &pools, false).await), "pool keeps 4 copies", "named after its pool");
    for (config, pools, readable) in [
        // Another cluster's, erasure coded, unknown, and nothing but a pool that is not it.
        ("{'pool': 'vms', 'monhost': '192.0.2.1'}", &pools[..], true),
        ("{'pool': 'vms', 'data-pool': 'ec'}", &pools[..], true),
        ("{}", &pools[..], true),
        ("{}", &pools[..1], false),
    ] {
        assert_eq!(told(config, pools, readable).await, "Ceph replication cannot be told", "{config}");
    }
}

#[tokio::test]
async fn storage_of_each_nodes_own_is_judged_by_the_workers_there() {
    let Some(fake) = Fake::start() else { return };
    let own = |settings: &mut Settings| {
        settings.storage = "local-lvm".into();
        settings.nodes = Some(Nodes::Counts([("pve1".into(), 3), ("pve2".into(), 1)].into()));
    };
    // 100 GiB a node: three workers of 2 x 15 GiB leave 10 %, one leaves 70 %.
    let finding = only_blocker(&fake, own, &Deployment { disk_bytes: 15 * GIB, ..deployment(4) }).await;
    assert!(
        finding.message.contains("local-lvm on node pve1") && finding.message.contains("10.0 % free"),
        "{finding:?}"
    );
}

#[tokio::test]
async fn the_image_storage() {
    let Some(fake) = Fake::start() else { return };
    let wrong = |settings: &mut Settings| settings.iso_storage = "ceph".into();
    let found = findings(&fake.provider_with(wrong), &deployment(1)).await;
    assert!(blockers(&found)[0].message.contains("not iso"), "{found:#?}");
    let missing = |settings: &mut Settings| settings.iso_storage = "lcoal".into();
    let found = findings(&fake.provider_with(missing), &deployment(1)).await;
    let told = blockers(&found).iter().any(|finding| finding.message.contains("shows no storage lcoal"));
    assert!(told && found.iter().all(|finding| !finding.remedy.is_empty()), "{found:#?}");
    fake.run("pve.storages['local']['active'] = 0");
    let finding = only_blocker(&fake, |_| {}, &deployment(1)).await;
    assert!(finding.message.contains("local is not active on node pve1"), "{finding:?}");
    fake.run("pve.storages['local']['active'] = 1\npve.storages['local']['avail'] = 1000");
    let found = findings(&fake.provider(), &deployment(1)).await;
    assert!(blockers(&found)[0].message.contains("the worker image needs"), "{found:#?}");
}

#[tokio::test]
async fn bridges_and_vlans() {
    let Some(fake) = Fake::start() else { return };
    let aware = "{'iface': 'vmbr0', 'type': 'bridge', 'active': 1, 'bridge_vlan_aware': 1, 'bridge_vids': '2-99'}";
    fake.run(&format!(
        "pve.bridges = {{'pve1': [{aware}], 'pve2': [{{'iface': 'vmbr9', 'type': 'bridge', 'active': 1}}]}}"
    ));
    let finding = only_blocker(&fake, |_| {}, &deployment(2)).await;
    assert_eq!(finding.message, "node pve2 has no bridge vmbr0; it has vmbr9");
    fake.run("pve.bridges['pve2'] = pve.bridges['pve1']");
    let tagged = |vlan| move |settings: &mut Settings| settings.vlan = Some(vlan);
    assert_eq!(blockers(&findings(&fake.provider_with(tagged(99)), &deployment(2)).await).len(), 0);
    let found = findings(&fake.provider_with(tagged(100)), &deployment(1)).await;
    assert!(blockers(&found)[0].message.contains("lets VLANs 2-99 through, target.vlan is 100"), "{found:#?}");
    fake.run("pve.bridges['pve1'] = [{'iface': 'vmbr0', 'type': 'bridge'}]");
    assert!(only_blocker(&fake, |_| {}, &deployment(1)).await.message.contains("is not active"));
    fake.run("pve.bridges['pve1'] = [{'iface': 'vmbr0', 'type': 'vnet'}]");
    assert_eq!(blockers(&findings(&fake.provider(), &deployment(1)).await).len(), 0);
    assert!(only_blocker(&fake, tagged(7), &deployment(1)).await.message.contains("has its VLAN by itself"));
}

#[tokio::test]
async fn processors_memory_and_disks() {
    let Some(fake) = Fake::start() else { return };
    // A node of fakepve has 4 CPUs and 8 GiB, of which 2 are in use.
    let finding = only_blocker(&fake, |_| {}, &Deployment { vcpus: 5, ..deployment(1) }).await;
    assert!(finding.message.contains("has 4 CPUs, a worker has 5"), "{finding:?}");
    fake.run("pve.add_vm(100, 'busy', node='pve1', status='running', config={'cores': 3, 'memory': 512})");
    let found = findings(&fake.provider(), &Deployment { vcpus: 2, ..deployment(1) }).await;
    warning(&found, "workers take 2 and running guests 3");
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    // What guests do not use now is theirs all the same.
    fake.run("pve.vm(100).config['memory'] = 5120");
    let found = findings(&fake.provider(), &Deployment { memory_bytes: 3 * GIB, ..deployment(1) }).await;
    warning(
        &found,
        "of which running guests may take 5120 MiB; 1 workers with a reserve make that more than it has: 9216 MiB",
    );
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    fake.run("pve.vm(100).config['memory'] = 512");
    let finding = only_blocker(&fake, |_| {}, &Deployment { memory_bytes: 3 * GIB, ..deployment(3) }).await;
    assert!(finding.message.contains("node pve1 has 6144 MiB of memory free; 2 workers need 7168 MiB"), "{finding:?}");
    // Guests that the token may not see show in the load of their node.
    fake.run("pve.vms.clear()\nstats = pve._node_stats\npve._node_stats = lambda *a: dict(stats(*a), cpu=0.75)");
    let found = findings(&fake.provider(), &Deployment { vcpus: 2, ..deployment(1) }).await;
    warning(&found, "workers take 2 and the node's load 3");
    let finding = only_blocker(&fake, |_| {}, &Deployment { disks_per_worker: 32, ..deployment(1) }).await;
    assert!(finding.message.contains("32 data disks a worker: a VM has room for 31"), "{finding:?}");
}

#[tokio::test]
async fn names_numbers_and_the_pool() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.add_vm(105, 'fourcorners-of-somebody')\npve.add_vm(106, 'x', config={'tags': 'fourcorners'})");
    warning(&findings(&fake.provider(), &deployment(1)).await, "guests 105, 106 have a name that begins with");
    let two = |settings: &mut Settings| settings.vmids = VmidRange { first: 9000, last: 9001 };
    assert_eq!(blockers(&findings(&fake.provider_with(two), &deployment(2)).await).len(), 0);
    // An orphaned volume takes the id as a guest would.
    fake.run("pve.storages['local-lvm'].setdefault('volumes', {})['vm-9000-disk-0'] = {'content': 'images', 'size': 1, 'vmid': 9000}");
    warning(&findings(&fake.provider(), &deployment(2)).await, "1 VMIDs from 9000 to 9999 are taken");
    let finding = only_blocker(&fake, two, &deployment(2)).await;
    assert!(finding.message.contains("1 VMIDs from 9000 to 9001 are free"), "{finding:?}");
    let finding = only_blocker(&fake, in_pool, &deployment(1)).await;
    assert!(finding.message.contains("no pool poc") && finding.remedy.contains("pvesh create /pools"), "{finding:?}");
}

#[tokio::test]
async fn a_read_that_fails_is_a_finding_with_the_words_of_pve() {
    let Some(fake) = Fake::start() else { return };
    for (template, words) in [
        ("/nodes/{node}/network", "network is odd"),
        ("/nodes/{node}/storage", "storage is odd"),
        ("/cluster/status", "corosync is odd"),
    ] {
        fake.run(&format!("pve.failures = {{}}\npve.fail('GET', {template:?}, 500, {words:?})"));
        let found = findings(&fake.provider(), &deployment(1)).await;
        assert!(blockers(&found).iter().any(|finding| finding.message.contains(words)), "{template}: {found:#?}");
    }
}

#[tokio::test]
async fn no_run_begins_on_a_ceph_that_the_guard_would_stop_it_for() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.ceph['health'] = 'HEALTH_ERR'");
    let finding = only_blocker(&fake, |_| {}, &deployment(1)).await;
    assert!(finding.message.starts_with("Ceph is in HEALTH_ERR"), "{finding:?}");
    assert!(finding.remedy.contains("ceph health detail"), "{finding:?}");
    let off = Guard { ceph: false, ..Guard::default() };
    let found = findings(&fake.provider_guarded(off), &deployment(1)).await;
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    warning(&found, "Ceph is in HEALTH_ERR");
    fake.run("full = shapes.ceph_status('HEALTH_WARN')\nfull['health']['checks'] = {'OSD_NEARFULL': {}}\npve.answers['/cluster/ceph/status'] = full");
    let finding = only_blocker(&fake, |_| {}, &deployment(1)).await;
    assert!(finding.message.starts_with("Ceph runs out of space: OSD_NEARFULL"), "{finding:?}");
    fake.run("pve.answers.clear()\npve.fail('GET', '/cluster/ceph/status', 500, 'rados_connect failed')");
    let finding = only_blocker(&fake, |_| {}, &deployment(1)).await;
    assert!(finding.message.starts_with("Ceph does not answer: rados_connect failed"), "{finding:?}");
    // What is not of Ceph has nothing to do with it.
    let own = |settings: &mut Settings| settings.storage = "local-lvm".into();
    assert_eq!(blockers(&findings(&fake.provider_with(own), &deployment(1)).await).len(), 0);
}

#[tokio::test]
async fn a_ceph_that_the_guard_cannot_watch_is_a_warning() {
    let Some(fake) = Fake::start() else { return };
    let words = "binary not installed: /usr/bin/ceph-mon";
    fake.run(&format!("pve.fail('GET', '/cluster/ceph/status', 500, {words:?})"));
    let found = findings(&fake.provider(), &deployment(1)).await;
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    assert!(warning(&found, "the guard does not watch it").message.contains(words), "{found:#?}");
    // PVE's own Ceph, which is ill, is not the one under the disks.
    fake.run("pve.failures = {}\npve.ceph['health'] = 'HEALTH_ERR'\npve.storages['ceph']['monhost'] = '192.0.2.1'");
    let provider = fake.provider();
    let found = findings(&provider, &deployment(1)).await;
    assert_eq!(blockers(&found).len(), 0, "{found:#?}");
    assert!(warning(&found, "the guard does not watch it").message.contains("192.0.2.1"), "{found:#?}");
}
