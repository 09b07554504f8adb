//! A store in a directory of its own, with a run and the fleet of the analysis' tests in it.

#[path = "../../../../analysis/tests/support/mod.rs"]
pub(crate) mod fleet;

use analysis::case::WorkerInput;
use fleet::{BLOCK_BYTES, FakeWorker, PRECONDITION_SECONDS, SAMPLE_SECONDS};
use plan::{
    AccessPattern, Deploy, Footprint, Initialise, LocalTarget, OnError, OnWorkerLoss, RegionRange, Target, TestPlan,
    Workers, Workload,
};
use serde_json::json;
use store::{
    CaseId, CaseWindow, CaseWorker, DataDir, NewCase, NewRun, NewWorker, RunId, Store, WorkerResult, WorkerSample,
    WorkerStart,
};
use worker_protocol::{DiskSecond, Finished, Hello, Phase, Sample};

pub(crate) const SEED: u64 = u64::MAX - 4;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) plan: TestPlan,
    pub(crate) run: RunId,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&DataDir::new(dir.path())).await.unwrap();
        let plan = test_plan();
        let run = new_run(&store, &plan).await;
        Self { dir, store, plan, run }
    }

    pub(crate) fn data_dir(&self) -> DataDir {
        DataDir::new(self.dir.path())
    }

    /// Enrols the fleet and starts a case for it.
    pub(crate) async fn start_case(&self, fleet: &[FakeWorker]) -> CaseId {
        for worker in fleet {
            let hello = hello(&worker.name);
            self.store
                .add_worker(self.run, &NewWorker { name: &worker.name, hello: &hello, host: None })
                .await
                .unwrap();
        }
        let inputs: Vec<WorkerInput> = fleet.iter().map(FakeWorker::input).collect();
        let workers =
            inputs.iter().map(|worker| CaseWorker { worker: worker.worker.clone(), disks: worker.disks.clone() });
        let footprint = &self.plan.footprints[0];
        let new = NewCase {
            ordinal: 0,
            footprint,
            region_bytes: self.plan.region_bytes(footprint),
            effective_bytes: self.plan.effective_bytes(footprint),
            workload: &self.plan.workloads[0],
            precondition_seconds: PRECONDITION_SECONDS,
            sample_seconds: SAMPLE_SECONDS,
            expected_workers: 2,
            reads_unwritten: false,
            workers: workers.collect(),
        };
        let case = self.store.start_case(self.run, &new).await.unwrap();
        self.store.set_case_window(case, &window(&inputs)).await.unwrap();
        case
    }

    /// Delivers a tick: the sample of one second of each worker.
    pub(crate) async fn tick(&self, case: CaseId, fleet: &[FakeWorker], phase: Phase, second: u32) {
        let samples: Vec<Sample> = fleet.iter().map(|worker| sample(worker, phase, second)).collect();
        let named: Vec<WorkerSample<'_>> =
            fleet.iter().zip(&samples).map(|(worker, sample)| WorkerSample { worker: &worker.name, sample }).collect();
        self.store.add_samples(case, &named).await.unwrap();
    }

    pub(crate) async fn all_ticks(&self, case: CaseId, fleet: &[FakeWorker]) {
        for (phase, seconds) in [(Phase::Precondition, PRECONDITION_SECONDS), (Phase::Sample, SAMPLE_SECONDS)] {
            for second in 0..seconds {
                self.tick(case, fleet, phase, second).await;
            }
        }
    }

    pub(crate) async fn finished(&self, case: CaseId, worker: &FakeWorker) {
        let finished = finished(worker);
        let result = WorkerResult { worker: &worker.name, finished: &finished, offset_ns: Some(700) };
        self.store.add_disk_results(case, &result).await.unwrap();
    }
}

pub(crate) async fn new_run(store: &Store, plan: &TestPlan) -> RunId {
    let environment = json!({ "version": "0.1.0" });
    let run = NewRun { plan, plan_yaml: "name: two workers\n", environment: &environment, seed: SEED };
    store.create_run(&run).await.unwrap()
}

