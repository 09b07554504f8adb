//! Reading lists, the journal, and finding a run.

use futures_util::TryStreamExt as _;
use sqlx::FromRow;
use worker_protocol::Ops;

use crate::error::{Fault, Refusal};
use crate::rows::{TotalsRow, from_json, from_json_opt, json, time, time_opt};
use crate::{
    CaseId, CaseSummary, Effect, JournalEntry, JournalId, RunFilter, RunGroup, RunId, RunState, RunSummary, Store,
    StoreError, sql,
};

/// Runs that an error lists as candidates.
const CANDIDATES: u32 = 10;

/// What asks for the run created last.
pub const LATEST: &str = "latest";

impl Store {
    /// The `limit` runs created last, latest first.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn list_runs(&self, limit: u32) -> Result<Vec<RunSummary>, StoreError> {
        self.filter_runs(&RunFilter::all(limit)).await
    }

    /// The runs that a filter lets through, latest first.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn filter_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, StoreError> {
        self.named("listing runs", self.try_filter_runs(filter).await)
    }

    async fn try_filter_runs(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, Fault> {
        let with_text = match &filter.text {
            Some(text) => Some(json(&self.with_text(filter, text).await?, "ids of runs")?),
            None => None,
        };
        let rows: Vec<RunRow> = sqlx::query_as(sql::LIST_RUNS)
            .bind(filter.limit)
            .bind(filter.before.map(|run| run.to_string()))
            .bind(with_text)
            .bind(filter.state.map(RunGroup::as_str))
            .fetch_all(&self.inner.readers)
            .await?;
        rows.into_iter().map(RunRow::into_summary).collect()
    }

    /// Ids of the latest runs, as many as are listed, whose name or note has a text.
    async fn with_text(&self, filter: &RunFilter, text: &str) -> Result<Vec<String>, Fault> {
        let limit = usize::try_from(filter.limit).unwrap_or(usize::MAX);
        let wanted = folded(text);
        let query = sqlx::query_as::<_, (String, String, String)>(sql::RUN_TEXTS);
        let query = query.bind(filter.before.map(|run| run.to_string())).bind(filter.state.map(RunGroup::as_str));
        let mut rows = query.fetch(&self.inner.readers);
        let mut ids = Vec::new();
        while ids.len() < limit
            && let Some((id, name, note)) = rows.try_next().await?
        {
            if [name, note].iter().any(|text| folded(text).contains(&wanted)) {
                ids.push(id);
            }
        }
        Ok(ids)
    }

    /// One run of the list.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn run_summary(&self, run: RunId) -> Result<RunSummary, StoreError> {
        let read = async {
            let row: Option<RunRow> = sqlx::query_as(sql::SELECT_RUN_SUMMARY)
                .bind(run.to_string())
                .fetch_optional(&self.inner.readers)
                .await?;
            row.ok_or_else(|| Fault::absent("run", run))?.into_summary()
        };
        self.named("reading a run", read.await)
    }

    /// What reproduces a run, by name, as it was recorded.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn environment(&self, run: RunId) -> Result<serde_json::Value, StoreError> {
        let read = async {
            let text: Option<String> = sqlx::query_scalar(sql::SELECT_ENVIRONMENT)
                .bind(run.to_string())
                .fetch_optional(&self.inner.readers)
                .await?;
            from_json(&text.ok_or_else(|| Fault::absent("run", run))?, "the environment")
        };
        self.named("reading the environment", read.await)
    }

    /// The plan of a run as it was written.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn plan_yaml(&self, run: RunId) -> Result<String, StoreError> {
        let read = async {
            let query = sqlx::query_scalar(sql::SELECT_PLAN_YAML).bind(run.to_string());
            let text: Option<String> = query.fetch_optional(&self.inner.readers).await?;
            text.ok_or_else(|| Fault::absent("run", run))
        };
        self.named("reading a plan", read.await)
    }

    /// Runs that an orchestrator left without an end, oldest first: what recovery starts from.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunSummary>, StoreError> {
        let read = async {
            let rows: Vec<RunRow> = sqlx::query_as(sql::UNFINISHED_RUNS).fetch_all(&self.inner.readers).await?;
            rows.into_iter().map(RunRow::into_summary).collect()
        };
        self.named("looking for unfinished runs", read.await)
    }

    /// The cases of a run that were started, in the plan's order.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn list_cases(&self, run: RunId) -> Result<Vec<CaseSummary>, StoreError> {
        let read = async {
            let rows: Vec<CaseRow> =
                sqlx::query_as(sql::LIST_CASES).bind(run.to_string()).fetch_all(&self.inner.readers).await?;
            Ok(rows.into_iter().map(CaseRow::into_summary).collect())
        };
        self.named("listing cases", read.await)
    }

    /// The cluster's merged totals of a finished case, with histograms.
    ///
    /// # Errors
    /// [`StoreError`] where the case has no result, or it cannot be read.
    pub async fn cluster_totals(&self, case: CaseId) -> Result<Ops, StoreError> {
        let totals = self.totals(case, "response").await;
        let totals = totals.and_then(|totals| totals.ok_or_else(|| Fault::absent("result of case", case)));
        self.named("reading a case's totals", totals)
    }

    /// The same I/Os timed from their submission; none in a closed loop, and where the figures do not cover the window.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn cluster_service_totals(&self, case: CaseId) -> Result<Option<Ops>, StoreError> {
        self.named("reading a case's service times", self.totals(case, "service").await)
    }

    async fn totals(&self, case: CaseId, timing: &'static str) -> Result<Option<Ops>, Fault> {
        let query = sqlx::query_as(sql::SELECT_CLUSTER_TOTALS).bind(case.0).bind(timing);
        let rows: Vec<TotalsRow> = query.fetch_all(&self.inner.readers).await?;
        if rows.is_empty() {
            return Ok(None);
        }
        let mut ops = Ops::default();
        rows.into_iter().for_each(|row| row.put_into(&mut ops));
        Ok(Some(ops))
    }

    /// Journalled calls of a run whose outcome is not known, in order.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn open_intents(&self, run: RunId) -> Result<Vec<JournalEntry>, StoreError> {
        self.named("reading the journal", self.journal(sql::OPEN_INTENTS, run).await)
    }

    /// All journalled calls of a run, in order.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn journal_entries(&self, run: RunId) -> Result<Vec<JournalEntry>, StoreError> {
        self.named("reading the journal", self.journal(sql::ALL_INTENTS, run).await)
    }

    /// Creations of a run that had their effect and whose object was not destroyed since, in order.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be read.
    pub async fn living_objects(&self, run: RunId) -> Result<Vec<JournalEntry>, StoreError> {
        self.named("reading the journal", self.journal(sql::LIVING_OBJECTS, run).await)
    }

    pub(crate) async fn journal(&self, statement: &'static str, run: RunId) -> Result<Vec<JournalEntry>, Fault> {
        let rows: Vec<JournalRow> =
            sqlx::query_as(statement).bind(run.to_string()).fetch_all(&self.inner.readers).await?;
        rows.into_iter().map(JournalRow::into_entry).collect()
    }

    /// The run of an id, of a beginning that only one id has, or [`LATEST`].
    ///
    /// # Errors
    /// [`Refusal::NoSuchRun`] or [`Refusal::AmbiguousRun`], each with candidates; [`StoreError`] where runs cannot be read.
    pub async fn find_run(&self, asked: &str) -> Result<RunId, StoreError> {
        self.named("looking for the run", self.try_find_run(asked).await)
    }

    async fn try_find_run(&self, asked: &str) -> Result<RunId, Fault> {
        let prefix = asked.trim().to_ascii_lowercase();
        let ids = if prefix == LATEST { self.latest().await? } else { self.with_prefix(&prefix).await? };
        match ids.as_slice() {
            [id] => run_id(id),
            [] => {
                let candidates = self.try_filter_runs(&RunFilter::all(CANDIDATES)).await?;
                let candidates = candidates.iter().map(|run| format!("{} ({}, {})", run.id, run.name, run.state));
                Err(Refusal::NoSuchRun { asked: asked.to_owned(), candidates: candidates.collect() }.into())
            }
            _ => Err(Refusal::AmbiguousRun { asked: asked.to_owned(), candidates: ids }.into()),
        }
    }

    async fn latest(&self) -> Result<Vec<String>, Fault> {
        Ok(sqlx::query_scalar(sql::LATEST_RUN).fetch_all(&self.inner.readers).await?)
    }

    async fn with_prefix(&self, prefix: &str) -> Result<Vec<String>, Fault> {
        let is_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if prefix.is_empty() || !prefix.bytes().all(is_id) {
            return Ok(Vec::new());
        }
        // `~` sorts after whatever an id is made of.
        let ids = sqlx::query_scalar(sql::RUNS_WITH_PREFIX).bind(prefix).bind(format!("{prefix}~")).bind(CANDIDATES);
        Ok(ids.fetch_all(&self.inner.readers).await?)
    }
}

