//! Locks, a bad network, lost nodes and quorum, failing tasks, full storage, refusals: each ends within its bound, says why, and
//! leaves nothing once the fault is gone.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use hypervisor::proxmox::{Proxmox, Timing};
use hypervisor::{Hypervisor, LeftAlone};
use serde_json::json;

use crate::fakes::memory::living;
use crate::fakes::{Fake, Memory, bootstrap, deployment, provision, quick, spec};
use crate::preflight::grant;

/// Longest time that one life under a fault may take, with the short bounds of the tests.
const BOUND: Duration = Duration::from_secs(60);

/// A whole life under a fault; then, without it, everything must go. The errors that were seen, all in one text.
async fn survive(fake: &Fake, fault: &str, workers: u32) -> String {
    survive_with(fake, &fake.provider(), fault, workers).await
}

async fn survive_with(fake: &Fake, provider: &Proxmox, fault: &str, workers: u32) -> String {
    let before = fake.inventory();
    fake.run(fault);
    let since = Instant::now();
    let journal = Memory::default();
    let mut errors = Vec::new();
    errors.extend(provision(provider, workers, 2, &journal).await.err().map(|error| error.to_string()));
    match provider.destroy(&journal.entries(), &journal).await {
        Ok(left) => errors.extend(left.into_iter().map(|left| format!("{}: {}", left.object, left.reason))),
        Err(error) => errors.push(error.to_string()),
    }
    assert!(since.elapsed() < BOUND, "{fault}: {:?}", since.elapsed());
    fake.run(
        "pve.failures = {}\npve.task_fails = {}\npve.lose_answers = 0.0\npve.flaky_network()\npve.hold_rate = 0.0\npve.regain_quorum()\n\
         pve.before = None\nfor n in list(pve.nodes): pve.set_node_offline(n, False)",
    );
    let held = Instant::now();
    while fake.get("pve.held") != 0 {
        assert!(held.elapsed() < BOUND, "requests are held back");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = fake.provider().destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left, vec![], "{fault}: after {errors:#?}");
    assert_eq!(fake.inventory(), before, "{fault}: after {errors:#?}");
    errors.join("\n")
}

/// Runs one life for each fault, some at a time; the errors of each.
async fn survive_all(faults: Vec<String>, workers: u32) -> Vec<(String, String)> {
    let lives = faults.into_iter().map(async |fault| {
        let fake = Fake::start().unwrap();
        let errors = survive(&fake, &fault, workers).await;
        (fault, errors)
    });
    stream::iter(lives).buffer_unordered(12).collect().await
}

