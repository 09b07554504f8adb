//! What fields allow beside each other: regions, names, unwritten reads, buffers. Each check uses the fields that
//! could be read, so that one bad field hides as little as possible.

use std::collections::HashMap;

use crate::decode::Fields;
use crate::limits::BUFFER_SHARE_OF_MEMORY;
use crate::model::{AccessPattern, Footprint, Initialise, MIB, RegionRange, Workers, Workload, region_bytes, share};
use crate::problem::{Place, Problems};
use crate::size;
use crate::workload::PlacedWorkload;

/// A footprint and where it stands.
#[derive(Debug)]
pub(crate) struct PlacedFootprint {
    pub(crate) footprint: Footprint,
    pub(crate) place: Place,
    pub(crate) path: String,
}

/// What could be read of a plan.
pub(crate) struct Parts<'a> {
    pub(crate) fields: &'a Fields<'a>,
    pub(crate) workers: Option<&'a Workers>,
    pub(crate) footprints: &'a [PlacedFootprint],
    pub(crate) workloads: &'a [PlacedWorkload],
    pub(crate) initialise: Option<Initialise>,
    pub(crate) read_unwritten: Option<bool>,
    /// Writes in flight a disk, and bytes a write.
    pub(crate) fill: Option<(u32, u64)>,
}

/// Makes every check.
pub(crate) fn all(parts: &Parts<'_>, problems: &mut Problems) {
    distinct_footprints(parts, problems);
    distinct_names(parts, problems);
    unwritten_reads(parts, problems);
    if let Some(workers) = parts.workers {
        let total_disks = u64::from(workers.count) * u64::from(workers.disks);
        regions(parts, total_disks, problems);
        blocks_fit_regions(parts, total_disks, problems);
        buffers_fit_memory(parts, workers, problems);
    }
}

fn distinct_footprints(parts: &Parts<'_>, problems: &mut Problems) {
    let mut seen: HashMap<u64, &PlacedFootprint> = HashMap::new();
    for placed in parts.footprints {
        if let Some(first) = seen.get(&placed.footprint.bytes) {
            let found = format!("{}, as at line {}", placed.footprint.label, first.place.line);
            problems.add(placed.place, &placed.path, found, "each footprint once", None);
        } else {
            seen.insert(placed.footprint.bytes, placed);
        }
    }
}

fn distinct_names(parts: &Parts<'_>, problems: &mut Problems) {
    let mut seen: HashMap<&str, &PlacedWorkload> = HashMap::new();
    for placed in parts.workloads {
        if let Some(first) = seen.get(&*placed.workload.name) {
            let found = format!("the name `{}`, as at line {}", placed.workload.name, first.name_place.line);
            let allowed = "each workload's name once (`{profile: …, name: …}` gives it another)";
            problems.add(placed.name_place, &format!("{}.name", placed.path), found, allowed, None);
        } else {
            seen.insert(&placed.workload.name, placed);
        }
    }
}

fn unwritten_reads(parts: &Parts<'_>, problems: &mut Problems) {
    let (Some(initialise), Some(read_unwritten)) = (parts.initialise, parts.read_unwritten) else { return };
    if initialise != Initialise::None {
        if read_unwritten {
            let allowed = "true only with initialise: none; here every byte is written before it is read";
            problems.add(parts.fields.place_of("read_unwritten"), "read_unwritten", "`true`", allowed, None);
        }
        return;
    }
    let reader = parts.workloads.iter().find(|placed| placed.workload.read_percent > 0);
    if let (false, Some(reader)) = (read_unwritten, reader) {
        let found = format!("`none`, while workload {} reads bytes that were never written", reader.workload.name);
        let allowed = "full-write or zero; none only with read_unwritten: true, and the report then says so";
        problems.add(parts.fields.place_of("initialise"), "initialise", found, allowed, None);
    }
}

