//! Running VMs: started so that none outlives the orchestrator, stopped in order, killed within a bound.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tokio::process::{Child, Command};

use super::qemu::{self, Machine};
use super::{QEMU, qmp};
use crate::child::{DID_NOT_END, Supervised};
use crate::{Effect, HypervisorError, Intent, Journal, JournalEntry, WorkerState};

/// Kind of the journal entry that records a VM's start.
pub(super) const START: &str = "local-vm.start-worker";
/// Kind of the journal entry that records its end.
pub(super) const STOP: &str = "local-vm.stop-worker";

/// Starts QEMU, ends with it, and kills it when standard input is closed, which is when the orchestrator is gone. Should this shell be
/// killed itself, the kernel kills QEMU (`--pdeathsig`).
const SUPERVISOR: &str = r#"
exec 3<&0 </dev/null
setpriv --pdeathsig KILL -- "$@" 3<&- & vm=$!
{ read -r line <&3; kill -9 "$vm"; } 2>/dev/null & watch=$!
exec 3<&-
wait "$vm"; status=$?
kill "$watch" 2>/dev/null
exit "$status"
"#;

pub(super) struct Machines {
    log_dir: PathBuf,
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    child: Supervised,
    monitor: Monitor,
}

/// Where a VM's monitor listens. The directory is held open and reached through its descriptor: its path may be longer than a socket's may be.
#[derive(Clone)]
struct Monitor {
    dir: Arc<File>,
    name: String,
}

impl Monitor {
    async fn command(&self, name: &str) -> Result<(), String> {
        let socket = format!("/proc/self/fd/{}/{}", self.dir.as_raw_fd(), self.name);
        qmp::command(Path::new(&socket), name).await
    }
}

impl Machines {
    pub(super) fn new(log_dir: PathBuf) -> Self {
        Self { log_dir, running: Mutex::default() }
    }

    pub(super) async fn start(&self, machine: &Machine<'_>, journal: &dyn Journal) -> Result<(), HypervisorError> {
        let spec = &machine.worker.spec;
        let details = json!({ "worker": spec.name, "fleet": spec.fleet, "mac": qemu::mac(machine.uuid) });
        let intent = Intent { kind: START.into(), effect: Effect::Create, object: spec.uuid.clone(), details };
        let id = journal.intent(intent).await?;
        let started = self.spawn(machine);
        let outcome = match &started {
            Ok((child, ..)) => json!({ "pid": child.id() }),
            Err(error) => json!({ "error": error.to_string() }),
        };
        journal.outcome(id, started.is_ok(), outcome).await?;
        let (child, monitor, log) =
            started.map_err(HypervisorError::io(format!("worker {}: its VM cannot be started", spec.name)))?;
        self.lock().insert(spec.uuid.clone(), Running { child: Supervised::watch(child, log), monitor });
        Ok(())
    }

    fn spawn(&self, machine: &Machine<'_>) -> io::Result<(Child, Monitor, PathBuf)> {
        let spec = &machine.worker.spec;
        let logs = std::path::absolute(self.log_dir.join(&spec.fleet))?;
        let dir = logs.join("monitors");
        // Whoever may open the monitor commands the VM.
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let console = logs.join(format!("{}.console.log", spec.name));
        let log = logs.join(format!("{}.log", spec.name));
        let output = OpenOptions::new().create(true).append(true).open(&log)?;
        let name = format!("{}.qmp", machine.uuid.simple());
        // Left there where QEMU was killed; it would not listen then.
        if let Err(error) = fs::remove_file(dir.join(&name))
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let child = Command::new("/bin/sh")
            .args(["-c", SUPERVISOR, "fourcorners-vm", QEMU])
            .args(qemu::arguments(machine, &console, &name))
            .current_dir(&dir)
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            // Ctrl-C on the terminal is for the orchestrator; it ends the workers in order.
            .process_group(0)
            .spawn()?;
        Ok((child, Monitor { dir: Arc::new(File::open(&dir)?), name }, log))
    }

    pub(super) fn observe(&self, uuid: &str) -> WorkerState {
        self.lock().get(uuid).map_or(WorkerState::Unknown, |running| running.child.state())
    }

    pub(super) async fn reset(&self, uuid: &str) -> Result<(), HypervisorError> {
        let monitor = self.lock().get(uuid).map(|running| running.monitor.clone());
        let monitor = monitor.ok_or_else(|| HypervisorError::Unexpected(format!("worker {uuid} does not run")))?;
        monitor
            .command("system_reset")
            .await
            .map_err(|error| HypervisorError::Unexpected(format!("worker {uuid}: {error}")))
    }

    /// Ends the recorded VMs that this process started. Those of an earlier orchestrator ended with it.
    pub(super) async fn stop_recorded(
        &self,
        recorded: &[JournalEntry],
        journal: &dyn Journal,
    ) -> Result<(), HypervisorError> {
        let started = recorded.iter().filter(|entry| entry.intent.kind == START);
        let uuids: Vec<String> = started.map(|entry| entry.intent.object.clone()).collect();
        self.stop(&uuids, journal).await
    }

    /// Ends VMs that this process started, all at a time.
    pub(super) async fn stop(&self, uuids: &[String], journal: &dyn Journal) -> Result<(), HypervisorError> {
        let mut ending = Vec::new();
        for uuid in uuids {
            let Some(mut running) = self.lock().remove(uuid) else { continue };
            let intent =
                Intent { kind: STOP.into(), effect: Effect::Destroy, object: uuid.clone(), details: json!({}) };
            let id = journal.intent(intent).await?;
            if running.child.state() == WorkerState::Running
                && let Err(error) = running.monitor.command("quit").await
            {
                tracing::warn!(worker = uuid, error, "a worker VM did not take the command to quit; it is killed");
                running.child.close_stdin();
            }
            ending.push((id, running));
        }
        for (id, mut running) in ending {
            let how = if running.child.ended().await { "quit" } else { running.child.end().await };
            let Monitor { dir, name } = running.monitor;
            // QEMU removes it itself where it was not killed.
            let _ = rustix::fs::unlinkat(&*dir, &name, rustix::fs::AtFlags::empty());
            journal.outcome(id, how != DID_NOT_END, json!({ "state": how })).await?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
