//! A journal in memory that can kill the orchestrator at any step, for the tests of all providers.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::future::Future;
use std::sync::{Arc, Mutex};

use hypervisor::{BoxFuture, Effect, Intent, Journal, JournalEntry, JournalError, Outcome};
use serde_json::Value;
use tokio::sync::Notify;

/// Entries as a store would keep them.
#[derive(Default)]
pub(crate) struct Memory {
    entries: Mutex<Vec<JournalEntry>>,
    operations: Mutex<usize>,
    /// Operation at which the orchestrator is killed, and whether that operation is committed before.
    kill: Option<(usize, bool)>,
    /// Nothing can be written.
    refuses: bool,
    killed: Arc<Notify>,
}

impl Memory {
    /// Killed right before or right after the commit of its operation number `at`.
    pub(crate) fn killed_at(at: usize, committed: bool) -> Self {
        Self { kill: Some((at, committed)), ..Self::default() }
    }

    /// A full disk.
    pub(crate) fn refusing() -> Self {
        Self { refuses: true, ..Self::default() }
    }

    pub(crate) fn of(entries: Vec<JournalEntry>) -> Self {
        Self { entries: Mutex::new(entries), ..Self::default() }
    }

    pub(crate) fn entries(&self) -> Vec<JournalEntry> {
        self.entries.lock().expect("no panic").clone()
    }

    pub(crate) fn operations(&self) -> usize {
        *self.operations.lock().expect("no panic")
    }

    /// Runs to the end, or to the kill: then none, and the future is dropped with all calls that it has under way.
    pub(crate) async fn until_killed<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.killed.notified() => None,
            done = work => Some(done),
        }
    }

    async fn operation<T>(&self, commit: impl FnOnce(&mut Vec<JournalEntry>) -> T) -> T {
        let number = {
            let mut operations = self.operations.lock().expect("no panic");
            *operations += 1;
            *operations - 1
        };
        let commit = || commit(&mut self.entries.lock().expect("no panic"));
        match self.kill {
            Some((at, committed)) if number >= at => {
                if committed && number == at {
                    commit();
                }
                self.killed.notify_one();
                std::future::pending().await
            }
            _ => commit(),
        }
    }
}

impl Journal for Memory {
    fn intent(&self, intent: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
        Box::pin(async move {
            if self.refuses {
                return Err(JournalError("disk full".into()));
            }
            let commit = |entries: &mut Vec<JournalEntry>| {
                let id = i64::try_from(entries.len()).expect("few");
                entries.push(JournalEntry { id, intent, task: None, outcome: None });
                id
            };
            Ok(self.operation(commit).await)
        })
    }

    fn task(&self, id: i64, task: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            self.operation(|entries| entries[usize::try_from(id).expect("an id")].task = Some(task)).await;
            Ok(())
        })
    }

    fn outcome(&self, id: i64, succeeded: bool, details: Value) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            let outcome = Some(Outcome { succeeded, details });
            self.operation(|entries| entries[usize::try_from(id).expect("an id")].outcome = outcome).await;
            Ok(())
        })
    }
}

/// What a journal says may still exist: creations that had their effect, or may have had it, and no destruction after them.
pub(crate) fn living(entries: &[JournalEntry]) -> Vec<&JournalEntry> {
    let succeeded = |entry: &JournalEntry| entry.outcome.as_ref().is_some_and(|outcome| outcome.succeeded);
    let is_gone = |made: &JournalEntry| {
        entries.iter().any(|gone| {
            let same = gone.intent.object == made.intent.object && gone.id > made.id;
            gone.intent.effect == Effect::Destroy && same && succeeded(gone)
        })
    };
    let may_be =
        |made: &&JournalEntry| made.outcome.is_none() || (made.intent.effect == Effect::Create && succeeded(made));
    entries.iter().filter(may_be).filter(|made| !is_gone(made)).collect()
}
