//! The web report and its exports (HTML, JSON, CSV).

mod assets;
mod format;
mod report;

pub use report::report_html;

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
