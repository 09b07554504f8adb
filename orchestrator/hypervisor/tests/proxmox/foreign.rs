//! What is somebody else's stays, however much it looks like ours.

use hypervisor::Hypervisor;
use hypervisor::proxmox::Proxmox;
use serde_json::json;

use crate::fakes::memory::living;
use crate::fakes::{Fake, Memory, bootstrap, provision, spec};
use crate::preflight::grant;

#[tokio::test]
async fn look_alikes_of_every_kind_are_still_there_afterwards() {
    let Some(fake) = Fake::start() else { return };
    let uuid = "6a1c0000-0000-4000-8000-000000000001";
    fake.run(&format!(
        r"
mark = 'fourcorners-mark: fleet=fleet-7 vmid=9000 uuid={uuid}'
looks = [('fourcorners-fleet-7-w1', {{}}), ('x', {{'tags': 'fc-fleet-7;fourcorners'}}), ('y', {{'smbios1': 'uuid={uuid}'}}),
         ('z', {{'description': mark}}),
         ('all', {{'tags': 'fc-fleet-7;fourcorners', 'smbios1': 'uuid={uuid}', 'description': mark}})]
for n, (name, config) in enumerate(looks):
    pve.add_vm(9010 + n, name, config=dict(config, scsi0='ceph:vm-{{}}-disk-0,serial=w1-d1,size=3G'.format(9010 + n)))
    pve.storages['ceph']['volumes']['vm-{{}}-disk-0'.format(9010 + n)] = {{'content': 'images', 'size': 3 * 2**30, 'vmid': 9010 + n}}
pve.vm(9010).status = 'running'
"
    ));
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 2, &journal).await.unwrap();
    let found = provider.find(None).await.unwrap().found;
    let mut objects: Vec<&str> = found.iter().map(|found| found.object.as_str()).collect();
    objects.sort_unstable();
    assert_eq!(
        objects,
        [
            "VM 9000 (fourcorners-fleet-7-w1) on pve1",
            "VM 9001 (fourcorners-fleet-7-w2) on pve2",
            "image local:iso/fourcorners-0123456789ab-fleet-7.iso on pve1",
            "image local:iso/fourcorners-0123456789ab-fleet-7.iso on pve2",
        ]
    );
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_vm_that_took_a_recorded_vmid_is_left_and_reported() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    // Somebody removed ours by hand, and gave its id, name and disk name to a VM of their own.
    fake.run("name = pve.vm(9000).name\npve.vms.clear()\npve.add_vm(9000, name, config={'scsi0': 'ceph:vm-9000-disk-0,size=3G'})");
    let before = fake.inventory();
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left.len(), 2, "the VM, and the image that it might boot from: {left:#?}");
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("SMBIOS UUID"), "{left:#?}");
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn each_part_of_the_identity_must_agree() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 3, 1, &journal).await.unwrap();
    fake.run(
        "pve.vm(9000).config['smbios1'] = 'uuid=11111111-0000-4000-8000-000000000000'\n\
         pve.vm(9001).config['tags'] = 'fourcorners'\n\
         pve.vm(9002).config['description'] = 'kept for Anna'",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(
        fake.get("sorted((vm.vmid, vm.status) for vm in pve.vms)"),
        json!([[9000, "running"], [9001, "running"], [9002, "running"]])
    );
    for (object, reason) in [("VM 9000", "SMBIOS UUID"), ("VM 9001", "tag fc-fleet-7"), ("VM 9002", "mark")] {
        assert!(left.iter().any(|left| left.object.starts_with(object) && left.reason.contains(reason)), "{left:#?}");
    }
}

