//! The orchestrator is killed between any two steps of the journal; a new one tears down what the journal records.

use std::time::Duration;

use crate::fakes::{Fake, Memory, provision, quick};
use futures_util::{StreamExt, stream};
use hypervisor::Hypervisor;
use hypervisor::proxmox::{Guard, Proxmox, Settings, Timing, Token};
use serde_json::json;

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
