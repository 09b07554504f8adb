//! Do no harm: the guard's readings and breaches, and the load of hosts that explains a figure.

use std::time::Duration;

use hypervisor::proxmox::{Guard, Timing};
use hypervisor::{Breach, CreatedWorker, Hypervisor};
use serde_json::json;

use crate::fakes::{Fake, Memory, provision, quick};

/// A fake with two running workers.
async fn with_workers() -> Option<(Fake, Vec<CreatedWorker>)> {
    let fake = Fake::start()?;
    let workers = provision(&fake.provider(), 2, 1, &Memory::default()).await.unwrap();
    Some((fake, workers))
}

async fn breaches(fake: &Fake, workers: &[CreatedWorker]) -> Vec<Breach> {
    fake.provider().guard(workers).await.unwrap()
}

#[tokio::test]
async fn a_healthy_cluster_breaks_no_limit_at_a_few_reads() {
    let Some((fake, workers)) = with_workers().await else { return };
    let provider = fake.provider();
    assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
    assert_eq!(
        provider.calls(),
        7,
        "guests, storage and its configuration, Ceph, quorum, and the VMs of each of two nodes"
    );
    let reading = provider.guard_reading(&workers).await.unwrap();
    assert_eq!(provider.calls(), 7 + 6, "how the storage is set up is known by now");
    assert_eq!(reading.storages.len(), 1, "a shared storage is looked at once");
    assert_eq!(reading.storages[0].available_bytes, 994 << 30);
    assert!((reading.storages[0].free_percent() - 99.4).abs() < 0.001);
}

/// From here on nothing is answered until so many requests wait for their answers.
fn answer_together(fake: &Fake, requests: usize) {
    fake.run(&format!(
        "pve.together = []\n\
         answer_one = pve._answer_as_set\n\
         async def together(*request):\n\
         \x20 pve.together.append(request)\n\
         \x20 while len(pve.together) < {requests}:\n\
         \x20   await asyncio.sleep(0.01)\n\
         \x20 return await answer_one(*request)\n\
         pve._answer_as_set = together"
    ));
}

#[tokio::test]
async fn all_reads_of_a_look_start_at_once() {
    // Guests, quorum, Ceph, and of each node in use its VMs and the storage, once where it is shared.
    for (shared, reads) in [(1, 3 + 4 + 1), (0, 3 + 4 + 4)] {
        let Some(fake) = Fake::start() else { return };
        fake.run(&format!(
            "pve.nodes_named('pve1', 'pve2', 'pve3', 'pve4')\npve.storages['ceph']['shared'] = {shared}"
        ));
        let provider = fake.provider();
        let workers = provision(&provider, 4, 1, &Memory::default()).await.unwrap();
        assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
        fake.run("pve.lose_quorum()");
        answer_together(&fake, reads);
        assert_eq!(provider.guard(&workers).await.unwrap()[0].limit, "quorum", "shared: {shared}");
    }
}

/// All that is asked of this node hangs.
fn hang(fake: &Fake, node: &str) {
    fake.run(&format!(
        "answer_one = pve._answer_as_set\n\
         async def hang(request, *others):\n\
         \x20 if '/nodes/{node}/' in request.path:\n\
         \x20   await asyncio.sleep(600)\n\
         \x20 return await answer_one(request, *others)\n\
         pve._answer_as_set = hang"
    ));
}

#[tokio::test]
async fn a_node_that_hangs_hides_no_breach_and_holds_no_look_up() {
    let Some(fake) = Fake::start() else { return };
    let long = Duration::from_secs(600);
    let patient = Timing { answer: long, retry_within: long, known_breach: Duration::from_millis(500), ..quick() };
    let provider = fake.provider_timed(Timing { look: long, ..patient });
    let workers = provision(&provider, 2, 1, &Memory::default()).await.unwrap();
    hang(&fake, "pve2");
    fake.run("pve.lose_quorum()\npve.ceph['health'] = 'HEALTH_ERR'");
    let look = tokio::time::timeout(Duration::from_secs(60), provider.guard(&workers)).await.expect("not held up");
    let limits: Vec<String> = look.unwrap().into_iter().map(|breach| breach.limit).collect();
    assert_eq!(limits, ["ceph", "quorum"]);
    fake.run("pve.regain_quorum()\npve.ceph['health'] = 'HEALTH_OK'");
    let provider = fake.provider_timed(Timing { look: Duration::from_secs(1), ..patient });
    let look = tokio::time::timeout(Duration::from_secs(60), provider.guard(&workers)).await.expect("it ends");
    let error = look.unwrap_err().to_string();
    assert!(error.contains("pve2") && error.contains("no answer"), "{error}");
}

