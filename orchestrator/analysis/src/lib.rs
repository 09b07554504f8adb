//! Merging, comparing and judging results. Pure functions.
//!
//! [`case::Evaluation`] turns what the workers of a case delivered into its figures and its verdict.

pub mod case;
mod clock;
mod cluster;
mod devices;
pub mod export;
pub mod steady;
pub mod throughput;
pub mod totals;
mod verdict;
