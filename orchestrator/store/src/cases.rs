//! Writing cases: their start, what each worker says at its end, and their result.

use analysis::case::{CaseFigures, CaseResult, CaseState};
use sqlx::{Connection, SqliteConnection};
use worker_protocol::{DiskFinished, Finished, OpTotals, Ops};

use crate::error::Fault;
use crate::rows::{Scalars, int, json, time_text};
use crate::runs::one_row;
use crate::{CaseId, CaseWindow, NewCase, NewHostSample, RunId, Store, StoreError, WorkerReady, WorkerResult, sql};
use crate::{brief, series};

impl Store {
    /// Records a case that is about to be prepared, with the workers that it is given to.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn start_case(&self, run: RunId, case: &NewCase<'_>) -> Result<CaseId, StoreError> {
        self.named("recording a case", self.try_start_case(run, case).await)
    }

    async fn try_start_case(&self, run: RunId, case: &NewCase<'_>) -> Result<CaseId, Fault> {
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        let done = sqlx::query(sql::INSERT_CASE)
            .bind(run.to_string())
            .bind(case.ordinal)
            .bind(&case.footprint.label)
            .bind(int(case.footprint.bytes, "the footprint")?)
            .bind(int(case.region_bytes, "the region")?)
            .bind(int(case.effective_bytes, "the effective footprint")?)
            .bind(json(case.workload, "the workload")?)
            .bind(case.precondition_seconds)
            .bind(case.sample_seconds)
            .bind(case.expected_workers)
            .bind(case.reads_unwritten)
            .execute(&mut *tx)
            .await?;
        let id = CaseId(done.last_insert_rowid());
        for (ordinal, worker) in (0_i64..).zip(&case.workers) {
            sqlx::query(sql::INSERT_CASE_WORKER)
                .bind(id.0)
                .bind(&worker.worker)
                .bind(ordinal)
                .bind(json(&worker.disks, "the worker's disks")?)
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(id)
    }

    /// Records what a worker's engine was granted.
    ///
    /// # Errors
    /// [`StoreError`] where the case was not given to the worker, or it cannot be committed.
    pub async fn set_engine(&self, case: CaseId, ready: &WorkerReady<'_>) -> Result<(), StoreError> {
        let stored = async {
            let text = json(ready.engine, "the engine's report")?;
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let update = sqlx::query(sql::UPDATE_CASE_ENGINE).bind(case.0).bind(ready.worker).bind(&text);
            one_row(update.execute(&mut *tx).await?, || absent_worker(case, ready.worker))?;
            sqlx::query(sql::UPDATE_WORKER_ENGINE)
                .bind(case.0)
                .bind(ready.worker)
                .bind(&text)
                .execute(&mut *tx)
                .await?;
            Ok(tx.commit().await?)
        };
        self.named("recording an engine's report", stored.await)
    }

    /// Records the window before the case starts.
    ///
    /// # Errors
    /// [`StoreError`] where a worker is none of the case's, or it cannot be committed.
    pub async fn set_case_window(&self, case: CaseId, window: &CaseWindow) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let update = sqlx::query(sql::UPDATE_CASE_WINDOW)
                .bind(case.0)
                .bind(time_text(window.started))
                .bind(time_text(window.t0))
                .bind(time_text(window.t1));
            one_row(update.execute(&mut *tx).await?, || Fault::absent("case", case))?;
            for start in &window.workers {
                let update = sqlx::query(sql::UPDATE_WORKER_START)
                    .bind(case.0)
                    .bind(&start.worker)
                    .bind(int(start.start_at_worker_ns, "the worker's start")?)
                    .bind(start.offset_ns);
                one_row(update.execute(&mut *tx).await?, || absent_worker(case, &start.worker))?;
            }
            Ok(tx.commit().await?)
        };
        self.named("recording a case's window", stored.await)
    }

    /// Records that a worker failed or was lost during the case; the first reason stays.
    ///
    /// # Errors
    /// [`StoreError`] where the case was not given to the worker, or it cannot be committed.
    pub async fn add_worker_failure(&self, case: CaseId, worker: &str, reason: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let update = sqlx::query(sql::UPDATE_WORKER_FAILURE).bind(case.0).bind(worker).bind(reason);
            one_row(update.execute(&mut *writer).await?, || absent_worker(case, worker))
        };
        self.named("recording a worker's failure", stored.await)
    }

    /// Records hosts and storage as they were at one moment of a case.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such case, or it cannot be committed.
    pub async fn add_host_sample(&self, case: CaseId, sample: &NewHostSample) -> Result<(), StoreError> {
        let stored = async {
            let storage = sample.storage.as_ref().map(|storage| json(storage, "the storage's health")).transpose()?;
            let mut writer = self.writer().await?;
            sqlx::query(sql::INSERT_HOST_SAMPLE)
                .bind(case.0)
                .bind(time_text(sample.at))
                .bind(json(&sample.hosts, "the hosts' load")?)
                .bind(storage)
                .execute(&mut *writer)
                .await?;
            Ok(())
        };
        self.named("storing the hosts' load", stored.await)
    }

    /// Records a worker's Finished with the totals and histograms of its disks. A Finished that is sent again changes nothing.
    /// Acknowledge it only after this has returned.
    ///
    /// # Errors
    /// [`StoreError`] where the case was not given to the worker, or it cannot be committed.
    pub async fn add_disk_results(&self, case: CaseId, result: &WorkerResult<'_>) -> Result<(), StoreError> {
        self.named("recording a worker's results", self.try_add_disk_results(case, result).await)
    }

    async fn try_add_disk_results(&self, case: CaseId, result: &WorkerResult<'_>) -> Result<(), Fault> {
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        let known: Option<Option<bool>> = sqlx::query_scalar(sql::SELECT_WORKER_FINISHED)
            .bind(case.0)
            .bind(result.worker)
            .fetch_optional(&mut *tx)
            .await?;
        match known {
            None => return Err(absent_worker(case, result.worker)),
            Some(Some(_)) => return Ok(tx.rollback().await?),
            Some(None) => {}
        }
        update_finished(&mut tx, case, result).await?;
        for (ordinal, disk) in (0_i64..).zip(&result.finished.disks) {
            insert_disk(&mut tx, case, result.worker, ordinal, disk).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Stores a case's result and seconds, and deletes what only the merge needed, in one transaction.
    ///
    /// # Errors
    /// [`crate::Refusal::Ended`] where the case has a result already; [`StoreError`] where it cannot be committed.
    pub async fn finish_case(&self, case: CaseId, result: &CaseResult) -> Result<(), StoreError> {
        self.named("storing a case's result", self.try_finish_case(case, result).await)
    }

    async fn try_finish_case(&self, case: CaseId, result: &CaseResult) -> Result<(), Fault> {
        let figures = CaseFigures { per_disk: Vec::new(), ..result.figures.clone() };
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        require_running(&mut tx, case).await?;
        sqlx::query(sql::UPDATE_CASE_END)
            .bind(case.0)
            .bind(result.state.as_str())
            .bind(&result.reason)
            .bind(json(&result.warnings, "the case's warnings")?)
            .bind(json(&figures, "the case's figures")?)
            .bind(json(&result.figures.per_disk, "the case's disks")?)
            .bind(brief::encode(&result.figures.per_disk)?)
            .execute(&mut *tx)
            .await?;
        insert_ops(&mut tx, TotalsKey { case, disk: None, timing: "response" }, &result.cluster).await?;
        if let Some(service) = &result.cluster_service {
            insert_ops(&mut tx, TotalsKey { case, disk: None, timing: "service" }, service).await?;
        }
        let seconds = series::encode(&result.precondition_seconds, &result.seconds);
        sqlx::query(sql::INSERT_SERIES).bind(case.0).bind(seconds).execute(&mut *tx).await?;
        sqlx::query(sql::DELETE_SECOND_HISTOGRAMS).bind(case.0).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }
}

fn absent_worker(case: CaseId, worker: &str) -> Fault {
    Fault::absent("worker in the case", format!("{worker} (case {case})"))
}

/// A case that still takes results.
pub(crate) async fn require_running(connection: &mut SqliteConnection, case: CaseId) -> Result<(), Fault> {
    let state: Option<String> =
        sqlx::query_scalar(sql::SELECT_CASE_STATE).bind(case.0).fetch_optional(connection).await?;
    match state {
        None => Err(Fault::absent("case", case)),
        Some(state) if state == CaseState::Running.as_str() => Ok(()),
        Some(_) => Err(Fault::ended("case", case)),
    }
}

async fn update_finished(
    connection: &mut SqliteConnection,
    case: CaseId,
    result: &WorkerResult<'_>,
) -> Result<(), Fault> {
    let Finished {
        started_worker_ns, ended_worker_ns, complete, reason, thread_cpu, steal, io_wq_cpu, warnings, ..
    } = result.finished;
    sqlx::query(sql::UPDATE_WORKER_FINISHED)
        .bind(case.0)
        .bind(result.worker)
        .bind(int(*started_worker_ns, "the worker's first I/O")?)
        .bind(int(*ended_worker_ns, "the worker's last I/O")?)
        .bind(*complete)
        .bind(reason)
        .bind(json(thread_cpu, "the threads' CPU use")?)
        .bind(*steal)
        .bind(json(warnings, "the worker's warnings")?)
        .bind(result.offset_ns)
        .bind(*io_wq_cpu)
        .execute(connection)
        .await?;
    Ok(())
}

async fn insert_disk(
    connection: &mut SqliteConnection,
    case: CaseId,
    worker: &str,
    ordinal: i64,
    disk: &DiskFinished,
) -> Result<(), Fault> {
    let done = sqlx::query(sql::INSERT_CASE_DISK)
        .bind(case.0)
        .bind(worker)
        .bind(ordinal)
        .bind(&disk.serial)
        .bind(int(disk.unfinished, "unfinished I/Os")?)
        .bind(int(disk.oldest_unfinished_ns, "the oldest I/O's age")?)
        .bind(disk.device.as_ref().map(|device| json(device, "the device's counters")).transpose()?)
        .bind(disk.pacing.as_ref().map(|pacing| json(pacing, "the pacing")).transpose()?)
        .bind(json(&disk.stalls, "the stalls")?)
        .bind(json(&disk.errors, "the errors")?)
        .bind(int(disk.flushes, "flushes")?)
        .execute(&mut *connection)
        .await?;
    let disk_id = Some(done.last_insert_rowid());
    insert_ops(connection, TotalsKey { case, disk: disk_id, timing: "response" }, &disk.ops).await?;
    match &disk.service {
        Some(service) => insert_ops(connection, TotalsKey { case, disk: disk_id, timing: "service" }, service).await,
        None => Ok(()),
    }
}

/// Whose totals a row holds.
#[derive(Clone, Copy)]
struct TotalsKey {
    case: CaseId,
    disk: Option<i64>,
    timing: &'static str,
}

async fn insert_ops(connection: &mut SqliteConnection, key: TotalsKey, ops: &Ops) -> Result<(), Fault> {
    insert_totals(connection, key, "read", &ops.read).await?;
    insert_totals(connection, key, "write", &ops.write).await
}

async fn insert_totals(
    connection: &mut SqliteConnection,
    key: TotalsKey,
    op: &'static str,
    totals: &OpTotals,
) -> Result<(), Fault> {
    let scalars = Scalars::of(totals)?;
    sqlx::query(sql::INSERT_TOTALS)
        .bind(key.case.0)
        .bind(key.disk)
        .bind(key.timing)
        .bind(op)
        .bind(scalars.count)
        .bind(scalars.bytes)
        .bind(scalars.errors)
        .bind(scalars.sum_ns)
        .bind(scalars.min_ns)
        .bind(scalars.max_ns)
        .bind(scalars.over_range)
        .bind(&totals.histogram)
        .execute(connection)
        .await?;
    Ok(())
}