/// Without upper and lower case, in any script (`STRASSE` is `straße`).
fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

fn run_id(text: &str) -> Result<RunId, Fault> {
    text.parse().map_err(|error| Fault::unreadable("runs.id", error))
}

#[derive(FromRow)]
struct RunRow {
    id: String,
    name: String,
    state: String,
    complete: bool,
    reason: Option<String>,
    started: String,
    finished: Option<String>,
    note: String,
    rehearsal: bool,
    cases: u32,
    complete_cases: u32,
    /// None in a plan without lists of footprints and workloads.
    planned_cases: Option<u32>,
}

impl RunRow {
    fn into_summary(self) -> Result<RunSummary, Fault> {
        Ok(RunSummary {
            id: run_id(&self.id)?,
            state: RunState::parse(&self.state)?,
            started: time(&self.started, "runs.started")?,
            finished: time_opt(self.finished.as_deref(), "runs.finished")?,
            name: self.name,
            complete: self.complete,
            reason: self.reason,
            note: self.note,
            rehearsal: self.rehearsal,
            cases: self.cases,
            complete_cases: self.complete_cases,
            planned_cases: self.planned_cases.unwrap_or(self.cases),
        })
    }
}

#[derive(FromRow)]
struct CaseRow {
    id: i64,
    ordinal: u32,
    footprint_bytes: u64,
    workload: String,
    state: String,
}

impl CaseRow {
    fn into_summary(self) -> CaseSummary {
        let Self { id, ordinal, footprint_bytes, workload, state } = self;
        CaseSummary { id: CaseId(id), ordinal, footprint_bytes, workload, state }
    }
}

#[derive(FromRow)]
struct JournalRow {
    id: i64,
    run_id: String,
    kind: String,
    effect: String,
    object: Option<String>,
    intent_json: String,
    created_at: String,
    task_json: Option<String>,
    succeeded: Option<bool>,
    outcome_json: Option<String>,
}

impl JournalRow {
    fn into_entry(self) -> Result<JournalEntry, Fault> {
        Ok(JournalEntry {
            id: JournalId(self.id),
            run: run_id(&self.run_id)?,
            effect: Effect::parse(&self.effect)?,
            intent: from_json(&self.intent_json, "journal.intent_json")?,
            created_at: time(&self.created_at, "journal.created_at")?,
            task: from_json_opt(self.task_json.as_deref(), "journal.task_json")?,
            outcome: from_json_opt(self.outcome_json.as_deref(), "journal.outcome_json")?,
            kind: self.kind,
            object: self.object,
            succeeded: self.succeeded,
        })
    }
}
