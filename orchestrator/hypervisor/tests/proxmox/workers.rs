//! Workers from creation to destruction.

use std::time::Instant;

use hypervisor::proxmox::{Aio, DiskOptions, Format, Nodes, TaskLimits};
use hypervisor::{Hypervisor, WorkerState};
use serde_json::json;

use crate::fakes::{Fake, GIB, Memory, image_file, provision, spec};

#[tokio::test]
async fn sixteen_workers_over_four_nodes_come_and_go_and_leave_nothing() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.nodes_named('pve1', 'pve2', 'pve3', 'pve4')");
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 16, 10, &journal).await.unwrap();
    assert_eq!(fake.get("sorted(vm.vmid for vm in pve.vms)"), json!((9000..9016).collect::<Vec<_>>()));
    assert_eq!(fake.get("[sum(1 for vm in pve.vms if vm.node == n) for n in pve.nodes]"), json!([4, 4, 4, 4]));
    assert_eq!(fake.get("len(pve.storages['ceph']['volumes'])"), 160);
    assert_eq!(fake.requests("POST", "/storage/local/upload"), 4, "once a node");
    let observed = provider.observe(&workers).await.unwrap();
    assert!(observed.iter().all(|observed| observed.state == WorkerState::Running));
    assert!(workers.iter().zip(&observed).all(|(worker, observed)| worker.spec.host == observed.host));

    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left, vec![]);
    assert_eq!(fake.inventory(), before);
    assert!(journal.entries().iter().all(|entry| entry.outcome.as_ref().is_some_and(|outcome| outcome.succeeded)));
    assert_eq!(
        fake.get("sum(1 for m, p, b in pve.requests if '/ha/' in p or 'migrate' in p)"),
        0,
        "no HA: they stay where they are"
    );
    let dangerous = "[b.decode() for m, p, b in pve.requests if b'unreferenced' in b or 'unreferenced' in p]";
    assert_eq!(fake.get(dangerous), json!([]));
    assert!(!serde_json::to_string(&journal.entries()).unwrap().contains(crate::fakes::SECRET));
}

#[tokio::test]
async fn a_vm_is_made_as_a_measurement_needs_it() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.pools['poc'] = set()");
    let provider = fake.provider_with(|settings| {
        settings.pool = Some("poc".into());
        settings.vlan = Some(42);
        settings.disks.discard = true;
    });
    let journal = Memory::default();
    let workers = provision(&provider, 1, 31, &journal).await.unwrap();
    let config = fake.get("pve.vm(9000).config");
    for (key, value) in [
        ("name", "fourcorners-fleet-7-w1"),
        ("bios", "seabios"),
        ("boot", "order=ide2"),
        ("cpu", "host"),
        ("scsihw", "virtio-scsi-single"),
        ("smbios1", "uuid=6a1c0000-0000-4000-8000-000000000001"),
        ("tags", "fc-fleet-7;fourcorners"),
    ] {
        assert_eq!(config[key], value, "{key}");
    }
    for (key, value) in [("balloon", 0), ("onboot", 0), ("cores", 2), ("sockets", 1)] {
        assert_eq!(config[key], value, "{key}");
    }
    assert_eq!(config["memory"].to_string().trim_matches('"'), "1024");
    assert!(config["ide2"].as_str().unwrap().starts_with("local:iso/fourcorners-0123456789ab-fleet-7.iso,media=cdrom"));
    let mac = workers[0].mac.clone().unwrap();
    assert_eq!(config["net0"], format!("virtio={mac},bridge=vmbr0,tag=42"));
    let disk = config["scsi30"].as_str().unwrap();
    for option in [
        "ceph:vm-9000-disk-",
        "serial=w1-d31",
        "iothread=1",
        "cache=none",
        "backup=0",
        "replicate=0",
        "detect_zeroes=0",
        "werror=report",
        "discard=on",
        "ssd=0",
        "size=3G",
    ] {
        assert!(disk.contains(option), "{option} in {disk}");
    }
    assert!(!disk.contains("aio="), "left to PVE");
    assert_eq!(
        config["description"].as_str().unwrap().lines().filter(|line| line.starts_with("fourcorners-mark: ")).count(),
        1
    );
    assert!(config.get("scsi31").is_none());
    assert_eq!(fake.get("sorted(pve.pools['poc'])"), json!([9000]));
    assert_eq!(workers[0].disks.len(), 31);
    assert_eq!((workers[0].disks[30].serial.as_str(), workers[0].disks[30].size_bytes), ("w1-d31", 3 * GIB));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("[len(pve.vms), sorted(pve.pools['poc'])]"), json!([0, []]));
}

