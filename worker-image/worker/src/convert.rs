//! Between the messages and the engine's types. The engine knows nothing of the protocol, nor the protocol of the engine.

use std::time::{Duration, Instant};

use latency_histogram::Latencies;
use load_engine as engine;
use worker_protocol as wire;

use crate::facts::WorkerClock;

/// The engine's job for a Prepare whose disks are resolved.
pub(crate) fn job(
    work: &wire::Work,
    seed: u64,
    disks: Vec<engine::DiskSpec>,
    threads: u32,
    own_kernel: bool,
) -> engine::Job {
    engine::Job { disks, threads, work: work_of(work), seed, own_kernel, tuning: engine::Tuning::default() }
}

fn work_of(work: &wire::Work) -> engine::Work {
    match work {
        wire::Work::Fill(fill) => engine::Work::Fill(engine::FillSpec {
            block_bytes: fill.block_bytes,
            outstanding: fill.outstanding_per_disk,
            zero: fill.zero,
        }),
        wire::Work::Verify(verify) => engine::Work::Verify(engine::VerifySpec {
            blocks: verify.blocks_per_disk,
            block_bytes: verify.block_bytes,
            zero: verify.zero,
        }),
        wire::Work::Load(load) => engine::Work::Load(engine::LoadSpec {
            workload: workload(&load.workload),
            precondition_seconds: load.precondition_seconds,
            sample_seconds: load.sample_seconds,
        }),
    }
}

fn workload(spec: &wire::WorkloadSpec) -> engine::Workload {
    engine::Workload {
        block_bytes: spec.block_bytes,
        pattern: pattern(&spec.pattern),
        read_percent: spec.read_percent,
        outstanding: spec.outstanding_per_disk,
        rate: spec.rate.as_ref().map(|rate| engine::Rate {
            iops: rate.iops,
            per_disk: rate.per_disk,
            poisson: rate.poisson,
        }),
        compression_ratio: spec.compression_ratio,
        duplication_ratio: spec.duplication_ratio,
        flush_every_writes: spec.flush_every_writes,
        on_error: match spec.on_error {
            wire::OnError::Stop => engine::OnError::Stop,
            wire::OnError::Continue => engine::OnError::Continue,
            wire::OnError::StopAfter { errors } => engine::OnError::StopAfter { errors },
        },
        ..engine::Workload::default()
    }
}

fn pattern(pattern: &wire::Pattern) -> engine::Pattern {
    match *pattern {
        wire::Pattern::Random => engine::Pattern::Random,
        wire::Pattern::Sequential { streams } => engine::Pattern::Sequential { streams },
        wire::Pattern::Permutation => engine::Pattern::Permutation,
        wire::Pattern::HotSpot { io_percent, space_percent } => engine::Pattern::HotSpot { io_percent, space_percent },
    }
}

/// What the engine was granted.
pub(crate) fn report(report: &engine::Report) -> wire::EngineReport {
    wire::EngineReport {
        threads: report.threads,
        granted: report.granted.clone(),
        refused: report.refused.clone(),
        clock_source: report.clock_source.clone(),
        memlock_bytes: report.memlock_bytes,
        disks: report.disks.iter().map(settings).collect(),
        warnings: report.warnings.clone(),
    }
}

fn settings(disk: &engine::DiskSettings) -> wire::DiskSettings {
    wire::DiskSettings {
        serial: disk.id.clone(),
        path: disk.path.clone(),
        direct: disk.direct,
        scheduler: disk.scheduler.clone(),
        nomerges: disk.nomerges,
        nr_requests: disk.nr_requests,
        max_sectors_kb: disk.max_sectors_kb,
        poll_queues: disk.poll_queues,
    }
}

/// A second of a load job.
pub(crate) fn sample(job: u64, number: u64, second: &engine::Second) -> wire::Sample {
    wire::Sample {
        job,
        number,
        phase: match second.phase {
            engine::Phase::Precondition => wire::Phase::Precondition,
            engine::Phase::Sample => wire::Phase::Sample,
        },
        second: second.index,
        whole: second.whole,
        ops: ops(&second.ops),
        disks: second.disks.iter().map(disk_second).collect(),
    }
}

fn disk_second(disk: &engine::DiskSecond) -> wire::DiskSecond {
    wire::DiskSecond {
        read_count: disk.read_count,
        write_count: disk.write_count,
        sum_ns: disk.sum_ns,
        max_ns: disk.max_ns,
        errors: disk.errors,
    }
}

fn ops(ops: &engine::Ops) -> wire::Ops {
    wire::Ops { read: totals(&ops.read), write: totals(&ops.write) }
}

fn totals(totals: &engine::OpTotals) -> wire::OpTotals {
    let exact = totals.latencies.exact();
    wire::OpTotals {
        count: totals.count,
        bytes: totals.bytes,
        errors: totals.errors,
        sum_ns: exact.sum_ns,
        min_ns: exact.min_ns,
        max_ns: exact.max_ns,
        over_range: exact.over_range,
        histogram: Latencies::encode(&totals.latencies),
    }
}

/// The end of a job. One that ended before its first I/O has measured nothing, and has failed.
pub(crate) fn outcome(job: u64, outcome: &engine::Outcome, clock: &WorkerClock) -> wire::WorkerMessage {
    let Some(first_io) = outcome.first_io else {
        let error = outcome.reason.clone().unwrap_or_else(|| "it ended before its first I/O".to_owned());
        return wire::WorkerMessage::Failed(wire::Failed { job, disk: outcome.failed_disk.clone(), error });
    };
    let ended: Instant = outcome.last_completion.unwrap_or(first_io);
    wire::WorkerMessage::Finished(wire::Finished {
        job,
        started_worker_ns: clock.ns_of(first_io),
        ended_worker_ns: clock.ns_of(ended),
        complete: outcome.complete,
        reason: outcome.reason.clone(),
        disks: outcome.disks.iter().map(disk_finished).collect(),
        thread_cpu: outcome.thread_cpu.clone(),
        steal: outcome.steal,
        warnings: outcome.warnings.clone(),
    })
}

fn disk_finished(disk: &engine::DiskOutcome) -> wire::DiskFinished {
    wire::DiskFinished {
        serial: disk.id.clone(),
        ops: ops(&disk.ops),
        service: disk.service.as_ref().map(ops),
        unfinished: disk.unfinished,
        oldest_unfinished_ns: ns(disk.oldest_unfinished),
        bytes: disk.bytes,
        elapsed_ns: ns(disk.elapsed),
        verified_blocks: disk.verified_blocks,
        errors: disk.errors.iter().map(errors).collect(),
        stalls: disk.stalls.iter().map(stall).collect(),
        device: disk.device.as_ref().map(counters),
        pacing: disk.pacing.as_ref().map(pacing),
    }
}

fn errors(errors: &engine::IoErrors) -> wire::IoErrors {
    wire::IoErrors { kind: errors.kind.clone(), count: errors.count, first_offsets: errors.first_offsets.clone() }
}

fn stall(stall: &engine::Stall) -> wire::Stall {
    wire::Stall { start_ns: stall.start_ns, length_ns: stall.length_ns }
}

fn counters(device: &engine::DeviceCounters) -> wire::DeviceCounters {
    wire::DeviceCounters {
        reads: device.reads,
        read_merges: device.read_merges,
        writes: device.writes,
        write_merges: device.write_merges,
    }
}

fn pacing(pacing: &engine::Pacing) -> wire::Pacing {
    wire::Pacing {
        intended: pacing.intended,
        late: pacing.late,
        missed: pacing.missed,
        largest_lag_ns: pacing.largest_lag_ns,
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