#[tokio::test]
async fn an_orphaned_volume_keeps_its_vmid_from_us() {
    let Some(fake) = Fake::start() else { return };
    fake.run(
        "pve.storages['local-lvm']['volumes'] = {'vm-9000-disk-0': {'content': 'images', 'size': 2**30, 'vmid': 9000}}",
    );
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    assert_eq!(fake.get("sorted(vm.vmid for vm in pve.vms)"), json!([9001, 9002]));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn an_orphaned_volume_of_a_vmid_that_we_got_stays() {
    let Some(fake) = Fake::start() else { return };
    let orphan = "pve.storages[s].setdefault('volumes', {})['vm-9000-disk-0'] = {'content': 'images', 'size': 2**30, 'vmid': 9000}";
    // It shows up between our look and our creation, on the same storage and on another.
    fake.run(&format!("def late(v):\n  for s in ('ceph', 'local-lvm'):\n    {orphan}\npve.before_create = late"));
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 1, 2, &journal).await.unwrap();
    assert_eq!(workers[0].id, "9000");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(
        fake.get("[sorted(pve.storages[s]['volumes']) for s in ('ceph', 'local-lvm')]"),
        json!([["vm-9000-disk-0"], ["vm-9000-disk-0"]])
    );
    assert_eq!(fake.get("len(pve.vms)"), 0);
}

#[tokio::test]
async fn a_volume_that_somebody_attached_to_our_vm_is_not_destroyed_with_it() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    // As `qm rescan` does with an orphan, and as a person does with a disk.
    fake.run(
        "for vmid, key, name in ((9000, 'unused0', 'vm-9000-disk-7'), (9001, 'scsi5', 'vm-9001-disk-7,serial=theirs')):\n\
         \x20   pve.storages['ceph']['volumes'][name.split(',')[0]] = {'content': 'images', 'size': 2**30, 'vmid': vmid}\n\
         \x20   pve.vm(vmid).config[key] = 'ceph:' + name",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    for (vm, volume) in [("VM 9000", "unused0 is ceph:vm-9000-disk-7"), ("VM 9001", "scsi5 is ceph:vm-9001-disk-7")] {
        assert!(left.iter().any(|left| left.object.starts_with(vm) && left.reason.contains(volume)), "{left:#?}");
    }
    assert_eq!(fake.get("len(pve.vms)"), 2);
    fake.run("pve.vm(9000).config.pop('unused0')\npve.vm(9001).config.pop('scsi5')");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-7", "vm-9001-disk-7"]));
}

#[tokio::test]
async fn a_vmid_taken_between_asking_and_creating_costs_another_id_and_no_duplicate() {
    let Some(fake) = Fake::start() else { return };
    fake.run(
        "taken = set()\n\
         def race(v):\n\
         \x20 if v['vmid'] in (9000, 9002) and v['vmid'] not in taken:\n\
         \x20   taken.add(v['vmid'])\n\
         \x20   pve.add_vm(v['vmid'], 'theirs', node='pve2', config={'memory': 7})\n\
         pve.before_create = race",
    );
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 3, 2, &journal).await.unwrap();
    assert_eq!(fake.get("len(pve.vms)"), 5);
    assert_eq!(fake.get("sorted(vm.vmid for vm in pve.vms if vm.name == 'theirs')"), json!([9000, 9002]));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(
        fake.get("sorted((vm.vmid, vm.name, vm.config['memory']) for vm in pve.vms)"),
        json!([[9000, "theirs", 7], [9002, "theirs", 7]])
    );
    assert_eq!(fake.get("pve.storages['ceph']['volumes']"), json!({}));
}