#[tokio::test]
async fn aio_format_and_ssd_are_as_the_plan_sets_them() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.store_file('local', 'x.iso', 10)");
    let provider = fake.provider_with(|settings| {
        settings.disks = DiskOptions { discard: false, ssd: true, aio: Some(Aio::Native), format: Some(Format::Raw) };
    });
    provider.create_worker(&spec(1, "pve1", "local:iso/x.iso", 1), &Memory::default()).await.unwrap();
    let asked = "[v for m, p, b in pve.requests if m == 'POST' and p.endswith('/qemu') for k, v in \
                 __import__('urllib.parse').parse.parse_qsl(b.decode()) if k == 'scsi0'][0]";
    let asked = fake.get(asked);
    for option in ["aio=native", "format=raw", "ssd=1"] {
        assert!(asked.as_str().unwrap().contains(option), "{option} in {asked}");
    }
    assert!(!asked.as_str().unwrap().contains("discard=on"), "{asked}");
}

#[tokio::test]
async fn sizes_are_those_that_the_configuration_reads_back() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    let mut odd = spec(1, "pve1", "local:iso/x.iso", 2);
    fake.run("pve.store_file('local', 'x.iso', 10)");
    odd.disks[0].size_bytes = 2 * GIB + 1;
    odd.disks[1].size_bytes = 1;
    let worker = provider.create_worker(&odd, &journal).await.unwrap();
    assert_eq!(worker.disks.iter().map(|disk| disk.size_bytes).collect::<Vec<_>>(), [3 * GIB, GIB]);
}

#[tokio::test]
async fn workers_go_where_the_plan_puts_them() {
    let Some(fake) = Fake::start() else { return };
    let counts = Nodes::Counts([("pve1".into(), 1), ("pve2".into(), 3)].into());
    let provider = fake.provider_with(|settings| settings.nodes = Some(counts));
    let journal = Memory::default();
    provision(&provider, 4, 1, &journal).await.unwrap();
    assert_eq!(fake.get("[sum(1 for vm in pve.vms if vm.node == n) for n in pve.nodes]"), json!([1, 3]));
    let error = provider.place(5).await.unwrap_err().to_string();
    assert!(error.contains("add up to 4"), "{error}");
}

#[tokio::test]
async fn no_more_tasks_run_at_a_time_than_the_limits_allow() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.nodes_named('pve1', 'pve2', 'pve3')\npve.task_secs = 0.2");
    let provider = fake.provider_with(|settings| settings.limits = TaskLimits { cluster: 3, node: 2, storage: 64 });
    let journal = Memory::default();
    provision(&provider, 8, 1, &journal).await.unwrap();
    provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(fake.get("pve.most_tasks"), json!([3, 2]));
    let fake = Fake::start().unwrap();
    fake.run("pve.task_secs = 0.2");
    let provider = fake.provider_with(|settings| settings.limits = TaskLimits { cluster: 64, node: 64, storage: 2 });
    provision(&provider, 6, 1, &Memory::default()).await.unwrap();
    assert_eq!(fake.get("pve.most_tasks[0]"), 2);
}

#[tokio::test]
async fn an_image_goes_to_shared_storage_once_and_never_over_another_file() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.storages['local']['shared'] = 1");
    let (provider, journal) = (fake.provider(), Memory::default());
    let (_dir, image) = image_file();
    let hosts = ["pve1".to_owned(), "pve2".to_owned()];
    fake.run("pve.fail('POST', '/nodes/{node}/storage/{storage}/upload', 503, 'busy', times=2)");
    let name = provider.upload_image(&image, &hosts, &journal).await.unwrap().unwrap();
    assert_eq!(name, "local:iso/fourcorners-0123456789ab-fleet-7.iso");
    assert_eq!(fake.requests("POST", "/upload"), 3, "once, after two refusals that passed");
    assert_eq!(
        fake.get("pve.storages['local']['volumes']['iso/fourcorners-0123456789ab-fleet-7.iso']['size']"),
        100_000
    );
    let sent = "pve.uploaded['checksum-algorithm'] + ' ' + str(__import__('hashlib').sha256(pve.uploaded['data']).hexdigest() == pve.uploaded['checksum'])";
    assert_eq!(fake.get(sent), "sha256 True");
    let error = provider.upload_image(&image, &hosts, &journal).await.unwrap_err().to_string();
    assert!(error.contains("exists on pve1 already"), "{error}");
    assert_eq!(fake.requests("POST", "/upload"), 3, "nothing was overwritten");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("sorted(pve.storages['local']['files'])"), json!([]));
}

#[tokio::test]
async fn power_and_whereabouts_are_seen() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.nodes_named('pve1', 'pve2', 'pve3')");
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 4, 1, &journal).await.unwrap();
    // Also where somebody moved it meanwhile.
    fake.run(&format!("pve.vm({}).node = 'pve3'", workers[0].id));
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    fake.run("pve.vm(int(9001)).node = 'pve3'\npve.set_node_offline('pve2')");
    let third = workers.iter().position(|worker| worker.spec.host.as_deref() == Some("pve3")).unwrap();
    fake.run(&format!("pve.vms.remove(pve.vm({}))", workers[third].id));
    let reads = provider.calls();
    let observed = provider.observe(&workers).await.unwrap();
    assert_eq!(provider.calls() - reads, 3, "one read for all, and one more for each that seems to have ended");
    let WorkerState::Ended(why) = &observed[0].state else { panic!("{observed:?}") };
    assert!(why.contains("is stopped"), "{why}");
    let moved = workers.iter().position(|worker| worker.id == "9001").unwrap();
    assert_eq!(observed[moved].host.as_deref(), Some("pve3"));
    let WorkerState::Ended(why) = &observed[third].state else { panic!("{observed:?}") };
    assert!(why.contains("is gone"), "{why}");
    let offline = observed.iter().filter(|observed| observed.host.as_deref() == Some("pve2"));
    assert!(offline.clone().count() <= 1 && offline.into_iter().all(|observed| observed.state == WorkerState::Unknown));
}

