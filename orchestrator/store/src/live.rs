//! Reading what a run under way delivers, a little at a time.

use std::ops::Range;

use analysis::export::{Event, HostLoad, Second, StorageHealth};
use jiff::Timestamp;
use worker_protocol::Phase;

use crate::error::Fault;
use crate::export::cluster_seconds;
use crate::rows::{from_json, from_json_opt, time, time_opt};
use crate::samples::seconds_of_case;
use crate::{CaseId, CaseWorker, NewHostSample, RunId, Store, StoreError, StoredSecond, sql};

/// An event with its place in the store; later ones have larger places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Place, for [`Store::events_after`].
    pub id: i64,
    /// The event.
    pub event: Event,
}

/// The case of a run that was started last, as far as a live view needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCase {
    /// Id.
    pub id: CaseId,
    /// Place in the plan's order, from 0.
    pub ordinal: u32,
    /// Start of preconditioning; none before the workers were told.
    pub started: Option<Timestamp>,
    /// Preconditioning, whole seconds.
    pub precondition_seconds: u32,
    /// Window, whole seconds.
    pub sample_seconds: u32,
    /// Workers that it was given to, and whether each one's part is over.
    pub workers: Vec<(CaseWorker, bool)>,
    /// It is over, and its result is stored.
    pub ended: bool,
    /// The newest second of preconditioning that a worker has delivered.
    pub newest_precondition: Option<u32>,
    /// The newest second of the window that a worker has delivered.
    pub newest_sample: Option<u32>,
}

#[derive(sqlx::FromRow)]
struct LiveCaseRow {
    id: i64,
    ordinal: u32,
    started: Option<String>,
    precondition_seconds: u32,
    sample_seconds: u32,
    ended: bool,
    newest_precondition: Option<u32>,
    newest_sample: Option<u32>,
}

impl Store {
    /// At most `limit` events of a run after the one at `after`, in order; from the first one on with 0.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn events_after(&self, run: RunId, after: i64, limit: u32) -> Result<Vec<StoredEvent>, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::EVENTS_AFTER).bind(run.to_string()).bind(after).bind(limit);
            let rows: Vec<(i64, String, String, String)> = query.fetch_all(&self.inner.readers).await?;
            let event = |(id, at, level, message): (i64, String, String, String)| {
                Ok(StoredEvent { id, event: Event { at: time(&at, "events.at")?, level, message } })
            };
            rows.into_iter().map(event).collect()
        };
        self.named("reading events", read.await)
    }

    /// The case of a run that was started last; none before the first.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub async fn live_case(&self, run: RunId) -> Result<Option<LiveCase>, StoreError> {
        self.named("reading the case under way", self.try_live_case(run).await)
    }

    async fn try_live_case(&self, run: RunId) -> Result<Option<LiveCase>, Fault> {
        let query = sqlx::query_as(sql::LIVE_CASE).bind(run.to_string());
        let row: Option<LiveCaseRow> = query.fetch_optional(&self.inner.readers).await?;
        let Some(row) = row else { return Ok(None) };
        let workers: Vec<(String, String, bool)> =
            sqlx::query_as(sql::LIVE_CASE_WORKERS).bind(row.id).fetch_all(&self.inner.readers).await?;
        let workers = workers.into_iter().map(|(worker, disks, ended)| {
            Ok((CaseWorker { worker, disks: from_json(&disks, "case_workers.disks_json")? }, ended))
        });
        Ok(Some(LiveCase {
            id: CaseId(row.id),
            ordinal: row.ordinal,
            started: time_opt(row.started.as_deref(), "cases.started")?,
            precondition_seconds: row.precondition_seconds,
            sample_seconds: row.sample_seconds,
            workers: workers.collect::<Result<_, Fault>>()?,
            ended: row.ended,
            newest_precondition: row.newest_precondition,
            newest_sample: row.newest_sample,
        }))
    }

    /// Hosts and storage as a case saw them last; none where its place does not tell, or has not yet.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn latest_host_sample(&self, case: CaseId) -> Result<Option<NewHostSample>, StoreError> {
        let read = async {
            let query = sqlx::query_as(sql::LATEST_HOST_SAMPLE).bind(case.0);
            let row: Option<(String, String, Option<String>)> = query.fetch_optional(&self.inner.readers).await?;
            let Some((at, hosts, storage)) = row else { return Ok(None) };
            let hosts: Vec<HostLoad> = from_json(&hosts, "host_samples.hosts_json")?;
            let storage: Option<StorageHealth> = from_json_opt(storage.as_deref(), "host_samples.storage_json")?;
            Ok(Some(NewHostSample { at: time(&at, "host_samples.at")?, hosts, storage }))
        };
        self.named("reading the hosts' load", read.await)
    }

    /// What the reader of all of a run's figures must know, so far.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn run_warnings(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        let read = async {
            let query = sqlx::query_scalar(sql::SELECT_RUN_WARNINGS).bind(run.to_string());
            let text: Option<String> = query.fetch_optional(&self.inner.readers).await?;
            from_json(&text.ok_or_else(|| Fault::absent("run", run))?, "runs.warnings_json")
        };
        self.named("reading a run's warnings", read.await)
    }

    /// The stored samples of seconds `range` of a running case with their histograms, by second and worker; a finished case has none left.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn seconds_of_case(
        &self,
        case: CaseId,
        phase: Phase,
        range: Range<u32>,
    ) -> Result<Vec<StoredSecond>, StoreError> {
        let rows = async {
            let mut connection = self.inner.readers.acquire().await?;
            seconds_of_case(&mut connection, case, phase, range).await
        };
        self.named("reading seconds", rows.await)
    }

    /// The cluster's seconds of a finished case, of preconditioning and of the window; none while it goes on.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn cluster_seconds(&self, case: CaseId) -> Result<(Vec<Second>, Vec<Second>), StoreError> {
        let rows = async {
            let mut connection = self.inner.readers.acquire().await?;
            cluster_seconds(&mut connection, case).await
        };
        self.named("reading a case's seconds", rows.await)
    }
}
