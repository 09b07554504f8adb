//! Workers as child processes. A worker ends by itself when its standard input closes, so none outlives the orchestrator.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;

use crate::{Bootstrap, CreatedWorker, Effect, HypervisorError, Intent, Journal, JournalEntry, WorkerState};

/// Kind of the journal entry that records a process.
const START: &str = "local.start-worker";
/// Kind of the journal entry that records its end.
const STOP: &str = "local.stop-worker";
/// Outcome of a stop without effect.
const DID_NOT_END: &str = "did not end";
/// How long a worker may take to end by itself after its standard input closed.
const END_GRACE: Duration = Duration::from_secs(10);
/// Environment variable that hands the enrolment token over: a command line is visible to every user.
const TOKEN_VARIABLE: &str = "FOURCORNERS_WORKER_TOKEN";
/// Bytes of a worker's log shown when it ends unasked.
const LOG_TAIL_BYTES: usize = 600;

/// CPUs of this machine.
pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

pub(super) struct Processes {
    program: PathBuf,
    log_dir: PathBuf,
    running: Arc<Mutex<HashMap<String, Process>>>,
}

struct Process {
    /// Closing it ends the worker.
    stdin: Option<ChildStdin>,
    /// Asks the watching task to kill.
    kill: Option<tokio::sync::oneshot::Sender<()>>,
    state: watch::Receiver<WorkerState>,
}

impl Processes {
    pub(super) fn new(program: PathBuf, log_dir: PathBuf) -> Self {
        Self { program, log_dir, running: Arc::default() }
    }

    pub(super) async fn start(
        &self,
        worker: &CreatedWorker,
        bootstrap: &Bootstrap,
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let uuid = &worker.spec.uuid;
        let details = json!({ "worker": worker.spec.name, "fleet": worker.spec.fleet });
        let intent = Intent { kind: START.into(), effect: Effect::Create, object: uuid.clone(), details };
        let id = journal.intent(intent).await?;
        let log = self.log_path(worker)?;
        let spawned = self.spawn(worker, bootstrap, &log);
        let outcome = match &spawned {
            Ok(child) => json!({ "pid": child.id() }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        journal.outcome(id, spawned.is_ok(), outcome).await?;
        let child = spawned.map_err(HypervisorError::io(format!(
            "worker {}: cannot start {}",
            worker.spec.name,
            self.program.display()
        )))?;
        self.watch(uuid.clone(), child, log);
        Ok(())
    }

    fn log_path(&self, worker: &CreatedWorker) -> Result<PathBuf, HypervisorError> {
        let dir = self.log_dir.join(&worker.spec.fleet);
        fs::create_dir_all(&dir)
            .map_err(HypervisorError::io(format!("{}: cannot create the log directory", dir.display())))?;
        Ok(dir.join(format!("{}.log", worker.spec.name)))
    }

    fn spawn(&self, worker: &CreatedWorker, bootstrap: &Bootstrap, log: &PathBuf) -> std::io::Result<Child> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let mut command = Command::new(&self.program);
        command
            .args(["worker", "--exit-on-stdin-close"])
            .args(bootstrap.urls.iter().flat_map(|url| ["--url", url]))
            .args(["--ca-sha256", &bootstrap.ca_sha256, "--uuid", &worker.spec.uuid])
            .args(["--threads", &worker.spec.vcpus.to_string()])
            .env(TOKEN_VARIABLE, &bootstrap.token)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C on the terminal is for the orchestrator; it ends the workers in order.
            .process_group(0)
            .kill_on_drop(true);
        for disk in &worker.disks {
            if let Some(path) = &disk.path {
                let mut argument = std::ffi::OsString::from(format!("{}=", disk.serial));
                argument.push(path);
                command.arg("--disk").arg(argument);
            }
        }
        command.spawn()
    }

    fn watch(&self, uuid: String, mut child: Child, log: PathBuf) {
        let (state, receiver) = watch::channel(WorkerState::Running);
        let (kill, killed) = tokio::sync::oneshot::channel();
        let process = Process { stdin: child.stdin.take(), kill: Some(kill), state: receiver };
        self.lock().insert(uuid, process);
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
    }

    pub(super) fn observe(&self, uuid: &str) -> WorkerState {
        self.lock().get(uuid).map_or(WorkerState::Unknown, |process| process.state.borrow().clone())
    }

    /// Ends the recorded workers that this process started. Those of an earlier orchestrator ended with it.
    pub(super) async fn stop_recorded(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let uuids = recorded.iter().filter(|entry| entry.intent.kind == START).map(|entry| &entry.intent.object);
        let mut ending = Vec::new();
        for uuid in uuids {
            let Some(mut process) = self.lock().remove(uuid) else { continue };
            let intent =
                Intent { kind: STOP.into(), effect: Effect::Destroy, object: uuid.clone(), details: json!({}) };
            let id = journal.intent(intent).await?;
            drop(process.stdin.take());
            ending.push((id, process));
        }
        for (id, process) in ending {
            let how = end(process).await;
            journal.outcome(id, how != DID_NOT_END, json!({ "state": how })).await?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end(mut process: Process) -> &'static str {
    let mut state = process.state.clone();
    if wait_ended(&mut state).await {
        return "ended";
    }
    if let Some(kill) = process.kill.take() {
        let _ = kill.send(());
    }
    if wait_ended(&mut state).await { "killed" } else { DID_NOT_END }
}

async fn wait_ended(state: &mut watch::Receiver<WorkerState>) -> bool {
    let ended = state.wait_for(|state| matches!(state, WorkerState::Ended(_)));
    // A closed channel means that the watching task is gone, and the child with it.
    tokio::time::timeout(END_GRACE, ended).await.is_ok()
}

/// The last lines of a worker's log, for the message about its end.
fn tail(log: &PathBuf) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let start = text.len().saturating_sub(LOG_TAIL_BYTES);
    let start = (start..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
    let text = text[start..].trim();
    if text.is_empty() { String::new() } else { format!("; its log {} ends with: {text}", log.display()) }
}
