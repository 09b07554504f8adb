//! The provider's journal, kept in the store.

use hypervisor::{BoxFuture, Intent, JournalError};
use serde_json::Value;
use store::{JournalId, RunId, Store};

/// Writes a provider's changes to the journal of one run.
pub(crate) struct RunJournal<'a> {
    pub(crate) store: &'a Store,
    pub(crate) run: RunId,
}

impl hypervisor::Journal for RunJournal<'_> {
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
        Box::pin(async move {
            let effect = match intent.effect {
                hypervisor::Effect::Create => store::Effect::Create,
                hypervisor::Effect::Change => store::Effect::Change,
                hypervisor::Effect::Destroy => store::Effect::Destroy,
            };
            let row =
                store::Intent { kind: &intent.kind, effect, object: Some(&intent.object), details: &intent.details };
            self.store.journal_intent(self.run, &row).await.map(|id| id.0).map_err(journal_error)
        })
    }

    fn task(&self, id: i64, task: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move { self.store.journal_task(JournalId(id), &task).await.map_err(journal_error) })
    }

    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let outcome = store::Outcome { succeeded, object: None, details: &details };
            self.store.journal_outcome(JournalId(id), &outcome).await.map_err(journal_error)?;
            let warnings = details["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
            for warning in warnings {
                self.store.add_run_warning(self.run, warning).await.map_err(journal_error)?;
            }
            Ok(())
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err takes")]
fn journal_error(error: store::StoreError) -> JournalError {
    JournalError(error.to_string())
}

/// All of a run's journal, in order, as the provider wrote it: those of calls that failed, too, since they may have left something.
pub(crate) async fn entries(store: &Store, run: RunId) -> Result<Vec<hypervisor::JournalEntry>, store::StoreError> {
    Ok(store.journal_entries(run).await?.into_iter().map(entry).collect())
}

/// A stored row as the provider wrote it.
fn entry(row: store::JournalEntry) -> hypervisor::JournalEntry {
    let effect = match row.effect {
        store::Effect::Create => hypervisor::Effect::Create,
        store::Effect::Change => hypervisor::Effect::Change,
        store::Effect::Destroy => hypervisor::Effect::Destroy,
    };
    let intent = Intent { kind: row.kind, effect, object: row.object.unwrap_or_default(), details: row.intent };
    let outcome =
        row.succeeded.map(|succeeded| hypervisor::Outcome { succeeded, details: row.outcome.unwrap_or_default() });
    hypervisor::JournalEntry { id: row.id.0, intent, task: row.task, outcome }
}
