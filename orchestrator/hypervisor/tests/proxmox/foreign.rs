//! What is somebody else's stays, however much it looks like ours.

use hypervisor::Hypervisor;
use serde_json::json;

use crate::fakes::{Fake, Memory, provision, spec};
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
    let found = provider.find(None).await.unwrap();
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
    assert_eq!(provider.find(Some("fleet-8")).await.unwrap(), vec![]);
    let found = provider.find(Some("fleet-7")).await.unwrap();
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

#[tokio::test]
async fn a_vm_under_a_recorded_vmid_that_the_token_may_not_see_is_reported() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let journal = Memory::default();
    provision(&provider, 1, 1, &journal).await.unwrap();
    fake.run("pve.vms.clear()\npve.pools['poc'].clear()\npve.add_vm(9000, 'theirs', node='pve1')");
    let before = fake.inventory();
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("Permission check failed"), "{left:#?}");
    assert_eq!(fake.inventory(), before);
}
