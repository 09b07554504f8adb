//! A plan at its smallest: everything that it does, in seconds and megabytes, before it is given a night.

use crate::check::fits;
use crate::limits::NAME_CHARS;
use crate::model::{Footprint, MIB, TestPlan};
use crate::size;

/// The part of each data disk that a rehearsal's first footprint uses, bytes, where the workloads need no more: written within seconds,
/// and room for a few thousand random blocks.
const REGION_BYTES: u64 = 16 * MIB;

/// The longest times of a rehearsal, seconds.
const SETTLE_SECONDS: u32 = 1;
const PRECONDITION_SECONDS: u32 = 2;
const SAMPLE_SECONDS: u32 = 3;

/// Before the plan's name, so that a rehearsal is told from a run wherever only names are shown.
const PREFIX: &str = "Rehearsal of ";

impl TestPlan {
    /// The plan to rehearse this one with: the same place, workers, disks and workloads, a canary first, each time cut to seconds, and the
    /// smallest footprint that holds its workloads. Where the plan has several, there is a second one, so that growing is tried, too.
    /// What it measures is no result.
    #[must_use]
    pub fn rehearsal(&self) -> Self {
        if self.rehearsal {
            return self.clone();
        }
        Self {
            name: PREFIX.chars().chain(self.name.chars()).take(*NAME_CHARS.end()).collect(),
            canary: true,
            footprints: self.smallest_footprints(),
            settle_seconds: self.settle_seconds.min(SETTLE_SECONDS),
            precondition_seconds: self.precondition_seconds.min(PRECONDITION_SECONDS),
            sample_seconds: self.sample_seconds.min(SAMPLE_SECONDS),
            rehearsal: true,
            ..self.clone()
        }
    }

    fn smallest_footprints(&self) -> Vec<Footprint> {
        let regions: Vec<u64> = self.footprints.iter().map(|footprint| self.region_bytes(footprint)).collect();
        let smallest = regions.first().copied().unwrap_or(MIB);
        let needed = std::iter::successors(Some(REGION_BYTES), |region| region.checked_mul(2))
            .find(|region| *region >= smallest || self.workloads.iter().all(|workload| fits(workload, *region)));
        let first = needed.map_or(smallest, |needed| needed.min(smallest));
        // Larger than the first, since the plan's own second is larger than its first.
        let second = regions.get(1).map(|region| (*region).min(2 * first));
        let footprint = |region: u64| {
            let bytes = region * self.total_disks();
            Footprint { bytes, label: size::exact(bytes) }
        };
        std::iter::once(first).chain(second).map(footprint).collect()
    }
}
