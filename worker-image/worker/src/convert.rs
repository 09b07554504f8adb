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
        sub_range: spec.sub_range.map(|range| range.start..range.end),
        align_bytes: spec.align_bytes,
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
        stall_threshold: spec
            .stall_threshold_ms
            .map_or(engine::limits::STALL_THRESHOLD, |ms| Duration::from_millis(ms.into())),
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
        buffer_bytes: report.buffer_bytes,
        disks: report.disks.iter().map(settings).collect(),
        warnings: report.warnings.clone(),
    }
}

fn settings(disk: &engine::DiskSettings) -> wire::DiskSettings {
    wire::DiskSettings {
        serial: disk.id.clone(),
        path: disk.path.clone(),
        kind: Some(match disk.kind {
            engine::DiskKind::File => wire::DiskKind::File,
            engine::DiskKind::Block => wire::DiskKind::Block,
        }),
        threads: disk.threads,
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
        io_wq_cpu: outcome.io_wq_cpu,
        // What only judges figures that go along is judged where they are merged.
        warnings: outcome.warnings.iter().filter(|warning| !outcome.judgements.contains(warning)).cloned().collect(),
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
        flushes: disk.flushes,
        errors: disk.errors.iter().map(errors).collect(),
        stalls: disk.stalls.iter().map(stall).collect(),
        device: disk.device.as_ref().map(|device| counters(device, disk.device_differs)),
        pacing: disk.pacing.as_ref().map(pacing),
    }
}

fn errors(errors: &engine::IoErrors) -> wire::IoErrors {
    wire::IoErrors { kind: errors.kind.clone(), count: errors.count, first_offsets: errors.first_offsets.clone() }
}

fn stall(stall: &engine::Stall) -> wire::Stall {
    wire::Stall { start_ns: stall.start_ns, length_ns: stall.length_ns }
}

