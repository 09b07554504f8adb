//! One journalled change: intent, call, task id, the task's end. The caller writes the outcome, which may need more than that.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::Method;
use serde_json::json;

use super::client::{Client, Form, jittered};
use super::error::{CallError, is_cluster_lock_timeout, is_lock_timeout};
use super::task::{self, Ended, Failure, Upid};
use crate::{Effect, HypervisorError, Intent, Journal, JournalError};

/// Times that a call is sent whose answer was lost and whose effect did not show.
pub(super) const MAX_SENDS: u32 = 3;
/// Times that a task is started again which waited for a lock in vain.
pub(super) const MAX_LOCK_REPEATS: u32 = 5;
/// How far a node's clock may be behind ours, seconds, for a task to count as started after a call.
pub(super) const CLOCK_SKEW_SECONDS: u64 = 600;

/// A change to make.
pub(super) struct Step<'a> {
    pub(super) intent: Intent,
    pub(super) method: Method,
    pub(super) path: Vec<&'a str>,
    pub(super) form: Form,
    /// Where its task will run.
    pub(super) node: &'a str,
    pub(super) vmid: u32,
    /// Types that its task may have.
    pub(super) tasks: &'a [&'a str],
    /// Words of a refusal, any of which says that the effect is there already.
    pub(super) already: &'a [&'a str],
    pub(super) sending: Sending,
}

/// How often a call is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    /// Once: the caller looks at the object again before it tries again.
    Once,
    /// Again while it certainly had no effect.
    UntilTaken,
}

/// How a step ended.
#[derive(Debug)]
pub(super) enum Came {
    /// Its task did what it was to do; the warnings.
    Well { warnings: Vec<String> },
    /// Refused, because the effect is there already.
    Already {
        error: HypervisorError,
        /// An earlier sending's answer was lost, so that the effect may be that one's.
        after_loss: bool,
    },
    /// Refused: nothing was changed.
    Refused(CallError),
    /// Its task failed.
    Failed(Failure),
    /// Nobody knows: the journal's entry stays open.
    Unknown(HypervisorError),
}

/// UPIDs that are known to belong to a step, so that a lost one is not mistaken for them.
#[derive(Default)]
pub(super) struct Known(Mutex<HashSet<String>>);

impl Known {
    pub(super) fn add(&self, upid: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(upid.to_owned());
    }

    fn holds(&self, upid: &Upid) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&upid.to_string())
    }
}

/// Seconds since 1970 on this machine's clock.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Writes the intent and makes the change; answers the journal's entry and how it came.
pub(super) async fn perform(
    client: &Client,
    known: &Known,
    step: &Step<'_>,
    journal: &dyn Journal,
) -> Result<(i64, Came), JournalError> {
    let id = journal.intent(step.intent.clone()).await?;
    let again = step.sending == Sending::UntilTaken;
    let (mut lock_repeats, mut after_loss) = (0, false);
    let mut pause = client.timing().retry_first;
    loop {
        let upid = match call(client, known, step, &mut after_loss).await {
            Called::Task(upid) => upid,
            Called::Ended(came) => return Ok((id, came)),
        };
        journal.task(id, json!({ "upid": upid.to_string() })).await?;
        // Not before that: this may be dropped while the id is committed, and a task that no entry names is found again.
        known.add(&upid.to_string());
        match task::wait(client, &upid).await {
            Ok(Ended::Well(warnings)) => return Ok((id, Came::Well { warnings })),
            Ok(Ended::Failed(failure)) if says(&failure.words, step.already) => {
                return Ok((id, Came::Already { error: failure.into(), after_loss }));
            }
            Ok(Ended::Failed(failure))
                if again && may_repeat(step, &failure.words) && lock_repeats < MAX_LOCK_REPEATS =>
            {
                lock_repeats += 1;
                tokio::time::sleep(jittered(pause)).await;
                pause = (pause * 2).min(client.timing().retry_longest);
            }
            Ok(Ended::Failed(failure)) => return Ok((id, Came::Failed(failure))),
            Err(error) => return Ok((id, Came::Unknown(error.into()))),
        }
    }
}

enum Called {
    Task(Upid),
    Ended(Came),
}

/// Sends the call. Where its answer is lost, looks for the task it may have started, and sends again where there is none.
async fn call(client: &Client, known: &Known, step: &Step<'_>, after_loss: &mut bool) -> Called {
    let mut sends = 0;
    loop {
        let sent = now();
        let error = match client.change::<String>(step.method.clone(), &step.path, &step.form, step.sending).await {
            Ok(text) => match text.parse::<Upid>() {
                Ok(upid) => return Called::Task(upid),
                Err(error) => return Called::Ended(Came::Unknown(HypervisorError::Unexpected(error))),
            },
            Err(error) => error,
        };
        if !error.may_have_happened() {
            return Called::Ended(match says(error.words(), step.already) {
                true => Came::Already { error: error.into(), after_loss: *after_loss },
                false => Came::Refused(error),
            });
        }
        *after_loss = true;
        tracing::warn!(%error, "the answer was lost; looking for what it did");
        match lost(client, known, step, sent).await {
            Ok(Some(upid)) => return Called::Task(upid),
            Ok(None) if step.sending == Sending::UntilTaken && sends + 1 < MAX_SENDS => sends += 1,
            Ok(None) => return Called::Ended(Came::Unknown(error.into())),
            Err(error) => return Called::Ended(Came::Unknown(error.into())),
        }
    }
}

/// Whether a task that waited for a lock in vain is started again under the same entry of the journal. A creation that waited for its storage
/// may have made disks, which are found by the log of its task: the next one gets an entry of its own.
fn may_repeat(step: &Step<'_>, words: &str) -> bool {
    is_lock_timeout(words) && !(step.intent.effect == Effect::Create && is_cluster_lock_timeout(words))
}

fn says(words: &str, any: &[&str]) -> bool {
    any.iter().any(|said| words.contains(said))
}

/// The task that a call without an answer started, if it shows in time.
async fn lost(client: &Client, known: &Known, step: &Step<'_>, sent: u64) -> Result<Option<Upid>, CallError> {
    find_task(client, known, step.node, step.tasks, step.vmid, sent, client.timing().in_flight).await
}

/// Our newest task of any of some kinds on a guest that no step is known to own and that was started after `sent`, looked for until `within` is over.
pub(super) async fn find_task(
    client: &Client,
    known: &Known,
    node: &str,
    kinds: &[&str],
    vmid: u32,
    sent: u64,
    within: Duration,
) -> Result<Option<Upid>, CallError> {
    let since = Instant::now();
    loop {
        let mut found: Option<Upid> = None;
        for kind in kinds {
            let tasks = task::of_guest(client, node, kind, vmid).await?;
            let of_kind =
                tasks.into_iter().find(|upid| !known.holds(upid) && upid.started + CLOCK_SKEW_SECONDS >= sent);
            found = found.into_iter().chain(of_kind).max_by_key(|upid| upid.started);
        }
        if found.is_some() || since.elapsed() >= within {
            return Ok(found);
        }
        tokio::time::sleep(jittered(client.timing().poll_longest.min(within))).await;
    }
}
