//! The crate as its users see it: pages and exports of sample runs, the router, and a real browser.

#[path = "../samples/mod.rs"]
mod samples;

mod browser;
mod exports;
mod report;
mod router;
