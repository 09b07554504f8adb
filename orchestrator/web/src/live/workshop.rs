//! What the pages ask of whoever carries out runs.

use std::sync::Arc;

use analysis::export::How;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use plan::TestPlan;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::hub::Hub;
use crate::clusters::{Clusters, Wanted};
use crate::source::Answer;

/// Starts and stops runs; one goes on at a time.
pub trait Workshop: Send + Sync + 'static {
    /// What its viewers follow.
    fn hub(&self) -> &Arc<Hub>;

    /// Starts a plan, given as validated and as written. Answers once the run is recorded; it then goes on by itself.
    fn start(&self, plan: TestPlan, yaml: String) -> BoxFuture<'_, Result<Uuid, StartError>>;

    /// Asks a run to end before its plan is through, for `by`: what was measured is kept, its workers and disks are removed. A run that is
    /// being stopped can still be cancelled. False where it does not go on here.
    fn end<'a>(&'a self, id: Uuid, how: How, by: &'a str) -> BoxFuture<'a, bool>;

    /// What a run's journal does not say to be removed, for a person. No place is looked at.
    fn left(&self, _id: Uuid) -> Answer<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// Removes what a run that has ended left; answers what could not be removed, and why. It goes on where nobody waits for it any more.
    fn tear_down(&self, _id: Uuid) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async { Err("this server only shows runs: use `fourcorners cleanup`".to_owned()) })
    }

    /// What stands in the way of a plan, or should be known before its start. Nothing is changed.
    fn findings<'a>(&'a self, plan: &'a TestPlan, wanted: Wanted) -> BoxFuture<'a, Findings>;

    /// The connections to clusters; none where runs are only shown.
    fn clusters(&self) -> Option<&dyn Clusters> {
        None
    }
}

/// Why a plan was not started. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Another run goes on.
    #[error("the run {name} goes on, and there is one at a time")]
    Busy {
        /// Its id, once it has one.
        id: Option<Uuid>,
        /// Name of its plan.
        name: String,
    },
    /// This server only shows runs, or is about to stop.
    #[error("{0}")]
    Closed(&'static str),
    /// The place refuses the plan, or the run cannot be recorded.
    #[error("{0}")]
    Refused(String),
}

/// What the place of the workers says to a plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The findings; of an earlier look while another goes on.
    pub list: Vec<Finding>,
    /// When a cluster was looked at; none where no cluster was, or was not yet.
    pub looked: Option<Timestamp>,
    /// A look goes on: ask again.
    pub pending: bool,
}

/// Something that stands in a plan's way, or that the engineer must know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Finding {
    /// `blocker`, `warning` or `note`.
    pub severity: &'static str,
    /// What was found and what is needed.
    pub message: String,
    /// What to do.
    pub remedy: String,
}

/// Shows what others do, and starts nothing: beside a run of the command line.
#[derive(Debug, Default)]
pub struct Onlooker {
    hub: Arc<Hub>,
}

impl Onlooker {
    /// Of a hub that somebody else feeds.
    #[must_use]
    pub fn new(hub: Arc<Hub>) -> Self {
        Self { hub }
    }
}

impl Workshop for Onlooker {
    fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    fn start(&self, _: TestPlan, _: String) -> BoxFuture<'_, Result<Uuid, StartError>> {
        let closed = "this server belongs to a run of the command line and starts no other: use `fourcorners serve`";
        Box::pin(async move { Err(StartError::Closed(closed)) })
    }

    fn end<'a>(&'a self, _: Uuid, _: How, _: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }

    fn findings<'a>(&'a self, _: &'a TestPlan, _: Wanted) -> BoxFuture<'a, Findings> {
        Box::pin(std::future::ready(Findings::default()))
    }
}
