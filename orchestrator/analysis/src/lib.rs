//! Merging, comparing and judging results. Pure functions.

pub mod export;
