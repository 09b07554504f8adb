//! docs/export.md names every field of the export, and no field is there that it does not name.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;

use analysis::export::{
    Case, Device, DiskSettings, Event, Export, FORMAT, Fill, Generator, GeneratorFinding, GeneratorUse, HostLoad,
    HostSample, HotSpot, IoErrors, Latency, Op, Ops, Pacing, PerDisk, PerHost, PerWorker, Rate, RegionRange, Run,
    Second, SecondOp, Stall, SteadyState, StorageHealth, Unfinished, WorkerCount, WorkloadOptions,
};
use serde_json::{Value, json};

fn export() -> Export {
    let time: jiff::Timestamp = "2026-03-01T10:00:02.25Z".parse().unwrap();
    let latency =
        Latency { mean: 1.5, min: 1.0, p50: 1.0, p90: 2.0, p95: 2.0, p99: 2.0, p99_9: 2.0, p99_99: 2.0, max: 2.0 };
    let op = Op {
        count: 2,
        bytes: 8192,
        iops: 2.0,
        mib_per_s: 0.0078125,
        errors: 0,
        over_range: 0,
        latency_us: Some(latency),
    };
    let ops = || Ops { read: Some(op.clone()), write: None, all: Some(op.clone()) };
    let second_op = SecondOp { iops: 2.0, mib_per_s: 0.0078125, mean_us: 1.5, p50_us: 1.0, p99_us: 2.0, max_us: 2.0 };
    let seconds = || vec![Second { t: 0, read: Some(second_op.clone()), write: None }];
    let finding = GeneratorFinding { worker: "w1".into(), kind: "thread-cpu".into(), thread: Some(0), value: 0.95 };
    let case = Case {
        footprint_bytes: 1 << 20,
        footprint: "1MiB".into(),
        effective_bytes: 1 << 20,
        region_bytes: 1 << 20,
        workload: "4k-random-read".into(),
        block_bytes: 4096,
        pattern: "random".into(),
        read_percent: 100,
        outstanding_per_disk: 2,
        options: Some(options()),
        state: "complete".into(),
        reason: None,
        started: Some(time),
        finished: Some(time),
        fill: Some(Fill { bytes: 1 << 20, seconds: 0.5, verified_blocks: 1 }),
        workers: WorkerCount { expected: 1, measured: 1 },
        window_seconds: 1.0,
        start_skew_us: Some(0.0),
        clock_drift_us: None,
        unfinished: Unfinished { count: 0, oldest_us: None },
        ops: ops(),
        service: Some(ops()),
        pacing: Some(PACING),
        generator: Some(Generator { may_limit: true, findings: vec![finding] }),
        seconds: seconds(),
        precondition_seconds: seconds(),
        steady_state: Some(SteadyState {
            verdict: "not-evaluated".into(),
            reason: None,
            round_seconds: 10,
            round_iops: Vec::new(),
            mean_iops: None,
            range_percent: None,
            excursion_percent: None,
        }),
        per_worker: vec![PerWorker {
            worker: "w1".into(),
            window_seconds: 1.0,
            ops: ops(),
            service: Some(ops()),
            pacing: Some(PACING),
            generator: Some(GeneratorUse { thread_cpu: vec![0.95], io_wq_cpu: 0.0, steal: Some(0.0) }),
        }],
        per_disk: vec![per_disk(ops())],
        per_host: vec![PerHost { host: Some("pve1".into()), placed: 1, measured: 1, window_seconds: 1.0, ops: ops() }],
        hosts: vec![host_sample()],
        warnings: Vec::new(),
    };
    let run = Run {
        id: "0195".into(),
        name: "one".into(),
        state: "done".into(),
        complete: true,
        reason: None,
        ended_early: None,
        started: time,
        finished: None,
        rehearsal: false,
        note: "a <note>".into(),
        plan: json!({}),
        plan_yaml: String::new(),
        environment: json!({}),
        warnings: Vec::new(),
        events: vec![Event { at: time, level: "info".into(), message: "started".into() }],
    };
    Export { format: FORMAT.into(), run, cases: vec![case] }
}

const PACING: Pacing = Pacing { asked_iops: 2.0, intended: 2, late: 0, missed: 0, largest_lag_us: 3.0 };

fn options() -> WorkloadOptions {
    WorkloadOptions {
        streams: Some(4),
        hot_spot: Some(HotSpot { io_percent: 90.0, space_percent: 10.0 }),
        range: Some(RegionRange { from_percent: 0.0, to_percent: 50.0 }),
        align_bytes: Some(512),
        rate: Some(Rate { iops: 2.0, per: "disk".into(), poisson: false }),
        compression_ratio: 1.0,
        duplication_ratio: 1.0,
        flush_every_writes: None,
        on_error: "stop".into(),
        stall_seconds: 1,
    }
}