/// Calls without which no worker comes and goes.
const LIFE: [(&str, &str); 13] = [
    ("GET", "/cluster/resources"),
    ("GET", "/nodes/{node}/storage"),
    ("GET", "/nodes/{node}/storage/{storage}/status"),
    ("GET", "/nodes/{node}/storage/{storage}/content"),
    ("POST", "/nodes/{node}/storage/{storage}/upload"),
    ("POST", "/nodes/{node}/qemu"),
    ("GET", "/nodes/{node}/qemu/{vmid}/pending"),
    ("GET", "/nodes/{node}/tasks/{upid}/status"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/start"),
    ("GET", "/nodes/{node}/qemu/{vmid}/status/current"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/stop"),
    ("DELETE", "/nodes/{node}/qemu/{vmid}"),
    ("DELETE", ".iso"),
];

/// Calls that look at the cluster beside that, and whether their refusal is said; else something is not known that is not needed.
const LOOKS: [(&str, bool); 10] = [
    ("/version", true),
    ("/access/permissions", true),
    ("/cluster/status", true),
    ("/nodes/{node}/network", true),
    ("/pools", true),
    ("/nodes/{node}/qemu", true),
    ("/cluster/ceph/status", true),
    ("/nodes/{node}/ceph/pool", false),
    ("/storage", false),
    ("/nodes/{node}/rrddata", false),
];

/// Calls that are made after something went wrong.
const AFTERWARDS: [&str; 3] = ["/nodes/{node}/tasks", "/nodes/{node}/tasks/{upid}/log", "/cluster/nextid"];

/// Under the privileges of the recipe.
fn in_pool(fake: &Fake) -> Proxmox {
    grant(fake, None);
    fake.provider_with(|settings| settings.pool = Some("poc".into()))
}

/// Looks at a cluster with workers in every way; what was said, all in one text.
async fn look(provider: &Proxmox, workers: &[hypervisor::CreatedWorker]) -> String {
    let mut said = Vec::new();
    match provider.preflight(&deployment(2)).await {
        Ok(findings) => said.extend(findings.into_iter().map(|finding| finding.message)),
        Err(error) => said.push(error.to_string()),
    }
    match provider.guard(workers).await {
        Ok(breaches) => said.extend(breaches.into_iter().map(|breach| breach.message)),
        Err(error) => said.push(error.to_string()),
    }
    said.extend(provider.inventory().await.err().map(|error| error.to_string()));
    said.extend(provider.observe(workers).await.err().map(|error| error.to_string()));
    said.extend(provider.sample_hosts(workers).await.err().map(|error| error.to_string()));
    said.extend(provider.find(None).await.err().map(|error| error.to_string()));
    said.join("\n")
}

#[tokio::test]
async fn a_refusal_of_any_look_is_said_or_does_no_harm() {
    if Fake::start().is_none() {
        return;
    }
    let looks = LOOKS.iter().flat_map(|look| [403, 500].map(|status| (*look, status)));
    let lives = looks.map(async |((template, is_said), status)| {
        let fake = Fake::start().unwrap();
        let (provider, journal) = (in_pool(&fake), Memory::default());
        let before = fake.inventory();
        let workers = provision(&provider, 2, 1, &journal).await.unwrap();
        // By the end of its path: a node has storages, too.
        let path = if template == "/storage" { "/json/storage" } else { template };
        fake.run(&format!("pve.fail('GET', {path:?}, {status}, 'refused for a test')"));
        let said = look(&provider, &workers).await;
        assert_eq!(said.contains("refused for a test"), is_said, "{template}: {said}");
        if template.ends_with("/ceph/pool") {
            assert!(said.contains("its Ceph replication cannot be told"), "{said}");
        }
        assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![], "{template} {status}");
        assert_eq!(fake.inventory(), before, "{template} {status}");
    });
    stream::iter(lives).buffer_unordered(6).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn a_refusal_after_something_went_wrong_is_said_and_passes() {
    let Some(fake) = Fake::start() else { return };
    let refuse = |template: &str| {
        assert!(AFTERWARDS.contains(&template));
        fake.run(&format!("pve.fail('GET', {template:?}, 403, 'refused for a test')"));
    };
    let (provider, before) = (in_pool(&fake), fake.inventory());
    // A failure whose log cannot be read has its status.
    refuse("/nodes/{node}/tasks/{upid}/log");
    fake.run("pve.task_fails['qmstart'] = 'failed for a test'");
    let journal = Memory::default();
    let error = provision(&provider, 1, 1, &journal).await.unwrap_err().to_string();
    assert!(error.contains("failed for a test"), "{error}");
    fake.run("pve.failures = {}\npve.task_fails = {}");
    // What a creation came to that was not recorded, while tasks are not told.
    let mut entries = journal.entries();
    let created = entries.iter_mut().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap();
    (created.task, created.outcome) = (None, None);
    let restarted = Memory::of(entries);
    refuse("/nodes/{node}/tasks");
    let left = provider.destroy(&restarted.entries(), &restarted).await.unwrap();
    assert!(left.iter().any(|left| left.reason.contains("refused for a test")), "{left:#?}");
    fake.run("pve.failures = {}");
    assert_eq!(provider.destroy(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
    // A VM that is gone, and whether somebody else's has its id is not told.
    let journal = Memory::default();
    provision(&provider, 1, 1, &journal).await.unwrap();
    fake.run("pve.vms.clear()\npve.storages['ceph']['volumes'].clear()\npve.pools['poc'].clear()");
    refuse("/cluster/nextid");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left.iter().any(|left| left.reason.contains("refused for a test")), "{left:#?}");
    fake.run("pve.failures = {}");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
}

#[tokio::test]
async fn no_call_is_used_whose_refusal_is_not_tried() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (in_pool(&fake), Memory::default());
    let workers = provision(&provider, 2, 1, &journal).await.unwrap();
    look(&provider, &workers).await;
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    fake.run("pve.task_fails['qmstart'] = 'failed for a test'");
    provider.start_worker(&workers[0], &bootstrap(), &journal).await.unwrap_err();
    let mut entries = journal.entries();
    entries.iter_mut().for_each(|entry| (entry.task, entry.outcome) = (None, None));
    let restarted = Memory::of(entries);
    provider.recover(&restarted.entries(), &restarted).await.unwrap();
    provider.destroy(&restarted.entries(), &restarted).await.unwrap();
    provider.destroy(&restarted.entries(), &restarted).await.unwrap();
    let used: Vec<(String, String)> = serde_json::from_value(fake.get("sorted(pve.used)")).unwrap();
    let is_tried = |method: &str, template: &str| {
        // A volume's name is no part of a template.
        let is = |call: &str| call == template || call.starts_with('.') && template.ends_with(call);
        let in_life = LIFE.iter().any(|(tried, call)| *tried == method && is(call));
        let looks = LOOKS.iter().any(|(call, _)| *call == template) || AFTERWARDS.contains(&template);
        in_life || method == "GET" && looks
    };
    assert!(used.len() > 20, "{used:#?}");
    let untried: Vec<_> = used.iter().filter(|(method, template)| !is_tried(method, template)).collect();
    assert!(untried.is_empty(), "{untried:#?}");
}

#[tokio::test]
async fn a_refusal_of_any_call_ends_with_its_words_and_leaves_nothing() {
    if Fake::start().is_none() {
        return;
    }
    let fault = |(method, template): (&str, &str), status: u16| {
        format!("pve.fail({method:?}, {template:?}, {status}, 'refused for a test {status}')")
    };
    let faults = LIFE.iter().flat_map(|call| [403, 500, 503].map(|status| fault(*call, status)));
    for (fault, errors) in survive_all(faults.collect(), 2).await {
        assert!(errors.contains("refused for a test"), "{fault}: {errors}");
    }
}

/// PVE's words where many allocate on one storage.
const CLUSTER_LOCK: &str = "cfs-lock 'storage-ceph' error: got lock request timeout";

#[tokio::test]
async fn one_refusal_that_passes_ends_no_change() {
    if Fake::start().is_none() {
        return;
    }
    let refusals = [(429, "too many"), (503, "service unavailable"), (595, "Connection refused"), (500, CLUSTER_LOCK)];
    let changes = LIFE.iter().filter(|(method, _)| *method != "GET");
    let faults = changes.flat_map(|(method, template)| {
        refusals.map(|(status, words)| format!("pve.fail({method:?}, {template:?}, {status}, {words:?}, times=1)"))
    });
    for (fault, errors) in survive_all(faults.collect(), 1).await {
        assert_eq!(errors, "", "{fault}");
    }
}

#[tokio::test]
async fn one_task_that_waited_in_vain_for_a_lock_of_the_cluster_ends_no_change() {
    if Fake::start().is_none() {
        return;
    }
    let cut = "'storage-ceph'-locked command timed out - aborting";
    let tasks = ["qmcreate", "qmstart", "qmstop", "qmdestroy"].map(|task| (task, CLUSTER_LOCK));
    let faults = tasks.into_iter().chain([("qmstart", cut), ("qmdestroy", cut)]).map(|(task, words)| {
        format!(
            "class Once(dict):\n\
             \x20 def __getitem__(self, task):\n\
             \x20   return self.pop(task)\n\
             pve.task_fails = Once({{{task:?}: {words:?}}})"
        )
    });
    for (fault, errors) in survive_all(faults.collect(), 1).await {
        assert_eq!(errors, "", "{fault}");
    }
}

#[tokio::test]
async fn each_creation_that_waited_for_its_storage_has_an_entry_of_its_own() {
    let Some(fake) = Fake::start() else { return };
    fake.run(&format!("pve.store_file('local', 'x.iso', 10)\npve.task_fails['qmcreate'] = {CLUSTER_LOCK:?}"));
    let (provider, journal) = (fake.provider(), Memory::default());
    let error = provider.create_worker(&spec(1, "pve1", "local:iso/x.iso", 2), &journal).await.unwrap_err().to_string();
    assert!(error.contains(CLUSTER_LOCK), "{error}");
    let tasks: Vec<String> = journal.entries().iter().map(|entry| entry.task.as_ref().unwrap().to_string()).collect();
    assert!((2..10).contains(&tasks.len()), "{tasks:#?}");
    assert_eq!(fake.get("sum(1 for t in pve.tasklog if t['type'] == 'qmcreate')"), tasks.len());
}

#[tokio::test]
async fn a_task_of_any_kind_that_fails_is_told_with_its_log() {
    if Fake::start().is_none() {
        return;
    }
    let kinds = ["imgcopy", "qmcreate", "qmstart", "qmstop", "qmdestroy", "imgdel"];
    let faults = kinds.iter().map(|kind| format!("pve.task_fails['{kind}'] = 'failed for a test'")).collect();
    for (fault, errors) in survive_all(faults, 2).await {
        assert!(errors.contains("failed for a test") && errors.contains("TASK ERROR"), "{fault}: {errors}");
    }
}

#[tokio::test]
async fn a_bad_network_costs_time_but_neither_doubles_nor_leaves_anything() {
    if Fake::start().is_none() {
        return;
    }
    let drops = (1..5).map(|seed| format!("pve._random.seed({seed})\npve.flaky_network(drop_rate=0.1)"));
    let losses = (1..9).map(|seed| format!("pve._random.seed({seed})\npve.lose_answers = 0.4"));
    let slow = ["pve.time_scale = 1\npve.slow_network(0.2, jitter=0.2)".to_owned()];
    for (fault, errors) in survive_all(drops.chain(losses).chain(slow).collect(), 3).await {
        assert!(errors.is_empty() || errors.contains("no answer"), "{fault}: {errors}");
    }
}

#[tokio::test]
async fn calls_that_take_effect_after_they_were_given_up_leave_nothing() {
    if Fake::start().is_none() {
        return;
    }
    // Some changes are held back for longer than an answer is waited for, and then made.
    let timing = Timing { answer: Duration::from_millis(700), retry_within: Duration::from_secs(12), ..quick() };
    let lives = (1..9).map(async |seed| {
        let fake = Fake::start().unwrap();
        let fault = format!("pve._random.seed({seed})\npve.hold_rate, pve.hold_secs = 0.3, 1.5");
        survive_with(&fake, &fake.provider_timed(timing), &fault, 2).await
    });
    let errors: Vec<String> = stream::iter(lives).buffer_unordered(8).collect().await;
    assert!(errors.iter().all(|errors| errors.is_empty() || errors.contains("no answer")), "{errors:#?}");
}

#[tokio::test]
async fn lost_answers_do_not_create_twice() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.store_file('local', 'x.iso', 10)\npve.task_secs = 0.1");
    let (provider, journal) = (fake.provider(), Memory::default());
    // Each change is answered once out of two times.
    fake.run(
        "n = [0]\ndef f():\n  n[0] += 1\n  return n[0] % 2\npve._random.random = lambda: f()\npve.lose_answers = 0.5",
    );
    let worker = provider.create_worker(&spec(1, "pve1", "local:iso/x.iso", 2), &journal).await.unwrap();
    provider.start_worker(&worker, &bootstrap(), &journal).await.unwrap();
    assert_eq!(fake.get("[(vm.vmid, vm.status) for vm in pve.vms]"), json!([[9000, "running"]]));
    assert_eq!(fake.get("sum(1 for t in pve.tasklog if t['type'] == 'qmcreate')"), 1);
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("len(pve.vms)"), 0);
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_and_whose_task_shows_late_makes_one_vm() {
    let Some(fake) = Fake::start() else { return };
    // The first answer is lost, and its task shows only after the call was sent again.
    fake.run(
        "pve.store_file('local', 'x.iso', 10)\n\
         pve.task_secs_of['qmcreate'] = 1.5\n\
         def once(v):\n\
         \x20 pve.before_create = None\n\
         \x20 pve.lose_answers = 2.0\n\
         \x20 asyncio.get_event_loop().call_later(0.1, lambda: setattr(pve, 'lose_answers', 0.0))\n\
         pve.before_create = once\n\
         pve.answers['/nodes/{node}/tasks'] = []\n\
         asyncio.get_event_loop().call_later(1.0, pve.answers.clear)",
    );
    let (provider, journal) = (fake.provider(), Memory::default());
    let worker = provider.create_worker(&spec(1, "pve1", "local:iso/x.iso", 1), &journal).await.unwrap();
    assert!(fake.requests("POST", "/qemu") > 1, "it was sent again");
    assert_eq!((worker.id.as_str(), fake.get("[vm.vmid for vm in pve.vms]")), ("9000", json!([9000])));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.get("len(pve.vms)"), 0);
}

