//! How much room a run's results take in the data directory.

use plan::TestPlan;

use crate::samples::DISK_SECOND_BYTES;

/// What the smallest run needs, bytes: the database, its write-ahead log, the report and the workers' logs.
pub const LEAST_ROOM_BYTES: u64 = 64 << 20;

/// Bytes that one second of one worker keeps for good: its row, its part of the cluster's, and the indexes.
const SECOND_BYTES: u64 = 256;

/// Bytes of a second's two histograms at most, as far as workloads were seen; they are deleted once their case is merged.
const HISTOGRAMS_BYTES: u64 = 8 << 10;

/// Bytes that the results of a plan take at most: all of its seconds, and the histograms of the case under way.
#[must_use]
pub fn room_needed(plan: &TestPlan) -> u64 {
    let cases = (plan.footprints.len() as u64).saturating_mul(plan.workloads.len() as u64);
    let seconds = u64::from(plan.precondition_seconds) + u64::from(plan.sample_seconds);
    let worker_seconds = seconds.saturating_mul(plan.workers.count.into());
    let until_merged = HISTOGRAMS_BYTES + u64::from(plan.workers.disks) * DISK_SECOND_BYTES as u64;
    LEAST_ROOM_BYTES
        .saturating_add(cases.saturating_mul(worker_seconds).saturating_mul(SECOND_BYTES))
        .saturating_add(worker_seconds.saturating_mul(until_merged))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_large_plans_need_more() {
        let plan =
            |example: &str| plan::parse(example, plan::example(example).unwrap(), &plan::Profiles::shipped()).unwrap();
        let (demo, large) = (room_needed(&plan("demo")), room_needed(&plan("proxmox")));
        assert!(demo < 2 * LEAST_ROOM_BYTES, "{demo}");
        // 16 workers, 10 cases of 90 minutes: 211 MiB for good, and 708 MiB of the case under way.
        assert!((900 << 20..1200 << 20).contains(&large), "{large}");
    }
}
