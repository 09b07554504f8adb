//! Tasks: PVE's asynchronous work, named by a UPID and looked at on the node that the UPID names.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use super::client::{Client, jittered};
use super::error::{CallError, Kind};
use super::types::{LogLine, TaskStatus};
use crate::HypervisorError;

/// Lines at the end of a failed task's log that are shown.
const SHOWN_LOG_LINES: usize = 12;
/// Lines of a log that are read at most.
const MAX_LOG_LINES: &str = "1000";
/// Tasks of one guest that are looked through for one whose UPID was lost.
const MAX_LISTED_TASKS: &str = "50";

/// Identity of a task: `UPID:NODE:PID:PSTART:STARTTIME:TYPE:ID:USER:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upid {
    text: String,
    /// Node that runs it.
    pub(super) node: String,
    /// Start on that node's clock, Unix seconds.
    pub(super) started: u64,
    /// Type, such as `qmcreate`.
    pub(super) kind: String,
    /// Object, such as a VMID.
    pub(super) id: String,
    /// User or token that started it.
    pub(super) user: String,
}

impl FromStr for Upid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let malformed = || format!("found {text:?}, expected UPID:NODE:PID:PSTART:STARTTIME:TYPE:ID:USER:");
        let fields: Vec<&str> = text.split(':').collect();
        let &["UPID", node, pid, pstart, started, kind, id, user, ""] = fields.as_slice() else {
            return Err(malformed());
        };
        let hexadecimal = |field: &str| u64::from_str_radix(field, 16).map_err(|_| malformed());
        hexadecimal(pid)?;
        hexadecimal(pstart)?;
        if node.is_empty() || kind.is_empty() || user.is_empty() {
            return Err(malformed());
        }
        Ok(Self {
            text: text.into(),
            node: node.into(),
            started: hexadecimal(started)?,
            kind: kind.into(),
            id: id.into(),
            user: user.into(),
        })
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// It did what it was to do; the warnings from its log, each with the task that they are of.
    Well(Vec<String>),
    /// It failed.
    Failed(Failure),
}

/// A task's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) upid: String,
    /// Its exit status.
    pub(super) words: String,
    /// Last lines of its log.
    pub(super) log: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "task {} failed: {}", self.upid, self.words)?;
        for line in &self.log {
            write!(formatter, "\n  | {line}")?;
        }
        Ok(())
    }
}

impl From<Failure> for HypervisorError {
    fn from(failure: Failure) -> Self {
        Self::Place { words: failure.to_string(), advice: super::error::advice_on(500, &failure.words).into() }
    }
}

/// What an exit status says.
#[derive(Debug, PartialEq, Eq)]
enum Exit {
    Well,
    Warnings,
    Failed,
}

fn exit_of(status: &str) -> Exit {
    match status {
        "OK" => Exit::Well,
        _ if status.starts_with("WARNINGS:") => Exit::Warnings,
        _ => Exit::Failed,
    }
}

/// Waits for a task's end, within the bound of one task.
pub(super) async fn wait(client: &Client, upid: &Upid) -> Result<Ended, CallError> {
    let timing = *client.timing();
    let text = upid.to_string();
    let path = ["nodes", &upid.node, "tasks", &text, "status"];
    let since = Instant::now();
    let mut pause = timing.poll_first;
    loop {
        let status: TaskStatus = client.get(&path, &[]).await?;
        if status.status == "stopped" {
            let exit = status.exitstatus.unwrap_or_else(|| "it ended without a status".into());
            return ended(client, upid, exit).await;
        }
        if since.elapsed() > timing.task {
            let words = format!("task {upid} still runs after {} s", timing.task.as_secs());
            return Err(CallError { call: format!("GET /{}", path.join("/")), kind: Kind::Lost(words) });
        }
        tokio::time::sleep(jittered(pause)).await;
        pause = (pause * 3 / 2).min(timing.poll_longest);
    }
}

/// Like [`wait`], for a task that may be long over: one that its node keeps no record of any more has ended, nobody knows how.
pub(super) async fn wait_of_earlier(client: &Client, upid: &Upid) -> Result<Ended, CallError> {
    match wait(client, upid).await {
        Err(error) if error.is_forgotten_task() => {
            let words = "it is over, and its node keeps no record of it any more".into();
            Ok(Ended::Failed(Failure { upid: upid.to_string(), words, log: Vec::new() }))
        }
        ended => ended,
    }
}

