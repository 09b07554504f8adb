//! The run: state machine, journal, recovery; the fleet of workers.

pub mod fleet;
