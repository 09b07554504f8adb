//! Named limits of a plan: what is allowed, and why beyond it is refused.

use std::ops::RangeInclusive;

/// Largest plan file, bytes. Real plans are a few KiB; beyond this somebody named the wrong file.
pub const MAX_YAML_BYTES: usize = 1 << 20;

/// Deepest nesting of lists, and of mappings, in a plan. The deepest field is at level four.
pub const MAX_NESTING: usize = 16;

/// Values in a plan after its aliases are expanded. Bounds the memory that a few nested aliases could ask for.
pub const MAX_VALUES: usize = 20_000;

/// Problems listed for one plan; further ones are only counted.
pub const MAX_PROBLEMS: usize = 100;

/// Characters of the plan's name.
pub const NAME_CHARS: RangeInclusive<usize> = 1..=100;

/// Characters of a workload's name: it becomes part of file names and links.
pub const WORKLOAD_NAME_CHARS: RangeInclusive<usize> = 1..=64;

/// Workers. The orchestrator holds a session and a per-second histogram for each.
pub const WORKERS: RangeInclusive<u64> = 1..=1024;

/// Data disks a worker. A provider may allow fewer (31 on some hypervisors) and says so itself.
pub const DISKS: RangeInclusive<u64> = 1..=64;

/// Virtual CPUs a worker.
pub const VCPUS: RangeInclusive<u64> = 1..=128;

/// Memory a worker, bytes: the image runs from memory, so it does not boot below the lower bound.
pub const MEMORY_BYTES: RangeInclusive<u64> = 256 << 20..=1 << 40;

/// Share of a worker's memory that I/O buffers may take, as a divisor.
pub const BUFFER_SHARE_OF_MEMORY: u64 = 2;

/// Footprint, bytes, up to 1 EB. The lower bound is a region of 1 MiB a data disk.
pub const FOOTPRINT_BYTES: RangeInclusive<u64> = 1 << 20..=1_000_000_000_000_000_000;

/// Footprints of a plan.
pub const FOOTPRINTS: RangeInclusive<usize> = 1..=16;

/// Workloads of a plan.
pub const WORKLOADS: RangeInclusive<usize> = 1..=64;

/// Bytes an I/O of a workload.
pub const BLOCK_BYTES: RangeInclusive<u64> = 512..=16 << 20;

/// What a workload's block is a multiple of, bytes: the smallest logical block of a disk.
pub const BLOCK_STEP: u64 = 512;

/// Bytes a write of the fill: a power of two that divides 1 MiB, so that every region is whole blocks.
pub const FILL_BLOCK_BYTES: RangeInclusive<u64> = 4096..=1 << 20;

/// I/Os in flight a disk.
pub const OUTSTANDING: RangeInclusive<u64> = 1..=1024;

/// Sequential streams a disk.
pub const STREAMS: RangeInclusive<u64> = 1..=256;

/// Read percentage.
pub const READ_PERCENT: RangeInclusive<u64> = 0..=100;

/// Writes a disk between two flushes.
pub const FLUSH_EVERY_WRITES: RangeInclusive<u64> = 1..=1_000_000;

/// I/Os a second a disk of an open loop.
pub const IOPS_PER_DISK: RangeInclusive<f64> = 0.01..=1_000_000.0;

/// I/Os a second a worker of an open loop.
pub const IOPS_PER_WORKER: RangeInclusive<f64> = 0.01..=10_000_000.0;

/// Errors of a worker after which it stops.
pub const ERRORS: RangeInclusive<u64> = 1..=1_000_000;

/// Stall threshold, seconds: below a second a busy device would stall all the time, beyond ten minutes none would.
pub const STALL_SECONDS: RangeInclusive<u64> = 1..=600;

/// A part of a region, percent of it.
pub const RANGE_PERCENT: RangeInclusive<f64> = 0.0..=100.0;

/// Compression and duplication ratios of written data; 1 is incompressible, or all blocks distinct.
pub const RATIO: RangeInclusive<f64> = 1.0..=100.0;

/// Share of the I/Os that go to a hot spot, percent.
pub const HOT_SPOT_IO_PERCENT: RangeInclusive<f64> = 0.01..=100.0;

/// Share of the space that is hot, percent: something stays cold.
pub const HOT_SPOT_SPACE_PERCENT: RangeInclusive<f64> = 0.01..=99.99;

const WEEK_SECONDS: u64 = 7 * 24 * 60 * 60;

/// Settling and preconditioning, seconds, up to 7 days.
pub const PAUSE_SECONDS: RangeInclusive<u64> = 0..=WEEK_SECONDS;

/// Sample, seconds, up to 7 days: per-second series are kept in full.
pub const SAMPLE_SECONDS: RangeInclusive<u64> = 1..=WEEK_SECONDS;

/// How long a canary is waited for, seconds: less no VM boots in, more nobody waits for.
pub const CANARY_WAIT_SECONDS: RangeInclusive<u64> = 10..=60 * 60;

/// Seed: what the store's signed 64-bit column holds.
pub const SEED: RangeInclusive<u64> = 0..=i64::MAX.unsigned_abs();

/// Groups of limits of a local VM's disks.
pub const THROTTLES: RangeInclusive<usize> = 1..=64;

/// I/Os a second that a disk of a local VM is limited to.
pub const THROTTLE_IOPS: RangeInclusive<u64> = 1..=100_000_000;

/// Bytes a second that a disk of a local VM is limited to.
pub const THROTTLE_BYTES_PER_SECOND: RangeInclusive<u64> = 4096..=1 << 40;

/// Characters of a name in a Proxmox VE cluster: a node, a storage, a bridge, a pool.
pub const CLUSTER_NAME_CHARS: RangeInclusive<usize> = 1..=100;

/// Characters of a saved connection's name.
pub const CONNECTION_NAME_CHARS: RangeInclusive<usize> = 1..=64;

/// Nodes that a plan names.
pub const NODES: RangeInclusive<usize> = 1..=64;

/// Workers that a plan puts on one node; none is a node that stays empty.
pub const WORKERS_ON_NODE: RangeInclusive<u64> = 0..=1024;

/// VLAN tag.
pub const VLAN: RangeInclusive<u64> = 1..=4094;

/// MTU of the workers' network cards, bytes: the least that IPv4 asks for to the largest frames of common switches.
pub const MTU: RangeInclusive<u64> = 576..=9216;

/// VMIDs, as Proxmox VE has them.
pub const VMID: RangeInclusive<u64> = 100..=999_999_999;

/// Characters of the beginning of VM names: with fleet and worker behind it, a name stays a DNS label.
pub const NAME_PREFIX_CHARS: RangeInclusive<usize> = 1..=20;

/// Tasks of ours at a time; more would only wait for Proxmox VE's locks.
pub const TASKS: RangeInclusive<u64> = 1..=64;

/// Prefix of a static network, bits.
pub const PREFIX_BITS: RangeInclusive<u64> = 8..=30;

/// Workers with static addresses: so many the worker image's bootstrap data has room for.
pub const STATIC_WORKERS: u32 = 128;

/// Free space that the guard keeps, percent of the storage; all of it would leave nothing to test.
pub const MIN_FREE_PERCENT: RangeInclusive<f64> = 0.0..=99.0;
