//! The export of a run, assembled from the tables.

use std::collections::BTreeMap;
use std::path::PathBuf;

use analysis::case::{CaseFigures, CaseState, Ending};
use analysis::export::{Case, Event, Export, FORMAT, Fill, HostLoad, HostSample, Run, Second, SecondOp, StorageHealth};
use futures_util::TryStreamExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::{Connection, FromRow, SqliteConnection};
use worker_protocol::Phase;

use crate::error::Fault;
use crate::evaluate::evaluate;
use crate::rows::{from_json, from_json_opt, phase, time, time_opt};
use crate::workload::Workload;
use crate::{CaseId, RunId, RunState, Store, StoreError, brief, series, sql};

/// How much of a run is read.
#[derive(Debug, Clone, Copy)]
struct Detail {
    /// The series by second of cases that have ended, which are most of a long run.
    seconds: bool,
    /// Samples of hosts and storage: `all`, those of the `storage`, or `none`.
    samples: &'static str,
    /// Data disks, all cases together, up to which their figures are read; of more, only what is told of them beside.
    disks: u32,
    /// Cases that go on are merged as far as they are stored. That takes seconds for a case of an hour.
    merge: bool,
    /// Only the case at this place in the plan's order.
    case: Option<u32>,
}

/// All there is.
const ALL: Detail = Detail { seconds: true, samples: "all", disks: u32::MAX, merge: true, case: None };
/// All that is known without merging.
const ENDED: Detail = Detail { merge: false, ..ALL };
/// The figures of the cases and their parts.
const FIGURES: Detail = Detail { seconds: false, samples: "none", disks: 0, ..ENDED };

/// A run as one snapshot has it. Its cases are decoded one by one, so that a long run need not be decoded before its first byte is sent.
#[derive(Debug)]
pub struct StoredRun {
    /// The run.
    pub run: Run,
    /// Its cases, in the order they ran.
    pub cases: Vec<StoredCase>,
}

/// A case as it is stored: texts and packed seconds.
#[derive(Debug)]
pub struct StoredCase {
    file: PathBuf,
    row: CaseRow,
    fill: Option<Fill>,
    outcome: Outcome,
}

impl StoredCase {
    /// Decodes it; a case of hours takes milliseconds.
    ///
    /// # Errors
    /// [`StoreError`] where something in it cannot be read.
    pub fn decode(self) -> Result<Case, StoreError> {
        let case = self.row.into_case(self.fill, self.outcome);
        case.map_err(|fault| fault.named(&self.file, "reading a case"))
    }
}

impl Store {
    /// All of a run as the export's contract has it, from one snapshot. A case that goes on is evaluated as far as it is stored, which
    /// takes about 0.25 ms a worker and second.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be read.
    pub async fn load_export(&self, run: RunId) -> Result<Export, StoreError> {
        self.load(run, ALL, "reading a run").await
    }

    /// [`Store::load_export`] in bounded time, however long the run, and not decoded yet: a case that goes on has no figures.
    ///
    /// # Errors
    /// As there.
    pub async fn read_ended(&self, run: RunId) -> Result<StoredRun, StoreError> {
        let (run, cases) = self.named("reading a run", self.read(run, ENDED, |case| case).await)?;
        Ok(StoredRun { run, cases })
    }

    /// [`Store::read_ended`], decoded, without what a report shows apart: the hosts' load, and the figures of data disks where there are
    /// more than `most_disks` of them, all cases together. Of those there are names, errors, stalls and counters that disagree.
    ///
    /// # Errors
    /// As there.
    pub async fn load_report(&self, run: RunId, most_disks: u32) -> Result<Export, StoreError> {
        let detail = Detail { samples: "storage", disks: most_disks, ..ENDED };
        self.load(run, detail, "reading a run's report").await
    }

    /// [`Store::read_ended`], decoded, with the case at one place in the plan's order alone, or with none.
    ///
    /// # Errors
    /// As there.
    pub async fn load_case(&self, run: RunId, ordinal: u32) -> Result<Export, StoreError> {
        self.load(run, Detail { case: Some(ordinal), ..ENDED }, "reading a case").await
    }

    /// [`Store::load_report`] without the series by second, the samples of hosts and storage, and any disk's figures.
    ///
    /// # Errors
    /// As there.
    pub async fn load_figures(&self, run: RunId) -> Result<Export, StoreError> {
        self.load(run, FIGURES, "reading a run's figures").await
    }

    /// Megabytes of figures are decoded away from the async tasks, while the next case is read.
    async fn load(&self, run: RunId, detail: Detail, operation: &'static str) -> Result<Export, StoreError> {
        let decode = |case: StoredCase| tokio::task::spawn_blocking(|| case.decode());
        let (run, decoding) = self.named(operation, self.read(run, detail, decode).await)?;
        let mut cases = Vec::with_capacity(decoding.len());
        for case in decoding {
            let decoded = case.await.map_err(|error| Fault::unreadable("a case", error));
            cases.push(self.named(operation, decoded)??);
        }
        Ok(Export { format: FORMAT.into(), run, cases })
    }

