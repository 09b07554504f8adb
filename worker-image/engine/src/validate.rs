//! What a job must be before anything is opened, and what its disks must allow.

use crate::disk::{Disk, same_path_twice};
use crate::error::PrepareError;
use crate::limits::{
    MAX_BLOCK_BYTES, MAX_DISKS, MAX_IOPS, MAX_OUTSTANDING, MAX_RATIO, MAX_REISSUE_BATCH, MAX_SECONDS, MAX_STREAMS,
    MAX_THREADS, MAX_TRACED_IOS, MIN_BLOCK_BYTES, MIN_IOPS,
};
use crate::offsets::Positions;
use crate::spec::{DiskSpec, Job, LoadSpec, Pattern, Rate, Work, Workload};

type Check = Result<(), PrepareError>;

fn refuse(field: &str, problem: String) -> Check {
    Err(PrepareError::Spec { field: field.to_owned(), problem })
}

fn within<T: PartialOrd + std::fmt::Display>(field: &str, value: T, low: T, high: T) -> Check {
    if value >= low && value <= high {
        return Ok(());
    }
    refuse(field, format!("{value} is not in {low} to {high}"))
}

/// Checks everything that can be checked without the disks.
pub(crate) fn check_job(job: &Job) -> Check {
    within("threads", job.threads, 1, MAX_THREADS)?;
    within("disks", job.disks.len(), 1, MAX_DISKS)?;
    within("tuning.reissue_batch", job.tuning.reissue_batch, 1, MAX_REISSUE_BATCH)?;
    within("tuning.first_rung", job.tuning.first_rung, 0, crate::ring::RUNGS - 1)?;
    within("tuning.trace_ios", job.tuning.trace_ios, 0, MAX_TRACED_IOS)?;
    if let Some(path) = same_path_twice(&job.disks) {
        return refuse("disks", format!("{} is there twice", path.display()));
    }
    let mut ids = std::collections::HashSet::new();
    if let Some(disk) = job.disks.iter().find(|disk| !ids.insert(&disk.id)) {
        return refuse("disks", format!("the id {} is there twice", disk.id));
    }
    job.disks.iter().try_for_each(check_region)?;
    match &job.work {
        Work::Fill(fill) => {
            check_block("fill.block_bytes", fill.block_bytes)?;
            within("fill.outstanding", fill.outstanding, 1, MAX_OUTSTANDING)
        }
        Work::Verify(verify) => {
            check_block("verify.block_bytes", verify.block_bytes)?;
            within("verify.blocks", verify.blocks, 1, u32::MAX)?;
            job.disks.iter().try_for_each(|disk| check_room(disk, verify.block_bytes))
        }
        Work::Load(load) => check_load(load, &job.disks),
    }
}

fn check_region(disk: &DiskSpec) -> Check {
    let region = &disk.region;
    if region.start >= region.end || region.end > disk.size_bytes {
        let problem =
            format!("the region {} to {} is not a part of its {} bytes", region.start, region.end, disk.size_bytes);
        return Err(PrepareError::Disk { disk: disk.id.clone(), problem });
    }
    Ok(())
}

fn check_block(field: &str, block_bytes: u64) -> Check {
    within(field, block_bytes, MIN_BLOCK_BYTES, MAX_BLOCK_BYTES)?;
    if block_bytes.is_multiple_of(MIN_BLOCK_BYTES) {
        return Ok(());
    }
    refuse(field, format!("{block_bytes} is not a multiple of {MIN_BLOCK_BYTES}"))
}

fn check_room(disk: &DiskSpec, block_bytes: u64) -> Check {
    let length = disk.region.end - disk.region.start;
    if length >= block_bytes {
        return Ok(());
    }
    let problem = format!("its region of {length} bytes is smaller than a block of {block_bytes}");
    Err(PrepareError::Disk { disk: disk.id.clone(), problem })
}

