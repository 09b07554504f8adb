//! A store as full as it gets: many runs, a long one, and one that goes on.

use std::collections::BTreeMap;

use analysis::case::{CaseFigures, CaseResult, CaseState};
use analysis::export::{Case, Event, Export, Second, SecondOp};
use jiff::{SignedDuration, Timestamp};
use plan::{FillRate, Profiles, TestPlan};
use serde_json::json;
use sqlx::Connection as _;
use store::{CaseId, CaseWindow, CaseWorker, Level, NewCase, NewRun, NewWorker, RunEnd, RunId, RunState, Store};
use uuid::Uuid;
use web::{Beat, CaseSecond, DiskBeat, Hub, LiveProgress, SoFar};
use worker_protocol::{Hello, Ops};

use crate::samples::{self, Shape};

/// Runs of a year.
const SMALL_RUNS: usize = 1_000;
/// 15 cases of 5,280 s are 22 hours.
const PRECONDITION: u32 = 1_760;
const SAMPLE: u32 = 3_520;
const CASES: u32 = 15;
const WORKERS: u32 = 16;
const DISKS: u32 = 10;
/// Between two samples of the hosts.
const HOSTS_EVERY_SECONDS: u32 = 10;

/// The plan of the long runs, as its author wrote it.
const PLAN: &str = "name: Twenty-two hours\ntarget: {provider: local}\nworkers: {count: 16, vcpus: 4, memory: 4GiB, disks: 10}\n\
    footprints: [1.6TB, 8TB, 16TB]\nprecondition: 1760s\nsample: 3520s\nworkloads:\n  - 4k-random-read\n  - 4k-random-write\n  \
    - 8k-random-70-30\n  - 32k-sequential-read\n  - 32k-sequential-write\n";

/// What there is to look at.
pub(crate) struct Filled {
    pub(crate) ended: Uuid,
    pub(crate) going_on: Uuid,
    pub(crate) small: Uuid,
}

pub(crate) async fn fill(store: &Store, hub: &Hub) -> Filled {
    let demo = plan::parse("demo", plan::DEMO_PLAN, &Profiles::shipped()).unwrap();
    let measured = samples::demo();
    let mut small = Vec::new();
    for _ in 0..SMALL_RUNS {
        small.push(ended_run(store, &demo, plan::DEMO_PLAN, &measured).await);
    }
    let long = plan::parse("long", PLAN, &Profiles::shipped()).unwrap();
    let measured = samples::build("Twenty-two hours", &shape());
    assert_eq!(measured.cases.len(), usize::try_from(CASES).unwrap());
    let ended = ended_run(store, &long, PLAN, &measured).await;
    let going_on = run_that_goes_on(store, hub, &long, &measured).await;
    Filled { ended: ended.0, going_on: going_on.0, small: small[SMALL_RUNS / 2].0 }
}

fn shape() -> Shape {
    Shape {
        workers: WORKERS,
        disks: DISKS,
        footprints: vec![
            ("1.6TB", 1_600_000_000_000, 1.0),
            ("8TB", 8_000_000_000_000, 1.5),
            ("16TB", 16_000_000_000_000, 2.6),
        ],
        precondition: PRECONDITION,
        sample: SAMPLE,
        speed: 227_241.6,
    }
}

async fn new_run(store: &Store, plan: &TestPlan, yaml: &str, measured: &Export) -> RunId {
    let environment =
        json!({ "host": "poc", "kernel": "6.18", "place": { "provider": "local", "isolation": "process" } });
    let run = NewRun { plan, plan_yaml: yaml, environment: &environment, seed: 7 };
    let run = store.create_run(&run).await.unwrap();
    for number in 1..=plan.workers.count {
        let name = format!("worker-{number}");
        let hello = hello(&name);
        store.add_worker(run, &NewWorker { name: &name, hello: &hello, host: None }).await.unwrap();
    }
    for event in &measured.run.events {
        store.add_event(run, Level::Info, &event.message).await.unwrap();
    }
    for state in [RunState::Provisioning, RunState::Enrolling, RunState::Filling] {
        store.set_run_state(run, state).await.unwrap();
    }
    run
}

