//! The export of a run, assembled from the tables.

use std::collections::BTreeMap;

use analysis::case::{CaseFigures, CaseState, Ending};
use analysis::export::{Case, Event, Export, FORMAT, Fill, HostLoad, HostSample, Run, Second, SecondOp, StorageHealth};
use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection, FromRow, SqliteConnection};
use worker_protocol::Phase;

use crate::error::Fault;
use crate::evaluate::evaluate;
use crate::rows::{from_json, from_json_opt, phase, time, time_opt};
use crate::series;
use crate::workload::Workload;
use crate::{CaseId, RunId, RunState, Store, StoreError, sql};

/// How much of a run is read.
#[derive(Debug, Clone, Copy)]
struct Detail {
    /// The series by second of cases that have ended, which are most of a long run.
    seconds: bool,
    /// The load of each host at each moment; without it, the storage's health alone.
    hosts: bool,
    /// Cases that go on are merged as far as they are stored. That takes seconds for a case of an hour.
    merge: bool,
    /// Only the case at this place in the plan's order.
    case: Option<u32>,
}

/// All there is.
const ALL: Detail = Detail { seconds: true, hosts: true, merge: true, case: None };

impl Store {
    /// All of a run as the export's contract has it, from one snapshot. A case that goes on is evaluated as far as it is stored, which
    /// takes about 0.25 ms a worker and second.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn load_export(&self, run: RunId) -> Result<Export, StoreError> {
        self.named("reading a run", self.try_load_export(run, ALL).await)
    }

    /// [`Store::load_export`] in bounded time, however long the run: a case that goes on has no figures yet.
    ///
    /// # Errors
    /// As there.
    pub async fn load_ended(&self, run: RunId) -> Result<Export, StoreError> {
        self.named("reading a run", self.try_load_export(run, Detail { merge: false, ..ALL }).await)
    }

    /// [`Store::load_ended`] without the hosts' load, which a report shows apart.
    ///
    /// # Errors
    /// As there.
    pub async fn load_report(&self, run: RunId) -> Result<Export, StoreError> {
        let detail = Detail { merge: false, hosts: false, ..ALL };
        self.named("reading a run's report", self.try_load_export(run, detail).await)
    }

    /// [`Store::load_ended`] with the case at one place in the plan's order alone, or with none.
    ///
    /// # Errors
    /// As there.
    pub async fn load_case(&self, run: RunId, ordinal: u32) -> Result<Export, StoreError> {
        let detail = Detail { merge: false, case: Some(ordinal), ..ALL };
        self.named("reading a case", self.try_load_export(run, detail).await)
    }

    /// [`Store::load_report`] without the series by second.
    ///
    /// # Errors
    /// As there.
    pub async fn load_figures(&self, run: RunId) -> Result<Export, StoreError> {
        let detail = Detail { merge: false, hosts: false, seconds: false, ..ALL };
        self.named("reading a run's figures", self.try_load_export(run, detail).await)
    }

    async fn try_load_export(&self, run: RunId, detail: Detail) -> Result<Export, Fault> {
        let mut connection = self.inner.readers.acquire().await?;
        let mut snapshot = connection.begin().await?;
        let row: Option<RunRow> =
            sqlx::query_as(sql::EXPORT_RUN).bind(run.to_string()).fetch_optional(&mut *snapshot).await?;
        let row = row.ok_or_else(|| Fault::absent("run", run))?;
        let ended = RunState::parse(&row.state)?.is_final();
        let cases = cases(&mut snapshot, run, ended, detail).await?;
        let run = row.into_run(&mut snapshot, run).await?;
        snapshot.rollback().await?;
        Ok(Export { format: FORMAT.into(), run, cases })
    }
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
    plan_yaml: String,
    plan_json: String,
    environment_json: String,
    warnings_json: String,
    seed: String,
    rehearsal: bool,
    note: String,
}

