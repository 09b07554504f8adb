//! The journal a provider writes to: an intent before each change, its outcome after it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::BoxFuture;

/// Where intents and outcomes are committed. Implemented by whoever owns the store.
pub trait Journal: Send + Sync {
    /// Commits what is about to be done, with all that identifies what will exist. The change may be made only after this returns.
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>>;

    /// Commits the place's own identity of the work that does it (a task id), while it goes on.
    fn task(&self, id: i64, task: Value) -> BoxFuture<'_, Result<(), JournalError>>;

    /// Commits what came of it: identity of the object made, or what went wrong. Texts in a list `warnings` are what the place warned of; they
    /// are shown to the reader.
    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>>;
}

/// A change that is about to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    /// Kind of change, as the provider names it (`local.create-disk`).
    pub kind: String,
    /// What it does to its object.
    pub effect: Effect,
    /// The object: a path, a VMID.
    pub object: String,
    /// All that identifies what will exist, and the parameters. No secrets.
    pub details: Value,
}

/// What a change does to its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It exists afterwards.
    Create,
    /// It is changed.
    Change,
    /// It is gone afterwards.
    Destroy,
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Identity of the entry.
    pub id: i64,
    /// What was to be done.
    pub intent: Intent,
    /// The place's task, where one was recorded.
    pub task: Option<Value>,
    /// What came of it; none where the orchestrator ended in between.
    pub outcome: Option<Outcome>,
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// It had its effect.
    pub succeeded: bool,
    /// Identity of the object made, or what went wrong.
    pub details: Value,
}

/// The journal could not be written: no change may be made.
#[derive(Debug, thiserror::Error)]
#[error("the journal could not be written, so nothing was changed: {0}")]
pub struct JournalError(pub String);
