//! Where the pages get their runs from.

use analysis::export::{Case, Export, FORMAT, Run};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde::Serialize;
use store::RunFilter;
use utoipa::ToSchema;
use uuid::Uuid;

/// Why a source could not answer; shown on the error page with its sources. A [`store::StoreError`] that refuses is told apart.
pub type SourceError = Box<dyn std::error::Error + Send + Sync>;

/// An answer that takes time.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, SourceError>>;

/// A run with all that was measured, whose cases are decoded one at a time: a long run is never whole in memory.
pub struct Measured {
    /// The run.
    pub run: Run,
    /// Its cases, in the order they ran.
    pub cases: Cases,
}

/// Cases as they are decoded.
pub type Cases = Box<dyn Iterator<Item = Result<Case, SourceError>> + Send>;

impl Measured {
    /// All of it at once, which takes tens of milliseconds for a long run.
    ///
    /// # Errors
    /// A case that cannot be decoded.
    pub fn whole(self) -> Result<Export, SourceError> {
        Ok(Export { format: FORMAT.to_owned(), run: self.run, cases: self.cases.collect::<Result<_, _>>()? })
    }
}

impl From<Export> for Measured {
    fn from(export: Export) -> Self {
        Self { run: export.run, cases: Box::new(export.cases.into_iter().map(Ok)) }
    }
}

/// The runs that the pages show: the store, or something like it in a test.
pub trait RunSource: Send + Sync + 'static {
    /// The runs that a filter lets through, newest first.
    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> Answer<'a, Vec<RunSummary>>;

    /// A run with all that was measured; none where there is no such run. Of a case that goes on, the figures so far, without its
    /// seconds.
    fn load_export(&self, id: Uuid) -> Answer<'_, Option<Measured>>;

    /// The same as a report needs it: the hosts' load may be left out, since it is shown apart.
    fn load_report(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        Box::pin(async move { self.load_export(id).await?.map(Measured::whole).transpose() })
    }

    /// A run with the one case at `place` in the plan's order, from 0, or with none.
    fn load_case(&self, id: Uuid, place: u32) -> Answer<'_, Option<Export>> {
        Box::pin(async move {
            let export = self.load_report(id).await?;
            Ok(export.map(|export| {
                let case = usize::try_from(place).ok().and_then(|place| export.cases.get(place).cloned());
                Export { cases: case.into_iter().collect(), ..export }
            }))
        })
    }

    /// The same as a report without the series by second and the samples of hosts and storage, which are most of a long run.
    fn load_figures(&self, id: Uuid) -> Answer<'_, Option<Export>> {
        self.load_report(id)
    }

    /// The plan of a run as it was written; none where there is no such run.
    fn plan_yaml(&self, id: Uuid) -> Answer<'_, Option<String>> {
        Box::pin(async move { Ok(self.load_figures(id).await?.map(|export| export.run.plan_yaml)) })
    }

    /// One run of the list; none where there is no such run.
    fn summary(&self, id: Uuid) -> Answer<'_, Option<RunSummary>>;

    /// Replaces what the engineer says of a run.
    fn set_note<'a>(&'a self, id: Uuid, note: &'a str) -> Answer<'a, ()>;

    /// Deletes a run that has ended; where its journal does not say that all was removed, only if `forget_left`.
    fn delete_run(&self, id: Uuid, forget_left: bool) -> Answer<'_, ()>;

    /// How far a run is that goes on in this process; none for any other.
    fn progress(&self, _id: Uuid) -> BoxFuture<'_, Option<Progress>> {
        Box::pin(std::future::ready(None))
    }
}

/// A run, as the list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct RunSummary {
    /// UUID.
    pub id: Uuid,
    /// Name of the plan.
    pub name: String,
    /// `planned`, `provisioning`, … `done`, `failed`, `cancelled` or `stopped`, as in the export.
    pub state: String,
    /// False where anything that the plan asked for is missing or incomplete.
    pub complete: bool,
    /// Why the run failed or is incomplete.
    pub reason: Option<String>,
    /// When it was started.
    #[schema(value_type = String, format = DateTime)]
    pub started: Timestamp,
    /// When it ended; none while it goes on.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished: Option<Timestamp>,
    /// What the engineer says of it.
    pub note: String,
    /// Its plan was tried at its smallest: what was measured is no result.
    pub rehearsal: bool,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Progress {
    /// What is being done, for a person: `256MiB: fill`, `1GiB: 4k-random-read, sample`.
    #[schema(example = "1GiB: 4k-random-read, sample")]
    pub phase: String,
    /// The case begun last and how many there are, counted from 1: `case 3 of 10`. Null before the first.
    #[schema(example = "case 3 of 10")]
    pub case: Option<String>,
    /// Share of the run that is done, 0 to 100.
    pub percent: f64,
    /// I/Os a second, the last second.
    pub iops: Option<f64>,
    /// MiB a second, the last second.
    pub mib_per_s: Option<f64>,
    /// Estimated seconds to the end of the run.
    pub seconds_left: Option<f64>,
    /// Somebody ends it early: `stop`, once the case that is being measured has its result, or `cancel`, at once.
    pub ending: Option<String>,
}