fn check_load(load: &LoadSpec, disks: &[DiskSpec]) -> Check {
    let workload = &load.workload;
    within("precondition_seconds", load.precondition_seconds, 0, MAX_SECONDS)?;
    within("sample_seconds", load.sample_seconds, 1, MAX_SECONDS)?;
    check_block("block_bytes", workload.block_bytes)?;
    within("read_percent", workload.read_percent, 0, 100)?;
    within("outstanding", workload.outstanding, 1, MAX_OUTSTANDING)?;
    within("compression_ratio", workload.compression_ratio, 1.0, MAX_RATIO)?;
    within("duplication_ratio", workload.duplication_ratio, 1.0, MAX_RATIO)?;
    if workload.flush_every_writes == Some(0) {
        return refuse("flush_every_writes", "0; the least is 1".to_owned());
    }
    if workload.stall_threshold.is_zero() {
        return refuse("stall_threshold", "0; it must be longer".to_owned());
    }
    if let Some(align) = workload.align_bytes {
        check_block("align_bytes", align)?;
    }
    if let Some(Rate { iops, .. }) = workload.rate {
        within("rate.iops", iops, MIN_IOPS, MAX_IOPS)?;
    }
    check_pattern(&workload.pattern)?;
    disks.iter().try_for_each(|disk| check_positions(workload, disk))
}

fn check_pattern(pattern: &Pattern) -> Check {
    match *pattern {
        Pattern::Random | Pattern::Permutation => Ok(()),
        Pattern::Sequential { streams } => within("pattern.streams", streams, 1, MAX_STREAMS),
        Pattern::HotSpot { io_percent, space_percent } => {
            within("pattern.io_percent", io_percent, 0.0, 100.0)?;
            if space_percent > 0.0 && space_percent < 100.0 {
                return Ok(());
            }
            refuse("pattern.space_percent", format!("{space_percent} is not between 0 and 100"))
        }
    }
}

fn check_positions(workload: &Workload, disk: &DiskSpec) -> Check {
    let length = disk.region.end - disk.region.start;
    if let Some(range) = &workload.sub_range {
        if range.start >= range.end || range.end > length {
            return refuse(
                "sub_range",
                format!("{} to {} is not a part of a region of {length} bytes", range.start, range.end),
            );
        }
    } else {
        check_room(disk, workload.block_bytes)?;
    }
    let positions = Positions::of(workload, &disk.region);
    let needed = match workload.pattern {
        Pattern::Sequential { streams } => u64::from(streams),
        Pattern::HotSpot { .. } => 2,
        Pattern::Random | Pattern::Permutation => 1,
    };
    if positions.count >= needed {
        return Ok(());
    }
    let problem = format!("{} blocks fit into the range; the pattern needs {needed}", positions.count);
    Err(PrepareError::Disk { disk: disk.id.clone(), problem })
}

/// Checks what depends on the open disk: direct transfers have a granularity.
pub(crate) fn check_granularity(work: &Work, disk: &Disk) -> Check {
    let unit = disk.granularity;
    let region = &disk.spec.region;
    let mut lengths = vec![("region start", region.start)];
    match work {
        // The last block is shorter, so the end counts.
        Work::Fill(fill) => lengths.extend([("fill.block_bytes", fill.block_bytes), ("region end", region.end)]),
        Work::Verify(verify) => lengths.push(("verify.block_bytes", verify.block_bytes)),
        Work::Load(load) => {
            lengths.push(("block_bytes", load.workload.block_bytes));
            lengths.extend(load.workload.align_bytes.map(|align| ("align_bytes", align)));
            lengths.extend(load.workload.sub_range.as_ref().map(|range| ("sub_range", range.start)));
        }
    }
    match lengths.into_iter().find(|(_, length)| !length.is_multiple_of(unit)) {
        None => Ok(()),
        Some((what, length)) => {
            let problem = format!("{what} {length} is not a multiple of its smallest transfer, {unit} bytes");
            Err(PrepareError::Disk { disk: disk.spec.id.clone(), problem })
        }
    }
}
