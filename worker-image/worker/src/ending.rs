//! What ends the agent's process from outside.

use std::{fmt, io::Read};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// Why the agent is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Standard input was closed: the process that started this one is gone.
    Orphaned,
    /// SIGTERM or SIGINT.
    Signal,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Orphaned => "standard input was closed: the orchestrator's process is gone",
            Self::Signal => "ended by a signal",
        })
    }
}

/// Waits for a signal or, where asked, for the end of standard input. A process that ends with its orchestrator takes no
/// notice of SIGINT: on a terminal, Ctrl-C reaches both, and the orchestrator still wants what was measured.
pub(crate) async fn of_process(exit_on_stdin_close: bool) -> Ending {
    let orphaned = exit_on_stdin_close.then(stdin_closed);
    let mut interrupt = signal(SignalKind::interrupt()).ok();
    let mut terminate = signal(SignalKind::terminate()).ok();
    tokio::select! {
        () = closed(orphaned) => Ending::Orphaned,
        () = next(&mut terminate) => Ending::Signal,
        () = until(&mut interrupt, !exit_on_stdin_close) => Ending::Signal,
    }
}

async fn next(signal: &mut Option<Signal>) {
    let came = match signal {
        Some(signal) => signal.recv().await,
        None => None,
    };
    if came.is_none() {
        std::future::pending().await
    }
}

async fn until(signal: &mut Option<Signal>, ends: bool) {
    loop {
        next(signal).await;
        if ends {
            return;
        }
    }
}

async fn closed(stdin: Option<oneshot::Receiver<()>>) {
    match stdin {
        // An error is the end of the reading thread: the same.
        Some(stdin) => drop(stdin.await),
        None => std::future::pending().await,
    }
}

/// Reads standard input to its end on a thread of its own: the runtime's own reader would keep the runtime from ending.
fn stdin_closed() -> oneshot::Receiver<()> {
    let (over, closed) = oneshot::channel();
    let spawned = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut ignored = [0; 256];
        while matches!(std::io::stdin().read(&mut ignored), Ok(1..)) {}
        let _ = over.send(());
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "cannot watch standard input");
    }
    closed
}