#[tokio::test]
async fn a_lock_that_passes_is_waited_for() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 1, 1, &journal).await.unwrap();
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    // The first tries wait for the lock in vain; it is gone before the repeats are used up.
    fake.run(
        "asyncio.ensure_future(pve.hold_config_lock(9000, None))\n\
         asyncio.get_event_loop().call_later(0.3, lambda: pve.release_config_lock(9000))",
    );
    provider.start_worker(&workers[0], &bootstrap(), &journal).await.unwrap();
    assert_eq!(fake.get("pve.vm(9000).status"), "running");
    let failed = "sum(1 for t in pve.tasklog if \"can't lock file\" in t['exitstatus'])";
    assert!(fake.get(failed).as_u64().unwrap() >= 1, "the lock was met");
}

#[tokio::test]
async fn a_lock_that_stays_ends_within_the_bound_with_its_words() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 1, 1, &journal).await.unwrap();
    provider.stop_worker(&workers[0], &journal).await.unwrap();
    fake.run("asyncio.ensure_future(pve.hold_config_lock(9000, None))");
    let since = Instant::now();
    let error = provider.start_worker(&workers[0], &bootstrap(), &journal).await.unwrap_err().to_string();
    assert!(error.contains("can't lock file") && error.contains("task list"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_vm_that_another_job_locks_or_somebody_protects_is_left_until_it_is_free() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run("pve.snapshot_lock(9000, 'backup')\npve.vm(9001).config['protection'] = 1");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    let told = |left: &[LeftAlone], vm: &str, why: &str| {
        left.iter().any(|left| left.object.starts_with(vm) && left.reason.contains(why))
    };
    assert!(told(&left, "VM 9000", "locked (backup)") && told(&left, "VM 9001", "protection"), "{left:#?}");
    assert!(told(&left, "local:iso/", "boot from it"), "{left:#?}");
    assert_eq!(fake.get("sorted(vm.status for vm in pve.vms)"), json!(["running", "running"]), "not even stopped");
    fake.run("pve.unlock(9000)\npve.vm(9001).config.pop('protection')");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_node_that_goes_offline_in_create_run_and_teardown() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    // In create: the node goes while it creates.
    fake.run("pve.task_secs_of['qmcreate'] = 0.3\npve.before_create = lambda v: v['node'] == 'pve2' and pve.set_node_offline('pve2')");
    let error = provision(&provider, 2, 1, &journal).await.unwrap_err().to_string();
    assert!(
        error.contains("worker w2") && error.contains("No route to host") && error.contains("target.nodes"),
        "{error}"
    );
    // In teardown: what is on the other node goes, what cannot be told is reported.
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(
        left.iter().any(|left| left.object.contains("pve2") && left.reason.contains("No route to host")),
        "{left:#?}"
    );
    assert_eq!(fake.get("[vm.node for vm in pve.vms if vm.node != 'pve2']"), json!([]));
    fake.run("pve.before_create = None\npve.set_node_offline('pve2', False)");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
    // In run: seen at once, and the guard is not blind for the rest.
    let journal = Memory::default();
    let workers = provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run("pve.set_node_offline('pve2')");
    let observed = provider.observe(&workers).await.unwrap();
    assert_eq!(observed[1].state, hypervisor::WorkerState::Unknown);
    assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
    fake.run("pve.lose_quorum()");
    assert_eq!(provider.guard(&workers).await.unwrap()[0].limit, "quorum");
    fake.run("pve.regain_quorum()");
    fake.run("pve.set_node_offline('pve2', False)");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn lost_quorum_stops_creation_and_teardown_until_it_is_back() {
    let Some(fake) = Fake::start() else { return };
    let errors = survive(&fake, "pve.lose_quorum()", 2).await;
    assert!(errors.contains("no quorum") && errors.contains("pvecm status"), "{errors}");
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run("pve.lose_quorum()");
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert!(left.iter().filter(|left| left.reason.contains("no quorum")).count() >= 2, "{left:#?}");
    fake.run("pve.regain_quorum()");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn a_full_storage_is_told_and_what_was_made_before_goes() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    fake.run("pve.storages['ceph']['avail'] = 8 * 2**30");
    let error = provision(&provider, 4, 2, &journal).await.unwrap_err().to_string();
    assert!(error.contains("No space left on device") && error.contains("smaller footprint"), "{error}");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    fake.run("pve.storages['ceph']['avail'] += 992 * 2**30");
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn volumes_that_a_destruction_left_are_removed_and_only_the_recorded_ones() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 3, &journal).await.unwrap();
    // The destruction forgets two disks; meanwhile another volume of ours' name has another size.
    fake.run(
        "free = pve._qm_free\n\
         pve._qm_free = lambda volid: None if volid.endswith(('disk-0', 'disk-1')) else free(volid)\n\
         pve.storages['ceph']['volumes']['vm-9000-disk-1']['size'] = 7\n\
         pve.storages['ceph']['volumes']['vm-9000-disk-9'] = {'content': 'images', 'size': 3 * 2**30, 'vmid': 9000}",
    );
    let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert!(left[0].object.contains("vm-9000-disk-1") && left[0].reason.contains("has 7 bytes"), "{left:#?}");
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-1", "vm-9000-disk-9"]));
}

#[tokio::test]
async fn volumes_of_a_creation_that_broke_off_are_removed_by_its_log() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 2, &journal).await.unwrap();
    let mut entries = journal.entries();
    let created = entries.iter_mut().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap();
    created.outcome = Some(hypervisor::Outcome { succeeded: false, details: json!({ "error": "interrupted" }) });
    // The node rebooted in the middle: no configuration, both disks, and one that was there before.
    fake.run("pve.vms.clear()\npve.storages['ceph']['volumes']['vm-9000-disk-9'] = {'content': 'images', 'size': 3 * 2**30, 'vmid': 9000}");
    let restarted = Memory::of(entries);
    assert_eq!(provider.destroy(&restarted.entries(), &restarted).await.unwrap(), vec![]);
    assert_eq!(fake.get("sorted(pve.storages['ceph']['volumes'])"), json!(["vm-9000-disk-9"]));
}