#[tokio::test]
async fn two_orchestrators_share_a_range_and_each_removes_its_own() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.store_file('local', 'x.iso', 10)");
    let before = fake.inventory();
    let (ours, theirs) = (fake.provider(), fake.provider());
    let (our_journal, their_journal) = (Memory::default(), Memory::default());
    let create = async |provider: &hypervisor::proxmox::Proxmox, journal: &Memory, from: u32| {
        let specs: Vec<_> = (from..from + 6).map(|number| spec(number, "pve1", "local:iso/x.iso", 2)).collect();
        let all = specs.iter().map(|spec| provider.create_worker(spec, journal));
        futures_util::future::try_join_all(all).await.unwrap()
    };
    let (a, b) = tokio::join!(create(&ours, &our_journal, 1), create(&theirs, &their_journal, 101));
    let mut ids: Vec<String> = a.iter().chain(&b).map(|worker| worker.id.clone()).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 12);
    assert_eq!(ours.destroy(&our_journal.entries(), &our_journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("len(pve.vms)"), 6);
    assert_eq!(theirs.destroy(&their_journal.entries(), &their_journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn what_a_lost_journal_left_is_found_by_its_mark_and_removed_when_adopted() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.add_vm(9005, 'clone-of-ours', config={'tags': 'fc-fleet-7;fourcorners', 'description': 'fourcorners-mark: fleet=fleet-7 vmid=9000 uuid=x'})");
    let before = fake.inventory();
    let provider = fake.provider();
    provision(&provider, 3, 2, &Memory::default()).await.unwrap();
    assert_eq!(provider.find(Some("fleet-8")).await.unwrap().found, vec![]);
    let found = provider.find(Some("fleet-7")).await.unwrap().found;
    assert_eq!(found.len(), 5);
    assert!(found.iter().all(|found| found.fleet == "fleet-7"));
    let journal = Memory::default();
    let mut entries = Vec::new();
    for found in &found {
        entries.push(provider.adopt(found, &journal).await.unwrap());
    }
    assert_eq!(entries, journal.entries());
    assert_eq!(fake.provider().destroy(&entries, &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn the_privileges_of_the_recipe_are_enough_for_the_whole_life() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let before = fake.inventory();
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let journal = Memory::default();
    let workers = provision(&provider, 2, 2, &journal).await.unwrap();
    assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
    assert!(provider.sample_hosts(&workers).await.unwrap().is_some());
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    assert_eq!(provider.recover(&journal.entries(), &journal).await.unwrap().len(), 2);
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
    let again = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(again, vec![], "what is gone is not mistaken for what may not be seen");
    assert_eq!(fake.get("[t['exitstatus'] for t in pve.tasklog if t['exitstatus'] != 'OK']"), json!([]));
}

/// A worker with one disk in the pool, outside of which the token may see nothing; and its journal.
async fn one_in_our_pool(fake: &Fake) -> (Proxmox, Memory) {
    grant(fake, None);
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let journal = Memory::default();
    provision(&provider, 1, 1, &journal).await.unwrap();
    (provider, journal)
}

#[tokio::test]
async fn a_vm_under_a_recorded_vmid_that_the_token_may_not_see_is_reported() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = one_in_our_pool(&fake).await;
    fake.run("pve.vms.clear()\npve.pools['poc'].clear()\npve.add_vm(9000, 'theirs', node='pve1')");
    let before = fake.inventory();
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("Permission check failed"), "{left:#?}");
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn power_of_a_vm_that_took_a_workers_vmid_is_not_touched() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run(
        "pve.vms.clear()\npve.add_vm(9000, 'theirs', node='pve1', status='running')\n\
         pve.add_vm(9001, 'theirs', node='pve2', status='stopped')",
    );
    let before = fake.inventory();
    let of = |id: &str| workers.iter().find(|worker| worker.id == id).unwrap();
    let error = provider.stop_worker(of("9000"), &journal).await.unwrap_err().to_string();
    assert!(error.contains("VM 9000 on pve1: its SMBIOS UUID"), "{error}");
    let error = provider.start_worker(of("9001"), &bootstrap(), &journal).await.unwrap_err().to_string();
    assert!(error.contains("VM 9001 on pve2: its SMBIOS UUID"), "{error}");
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_vm_that_takes_the_vmid_while_a_lock_is_waited_for_is_not_destroyed() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 1, 1, &journal).await.unwrap();
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    // Somebody else's task holds the lock; when it is over, ours is gone and theirs is there.
    fake.run(
        "def replace():\n\
         \x20 pve.release_config_lock(9000)\n\
         \x20 pve.vms.clear()\n\
         \x20 pve.add_vm(9000, 'theirs', node='pve1', config={'scsi0': 'ceph:vm-9000-disk-0,size=3G'})\n\
         asyncio.ensure_future(pve.hold_config_lock(9000, None))\n\
         asyncio.get_event_loop().call_later(0.3, replace)",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("SMBIOS UUID"), "{left:#?}");
    assert_eq!(fake.get("[vm.name for vm in pve.vms]"), json!(["theirs"]));
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0"]));
    let tried = "sum(1 for t in pve.tasklog if t['type'] == 'qmdestroy' and \"can't lock\" in t['exitstatus'])";
    assert!(fake.get(tried).as_u64().unwrap() >= 1, "the lock was met");
}

#[tokio::test]
async fn a_volume_whose_attachment_or_detachment_waits_for_the_next_start_is_not_destroyed() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    // Hotplug is off: one disk of theirs is still attached, one not yet. A destruction frees both.
    fake.run(
        "for vmid in (9000, 9001):\n\
         \x20   pve.storages['ceph']['volumes']['vm-%d-disk-7' % vmid] = {'content': 'images', 'size': 2**30, 'vmid': vmid}\n\
         pve.vm(9000).config['scsi5'] = 'ceph:vm-9000-disk-7,size=1G'\n\
         pve.vm(9000).pending['scsi5'] = None\n\
         pve.vm(9001).pending['scsi5'] = 'ceph:vm-9001-disk-7,size=1G'",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    for (vm, volume) in [("VM 9000", "scsi5 is ceph:vm-9000-disk-7"), ("VM 9001", "scsi5 is ceph:vm-9001-disk-7")] {
        assert!(left.iter().any(|left| left.object.starts_with(vm) && left.reason.contains(volume)), "{left:#?}");
    }
    assert_eq!(fake.get("[vm.status for vm in pve.vms]"), json!(["running", "running"]));
    assert_eq!(fake.get("len(pve.storages['ceph']['volumes'])"), 4);
}

#[tokio::test]
async fn a_disk_that_has_the_name_of_one_of_ours_and_not_its_serial_is_not_destroyed() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 2, &journal).await.unwrap();
    // Somebody removed our first disk and added one of their own: PVE gave it the name that was free.
    fake.run("pve.vm(9000).config['scsi0'] = 'ceph:vm-9000-disk-0,size=3G'");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].reason.contains("its scsi0 is ceph:vm-9000-disk-0, a volume that we did not make"), "{left:#?}");
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0", "vm-9000-disk-1"]));
    // Theirs is detached: nothing but its name is left of it, and that is the name of one of ours.
    fake.run("config = pve.vm(9000).config\nconfig['unused0'] = 'ceph:vm-9000-disk-0'\ndel config['scsi0']");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].reason.contains("its unused0 is ceph:vm-9000-disk-0, which somebody detached"), "{left:#?}");
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0", "vm-9000-disk-1"]));
    fake.run("del pve.vm(9000).config['unused0']");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left.len() == 1 && left[0].reason.contains("somebody had taken a volume of this name"), "{left:#?}");
    assert_eq!(fake.get("[vm.vmid for vm in pve.vms]"), json!([]));
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0"]));
}

