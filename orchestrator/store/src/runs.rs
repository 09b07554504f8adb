//! Writing runs: states, events, journal, workers and fills.

use analysis::export::{EarlyEnd, PlannedCase};
use jiff::Timestamp;
use serde_json::Value;
use sqlx::{Connection, SqliteConnection};
use uuid::Uuid;

use crate::error::{Fault, Refusal};
use crate::rows::{from_json_opt, int, json, time_text};
use crate::{
    Intent, JournalId, Level, NewFill, NewRun, NewWorker, Outcome, RunEnd, RunId, RunState, Store, StoreError, sql,
};

impl Store {
    /// Records a new run in state `planned`.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn create_run(&self, run: &NewRun<'_>) -> Result<RunId, StoreError> {
        self.named("recording a run", self.try_create_run(run).await)
    }

    async fn try_create_run(&self, run: &NewRun<'_>) -> Result<RunId, Fault> {
        let id = RunId(Uuid::now_v7());
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        sqlx::query(sql::INSERT_RUN)
            .bind(id.to_string())
            .bind(&run.plan.name)
            .bind(RunState::Planned.as_str())
            .bind(time_text(Timestamp::now()))
            .bind(run.plan_yaml)
            .bind(json(run.plan, "the plan")?)
            .bind(json(run.environment, "the environment")?)
            .bind(run.seed.to_string())
            .bind(run.plan.rehearsal)
            .bind(planned_cases(run.plan))
            .execute(&mut *tx)
            .await?;
        insert_transition(&mut tx, id, RunState::Planned).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Replaces the run's environment: what reproduces it, by name. An object.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be committed.
    pub async fn set_environment(&self, run: RunId, environment: &Value) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let text = json(environment, "the environment")?;
            let done = sqlx::query(sql::UPDATE_ENVIRONMENT).bind(run.to_string()).bind(text);
            one_row(done.execute(&mut *writer).await?, || Fault::absent("run", run))
        };
        self.named("recording the environment", stored.await)
    }

    /// Takes a run to another state that is not final, and records the transition. For the end see [`Store::finish_run`].
    ///
    /// # Errors
    /// [`Refusal::Transition`] where the run cannot go there from its present state; [`StoreError`] where it cannot be committed.
    pub async fn set_run_state(&self, run: RunId, state: RunState) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
            let from = run_state(&mut tx, run).await?;
            if state.is_final() {
                return Err(Refusal::Transition { from, to: state }.into());
            }
            change_state(&mut tx, run, from, state).await?;
            Ok(tx.commit().await?)
        };
        self.named("recording the run's state", stored.await)
    }

    /// Records who asked a run that goes on to end early; the latest who did.
    ///
    /// # Errors
    /// [`StoreError`] where there is no such run, or it cannot be committed.
    pub async fn set_early_end(&self, run: RunId, end: &EarlyEnd) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let text = json(end, "the early end")?;
            let done = sqlx::query(sql::UPDATE_EARLY_END).bind(run.to_string()).bind(text);
            one_row(done.execute(&mut *writer).await?, || Fault::absent("run", run))
        };
        self.named("recording who ended the run", stored.await)
    }

    /// Who asked a run to end early; none where nobody did.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be read.
    pub async fn early_end(&self, run: RunId) -> Result<Option<EarlyEnd>, StoreError> {
        let read = async {
            let mut connection = self.inner.readers.acquire().await?;
            early_end(&mut connection, run).await
        };
        self.named("reading who ended the run", read.await)
    }

    /// Ends a run; one that was stopped or cancelled keeps who asked for it, with the cases that were never begun. It is complete where it is done and all its planned cases are complete; the answer says whether it is.
    ///
    /// # Errors
    /// [`Refusal::Transition`] where `end.state` is not final or cannot follow the run's present state; [`StoreError`] where it cannot be
    /// committed.
    pub async fn finish_run(&self, run: RunId, end: &RunEnd) -> Result<bool, StoreError> {
        self.named("recording the run's end", self.try_finish_run(run, end).await)
    }

    async fn try_finish_run(&self, run: RunId, end: &RunEnd) -> Result<bool, Fault> {
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        let from = run_state(&mut tx, run).await?;
        if !end.state.is_final() {
            return Err(Refusal::Transition { from, to: end.state }.into());
        }
        change_state(&mut tx, run, from, end.state).await?;
        conclude_early_end(&mut tx, run, end.state).await?;
        let measured: u32 =
            sqlx::query_scalar(sql::COUNT_COMPLETE_CASES).bind(run.to_string()).fetch_one(&mut *tx).await?;
        let complete = end.state == RunState::Done && measured == end.planned_cases;
        let shortfall = || format!("{measured} of {} cases are complete", end.planned_cases);
        let reason = end.reason.clone().or_else(|| (!complete).then(shortfall));
        sqlx::query(sql::UPDATE_RUN_END)
            .bind(run.to_string())
            .bind(time_text(Timestamp::now()))
            .bind(complete)
            .bind(reason)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(complete)
    }

    /// Replaces what the engineer says of a run.
    ///
    /// # Errors
    /// [`Refusal::Absent`] where there is no such run; [`StoreError`] where it cannot be committed.
    pub async fn set_note(&self, run: RunId, note: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            let done = sqlx::query(sql::UPDATE_NOTE).bind(run.to_string()).bind(note).execute(&mut *writer).await?;
            one_row(done, || Fault::absent("run", run))
        };
        self.named("recording a note", stored.await)
    }

    /// Adds something that the reader of all the run's figures must know; once, however often it is said.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn add_run_warning(&self, run: RunId, warning: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            sqlx::query(sql::APPEND_RUN_WARNING).bind(run.to_string()).bind(warning).execute(&mut *writer).await?;
            Ok(())
        };
        self.named("recording a warning", stored.await)
    }

    /// Records something that happened, now.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn add_event(&self, run: RunId, level: Level, message: &str) -> Result<(), StoreError> {
        let stored = async {
            let mut writer = self.writer().await?;
            sqlx::query(sql::INSERT_EVENT)
                .bind(run.to_string())
                .bind(time_text(Timestamp::now()))
                .bind(level.as_str())
                .bind(message)
                .execute(&mut *writer)
                .await?;
            Ok(())
        };
        self.named("recording an event", stored.await)
    }

    /// Records a call that is about to be sent. Send it only after this has returned.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn journal_intent(&self, run: RunId, intent: &Intent<'_>) -> Result<JournalId, StoreError> {
        let stored = async {
            let details = json(intent.details, "the intent")?;
            let mut writer = self.writer().await?;
            let done = sqlx::query(sql::INSERT_INTENT)
                .bind(run.to_string())
                .bind(intent.kind)
                .bind(intent.effect.as_str())
                .bind(intent.object)
                .bind(details)
                .bind(time_text(Timestamp::now()))
                .execute(&mut *writer)
                .await?;
            Ok(JournalId(done.last_insert_rowid()))
        };
        self.named("journalling an intent", stored.await)
    }

    /// Records the hypervisor's task of a call that was sent.
    ///
    /// # Errors
    /// [`Refusal::Ended`] where the call's outcome is recorded already; [`StoreError`] where it cannot be committed.
    pub async fn journal_task(&self, entry: JournalId, task: &Value) -> Result<(), StoreError> {
        let stored = async {
            let text = json(task, "the task")?;
            let mut writer = self.writer().await?;
            let done = sqlx::query(sql::UPDATE_TASK).bind(entry.0).bind(text).execute(&mut *writer).await?;
            one_row(done, || Fault::ended("journal entry", entry))
        };
        self.named("journalling a task", stored.await)
    }

    /// Records how a call ended.
    ///
    /// # Errors
    /// [`Refusal::Ended`] where that is recorded already; [`StoreError`] where it cannot be committed.
    pub async fn journal_outcome(&self, entry: JournalId, outcome: &Outcome<'_>) -> Result<(), StoreError> {
        let stored = async {
            let details = json(outcome.details, "the outcome")?;
            let mut writer = self.writer().await?;
            let done = sqlx::query(sql::UPDATE_OUTCOME)
                .bind(entry.0)
                .bind(outcome.succeeded)
                .bind(outcome.object)
                .bind(details)
                .bind(time_text(Timestamp::now()))
                .execute(&mut *writer)
                .await?;
            one_row(done, || Fault::ended("journal entry", entry))
        };
        self.named("journalling an outcome", stored.await)
    }

    /// Records a worker that enrolled, or enrolled again. The enrolment token is not stored.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn add_worker(&self, run: RunId, worker: &NewWorker<'_>) -> Result<(), StoreError> {
        let stored = async {
            let hello = worker_protocol::Hello { token: String::new(), ..worker.hello.clone() };
            let text = json(&hello, "the worker's hello")?;
            let mut writer = self.writer().await?;
            sqlx::query(sql::INSERT_WORKER)
                .bind(run.to_string())
                .bind(worker.name)
                .bind(&hello.uuid)
                .bind(text)
                .bind(worker.host)
                .execute(&mut *writer)
                .await?;
            Ok(())
        };
        self.named("recording a worker", stored.await)
    }

    /// Records the fill of a footprint's new bytes; again, with the blocks that were read back since.
    ///
    /// # Errors
    /// [`StoreError`] where it cannot be committed.
    pub async fn add_fill(&self, run: RunId, fill: &NewFill) -> Result<(), StoreError> {
        self.named("recording a fill", self.try_add_fill(run, fill).await)
    }

    async fn try_add_fill(&self, run: RunId, fill: &NewFill) -> Result<(), Fault> {
        let footprint = int(fill.footprint_bytes, "the footprint")?;
        let mut writer = self.writer().await?;
        let mut tx = writer.begin_with(sql::BEGIN_IMMEDIATE).await?;
        sqlx::query(sql::INSERT_FILL_TIME)
            .bind(run.to_string())
            .bind(footprint)
            .bind(fill.seconds)
            .execute(&mut *tx)
            .await?;
        for disk in &fill.disks {
            sqlx::query(sql::INSERT_FILL)
                .bind(run.to_string())
                .bind(footprint)
                .bind(&disk.worker)
                .bind(&disk.disk)
                .bind(int(disk.bytes, "bytes filled")?)
                .bind(disk.seconds)
                .bind(int(disk.verified_blocks, "blocks verified")?)
                .execute(&mut *tx)
                .await?;
        }
        Ok(tx.commit().await?)
    }
}