#[tokio::test]
async fn a_worker_that_was_moved_is_looked_at_where_it_is() {
    let Some((fake, workers)) = with_workers().await else { return };
    let provider = fake.provider();
    assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
    fake.run("pve.add_node('pve3')\npve.vm(9001).node = 'pve3'\npve.vm(9001).qmpstatus = 'io-error'");
    // Where it was is of no interest any more.
    fake.run("pve.fail('GET', '/nodes/pve2/qemu', 500, 'hostname lookup failed')");
    for look in ["the first", "one that starts there"] {
        let found = provider.guard(&workers).await.unwrap();
        assert!(found.len() == 1 && found[0].message.contains("VM 9001 on pve3"), "{look}: {found:?}");
    }
}

#[tokio::test]
async fn a_ceph_that_pve_does_not_know_is_not_judged() {
    let own = "pve.storages['ceph'].pop('monhost', None)\npve.failures = {}\npve.ceph['health'] = 'HEALTH_OK'";
    let Some((fake, workers)) = with_workers().await else { return };
    for words in [
        "binary not installed: /usr/bin/ceph-mon",
        "pveceph configuration not initialized - missing '/etc/pve/ceph.conf'",
    ] {
        fake.run(&format!("{own}\npve.fail('GET', '/cluster/ceph/status', 500, {words:?})"));
        assert_eq!(breaches(&fake, &workers).await, vec![], "{words}");
    }
    // PVE has a Ceph of its own, which is ill, and the storage is on another.
    fake.run(&format!("{own}\npve.storages['ceph']['monhost'] = '192.0.2.1'\npve.ceph['health'] = 'HEALTH_ERR'"));
    let provider = fake.provider();
    for _ in 0..2 {
        assert_eq!(provider.guard(&workers).await.unwrap(), vec![]);
    }
    assert_eq!(provider.sample_hosts(&workers).await.unwrap().unwrap().storage_health, None);
    // Where that is not told, it is taken for PVE's own.
    fake.run("pve.fail('GET', '/json/storage', 500, 'refused for a test')");
    assert_eq!(breaches(&fake, &workers).await[0].message, "Ceph is in HEALTH_ERR ()");
}

#[tokio::test]
async fn each_harm_is_a_breach_with_its_figure() {
    let Some((fake, workers)) = with_workers().await else { return };
    for (harm, undo, limit, message) in [
        (
            "pve.storages['ceph'].update(avail=190 * 2**30)",
            "pve.storages['ceph'].update(avail=994 * 2**30)",
            "min_free_percent",
            "storage ceph has 19.0 % free, the limit is 20 %",
        ),
        ("pve.ceph['health'] = 'HEALTH_ERR'", "pve.ceph['health'] = 'HEALTH_OK'", "ceph", "HEALTH_ERR"),
        ("pve.vm(9001).qmpstatus = 'io-error'", "pve.vm(9001).qmpstatus = 'running'", "io_error", "VM 9001 on pve2"),
        ("pve.lose_quorum()", "pve.regain_quorum()", "quorum", "lost quorum"),
    ] {
        fake.run(harm);
        let found = breaches(&fake, &workers).await;
        assert_eq!(found.len(), 1, "{harm}: {found:?}");
        assert!(found[0].limit == limit && found[0].message.contains(message), "{found:?}");
        fake.run(undo);
        assert_eq!(breaches(&fake, &workers).await, vec![], "{undo}");
    }
}

#[tokio::test]
async fn a_ceph_that_is_full_or_silent_is_a_breach() {
    let Some((fake, workers)) = with_workers().await else { return };
    fake.run(
        "full = shapes.ceph_status('HEALTH_WARN')\nfull['health']['checks'] = {'OSD_NEARFULL': {}, 'OSD_DOWN': {}}\n\
         pve.answers['/cluster/ceph/status'] = full",
    );
    let found = breaches(&fake, &workers).await;
    assert_eq!(found[0].message, "Ceph runs out of space: OSD_NEARFULL");
    fake.run("pve.answers.clear()\npve.ceph_down()");
    let found = breaches(&fake, &workers).await;
    let limits: Vec<&str> = found.iter().map(|breach| breach.limit.as_str()).collect();
    assert_eq!(limits, ["min_free_percent", "ceph"], "{found:?}");
    assert!(found[0].message.contains("not active any more"), "{found:?}");
    assert!(found[1].message.contains("does not answer: rados_connect failed"), "{found:?}");
}