pub(crate) fn fleet() -> Vec<FakeWorker> {
    vec![FakeWorker::new("w1", 21, 150_000, 200), FakeWorker::new("w2", 22, 400_000, 90)]
}

pub(crate) fn sample(worker: &FakeWorker, phase: Phase, second: u32) -> Sample {
    let kept = worker.sample(phase, second);
    let disk = DiskSecond { read_count: 5, write_count: 6, sum_ns: 7, max_ns: u64::MAX, errors: 8 };
    let disks = vec![disk, DiskSecond::default()];
    Sample { job: 1, number: kept.number, phase, second, whole: kept.whole, ops: kept.ops, disks }
}

pub(crate) fn finished(worker: &FakeWorker) -> Finished {
    finished_of(worker.input())
}

/// The Finished of a worker that delivers `input`.
pub(crate) fn finished_of(input: WorkerInput) -> Finished {
    let kept = input.finished.unwrap();
    Finished {
        job: 1,
        started_worker_ns: kept.started_worker_ns,
        ended_worker_ns: kept.ended_worker_ns,
        complete: kept.complete,
        reason: kept.reason,
        disks: kept.disks,
        thread_cpu: kept.thread_cpu,
        steal: kept.steal,
        io_wq_cpu: kept.io_wq_cpu,
        warnings: kept.warnings,
    }
}

fn window(workers: &[WorkerInput]) -> CaseWindow {
    let start = |worker: &WorkerInput| {
        let clock = worker.clock.unwrap();
        let (start_at_worker_ns, offset_ns) = (clock.start_at_worker_ns, clock.offset_start_ns);
        WorkerStart { worker: worker.worker.clone(), start_at_worker_ns, offset_ns }
    };
    CaseWindow {
        started: "2026-03-01T10:00:00.25Z".parse().unwrap(),
        t0: "2026-03-01T10:00:02.25Z".parse().unwrap(),
        t1: "2026-03-01T10:00:08.25Z".parse().unwrap(),
        workers: workers.iter().map(start).collect(),
    }
}

fn hello(name: &str) -> Hello {
    Hello {
        protocol_version: 1,
        token: "a-secret-token".into(),
        uuid: format!("uuid-of-{name}"),
        macs: Vec::new(),
        boot_id: "boot".into(),
        agent_version: "0.1.0".into(),
        kernel: "6.1".into(),
        cpus: 2,
        memory_bytes: 1 << 30,
        disks: Vec::new(),
        every_disk: false,
        activity: None,
    }
}

fn test_plan() -> TestPlan {
    TestPlan {
        name: "two workers".into(),
        target: Target::Local(LocalTarget { disk_dir: None, isolation: plan::Isolation::Process }),
        guard: None,
        canary: false,
        canary_wait_seconds: 180,
        workers: Workers { count: 2, vcpus: 1, memory_bytes: 1 << 30, disks: 2 },
        footprints: vec![Footprint { bytes: 1_000_000_000, label: "1GB".into() }],
        initialise: Initialise::FullWrite,
        fill_outstanding_per_disk: 8,
        fill_block_bytes: 1 << 20,
        settle_seconds: 0,
        precondition_seconds: PRECONDITION_SECONDS,
        sample_seconds: SAMPLE_SECONDS,
        workloads: vec![Workload {
            name: "4k-random-70-30".into(),
            profile: None,
            block_bytes: BLOCK_BYTES,
            pattern: AccessPattern::HotSpot { io_percent: 90.0, space_percent: 10.0 },
            read_percent: 70,
            outstanding_per_disk: 4,
            range: Some(RegionRange { from_percent: 0.0, to_percent: 50.0 }),
            align_bytes: None,
            rate: None,
            compression_ratio: 1.0,
            duplication_ratio: 1.0,
            flush_every_writes: None,
            on_error: OnError::Stop,
            stall_seconds: 1,
        }],
        deploy: Deploy::Once,
        on_worker_loss: OnWorkerLoss::Fail,
        on_restart: plan::proxmox::OnRestart::Teardown,
        read_unwritten: false,
        seed: None,
        rehearsal: false,
    }
}
