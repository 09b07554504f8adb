//! docs/export.md names every field of the export, and no field is there that it does not name.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::collections::BTreeSet;

use analysis::export::{
    Case, Event, Export, FORMAT, Fill, Latency, Op, Ops, PerDisk, PerWorker, Run, Second, SecondOp, SteadyState,
    Unfinished, WorkerCount,
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
        per_worker: vec![PerWorker { worker: "w1".into(), window_seconds: 1.0, ops: ops() }],
        per_disk: vec![PerDisk { worker: "w1".into(), disk: "d1".into(), window_seconds: 1.0, ops: ops() }],
        warnings: Vec::new(),
    };
    let run = Run {
        id: "0195".into(),
        name: "one".into(),
        state: "done".into(),
        complete: true,
        reason: None,
        started: time,
        finished: None,
        plan: json!({}),
        plan_yaml: String::new(),
        environment: json!({}),
        warnings: Vec::new(),
        events: vec![Event { at: time, level: "info".into(), message: "started".into() }],
    };
    Export { format: FORMAT.into(), run, cases: vec![case] }
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

/// What was written before `steady_state` was added is still read.
#[test]
fn fields_may_be_added() {
    let mut value = serde_json::to_value(export()).unwrap();
    let case = value["cases"][0].as_object_mut().unwrap();
    case.remove("steady_state");
    case.insert("of_a_later_program".into(), json!(1));
    let read: Export = serde_json::from_value(value).unwrap();
    assert_eq!(read.cases[0].steady_state, None);
}
