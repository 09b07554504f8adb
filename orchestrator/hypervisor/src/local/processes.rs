//! Workers as child processes. A worker ends by itself when its standard input closes, so none outlives the orchestrator.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::process::{Child, Command};

use crate::child::{DID_NOT_END, Supervised};
use crate::{Bootstrap, CreatedWorker, Effect, HypervisorError, Intent, Journal, JournalEntry, WorkerState};

/// Kind of the journal entry that records a process.
pub(super) const START: &str = "local.start-worker";
/// Kind of the journal entry that records its end.
pub(super) const STOP: &str = "local.stop-worker";
/// Environment variable that hands the enrolment token over: a command line is visible to every user.
const TOKEN_VARIABLE: &str = "FOURCORNERS_WORKER_TOKEN";

/// CPUs of this machine.
pub(super) fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| u32::try_from(count.get()).unwrap_or(u32::MAX))
}

/// Memory of this machine and what of it is in use, bytes; zero where the kernel does not say.
pub(super) fn memory() -> (u64, u64) {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let total = field("MemTotal").unwrap_or(0);
    (total, total.saturating_sub(field("MemAvailable").unwrap_or(total)))
}

pub(super) struct Processes {
    program: PathBuf,
    log_dir: PathBuf,
    running: Arc<Mutex<HashMap<String, Supervised>>>,
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
        self.lock().insert(uuid.clone(), Supervised::watch(child, log));
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

    pub(super) fn observe(&self, uuid: &str) -> WorkerState {
        self.lock().get(uuid).map_or(WorkerState::Unknown, Supervised::state)
    }

    /// Ends the recorded workers that this process started. Those of an earlier orchestrator ended with it.
    pub(super) async fn stop_recorded(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let started = recorded.iter().filter(|entry| entry.intent.kind == START);
        let uuids: Vec<String> = started.map(|entry| entry.intent.object.clone()).collect();
        self.stop(&uuids, journal).await
    }

    /// Ends workers that this process started, all at a time.
    pub(super) async fn stop(&self, uuids: &[String], journal: &dyn Journal) -> Result<(), HypervisorError> {
        let mut ending = Vec::new();
        for uuid in uuids {
            let Some(mut process) = self.lock().remove(uuid) else { continue };
            let intent =
                Intent { kind: STOP.into(), effect: Effect::Destroy, object: uuid.clone(), details: json!({}) };
            let id = journal.intent(intent).await?;
            process.close_stdin();
            ending.push((id, process));
        }
        for (id, process) in ending {
            let how = process.end().await;
            journal.outcome(id, how != DID_NOT_END, json!({ "state": how })).await?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Supervised>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
