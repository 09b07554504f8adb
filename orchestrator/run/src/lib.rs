//! The run: state machine, journal, recovery; the fleet of workers.
//!
//! [`execute`] takes a plan through all its states on a [`hypervisor::Hypervisor`] and leaves everything it measured in the
//! [`store::Store`]. [`canary()`] takes one worker on each host through the whole chain. [`recover`] ends what an orchestrator that was
//! killed left behind.

mod arrivals;
mod brake;
mod canary;
mod case;
mod deployment;
mod environment;
mod executor;
mod fill;
pub mod fleet;
mod halt;
mod image;
mod ingest;
mod job;
mod journal;
mod leftovers;
mod progress;
mod recovery;
mod seed;
mod tracker;
mod watch;
mod workload_spec;

pub use brake::Brake;
pub use canary::{CanaryHost, CanaryReport, canary};
pub use deployment::Link;
pub use environment::begun_elsewhere;
pub use executor::{Place, Request, RunError, RunOptions, execute};
pub use image::{FirstAddress, WorkerImage};
pub use leftovers::{clean_up, leftovers, run_of_fleet};
pub use progress::Progress;
pub use recovery::{Recovered, recover};
pub use watch::{GUARD_BLIND_LIMIT, GUARD_INTERVAL, HOST_SAMPLE_INTERVAL, OBSERVE_INTERVAL, WatchTimes};