/// Each footprint has a region, and no two have the same one.
fn regions(parts: &Parts<'_>, total_disks: u64, problems: &mut Problems) {
    let mut seen: HashMap<u64, &Footprint> = HashMap::new();
    for PlacedFootprint { footprint, place, path } in parts.footprints {
        let region = region_bytes(footprint.bytes, total_disks);
        if region == 0 {
            let found = format!("{} over {total_disks} data disks", footprint.label);
            let smallest = size::exact(total_disks * MIB);
            problems.add(*place, path, found, format!("at least {smallest}, 1 MiB a data disk"), None);
        } else if let Some(first) = seen.get(&region).filter(|first| first.bytes != footprint.bytes) {
            let region = size::exact(region);
            let found = format!("{}, the same region of {region} a data disk as {}", footprint.label, first.label);
            let step = size::exact(total_disks * MIB);
            let allowed = format!("footprints that differ by {step} (1 MiB a data disk) or more");
            problems.add(*place, path, found, allowed, None);
        } else {
            seen.insert(region, footprint);
        }
    }
}

/// Every part of the smallest region that a workload uses holds a block.
fn blocks_fit_regions(parts: &Parts<'_>, total_disks: u64, problems: &mut Problems) {
    let regions = parts.footprints.iter().map(|placed| region_bytes(placed.footprint.bytes, total_disks));
    let Some(region) = regions.filter(|region| *region > 0).min() else { return };
    for placed in parts.workloads {
        let workload = &placed.workload;
        let (part, what) = smallest_part(workload, region);
        let (block, step) = (size::exact(workload.block_bytes), step(workload));
        if step > part {
            let spaced = format!(" every {}", size::exact(step));
            let spaced = if step > workload.block_bytes { &*spaced } else { "" };
            let found = format!("a block of {block}{spaced}");
            let allowed = format!("at most {}, {what} of {}", size::approximate(part), size::exact(region));
            problems.add(placed.block_place, &format!("{}.block", placed.path), found, allowed, None);
        }
    }
}

/// Bytes from one block's start to the next one's; those of a sequential stream do not overlap.
fn step(workload: &Workload) -> u64 {
    let (block, align) = (workload.block_bytes, workload.align_bytes.unwrap_or(workload.block_bytes));
    match workload.pattern {
        AccessPattern::Sequential { .. } => block.next_multiple_of(align),
        AccessPattern::Random | AccessPattern::Permutation | AccessPattern::HotSpot { .. } => block.max(align),
    }
}

/// Bytes of the smallest part of a region that a workload keeps to, and what that part is.
fn smallest_part(workload: &Workload, region: u64) -> (u64, String) {
    let used = workload.sub_range(region).map_or(region, |range| range.end - range.start);
    let whole = match workload.range {
        Some(RegionRange { from_percent, to_percent }) => {
            format!("{from_percent} % to {to_percent} % of the smallest region,")
        }
        None => "the smallest region,".to_owned(),
    };
    match workload.pattern {
        AccessPattern::Random | AccessPattern::Permutation | AccessPattern::Sequential { streams: 1 } => (used, whole),
        AccessPattern::Sequential { streams } => {
            (used / u64::from(streams), format!("one of {streams} streams in {whole}"))
        }
        AccessPattern::HotSpot { space_percent, .. } => {
            let hot = share(used, space_percent);
            if hot <= used - hot {
                (hot, format!("the hot {space_percent} % of {whole}"))
            } else {
                (used - hot, format!("the rest beside the hot {space_percent} % of {whole}"))
            }
        }
    }
}

fn buffers_fit_memory(parts: &Parts<'_>, workers: &Workers, problems: &mut Problems) {
    let limit = workers.memory_bytes / BUFFER_SHARE_OF_MEMORY;
    let mut check = |place: Place, path: String, outstanding: u32, block: u64| {
        let bytes = u64::from(workers.disks) * u64::from(outstanding) * block;
        if bytes > limit {
            let (disks, block) = (workers.disks, size::exact(block));
            let buffers = size::approximate(bytes);
            let found = format!("{outstanding} × {block} on {disks} disks, {buffers} of buffers a worker");
            let allowed = format!("at most {}, half of workers.memory", size::approximate(limit));
            problems.add(place, &path, found, allowed, None);
        }
    };
    for placed in parts.workloads {
        let path = format!("{}.outstanding_per_disk", placed.path);
        check(placed.outstanding_place, path, placed.workload.outstanding_per_disk, placed.workload.block_bytes);
    }
    if let (Some((outstanding, block)), Some(_)) = (parts.fill, parts.initialise.filter(|how| *how != Initialise::None))
    {
        check(parts.fields.place_of("fill"), "fill.outstanding_per_disk".to_owned(), outstanding, block);
    }
}
