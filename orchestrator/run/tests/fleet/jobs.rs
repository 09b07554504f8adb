//! Jobs on real agents: what is measured arrives whole, also over sessions that break.

use std::time::Duration;

use crate::agents::{
    DISK_BYTES, LEAD, PATIENCE, Report, Site, State, Way, contents, fill, job, load, site, start, verify,
};
use latency_histogram::{Exact, Latencies};
use run::fleet::{FleetEvent, FleetLimits};
use worker_protocol::{OpTotals, Ops, Phase};

fn latencies(totals: &OpTotals) -> Latencies {
    let OpTotals { count, sum_ns, min_ns, max_ns, over_range, .. } = *totals;
    let decoded = Latencies::decode(&totals.histogram, Exact { count, sum_ns, min_ns, max_ns, over_range }).unwrap();
    assert_eq!(decoded.count(), totals.count);
    decoded
}

/// Count, bytes, errors and latencies of several totals together.
fn sum<'a>(totals: impl Iterator<Item = &'a OpTotals>) -> (u64, u64, u64, Latencies) {
    totals.fold((0, 0, 0, Latencies::new()), |(count, bytes, errors, mut merged), one| {
        merged.merge(&latencies(one));
        (count + one.count, bytes + one.bytes, errors + one.errors, merged)
    })
}