/// Another cluster on the same storage has a VM 9000 now, with a disk like ours.
fn add_another_clusters_volume(fake: &Fake, ctime: &str) {
    fake.run(&format!(
        "import time\npve.storages['ceph']['volumes']['vm-9000-disk-0'] = \
         {{'content': 'images', 'size': 3 * 2**30, 'vmid': 9000, 'ctime': {ctime}}}"
    ));
}

/// Times of a later volume's creation: soon, in an hour, and on a storage that does not tell.
const LATER: [&str; 3] = ["int(time.time()) + 5", "int(time.time()) + 3600", "0"];

#[tokio::test]
async fn a_volume_that_came_after_ours_were_gone_is_not_taken_by_a_later_teardown() {
    for ctime in LATER {
        let Some(fake) = Fake::start() else { return };
        let (provider, journal) = (fake.provider(), Memory::default());
        provision(&provider, 2, 1, &journal).await.unwrap();
        // One of two cannot go yet.
        fake.run("pve.snapshot_lock(9001, 'backup')");
        let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
        assert!(left[0].object.starts_with("VM 9001"), "{left:#?}");
        assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9001-disk-0"]));
        add_another_clusters_volume(&fake, ctime);
        fake.run("pve.unlock(9001)");
        let (restarted, again) = (Memory::of(journal.entries()), fake.provider());
        assert_eq!(again.destroy(&restarted.entries(), &restarted).await.unwrap(), vec![], "{ctime}");
        assert_eq!(fake.get("[vm.vmid for vm in pve.vms]"), json!([]));
        assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0"]), "{ctime}");
    }
}

