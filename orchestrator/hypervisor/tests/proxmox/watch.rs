//! Do no harm: the guard's readings and breaches, and the load of hosts that explains a figure.

use std::time::{Duration, Instant};

use hypervisor::proxmox::Guard;
use hypervisor::{Breach, CreatedWorker, Hypervisor};
use serde_json::json;

use crate::fakes::{Fake, Memory, provision};

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
    assert_eq!(provider.calls(), 6, "guests, storage, Ceph, quorum, and the VMs of each of two nodes");
    let reading = provider.guard_reading(&workers).await.unwrap();
    assert_eq!(reading.storages.len(), 1, "a shared storage is looked at once");
    assert_eq!(reading.storages[0].available_bytes, 994 << 30);
    assert!((reading.storages[0].free_percent() - 99.4).abs() < 0.001);
}

#[tokio::test]
async fn answers_that_are_slow_do_not_add_up() {
    let Some(fake) = Fake::start() else { return };
    fake.run("pve.nodes_named('pve1', 'pve2', 'pve3', 'pve4', 'pve5', 'pve6')");
    let workers = provision(&fake.provider(), 6, 1, &Memory::default()).await.unwrap();
    // Ten reads of a second each; a breach must stop the load within 15 s, at looks every 10 s.
    fake.run("pve.time_scale = 1\npve.slow_network(1.0)\npve.lose_quorum()");
    let since = Instant::now();
    assert_eq!(breaches(&fake, &workers).await[0].limit, "quorum");
    assert!(since.elapsed() < Duration::from_secs(7), "{:?}", since.elapsed());
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