/// The samples are all there, once each, in order, and make the same totals as the end of the job.
fn assert_whole(report: &Report, precondition: u32, window: u32) {
    let seconds: Vec<_> = report.samples.iter().map(|sample| (sample.number, sample.phase, sample.second)).collect();
    let phases = (0..precondition)
        .map(|second| (Phase::Precondition, second))
        .chain((0..window).map(|second| (Phase::Sample, second)));
    let planned: Vec<_> = (0..).zip(phases).map(|(number, (phase, second))| (number, phase, second)).collect();
    assert_eq!(seconds, planned);

    let finished = report.finished.as_ref().unwrap();
    assert!(finished.complete, "{:?}", finished.reason);
    let in_window = || report.samples.iter().filter(|sample| sample.phase == Phase::Sample);
    let picks: [fn(&Ops) -> &OpTotals; 2] = [|ops| &ops.read, |ops| &ops.write];
    for pick in picks {
        let of_seconds = sum(in_window().map(|sample| pick(&sample.ops)));
        let of_disks = sum(finished.disks.iter().map(|disk| pick(&disk.ops)));
        assert_eq!(of_seconds, of_disks);
        assert!(of_disks.0 > 0, "there was I/O");
        assert_eq!(of_disks.1, of_disks.0 * 4096);
        assert_eq!(of_disks.2, 0, "no errors");
    }
    for (index, disk) in finished.disks.iter().enumerate() {
        let by_second: u64 = in_window().map(|sample| sample.disks[index].read_count).sum();
        assert_eq!(by_second, disk.ops.read.count, "per disk, too");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fill_verify_and_load_end_to_end() {
    let mut site = site(2, 2, FleetLimits::default()).await;
    let agents = site.enrol(2).await;
    let workers = ["w0", "w1"];

    let filled = site.run(&workers, &job(1, 2, fill())).await;
    for report in filled.values() {
        let finished = report.finished.as_ref().unwrap();
        assert!(finished.complete, "{:?}", finished.reason);
        assert_eq!(finished.disks.iter().map(|disk| disk.bytes).collect::<Vec<_>>(), [DISK_BYTES; 2]);
        assert_eq!(report.progress.last(), Some(&(2 * DISK_BYTES, 2 * DISK_BYTES)));
    }
    let bytes = std::fs::read(site.file(1, 1)).unwrap();
    assert!(bytes.chunks(4096).all(|block| block.iter().any(|&byte| byte != 0)), "no block of zeros");

    let compared = site.run(&workers, &job(2, 2, verify(1_000))).await;
    for report in compared.values() {
        let disks = &report.finished.as_ref().unwrap().disks;
        assert_eq!(disks.iter().map(|disk| disk.verified_blocks).collect::<Vec<_>>(), [1_000; 2]);
    }

    let measured = job(3, 2, load(1, 3));
    site.prepare(&workers, &measured).await;
    let plan = site.fleet.start_all(3, &workers, LEAD).await.unwrap();
    let reports = site.collect(3, 2).await;
    reports.values().for_each(|report| assert_whole(report, 1, 3));
    let starts =
        reports.iter().map(|(worker, report)| (worker.as_str(), report.finished.as_ref().unwrap().started_worker_ns));
    let skew = plan.skew(starts).unwrap();
    assert_eq!(skew.late_ns.len(), 2);
    for (worker, late_ns) in &skew.late_ns {
        let late_ms = late_ns / 1_000_000;
        assert!((-100..1_000).contains(&late_ms), "{worker} started {late_ms} ms after the agreed time");
    }

    assert_eq!(site.fleet.shutdown_all(PATIENCE).await, Vec::<String>::new());
    for agent in agents {
        agent.await.unwrap().unwrap();
    }
}

/// Keeps samples until `last` says that this event was the one; acknowledges the even ones only.
async fn samples_until(site: &mut Site, report: &mut Report, last: impl Fn(&FleetEvent) -> bool) {
    loop {
        let event = site.event_where(|event| Some(event.clone())).await;
        if let FleetEvent::Sample { sample, .. } = &event {
            if sample.number % 2 == 0 {
                site.fleet.ack_samples("w0", sample.job, sample.number).unwrap();
            }
            report.samples.push(sample.clone());
        }
        if last(&event) {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_cut_in_mid_sample_loses_and_doubles_nothing() {
    let limits = FleetLimits { grace: PATIENCE, ..FleetLimits::default() };
    let mut site = site(1, 1, limits).await;
    let way = Way::to(site.fleet.address()).await;
    let _agent = start(site.config(0, way.address));
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    site.run(&["w0"], &job(1, 1, fill())).await;

    site.prepare(&["w0"], &job(2, 1, load(1, 10))).await;
    site.fleet.start_all(2, &["w0"], LEAD).await.unwrap();
    let mut report = Report::default();
    for cut_after in [1, 3] {
        let enough =
            |event: &FleetEvent| matches!(event, FleetEvent::Sample { sample, .. } if sample.number >= cut_after);
        samples_until(&mut site, &mut report, enough).await;
        // A second or more of samples is sent and never arrives.
        way.set(State::Deaf);
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        way.set(State::Closed);
        samples_until(&mut site, &mut report, |event| matches!(event, FleetEvent::Disconnected { .. })).await;
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        way.set(State::Open);
    }
    let mut rest = site.collect(2, 1).await.remove("w0").unwrap();
    report.samples.append(&mut rest.samples);
    report.finished = rest.finished;
    assert_whole(&report, 1, 10);
    let history = site.fleet.clock_history("w0").unwrap();
    assert!(history.len() >= 4, "measured at each session and at each start: {history:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_cut_off_until_after_its_end_delivers_then() {
    let limits = FleetLimits { grace: PATIENCE, ..FleetLimits::default() };
    let mut site = site(1, 1, limits).await;
    let way = Way::to(site.fleet.address()).await;
    let _agent = start(site.config(0, way.address));
    site.fleet.wait_enrolled(PATIENCE).await.unwrap();
    site.run(&["w0"], &job(1, 1, fill())).await;
    site.prepare(&["w0"], &job(2, 1, load(0, 2))).await;
    site.fleet.start_all(2, &["w0"], LEAD).await.unwrap();
    // The start is on its way before the cut; a probe's reply shows that it has arrived.
    site.fleet.probe("w0").await.unwrap();
    way.set(State::Closed);
    tokio::time::sleep(LEAD + Duration::from_secs(4)).await;
    way.set(State::Open);
    let report = site.collect(2, 1).await.remove("w0").unwrap();
    assert_eq!(report.cuts, 1);
    assert_whole(&report, 0, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_answered_under_load_and_stop_reports_what_was_measured() {
    let mut site = site(1, 1, FleetLimits::default()).await;
    let _agents = site.enrol(1).await;
    site.run(&["w0"], &job(1, 1, fill())).await;
    site.prepare(&["w0"], &job(2, 1, load(0, 600))).await;
    site.fleet.start_all(2, &["w0"], LEAD).await.unwrap();
    site.event_where(|event| matches!(event, FleetEvent::Sample { .. }).then_some(())).await;
    let under_load = site.fleet.probe("w0").await.unwrap();
    assert!(under_load.rtt_ns < 500_000_000, "the fastest of a burst took {} ns", under_load.rtt_ns);
    site.fleet.stop("w0", 2).unwrap();
    let finished = site.collect(2, 1).await.remove("w0").unwrap().finished.unwrap();
    assert!(!finished.complete && finished.reason.is_some(), "{finished:?}");
    assert!(finished.disks[0].ops.read.count > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_aborted_job_says_nothing_more_and_frees_the_disks() {
    let mut site = site(1, 1, FleetLimits::default()).await;
    let _agents = site.enrol(1).await;
    site.run(&["w0"], &job(1, 1, fill())).await;
    site.prepare(&["w0"], &job(2, 1, load(0, 600))).await;
    site.fleet.start_all(2, &["w0"], LEAD).await.unwrap();
    site.event_where(|event| matches!(event, FleetEvent::Sample { .. }).then_some(())).await;
    site.fleet.abort("w0", 2).unwrap();
    let verified = site.run(&["w0"], &job(3, 1, verify(1))).await.remove("w0").unwrap();
    assert!(verified.samples.is_empty());
    assert!(verified.finished.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_comes_too_late_or_too_early_fails_and_says_by_how_much() {
    let mut site = site(1, 1, FleetLimits::default()).await;
    let _agents = site.enrol(1).await;
    let before = contents(&site.file(0, 0));
    for (number, shift, part) in [(1, -2_i64, "its start was 2"), (2, 3_600, "ahead; at most 600s")] {
        site.prepare(&["w0"], &job(number, 1, fill())).await;
        let now = site.fleet.probe("w0").await.unwrap();
        let start = now.to_worker_ns(now.at_ns).saturating_add_signed(shift * 1_000_000_000);
        // The worker's clock began after the orchestrator's; wait until two seconds ago exists on it.
        tokio::time::sleep(Duration::from_secs(2)).await;
        site.fleet.start_at("w0", number, start).unwrap();
        let failed = site.failed().await;
        assert!(failed.error.contains(part), "{failed:?}");
        site.fleet.ack_job("w0", number).unwrap();
    }
    assert_eq!(contents(&site.file(0, 0)), before);
}
