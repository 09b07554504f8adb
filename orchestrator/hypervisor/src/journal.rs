//! The journal a provider writes to: an intent before each change, its outcome after it.

use serde::{Deserialize, Serialize};

use crate::BoxFuture;

/// Where intents and outcomes are committed. Implemented by whoever owns the store.
pub trait Journal: Send + Sync {
    /// Commits what is about to be done, with all that identifies what will exist. The change may be made only after this returns.
    fn intent<'a>(&'a self, kind: &'a str, intent: serde_json::Value) -> BoxFuture<'a, Result<i64, JournalError>>;

    /// Commits what came of it: identity of the object made, or what went wrong.
    fn outcome<'a>(&'a self, id: i64, outcome: serde_json::Value) -> BoxFuture<'a, Result<(), JournalError>>;
}

/// A recorded change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JournalEntry {
    /// Identity of the entry.
    pub id: i64,
    /// Kind of change, as the provider names it.
    pub kind: String,
    /// What was to be done.
    pub intent: serde_json::Value,
    /// What came of it; none where the orchestrator ended in between.
    pub outcome: Option<serde_json::Value>,
}

/// The journal could not be written: no change may be made.
#[derive(Debug, thiserror::Error)]
#[error("the journal could not be written, so nothing was changed: {0}")]
pub struct JournalError(pub String);
