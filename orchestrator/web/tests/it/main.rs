//! The crate as its users see it: pages and exports of sample runs, the router, and a real browser.

#[path = "../samples/mod.rs"]
mod samples;
#[path = "../samples/source.rs"]
mod source;

mod browser;
mod exports;
mod report;
mod router;
