//! The run: state machine, journal, recovery; the fleet of workers.
//!
//! [`execute`] takes a plan through all its states on a [`hypervisor::Hypervisor`] and leaves everything it measured in the
//! [`store::Store`]. [`recover`] ends what an orchestrator that was killed left behind.

mod arrivals;
mod case;
mod deployment;
mod environment;
mod executor;
mod fill;
pub mod fleet;
mod halt;
mod ingest;
mod job;
mod journal;
mod progress;
mod recovery;
mod seed;
mod tracker;
mod workload_spec;

pub use executor::{Place, Request, RunError, execute};
pub use progress::Progress;
pub use recovery::{Recovered, recover};
