//! The orchestrator is killed between any two steps of the journal; a new one tears down what the journal records.

use std::time::Duration;

use crate::fakes::{Fake, Memory, provision, quick, spec};
use futures_util::{StreamExt, stream};
use hypervisor::proxmox::{Guard, Proxmox, Settings, Timing, Token};
use hypervisor::{BoxFuture, Hypervisor, Intent, Journal, JournalError};
use serde_json::{Value, json};

use crate::preflight::grant;

/// Kills tried at a time, each with a fake of its own.
const AT_A_TIME: usize = 36;
/// A call that is under way when the kill comes may take so long to show its effect, on a machine that is busy.
const IN_FLIGHT: Duration = Duration::from_millis(1500);
const WORKERS: u32 = 2;
const DISKS: u32 = 2;

/// Guests and volumes of others, of the kinds that are easily taken for ours.
const FOREIGN: &str = r"
pve.add_vm(9001, 'fourcorners-fleet-7-w9', node='pve1', config={'tags': 'fc-fleet-7;fourcorners',
    'description': 'fourcorners-mark: fleet=fleet-7 vmid=9000 uuid=6a1c0000-0000-4000-8000-000000000001',
    'smbios1': 'uuid=6a1c0000-0000-4000-8000-000000000001', 'scsi0': 'ceph:vm-9001-disk-0,size=1G'})
pve.storages['ceph']['volumes']['vm-9001-disk-0'] = {'content': 'images', 'format': 'raw', 'size': 2**30, 'vmid': 9001}
pve.storages['local-lvm'].setdefault('volumes', {})['vm-9003-disk-0'] = {'content': 'images', 'format': 'raw', 'size': 2**30, 'vmid': 9003}
pve.store_file('local', 'fourcorners-somebody.iso', 1000)
";

fn provider(fake: &Fake, timing: Timing) -> Proxmox {
    let settings = Settings { pool: Some("poc".into()), ..fake.settings() };
    let token = Token::new(crate::fakes::TOKEN, crate::fakes::SECRET).unwrap();
    Proxmox::new(settings, Guard::default(), token, timing).unwrap()
}

async fn live(provider: &Proxmox, journal: &Memory) {
    provision(provider, WORKERS, DISKS, journal).await.unwrap();
    assert_eq!(provider.destroy(&journal.entries(), journal).await.unwrap(), vec![]);
}

/// Kills at one operation, then restarts; what is wrong then, if anything.
async fn kill_and_restart(fake: Fake, at: usize, committed: bool, timing: Timing) -> Option<String> {
    let before = fake.inventory();
    let killed = Memory::killed_at(at, committed);
    let lived = killed.until_killed(live(&provider(&fake, timing), &killed)).await;
    let recorded = killed.entries();
    let restarted = Memory::of(recorded.clone());
    let left = provider(&fake, timing).destroy(&recorded, &restarted).await;
    let problem = |what: String| Some(format!("operation {at}, committed {committed}: {what}; journal {recorded:#?}"));
    if lived.is_some() {
        return problem("it was not killed".into());
    }
    match left {
        Ok(left) if left.is_empty() => {}
        other => return problem(format!("{other:?}")),
    }
    if fake.get("pve.running_tasks()") != json!([]) {
        return problem(format!("tasks still run: {}", fake.get("pve.running_tasks()")));
    }
    let after = fake.inventory();
    if after != before {
        return problem(format!("left behind or taken away: {after:#}\nbefore: {before:#}"));
    }
    let open = restarted.entries().into_iter().filter(|entry| entry.outcome.is_none()).count();
    (open > 0).then(|| format!("operation {at}, committed {committed}: {open} entries still open"))
}

async fn sweep(task_seconds: f64, timing: Timing) {
    let start = || {
        let fake = Fake::start()?;
        fake.run(FOREIGN);
        // The privileges of the recipe, no more.
        grant(&fake, None);
        fake.run(&format!("pve.task_secs = {task_seconds}"));
        Some(fake)
    };
    let Some(fake) = start() else { return };
    let whole = Memory::default();
    live(&provider(&fake, timing), &whole).await;
    let operations = whole.operations();
    assert!(operations >= 30, "{operations}");
    let kills = (0..operations).flat_map(|at| [(at, false), (at, true)]);
    let kills = kills.map(|(at, committed)| kill_and_restart(start().unwrap(), at, committed, timing));
    let problems: Vec<String> =
        stream::iter(kills).buffer_unordered(AT_A_TIME).filter_map(async |it| it).collect().await;
    assert!(problems.is_empty(), "{} of {}: {}", problems.len(), 2 * operations, problems[0]);
}

