//! One disk of a case as the export has it.

use worker_protocol::{DiskFinished, DiskKind};

use crate::case::{CaseInput, WorkerInput};
use crate::export::{Device, DiskSettings, IoErrors, PerDisk, Stall, Unfinished};
use crate::open_loop;
use crate::throughput::to_f64;
use crate::totals::{Part, ReadWrite, micros};

/// A disk's totals, decoded and checked.
pub(crate) struct DiskTotals {
    pub(crate) ops: ReadWrite,
    /// Open loop: the same I/Os timed from their submission.
    pub(crate) service: Option<ReadWrite>,
}

impl DiskTotals {
    pub(crate) fn decode(worker: &str, disk: &DiskFinished, block_bytes: u64) -> Result<Self, String> {
        let decode =
            |ops, part| ReadWrite::decode(ops, Some(block_bytes), worker, &part).map_err(|error| error.to_string());
        let ops = decode(&disk.ops, Part::Disk(disk.serial.clone()))?;
        let service = disk.service.as_ref().map(|service| decode(service, Part::DiskService(disk.serial.clone())));
        let service = service.transpose()?;
        let counts = |ops: &ReadWrite| (ops.read.latencies.count(), ops.write.latencies.count());
        match &service {
            Some(service) if counts(service) != counts(&ops) => Err(format!(
                "{worker}, disk {}: service times of {:?} reads and writes, response times of {:?}",
                disk.serial,
                counts(service),
                counts(&ops)
            )),
            _ => Ok(Self { ops, service }),
        }
    }
}

/// A disk's entry in the export.
pub(crate) fn per_disk(
    case: &CaseInput,
    worker: &WorkerInput,
    disk: &DiskFinished,
    totals: &DiskTotals,
    window_seconds: f64,
) -> PerDisk {
    PerDisk {
        worker: worker.worker.clone(),
        disk: disk.serial.clone(),
        window_seconds,
        ops: totals.ops.figures(window_seconds),
        service: totals.service.as_ref().map(|service| service.figures(window_seconds)),
        pacing: open_loop::of_disk(case, disk, worker.disks.len()),
        unfinished: unfinished(disk),
        flushes: disk.flushes,
        io_errors: disk.errors.iter().map(errors).collect(),
        stalls: disk.stalls.iter().map(stall).collect(),
        device: disk.device.as_ref().map(device),
        settings: settings(worker, &disk.serial),
    }
}

fn unfinished(disk: &DiskFinished) -> Unfinished {
    let oldest_us = (disk.unfinished > 0).then(|| micros(disk.oldest_unfinished_ns));
    Unfinished { count: disk.unfinished, oldest_us }
}

fn errors(errors: &worker_protocol::IoErrors) -> IoErrors {
    IoErrors { kind: errors.kind.clone(), count: errors.count, first_offsets: errors.first_offsets.clone() }
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person to read")]
fn stall(stall: &worker_protocol::Stall) -> Stall {
    Stall { start_seconds: stall.start_ns as f64 / 1e9, length_seconds: to_f64(stall.length_ns) / 1e9 }
}

fn device(device: &worker_protocol::DeviceCounters) -> Device {
    let worker_protocol::DeviceCounters { reads, read_merges, writes, write_merges, differs } = *device;
    Device { reads, read_merges, writes, write_merges, differs }
}

fn settings(worker: &WorkerInput, serial: &str) -> Option<DiskSettings> {
    let disk = worker.engine.as_ref()?.disks.iter().find(|disk| disk.serial == serial)?;
    let kind = |kind| match kind {
        DiskKind::Block => "block".to_owned(),
        DiskKind::File => "file".to_owned(),
    };
    Some(DiskSettings {
        path: disk.path.clone(),
        kind: disk.kind.map(kind),
        threads: disk.threads,
        direct: disk.direct,
        scheduler: disk.scheduler.clone(),
        nomerges: disk.nomerges,
        nr_requests: disk.nr_requests,
        max_sectors_kb: disk.max_sectors_kb,
        poll_queues: disk.poll_queues,
    })
}