#[tokio::test]
async fn a_vm_stuck_in_its_creation_is_left_and_reported() {
    let Some(fake) = Fake::start() else { return };
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    let mut entries = journal.entries();
    entries.iter_mut().find(|entry| entry.intent.kind == "proxmox.create-vm").unwrap().outcome = None;
    fake.run("vm = pve.vm(9000)\nvm.config = {'lock': 'create'}\nvm.lock = 'create'\nvm.status = 'stopped'");
    let restarted = Memory::of(entries);
    let left = provider.destroy(&restarted.entries(), &restarted).await.unwrap();
    assert!(left[0].object.starts_with("VM 9000") && left[0].reason.contains("SMBIOS UUID is not set"), "{left:#?}");
    assert_eq!(fake.get("len(pve.vms)"), 1);
}

#[tokio::test]
async fn a_vm_that_was_migrated_is_destroyed_where_it_is() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    let workers = provision(&provider, 1, 1, &journal).await.unwrap();
    fake.run("pve.vm(9000).node = 'pve2'");
    assert_eq!(provider.observe(&workers).await.unwrap()[0].host.as_deref(), Some("pve2"));
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn what_is_on_shared_storage_goes_though_the_node_that_it_was_made_on_is_dead() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.storages['local']['shared'] = 1");
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 2, 1, &journal).await.unwrap();
    // The node that the image went to dies for good, and somebody recovers its VM to the other. Its destruction leaves its volume.
    fake.run("pve.vm(9000).node = 'pve2'\npve.set_node_offline('pve1')\npve._qm_free = lambda volid: None");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    let mut after = fake.inventory();
    after["storages"]["ceph"]["avail"] = before["storages"]["ceph"]["avail"].clone();
    assert_eq!(after, before);
    assert_eq!(living(&journal.entries()), Vec::<&hypervisor::JournalEntry>::new());
}

