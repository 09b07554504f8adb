//! How disks are divided among engine threads.

use crate::offsets::Part;

/// A thread's part in a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LanePlan {
    /// Index of the disk in the job.
    pub(crate) disk: usize,
    pub(crate) part: Part,
    /// I/Os in flight.
    pub(crate) outstanding: u32,
}

/// The lanes of each thread. With at least as many disks as threads, a disk is on one thread; else disks are split, but never
/// into more parts than `max_parts` (its outstanding I/Os, its streams, its blocks). Threads without lanes are left out.
pub(crate) fn divide(disks: usize, threads: u32, outstanding: u32, max_parts: u32) -> Vec<Vec<LanePlan>> {
    let threads = threads as usize;
    let mut plans = vec![Vec::new(); threads];
    let mut thread = 0;
    for disk in 0..disks {
        let wanted = (threads / disks + usize::from(disk < threads % disks)).max(1);
        let parts = u32::try_from(wanted).unwrap_or(u32::MAX).min(max_parts).max(1);
        for part in 0..parts {
            let share = outstanding / parts + u32::from(part < outstanding % parts);
            plans[thread % threads].push(LanePlan { disk, part: Part { part, parts }, outstanding: share });
            thread += 1;
        }
    }
    plans.retain(|lanes: &Vec<LanePlan>| !lanes.is_empty());
    plans
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_disk_keeps_its_outstanding_and_threads_are_even(
            disks in 1_usize..20, threads in 1_u32..40, outstanding in 1_u32..70, most in 1_u32..70,
        ) {
            let plans = divide(disks, threads, outstanding, most.min(outstanding));
            prop_assert!(plans.len() <= threads as usize);
            for disk in 0..disks {
                let lanes: Vec<_> = plans.iter().flatten().filter(|lane| lane.disk == disk).collect();
                prop_assert_eq!(lanes.iter().map(|lane| lane.outstanding).sum::<u32>(), outstanding);
                prop_assert!(lanes.iter().all(|lane| lane.outstanding > 0));
                prop_assert!(lanes.iter().all(|lane| lane.part.parts as usize == lanes.len()));
                prop_assert!(lanes.len() <= most as usize);
            }
            let (fewest, most) = (plans.iter().map(Vec::len).min(), plans.iter().map(Vec::len).max());
            prop_assert!(most.unwrap_or(0) - fewest.unwrap_or(0) <= 1, "{:?}", plans);
        }
    }
}