async fn ended_run(store: &Store, plan: &TestPlan, yaml: &str, measured: &Export) -> RunId {
    let run = new_run(store, plan, yaml, measured).await;
    for (ordinal, case) in (0..).zip(&measured.cases) {
        let id = start_case(store, run, plan, (ordinal, case)).await;
        store.finish_case(id, &result(case)).await.unwrap();
    }
    store.set_run_state(run, RunState::TearingDown).await.unwrap();
    let planned_cases = u32::try_from(measured.cases.len()).unwrap();
    store.finish_run(run, &RunEnd { state: RunState::Done, reason: None, planned_cases }).await.unwrap();
    run
}

async fn start_case(store: &Store, run: RunId, plan: &TestPlan, (ordinal, case): (u32, &Case)) -> CaseId {
    let footprint = plan.footprints.iter().find(|footprint| footprint.label == case.footprint).unwrap();
    let workload = plan.workloads.iter().find(|workload| workload.name == case.workload).unwrap();
    let disks = |worker: &str| {
        let of_worker = case.per_disk.iter().filter(|disk| disk.worker == worker);
        of_worker.map(|disk| disk.disk.clone()).collect()
    };
    let workers =
        case.per_worker.iter().map(|one| CaseWorker { worker: one.worker.clone(), disks: disks(&one.worker) });
    let new = NewCase {
        ordinal,
        footprint,
        region_bytes: plan.region_bytes(footprint),
        effective_bytes: plan.effective_bytes(footprint),
        workload,
        precondition_seconds: plan.precondition_seconds,
        sample_seconds: plan.sample_seconds,
        expected_workers: plan.workers.count,
        reads_unwritten: false,
        workers: workers.collect(),
    };
    let id = store.start_case(run, &new).await.unwrap();
    let started = case.started.unwrap_or_default();
    let t0 = started + SignedDuration::from_secs(plan.precondition_seconds.into());
    let t1 = t0 + SignedDuration::from_secs(plan.sample_seconds.into());
    store.set_case_window(id, &CaseWindow { started, t0, t1, workers: Vec::new() }).await.unwrap();
    if plan.sample_seconds == SAMPLE {
        rows_of_seconds(store, id).await;
    }
    id
}

/// What the case was found to be, without histograms: no page reads them.
fn result(case: &Case) -> CaseResult {
    let case = case.clone();
    CaseResult {
        state: CaseState::Complete,
        reason: None,
        warnings: case.warnings,
        figures: CaseFigures {
            workers: case.workers,
            window_seconds: case.window_seconds,
            start_skew_us: case.start_skew_us,
            clock_drift_us: case.clock_drift_us,
            unfinished: case.unfinished,
            ops: case.ops,
            service: case.service,
            pacing: case.pacing,
            generator: case.generator,
            per_worker: case.per_worker,
            per_disk: case.per_disk,
            per_host: case.per_host,
            steady_state: case.steady_state,
        },
        cluster: Ops::default(),
        cluster_service: None,
        seconds: case.seconds,
        precondition_seconds: case.precondition_seconds,
    }
}

/// In its last case, and followed from its first second on.
async fn run_that_goes_on(store: &Store, hub: &Hub, plan: &TestPlan, measured: &Export) -> RunId {
    let run = new_run(store, plan, PLAN, measured).await;
    store.set_run_state(run, RunState::Sampling).await.unwrap();
    hub.begin(run.0, Timestamp::now(), plan, &plan::schedule(plan, FillRate::assumed()));
    let mut at = 0;
    for (ordinal, case) in (0..).zip(&measured.cases) {
        let id = start_case(store, run, plan, (ordinal, case)).await;
        let last = ordinal + 1 == CASES;
        if !last {
            store.finish_case(id, &result(case)).await.unwrap();
        }
        let layout =
            case.per_worker.iter().map(|one| (one.worker.clone(), (0..DISKS).map(|disk| format!("d{disk}")).collect()));
        hub.beat(Beat { layout: Some(layout.collect()), ..Beat::default() });
        for second in case.precondition_seconds.iter().chain(&case.seconds) {
            hub.beat(beat(at, ordinal, second));
            at += 1;
        }
        hub.beat(Beat {
            so_far: Some(SoFar { ordinal, workers: WORKERS, seconds: SAMPLE, ops: case.ops.clone() }),
            ..Beat::default()
        });
    }
    let event = |number: u32| Event { at: Timestamp::now(), level: "info".into(), message: format!("event {number}") };
    hub.beat(Beat { events: (0..500).map(event).collect(), ..Beat::default() });
    run
}

