//! io_uring load generator for block devices and files.
//!
//! [`prepare`] checks a [`Job`], opens its disks and builds its rings; [`Prepared::start`] runs it; [`Running::join`] gives the
//! [`Outcome`]. Meanwhile [`Event`]s come once a second. A job fills disks, reads a fill back, or applies a workload.
//!
//! # What is exact
//!
//! - The window [T0, T1) starts `precondition_seconds` after the start and lasts `sample_seconds`; the load does not pause at T0.
//! - An I/O counts in the second in which its completion is reaped. Totals, seconds and per-disk latencies cover the same I/Os.
//! - A latency runs from right before the submitting system call (after the data were made) to the reaping of the completion,
//!   ns. In an open loop it runs from the intended start, and the service time stands beside it.
//! - I/Os in flight at T1 are counted with the age of the oldest, then waited for, within a bound.
//! - A failed or short transfer is an error by kind and never an I/O.
//!
//! # How it works
//!
//! A thread has a ring, which it builds, registers and drops itself, and the lanes (disks, or parts of disks) that fall to it.
//! Its loop reaps with a minimum of one and issues again after a few completions ([`limits::REISSUE_BATCH`]) so that the device
//! never waits for a long batch. In the loop there is no allocation, no waiting lock and no system call but io_uring_enter. Once
//! a second it swaps its histograms for empty ones; a collector thread merges the full ones and tells the second.
//!
//! `unsafe` is in two modules: `arena` (the buffers' mapping) and `ring` (all of io_uring). A buffer is the kernel's from the
//! push of its request to the reaping of its completion, and a ring that ends with requests in flight leaks itself and them.
//!
//! ```no_run
//! use load_engine::{DiskSpec, Job, LoadSpec, Tuning, Work, Workload, prepare};
//!
//! # fn main() -> Result<(), load_engine::PrepareError> {
//! let disk = DiskSpec { id: "disk".into(), path: "/dev/sdb".into(), size_bytes: 1 << 30, region: 0..1 << 30, data_seed: 1 };
//! let workload = Workload { outstanding: 16, ..Workload::default() };
//! let work = Work::Load(LoadSpec { workload, precondition_seconds: 10, sample_seconds: 60 });
//! let job = Job { disks: vec![disk], threads: 2, work, seed: 1, own_kernel: false, tuning: Tuning::default() };
//! let (sender, seconds) = std::sync::mpsc::channel();
//! let running = prepare(job)?.start(std::time::Instant::now(), sender);
//! for event in seconds {
//!     println!("{event:?}");
//! }
//! let outcome = running.join();
//! println!("{:?} ns at the 99th percentile", outcome.disks[0].ops.read.latencies.percentile_ns(99.0));
//! # Ok(())
//! # }
//! ```

mod arena;
mod bulk;
mod clock;
mod collect;
mod control;
mod data;
mod device;
mod disk;
mod error;
mod exchange;
mod lanes;
pub mod limits;
mod load;
mod offsets;
mod outcome;
mod pacer;
mod prepared;
mod probe;
mod random;
mod report;
mod ring;
mod snapshot;
mod spec;
mod summary;
mod tally;
mod thread;
mod validate;
mod watch;

pub use error::{PrepareError, ProbeError};
pub use outcome::{
    DeviceCounters, DiskOutcome, DiskSecond, Event, IoErrors, OpTotals, Ops, Outcome, Pacing, Phase, Second, Stall,
    TracedIo,
};
pub use prepared::{Prepared, Running, Stopper, prepare};
pub use probe::{DiskKind, DiskProbe, probe_disk};
pub use report::{DiskSettings, Report};
pub use spec::{DiskSpec, FillSpec, Job, LoadSpec, OnError, Pattern, Rate, Tuning, VerifySpec, Work, Workload};
