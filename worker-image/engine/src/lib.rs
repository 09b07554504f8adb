//! io_uring load generator for block devices and files.
//!
//! [`prepare`] checks a [`Job`], opens its disks and builds its rings; [`Prepared::start`] runs it; [`Running::join`] gives the
//! [`Outcome`]. Meanwhile [`Event`]s come once a second.
//!
//! What is exact: the window [T0, T1) starts `precondition_seconds` after the start; an I/O counts in the second in which its
//! completion is reaped; totals, seconds and per-disk latencies cover the same I/Os. Latencies are nanoseconds from right
//! before the submitting system call to the reaping of the completion; in an open loop, from the intended start.

mod error;
pub mod limits;
mod outcome;
mod prepared;
mod probe;
mod report;
mod spec;

pub use error::{PrepareError, ProbeError};
pub use outcome::{
    DeviceCounters, DiskOutcome, DiskSecond, Event, IoErrors, OpTotals, Ops, Outcome, Pacing, Phase, Second, Stall,
};
pub use prepared::{Prepared, Running, Stopper, prepare};
pub use probe::{DiskKind, DiskProbe, probe_disk};
pub use report::{DiskSettings, Report};
pub use spec::{DiskSpec, FillSpec, Job, LoadSpec, OnError, Pattern, Rate, Tuning, VerifySpec, Work, Workload};
