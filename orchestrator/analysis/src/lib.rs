//! Merging, comparing and judging results. Pure functions.
//!
//! [`Evaluation`] turns what the workers of a case delivered into its figures and its verdict.

pub mod case;
mod clock;
mod disk;
mod evaluation;
pub mod export;
mod generator;
mod open_loop;
pub mod steady;
pub mod throughput;
pub mod totals;
mod warnings;
mod worker;

pub use evaluation::Evaluation;