#[tokio::test]
async fn a_worker_that_ha_stops_in_its_own_time_is_waited_for() {
    let Some(fake) = Fake::start() else { return };
    let before = fake.inventory();
    let (provider, journal) = (fake.provider(), Memory::default());
    provision(&provider, 1, 1, &journal).await.unwrap();
    // Somebody added it to HA: a stop is a request, whose task ends at once.
    fake.run(
        "vm = pve.vm(9000)\nvm.ha_state = 'started'\n\
         async def request(vm, user, state):\n\
         \x20 async def body():\n\
         \x20   def done():\n\
         \x20     vm.status = vm.qmpstatus = state\n\
         \x20   asyncio.get_event_loop().call_later(1.0, done)\n\
         \x20 return await pve.task(vm.node, 'hastop', vm.vmid, user, body, lock=False)\n\
         pve._ha_request = request\n\
         def lose(request):\n\
         \x20 pve.lose_answers = 2.0 if request.path.endswith('/status/stop') else 0.0\n\
         pve.before = lose",
    );
    // Not even the loss of its answer makes it asked twice.
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
    assert_eq!(fake.requests("POST", "/status/stop"), 1);
    assert_eq!(fake.inventory(), before);
}

#[tokio::test]
async fn disks_that_a_destruction_left_and_the_token_cannot_see_are_reported() {
    let Some(fake) = Fake::start() else { return };
    grant(&fake, Some(("/storage/ceph", "Datastore.Allocate")));
    let provider = fake.provider_with(|settings| settings.pool = Some("poc".into()));
    let journal = Memory::default();
    provision(&provider, 2, 1, &journal).await.unwrap();
    fake.run(
        "free = pve._qm_free\n\
         def keep(volid):\n\
         \x20 if volid != 'ceph:vm-9000-disk-0':\n\
         \x20   return free(volid)\n\
         \x20 task = next(t for t in reversed(pve.tasklog) if (t['type'], t['id']) == ('qmdestroy', '9000'))\n\
         \x20 task['log'].append(\"Could not remove disk 'ceph:vm-9000-disk-0', check manually: rbd error\")\n\
         pve._qm_free = keep",
    );
    // Now, and by the next orchestrator.
    for _ in 0..2 {
        let left = provider.destroy(&journal.entries(), &journal).await.unwrap();
        assert_eq!(left.len(), 1, "{left:#?}");
        assert!(left[0].object.starts_with("ceph:vm-9000-disk-0"), "{left:#?}");
        assert!(left[0].reason.contains("rbd error") && left[0].reason.contains("Datastore.Allocate"), "{left:#?}");
    }
    // With the privilege it is seen, and gone once somebody removed it.
    grant(&fake, None);
    fake.run("del pve.storages['ceph']['volumes']['vm-9000-disk-0']");
    assert_eq!(provider.destroy(&journal.entries(), &journal).await.unwrap(), vec![]);
}
