//! A validated plan. Whoever holds a [`TestPlan`] may rely on what the fields' docs promise.

use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

use crate::proxmox::{Guard, OnRestart, ProxmoxTarget};

/// One MiB; regions are aligned down to it.
pub const MIB: u64 = 1 << 20;

/// A test plan: where, with how many workers, on which footprints, and which workloads.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestPlan {
    /// Name of the test, 1 to 100 characters.
    pub name: String,
    /// Where the workers run.
    pub target: Target,
    /// What ends the load so that it does no harm; none where the target is nobody else's.
    pub guard: Option<Guard>,
    /// Whether one worker a node is tried before the others are made.
    pub canary: bool,
    /// How long a canary may take from its start to its enrolment, seconds.
    pub canary_wait_seconds: u32,
    /// How many workers, and what each has.
    pub workers: Workers,
    /// Footprints as asked, ascending, distinct.
    pub footprints: Vec<Footprint>,
    /// How data disks are initialised before they are measured.
    pub initialise: Initialise,
    /// Writes in flight a disk during the fill.
    pub fill_outstanding_per_disk: u32,
    /// Bytes a write during the fill.
    pub fill_block_bytes: u64,
    /// Idle time after each fill, before its first case, seconds.
    pub settle_seconds: u32,
    /// Preconditioning of each case, whole seconds.
    pub precondition_seconds: u32,
    /// Timed sample of each case, whole seconds, at least 1.
    pub sample_seconds: u32,
    /// The cases of each footprint, in order; names are distinct.
    pub workloads: Vec<Workload>,
    /// One deployment for all footprints, or one for each.
    pub deploy: Deploy,
    /// What to do when a worker is lost.
    pub on_worker_loss: OnWorkerLoss,
    /// What to do with the run where the orchestrator ends before it does.
    pub on_restart: OnRestart,
    /// Reading bytes that were never written is intended; every figure then says so.
    pub read_unwritten: bool,
    /// Seed of everything random in the run; drawn where the plan names none.
    pub seed: Option<u64>,
    /// A plan at its smallest ([`TestPlan::rehearsal`]): what it measures is no result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub rehearsal: bool,
}

/// A footprint as asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Bytes under test, all data disks together, as asked.
    pub bytes: u64,
    /// As the plan spells it (`1.6TB`).
    pub label: String,
}

/// Where the workers run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "provider", rename_all = "snake_case")]
pub enum Target {
    /// Processes or VMs on this machine; data disks are files.
    Local(LocalTarget),
    /// VMs of a Proxmox VE cluster.
    Proxmox(Box<ProxmoxTarget>),
}

/// The embedded local provider's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalTarget {
    /// Directory of the data disk files; none is a directory under the data directory.
    pub disk_dir: Option<PathBuf>,
    /// What each worker is.
    #[serde(flatten)]
    pub isolation: Isolation,
}

/// What a local worker is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "isolation", rename_all = "snake_case")]
pub enum Isolation {
    /// A process of this program.
    Process,
    /// A QEMU VM that boots the worker image.
    Vm {
        /// The worker image; none is the one beside the program or in the build directory.
        image: Option<PathBuf>,
        /// Limits of the data disks: the first for each worker's first disk and so on, from the beginning again where there are fewer.
        throttle: Vec<Throttle>,
    },
}

/// Limits of a data disk of a local VM: a known truth to measure. At least one is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Throttle {
    /// I/Os a second, reads and writes together.
    pub iops: Option<u64>,
    /// Bytes a second, reads and writes together.
    pub bytes_per_second: Option<u64>,
}

/// The workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Workers {
    /// How many, at least 1.
    pub count: u32,
    /// Virtual CPUs each; engine threads of a local process.
    pub vcpus: u32,
    /// Memory each, bytes.
    pub memory_bytes: u64,
    /// Data disks each, at least 1.
    pub disks: u32,
}

/// How data disks are initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initialise {
    /// Every byte is written with non-zero incompressible data.
    FullWrite,
    /// Every byte is written with zeros.
    Zero,
    /// Nothing is written.
    None,
}

/// Deployments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deploy {
    /// One deployment serves all footprints; each next one fills only the bytes that are new.
    Once,
    /// The workers are deployed anew for each footprint.
    PerFootprint,
}

/// What to do when a worker is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnWorkerLoss {
    /// The case is incomplete and the run ends as failed.
    Fail,
    /// The case is incomplete and the run goes on with the workers that are left.
    Continue,
}

