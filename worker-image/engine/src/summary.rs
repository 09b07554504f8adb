//! The outcome, from what threads and collector measured.

use std::time::Duration;

use crate::clock::Anchor;
use crate::collect::{LoadShape, Shape};
use crate::control::Control;
use crate::device::difference;
use crate::limits::{BUSY_THREAD, DEVICE_TOLERANCE, LATE_SHARE, MAX_STALLS, STEAL_SHARE};
use crate::outcome::{DeviceCounters, DiskOutcome, Ops, Outcome, Pacing, Stall};
use crate::snapshot::Snapshot;
use crate::tally::{Quiet, common_stalls};
use crate::thread::{LaneEnd, ThreadEnd, share};

/// A disk's totals over the window.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) ops: Ops,
    pub(crate) service: Option<Ops>,
    pub(crate) flushes: u64,
}

impl Totals {
    pub(crate) fn new(open_loop: bool) -> Self {
        Self { ops: Ops::default(), service: open_loop.then(Ops::default), flushes: 0 }
    }
}

/// All that an outcome is made from.
pub(crate) struct Measured<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) ends: Vec<Option<ThreadEnd>>,
    pub(crate) totals: Vec<Totals>,
    pub(crate) window_whole: bool,
    pub(crate) snapshots: (Option<Snapshot>, Option<Snapshot>),
    /// Start of the window (of the job, where there is none), ns.
    pub(crate) window_ns: u64,
    pub(crate) anchor: Anchor,
    pub(crate) control: &'a Control,
}

/// Makes the outcome.
pub(crate) fn outcome(measured: Measured<'_>) -> Outcome {
    let Measured { shape, mut ends, totals, window_whole, snapshots, window_ns, anchor, control } = measured;
    let (mut warnings, mut judgements) = (Vec::new(), Vec::new());
    let trace = ends.iter_mut().flatten().flat_map(|end| std::mem::take(&mut end.trace)).collect();
    let lanes: Vec<&LaneEnd> = ends.iter().flatten().flat_map(|end| &end.lanes).collect();
    let mut disks = Vec::with_capacity(totals.len());
    for (index, totals) in totals.into_iter().enumerate() {
        let mine: Vec<&LaneEnd> = lanes.iter().copied().filter(|lane| lane.disk == index).collect();
        let mut disk = disk_outcome(&shape.disk_ids[index], totals, &mine);
        let threshold_ns = shape.load.map_or(u64::MAX, |load| load.stall_threshold_ns);
        disk.stalls = stalls(&disk.id, &mine, threshold_ns, window_ns, &mut warnings);
        warnings.extend(own_lateness(&disk, &mine));
        disk.device = device_counters(index, &snapshots);
        if let (Some(load), Some(device)) = (shape.load, disk.device) {
            let differences = compare_with_device(&disk, device, load, &snapshots, window_ns);
            disk.device_differs = !differences.is_empty();
            judgements.extend(differences);
        }
        disks.push(disk);
    }
    let (reason, failed_disk) = reason(&ends, shape, window_whole, &disks, control);
    let readings = snapshots.0.as_ref().zip(snapshots.1.as_ref());
    let io_wq_cpu = readings.map_or(0.0, |(before, after)| {
        let since = |(thread, ns): (i32, u64)| ns.saturating_sub(before.io_wq_ns.get(&thread).copied().unwrap_or(0));
        let used = ends.iter().flatten().map(|end| since(end.io_wq_ns)).sum();
        share(used, after.at_ns.saturating_sub(before.at_ns))
    });
    let steal = readings.and_then(|(before, after)| after.steal_since(before));
    let thread_cpu: Vec<f64> = ends.iter().map(|end| end.as_ref().map_or(0.0, |end| end.cpu)).collect();
    // An open loop polls for its next start: only where it was late, too, its CPU time says something.
    let busy: &[f64] = if keeps_time(&disks) { &[] } else { thread_cpu.as_slice() };
    warn_of_generator(busy, io_wq_cpu, steal, &mut judgements);
    warnings.extend_from_slice(&judgements);
    for (number, end) in ends.iter().enumerate() {
        if let Some(leftover) = end.as_ref().and_then(|end| end.leftover.as_ref()) {
            warnings.push(format!("engine thread {number}: {leftover}"));
        }
    }
    let times = |time: fn(&ThreadEnd) -> Option<u64>| ends.iter().flatten().filter_map(time);
    Outcome {
        complete: reason.is_none(),
        reason,
        failed_disk,
        first_io: times(|end| end.first_io_ns).min().map(|ns| anchor.to_instant(ns)),
        last_completion: times(|end| end.last_completion_ns).max().map(|ns| anchor.to_instant(ns)),
        disks,
        thread_cpu,
        io_wq_cpu,
        steal,
        warnings,
        judgements,
        trace,
    }
}