#[tokio::test]
async fn a_guard_that_may_not_look_is_blind_and_blames_nobody() {
    let Some((fake, workers)) = with_workers().await else { return };
    for template in ["/cluster/ceph/status", "/cluster/status", "/nodes/{node}/storage/{storage}/status"] {
        fake.run(&format!("pve.failures = {{}}\npve.fail('GET', {template:?}, 403, 'Permission check failed')"));
        let error = fake.provider().guard(&workers).await.unwrap_err().to_string();
        assert!(error.contains("Permission check failed"), "{template}: {error}");
    }
}

#[tokio::test]
async fn others_in_io_error_are_none_of_our_business() {
    let Some((fake, workers)) = with_workers().await else { return };
    fake.run("pve.add_vm(100, 'theirs', node='pve1', status='running', qmpstatus='io-error')");
    assert_eq!(breaches(&fake, &workers).await, vec![]);
}

#[tokio::test]
async fn limits_can_be_set_and_turned_off() {
    let Some((fake, workers)) = with_workers().await else { return };
    fake.run("pve.storages['ceph'].update(avail=190 * 2**30)\npve.lose_quorum()");
    let lax = Guard { min_free_percent: 19.0, quorum: false, ..Guard::default() };
    assert_eq!(fake.provider_guarded(lax).guard(&workers).await.unwrap(), vec![]);
    let strict = Guard { min_free_percent: 19.1, quorum: false, ..Guard::default() };
    assert_eq!(fake.provider_guarded(strict).guard(&workers).await.unwrap().len(), 1);
    let off = Guard { min_free_percent: 0.0, ceph: false, io_error: false, quorum: false };
    assert_eq!(fake.provider_guarded(off).guard(&workers).await.unwrap(), vec![]);
}

#[tokio::test]
async fn the_load_of_hosts_in_use_is_sampled_with_the_health_of_ceph() {
    let Some((fake, workers)) = with_workers().await else { return };
    fake.run(
        "pve.add_node('pve3')\n\
         status = shapes.ceph_status('HEALTH_WARN')\n\
         status['health']['checks'] = {'PG_DEGRADED': {}}\n\
         status['pgmap'].update(recovering_bytes_per_sec=5000000, degraded_ratio=0.25, misplaced_ratio=0.05, pgs_by_state=[\n\
         \x20 {'state_name': 'active+clean', 'count': 100}, {'state_name': 'active+clean+scrubbing+deep', 'count': 3},\n\
         \x20 {'state_name': 'active+clean+scrubbing', 'count': 2}])\n\
         pve.answers['/cluster/ceph/status'] = status\n\
         pve.answers['/nodes/{node}/rrddata'] = [{'time': 60, 'pressureiosome': '1.5', 'iowait': 0.02}, {'time': 120, 'pressureiosome': 12.25, 'iowait': 0.3},\n\
         \x20 {'time': 180}]",
    );
    let sample = fake.provider().sample_hosts(&workers).await.unwrap().unwrap();
    let seen = serde_json::to_value(&sample).unwrap();
    let host = |name: &str| {
        json!({ "host": name, "cpu": 0.02, "memory_used_bytes": 2_u64 << 30, "memory_bytes": 8_u64 << 30,
                "io_pressure_percent": 12.25, "io_wait": 0.3 })
    };
    assert_eq!(
        seen["hosts"],
        json!([host("pve1"), host("pve2")]),
        "the last point that has a figure; pve3 is not in use"
    );
    assert_eq!(
        seen["storage_health"],
        json!({ "status": "HEALTH_WARN", "checks": ["PG_DEGRADED"], "recovery_bytes_per_second": 5_000_000,
                "displaced": 0.3, "scrubbing": 5 })
    );
}

#[tokio::test]
async fn a_figure_of_another_time_is_no_figure_of_now() {
    let Some((fake, workers)) = with_workers().await else { return };
    let pressure = async |points: &str| {
        fake.run(&format!("pve.answers['/nodes/{{node}}/rrddata'] = [{points}]"));
        let sample = fake.provider().sample_hosts(&workers).await.unwrap().unwrap();
        (sample.hosts[0].io_pressure_percent, sample.hosts[0].io_wait)
    };
    let old = "{'time': 600, 'pressureiosome': 80, 'iowait': 0.9}";
    // PVE goes on with points that have no figure.
    let told = pressure(&format!("{old}, {{'time': 660}}, {{'time': 720, 'iowait': 0.1}}, {{'time': 780}}")).await;
    assert_eq!(told, (None, Some(0.1)));
    assert_eq!(pressure(&format!("{old}, {{'time': 660}}, {{'time': 720}}")).await, (Some(80.0), Some(0.9)));
    assert_eq!(pressure("{'pressureiosome': 80, 'iowait': 0.9}").await, (None, None), "of nobody knows when");
}
