//! Open loops: what was asked, and how well it was kept.

use worker_protocol::{DiskFinished, Rate};

use crate::case::{CaseInput, WorkerFinished, WorkerInput};
use crate::export::{Op, Pacing};
use crate::throughput::to_f64;
use crate::totals::micros;

/// The achieved rate may differ from the one asked by this share before a warning says so.
pub(crate) const RATE_TOLERANCE: f64 = 0.01;

/// Late and missed I/Os together may be this share of those intended before a warning says so.
const LATE_SHARE: f64 = 0.01;

/// Standard deviations of a Poisson process' count that are chance.
const POISSON_SIGMAS: f64 = 3.0;

/// I/Os a second that one of a worker's `disks` is asked for.
pub(crate) fn disk_iops(rate: &Rate, disks: usize) -> f64 {
    if rate.per_disk { rate.iops } else { rate.iops / to_f64(u64::try_from(disks.max(1)).unwrap_or(u64::MAX)) }
}

/// I/Os a second that a worker is asked for.
fn worker_iops(rate: &Rate, disks: usize) -> f64 {
    disk_iops(rate, disks) * to_f64(u64::try_from(disks).unwrap_or(u64::MAX))
}

/// One disk's pacing; none in a closed loop.
pub(crate) fn of_disk(case: &CaseInput, disk: &DiskFinished, disks: usize) -> Option<Pacing> {
    let rate = case.rate.as_ref()?;
    let pacing = disk.pacing.unwrap_or_default();
    Some(Pacing {
        asked_iops: disk_iops(rate, disks),
        intended: pacing.intended,
        late: pacing.late,
        missed: pacing.missed,
        largest_lag_us: micros(pacing.largest_lag_ns),
    })
}

/// A worker's pacing over the disks that it reported; none in a closed loop.
pub(crate) fn of_worker(case: &CaseInput, worker: &WorkerInput) -> Option<Pacing> {
    let rate = case.rate.as_ref()?;
    let disks = worker.finished.iter().flat_map(|finished| &finished.disks);
    let start = nothing(worker_iops(rate, worker.disks.len()));
    Some(disks.filter_map(|disk| of_disk(case, disk, worker.disks.len())).fold(start, add))
}

/// The pacing of all workers of a case; none in a closed loop.
pub(crate) fn of_case(case: &CaseInput) -> Option<Pacing> {
    case.rate.as_ref()?;
    let workers = case.workers.iter().filter_map(|worker| of_worker(case, worker));
    Some(workers.fold(nothing(0.0), |sum, worker| {
        let asked_iops = sum.asked_iops + worker.asked_iops;
        Pacing { asked_iops, ..add(sum, worker) }
    }))
}

/// Whether a worker ran an open loop and started nearly all its I/Os in time.
pub(crate) fn keeps_time(finished: &WorkerFinished) -> bool {
    let paced = || finished.disks.iter().filter_map(|disk| disk.pacing);
    let late = paced().fold(0_u64, |sum, disk| sum.saturating_add(disk.late).saturating_add(disk.missed));
    let intended = paced().fold(0_u64, |sum, disk| sum.saturating_add(disk.intended));
    paced().next().is_some() && to_f64(late) <= to_f64(intended) * LATE_SHARE
}

fn nothing(asked_iops: f64) -> Pacing {
    Pacing { asked_iops, intended: 0, late: 0, missed: 0, largest_lag_us: 0.0 }
}

/// Counts added up, the largest lag of both; what was asked stays.
fn add(sum: Pacing, other: Pacing) -> Pacing {
    Pacing {
        asked_iops: sum.asked_iops,
        intended: sum.intended.saturating_add(other.intended),
        late: sum.late.saturating_add(other.late),
        missed: sum.missed.saturating_add(other.missed),
        largest_lag_us: sum.largest_lag_us.max(other.largest_lag_us),
    }
}