impl RunRow {
    async fn into_run(self, connection: &mut SqliteConnection, run: RunId) -> Result<Run, Fault> {
        let mut environment: Value = from_json(&self.environment_json, "runs.environment_json")?;
        if let Some(known) = environment.as_object_mut() {
            known.entry("seed").or_insert_with(|| self.seed.clone().into());
            known.entry("workers").or_insert(workers(connection, run).await?);
            known.entry("transitions").or_insert(transitions(connection, run).await?);
        }
        Ok(Run {
            started: time(&self.started, "runs.started")?,
            finished: time_opt(self.finished.as_deref(), "runs.finished")?,
            rehearsal: self.rehearsal,
            note: self.note,
            plan: from_json(&self.plan_json, "runs.plan_json")?,
            warnings: from_json(&self.warnings_json, "runs.warnings_json")?,
            events: events(connection, run).await?,
            environment,
            id: self.id,
            name: self.name,
            state: self.state,
            complete: self.complete,
            reason: self.reason,
            plan_yaml: self.plan_yaml,
        })
    }
}

async fn events(connection: &mut SqliteConnection, run: RunId) -> Result<Vec<Event>, Fault> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as(sql::EXPORT_EVENTS).bind(run.to_string()).fetch_all(connection).await?;
    rows.into_iter().map(|(at, level, message)| Ok(Event { at: time(&at, "events.at")?, level, message })).collect()
}

/// Each worker as it enrolled, with what its engine was granted last.
async fn workers(connection: &mut SqliteConnection, run: RunId) -> Result<Value, Fault> {
    let rows: Vec<(String, Option<String>, String, Option<String>)> =
        sqlx::query_as(sql::EXPORT_WORKERS).bind(run.to_string()).fetch_all(connection).await?;
    let worker = |(name, host, hello, engine): (String, Option<String>, String, Option<String>)| {
        let mut hello: Value = from_json(&hello, "workers.hello_json")?;
        if let Some(known) = hello.as_object_mut() {
            known.remove("token");
        }
        let engine: Option<Value> = from_json_opt(engine.as_deref(), "workers.engine_json")?;
        Ok(json!({ "name": name, "host": host, "hello": hello, "engine": engine }))
    };
    rows.into_iter().map(worker).collect()
}

async fn transitions(connection: &mut SqliteConnection, run: RunId) -> Result<Value, Fault> {
    let rows: Vec<(String, String)> =
        sqlx::query_as(sql::EXPORT_TRANSITIONS).bind(run.to_string()).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(state, at)| json!({ "state": state, "at": at })).collect())
}

async fn cases(
    connection: &mut SqliteConnection,
    run: RunId,
    run_ended: bool,
    detail: Detail,
) -> Result<Vec<Case>, Fault> {
    let fills = fills(connection, run).await?;
    let rows: Vec<CaseRow> =
        sqlx::query_as(sql::EXPORT_CASES).bind(run.to_string()).bind(detail.case).fetch_all(&mut *connection).await?;
    let mut read = Vec::with_capacity(rows.len());
    for row in rows {
        let fill = fills.get(&row.footprint_bytes).cloned();
        let outcome = row.outcome(connection, run_ended, detail).await?;
        let hosts = row.host_samples(connection, detail).await?;
        // Megabytes of figures: decoded away from the async tasks, while the next case is read.
        read.push(tokio::task::spawn_blocking(move || row.into_case(fill, outcome, &hosts)));
    }
    let mut cases = Vec::with_capacity(read.len());
    for case in read {
        cases.push(case.await.map_err(|error| Fault::unreadable("a case", error))??);
    }
    Ok(cases)
}

#[derive(FromRow)]
struct FillRow {
    footprint_bytes: u64,
    seconds: f64,
    bytes: u64,
    verified_blocks: u64,
}

async fn fills(connection: &mut SqliteConnection, run: RunId) -> Result<BTreeMap<u64, Fill>, Fault> {
    let rows: Vec<FillRow> = sqlx::query_as(sql::EXPORT_FILLS).bind(run.to_string()).fetch_all(connection).await?;
    let fill = |row: FillRow| {
        let FillRow { footprint_bytes, seconds, bytes, verified_blocks } = row;
        (footprint_bytes, Fill { bytes, seconds, verified_blocks })
    };
    Ok(rows.into_iter().map(fill).collect())
}

#[derive(FromRow)]
struct CaseRow {
    id: i64,
    footprint: String,
    footprint_bytes: u64,
    region_bytes: u64,
    effective_bytes: u64,
    workload_json: String,
    expected_workers: u32,
    started: Option<String>,
    t0: Option<String>,
    t1: Option<String>,
    state: String,
    reason: Option<String>,
    warnings_json: String,
    figures_json: Option<String>,
}

