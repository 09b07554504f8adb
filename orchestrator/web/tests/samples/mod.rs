//! Exports of runs that never happened but could have: a figure is consistent with its neighbours (bytes = count × block,
//! IOPS = count / seconds, Little's law), and the same call gives the same export.

use analysis::export::{
    Case, Device, DiskSettings, Event, Export, FORMAT, Fill, Generator, GeneratorFinding, GeneratorUse, HostLoad,
    HostSample, HotSpot, IoErrors, Latency, Op, Ops, Pacing, PerDisk, PerHost, PerWorker, Rate, RegionRange, Run,
    Second, SecondOp, Stall, SteadyState, StorageHealth, Unfinished, WorkerCount, WorkloadOptions,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// What a sample looks like.
pub(crate) struct Shape {
    pub(crate) workers: u32,
    pub(crate) disks: u32,
    /// Label, bytes, and how much slower than the first.
    pub(crate) footprints: Vec<(&'static str, u64, f64)>,
    pub(crate) precondition: u32,
    pub(crate) sample: u32,
    /// IOPS of a 4 KiB random read on the first footprint.
    pub(crate) speed: f64,
}

struct Workload {
    name: &'static str,
    block: u64,
    pattern: &'static str,
    read_percent: u32,
    /// Relative to 4 KiB random read.
    speed: f64,
}

const WORKLOADS: [Workload; 5] = [
    Workload { name: "4k-random-read", block: 4096, pattern: "random", read_percent: 100, speed: 1.0 },
    Workload { name: "4k-random-write", block: 4096, pattern: "random", read_percent: 0, speed: 0.3 },
    Workload { name: "8k-random-70-30", block: 8192, pattern: "random", read_percent: 70, speed: 0.5 },
    Workload { name: "32k-sequential-read", block: 32_768, pattern: "sequential", read_percent: 100, speed: 0.4 },
    Workload { name: "32k-sequential-write", block: 32_768, pattern: "sequential", read_percent: 0, speed: 0.15 },
];

/// The demo: two workers with two disks each, two footprints, a few seconds a case.
pub(crate) fn demo() -> Export {
    build(
        "demo",
        &Shape {
            workers: 2,
            disks: 2,
            footprints: vec![("256MiB", 256 << 20, 1.0), ("1GiB", 1 << 30, 1.35)],
            precondition: 2,
            sample: 5,
            speed: 48_000.0,
        },
    )
}

/// The published plan: 16 workers with 10 disks each, three footprints, 30 + 60 minutes a case.
pub(crate) fn published() -> Export {
    build(
        "Published four corners, 16 × 10",
        &Shape {
            workers: 16,
            disks: 10,
            footprints: vec![
                ("1.6TB", 1_600_000_000_000, 1.0),
                ("8TB", 8_000_000_000_000, 1.5),
                ("16TB", 16_000_000_000_000, 2.6),
            ],
            precondition: 1800,
            sample: 3600,
            speed: 227_241.6,
        },
    )
}

/// Half an hour a case on four workers; a worker was lost in one case, some I/Os failed, the file system has no O_DIRECT.
pub(crate) fn incomplete() -> Export {
    let shape = Shape {
        workers: 4,
        disks: 2,
        footprints: vec![("64GiB", 64 << 30, 1.0), ("512GiB", 512 << 30, 1.8)],
        precondition: 60,
        sample: 240,
        speed: 91_000.0,
    };
    let mut export = build("lab-42 acceptance", &shape);
    export.run.complete = false;
    export.run.reason = Some("1 of 10 cases is incomplete: 8k-random-70-30 on 512GiB".to_owned());
    export.run.warnings = vec![
        "The file system of /srv/disks has no O_DIRECT: reads and writes go through this machine's page cache."
            .to_owned(),
    ];
    export.run.events.insert(2, event(export.run.started, 900, "error", "worker-3 is lost: no message for 10 s"));
    lose_a_worker(&mut export.cases[7]);
    export.cases[8].steady_state = Some(SteadyState {
        verdict: "not-achieved".to_owned(),
        reason: Some("the rounds range over 31.0 % of their mean; at most 20 % is steady".to_owned()),
        range_percent: Some(31.0),
        ..steady(shape.precondition, 20_000.0)
    });
    let failed = &mut export.cases[6];
    for op in [&mut failed.ops.write, &mut failed.ops.all].into_iter().flatten() {
        op.errors = 37;
    }
    let disk = &mut failed.per_disk[0];
    disk.io_errors = vec![IoErrors { kind: "EIO".to_owned(), count: 37, first_offsets: vec![8192, 1_048_576] }];
    disk.stalls =
        vec![Stall { start_seconds: -3.5, length_seconds: 1.5 }, Stall { start_seconds: 20.0, length_seconds: 2.25 }];
    let writes = disk.ops.write.as_ref().map_or(0, |op| op.count);
    disk.device =
        Some(Device { reads: 0, read_merges: 0, writes: writes / 4, write_merges: writes - writes / 4, differs: true });
    // Agrees, so it is no incident.
    failed.per_disk[1].device = Some(Device { reads: 0, read_merges: 0, writes, write_merges: 0, differs: false });
    failed.hosts = host_samples();
    failed.per_host = ["pve1", "pve2"].map(|host| per_host(Some(host), 2, &failed.ops, failed.window_seconds)).into();
    failed.generator = Some(Generator {
        may_limit: true,
        findings: vec![GeneratorFinding {
            worker: "worker-2".to_owned(),
            kind: "thread-cpu".to_owned(),
            thread: Some(0),
            value: 0.97,
        }],
    });
    failed.per_worker[1].generator = Some(GeneratorUse { thread_cpu: vec![0.97], io_wq_cpu: 0.25, steal: Some(0.021) });
    failed.warnings = vec!["worker-1: disk fc-0101 answered 37 writes with an I/O error (EIO).".to_owned()];
    export
}

fn lose_a_worker(case: &mut Case) {
    case.state = "incomplete".to_owned();
    case.reason = Some("worker-3 was lost 171 s after the start of the sample".to_owned());
    case.workers.measured = 3;
    case.window_seconds = 171.0;
    case.seconds.retain(|second| second.t < 171 && !(80..86).contains(&second.t));
    case.precondition_seconds.retain(|second| second.t != 30 && second.t != 32);
    case.per_worker[2].window_seconds = 171.0;
    for disk in case.per_disk.iter_mut().filter(|disk| disk.worker == "worker-3") {
        disk.window_seconds = 171.0;
    }
}

/// Cancelled in its fourth case: that one has only preconditioning, and the rest never began.
pub(crate) fn cancelled() -> Export {
    let mut export = demo();
    export.run.name = "friday rehearsal".to_owned();
    export.run.state = "cancelled".to_owned();
    export.run.complete = false;
    export.run.reason = Some("cancelled by the operator (Ctrl-C)".to_owned());
    export.cases.truncate(4);
    let last = &mut export.cases[3];
    last.state = "cancelled".to_owned();
    last.reason = Some("cancelled while preconditioning".to_owned());
    last.ops = Ops::default();
    last.seconds.clear();
    last.per_disk.clear();
    last.per_worker.clear();
    last.window_seconds = 0.0;
    last.start_skew_us = None;
    last.clock_drift_us = None;
    last.unfinished = Unfinished { count: 0, oldest_us: None };
    last.workers.measured = 0;
    last.steady_state = None;
    export
}

/// A plan at its smallest.
pub(crate) fn rehearsal() -> Export {
    let mut export = demo();
    export.run.name = "Rehearsal of demo".to_owned();
    export.run.rehearsal = true;
    export.run.plan["rehearsal"] = json!(true);
    export.run.note = "Tried on the morning before,\nwith two workers.".to_owned();
    export.run.warnings = vec!["This is a rehearsal: its figures are no result.".to_owned()];
    export
}

/// Still in its third case.
pub(crate) fn running() -> Export {
    let mut export = demo();
    export.run.state = "sampling".to_owned();
    export.run.complete = false;
    export.run.finished = None;
    export.cases.truncate(3);
    let last = &mut export.cases[2];
    last.state = "running".to_owned();
    last.finished = None;
    last.seconds.truncate(2);
    export
}

/// Nothing was filled, and the plan allows to read what was never written.
pub(crate) fn read_unwritten() -> Export {
    let mut export = demo();
    export.run.plan["initialise"] = json!("none");
    export.run.plan["read_unwritten"] = json!(true);
    for case in &mut export.cases {
        case.fill = None;
    }
    export
}

/// A run that failed before its first case.
pub(crate) fn empty() -> Export {
    let mut export = demo();
    export.run.state = "failed".to_owned();
    export.run.complete = false;
    export.run.reason = Some("2 of 2 workers did not report within 60 s".to_owned());
    export.run.plan = serde_json::Value::Null;
    export.run.plan_yaml = String::new();
    export.run.environment = serde_json::Value::Null;
    export.run.events.clear();
    export.cases.clear();
    export
}

/// Text that must stay text wherever it is shown.
pub(crate) const HOSTILE: &str = "</script><script>window.pwned=1</script>\"'><img src=x onerror=window.pwned=1>&amp;";

/// Every text of the export is hostile.
pub(crate) fn hostile() -> Export {
    let mut export = incomplete();
    let bad = |prefix: &str| format!("{prefix}{HOSTILE}");
    export.run.name = bad("name ");
    export.run.id = bad("id ");
    export.run.state = bad("state ");
    export.run.reason = Some(bad("reason "));
    export.run.plan_yaml = bad("yaml ");
    export.run.environment = json!({ bad("key "): bad("value "), "list": [bad("item ")], "hostname": bad("host "),
        "workers": [{"name": bad("enrolled "), "engine": {"granted": [bad("granted ")], "refused": [bad("refused ")],
            "clock_source": bad("clock "), "disks": [{"serial": bad("serial "), "kind": bad("kind "), "scheduler": bad("scheduler ")}]}}] });
    export.run.warnings = vec![bad("warning ")];
    export.run.note = bad("note ");
    export.run.plan["target"]["provider"] = json!(bad("provider "));
    export.run.plan["footprints"] = json!([{"bytes": 1, "label": bad("planned footprint ")}]);
    export.run.plan["workloads"] = json!([{"name": bad("planned workload ")}]);
    for event in &mut export.run.events {
        event.level = bad("level ");
        event.message = bad("event ");
    }
    for case in &mut export.cases {
        case.footprint = bad(&format!("{} ", case.footprint));
        case.workload = bad(&format!("{} ", case.workload));
        case.pattern = bad("pattern ");
        case.state = bad("state ");
        case.reason = Some(bad("reason "));
        case.warnings = vec![bad("case warning ")];
        for sample in &mut case.hosts {
            sample.hosts.iter_mut().for_each(|load| load.host = bad("node "));
            if let Some(health) = &mut sample.storage {
                (health.status, health.checks) = (bad("health "), vec![bad("check ")]);
            }
        }
        let options = case.options.as_mut().expect("a sample has options");
        options.on_error = bad("policy ");
        options.rate = Some(Rate { iops: 1.0, per: bad("per "), poisson: false });
        for part in &mut case.per_host {
            part.host = Some(bad("placed on "));
        }
        for part in &mut case.per_worker {
            part.worker = bad("worker ");
        }
        for part in &mut case.per_disk {
            part.worker = bad("worker ");
            part.disk = bad("disk ");
            part.io_errors = vec![IoErrors { kind: bad("error kind "), count: 1, first_offsets: Vec::new() }];
        }
    }
    export
}

/// A complete run of the five workloads on each footprint.
pub(crate) fn build(name: &str, shape: &Shape) -> Export {
    let started: Timestamp = "2026-11-30T08:15:00Z".parse().expect("a time");
    let case_seconds = i64::from(shape.precondition + shape.sample);
    let mut at = 30;
    let mut cases = Vec::new();
    let mut filled = 0;
    for (label, bytes, slower) in &shape.footprints {
        let region = bytes / u64::from(shape.workers * shape.disks) / (1 << 20) * (1 << 20);
        let effective = region * u64::from(shape.workers * shape.disks);
        let new = effective - filled;
        filled = effective;
        let fill_seconds = new as f64 / (shape.speed * 32_768.0 * 0.25);
        at += whole(fill_seconds.ceil()).cast_signed() + 5;
        for (index, workload) in WORKLOADS.iter().enumerate() {
            let mut random = Random(bytes ^ ((index as u64 + 1) * 7919));
            let mut case = case(shape, workload, *slower, &mut random);
            case.footprint = (*label).to_owned();
            case.footprint_bytes = *bytes;
            case.effective_bytes = effective;
            case.region_bytes = region;
            case.fill = Some(Fill {
                bytes: new,
                seconds: fill_seconds,
                verified_blocks: 1000 * u64::from(shape.workers * shape.disks),
            });
            case.started = Some(started + SignedDuration::from_secs(at));
            at += case_seconds;
            case.finished = Some(started + SignedDuration::from_secs(at));
            at += 2;
            cases.push(case);
        }
    }
    Export {
        format: FORMAT.to_owned(),
        run: Run {
            id: "0199c2a4-5b6e-7d10-9f3a-2c1d4e5f6a7b".to_owned(),
            name: name.to_owned(),
            state: "done".to_owned(),
            complete: true,
            reason: None,
            ended_early: None,
            started,
            finished: Some(started + SignedDuration::from_secs(at + 3)),
            rehearsal: false,
            note: String::new(),
            plan: plan(name, shape),
            plan_yaml: plan_yaml(name, shape),
            environment: environment(),
            warnings: Vec::new(),
            events: vec![
                event(started, 0, "info", "run started"),
                event(started, 4, "info", "all workers are enrolled"),
                event(started, at + 3, "info", "run ended"),
            ],
        },
        cases,
    }
}

fn event(started: Timestamp, after: i64, level: &str, message: &str) -> Event {
    Event { at: started + SignedDuration::from_secs(after), level: level.to_owned(), message: message.to_owned() }
}

fn plan(name: &str, shape: &Shape) -> serde_json::Value {
    let footprints: Vec<_> =
        shape.footprints.iter().map(|(label, bytes, _)| json!({"bytes": bytes, "label": label})).collect();
    let workloads: Vec<_> =
        WORKLOADS.iter().map(|workload| json!({"name": workload.name, "block_bytes": workload.block})).collect();
    json!({
        "name": name, "target": {"provider": "local", "disk_dir": null},
        "workers": {"count": shape.workers, "vcpus": 1, "memory_bytes": 1 << 30, "disks": shape.disks},
        "footprints": footprints, "initialise": "full-write", "settle_seconds": 0,
        "precondition_seconds": shape.precondition, "sample_seconds": shape.sample,
        "workloads": workloads, "deploy": "once", "on_worker_loss": "continue", "read_unwritten": false, "seed": 42
    })
}

fn plan_yaml(name: &str, shape: &Shape) -> String {
    let labels: Vec<&str> = shape.footprints.iter().map(|(label, _, _)| *label).collect();
    format!(
        "name: {name}\ntarget:\n  provider: local\nworkers:\n  count: {}\n  disks: {}\nfootprints: [{}]\n# every new byte is written before it is read\ninitialise: full-write\nprecondition: {}s\nsample: {}s\nworkloads:\n  - published/4k-random-read\n  - published/4k-random-write\n  - published/8k-random-70-30\n  - published/32k-sequential-read\n  - published/32k-sequential-write\non_worker_loss: continue\n",
        shape.workers,
        shape.disks,
        labels.join(", "),
        shape.precondition,
        shape.sample
    )
}

/// A workload that says nothing of its options.
fn options() -> WorkloadOptions {
    WorkloadOptions {
        streams: None,
        hot_spot: None,
        range: None,
        align_bytes: None,
        rate: None,
        compression_ratio: 1.0,
        duplication_ratio: 1.0,
        flush_every_writes: None,
        on_error: "stop".to_owned(),
        stall_seconds: 1,
    }
}

fn disk_settings() -> DiskSettings {
    DiskSettings {
        path: "/dev/sdb".to_owned(),
        kind: Some("block".to_owned()),
        threads: 1,
        direct: true,
        scheduler: Some("none".to_owned()),
        nomerges: Some(2),
        nr_requests: Some(256),
        max_sectors_kb: Some(1280),
        poll_queues: None,
    }
}

/// The demo's 4k-random-read as an open loop with every option, the 8K mix with some; the rest is a closed loop.
pub(crate) fn open_loop() -> Export {
    let mut export = demo();
    for case in export.cases.iter_mut().filter(|case| case.workload == "4k-random-read") {
        open(case, Rate { iops: 12_500.0, per: "disk".to_owned(), poisson: true });
        let options = case.options.as_mut().expect("a sample has options");
        options.hot_spot = Some(HotSpot { io_percent: 90.0, space_percent: 10.0 });
        options.range = Some(RegionRange { from_percent: 0.0, to_percent: 50.0 });
        options.align_bytes = Some(512);
        options.on_error = "stop-after-100".to_owned();
        options.stall_seconds = 5;
        case.pattern = "hot-spot".to_owned();
    }
    for case in export.cases.iter_mut().filter(|case| case.workload == "8k-random-70-30") {
        open(case, Rate { iops: 6_000.0, per: "worker".to_owned(), poisson: false });
        let options = case.options.as_mut().expect("a sample has options");
        options.compression_ratio = 2.0;
        options.duplication_ratio = 1.5;
        options.flush_every_writes = Some(1000);
    }
    export
}

/// Every case of the demo as an open loop.
pub(crate) fn all_open() -> Export {
    let mut export = demo();
    export.cases.iter_mut().for_each(|case| open(case, Rate { iops: 100.0, per: "disk".to_owned(), poisson: false }));
    export
}

/// Makes a case an open loop whose service times are a tenth of its response times.
fn open(case: &mut Case, rate: Rate) {
    let asked_iops = if rate.per == "disk" { rate.iops * 4.0 } else { rate.iops * 2.0 };
    let intended = whole(asked_iops * case.window_seconds);
    case.pacing = Some(Pacing { asked_iops, intended, late: 1_200, missed: 7, largest_lag_us: 3_400.0 });
    case.options.get_or_insert_with(options).rate = Some(rate);
    let mut service = case.ops.clone();
    for op in [&mut service.read, &mut service.write, &mut service.all].into_iter().flatten() {
        let latency = op.latency_us.as_mut().expect("a sample has latencies");
        for figure in [&mut latency.mean, &mut latency.p50, &mut latency.p95, &mut latency.p99, &mut latency.p99_9] {
            *figure /= 10.0;
        }
    }
    case.service = Some(service);
}

fn environment() -> serde_json::Value {
    json!({
        "fourcorners": "0.1.0", "hostname": "poc-orchestrator", "kernel": "6.1.0-31-amd64", "cpus": 2, "memory_bytes": 8_329_310_208u64,
        "seed": 42,
        "workers": [
            {"name": "worker-1", "kernel": "6.1.0-31-amd64", "engine": engine("fc-0101")},
            {"name": "worker-2", "kernel": "6.1.0-31-amd64", "engine": engine("fc-0201")}
        ]
    })
}

fn engine(serial: &str) -> serde_json::Value {
    json!({
        "threads": 2, "granted": ["SINGLE_ISSUER", "DEFER_TASKRUN"], "refused": ["NO_SQARRAY: Invalid argument (os error 22)"],
        "clock_source": "tsc", "memlock_bytes": 65_536, "buffer_bytes": 4_194_304, "warnings": [],
        "disks": [{"serial": serial, "path": "/dev/sdb", "kind": "block", "threads": 1, "direct": true, "scheduler": "none",
            "nomerges": 2, "nr_requests": 256, "max_sectors_kb": 1280, "poll_queues": null}]
    })
}

fn case(shape: &Shape, workload: &Workload, slower: f64, random: &mut Random) -> Case {
    let iops = shape.speed * workload.speed / slower;
    let window = f64::from(shape.sample);
    let outstanding = f64::from(shape.workers * shape.disks * 2);
    let ops = ops(iops, window, workload, outstanding, random);
    let per_host = vec![per_host(None, shape.workers, &ops, window)];
    let mut per_worker = Vec::new();
    let mut per_disk = Vec::new();
    for worker in 1..=shape.workers {
        let share = random.around(1.0, 0.08) / f64::from(shape.workers);
        let name = format!("worker-{worker}");
        let of_worker = self::ops(iops * share, window, workload, outstanding / f64::from(shape.workers), random);
        per_worker.push(PerWorker {
            worker: name.clone(),
            window_seconds: window,
            ops: of_worker,
            service: None,
            pacing: None,
            generator: Some(GeneratorUse { thread_cpu: vec![0.31], io_wq_cpu: 0.0, steal: None }),
        });
        for disk in 1..=shape.disks {
            let share = share * random.around(1.0, 0.15) / f64::from(shape.disks);
            let of_disk = self::ops(iops * share, window, workload, 2.0, random);
            per_disk.push(PerDisk {
                worker: name.clone(),
                disk: format!("fc-{worker:02}{disk:02}"),
                window_seconds: window,
                ops: of_disk,
                service: None,
                pacing: None,
                unfinished: Unfinished { count: 2, oldest_us: Some(900.0) },
                flushes: 0,
                io_errors: Vec::new(),
                stalls: Vec::new(),
                device: None,
                settings: Some(disk_settings()),
            });
        }
    }
    Case {
        footprint_bytes: 0,
        footprint: String::new(),
        effective_bytes: 0,
        region_bytes: 0,
        workload: workload.name.to_owned(),
        block_bytes: workload.block,
        pattern: workload.pattern.to_owned(),
        read_percent: workload.read_percent,
        outstanding_per_disk: 2,
        options: Some(options()),
        state: "complete".to_owned(),
        reason: None,
        started: None,
        finished: None,
        fill: None,
        workers: WorkerCount { expected: shape.workers, measured: shape.workers },
        window_seconds: window,
        start_skew_us: Some(random.around(180.0, 0.5)),
        clock_drift_us: Some(random.around(12.0, 0.5)),
        unfinished: Unfinished {
            count: u64::from(shape.workers * shape.disks * 2),
            oldest_us: Some(random.around(2_400.0, 0.4)),
        },
        seconds: seconds(shape.sample, iops, workload, outstanding, 1.0, random),
        precondition_seconds: seconds(shape.precondition, iops, workload, outstanding, 0.8, random),
        steady_state: Some(steady(shape.precondition, iops)),
        ops,
        service: None,
        pacing: None,
        generator: Some(Generator::default()),
        per_worker,
        per_disk,
        per_host,
        hosts: Vec::new(),
        warnings: Vec::new(),
    }
}

fn per_host(host: Option<&str>, workers: u32, ops: &Ops, window_seconds: f64) -> PerHost {
    let host = host.map(str::to_owned);
    PerHost { host, placed: workers, measured: workers, window_seconds, ops: ops.clone() }
}

/// Ten seconds apart from 20 s before the window: at rest, then a degraded pool that recovers.
fn host_samples() -> Vec<HostSample> {
    let load = |host: &str, cpu: f64, pressure: Option<f64>| HostLoad {
        host: host.to_owned(),
        cpu_percent: Some(cpu),
        memory_used_bytes: Some(24 << 30),
        memory_bytes: Some(64 << 30),
        io_pressure_percent: pressure,
        io_wait_percent: None,
    };
    let sample = |number: u32| {
        let degraded = (3..6).contains(&number);
        HostSample {
            t: f64::from(number) * 10.0 - 20.0,
            hosts: vec![load("pve1", 20.0 + f64::from(number), Some(f64::from(number))), load("pve2", 5.0, None)],
            storage: Some(StorageHealth {
                status: if degraded { "HEALTH_WARN" } else { "HEALTH_OK" }.to_owned(),
                checks: if degraded { vec!["PG_DEGRADED".to_owned()] } else { Vec::new() },
                recovery_bytes_per_second: if degraded { u64::from(number) << 20 } else { 0 },
                displaced_percent: if degraded { 12.5 } else { 0.0 },
                scrubbing: 0,
            }),
        }
    };
    (0..8).map(sample).collect()
}

/// Rounds that rise by 2 % each; too short a preconditioning has none.
fn steady(precondition: u32, iops: f64) -> SteadyState {
    let evaluated = precondition >= 50;
    let round_iops: Vec<f64> =
        if evaluated { [0.96, 0.98, 1.0, 1.02, 1.04].map(|share| share * iops).to_vec() } else { Vec::new() };
    SteadyState {
        verdict: if evaluated { "achieved" } else { "not-evaluated" }.to_owned(),
        reason: (!evaluated).then(|| "preconditioning is shorter than five rounds of 10 s".to_owned()),
        round_seconds: (precondition / 10).max(10),
        mean_iops: evaluated.then_some(iops),
        range_percent: evaluated.then_some(8.0),
        excursion_percent: evaluated.then_some(8.0),
        round_iops,
    }
}

fn ops(iops: f64, window: f64, workload: &Workload, outstanding: f64, random: &mut Random) -> Ops {
    let reads = f64::from(workload.read_percent) / 100.0;
    let mut part = |share: f64, slower: f64| {
        (share > 0.0).then(|| op(iops * share, window, workload.block, outstanding / iops * 1e6 * slower, random))
    };
    let skew = if reads > 0.0 && reads < 1.0 { 0.1 } else { 0.0 };
    let (read, write) = (part(reads, 1.0 - skew), part(1.0 - reads, 1.0 + skew * reads / (1.0 - reads).max(0.01)));
    let all = part(1.0, 1.0);
    Ops { read, write, all }
}

fn op(iops: f64, window: f64, block: u64, mean_us: f64, random: &mut Random) -> Op {
    let count = whole(iops * window);
    let bytes = count * block;
    let at = |factor: f64, random: &mut Random| mean_us * random.around(factor, 0.06);
    let p50 = at(0.85, random);
    Op {
        count,
        bytes,
        iops: count as f64 / window,
        mib_per_s: bytes as f64 / window / f64::from(1u32 << 20),
        errors: 0,
        over_range: 0,
        latency_us: Some(Latency {
            mean: mean_us,
            min: mean_us * 0.2,
            p50,
            p90: at(1.6, random),
            p95: at(2.1, random),
            p99: at(4.2, random),
            p99_9: at(11.0, random),
            p99_99: at(30.0, random),
            max: at(70.0, random),
        }),
    }
}

fn seconds(
    count: u32,
    iops: f64,
    workload: &Workload,
    outstanding: f64,
    warm: f64,
    random: &mut Random,
) -> Vec<Second> {
    let reads = f64::from(workload.read_percent) / 100.0;
    let mib = workload.block as f64 / f64::from(1u32 << 20);
    let mean = outstanding / iops * 1e6;
    (0..count)
        .map(|t| {
            let ramp = warm + (1.0 - warm) * f64::from(t) / f64::from(count.max(1));
            let dip = if t % 617 == 400 { 0.45 } else { 1.0 };
            let rate = iops * ramp * dip * random.around(1.0, 0.04);
            let stretch = iops / rate;
            let mut part = |share: f64| {
                (share > 0.0).then(|| SecondOp {
                    iops: (rate * share).round(),
                    mib_per_s: rate * share * mib,
                    mean_us: mean * stretch,
                    p50_us: mean * stretch * random.around(0.85, 0.05),
                    p99_us: mean * stretch * random.around(4.2, 0.15),
                    max_us: mean * stretch * random.around(20.0, 0.6),
                })
            };
            Second { t, read: part(reads), write: part(1.0 - reads) }
        })
        .collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "samples are positive and small")]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// xorshift64*: the same numbers in each run.
struct Random(u64);

impl Random {
    /// Uniform in centre × (1 ± spread).
    fn around(&mut self, centre: f64, spread: f64) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let unit = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64;
        centre * (1.0 + spread * (2.0 * unit - 1.0))
    }
}