#[tokio::test]
async fn a_kill_anywhere_leaves_nothing_when_tasks_are_instant() {
    sweep(0.0, Timing { in_flight: IN_FLIGHT, ..quick() }).await;
}

#[tokio::test]
async fn a_kill_anywhere_leaves_nothing_when_tasks_take_seconds() {
    let timing = Timing {
        poll_longest: Duration::from_millis(400),
        retry_within: Duration::from_secs(10),
        in_flight: IN_FLIGHT,
        ..quick()
    };
    sweep(2.0, timing).await;
}

#[tokio::test]
async fn workers_that_survived_a_crash_are_taken_back() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let journal = Memory::default();
    let workers = provision(&provider(&fake, quick()), 3, 2, &journal).await.unwrap();
    fake.run("pve.vm(9001).config['smbios1'] = 'uuid=00000000-0000-4000-8000-000000000000'");
    let mut entries = journal.entries();
    // The orchestrator ended between the creation of the first VM and its outcome.
    let created = entries.iter_mut().find(|entry| entry.intent.object == "9000").unwrap();
    created.outcome = None;
    let restarted = Memory::of(entries);
    let back = provider(&fake, quick()).recover(&restarted.entries(), &restarted).await.unwrap();
    let mut ids: Vec<&str> = back.iter().map(|worker| worker.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["9000", "9002"]);
    let same = back.iter().find(|worker| worker.id == "9002").unwrap();
    assert_eq!(same, workers.iter().find(|worker| worker.id == "9002").unwrap());
    assert!(restarted.entries().iter().all(|entry| entry.outcome.is_some()));
}

