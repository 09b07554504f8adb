//! Children. Process 1 also inherits orphans, so all are waited for in one place and told apart by their id.

use std::process::{Child, Command, Stdio};

use rustix::process::{WaitOptions, WaitStatus, wait};

/// A process that ended.
pub(crate) struct Ended {
    pub(crate) pid: u32,
    status: WaitStatus,
}

impl Ended {
    /// It ended by itself with status 0.
    pub(crate) fn well(&self) -> bool {
        self.status.exit_status() == Some(0)
    }

    /// Its status, where it ended by itself.
    pub(crate) fn exit_status(&self) -> Option<i32> {
        self.status.exit_status()
    }

    /// How it ended, for a person.
    pub(crate) fn how(&self) -> String {
        match (self.status.exit_status(), self.status.terminating_signal()) {
            (Some(status), _) => format!("exit status {status}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => format!("{:?}", self.status),
        }
    }
}

/// All processes that ended since the last call.
pub(crate) fn ended() -> Vec<Ended> {
    // The kernel answers ECHILD where there are none at all.
    let next = || wait(WaitOptions::NOHANG).ok().flatten();
    std::iter::from_fn(next)
        .filter_map(|(pid, status)| Some(Ended { pid: u32::try_from(pid.as_raw_nonzero().get()).ok()?, status }))
        .collect()
}

/// Starts a program with nothing to read and only the image's own tools to find.
pub(crate) fn start(command: &mut Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).env("PATH", "/bin").spawn()
}