/// What the reader of an open loop's figures must know. `all` are the cluster's figures over `seconds`.
pub(crate) fn warnings(case: &CaseInput, pacing: Option<&Pacing>, all: Option<&Op>, seconds: f64) -> Vec<String> {
    let (Some(rate), Some(pacing)) = (&case.rate, pacing) else { return Vec::new() };
    let disks: usize = case.workers.iter().map(|worker| worker.disks.len()).sum();
    let achieved = rate_difference(rate, pacing, all, seconds, disks);
    let lateness =
        (to_f64(pacing.late.saturating_add(pacing.missed)) > to_f64(pacing.intended) * LATE_SHARE).then(|| {
            format!(
                "open loop: of {} I/Os, {} started late (by up to {:.1} ms) and {} not at all",
                pacing.intended,
                pacing.late,
                pacing.largest_lag_us / 1e3,
                pacing.missed
            )
        });
    achieved.into_iter().chain(lateness).collect()
}

/// Says where the achieved rate is not the one asked: by more than [`RATE_TOLERANCE`], and by more I/Os than chance (Poisson arrivals) or
/// where the first of each disk falls (equal gaps) can explain.
fn rate_difference(rate: &Rate, pacing: &Pacing, all: Option<&Op>, seconds: f64, disks: usize) -> Option<String> {
    if seconds <= 0.0 {
        return None;
    }
    let (asked, achieved) = (pacing.asked_iops, all.map_or(0.0, |op| op.iops));
    let expected = asked * seconds;
    let chance =
        if rate.poisson { POISSON_SIGMAS * expected.sqrt() } else { to_f64(u64::try_from(disks).unwrap_or(u64::MAX)) };
    let apart = (achieved - asked).abs();
    (apart > asked * RATE_TOLERANCE && apart * seconds > chance).then(|| {
        let percent = apart / asked * 100.0;
        let side = if achieved < asked { "below" } else { "above" };
        format!("open loop: {asked:.1} IOPS were asked, {achieved:.1} achieved ({percent:.1} % {side})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pacing(asked_iops: f64) -> Pacing {
        nothing(asked_iops)
    }

    fn op(iops: f64) -> Op {
        Op { count: 1, bytes: 1, iops, mib_per_s: 0.0, errors: 0, over_range: 0, latency_us: None }
    }

    #[test]
    fn a_rate_a_worker_is_divided_among_its_disks() {
        let rate = |per_disk| Rate { iops: 900.0, per_disk, poisson: false };
        assert_eq!((disk_iops(&rate(false), 3), worker_iops(&rate(false), 3)), (300.0, 900.0));
        assert_eq!((disk_iops(&rate(true), 3), worker_iops(&rate(true), 3)), (900.0, 2700.0));
        assert_eq!(disk_iops(&rate(false), 0), 900.0);
    }

    #[test]
    fn a_rate_off_by_more_than_a_percent_is_said_and_chance_is_not() {
        let fixed = Rate { iops: 1000.0, per_disk: true, poisson: false };
        let said = |rate: &Rate, achieved: f64, seconds| {
            rate_difference(rate, &pacing(1000.0), Some(&op(achieved)), seconds, 2)
        };
        assert_eq!(said(&fixed, 991.0, 60.0), None);
        assert_eq!(
            said(&fixed, 985.0, 60.0).unwrap(),
            "open loop: 1000.0 IOPS were asked, 985.0 achieved (1.5 % below)"
        );
        assert!(said(&fixed, 1015.0, 60.0).unwrap().contains("1.5 % above"));
        let poisson = Rate { poisson: true, ..fixed };
        assert_eq!(said(&poisson, 985.0, 10.0), None, "10,000 arrivals are 100 more or less by chance");
        assert!(said(&poisson, 985.0, 3600.0).is_some());
        let slow = Rate { iops: 0.05, per_disk: true, poisson: false };
        assert_eq!(rate_difference(&slow, &pacing(0.1), Some(&op(0.0)), 10.0, 2), None, "two disks, no I/O due yet");
        assert!(rate_difference(&fixed, &pacing(1000.0), None, 10.0, 2).unwrap().contains("100.0 % below"));
    }
}