async fn early_end(connection: &mut SqliteConnection, run: RunId) -> Result<Option<EarlyEnd>, Fault> {
    let text: Option<Option<String>> =
        sqlx::query_scalar(sql::SELECT_EARLY_END).bind(run.to_string()).fetch_optional(connection).await?;
    from_json_opt(text.flatten().as_deref(), "runs.ended_early_json")
}

/// What was asked of a run that ended otherwise was of no effect.
async fn conclude_early_end(tx: &mut SqliteConnection, run: RunId, state: RunState) -> Result<(), Fault> {
    let Some(mut end) = early_end(tx, run).await? else { return Ok(()) };
    let text = if matches!(state, RunState::Stopped | RunState::Cancelled) {
        let begun: u32 = sqlx::query_scalar(sql::COUNT_CASES).bind(run.to_string()).fetch_one(&mut *tx).await?;
        let query = sqlx::query_as(sql::SELECT_PLANNED_CASES).bind(run.to_string()).bind(begun);
        let left_out: Vec<(String, String)> = query.fetch_all(&mut *tx).await?;
        end.not_run = left_out.into_iter().map(|(footprint, workload)| PlannedCase { footprint, workload }).collect();
        Some(json(&end, "the early end")?)
    } else {
        None
    };
    sqlx::query(sql::UPDATE_EARLY_END).bind(run.to_string()).bind(text).execute(tx).await?;
    Ok(())
}