fn disk_outcome(id: &str, totals: Totals, lanes: &[&LaneEnd]) -> DiskOutcome {
    let mut disk = DiskOutcome {
        id: id.to_owned(),
        ops: totals.ops,
        service: totals.service,
        flushes: totals.flushes,
        unfinished: lanes.iter().map(|lane| lane.unfinished).sum(),
        oldest_unfinished: Duration::from_nanos(lanes.iter().map(|lane| lane.oldest_unfinished_ns).max().unwrap_or(0)),
        pacing: pacing(lanes),
        ..DiskOutcome::default()
    };
    for lane in lanes {
        lane.errors.add_to(&mut disk.errors);
        let Some(bulk) = lane.bulk else { continue };
        let ops = if bulk.is_read { &mut disk.ops.read } else { &mut disk.ops.write };
        ops.count += bulk.count;
        ops.bytes += bulk.bytes;
        ops.errors += bulk.errors;
        disk.bytes += bulk.bytes;
        disk.elapsed = disk.elapsed.max(Duration::from_nanos(bulk.elapsed_ns));
        disk.verified_blocks += bulk.verified_blocks;
    }
    disk
}

/// A disk's stalls, from the times in which its lanes had no completion.
fn stalls(id: &str, lanes: &[&LaneEnd], threshold_ns: u64, window_ns: u64, warnings: &mut Vec<String>) -> Vec<Stall> {
    let dropped: u64 = lanes.iter().map(|lane| lane.quiets.dropped).sum();
    if dropped > 0 {
        warnings.push(format!("disk {id}: {dropped} stalls beyond the first {MAX_STALLS} of a thread are not listed"));
    }
    let quiets: Vec<&[Quiet]> = lanes.iter().map(|lane| lane.quiets.quiets.as_slice()).collect();
    let relative = |ns: u64| i64::try_from(i128::from(ns) - i128::from(window_ns)).unwrap_or(i64::MAX);
    let stall = |(from, to): (u64, u64)| Stall { start_ns: relative(from), length_ns: to - from };
    common_stalls(&quiets, threshold_ns).into_iter().map(stall).collect()
}

/// An open loop that started nearly all its I/Os in time.
fn keeps_time(disks: &[DiskOutcome]) -> bool {
    let paced = || disks.iter().filter_map(|disk| disk.pacing);
    let late: u64 = paced().map(|pacing| pacing.late + pacing.missed).sum();
    let intended: u64 = paced().map(|pacing| pacing.intended).sum();
    paced().next().is_some() && share(late, intended) <= LATE_SHARE
}

/// What to say where an open loop was late without being kept from it by I/Os in flight.
fn own_lateness(disk: &DiskOutcome, lanes: &[&LaneEnd]) -> Option<String> {
    let intended = disk.pacing?.intended;
    let late: u64 = lanes.iter().map(|lane| lane.late_though_free).sum();
    (share(late, intended) > LATE_SHARE).then(|| {
        format!(
            "disk {}: {late} of {intended} I/Os were late although fewer were in flight than may be: the generator limits the result",
            disk.id
        )
    })
}

fn pacing(lanes: &[&LaneEnd]) -> Option<Pacing> {
    let all = lanes.iter().filter_map(|lane| lane.pacing);
    all.reduce(|a, b| Pacing {
        intended: a.intended + b.intended,
        late: a.late + b.late,
        missed: a.missed + b.missed,
        largest_lag_ns: a.largest_lag_ns.max(b.largest_lag_ns),
    })
}

fn device_counters(disk: usize, snapshots: &(Option<Snapshot>, Option<Snapshot>)) -> Option<DeviceCounters> {
    let (before, after) = (snapshots.0.as_ref()?, snapshots.1.as_ref()?);
    Some(difference(before.devices[disk]?, after.devices[disk]?))
}

/// What to say where the device's requests are not our I/Os. The readings are a moment later than the window's ends, and what was in
/// flight at either belongs to one side only: both are allowed for.
fn compare_with_device(
    disk: &DiskOutcome,
    device: DeviceCounters,
    load: LoadShape,
    snapshots: &(Option<Snapshot>, Option<Snapshot>),
    window_ns: u64,
) -> Vec<String> {
    let mut differences = Vec::new();
    let (Some(before), Some(after)) = (&snapshots.0, &snapshots.1) else { return differences };
    let length = after.at_ns.saturating_sub(before.at_ns);
    let late = before.at_ns.saturating_sub(window_ns);
    for (what, ours, requests, merges) in [
        ("reads", disk.ops.read.count, device.reads, device.read_merges),
        ("writes", disk.ops.write.count, device.writes, device.write_merges),
    ] {
        #[expect(clippy::cast_precision_loss, reason = "a tolerance")]
        let allowed = ours as f64 * (DEVICE_TOLERANCE + share(late, length)) + f64::from(2 * load.outstanding);
        #[expect(clippy::cast_precision_loss, reason = "a tolerance")]
        let differs = ours.abs_diff(requests) as f64 > allowed;
        if differs {
            differences.push(format!(
                "disk {}: {ours} {what} of ours were {requests} requests at the device ({merges} merged): \
                 requests are split or merged, or the disk has another user",
                disk.id
            ));
        }
    }
    differences
}

