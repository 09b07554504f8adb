//! The web interface: pages, a REST API, and the report with its exports (HTML, JSON, CSV).
//!
//! [`report_html`], [`export_json`] and [`cases_csv`] are pure: a run's [`Export`](analysis::export::Export) in, text out.
//! [`router`] answers requests; [`serve`] is its listener. Every route is in one list with who may use it ([`routes`]), and every
//! request goes through one guard.

mod accounts;
mod api;
mod app;
mod assets;
mod auth;
mod clusters;
mod compare;
mod export;
mod format;
mod frame;
mod guard;
mod hosts;
mod listener;
mod live;
mod pages;
mod plans;
mod problem;
mod report;
mod routes;
mod server;
mod source;
mod static_files;
mod store_source;
mod streamed;
mod tls;
mod visitor;

pub use app::{App, Parts};
pub use clusters::{
    Attempt, Clusters, Connection, Existing, Fault, FaultKind, Inventory, Look, Network, NewConnection, Node, Seen,
    Storage, Trust, Wanted,
};
pub use export::{CSV_COLUMNS, cases_csv, export_json};
pub use hosts::AllowedHosts;
pub use listener::{CONNECTION_LIMIT, HEADER_PATIENCE, serve};
pub use live::{
    Beat, CaseSecond, DiskBeat, Finding, Findings, Health, Hub, Layout, LiveEnd, LiveProgress, Onlooker, Prospect,
    SoFar, StartError, Workshop,
};
pub use report::report_html;
pub use routes::{Access, Route};
pub use server::{description, router, routes};
pub use source::{Answer, Cases, Measured, Progress, RunSource, RunSummary, SourceError};
pub use store_source::StoreSource;
pub use tls::{TlsError, acceptor, certificate_files};

/// Why a page, an export or the interface itself could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template failed to render.
    #[error("the page could not be rendered")]
    Template(#[from] askama::Error),
    /// A case cannot be read.
    #[error("the figures could not be read")]
    Read(#[source] SourceError),
    /// A value cannot be written as JSON.
    #[error("the figures could not be written as JSON")]
    Json(#[from] serde_json::Error),
    /// A value cannot be written as CSV.
    #[error("the figures could not be written as CSV")]
    Csv(#[from] csv::Error),
    /// What is made does not take it, or the client is gone.
    #[error("it could not be written")]
    Write(#[from] std::io::Error),
    /// A password cannot be hashed.
    #[error("passwords cannot be hashed: {0}")]
    Password(String),
    /// The system gives no random numbers.
    #[error("the system has no random numbers")]
    Random(#[from] getrandom::Error),
}