/// What a case was found to be.
enum Outcome {
    /// Just now.
    Known(Box<CaseOutcome>),
    /// When it ended: its figures are in its row, its seconds are these.
    Stored(Series),
}

/// The cluster's seconds of a case that has ended, as they are stored.
enum Series {
    /// Left out.
    None,
    Packed(Vec<u8>),
    /// As an earlier version kept them.
    Rows(Vec<SecondRow>),
}

/// A case's result, stored or evaluated just now.
struct CaseOutcome {
    state: String,
    reason: Option<String>,
    warnings: Vec<String>,
    figures: CaseFigures,
    seconds: Vec<Second>,
    precondition_seconds: Vec<Second>,
}

impl CaseRow {
    async fn outcome(
        &self,
        connection: &mut SqliteConnection,
        run_ended: bool,
        detail: Detail,
    ) -> Result<Outcome, Fault> {
        match self.figures_json {
            Some(_) if detail.seconds => Ok(Outcome::Stored(read_series(connection, CaseId(self.id)).await?)),
            Some(_) => Ok(Outcome::Stored(Series::None)),
            None if run_ended || detail.merge => {
                Ok(Outcome::Known(Box::new(self.evaluated(connection, run_ended).await?)))
            }
            None => Ok(Outcome::Known(Box::new(self.not_yet()))),
        }
    }

    /// A case that goes on, before its samples are merged.
    fn not_yet(&self) -> CaseOutcome {
        CaseOutcome {
            state: self.state.clone(),
            reason: None,
            warnings: Vec::new(),
            figures: CaseFigures::none(self.expected_workers),
            seconds: Vec::new(),
            precondition_seconds: Vec::new(),
        }
    }

    fn stored(&self, series: Series) -> Result<CaseOutcome, Fault> {
        let figures = from_json(self.figures_json.as_deref().unwrap_or_default(), "cases.figures_json")?;
        let (precondition_seconds, seconds) = series.decode()?;
        Ok(CaseOutcome {
            state: self.state.clone(),
            reason: self.reason.clone(),
            warnings: from_json(&self.warnings_json, "cases.warnings_json")?,
            figures,
            seconds,
            precondition_seconds,
        })
    }

    async fn evaluated(&self, connection: &mut SqliteConnection, run_ended: bool) -> Result<CaseOutcome, Fault> {
        let cut_off = || Ending::Failed("the run ended before the case did".into());
        let ending = if run_ended { cut_off() } else { Ending::Running };
        let result = evaluate(connection, CaseId(self.id), ending).await?;
        Ok(CaseOutcome {
            state: result.state.as_str().into(),
            reason: result.reason,
            warnings: result.warnings,
            figures: result.figures,
            seconds: result.seconds,
            precondition_seconds: result.precondition_seconds,
        })
    }

    /// All of a case in one text.
    async fn host_samples(&self, connection: &mut SqliteConnection, detail: Detail) -> Result<String, Fault> {
        let statement = if detail.hosts { sql::EXPORT_HOST_SAMPLES } else { sql::EXPORT_STORAGE_SAMPLES };
        Ok(sqlx::query_scalar(statement).bind(self.id).fetch_one(connection).await?)
    }

    /// Those of a case that has a window; before its start there is no load that they could explain.
    fn hosts(&self, text: &str) -> Result<Vec<HostSample>, Fault> {
        let Some(t0) = time_opt(self.t0.as_deref(), "cases.t0")? else { return Ok(Vec::new()) };
        let samples: Vec<(Timestamp, Vec<HostLoad>, Option<StorageHealth>)> = from_json(text, "host_samples")?;
        let sample = |(at, hosts, storage): (Timestamp, Vec<HostLoad>, Option<StorageHealth>)| HostSample {
            t: at.duration_since(t0).as_secs_f64(),
            hosts,
            storage,
        };
        Ok(samples.into_iter().map(sample).collect())
    }

