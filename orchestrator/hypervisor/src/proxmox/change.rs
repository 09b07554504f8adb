//! Starting, stopping and destroying a VM that exists: before each sending of each call it is looked at again, and only what is ours
//! is touched. A VMID alone may belong to somebody else by the time a lock is free or a lost answer is given up.

use std::time::Instant;

use reqwest::Method;
use serde_json::json;

use super::client::jittered;
use super::create::intent;
use super::error::{Again, NO_CONFIGURATION, is_cut_under_lock, is_lock_timeout};
use super::step::{self, Came, Sending, Step, now};
use super::vm::{self, Mark, VmConfig, kinds};
use super::{Proxmox, cluster};
use crate::{HypervisorError, Journal};

/// What to do with a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Start,
    Stop,
    Destroy,
}

/// What became of a change.
#[derive(Debug)]
pub(super) enum Changed {
    /// It was made, or its effect was there already.
    Done,
    /// There is no such VM on its node.
    Gone,
    /// The VM is not the recorded one, and why.
    Foreign(String),
    /// The VM is ours and must not be changed now, and why.
    Forbidden(String),
}

/// A VM of ours, as it was recorded.
pub(super) struct Ours<'a> {
    pub(super) mark: Mark,
    pub(super) node: &'a str,
    /// What in its configuration forbids the change.
    pub(super) forbids: &'a (dyn Fn(&VmConfig) -> Option<String> + Sync),
}

enum Attempt {
    Done,
    /// It is not on its node any more.
    Gone,
    /// Something stood in the way that passes: the VM is looked at again before the next sending.
    Locked(HypervisorError),
    /// Its effect will show.
    Unknown(i64, HypervisorError),
}

impl Proxmox {
    /// Looks whether the VM is ours and makes the change; both again, within the bound of repeats, while a lock stands in the way or an
    /// answer is lost.
    pub(super) async fn change_ours(
        &self,
        ours: &Ours<'_>,
        change: Change,
        journal: &dyn Journal,
    ) -> Result<Changed, HypervisorError> {
        let (timing, since) = (*self.client.timing(), Instant::now());
        let mut pause = timing.retry_first;
        let mut unknown = None;
        loop {
            let config = cluster::config(&self.client, ours.node, ours.mark.vmid).await?;
            if let Some(id) = unknown.take() {
                let gone = config.is_none() && change == Change::Destroy && self.is_nowhere(ours).await?;
                journal.outcome(id, gone, json!({ "error": "its answer was lost", "gone": gone })).await?;
                if gone {
                    return Ok(Changed::Done);
                }
            }
            let Some(config) = config else { return Ok(Changed::Gone) };
            if let Some(why) = vm::disagreement(&ours.mark, &config) {
                return Ok(Changed::Foreign(why));
            }
            if let Some(why) = (ours.forbids)(&config) {
                return Ok(Changed::Forbidden(why));
            }
            let error = match self.attempt(ours, change, journal).await? {
                Attempt::Done => return Ok(Changed::Done),
                Attempt::Gone => return Ok(Changed::Gone),
                Attempt::Locked(error) => error,
                Attempt::Unknown(id, error) => {
                    unknown = Some(id);
                    error
                }
            };
            if since.elapsed() + pause > timing.retry_within {
                // An entry that is unknown stays open, for the next teardown or recovery.
                return Err(error);
            }
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(timing.retry_longest);
        }
    }

    async fn attempt(
        &self,
        ours: &Ours<'_>,
        change: Change,
        journal: &dyn Journal,
    ) -> Result<Attempt, HypervisorError> {
        let vmid = ours.mark.vmid.to_string();
        let (id, came) = step::perform(&self.client, &self.known, &step_of(ours, change, &vmid), journal).await?;
        let (error, passes) = match came {
            Came::Well { warnings } => {
                journal.outcome(id, true, json!({ "warnings": warnings })).await?;
                return Ok(Attempt::Done);
            }
            // Gone from its node, where somebody may have moved it elsewhere.
            Came::Already { error, .. } if change == Change::Destroy => {
                let gone = self.is_nowhere(ours).await?;
                journal.outcome(id, gone, json!({ "already": error.to_string() })).await?;
                return Ok(if gone { Attempt::Done } else { Attempt::Gone });
            }
            Came::Already { error, .. } => {
                journal.outcome(id, true, json!({ "already": error.to_string() })).await?;
                return Ok(Attempt::Done);
            }
            Came::Unknown(error) => return Ok(Attempt::Unknown(id, error)),
            Came::Refused(error) => {
                let passes = error.change_again() != Again::Never;
                (HypervisorError::from(error), passes)
            }
            Came::Failed(failure) => {
                let passes = is_lock_timeout(&failure.words) || is_cut_under_lock(&failure.words);
                (failure.into(), passes)
            }
        };
        journal.outcome(id, false, json!({ "error": error.to_string() })).await?;
        if passes { Ok(Attempt::Locked(error)) } else { Err(error) }
    }

    /// No guest has its VMID, on any node.
    async fn is_nowhere(&self, ours: &Ours<'_>) -> Result<bool, HypervisorError> {
        Ok(cluster::is_free(&self.client, ours.mark.vmid).await?)
    }
}

/// Types of the tasks that a kind of change may have: a VM that HA manages is started and stopped by a request to HA.
pub(super) fn tasks_of(kind: &str) -> &'static [&'static str] {
    match kind {
        kinds::START => &["qmstart", "hastart"],
        kinds::STOP => &["qmstop", "hastop"],
        _ => &["qmdestroy"],
    }
}

fn step_of<'a>(ours: &'a Ours<'_>, change: Change, vmid: &'a str) -> Step<'a> {
    let node = ours.node;
    let mut path = vec!["nodes", node, "qemu", vmid];
    // That a storage or a volume "does not exist" leaves the VM where it is.
    let (kind, already): (_, &[&str]) = match change {
        Change::Start => (kinds::START, &["already running"]),
        Change::Stop => (kinds::STOP, &["not running"]),
        Change::Destroy => (kinds::DESTROY, &[NO_CONFIGURATION]),
    };
    let (method, form) = match change {
        Change::Start | Change::Stop => {
            path.extend(["status", if change == Change::Start { "start" } else { "stop" }]);
            (Method::POST, Vec::new())
        }
        // Never destroy-unreferenced-disks: it would free any volume of this id on any storage.
        Change::Destroy => (Method::DELETE, vec![("purge".into(), "1".into())]),
    };
    let details = json!({ "vmid": ours.mark.vmid, "node": node, "uuid": ours.mark.uuid, "at": now() });
    Step {
        intent: intent(kind, vmid, details),
        method,
        path,
        form,
        node,
        vmid: ours.mark.vmid,
        tasks: tasks_of(kind),
        already,
        sending: Sending::Once,
    }
}
