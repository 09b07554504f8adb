//! Cluster percentiles come from merged buckets: within one bucket width of the value of the same rank in the sorted list of all
//! I/Os of all workers, and not what an average of percentiles gives.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use analysis::case::CaseState;
use analysis::export::{Latency, Op};
use latency_histogram::{Latencies, bucket_width_ns};
use proptest::prelude::*;
use support::{FakeWorker, Io, SAMPLE_SECONDS, case, evaluate};
use worker_protocol::Rate;

const PERCENTS: [f64; 6] = [50.0, 90.0, 95.0, 99.0, 99.9, 99.99];

fn percentiles(latency: &Latency) -> [f64; 6] {
    [latency.p50, latency.p90, latency.p95, latency.p99, latency.p99_9, latency.p99_99]
}

/// Nearest rank: the smallest value with at least `percent` of all at or below it.
fn at_rank(sorted: &[u64], percent: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a small rank"
    )]
    let rank = ((percent / 100.0 * sorted.len() as f64 - 1e-9).ceil() as usize).clamp(1, sorted.len());
    sorted[rank - 1]
}

#[expect(clippy::cast_precision_loss, reason = "figures of a test are small")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn check(op: &Op, mut latencies: Vec<u64>) {
    latencies.sort_unstable();
    assert_eq!(op.count, latencies.len() as u64);
    let latency = op.latency_us.as_ref().unwrap();
    for (percent, got) in PERCENTS.into_iter().zip(percentiles(latency)) {
        let truth = at_rank(&latencies, percent);
        let width = micros(bucket_width_ns(truth));
        assert!((got - micros(truth)).abs() <= width, "p{percent}: {got} µs for {truth} ns, a bucket is {width} µs");
    }
    #[expect(clippy::cast_precision_loss, reason = "figures of a test are small")]
    let mean = micros(latencies.iter().sum::<u64>()) / latencies.len() as f64;
    assert!((latency.mean - mean).abs() <= mean * 1e-12, "mean {} for {mean}", latency.mean);
    assert_eq!(latency.min, micros(latencies[0]));
    assert_eq!(latency.max, micros(latencies[latencies.len() - 1]));
}

#[test]
fn a_hosts_percentiles_are_those_of_the_ios_of_its_workers_and_one_that_left_early_is_not_among_them() {
    let workers = [
        FakeWorker::new("w1", 1, 180_000, 900),
        FakeWorker::new("w2", 2, 2_500_000, 60),
        FakeWorker::new("w3", 3, 210_000, 700),
        FakeWorker::new("w4", 4, 210_000, 700),
    ];
    let mut input = case(&workers);
    for (worker, host) in input.workers.iter_mut().zip(["pve1", "pve1", "pve2", "pve2"]) {
        worker.host = Some(host.to_owned());
    }
    input.workers[3].failure = Some("it is gone".to_owned());
    let hosts = evaluate(&workers, input).figures.per_host;
    let named: Vec<_> = hosts.iter().map(|host| (host.host.as_deref(), host.placed, host.measured)).collect();
    assert_eq!(named, [(Some("pve1"), 2, 2), (Some("pve2"), 2, 1)]);
    for (host, of_host) in hosts.iter().zip([&workers[..2], &workers[2..3]]) {
        check(host.ops.all.as_ref().unwrap(), of_host.iter().flat_map(|worker| worker.latencies(|_| true)).collect());
        assert_eq!(host.window_seconds, f64::from(SAMPLE_SECONDS));
    }
    let local = evaluate(&workers, case(&workers)).figures;
    assert_eq!((local.per_host.len(), &local.per_host[0].host), (1, &None));
    assert_eq!(local.per_host[0].ops, local.ops, "one host is the cluster");
}

#[test]
fn cluster_percentiles_are_those_of_all_ios_together() {
    let workers = [
        FakeWorker::new("w1", 1, 180_000, 900),
        FakeWorker::new("w2", 2, 210_000, 700),
        FakeWorker::new("w3", 3, 2_500_000, 60),
    ];
    let result = evaluate(&workers, case(&workers));
    assert_eq!((result.state, &result.reason), (CaseState::Complete, &None));
    let all = workers.iter().flat_map(|worker| worker.latencies(|_| true)).collect();
    check(result.figures.ops.all.as_ref().unwrap(), all);
    for (worker, part) in workers.iter().zip(&result.figures.per_worker) {
        check(part.ops.all.as_ref().unwrap(), worker.latencies(|_| true));
    }
}

