//! Evaluating a case from what is stored.

use std::collections::BTreeMap;
use std::ops::Range;

use analysis::Evaluation;
use analysis::case::{
    CaseInput, CaseResult, Ending, SecondMark, WorkerClock, WorkerFinished, WorkerInput, WorkerSecond,
};
use sqlx::SqliteConnection;
use worker_protocol::{DiskFinished, Ops, Phase};

use crate::error::{Fault, Refusal};
use crate::rows::{TotalsRow, from_json, from_json_opt, phase};
use crate::samples::seconds_of_case;
use crate::workload::Workload;
use crate::{CaseId, Store, StoreError, StoredSecond, sql};

/// Seconds that are read and merged at a time: some 30 MB of histograms with 64 workers.
const STRETCH_SECONDS: u32 = 32;

impl Store {
    /// Merges what the workers of a case delivered into figures and a verdict; stores nothing. The merge runs beside the async tasks, on
    /// a thread for blocking work; it takes about 0.25 ms a worker and second.
    ///
    /// # Errors
    /// [`StoreError`] where the case cannot be read. What workers delivered wrongly is no error but makes the case incomplete.
    pub async fn evaluate_case(&self, case: CaseId, ending: Ending) -> Result<CaseResult, StoreError> {
        let evaluated = async {
            let mut connection = self.inner.readers.acquire().await?;
            evaluate(&mut connection, case, ending).await
        };
        self.named("evaluating a case", evaluated.await)
    }
}

pub(crate) async fn evaluate(
    connection: &mut SqliteConnection,
    case: CaseId,
    ending: Ending,
) -> Result<CaseResult, Fault> {
    let input = case_input(connection, case, ending).await?;
    let phases = [(Phase::Precondition, input.precondition_seconds), (Phase::Sample, input.sample_seconds)];
    let mut evaluation = off_task(move || Evaluation::new(input)).await?;
    for (phase, seconds) in phases {
        for stretch in stretches(seconds) {
            let rows = seconds_of_case(connection, case, phase, stretch).await?;
            evaluation = off_task(move || merge(evaluation, phase, rows)).await?;
        }
    }
    off_task(move || evaluation.finish()).await
}

/// Runs the CPU's share away from the async tasks.
async fn off_task<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Refusal::Merge(error.to_string()).into())
}

fn stretches(seconds: u32) -> impl Iterator<Item = Range<u32>> {
    let starts = (0..seconds).step_by(STRETCH_SECONDS as usize);
    starts.map(move |start| start..start.saturating_add(STRETCH_SECONDS).min(seconds))
}

fn merge(mut evaluation: Evaluation, phase: Phase, rows: Vec<StoredSecond>) -> Evaluation {
    let mut by_second: BTreeMap<u32, Vec<WorkerSecond>> = BTreeMap::new();
    for row in rows {
        by_second.entry(row.second).or_default().push(row.sample);
    }
    for (second, samples) in by_second {
        evaluation.add_second(phase, second, &samples);
    }
    evaluation
}

#[derive(sqlx::FromRow)]
struct InputRow {
    workload_json: String,
    precondition_seconds: u32,
    sample_seconds: u32,
    expected_workers: u32,
    reads_unwritten: bool,
}

async fn case_input(connection: &mut SqliteConnection, case: CaseId, ending: Ending) -> Result<CaseInput, Fault> {
    let row: Option<InputRow> =
        sqlx::query_as(sql::SELECT_CASE_INPUT).bind(case.0).fetch_optional(&mut *connection).await?;
    let row = row.ok_or_else(|| Fault::absent("case", case))?;
    let workload = Workload::of(&row.workload_json)?;
    let mut disks = case_disks(connection, case).await?;
    let mut marks = case_marks(connection, case).await?;
    let rows: Vec<WorkerRow> =
        sqlx::query_as(sql::SELECT_CASE_WORKERS).bind(case.0).fetch_all(&mut *connection).await?;
    let workers = rows.into_iter().map(|row| {
        let (disks, seconds) = (disks.remove(&row.worker), marks.remove(&row.worker));
        row.into_input(disks.unwrap_or_default(), seconds.unwrap_or_default())
    });
    Ok(CaseInput {
        block_bytes: workload.block_bytes,
        precondition_seconds: row.precondition_seconds,
        sample_seconds: row.sample_seconds,
        expected_workers: row.expected_workers,
        reads_unwritten: row.reads_unwritten,
        rate: workload.wire_rate(),
        ending,
        workers: workers.collect::<Result<_, _>>()?,
    })
}

#[derive(sqlx::FromRow)]
struct WorkerRow {
    worker: String,
    disks_json: String,
    engine_json: Option<String>,
    start_at_worker_ns: Option<u64>,
    offset_start_ns: Option<i64>,
    offset_end_ns: Option<i64>,
    failure: Option<String>,
    started_worker_ns: Option<u64>,
    ended_worker_ns: Option<u64>,
    finished_complete: Option<bool>,
    finished_reason: Option<String>,
    thread_cpu_json: Option<String>,
    steal: Option<f64>,
    warnings_json: Option<String>,
    io_wq_cpu: Option<f64>,
    host: Option<String>,
}