    fn into_case(self, fill: Option<Fill>, outcome: Outcome, hosts: &str) -> Result<Case, Fault> {
        let hosts = self.hosts(hosts)?;
        let outcome = match outcome {
            Outcome::Known(outcome) => *outcome,
            Outcome::Stored(series) => self.stored(series)?,
        };
        let workload = Workload::of(&self.workload_json)?;
        let options = Some(workload.options());
        let figures = outcome.figures;
        let ended = outcome.state != CaseState::Running.as_str();
        Ok(Case {
            footprint_bytes: self.footprint_bytes,
            footprint: self.footprint,
            effective_bytes: self.effective_bytes,
            region_bytes: self.region_bytes,
            workload: workload.name,
            block_bytes: workload.block_bytes,
            pattern: workload.pattern.kind,
            read_percent: workload.read_percent,
            outstanding_per_disk: workload.outstanding_per_disk,
            options,
            state: outcome.state,
            reason: outcome.reason,
            started: time_opt(self.started.as_deref(), "cases.started")?,
            finished: time_opt(self.t1.as_deref().filter(|_| ended), "cases.t1")?,
            fill,
            workers: figures.workers,
            window_seconds: figures.window_seconds,
            start_skew_us: figures.start_skew_us,
            clock_drift_us: figures.clock_drift_us,
            unfinished: figures.unfinished,
            ops: figures.ops,
            service: figures.service,
            pacing: figures.pacing,
            generator: figures.generator,
            seconds: outcome.seconds,
            precondition_seconds: outcome.precondition_seconds,
            steady_state: figures.steady_state,
            per_worker: figures.per_worker,
            per_disk: figures.per_disk,
            per_host: figures.per_host,
            hosts,
            warnings: outcome.warnings,
        })
    }
}

#[derive(FromRow)]
struct SecondRow {
    phase: String,
    second: u32,
    read_iops: Option<f64>,
    read_mib_per_s: Option<f64>,
    read_mean_us: Option<f64>,
    read_p50_us: Option<f64>,
    read_p99_us: Option<f64>,
    read_max_us: Option<f64>,
    write_iops: Option<f64>,
    write_mib_per_s: Option<f64>,
    write_mean_us: Option<f64>,
    write_p50_us: Option<f64>,
    write_p99_us: Option<f64>,
    write_max_us: Option<f64>,
}

impl SecondRow {
    fn second(&self) -> Second {
        let read = [
            self.read_iops,
            self.read_mib_per_s,
            self.read_mean_us,
            self.read_p50_us,
            self.read_p99_us,
            self.read_max_us,
        ];
        let write = [
            self.write_iops,
            self.write_mib_per_s,
            self.write_mean_us,
            self.write_p50_us,
            self.write_p99_us,
            self.write_max_us,
        ];
        Second { t: self.second, read: second_op(read), write: second_op(write) }
    }
}

/// The order of `SecondOp`'s fields; none where the operation had no I/O.
pub(crate) fn second_op(figures: [Option<f64>; 6]) -> Option<SecondOp> {
    let [iops, mib_per_s, mean_us, p50_us, p99_us, max_us] = figures;
    Some(SecondOp {
        iops: iops?,
        mib_per_s: mib_per_s?,
        mean_us: mean_us?,
        p50_us: p50_us?,
        p99_us: p99_us?,
        max_us: max_us?,
    })
}

/// The cluster's seconds of preconditioning and of the window.
pub(crate) async fn cluster_seconds(
    connection: &mut SqliteConnection,
    case: CaseId,
) -> Result<(Vec<Second>, Vec<Second>), Fault> {
    read_series(connection, case).await?.decode()
}

async fn read_series(connection: &mut SqliteConnection, case: CaseId) -> Result<Series, Fault> {
    let packed: Option<Vec<u8>> =
        sqlx::query_scalar(sql::SELECT_SERIES).bind(case.0).fetch_optional(&mut *connection).await?;
    match packed {
        Some(packed) => Ok(Series::Packed(packed)),
        None => {
            let rows = sqlx::query_as(sql::EXPORT_CLUSTER_SECONDS).bind(case.0);
            Ok(Series::Rows(rows.fetch_all(connection).await?))
        }
    }
}

impl Series {
    /// Preconditioning's seconds and the window's.
    fn decode(self) -> Result<(Vec<Second>, Vec<Second>), Fault> {
        let rows = match self {
            Self::None => return Ok((Vec::new(), Vec::new())),
            Self::Packed(packed) => return series::decode(&packed),
            Self::Rows(rows) => rows,
        };
        let (mut precondition, mut sample) = (Vec::new(), Vec::new());
        for row in rows {
            match phase(&row.phase)? {
                Phase::Precondition => precondition.push(row.second()),
                Phase::Sample => sample.push(row.second()),
            }
        }
        Ok((precondition, sample))
    }
}