fn beat(at: u32, ordinal: u32, second: &Second) -> Beat {
    let ios = |op: &Option<SecondOp>| op.as_ref().map_or(0.0, |op| op.iops);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "I/Os of a second")]
    let count = ((ios(&second.read) + ios(&second.write)) / f64::from(WORKERS * DISKS)) as u64;
    let disk = DiskBeat { count, sum_ns: count * 150_000, max_ns: 4_000_000, errors: 0 };
    let disks: BTreeMap<_, _> =
        (1..=WORKERS).map(|worker| (format!("worker-{worker}"), (0..DISKS).map(|_| disk).collect())).collect();
    let second = CaseSecond { at, second: Some(second.clone()), asked: (true, true), disks };
    let progress = LiveProgress {
        state: "sampling".into(),
        step: "a case".into(),
        step_index: 4,
        case: ordinal + 1,
        cases: CASES,
        ..LiveProgress::default()
    };
    Beat { progress: Some(progress), seconds: vec![second], ..Beat::default() }
}

fn hello(name: &str) -> Hello {
    Hello {
        protocol_version: 1,
        token: String::new(),
        uuid: format!("uuid-of-{name}"),
        macs: Vec::new(),
        boot_id: "boot".into(),
        agent_version: "0.1.0".into(),
        kernel: "6.1".into(),
        cpus: 4,
        memory_bytes: 4 << 30,
        disks: Vec::new(),
        every_disk: false,
        activity: None,
    }
}

/// What workers and hosts leave by the second in a case of the long runs: too many for one statement a row.
async fn rows_of_seconds(store: &Store, case: CaseId) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(store.file());
    let mut connection = sqlx::SqliteConnection::connect_with(&options).await.unwrap();
    let seconds = "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < 5279) \
        INSERT INTO worker_seconds SELECT w.case_id, w.worker, s.n, iif(s.n < 1760, 'precondition', 'sample'), \
        iif(s.n < 1760, s.n, s.n - 1760), 1, 14000 + s.n % 97, (14000 + s.n % 97) * 4096, 0, 2800000000, 90000, 9000000, 0, \
        0, 0, 0, 0, 0, 0, 0 FROM case_workers AS w JOIN s WHERE w.case_id = ?1";
    sqlx::query(seconds).bind(case.0).execute(&mut connection).await.unwrap();
    let host = |name: &str| {
        format!(
            "{{\"host\":\"{name}\",\"cpu_percent\":41.25,\"memory_used_bytes\":34359738368,\"memory_bytes\":137438953472,\
             \"io_pressure_percent\":12.5,\"io_wait_percent\":3.0}}"
        )
    };
    let hosts = format!("[{}]", ["pve1", "pve2", "pve3", "pve4"].map(host).join(","));
    let storage = "{\"status\":\"HEALTH_OK\",\"checks\":[],\"recovery_bytes_per_second\":0,\"displaced_percent\":0.0,\"scrubbing\":0}";
    let samples = "WITH RECURSIVE s (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM s WHERE n < ?1) \
        INSERT INTO host_samples (case_id, at, hosts_json, storage_json) SELECT c.id, \
        strftime('%Y-%m-%dT%H:%M:%S.000000Z', c.started, (s.n * ?2) || ' seconds'), ?3, ?4 \
        FROM cases AS c JOIN s WHERE c.id = ?5";
    let samples =
        sqlx::query(samples).bind((PRECONDITION + SAMPLE) / HOSTS_EVERY_SECONDS - 1).bind(HOSTS_EVERY_SECONDS);
    samples.bind(hosts).bind(storage).bind(case.0).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}
