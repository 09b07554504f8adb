//! Deleting a run that has ended. Its files go first: until they are gone it is listed, so that a deletion that is broken off can be asked
//! for again. Then it is gone from every list at once, and its rows go in steps, so that the samples of a run that goes on need not wait
//! behind them.

use std::path::PathBuf;

use jiff::Timestamp;
use sqlx::Connection;

use crate::error::{Fault, Refusal};
use crate::rows::time_text;
use crate::run_files::{self, Stuck};
use crate::runs::{one_row, run_state};
use crate::{DataDir, RunId, Store, StoreError, sql};

/// Rows that one step deletes at most: some tens of milliseconds.
const STEP_ROWS: u32 = 5_000;

/// What a run has rows of by the second, in the order in which they may go.
const BY_STEPS: [&str; 4] =
    [sql::PURGE_HISTOGRAMS, sql::PURGE_WORKER_SECONDS, sql::PURGE_CLUSTER_SECONDS, sql::PURGE_HOST_SAMPLES];

/// The rest, in the order in which it may go.
const AT_ONCE: [&str; 12] = [
    sql::PURGE_SERIES,
    sql::PURGE_TOTALS,
    sql::PURGE_DISKS,
    sql::PURGE_CASE_WORKERS,
    sql::PURGE_CASES,
    sql::PURGE_FILLS,
    sql::PURGE_FILL_TIMES,
    sql::PURGE_WORKERS,
    sql::PURGE_JOURNAL,
    sql::PURGE_EVENTS,
    sql::PURGE_TRANSITIONS,
    sql::PURGE_RUN,
];

impl Store {
    /// Deletes a run with all that was measured, the report that was written when it ended, and its workers' logs. What its journal does not
    /// say to be removed is recorded nowhere else: such a run is deleted only where `forget_left` says so.
    ///
    /// # Errors
    /// [`Refusal::Absent`], [`Refusal::RunGoesOn`], [`Refusal::LeftBehind`]: nothing was removed. [`StoreError::HalfDeleted`] says what was. A
    /// deletion that was broken off after the run was gone from the lists is taken up again by [`Store::purge_deleted`].
    pub async fn delete_run(&self, run: RunId, forget_left: bool) -> Result<(), StoreError> {
        self.named("deleting a run", self.may_delete(run, forget_left).await)?;
        let removed = self.remove_files(run).await?;
        let half = |removed, gone, fault: Fault| {
            let source = Box::new(fault.named(self.file(), "deleting a run"));
            StoreError::HalfDeleted { removed, gone, source }
        };
        match self.mark_deleted(run).await {
            Ok(()) => {}
            // Somebody else deleted it meanwhile.
            Err(fault @ Fault::Refused(Refusal::Absent { .. })) => return self.named("deleting a run", Err(fault)),
            Err(fault) => return Err(half(removed, false, fault)),
        }
        self.purge(run).await.map_err(|fault| half(removed, true, fault))
    }

    async fn may_delete(&self, run: RunId, forget_left: bool) -> Result<(), Fault> {
        let objects = self.left_behind(run).await?;
        let mut writer = self.writer().await?;
        let state = run_state(&mut writer, run).await?;
        if !state.is_final() {
            return Err(Refusal::RunGoesOn { state }.into());
        }
        if !objects.is_empty() && !forget_left {
            return Err(Refusal::LeftBehind { objects }.into());
        }
        Ok(())
    }

    /// Directories of logs may have thousands of files.
    async fn remove_files(&self, run: RunId) -> Result<Vec<PathBuf>, StoreError> {
        let Some(dir) = self.file().parent().map(DataDir::new) else { return Ok(Vec::new()) };
        let removed = tokio::task::spawn_blocking(move || run_files::remove(&dir, run)).await;
        match removed {
            Ok(Ok(removed)) => Ok(removed),
            Ok(Err(Stuck { removed, path, source })) => {
                let source = StoreError::DataDir { path, action: "removed", source };
                Err(StoreError::HalfDeleted { removed, gone: false, source: Box::new(source) })
            }
            Err(error) => self.named("deleting a run", Err(Fault::unreadable("the run's files", error))),
        }
    }

    async fn mark_deleted(&self, run: RunId) -> Result<(), Fault> {
        let mut writer = self.writer().await?;
        let marked = sqlx::query(sql::MARK_DELETED).bind(run.to_string()).bind(time_text(Timestamp::now()));
        one_row(marked.execute(&mut *writer).await?, || Fault::absent("run", run))
    }

    /// What the journal of a run knows to exist, and what it does not know.
    async fn left_behind(&self, run: RunId) -> Result<Vec<String>, Fault> {
        let living = self.journal(sql::LIVING_OBJECTS, run).await?;
        let open = self.journal(sql::OPEN_INTENTS, run).await?;
        Ok(living.into_iter().chain(open).map(|entry| entry.object.unwrap_or(entry.kind)).collect())
    }

    /// Takes up deletions that an orchestrator that was killed did not end.
    ///
    /// # Errors
    /// [`StoreError`] where they cannot be committed.
    pub async fn purge_deleted(&self) -> Result<(), StoreError> {
        let purged = async {
            let marked: Vec<String> = sqlx::query_scalar(sql::MARKED_RUNS).fetch_all(&self.inner.readers).await?;
            for id in marked {
                self.purge(id.parse().map_err(|error| Fault::unreadable("runs.id", error))?).await?;
            }
            Ok(())
        };
        self.named("deleting runs", purged.await)
    }

    async fn purge(&self, run: RunId) -> Result<(), Fault> {
        for statement in BY_STEPS {
            while self.purge_step(statement, run).await? > 0 {
                tokio::task::yield_now().await;
            }
        }
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        for statement in AT_ONCE {
            sqlx::query(statement).bind(run.to_string()).execute(&mut *tx).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Deletes some rows; answers how many.
    async fn purge_step(&self, statement: &'static str, run: RunId) -> Result<u64, Fault> {
        let mut writer = self.writer().await?;
        let done = sqlx::query(statement).bind(run.to_string()).bind(STEP_ROWS).execute(&mut *writer).await?;
        Ok(done.rows_affected())
    }
}