fn counters(device: &engine::DeviceCounters, differs: bool) -> wire::DeviceCounters {
    wire::DeviceCounters {
        reads: device.reads,
        read_merges: device.read_merges,
        writes: device.writes,
        write_merges: device.write_merges,
        differs,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every field of a workload arrives at the engine: both sides are written out, so that a new field does not compile without an answer here.
    #[test]
    fn every_field_of_a_workload_reaches_the_engine() {
        let spec = wire::WorkloadSpec {
            block_bytes: 8192,
            pattern: wire::Pattern::HotSpot { io_percent: 80.0, space_percent: 20.0 },
            sub_range: Some(wire::SubRange { start: 1 << 20, end: 3 << 20 }),
            align_bytes: Some(4096),
            read_percent: 70,
            outstanding_per_disk: 6,
            rate: Some(wire::Rate { iops: 250.5, per_disk: false, poisson: true }),
            compression_ratio: 2.0,
            duplication_ratio: 1.5,
            flush_every_writes: Some(100),
            on_error: wire::OnError::StopAfter { errors: 9 },
            stall_threshold_ms: Some(3_000),
        };
        let expected = engine::Workload {
            block_bytes: 8192,
            pattern: engine::Pattern::HotSpot { io_percent: 80.0, space_percent: 20.0 },
            sub_range: Some(1 << 20..3 << 20),
            align_bytes: Some(4096),
            read_percent: 70,
            outstanding: 6,
            rate: Some(engine::Rate { iops: 250.5, per_disk: false, poisson: true }),
            compression_ratio: 2.0,
            duplication_ratio: 1.5,
            flush_every_writes: Some(100),
            on_error: engine::OnError::StopAfter { errors: 9 },
            stall_threshold: Duration::from_secs(3),
        };
        assert_eq!(workload(&spec), expected);
        let older = wire::WorkloadSpec { stall_threshold_ms: None, on_error: wire::OnError::Continue, ..spec };
        let defaulted = workload(&older);
        assert_eq!(defaulted.stall_threshold, engine::limits::STALL_THRESHOLD);
        assert_eq!(defaulted.on_error, engine::OnError::Continue);
    }

    #[test]
    fn every_pattern_reaches_the_engine() {
        let pairs = [
            (wire::Pattern::Random, engine::Pattern::Random),
            (wire::Pattern::Sequential { streams: 3 }, engine::Pattern::Sequential { streams: 3 }),
            (wire::Pattern::Permutation, engine::Pattern::Permutation),
        ];
        for (wire, engine) in pairs {
            assert_eq!(pattern(&wire), engine);
        }
    }

    #[test]
    fn everything_granted_refused_and_set_is_reported() {
        let disk = engine::DiskSettings {
            id: "d1".into(),
            path: "/dev/sdb".into(),
            kind: engine::DiskKind::Block,
            threads: 2,
            direct: true,
            scheduler: Some("none".into()),
            nomerges: Some(2),
            nr_requests: Some(256),
            max_sectors_kb: Some(1280),
            poll_queues: Some(4),
        };
        let granted = engine::Report {
            threads: 2,
            granted: vec!["SINGLE_ISSUER".into()],
            refused: vec!["NO_SQARRAY: Invalid argument".into()],
            clock_source: "tsc".into(),
            memlock_bytes: Some(65_536),
            buffer_bytes: 1 << 22,
            disks: vec![disk],
            warnings: vec!["memory is not locked".into()],
        };
        let expected = wire::EngineReport {
            threads: 2,
            granted: vec!["SINGLE_ISSUER".into()],
            refused: vec!["NO_SQARRAY: Invalid argument".into()],
            clock_source: "tsc".into(),
            memlock_bytes: Some(65_536),
            buffer_bytes: 1 << 22,
            disks: vec![wire::DiskSettings {
                serial: "d1".into(),
                path: "/dev/sdb".into(),
                kind: Some(wire::DiskKind::Block),
                threads: 2,
                direct: true,
                scheduler: Some("none".into()),
                nomerges: Some(2),
                nr_requests: Some(256),
                max_sectors_kb: Some(1280),
                poll_queues: Some(4),
            }],
            warnings: vec!["memory is not locked".into()],
        };
        assert_eq!(report(&granted), expected);
    }

    /// One I/O of 5 µs.
    fn one_io() -> engine::OpTotals {
        let mut latencies = Latencies::default();
        latencies.record(5_000);
        engine::OpTotals { count: 1, bytes: 4096, errors: 2, latencies }
    }

    fn disk_outcome() -> engine::DiskOutcome {
        engine::DiskOutcome {
            id: "d1".into(),
            ops: engine::Ops { read: one_io(), write: engine::OpTotals::default() },
            service: Some(engine::Ops { read: engine::OpTotals::default(), write: one_io() }),
            unfinished: 3,
            oldest_unfinished: Duration::from_nanos(77),
            bytes: 11,
            elapsed: Duration::from_nanos(12),
            verified_blocks: 13,
            flushes: 14,
            errors: vec![engine::IoErrors { kind: "EIO".into(), count: 2, first_offsets: vec![4096, 0] }],
            stalls: vec![engine::Stall { start_ns: -5, length_ns: 6 }],
            device: Some(engine::DeviceCounters { reads: 1, read_merges: 2, writes: 3, write_merges: 4 }),
            device_differs: true,
            pacing: Some(engine::Pacing { intended: 9, late: 2, missed: 1, largest_lag_ns: 8 }),
        }
    }

    #[test]
    fn everything_that_a_job_measured_is_reported() {
        let clock = WorkerClock::start();
        let first_io = Instant::now();
        let ended = engine::Outcome {
            complete: false,
            reason: Some("EIO".into()),
            failed_disk: Some("d1".into()),
            first_io: Some(first_io),
            last_completion: Some(first_io + Duration::from_secs(2)),
            disks: vec![disk_outcome()],
            thread_cpu: vec![0.25, 0.97],
            io_wq_cpu: 0.5,
            steal: Some(0.07),
            warnings: vec!["left to the kernel".into(), "engine thread 1 used 97 % of a CPU".into()],
            judgements: vec!["engine thread 1 used 97 % of a CPU".into()],
            trace: Vec::new(),
        };
        let read = totals(&one_io());
        assert_eq!((read.count, read.sum_ns, read.max_ns, read.errors), (1, 5_000, 5_000, 2));
        let expected = wire::Finished {
            job: 4,
            started_worker_ns: clock.ns_of(first_io),
            ended_worker_ns: clock.ns_of(first_io) + 2_000_000_000,
            complete: false,
            reason: Some("EIO".into()),
            disks: vec![wire::DiskFinished {
                serial: "d1".into(),
                ops: wire::Ops { read: read.clone(), write: wire::OpTotals::default() },
                service: Some(wire::Ops { read: wire::OpTotals::default(), write: read }),
                unfinished: 3,
                oldest_unfinished_ns: 77,
                bytes: 11,
                elapsed_ns: 12,
                verified_blocks: 13,
                flushes: 14,
                errors: vec![wire::IoErrors { kind: "EIO".into(), count: 2, first_offsets: vec![4096, 0] }],
                stalls: vec![wire::Stall { start_ns: -5, length_ns: 6 }],
                device: Some(wire::DeviceCounters {
                    reads: 1,
                    read_merges: 2,
                    writes: 3,
                    write_merges: 4,
                    differs: true,
                }),
                pacing: Some(wire::Pacing { intended: 9, late: 2, missed: 1, largest_lag_ns: 8 }),
            }],
            thread_cpu: vec![0.25, 0.97],
            steal: Some(0.07),
            io_wq_cpu: 0.5,
            warnings: vec!["left to the kernel".into()],
        };
        assert_eq!(outcome(4, &ended, &clock), wire::WorkerMessage::Finished(expected));
    }
}
