//! io_uring load generator for block devices and files.
//!
//! [`prepare`] checks a [`Job`], opens its disks and builds its rings; [`Prepared::start`] runs it; [`Running::join`] gives the
//! [`Outcome`]. Meanwhile [`Event`]s come once a second.
//!
//! What is exact: the window [T0, T1) starts `precondition_seconds` after the start; an I/O counts in the second in which its
//! completion is reaped; totals, seconds and per-disk latencies cover the same I/Os. Latencies are nanoseconds from right
//! before the submitting system call to the reaping of the completion; in an open loop, from the intended start.

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
};
pub use prepared::{Prepared, Running, Stopper, prepare};
pub use probe::{DiskKind, DiskProbe, probe_disk};
pub use report::{DiskSettings, Report};
pub use spec::{DiskSpec, FillSpec, Job, LoadSpec, OnError, Pattern, Rate, Tuning, VerifySpec, Work, Workload};
