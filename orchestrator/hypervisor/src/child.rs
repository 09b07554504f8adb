//! A child process under observation: a worker's, or the emulator of a worker VM.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{oneshot, watch};

use crate::local::disks;
use crate::{CreatedWorker, Effect, HypervisorError, Intent, Journal, JournalEntry, Observed, WorkerState};

/// How long a child may take to end after it was asked to, and again after it was killed.
pub(crate) const END_GRACE: Duration = Duration::from_secs(10);
/// Outcome of a stop without effect.
pub(crate) const DID_NOT_END: &str = "did not end";
/// Bytes of a child's log shown when it ends unasked.
const LOG_TAIL_BYTES: usize = 600;

pub(crate) struct Supervised {
    /// Closing it ends the child.
    stdin: Option<ChildStdin>,
    /// Asks the watching task to kill.
    kill: Option<oneshot::Sender<()>>,
    state: watch::Receiver<WorkerState>,
}

impl Supervised {
    /// Watches a child that ends when its standard input is closed; its last words are in `log`.
    pub(crate) fn watch(mut child: Child, log: PathBuf) -> Self {
        let (state, receiver) = watch::channel(WorkerState::Running);
        let (kill, killed) = oneshot::channel();
        let stdin = child.stdin.take();
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = child.wait() => ended,
                Ok(()) = killed => {
                    // The process may have ended by itself in this moment; waiting tells.
                    let _ = child.start_kill();
                    child.wait().await
                }
            };
            let how = ended.map_or_else(|error| format!("cannot be waited for: {error}"), |status| status.to_string());
            // Nobody may be interested any more.
            let _ = state.send(WorkerState::Ended(format!("its process ended ({how}){}", tail(&log))));
        });
        Self { stdin, kill: Some(kill), state: receiver }
    }

    pub(crate) fn state(&self) -> WorkerState {
        self.state.borrow().clone()
    }

    /// Asks it to end, without waiting.
    pub(crate) fn close_stdin(&mut self) {
        drop(self.stdin.take());
    }

    /// Ends it, and answers how.
    pub(crate) async fn end(mut self) -> &'static str {
        self.close_stdin();
        if self.ended().await {
            return "ended";
        }
        if let Some(kill) = self.kill.take() {
            let _ = kill.send(());
        }
        if self.ended().await { "killed" } else { DID_NOT_END }
    }

    /// Whether it ends within [`END_GRACE`].
    pub(crate) async fn ended(&mut self) -> bool {
        self.ended_within(END_GRACE).await
    }

    /// Whether it ends within this time.
    pub(crate) async fn ended_within(&mut self, time: Duration) -> bool {
        let ended = self.state.wait_for(|state| matches!(state, WorkerState::Ended(_)));
        // A closed channel means that the watching task is gone, and the child with it.
        tokio::time::timeout(time, ended).await.is_ok()
    }
}

/// What is seen of workers that are children of this process.
pub(crate) fn observed(workers: &[CreatedWorker], state: impl Fn(&str) -> WorkerState) -> Vec<Observed> {
    let one = |worker: &CreatedWorker| Observed { state: state(&worker.spec.uuid), host: None, sent_bytes: None };
    workers.iter().map(one).collect()
}

/// After a crash, where workers are children and data disks are files: what was under way is settled, and no worker is left. `start` and
/// `stop` are the kinds of the children's entries.
pub(crate) async fn recover(
    start: &str,
    stop: &str,
    recorded: &[JournalEntry],
    journal: &dyn Journal,
) -> Result<Vec<CreatedWorker>, HypervisorError> {
    settle(start, stop, recorded, journal).await?;
    disks::settle(recorded, journal).await?;
    Ok(Vec::new())
}

/// Children end with their orchestrator, so those that an earlier one started are recorded as ended.
async fn settle(
    start: &str,
    stop: &str,
    recorded: &[JournalEntry],
    journal: &dyn Journal,
) -> Result<(), HypervisorError> {
    let ended = json!({ "state": "ended with its orchestrator" });
    for started in recorded.iter().filter(|entry| entry.intent.kind == start) {
        let of_it = |entry: &&JournalEntry| {
            entry.intent.kind == stop && entry.intent.object == started.intent.object && entry.id > started.id
        };
        let stops: Vec<&JournalEntry> = recorded.iter().filter(of_it).collect();
        for open in stops.iter().filter(|entry| entry.outcome.is_none()) {
            journal.outcome(open.id, true, ended.clone()).await?;
        }
        let is_stopped = stops.iter().any(|stop| stop.outcome.as_ref().is_none_or(|outcome| outcome.succeeded));
        match &started.outcome {
            None => journal.outcome(started.id, false, ended.clone()).await?,
            Some(outcome) if outcome.succeeded && !is_stopped => {
                let object = started.intent.object.clone();
                let intent = Intent { kind: stop.into(), effect: Effect::Destroy, object, details: json!({}) };
                let id = journal.intent(intent).await?;
                journal.outcome(id, true, ended.clone()).await?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// The last lines of a log, for the message about its child's end.
fn tail(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let start = text.len().saturating_sub(LOG_TAIL_BYTES);
    let start = (start..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let text = text[start..].trim();
    if text.is_empty() { String::new() } else { format!("; its log {} ends with: {text}", log.display()) }
}
