//! One message of each kind, every field set, from given values.

use worker_protocol::*;

/// What the fields are made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    pub(crate) wide: u64,
    pub(crate) narrow: u32,
    pub(crate) signed: i64,
    pub(crate) real: f64,
    pub(crate) text: String,
    pub(crate) bytes: Vec<u8>,
    pub(crate) flag: bool,
}

/// Every message of a worker; an optional field is set or not by `flag`.
pub(crate) fn worker_messages(v: &Values) -> Vec<WorkerMessage> {
    let job = v.wide;
    let failed = Failed { job, disk: some(v, v.text.clone()), error: v.text.clone() };
    let progress = Progress { job, bytes_done: v.wide, bytes_total: v.wide / 2 };
    vec![
        WorkerMessage::Hello(hello(v)),
        WorkerMessage::ClockReply(ClockReply { probe: v.wide, worker_ns: v.wide, path_mtu_bytes: some(v, v.narrow) }),
        WorkerMessage::Ready(Ready { job, engine: engine(v) }),
        WorkerMessage::Failed(failed),
        WorkerMessage::Progress(progress),
        WorkerMessage::Sample(sample(v, Phase::Precondition)),
        WorkerMessage::Sample(sample(v, Phase::Sample)),
        WorkerMessage::Finished(finished(v)),
    ]
}

/// Every message of an orchestrator, with every kind of work, pattern and error policy.
pub(crate) fn orchestrator_messages(v: &Values) -> Vec<OrchestratorMessage> {
    let job = v.wide;
    let welcome = Welcome { protocol_version: v.narrow, worker: v.text.clone() };
    let reject = Reject { protocol_version: v.narrow, reason: v.text.clone(), permanent: v.flag };
    let mut messages = vec![
        OrchestratorMessage::Welcome(welcome),
        OrchestratorMessage::Reject(reject),
        OrchestratorMessage::ClockProbe(ClockProbe { probe: v.wide }),
        OrchestratorMessage::StartAt(StartAt { job, worker_ns: v.wide }),
        OrchestratorMessage::SampleAck(SampleAck { job, up_to: v.wide }),
        OrchestratorMessage::JobAck(JobAck { job }),
        OrchestratorMessage::Stop(JobRef { job }),
        OrchestratorMessage::Abort(JobRef { job }),
        OrchestratorMessage::Shutdown,
    ];
    messages.extend(works(v).into_iter().map(|work| {
        let disk = DiskAssignment {
            serial: v.text.clone(),
            scsi_address: some(v, v.text.clone()),
            size_bytes: v.wide,
            region_start: v.wide,
            region_bytes: v.wide,
            data_seed: v.wide,
        };
        OrchestratorMessage::Prepare(Prepare { job, disks: vec![disk; 2], work, seed: v.wide })
    }));
    messages
}

fn some<T>(v: &Values, value: T) -> Option<T> {
    v.flag.then_some(value)
}

fn hello(v: &Values) -> Hello {
    let kinds = [DiskKind::Block, DiskKind::File];
    let disk = |kind| DiskInfo {
        serial: v.text.clone(),
        scsi_address: some(v, v.text.clone()),
        path: v.text.clone(),
        size_bytes: v.wide,
        logical_block_bytes: v.narrow,
        direct: v.flag,
        kind,
        in_use: some(v, v.text.clone()),
    };
    Hello {
        protocol_version: v.narrow,
        token: v.text.clone(),
        uuid: v.text.clone(),
        macs: vec![v.text.clone()],
        boot_id: v.text.clone(),
        agent_version: v.text.clone(),
        kernel: v.text.clone(),
        cpus: v.narrow,
        memory_bytes: v.wide,
        disks: kinds.map(disk).to_vec(),
        every_disk: v.flag,
        activity: some(v, Activity { job: v.wide, finished: v.flag, next_unacknowledged: v.wide }),
    }
}