fn reason(
    ends: &[Option<ThreadEnd>],
    shape: &Shape,
    window_whole: bool,
    disks: &[DiskOutcome],
    control: &Control,
) -> (Option<String>, Option<String>) {
    if let Some(failure) = control.failure() {
        return (Some(failure.reason), failure.disk.map(|disk| shape.disk_ids[disk].clone()));
    }
    if let Some(number) = ends.iter().position(Option::is_none) {
        return (Some(format!("engine thread {number} did not report: it hangs in the kernel")), None);
    }
    let whole = match shape.load {
        Some(_) => window_whole,
        None => disks.iter().map(|disk| disk.bytes).sum::<u64>() == shape.bytes_total,
    };
    let reason = match (whole, control.stopped()) {
        (true, _) => None,
        (false, true) => Some("stopped before its end".to_owned()),
        (false, false) => Some("an engine thread started late and did not load for the whole window".to_owned()),
    };
    (reason, None)
}

fn warn_of_generator(thread_cpu: &[f64], io_wq_cpu: f64, steal: Option<f64>, warnings: &mut Vec<String>) {
    for (number, cpu) in thread_cpu.iter().enumerate().filter(|(_, cpu)| **cpu > BUSY_THREAD) {
        let percent = cpu * 100.0;
        warnings.push(format!("engine thread {number} used {percent:.0} % of a CPU: the generator limits the result"));
    }
    if io_wq_cpu > IO_WQ_SHARE {
        warnings.push(format!("I/O was done by kernel worker threads (io-wq), which used {io_wq_cpu:.2} CPUs"));
    }
    if let Some(steal) = steal.filter(|&steal| steal > STEAL_SHARE) {
        let percent = steal * 100.0;
        warnings.push(format!("the hypervisor took {percent:.0} % of this machine's CPU time"));
    }
}

/// Less CPU time of io-wq workers than this, in CPUs, is the occasional request, not the way of the device.
const IO_WQ_SHARE: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(thread_cpu: &[f64], io_wq_cpu: f64, steal: Option<f64>) -> Vec<String> {
        let mut warnings = Vec::new();
        warn_of_generator(thread_cpu, io_wq_cpu, steal, &mut warnings);
        warnings
    }

    #[test]
    fn a_generator_is_warned_of_beyond_its_limits_and_not_at_them() {
        assert_eq!(judged(&[0.9, 0.1], 0.005, Some(0.05)), Vec::<String>::new());
        assert_eq!(judged(&[], 0.0, None), Vec::<String>::new());
        let all = judged(&[0.5, 0.97], 0.31, Some(0.2));
        let expected = [
            "engine thread 1 used 97 % of a CPU: the generator limits the result",
            "I/O was done by kernel worker threads (io-wq), which used 0.31 CPUs",
            "the hypervisor took 20 % of this machine's CPU time",
        ];
        assert_eq!(all, expected);
    }

    fn paced(late: u64, missed: u64) -> DiskOutcome {
        let pacing = Some(Pacing { intended: 1000, late, missed, largest_lag_ns: 0 });
        DiskOutcome { id: "disk".to_owned(), pacing, ..DiskOutcome::default() }
    }

    #[test]
    fn only_an_open_loop_that_is_in_time_may_poll() {
        assert!(keeps_time(&[paced(5, 5)]));
        assert!(!keeps_time(&[paced(0, 0), paced(20, 1)]));
        assert!(!keeps_time(&[DiskOutcome::default()]), "a closed loop does not poll");
    }

    #[test]
    fn lateness_with_room_for_more_in_flight_is_the_generators() {
        let said = |late_though_free| {
            let lane = LaneEnd { late_though_free, ..LaneEnd::default() };
            own_lateness(&paced(500, 0), &[&lane, &lane])
        };
        assert_eq!(said(5), None);
        assert!(said(6).unwrap().starts_with("disk disk: 12 of 1000 I/Os were late although"));
    }

    fn snapshot(at_ns: u64) -> Option<Snapshot> {
        Some(Snapshot { at_ns, devices: Vec::new(), io_wq_ns: std::collections::HashMap::new(), steal: None })
    }

    #[test]
    fn a_device_may_differ_by_a_thousandth_and_what_is_in_flight() {
        let load = LoadShape {
            precondition_seconds: 0,
            sample_seconds: 10,
            outstanding: 4,
            open_loop: false,
            stall_threshold_ns: 1,
        };
        let mut disk = DiskOutcome::default();
        disk.ops.read.count = 1_000_000;
        let differs = |reads: u64, late_ns: u64| {
            let device = DeviceCounters { reads, ..DeviceCounters::default() };
            let snapshots = (snapshot(late_ns), snapshot(10_000_000_000 + late_ns));
            !compare_with_device(&disk, device, load, &snapshots, 0).is_empty()
        };
        // 1,000 are a thousandth, 8 may be in flight at the window's ends.
        for (apart, expected) in [(0, false), (1_008, false), (1_010, true)] {
            assert_eq!(differs(1_000_000 + apart, 0), expected, "{apart} more");
            assert_eq!(differs(1_000_000 - apart, 0), expected, "{apart} fewer");
        }
        assert!(!differs(1_002_000, 10_000_000), "readings that are a thousandth late");
    }
}
