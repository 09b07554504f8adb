//! The web report and its exports (HTML, JSON, CSV).
//!
//! [`report_html`], [`export_json`] and [`cases_csv`] are pure: a run's [`Export`](analysis::export::Export) in, text out.
//! [`router`] and [`serve`] show the runs of a [`RunSource`] with the same templates.

mod assets;
mod export;
mod format;
mod report;
mod server;
mod source;

pub use export::{CSV_COLUMNS, cases_csv, export_json};
pub use report::report_html;
pub use server::{AllowedHosts, router, serve};
pub use source::{Progress, RunSource, RunSummary, SourceError};

/// Why a page or an export could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template failed to render.
    #[error("the page could not be rendered")]
    Template(#[from] askama::Error),
    /// A value cannot be written as JSON.
    #[error("the figures could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// A value cannot be written as CSV.
    #[error("the figures could not be written as CSV")]
    Csv(#[from] csv::Error),
}