#[tokio::test]
async fn a_volume_that_came_after_a_teardown_broke_off_is_left_and_reported() {
    // Ours was destroyed, and the orchestrator killed before it looked for volumes; or somebody else removed the VM.
    for by_us in [true, false] {
        for ctime in &LATER[1..] {
            let Some(fake) = Fake::start() else { return };
            let (provider, journal) = (fake.provider(), Memory::default());
            provision(&provider, 1, 1, &journal).await.unwrap();
            let mut entries = journal.entries();
            if by_us {
                provider.destroy(&journal.entries(), &journal).await.unwrap();
                entries = journal.entries();
                entries.retain(|entry| entry.intent.kind != "proxmox.no-volumes-remain");
            } else {
                fake.run("pve.vms.clear()\npve.storages['ceph']['volumes'].clear()");
            }
            add_another_clusters_volume(&fake, ctime);
            let restarted = Memory::of(entries);
            // Nor does that it was reported make it ours.
            for _ in 0..2 {
                let left = fake.provider().destroy(&restarted.entries(), &restarted).await.unwrap();
                let of_them = fake.get("sorted(pve.storages['ceph']['volumes'])");
                assert_eq!(of_them, json!(["vm-9000-disk-0"]), "{by_us} {ctime}");
                let told = left.iter().any(|left| left.object.starts_with("ceph:vm-9000-disk-0"));
                // What is younger than ours can be is another's, once and for all.
                assert!(told || *ctime != "0", "{by_us} {ctime}: {left:#?}");
            }
        }
    }
}

#[tokio::test]
async fn a_volume_that_could_not_be_deleted_is_still_ours_for_the_next_teardown() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    // On a storage that tells no times.
    fake.run(
        "pve._qm_free = lambda volid: None\n\
         pve.storages['ceph']['volumes']['vm-9000-disk-0']['ctime'] = 0\n\
         pve.task_fails['imgdel'] = 'rbd: image has watchers'",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].reason.contains("image has watchers"), "{left:#?}");
    fake.run("pve.task_fails.clear()");
    let restarted = Memory::of(journal.entries());
    assert_eq!(fake.provider().destroy(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!([]));
}

#[tokio::test]
async fn a_vm_that_is_moved_between_the_look_and_its_destruction_is_followed() {
    for by_task in [false, true] {
        let Some(fake) = Fake::start() else { return };
        let before = fake.inventory();
        let (provider, journal) = (fake.provider(), Memory::default());
        provision(&provider, 1, 1, &journal).await.unwrap();
        // PVE says so in its answer, or where the lock was waited for in the task.
        fake.run(if by_task {
            "def move(request):\n\
             \x20 if request.method == 'DELETE' and '/nodes/pve1/qemu' in request.path:\n\
             \x20   pve.task_fails['qmdestroy'] = \"Configuration file 'nodes/pve1/qemu-server/9000.conf' does not exist\"\n\
             \x20   asyncio.get_event_loop().call_later(0.05, lambda: setattr(pve.vm(9000), 'node', 'pve2'))\n\
             \x20 elif request.method == 'DELETE':\n\
             \x20   pve.task_fails.clear()\n\
             pve.task_secs_of['qmdestroy'] = 0.1\n\
             pve.before = move"
        } else {
            "def move(request):\n\
             \x20 if request.method == 'DELETE' and request.path.endswith('/nodes/pve1/qemu/9000'):\n\
             \x20   pve.vm(9000).node = 'pve2'\n\
             pve.before = move"
        });
        assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![], "{by_task}");
        assert_eq!(fake.inventory(), before, "{by_task}");
        assert_eq!(living(&journal.entries()), Vec::<&hypervisor::JournalEntry>::new());
    }
}

#[tokio::test]
async fn a_worker_that_somebody_took_out_of_our_pool_is_not_called_gone() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = one_in_our_pool(&fake).await;
    // Right before it is destroyed.
    fake.run(
        "def take(request):\n\
         \x20 if request.method == 'DELETE' and request.path.endswith('/qemu/9000'):\n\
         \x20   pve.pools['poc'].clear()\n\
         \x20   raise PveError(500, \"Configuration file 'nodes/pve1/qemu-server/9000.conf' does not exist\")\n\
         pve.before = take",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("may not see"), "{left:#?}");
    assert!(left[1].object.contains(".iso"), "{left:#?}");
}