fn engine(v: &Values) -> EngineReport {
    let disk = DiskSettings {
        serial: v.text.clone(),
        path: v.text.clone(),
        kind: some(v, DiskKind::Block),
        threads: v.narrow,
        direct: v.flag,
        scheduler: some(v, v.text.clone()),
        nomerges: some(v, v.narrow),
        nr_requests: some(v, v.narrow),
        max_sectors_kb: some(v, v.narrow),
        poll_queues: some(v, v.narrow),
    };
    EngineReport {
        threads: v.narrow,
        granted: vec![v.text.clone()],
        refused: vec![v.text.clone()],
        clock_source: v.text.clone(),
        memlock_bytes: some(v, v.wide),
        buffer_bytes: v.wide,
        disks: vec![disk],
        warnings: vec![v.text.clone()],
    }
}

fn ops(v: &Values) -> Ops {
    let totals = OpTotals {
        count: v.wide,
        bytes: v.wide,
        errors: v.wide,
        sum_ns: v.wide,
        min_ns: v.wide,
        max_ns: v.wide,
        over_range: v.wide,
        histogram: v.bytes.clone(),
    };
    Ops { read: totals.clone(), write: totals }
}

fn sample(v: &Values, phase: Phase) -> Sample {
    let disk = DiskSecond { read_count: v.wide, write_count: v.wide, sum_ns: v.wide, max_ns: v.wide, errors: v.wide };
    Sample { job: v.wide, number: v.wide, phase, second: v.narrow, whole: v.flag, ops: ops(v), disks: vec![disk; 3] }
}

fn finished(v: &Values) -> Finished {
    let disk = DiskFinished {
        serial: v.text.clone(),
        ops: ops(v),
        service: some(v, ops(v)),
        unfinished: v.wide,
        oldest_unfinished_ns: v.wide,
        bytes: v.wide,
        elapsed_ns: v.wide,
        verified_blocks: v.wide,
        flushes: v.wide,
        errors: vec![IoErrors { kind: v.text.clone(), count: v.wide, first_offsets: vec![v.wide; 3] }],
        stalls: vec![Stall { start_ns: v.signed, length_ns: v.wide }],
        device: some(
            v,
            DeviceCounters { reads: v.wide, read_merges: 1, writes: 2, write_merges: v.wide, differs: v.flag },
        ),
        pacing: some(v, Pacing { intended: v.wide, late: 1, missed: 2, largest_lag_ns: v.wide }),
    };
    Finished {
        job: v.wide,
        started_worker_ns: v.wide,
        ended_worker_ns: v.wide,
        complete: v.flag,
        reason: some(v, v.text.clone()),
        disks: vec![disk],
        thread_cpu: vec![v.real],
        steal: some(v, v.real),
        io_wq_cpu: v.real,
        warnings: vec![v.text.clone()],
    }
}

fn works(v: &Values) -> Vec<Work> {
    let patterns = [
        Pattern::Random,
        Pattern::Sequential { streams: v.narrow },
        Pattern::Permutation,
        Pattern::HotSpot { io_percent: v.real, space_percent: v.real },
    ];
    let policies = [OnError::Stop, OnError::Continue, OnError::StopAfter { errors: v.wide }];
    let load = |(pattern, on_error)| {
        let workload = WorkloadSpec {
            block_bytes: v.wide,
            pattern,
            sub_range: some(v, SubRange { start: v.wide, end: v.wide }),
            align_bytes: some(v, v.wide),
            read_percent: v.narrow,
            outstanding_per_disk: v.narrow,
            rate: some(v, Rate { iops: v.real, per_disk: v.flag, poisson: v.flag }),
            compression_ratio: v.real,
            duplication_ratio: v.real,
            flush_every_writes: some(v, v.narrow),
            on_error,
            stall_threshold_ms: some(v, v.narrow),
        };
        Work::Load(Load { workload, precondition_seconds: v.narrow, sample_seconds: v.narrow })
    };
    let fill = Fill { block_bytes: v.wide, outstanding_per_disk: v.narrow, zero: v.flag };
    let verify = Verify { blocks_per_disk: v.narrow, block_bytes: v.wide, zero: v.flag };
    let loads = patterns.into_iter().zip(policies.into_iter().cycle()).map(load);
    [Work::Fill(fill), Work::Verify(verify)].into_iter().chain(loads).collect()
}