/// Cases that a plan asks for.
fn planned_cases(plan: &plan::TestPlan) -> u32 {
    u32::try_from(plan.footprints.len() * plan.workloads.len()).unwrap_or(u32::MAX)
}

/// An update that must have found its row.
pub(crate) fn one_row(done: sqlx::sqlite::SqliteQueryResult, otherwise: impl FnOnce() -> Fault) -> Result<(), Fault> {
    if done.rows_affected() == 0 { Err(otherwise()) } else { Ok(()) }
}

pub(crate) async fn run_state(connection: &mut SqliteConnection, run: RunId) -> Result<RunState, Fault> {
    let word: Option<String> =
        sqlx::query_scalar(sql::SELECT_RUN_STATE).bind(run.to_string()).fetch_optional(connection).await?;
    RunState::parse(&word.ok_or_else(|| Fault::absent("run", run))?)
}

async fn change_state(
    connection: &mut SqliteConnection,
    run: RunId,
    from: RunState,
    to: RunState,
) -> Result<(), Fault> {
    if !from.may_become(to) {
        return Err(Refusal::Transition { from, to }.into());
    }
    sqlx::query(sql::UPDATE_RUN_STATE).bind(run.to_string()).bind(to.as_str()).execute(&mut *connection).await?;
    insert_transition(connection, run, to).await
}

async fn insert_transition(connection: &mut SqliteConnection, run: RunId, state: RunState) -> Result<(), Fault> {
    sqlx::query(sql::INSERT_TRANSITION)
        .bind(run.to_string())
        .bind(state.as_str())
        .bind(time_text(Timestamp::now()))
        .execute(connection)
        .await?;
    Ok(())
}
