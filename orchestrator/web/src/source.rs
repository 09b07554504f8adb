//! Where the pages get their runs from.

use std::future::Future;

use analysis::export::Export;
use jiff::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// Why a source could not answer; shown on the error page with its sources.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// The runs that the pages show: the store, or something like it in a test.
pub trait RunSource: Send + Sync + 'static {
    /// The newest runs first, `limit` at most.
    fn list_runs(&self, limit: u32) -> impl Future<Output = Result<Vec<RunSummary>, SourceError>> + Send;

    /// A run with all that was measured; none where there is no such run.
    fn load_export(&self, id: Uuid) -> impl Future<Output = Result<Option<Export>, SourceError>> + Send;

    /// How far a run is that goes on in this process; none for any other.
    fn progress(&self, _id: Uuid) -> impl Future<Output = Option<Progress>> + Send {
        std::future::ready(None)
    }
}

/// A run, as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    /// UUID.
    pub id: Uuid,
    /// Name of the plan.
    pub name: String,
    /// As in [`analysis::export::Run::state`].
    pub state: String,
    /// False where anything that the plan asked for is missing or incomplete.
    pub complete: bool,
    /// Why the run failed or is incomplete.
    pub reason: Option<String>,
    /// When it was started.
    pub started: Timestamp,
    /// When it ended; none while it goes on.
    pub finished: Option<Timestamp>,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// What is being done, for a person: `filling`, `sampling`.
    pub phase: String,
    /// The case that it is done for: `4k-random-read on 1GiB`.
    pub case: Option<String>,
    /// Share of the run that is done, 0 to 100.
    pub percent: f64,
    /// I/Os a second, the last second.
    pub iops: Option<f64>,
    /// MiB a second, the last second.
    pub mib_per_s: Option<f64>,
    /// Estimated seconds to the end of the run.
    pub seconds_left: Option<f64>,
}
