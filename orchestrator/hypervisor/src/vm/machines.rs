//! Running VMs: started so that none outlives the orchestrator, stopped in order, killed within a bound.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// Starts `program` under [`SUPERVISOR`]; the caller adds its arguments, and pipes standard input.
pub(super) fn supervised(program: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    // Ctrl-C on the terminal is for the orchestrator; it ends the workers in order.
    command.args(["-c", SUPERVISOR, "fourcorners-vm", program]).stdin(Stdio::piped()).process_group(0);
    command
}

/// How long a VM that takes no command may need to turn itself off.
const POWER_OFF: Duration = Duration::from_secs(3);
/// A VM's console log is emptied beyond this, bytes: a guest that repeats itself must not fill the disk with it.
const MAX_CONSOLE_BYTES: u64 = 16 << 20;

/// Empties a console log that has grown beyond [`MAX_CONSOLE_BYTES`]. QEMU appends to it, so that it goes on from there.
fn bound(console: &Path) -> io::Result<()> {
    let length = fs::metadata(console)?.len();
    if length <= MAX_CONSOLE_BYTES {
        return Ok(());
    }
    let mut log = OpenOptions::new().append(true).open(console)?;
    log.set_len(0)?;
    log.write_all(format!("({length} bytes before this were left out)\n").as_bytes())
}

pub(super) struct Machines {
    log_dir: PathBuf,
    running: Mutex<HashMap<String, Running>>,
}

struct Running {
    child: Supervised,
    monitor: Monitor,
    console: PathBuf,
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
        let (child, monitor, log, console) =
            started.map_err(HypervisorError::io(format!("worker {}: its VM cannot be started", spec.name)))?;
        self.lock().insert(spec.uuid.clone(), Running { child: Supervised::watch(child, log), monitor, console });
        Ok(())
    }

    fn spawn(&self, machine: &Machine<'_>) -> io::Result<(Child, Monitor, PathBuf, PathBuf)> {
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
        let child = supervised(QEMU)
            .args(qemu::arguments(machine, &console, &name))
            .current_dir(&dir)
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok((child, Monitor { dir: Arc::new(File::open(&dir)?), name }, log, console))
    }

    pub(super) fn observe(&self, uuid: &str) -> WorkerState {
        let running = self.lock();
        let Some(running) = running.get(uuid) else { return WorkerState::Unknown };
        if let Err(error) = bound(&running.console)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(console = %running.console.display(), %error, "a VM's console log cannot be kept short");
        }
        running.child.state()
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
            let Some(running) = self.lock().remove(uuid) else { continue };
            let intent =
                Intent { kind: STOP.into(), effect: Effect::Destroy, object: uuid.clone(), details: json!({}) };
            let id = journal.intent(intent).await?;
            let quits = match running.child.state() {
                WorkerState::Running => running.monitor.command("quit").await,
                _ => Ok(()),
            };
            ending.push((uuid, id, running, quits));
        }
        for (uuid, id, mut running, quits) in ending {
            // A VM that was told to end turns itself off, and takes no command then.
            if let Err(error) = quits
                && !running.child.ended_within(POWER_OFF).await
            {
                tracing::warn!(worker = uuid, error, "a worker VM did not take the command to quit; it is killed");
                running.child.close_stdin();
            }
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{BoxFuture, JournalError};

    struct Forgets;

    impl Journal for Forgets {
        fn intent(&self, _: Intent) -> BoxFuture<'_, Result<i64, JournalError>> {
            Box::pin(async { Ok(1) })
        }

        fn task(&self, _: i64, _: Value) -> BoxFuture<'_, Result<(), JournalError>> {
            Box::pin(async { Ok(()) })
        }

        fn outcome(&self, _: i64, _: bool, _: Value) -> BoxFuture<'_, Result<(), JournalError>> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test]
    async fn a_vm_that_turns_itself_off_is_waited_for_and_not_killed() {
        let dir = tempfile::tempdir().unwrap();
        // Closing its input is what kills a VM. This one ends by itself a moment later, and its monitor takes nothing any more.
        let ends = "exec 3<&0; { read -r line <&3; echo killed >>log; } & exec 3<&-; sleep 1; echo off >>log";
        let child = Command::new("/bin/sh").args(["-c", ends]).current_dir(dir.path()).stdin(Stdio::piped()).spawn();
        let monitor = Monitor { dir: Arc::new(File::open(dir.path()).unwrap()), name: "none.qmp".into() };
        let child = Supervised::watch(child.unwrap(), dir.path().join("qemu.log"));
        let machines = Machines::new(dir.path().into());
        machines.lock().insert("vm".into(), Running { child, monitor, console: dir.path().join("console") });
        machines.stop(&["vm".to_owned()], &Forgets).await.unwrap();
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(log.lines().next(), Some("off"), "{log}");
    }

    #[test]
    fn a_console_log_is_emptied_when_it_is_too_long_and_goes_on() {
        let log = tempfile::NamedTempFile::new().unwrap();
        log.as_file().set_len(MAX_CONSOLE_BYTES).unwrap();
        bound(log.path()).unwrap();
        assert_eq!(fs::metadata(log.path()).unwrap().len(), MAX_CONSOLE_BYTES);
        log.as_file().set_len(MAX_CONSOLE_BYTES + 1).unwrap();
        bound(log.path()).unwrap();
        OpenOptions::new().append(true).open(log.path()).unwrap().write_all(b"on\n").unwrap();
        let said = fs::read_to_string(log.path()).unwrap();
        assert_eq!(said, format!("({} bytes before this were left out)\non\n", MAX_CONSOLE_BYTES + 1));
    }
}