    /// The run, and what `each` makes of each of its cases as soon as it is read.
    async fn read<T>(
        &self,
        run: RunId,
        detail: Detail,
        each: impl Fn(StoredCase) -> T,
    ) -> Result<(Run, Vec<T>), Fault> {
        let mut connection = self.inner.readers.acquire().await?;
        let mut snapshot = connection.begin().await?;
        let row: Option<RunRow> =
            sqlx::query_as(sql::EXPORT_RUN).bind(run.to_string()).fetch_optional(&mut *snapshot).await?;
        let row = row.ok_or_else(|| Fault::absent("run", run))?;
        let ended = RunState::parse(&row.state)?.is_final();
        let fills = fills(&mut snapshot, run).await?;
        let case = |row: CaseRow, outcome| {
            let fill = fills.get(&row.footprint_bytes).cloned();
            each(StoredCase { file: self.file().to_owned(), row, fill, outcome })
        };
        let (mut cases, mut incomplete) = (BTreeMap::new(), Vec::new());
        let query =
            sqlx::query_as::<_, CaseRow>(sql::EXPORT_CASES).bind(run.to_string()).bind(detail.case).bind(detail.disks);
        let mut rows = query.bind(detail.seconds).bind(detail.samples).fetch(&mut *snapshot);
        while let Some(row) = rows.try_next().await? {
            if row.is_whole(detail) {
                cases.insert(row.ordinal, case(row, Outcome::InRow));
            } else {
                incomplete.push(row);
            }
        }
        drop(rows);
        for row in incomplete {
            let outcome = row.outcome(&mut snapshot, ended, detail).await?;
            cases.insert(row.ordinal, case(row, outcome));
        }
        let run = row.into_run(&mut snapshot, run).await?;
        snapshot.rollback().await?;
        Ok((run, cases.into_values().collect()))
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
    ended_early_json: Option<String>,
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
            ended_early: from_json_opt(self.ended_early_json.as_deref(), "runs.ended_early_json")?,
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

#[derive(Debug, FromRow)]
struct CaseRow {
    id: i64,
    ordinal: u32,
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
    brief_disks_json: Option<String>,
    per_disk_json: Option<String>,
    seconds: Option<Vec<u8>>,
    samples: Option<String>,
}

/// Where a case's result is.
#[derive(Debug)]
enum Outcome {
    /// In its row.
    InRow,
    /// In its row, but for its seconds: as an earlier version kept them.
    Rows(Vec<SecondRow>),
    /// Found just now.
    Known(Box<CaseOutcome>),
}

/// A case's result, stored or evaluated just now.
#[derive(Debug)]
struct CaseOutcome {
    state: String,
    reason: Option<String>,
    warnings: Vec<String>,
    figures: CaseFigures,
    seconds: Vec<Second>,
    precondition_seconds: Vec<Second>,
}

impl CaseRow {
    /// It has ended, and its row has all that is asked for.
    fn is_whole(&self, detail: Detail) -> bool {
        self.figures_json.is_some() && (self.seconds.is_some() || !detail.seconds)
    }

    /// What its row does not have.
    async fn outcome(
        &self,
        connection: &mut SqliteConnection,
        run_ended: bool,
        detail: Detail,
    ) -> Result<Outcome, Fault> {
        match self.figures_json {
            Some(_) => Ok(Outcome::Rows(second_rows(connection, CaseId(self.id)).await?)),
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

    /// Of its row; with the seconds that are not in it.
    fn stored(&self, rows: Option<Vec<SecondRow>>) -> Result<CaseOutcome, Fault> {
        let mut figures: CaseFigures =
            from_json(self.figures_json.as_deref().unwrap_or_default(), "cases.figures_json")?;
        match (&self.per_disk_json, &self.brief_disks_json) {
            (Some(disks), _) => figures.per_disk = from_json(disks, "cases.per_disk_json")?,
            (None, Some(disks)) => figures.per_disk = brief::decode(disks)?,
            // An earlier version has them in the figures.
            (None, None) => {}
        }
        let (precondition_seconds, seconds) = match (rows, &self.seconds) {
            (Some(rows), _) => by_phase(rows)?,
            (None, Some(packed)) => series::decode(packed)?,
            (None, None) => (Vec::new(), Vec::new()),
        };
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

    /// Those of a case that has a window; before its start there is no load that they could explain.
    fn hosts(&self) -> Result<Vec<HostSample>, Fault> {
        let t0 = time_opt(self.t0.as_deref(), "cases.t0")?;
        let (Some(t0), Some(text)) = (t0, &self.samples) else { return Ok(Vec::new()) };
        let samples: Vec<(Timestamp, Vec<HostLoad>, Option<StorageHealth>)> = from_json(text, "host_samples")?;
        let sample = |(at, hosts, storage): (Timestamp, Vec<HostLoad>, Option<StorageHealth>)| HostSample {
            t: at.duration_since(t0).as_secs_f64(),
            hosts,
            storage,
        };
        Ok(samples.into_iter().map(sample).collect())
    }

    fn into_case(self, fill: Option<Fill>, outcome: Outcome) -> Result<Case, Fault> {
        let hosts = self.hosts()?;
        let outcome = match outcome {
            Outcome::InRow => self.stored(None)?,
            Outcome::Rows(rows) => self.stored(Some(rows))?,
            Outcome::Known(outcome) => *outcome,
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

#[derive(Debug, FromRow)]
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
    let packed: Option<Vec<u8>> =
        sqlx::query_scalar(sql::SELECT_SERIES).bind(case.0).fetch_optional(&mut *connection).await?;
    match packed {
        Some(packed) => series::decode(&packed),
        None => by_phase(second_rows(connection, case).await?),
    }
}

/// As an earlier version kept them.
async fn second_rows(connection: &mut SqliteConnection, case: CaseId) -> Result<Vec<SecondRow>, Fault> {
    Ok(sqlx::query_as(sql::EXPORT_CLUSTER_SECONDS).bind(case.0).fetch_all(connection).await?)
}

/// Preconditioning's seconds and the window's.
fn by_phase(rows: Vec<SecondRow>) -> Result<(Vec<Second>, Vec<Second>), Fault> {
    let (mut precondition, mut sample) = (Vec::new(), Vec::new());
    for row in rows {
        match phase(&row.phase)? {
            Phase::Precondition => precondition.push(row.second()),
            Phase::Sample => sample.push(row.second()),
        }
    }
    Ok((precondition, sample))
}
