//! The store against real files: cases, runs, and databases that are not what they should be.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod cases;
mod files;
mod runs;
mod support;
