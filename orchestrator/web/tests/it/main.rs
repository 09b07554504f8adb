//! The crate as its users see it: pages and exports of sample runs, the router, and a real browser.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on stops where it is")]

#[path = "../samples/mod.rs"]
mod samples;
#[path = "../samples/source.rs"]
mod source;

mod access;
mod accounts;
mod browser;
mod client;
mod clusters;
mod compare;
mod driver;
mod exports;
mod listener;
mod report;
mod router;
mod stored;
mod walk;
mod workshop;