impl WorkerRow {
    fn into_input(self, disks: Vec<DiskFinished>, seconds: Vec<SecondMark>) -> Result<WorkerInput, Fault> {
        let clock = self.start_at_worker_ns.zip(self.offset_start_ns).map(|(start_at_worker_ns, offset_start_ns)| {
            WorkerClock { start_at_worker_ns, offset_start_ns, offset_end_ns: self.offset_end_ns }
        });
        Ok(WorkerInput {
            disks: from_json(&self.disks_json, "case_workers.disks_json")?,
            clock,
            engine: from_json_opt(self.engine_json.as_deref(), "case_workers.engine_json")?,
            seconds,
            finished: self.finished(disks)?,
            host: self.host,
            failure: self.failure,
            worker: self.worker,
        })
    }

    fn finished(&self, disks: Vec<DiskFinished>) -> Result<Option<WorkerFinished>, Fault> {
        let Some(complete) = self.finished_complete else { return Ok(None) };
        let thread_cpu = from_json_opt(self.thread_cpu_json.as_deref(), "case_workers.thread_cpu_json")?;
        let warnings = from_json_opt(self.warnings_json.as_deref(), "case_workers.warnings_json")?;
        Ok(Some(WorkerFinished {
            started_worker_ns: self.started_worker_ns.unwrap_or_default(),
            ended_worker_ns: self.ended_worker_ns.unwrap_or_default(),
            complete,
            reason: self.finished_reason.clone(),
            thread_cpu: thread_cpu.unwrap_or_default(),
            steal: self.steal,
            io_wq_cpu: self.io_wq_cpu.unwrap_or_default(),
            warnings: warnings.unwrap_or_default(),
            disks,
        }))
    }
}

#[derive(sqlx::FromRow)]
struct DiskRow {
    id: i64,
    worker: String,
    serial: String,
    unfinished: u64,
    oldest_unfinished_ns: u64,
    device_json: Option<String>,
    pacing_json: Option<String>,
    stalls_json: String,
    errors_json: String,
    flushes: u64,
}

impl DiskRow {
    fn into_disk(self, ops: Ops, service: Option<Ops>) -> Result<DiskFinished, Fault> {
        Ok(DiskFinished {
            device: from_json_opt(self.device_json.as_deref(), "case_disks.device_json")?,
            pacing: from_json_opt(self.pacing_json.as_deref(), "case_disks.pacing_json")?,
            stalls: from_json(&self.stalls_json, "case_disks.stalls_json")?,
            errors: from_json(&self.errors_json, "case_disks.errors_json")?,
            serial: self.serial,
            ops,
            service,
            unfinished: self.unfinished,
            oldest_unfinished_ns: self.oldest_unfinished_ns,
            flushes: self.flushes,
            ..DiskFinished::default()
        })
    }
}

#[derive(sqlx::FromRow)]
struct DiskTotalsRow {
    case_disk_id: i64,
    timing: String,
    #[sqlx(flatten)]
    totals: TotalsRow,
}

/// The disks of each worker that sent Finished, in the order of Prepare.
async fn case_disks(
    connection: &mut SqliteConnection,
    case: CaseId,
) -> Result<BTreeMap<String, Vec<DiskFinished>>, Fault> {
    let totals: Vec<DiskTotalsRow> =
        sqlx::query_as(sql::SELECT_DISK_TOTALS).bind(case.0).fetch_all(&mut *connection).await?;
    let (mut response, mut service) = (BTreeMap::<i64, Ops>::new(), BTreeMap::<i64, Ops>::new());
    for row in totals {
        let by_disk = if row.timing == "service" { &mut service } else { &mut response };
        row.totals.put_into(by_disk.entry(row.case_disk_id).or_default());
    }
    let disks: Vec<DiskRow> = sqlx::query_as(sql::SELECT_CASE_DISKS).bind(case.0).fetch_all(&mut *connection).await?;
    let mut by_worker: BTreeMap<String, Vec<DiskFinished>> = BTreeMap::new();
    for row in disks {
        let (ops, service) = (response.remove(&row.id).unwrap_or_default(), service.remove(&row.id));
        let worker = by_worker.entry(row.worker.clone()).or_default();
        worker.push(row.into_disk(ops, service)?);
    }
    Ok(by_worker)
}

#[derive(sqlx::FromRow)]
struct MarkRow {
    worker: String,
    phase: String,
    second: u32,
    whole: bool,
    read_count: u64,
    write_count: u64,
}

async fn case_marks(
    connection: &mut SqliteConnection,
    case: CaseId,
) -> Result<BTreeMap<String, Vec<SecondMark>>, Fault> {
    let rows: Vec<MarkRow> = sqlx::query_as(sql::SELECT_MARKS).bind(case.0).fetch_all(&mut *connection).await?;
    let mut by_worker: BTreeMap<String, Vec<SecondMark>> = BTreeMap::new();
    for MarkRow { worker, phase: word, second, whole, read_count, write_count } in rows {
        let mark = SecondMark { phase: phase(&word)?, second, whole, read_count, write_count };
        by_worker.entry(worker).or_default().push(mark);
    }
    Ok(by_worker)
}
