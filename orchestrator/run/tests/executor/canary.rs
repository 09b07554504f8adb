//! One worker on each host goes through the whole chain first.

use run::Link;

use crate::liar::Wrong;
use crate::place::{Bench, Faults};
use crate::{ONE_CASE, plan};

/// As the kernel tells it of a connection by IPv4, whose packets have at most 65,535 bytes.
fn loopback_mtu() -> u32 {
    let mtu: u32 = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap().trim().parse().unwrap();
    mtu.min(65_535)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_on_each_host_precedes_the_workers_and_is_removed() {
    let bench = Bench::new(Faults::default()).await;
    let (_, export) = bench.run_after_a_canary(&plan(ONE_CASE)).await;
    assert_eq!((export.run.state.as_str(), export.run.complete), ("done", true), "{:?}", export.run.reason);
    let said: Vec<&str> = export.run.events.iter().map(|event| event.message.as_str()).collect();
    for host in ["host-1", "host-2"] {
        let flown = said.iter().find(|text| text.starts_with(&format!("canary on {host}: enrolled as "))).unwrap();
        let seen = "of 1073741824 bytes seen, 67108864 bytes written, 1000 blocks read back as written, removed; \
                    MTU to the orchestrator ";
        assert!(flown.ends_with(&format!("{seen}{}", loopback_mtu())), "{flown}");
    }
    let created = bench.place.created.lock().unwrap().clone();
    let mut names: Vec<&str> = created.iter().map(|spec| spec.name.as_str()).collect();
    names[..2].sort_unstable();
    assert_eq!(names[..2], ["canary-1", "canary-2"], "they come first");
    assert_eq!(created[0].disks.len(), 1);
    let workers: Vec<&str> = export.run.environment["workers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|worker| worker["name"].as_str())
        .collect();
    assert_eq!(workers, ["worker-1", "worker-2"], "a canary is none of the run's workers");
    assert_eq!(bench.disk_files(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chain_that_breaks_names_host_link_and_cause_before_there_are_workers() {
    let bench = Bench::new(Faults { create: Some("canary-2"), ..Faults::default() }).await;
    let (_, export) = bench.run_after_a_canary(&plan(ONE_CASE)).await;
    let why = "canary on host-2 failed at creating the worker: canary-2: no memory for another worker";
    assert_eq!((export.run.state.as_str(), export.run.reason.as_deref()), ("failed", Some(why)));
    assert!(bench.place.created.lock().unwrap().iter().all(|spec| spec.name == "canary-1"));
    assert_eq!(bench.disk_files(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_link_that_breaks_is_named_with_its_host_and_cause() {
    for (faults, link, cause) in [
        (Faults { start: Some("canary-2"), ..Faults::default() }, Link::Start, "its host is out of memory"),
        (
            Faults { halved: Some("canary-2"), ..Faults::default() },
            Link::Recognise,
            "has 536870912 bytes; expected 1073741824",
        ),
        (
            Faults { wrong: Some(("canary-2", Wrong::Fill)), ..Faults::default() },
            Link::Write,
            "write: Input/output error",
        ),
        (
            Faults { wrong: Some(("canary-2", Wrong::Verify)), ..Faults::default() },
            Link::ReadBack,
            "block 7 is not as it was written",
        ),
    ] {
        let bench = Bench::new(faults).await;
        let report = bench.canary(&plan(ONE_CASE)).await;
        let (broken, why) = report.hosts[1].failure.clone().unwrap();
        assert!(broken == link && why.contains(cause), "{broken}: {why}");
        let all = report.failure().unwrap();
        assert!(all.contains(&format!("canary on host-2 failed at {link}: ")), "{all}");
        assert_eq!(bench.disk_files(), 0, "{link}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_by_itself_leaves_a_report_and_nothing_else() {
    let bench = Bench::new(Faults::default()).await;
    let report = bench.canary(&plan(ONE_CASE)).await;
    assert_eq!((report.failure(), report.hosts.len()), (None, 2));
    assert!(
        report.hosts.iter().all(|host| host.disk_bytes == Some(1 << 30) && host.verified_blocks == 1000),
        "{report:?}"
    );
    let run = bench.store.find_run("latest").await.unwrap();
    let export = bench.store.load_export(run).await.unwrap();
    assert_eq!((export.run.name.as_str(), export.run.state.as_str()), ("canary of small", "done"));
    assert!(export.run.warnings[0].contains("Nothing was measured"), "{:?}", export.run.warnings);
    assert_eq!((export.cases.len(), bench.disk_files()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_ends_before_it_calls_is_named_by_that_link() {
    let bench = Bench::new(Faults { ends_at_once: Some("canary-1"), ..Faults::default() }).await;
    let report = bench.canary(&plan(ONE_CASE)).await;
    let (link, cause) = report.hosts[0].failure.clone().unwrap();
    assert!(link == Link::Boot && cause.contains("exit status 3"), "{link}: {cause}");
    let run = bench.store.find_run("latest").await.unwrap();
    let export = bench.store.load_export(run).await.unwrap();
    assert_eq!((export.run.state.as_str(), bench.disk_files()), ("failed", 0));
    assert!(export.run.reason.unwrap().contains("canary on host-1 failed at booting: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_never_calls_is_named_within_its_own_bound() {
    for (sent, link, cause) in [
        (Some(0), Link::Boot, "has sent nothing: it does not boot"),
        (Some(342), Link::Reach, "has sent 342 bytes, but does not get through: no address (DHCP), VLAN"),
        (None, Link::Reach, "it does not boot, or does not get through: no address (DHCP)"),
    ] {
        let bench = Bench::new(Faults { silent: true, sent, ..Faults::default() }).await;
        let report = bench.canary_within(&plan(ONE_CASE), 2).await;
        for host in &report.hosts {
            let (broken, why) = host.failure.clone().unwrap();
            assert!(broken == link && why.contains(cause), "{broken}: {why}");
            assert!(why.starts_with("it was started and nothing was heard of it for 2 s"), "{why}");
        }
        let all = report.failure().unwrap();
        assert!(all.contains("canary on host-1 failed at") && all.contains("canary on host-2 failed at"), "{all}");
        assert_eq!(bench.disk_files(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_cannot_be_removed_says_so() {
    let bench = Bench::new(Faults { destroy: true, ..Faults::default() }).await;
    let report = bench.canary(&plan(ONE_CASE)).await;
    let why = report.failure().unwrap();
    assert!(why.contains("failed at removing the worker") && why.contains("the disks are busy"), "{why}");
}
