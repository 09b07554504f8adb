//! What fields allow beside each other: regions, names, unwritten reads, buffers. Each check uses the fields that
//! could be read, so that one bad field hides as little as possible.

use std::collections::HashMap;

use crate::decode::Fields;
use crate::limits::{BUFFER_SHARE_OF_MEMORY, STATIC_WORKERS};
use crate::model::{
    AccessPattern, Footprint, Initialise, MIB, RegionRange, Target, Workers, Workload, region_bytes, share,
};
use crate::problem::{Place, Problems};
use crate::proxmox::{Addressing, Nodes};
use crate::size;
use crate::workload::PlacedWorkload;
use crate::yaml::Kind;

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
    pub(crate) target: Option<&'a Target>,
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
        if let Some(Target::Proxmox(target)) = parts.target {
            nodes_hold_all_workers(parts, target.nodes.as_ref(), workers.count, problems);
            addresses_fit_their_network(parts, target.addressing, workers.count, problems);
        }
    }
}

/// Counts of workers per node add up.
fn nodes_hold_all_workers(parts: &Parts<'_>, nodes: Option<&Nodes>, workers: u32, problems: &mut Problems) {
    let Some(Nodes::Counts(counts)) = nodes else { return };
    let sum: u64 = counts.values().map(|count| u64::from(*count)).sum();
    if sum != u64::from(workers) {
        let found = format!("counts that add up to {sum}");
        let allowed = format!("counts that add up to workers.count, {workers}");
        problems.add(place_in_target(parts, "nodes"), "target.nodes", found, allowed, None);
    }
}

/// Every worker's static address is a host of the network, and so is the gateway, which no worker has.
fn addresses_fit_their_network(parts: &Parts<'_>, addressing: Addressing, workers: u32, problems: &mut Problems) {
    let Addressing::Static { first, prefix, gateway } = addressing else { return };
    let path = "target.addressing";
    let place = place_in_target(parts, "addressing");
    if workers > STATIC_WORKERS {
        let allowed = format!("at most {STATIC_WORKERS} workers; dhcp for more");
        problems.add(place, path, format!("static addresses for {workers} workers"), allowed, None);
        return;
    }
    let hosts = u32::MAX >> prefix;
    let is_host = |bits: u32| bits & !hosts == u32::from(first) & !hosts && bits & hosts != 0 && bits & hosts != hosts;
    let last = u32::from(first).checked_add(workers.saturating_sub(1));
    if !is_host(first.into()) || !last.is_some_and(is_host) {
        let found = format!("{workers} addresses from {first} on");
        let allowed = format!("hosts of one network of {prefix} bits: not its first or last address, none beyond it");
        problems.add(place, path, found, allowed, None);
        return;
    }
    let Some(gateway) = gateway else { return };
    let taken = last.is_some_and(|last| (u32::from(first)..=last).contains(&gateway.into()));
    if taken || !is_host(gateway.into()) {
        let allowed = "a host of the workers' network that no worker has";
        problems.add(place, "target.addressing.gateway", format!("`{gateway}`"), allowed, None);
    }
}

/// Where a field of the target stands.
fn place_in_target(parts: &Parts<'_>, name: &str) -> Place {
    let entries = match parts.fields.node("target").map(|node| &node.kind) {
        Some(Kind::Mapping(entries)) => entries.as_slice(),
        _ => &[],
    };
    let field = entries.iter().find(|(key, _)| &*key.name == name);
    field.map_or_else(|| parts.fields.place_of("target"), |(_, value)| value.place)
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

/// Whether every part of a region that a workload uses holds a block.
pub(crate) fn fits(workload: &Workload, region: u64) -> bool {
    step(workload) <= smallest_part(workload, region).0
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