/// One worker does 99 % of the I/O and is quick, the other is slow: nine in ten I/Os of the cluster are quick, whatever the slow one's
/// median is.
#[test]
fn an_average_of_percentiles_is_not_the_clusters_percentile() {
    let fill = |name: &str, count: usize, latency_ns: u64| FakeWorker {
        name: name.into(),
        disks: 2,
        seconds: vec![vec![Io { disk: 0, write: false, latency_ns }; count]; SAMPLE_SECONDS as usize],
    };
    let workers = [fill("quick", 990, 100_000), fill("slow", 10, 50_000_000)];
    let result = evaluate(&workers, case(&workers));
    let p50 = |op: &Option<Op>| op.as_ref().unwrap().latency_us.as_ref().unwrap().p50;
    let cluster = p50(&result.figures.ops.read);
    let average = result.figures.per_worker.iter().map(|part| p50(&part.ops.read)).sum::<f64>() / 2.0;
    assert!((cluster - 100.0).abs() <= micros(bucket_width_ns(100_000)), "{cluster} µs");
    assert!((average - 25_050.0).abs() < 30.0, "{average} µs");
    check(result.figures.ops.read.as_ref().unwrap(), workers.iter().flat_map(|w| w.latencies(|_| true)).collect());
}

#[test]
fn service_times_are_merged_as_response_times_are() {
    let workers = [FakeWorker::new("w1", 8, 180_000, 400), FakeWorker::new("w2", 9, 2_500_000, 60)];
    let mut input = case(&workers);
    input.workers = workers.iter().map(FakeWorker::open_loop_input).collect();
    input.rate = Some(Rate { iops: 115.0, per_disk: true, poisson: false });
    let result = evaluate(&workers, input);
    let quarters = |worker: &FakeWorker| worker.latencies(|_| true).into_iter().map(|latency| latency / 4);
    let service = result.figures.service.unwrap();
    check(service.all.as_ref().unwrap(), workers.iter().flat_map(quarters).collect());
    check(result.figures.ops.all.as_ref().unwrap(), workers.iter().flat_map(|w| w.latencies(|_| true)).collect());
    for (worker, part) in workers.iter().zip(&result.figures.per_worker) {
        check(part.service.as_ref().unwrap().all.as_ref().unwrap(), quarters(worker).collect());
    }
}

#[test]
fn seconds_are_merged_over_the_workers() {
    let workers = [FakeWorker::new("w1", 5, 90_000, 300), FakeWorker::new("w2", 6, 700_000, 40)];
    let result = evaluate(&workers, case(&workers));
    assert_eq!(result.seconds.len(), SAMPLE_SECONDS as usize);
    for second in &result.seconds {
        let ios = workers.iter().flat_map(|worker| worker.seconds[second.t as usize].iter());
        let mut writes: Vec<u64> = ios.filter(|io| io.write).map(|io| io.latency_ns).collect();
        writes.sort_unstable();
        let write = second.write.as_ref().unwrap();
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let count = writes.len() as f64;
        assert_eq!(write.iops, count);
        assert_eq!(write.mib_per_s, count / 256.0);
        for (percent, got) in [(50.0, write.p50_us), (99.0, write.p99_us)] {
            let truth = at_rank(&writes, percent);
            assert!((got - micros(truth)).abs() <= micros(bucket_width_ns(truth)));
        }
        assert_eq!(write.max_us, micros(writes[writes.len() - 1]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn merged_percentiles_are_within_a_bucket(
        workers in prop::collection::vec(prop::collection::vec(1_u64..60_000_000_000, 0..200), 1..6),
        percent in 0.0_f64..=100.0,
    ) {
        let mut merged = Latencies::new();
        for worker in &workers {
            let mut latencies = Latencies::new();
            worker.iter().for_each(|&value| latencies.record(value));
            let sent = Latencies::decode(&latencies.encode(), latencies.exact()).unwrap();
            merged.merge(&sent);
        }
        let mut all = workers.concat();
        all.sort_unstable();
        prop_assert_eq!(merged.count(), all.len() as u64);
        if !all.is_empty() {
            let truth = at_rank(&all, percent);
            let got = merged.percentile_ns(percent).unwrap();
            prop_assert!(got.abs_diff(truth) <= bucket_width_ns(truth), "{} for {}", got, truth);
        }
    }
}