/// A workload profile as it is used in this plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Workload {
    /// Name, unique in the plan (`4k-random-read`).
    pub name: String,
    /// Profile it came from (`published/4k-random-read`), if not inline.
    pub profile: Option<String>,
    /// Bytes an I/O: a multiple of 512, 512 B to 16 MiB.
    pub block_bytes: u64,
    /// Where the I/Os go.
    pub pattern: AccessPattern,
    /// Part of each region that is used; none is all of it.
    pub range: Option<RegionRange>,
    /// Offsets are multiples of this many bytes from the start of the range, a multiple of 512; none is `block_bytes`.
    pub align_bytes: Option<u64>,
    /// Share of reads, percent (0 to 100).
    pub read_percent: u32,
    /// I/Os in flight a disk, 1 to 1024.
    pub outstanding_per_disk: u32,
    /// Open loop; none is a closed loop.
    pub rate: Option<Rate>,
    /// Original size / compressed size of what is written, at least 1.0.
    pub compression_ratio: f64,
    /// Blocks written / distinct blocks, at least 1.0.
    pub duplication_ratio: f64,
    /// Flush after this many writes of an engine thread to a disk.
    pub flush_every_writes: Option<u32>,
    /// What a worker does after a failed I/O.
    pub on_error: OnError,
    /// No completion for longer than this on a disk with I/O in flight is a stall, whole seconds, at least 1.
    pub stall_seconds: u32,
}

impl Workload {
    /// The bytes of a region that the workload uses, from its start; none where it uses all of it. Both ends are whole blocks, rounded
    /// down, so that they suit any device that takes the block itself; an end of 100 % is the end of the region.
    #[must_use]
    pub fn sub_range(&self, region_bytes: u64) -> Option<Range<u64>> {
        let range = self.range?;
        let bound = |percent: f64| {
            if percent >= 100.0 {
                region_bytes
            } else {
                share(region_bytes, percent) / self.block_bytes * self.block_bytes
            }
        };
        Some(bound(range.from_percent)..bound(range.to_percent))
    }
}

/// `percent` of `bytes`, rounded down; exact enough to a block from 512 bytes up to 4 EiB.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "percent is 0 to 100, so the share is not above `bytes`"
)]
pub(crate) fn share(bytes: u64, percent: f64) -> u64 {
    (bytes as f64 * percent / 100.0) as u64
}

/// A part of each region.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RegionRange {
    /// Where it starts, percent of the region, 0 to below 100.
    pub from_percent: f64,
    /// Where it ends, percent of the region, above `from_percent`, at most 100.
    pub to_percent: f64,
}

/// What a worker does after a failed or short I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
pub enum OnError {
    /// End its part of the case.
    Stop,
    /// Count it and go on.
    Continue,
    /// Go on until it has this many.
    StopAfter {
        /// Errors of the worker in the case, at least 1.
        errors: u32,
    },
}

/// Where the I/Os of a disk go.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AccessPattern {
    /// Uniform random blocks of the region.
    Random,
    /// Ascending blocks in `streams` equal parts of the region.
    Sequential {
        /// Streams a disk, at least 1.
        streams: u32,
    },
    /// Each block once in a random order, then in another.
    Permutation,
    /// `io_percent` of the I/Os go to the first `space_percent` of the region.
    HotSpot {
        /// Share of the I/Os, percent.
        io_percent: f64,
        /// Share of the region, percent.
        space_percent: f64,
    },
}

/// An open loop's rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// I/Os a second.
    #[serde(flatten)]
    pub iops: RateIops,
    /// Exponential gaps (Poisson arrivals); else equal ones.
    pub poisson: bool,
}

/// I/Os a second of an open loop, and of what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RateIops {
    /// Of each disk.
    IopsPerDisk(f64),
    /// Of each worker, divided evenly among its disks.
    IopsPerWorker(f64),
}

/// The part of each data disk that `footprint_bytes` over `total_disks` (at least 1) use, aligned down to 1 MiB.
pub(crate) fn region_bytes(footprint_bytes: u64, total_disks: u64) -> u64 {
    footprint_bytes / total_disks / MIB * MIB
}

impl TestPlan {
    /// Data disks of all workers together.
    #[must_use]
    pub fn total_disks(&self) -> u64 {
        u64::from(self.workers.count) * u64::from(self.workers.disks)
    }

    /// The part of each data disk that a footprint uses, bytes: footprint / (workers × disks), aligned down to 1 MiB.
    #[must_use]
    pub fn region_bytes(&self, footprint: &Footprint) -> u64 {
        region_bytes(footprint.bytes, self.total_disks())
    }

    /// What a footprint really measures, bytes: region × workers × disks.
    #[must_use]
    pub fn effective_bytes(&self, footprint: &Footprint) -> u64 {
        self.region_bytes(footprint) * self.total_disks()
    }

    /// Size of each data disk, bytes: the largest footprint's region.
    #[must_use]
    pub fn disk_bytes(&self) -> u64 {
        self.footprints.iter().map(|footprint| self.region_bytes(footprint)).max().unwrap_or(0)
    }
}