#[tokio::test]
async fn what_people_do_to_a_worker_keeps_it_only_where_they_may_want_it() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 3, 1, &journal).await.unwrap();
    fake.run(
        "renamed, moved, template = (pve.vm(vmid) for vmid in (9000, 9001, 9002))\n\
         renamed.name = renamed.config['name'] = 'anna'\n\
         renamed.config['description'] += '\\nlooked at by Anna'\n\
         renamed.snapshots['before'] = dict(renamed.config, snaptime=1)\n\
         renamed.config['parent'] = 'before'\n\
         del pve.storages['ceph']['volumes']['vm-9001-disk-0']\n\
         moved.config['scsi0'] = moved.config['scsi0'].replace('ceph:', 'local-lvm:')\n\
         pve.storages['local-lvm'].setdefault('volumes', {})['vm-9001-disk-0'] = {'content': 'images', 'size': 3 * 2**30, 'vmid': 9001}\n\
         template.status, template.template = 'stopped', True\n\
         template.config['template'] = 1\n\
         template.config['scsi0'] = template.config['scsi0'].replace(':vm-', ':base-')\n\
         pve._qm_rename_volume('ceph:vm-9002-disk-0')",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9002") && left[0].reason.contains("made it a template"), "{left:#?}");
    assert!(left[1..].iter().all(|left| left.object.contains(".iso")), "{left:#?}");
    assert_eq!(fake.get("[vm.vmid for vm in pve.vms]"), json!([9002]));
    assert_eq!(
        fake.get("[sorted(pve.storages[s]['volumes']) for s in ('ceph', 'local-lvm')]"),
        json!([["base-9002-disk-0"], []])
    );
}

#[tokio::test]
async fn a_vm_that_is_moved_while_it_waits_for_its_turn_is_followed() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    fake.run(
        "def move(request):\n\
         \x20 if request.path.endswith('/nodes/pve1/qemu/9000/status/current'):\n\
         \x20   pve.vm(9000).node = 'pve2'\n\
         pve.before = move",
    );
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_destruction_that_fails_for_something_that_does_not_exist_is_no_destruction() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    fake.run("pve.task_fails['qmdestroy'] = \"storage 'ceph' does not exist\"");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("storage 'ceph'"), "{left:#?}");
    assert_eq!(fake.get("len(pve.vms)"), 1);
    fake.run("pve.task_fails.clear()");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_vmid_of_a_guest_outside_of_our_pool_costs_another_id_and_is_nothing_that_we_left() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    fake.run("pve.add_vm(9000, 'theirs', node='pve2')");
    let before = fake.inventory();
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let journal = Memory::default();
    let workers = provision(&provider, 2, 1, &journal).await.unwrap();
    let mut ids: Vec<&str> = workers.iter().map(|worker| worker.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["9001", "9002"]);
    assert!(journal.entries().iter().all(|entry| entry.outcome.is_some()));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
    // Nor is one that takes the id of a worker that is gone.
    fake.run("pve.add_vm(9001, 'theirs', node='pve1', status='running')");
    let before = fake.inventory();
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_range_that_guests_outside_of_our_pool_fill_costs_an_id_each_and_no_more() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    fake.run("for vmid in range(9000, 9040):\n  pve.add_vm(vmid, 'theirs', node='pve2')");
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let workers = provision(&provider, 1, 1, &Memory::default()).await.unwrap();
    assert_eq!(workers[0].id, "9040");
    assert_eq!(fake.requests("POST", "/qemu"), 2, "the first refusal tells that there are such guests");
}

#[tokio::test]
async fn a_volume_of_a_guest_outside_of_our_pool_that_took_the_vmid_meanwhile_stays() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = one_in_our_pool(&fake).await;
    // Ours leaves its volume; while volumes are listed, theirs has the id, and a disk of that name and size.
    fake.run(
        "pve._qm_free = lambda volid: None\n\
         def take(request):\n\
         \x20 if request.path.endswith('/storage/ceph/content') and not pve.vm(9000):\n\
         \x20   pve.add_vm(9000, 'theirs', node='pve2', config={'scsi0': 'ceph:vm-9000-disk-0,size=3G'})\n\
         pve.before = take",
    );
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("[vm.name for vm in pve.vms]"), json!(["theirs"]));
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-0"]));
}