fn host_sample() -> HostSample {
    let host = HostLoad {
        host: "pve1".into(),
        cpu_percent: Some(12.5),
        memory_used_bytes: Some(1 << 30),
        memory_bytes: Some(2 << 30),
        io_pressure_percent: Some(0.5),
        io_wait_percent: None,
    };
    let storage = StorageHealth {
        status: "HEALTH_OK".into(),
        checks: Vec::new(),
        recovery_bytes_per_second: 0,
        displaced_percent: 0.0,
        scrubbing: 1,
    };
    HostSample { t: -1.5, hosts: vec![host], storage: Some(storage) }
}

fn per_disk(ops: Ops) -> PerDisk {
    PerDisk {
        worker: "w1".into(),
        disk: "d1".into(),
        window_seconds: 1.0,
        ops: ops.clone(),
        service: Some(ops),
        pacing: Some(PACING),
        unfinished: Unfinished { count: 1, oldest_us: Some(1.0) },
        flushes: 0,
        io_errors: vec![IoErrors { kind: "EIO".into(), count: 1, first_offsets: vec![0] }],
        stalls: vec![Stall { start_seconds: 0.5, length_seconds: 2.0 }],
        device: Some(Device { reads: 2, read_merges: 0, writes: 0, write_merges: 0, differs: false }),
        settings: Some(DiskSettings {
            path: "/dev/sdb".into(),
            kind: Some("block".into()),
            threads: 1,
            direct: true,
            scheduler: Some("none".into()),
            nomerges: Some(2),
            nr_requests: Some(256),
            max_sectors_kb: Some(1280),
            poll_queues: None,
        }),
    }
}

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found.insert(name.clone());
            names(value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

#[test]
fn the_documentation_names_every_field() {
    let documentation = include_str!("../../../docs/export.md");
    let mut found = BTreeSet::new();
    names(&serde_json::to_value(export()).unwrap(), &mut found);
    assert!(found.len() > 60, "{} names", found.len());
    let missing: Vec<&String> = found.iter().filter(|name| !documentation.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/export.md does not name {missing:?}");
    assert!(documentation.contains(FORMAT));
}

/// The shape as the contract's first version has it: an operation without I/O is null, times are UTC.
#[test]
fn the_shape_is_the_contracts() {
    let value = serde_json::to_value(export()).unwrap();
    let case = &value["cases"][0];
    assert_eq!(value["format"], "fourcorners/1");
    assert_eq!(case["started"], "2026-03-01T10:00:02.25Z");
    assert_eq!(case["ops"]["write"], Value::Null);
    assert_eq!(case["ops"]["read"]["latency_us"]["p99_99"], 2.0);
    assert_eq!(
        case["seconds"][0],
        json!({ "t": 0, "read": { "iops": 2.0, "mib_per_s": 0.0078125, "mean_us": 1.5,
        "p50_us": 1.0, "p99_us": 2.0, "max_us": 2.0 }, "write": null })
    );
    assert_eq!(case["per_disk"][0]["disk"], "d1");
    let read: Export = serde_json::from_value(value).unwrap();
    assert_eq!(read, export());
}

/// What was written before these fields were added is still read.
#[test]
fn fields_may_be_added() {
    let mut value = serde_json::to_value(export()).unwrap();
    let case = value["cases"][0].as_object_mut().unwrap();
    for added in ["steady_state", "options", "service", "pacing", "generator", "hosts", "per_host"] {
        case.remove(added).unwrap();
    }
    case.insert("of_a_later_program".into(), json!(1));
    for part in ["per_worker", "per_disk"] {
        let first = ["worker", "disk", "window_seconds", "ops"];
        case[part][0].as_object_mut().unwrap().retain(|name, _| first.contains(&name.as_str()));
    }
    for added in ["rehearsal", "note"] {
        value["run"].as_object_mut().unwrap().remove(added).unwrap();
    }
    let read: Export = serde_json::from_value(value).unwrap();
    assert_eq!((read.run.rehearsal, read.run.note.as_str(), read.cases[0].per_host.len()), (false, "", 0));
    assert_eq!((&read.cases[0].steady_state, &read.cases[0].options), (&None, &None));
    assert_eq!((read.cases[0].per_disk[0].flushes, &read.cases[0].per_disk[0].settings), (0, &None));
}