#[tokio::test]
async fn a_task_that_its_node_has_forgotten_keeps_nothing_alive() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let journal = Memory::default();
    provision(&fake.provider(), 2, 2, &journal).await.unwrap();
    let mut entries = journal.entries();
    entries.iter_mut().for_each(|entry| entry.outcome = None);
    // The orchestrator comes back after weeks; PVE keeps the last tasks only.
    fake.run("pve.tasks.clear()\npve.tasklog.clear()");
    let restarted = Memory::of(entries);
    assert_eq!(fake.provider().destroy(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert!(restarted.entries().iter().all(|entry| entry.outcome.is_some()));
    assert_eq!(fake.inventory(), before);
}

/// A creation that broke off on its node after the orchestrator was killed between call and task: the configuration is gone, its two
/// disks are not.
async fn broken_off(fake: &Fake) -> Memory {
    let journal = Memory::default();
    provision(&fake.provider(), 1, 2, &journal).await.unwrap();
    fake.run(
        "pve.vms.clear()\n\
         next(t for t in pve.tasklog if t['type'] == 'qmcreate')['exitstatus'] = 'unexpected status'",
    );
    let mut entries = journal.entries();
    let created = entries.iter_mut().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap();
    (created.task, created.outcome) = (None, None);
    Memory::of(entries)
}

#[tokio::test]
async fn volumes_of_a_creation_whose_task_was_not_recorded_are_removed_by_its_log() {
    let Some(fake) = Fake::start() else { return };
    let restarted = broken_off(&fake).await;
    // What the crash left open is settled by one process, and removed by the next.
    assert_eq!(fake.provider().recover(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert_eq!(fake.provider().destroy(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert_eq!(fake.get("pve.storages['ceph']['volumes']"), json!({}));
}

#[tokio::test]
async fn volumes_of_a_creation_whose_log_cannot_be_read_are_left_and_reported() {
    let Some(fake) = Fake::start() else { return };
    let restarted = broken_off(&fake).await;
    fake.run("pve.fail('GET', '/nodes/{node}/tasks/{upid}/log', 500, 'the log is gone')");
    let left = fake.provider().destroy(&restarted.entries(), &restarted).await.unwrap();
    let told = left.iter().filter(|left| left.reason.contains("a creation that broke off")).count();
    assert_eq!((told, left.len()), (2, 2), "{left:#?}");
    assert_eq!(fake.get("len(pve.storages['ceph']['volumes'])"), 2);
}

#[tokio::test]
async fn a_token_that_loses_its_privileges_in_mid_run_costs_nothing_that_is_not_removed_once_it_has_them_again() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let before = fake.inventory();
    let (provider, journal) = (provider(&fake, quick()), Memory::default());
    let workers = provision(&provider, 2, 2, &journal).await.unwrap();
    fake.run("pve.acl = {'fc@pve!poc': []}");
    let observed = provider.observe(&workers).await.unwrap();
    assert!(observed.iter().all(|observed| observed.state == hypervisor::WorkerState::Unknown), "{observed:?}");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    for vm in ["VM 9000", "VM 9001"] {
        let told = |left: &hypervisor::LeftAlone| {
            left.object.starts_with(vm) && left.reason.contains("Permission check failed")
        };
        assert!(left.iter().any(told), "{left:#?}");
    }
    assert_eq!(fake.get("[vm.status for vm in pve.vms]"), json!(["running", "running"]));
    grant_again(&fake);
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

/// The recipe's ACL, with the pool as it is.
fn grant_again(fake: &Fake) {
    grant(fake, None);
    fake.run("pve.pools['poc'] = {vm.vmid for vm in pve.vms}");
}

/// A journal that never gets as far as the commit of a task's id.
struct Stuck<'a>(&'a Memory);

impl Journal for Stuck<'_> {
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
        self.0.intent(intent)
    }

    fn task(&self, _: i64, _: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(std::future::pending())
    }

    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        self.0.outcome(id, succeeded, details)
    }
}

/// A creation that is dropped while its task's id is committed, and goes on in the cluster: another worker's creation failed, or the
/// user cancelled.
async fn dropped(fake: &Fake, provider: &Proxmox) -> Memory {
    grant(fake, None);
    fake.run("pve.store_file('local', 'x.iso', 10)\npve.task_secs_of['qmcreate'] = 1.5");
    let journal = Memory::default();
    let stuck = Stuck(&journal);
    let worker = spec(1, "pve1", "local:iso/x.iso", 2);
    let dropped = async {
        while fake.get("pve.running_tasks()") == json!([]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        _ = provider.create_worker(&worker, &stuck) => panic!("it is stuck"),
        () = dropped => {}
    }
    journal
}

#[tokio::test]
async fn a_creation_that_is_dropped_while_its_task_s_id_is_committed_is_found_by_the_same_process() {
    let Some(fake) = Fake::start() else { return };
    let provider = provider(&fake, quick());
    let journal = dropped(&fake, &provider).await;
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("[vm.vmid for vm in pve.vms] + pve.running_tasks()"), json!([]));
}

#[tokio::test]
async fn a_creation_that_goes_on_is_waited_for_where_the_clocks_disagree() {
    let Some(fake) = Fake::start() else { return };
    let mut entries = dropped(&fake, &provider(&fake, quick())).await.entries();
    // By the orchestrator's clock, no task of the node's is as young as its call.
    let at = &mut entries[0].intent.details["at"];
    *at = json!(at.as_u64().unwrap() + 3600);
    let restarted = Memory::of(entries);
    let left = provider(&fake, quick()).destroy(&restarted.entries(), &restarted).await.unwrap();
    assert_eq!(left, vec![]);
    assert_eq!(fake.get("[vm.vmid for vm in pve.vms] + pve.running_tasks()"), json!([]));
    assert_eq!(fake.get("pve.storages['ceph']['volumes']"), json!({}));
}

#[tokio::test]
async fn a_creation_that_hangs_and_has_no_task_is_not_taken_for_a_refused_one() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, None);
    let journal = Memory::default();
    provision(&provider(&fake, quick()), 1, 1, &journal).await.unwrap();
    let mut entries = journal.entries();
    let created = entries.iter_mut().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap();
    (created.task, created.outcome) = (None, None);
    fake.run(
        "pve.tasks.clear()\npve.tasklog.clear()\n\
         vm = pve.vm(9000)\nvm.config = {'lock': 'create'}\nvm.lock = 'create'\nvm.status = 'stopped'",
    );
    let restarted = Memory::of(entries);
    let timing = Timing { retry_within: Duration::from_millis(300), ..quick() };
    let left = provider(&fake, timing).destroy(&restarted.entries(), &restarted).await.unwrap();
    assert!(
        left[0].object.starts_with("creation of VM 9000") && left[0].reason.contains("locked (create)"),
        "{left:#?}"
    );
    assert!(left[1].object.contains(".iso"), "{left:#?}");
    let created = restarted.entries().into_iter().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap();
    assert_eq!(created.outcome, None, "the next teardown looks again");
}

#[tokio::test]
async fn workers_that_cannot_be_looked_at_keep_no_other_from_being_taken_back() {
    let Some(fake) = Fake::start() else { return };
    let journal = Memory::default();
    provision(&fake.provider(), 2, 1, &journal).await.unwrap();
    fake.run("pve.set_node_offline('pve2')");
    let restarted = Memory::of(journal.entries());
    let back = fake.provider().recover(&restarted.entries(), &restarted).await.unwrap();
    assert_eq!(back.iter().map(|worker| worker.id.as_str()).collect::<Vec<_>>(), ["9000"]);
}