#[tokio::test]
async fn warnings_of_a_task_are_kept_with_its_outcome_and_it_succeeds() {
    let Some(fake) = Fake::start() else { return };
    let kinds = ["imgcopy", "qmcreate", "qmstart", "qmstop", "qmdestroy", "imgdel"];
    for kind in kinds {
        fake.run(&format!("pve.task_ends['{kind}'] = 'WARNINGS: 1'\npve.task_secs_of['{kind}'] = 0.05"));
    }
    // A log that cannot be read does not undo what the task did.
    fake.run("pve.fail('GET', '/nodes/{node}/tasks/{upid}/log', 500, 'the log is gone', times=3)");
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    let warnings: Vec<String> = journal
        .entries()
        .iter()
        .flat_map(|entry| entry.outcome.as_ref().unwrap().details["warnings"].as_array().unwrap().clone())
        .map(|warning| warning.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(warnings.len(), kinds.len(), "{warnings:#?}");
    let texts = std::iter::once("on pve1: WARNINGS: 1").chain(std::iter::repeat("on pve1: WARN: something is odd"));
    for ((kind, text), warning) in kinds.iter().zip(texts).zip(&warnings) {
        assert!(warning.starts_with(kind) && warning.ends_with(text), "{kind}, {text}: {warnings:#?}");
    }
    assert!(warnings[1].starts_with("qmcreate 9000 on"), "{warnings:#?}");
}

#[tokio::test]
async fn a_task_that_fails_shows_its_log() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.store_file('local', 'x.iso', 10)");
    let (provider, journal) = (fake.provider(), Memory::default());
    let before = fake.inventory();
    fake.run("pve.task_fails['qmcreate'] = \"lvcreate 'pve/vm' error: out of data space\"\npve.before_create = None");
    let error = provider.create_worker(&spec(1, "pve1", "local:iso/x.iso", 1), &journal).await.unwrap_err().to_string();
    for part in ["worker w1", "qmcreate", "out of data space", "TASK ERROR"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_worker_that_no_vm_can_be_is_refused_before_anything_is_sent() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    for (change, problem) in [
        ((|spec| spec.uuid = "6a1c".into()) as fn(&mut hypervisor::WorkerSpec), "UUID"),
        (|spec| spec.disks[0].serial = "a-serial-of-21-bytes!".into(), "serial"),
        (|spec| spec.disks = vec![spec.disks[0].clone(); 32], "1 to 31"),
        (|spec| spec.fleet = "a b".into(), "fleet"),
        (|spec| spec.host = None, "host"),
        (|spec| spec.image = None, "image"),
    ] {
        let mut wrong = spec(1, "pve1", "local:iso/x.iso", 1);
        change(&mut wrong);
        let error = provider.create_worker(&wrong, &journal).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    assert_eq!(provider.calls(), 0);
    assert_eq!(journal.operations(), 0);
}

#[tokio::test]
async fn sixty_four_workers_of_ten_disks_cost_a_few_requests_each() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.nodes_named('pve1', 'pve2', 'pve3', 'pve4')\npve.storages['ceph'].update(avail=2000 * 2**30, total=2000 * 2**30)");
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    let clock = Instant::now();
    let mut calls = provider.calls();
    let mut step = |what: &str, since: &mut Instant| {
        let (sent, took) = (provider.calls() - calls, since.elapsed());
        println!(
            "64 workers of 10 disks, {what}: {:.2} s, {sent} requests, {:.2} a VM",
            took.as_secs_f64(),
            f64::from(u32::try_from(sent).unwrap()) / 64.0
        );
        (calls, *since) = (provider.calls(), Instant::now());
        sent
    };
    let mut since = clock;
    let workers = provision(&provider, 64, 10, &journal).await.unwrap();
    // Create, its task, the configuration; the configuration, start, its task. For all together: placement, VMIDs in use, the image's way to four nodes.
    assert!(step("create and start", &mut since) <= 64 * 6 + 40);
    provider.observe(&workers).await.unwrap();
    assert_eq!(step("observe", &mut since), 1);
    provider.guard(&workers).await.unwrap();
    assert!(step("guard", &mut since) <= 9);
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    // The state; the configuration, stop, its task; the configuration, destroy, its task. For all together: guests, volumes, images.
    assert!(step("stop and destroy", &mut since) <= 64 * 7 + 30);
    assert_eq!(fake.inventory(), before);
}
