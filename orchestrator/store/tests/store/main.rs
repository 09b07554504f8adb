//! The store against real files: cases, runs, and databases that are not what they should be.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod accounts;
mod cases;
mod deletion;
mod files;
mod runs;
mod support;