async fn ended(client: &Client, upid: &Upid, exit: String) -> Result<Ended, CallError> {
    Ok(match exit_of(&exit) {
        Exit::Well => Ended::Well(Vec::new()),
        Exit::Warnings => {
            // It did its work, also where its log cannot be read.
            let mut lines = log(client, upid).await.unwrap_or_default();
            lines.retain(|line| line.contains("WARN"));
            if lines.is_empty() {
                lines.push(exit);
            }
            let Upid { kind, id, node, .. } = upid;
            let of = if id.is_empty() { kind.clone() } else { format!("{kind} {id}") };
            let warnings: Vec<String> = lines.iter().map(|line| format!("{of} on {node}: {line}")).collect();
            tracing::warn!(%upid, ?warnings, "task ended with warnings");
            Ended::Well(warnings)
        }
        Exit::Failed => {
            // The status alone is worth reporting where the log cannot be read any more.
            let mut log = log(client, upid).await.unwrap_or_default();
            log.drain(..log.len().saturating_sub(SHOWN_LOG_LINES));
            Ended::Failed(Failure { upid: upid.to_string(), words: exit, log })
        }
    })
}

/// The lines of a task's log.
pub(super) async fn log(client: &Client, upid: &Upid) -> Result<Vec<String>, CallError> {
    let text = upid.to_string();
    let path = ["nodes", &upid.node, "tasks", &text, "log"];
    let lines: Vec<LogLine> = client.get(&path, &[("limit", MAX_LOG_LINES)]).await?;
    Ok(lines.into_iter().map(|line| line.t).collect())
}

/// Our tasks of one kind on one guest of a node, newest first: for a call whose answer was lost.
pub(super) async fn of_guest(client: &Client, node: &str, kind: &str, vmid: u32) -> Result<Vec<Upid>, CallError> {
    let id = vmid.to_string();
    let query = [("vmid", id.as_str()), ("source", "all"), ("typefilter", kind), ("limit", MAX_LISTED_TASKS)];
    let tasks = ours(client, node, kind, &query).await?;
    Ok(tasks.into_iter().filter(|upid| upid.id == id).collect())
}

/// Our tasks of one kind on a node, newest first.
pub(super) async fn of_node(client: &Client, node: &str, kind: &str) -> Result<Vec<Upid>, CallError> {
    ours(client, node, kind, &[("source", "all"), ("typefilter", kind), ("limit", MAX_LISTED_TASKS)]).await
}

async fn ours(client: &Client, node: &str, kind: &str, query: &[(&str, &str)]) -> Result<Vec<Upid>, CallError> {
    let tasks: Vec<TaskStatus> = client.get(&["nodes", node, "tasks"], query).await?;
    let mut upids: Vec<Upid> = tasks
        .iter()
        .filter_map(|task| task.upid.parse::<Upid>().ok())
        .filter(|upid| upid.kind == kind && upid.user == client.token_id())
        .collect();
    upids.sort_by_key(|upid| std::cmp::Reverse(upid.started));
    Ok(upids)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "UPID:pve1:000003E8:00001B58:692C9A3F:qmcreate:90000:fc@pve!poc:";

    #[test]
    fn a_upid_names_its_node_type_object_and_user() {
        let upid: Upid = TEXT.parse().unwrap();
        assert_eq!((upid.node.as_str(), upid.kind.as_str(), upid.id.as_str()), ("pve1", "qmcreate", "90000"));
        assert_eq!((upid.started, upid.user.as_str()), (0x692C_9A3F, "fc@pve!poc"));
        assert_eq!(upid.to_string(), TEXT);
        let of_storage: Upid = "UPID:a-b:1:2:3:imgcopy::root@pam:".parse().unwrap();
        assert_eq!(of_storage.id, "");
    }

    #[test]
    fn what_is_no_upid_is_refused() {
        for text in ["", "UPID", &TEXT[1..], &TEXT[..TEXT.len() - 1], "UPID:n:x:1:1:t:1:u:", "UPID::1:1:1:t:1:u:"] {
            assert!(text.parse::<Upid>().is_err(), "{text}");
        }
    }

    #[test]
    fn ok_and_warnings_succeed_and_all_else_fails() {
        assert_eq!(exit_of("OK"), Exit::Well);
        assert_eq!(exit_of("WARNINGS: 3"), Exit::Warnings);
        for failed in ["unexpected status", "interrupted by signal", "command 'lvcreate' failed", "", "OKAY"] {
            assert_eq!(exit_of(failed), Exit::Failed, "{failed}");
        }
    }
}