#[tokio::test]
async fn what_somebody_attached_is_not_adopted_with_the_vm() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let provider = fake.provider();
    provision(&provider, 1, 2, &Memory::default()).await.unwrap();
    fake.run(
        "pve.storages['ceph']['volumes']['vm-9000-disk-7'] = {'content': 'images', 'size': 2**30, 'vmid': 9000}\n\
         pve.vm(9000).config['scsi5'] = 'ceph:vm-9000-disk-7,serial=theirs,size=1G'",
    );
    let journal = Memory::default();
    for found in &provider.find(Some("fleet-7")).await.unwrap().found {
        provider.adopt(found, &journal).await.unwrap();
    }
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].reason.contains("its scsi5 is ceph:vm-9000-disk-7"), "{left:#?}");
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])[-1]"), "vm-9000-disk-7");
    fake.run("del pve.vm(9000).config['scsi5'], pve.storages['ceph']['volumes']['vm-9000-disk-7']");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_volume_that_two_workers_of_one_vmid_record_is_the_one_s_that_it_agrees_with() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.store_file('local', 'x.iso', 10)");
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    let small = spec(1, "pve1", "local:iso/x.iso", 1);
    let mut large = spec(2, "pve1", "local:iso/x.iso", 1);
    large.disks[0].size_bytes = 5 << 30;
    for spec in [&small, &large] {
        assert_eq!(provider.create_worker(spec, &journal).await.unwrap().id, "9000");
        if *spec == small {
            assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
        }
    }
    fake.run("pve._qm_free = lambda volid: None");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    let mut after = fake.inventory();
    after["storages"]["ceph"]["avail"] = before["storages"]["ceph"]["avail"].clone();
    assert_eq!(after, before);
}

#[tokio::test]
async fn what_cannot_be_read_now_is_not_called_gone() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run("pve.set_node_offline('pve2')");
    let search = provider.find(Some("fleet-7")).await.unwrap();
    let found: Vec<&str> = search.found.iter().map(|found| found.host.as_str()).collect();
    assert_eq!(found, ["pve1", "pve1"], "{search:#?}");
    assert_eq!(search.unread.len(), 1, "{search:#?}");
    assert!(search.unread[0].object.starts_with("VM 9001"), "{search:#?}");
    assert!(search.unread[0].reason.contains("No route to host"), "{search:#?}");
    assert_eq!(provider.find(Some("fleet-8")).await.unwrap().unread, vec![]);
    let both = fake.provider_with(|settings| {
        settings.nodes = Some(hypervisor::proxmox::Nodes::Evenly(vec!["pve1".into(), "pve2".into()]));
    });
    // Be its nodes named or not.
    for provider in [&both, &provider] {
        let blind = provider.find(None).await.unwrap().blind;
        assert!(blind.len() == 1 && blind[0].starts_with("images on pve2: "), "{blind:?}");
    }
    // What all nodes see is seen.
    fake.run("pve.storages['local']['shared'] = 1");
    assert_eq!(provider.find(None).await.unwrap().blind, Vec::<String>::new());
}

#[tokio::test]
async fn an_image_that_stays_on_one_node_is_still_in_the_journal_when_it_is_gone_from_another() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run(
        "def refuse(request):\n\
         \x20 if request.method == 'DELETE' and '/nodes/pve2/storage/' in request.path:\n\
         \x20   raise PveError(500, 'refused for a test')\n\
         pve.before = refuse",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left.len() == 1 && left[0].object.ends_with(".iso on pve2"), "{left:#?}");
    let entries = journal.entries();
    let nodes: Vec<_> = living(&entries).into_iter().map(|entry| &entry.intent.details["node"]).collect();
    assert_eq!(nodes, ["pve2"]);
    fake.run("pve.before = None");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(living(&journal.entries()), Vec::<&hypervisor::JournalEntry>::new());
    assert_eq!(fake.inventory(), before);
}
