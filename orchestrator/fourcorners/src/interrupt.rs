//! What asks the program to end: Ctrl-C, a TERM signal, or a terminal that went away.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Bit of the HUP signal in the masks of /proc/self/status.
const HANGUP_BIT: u64 = 1;

/// Listens from its creation on, so that none is lost between two waits.
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    /// None where hang-ups are ignored: `nohup` asks for that, and a handler would undo it.
    hangup: Option<Signal>,
}

impl Interrupts {
    /// Takes the signals over from their default, which is to end the process at once.
    ///
    /// # Errors
    /// Where the kernel gives no handler.
    pub(crate) fn listen() -> io::Result<Self> {
        let hangup = if hangups_are_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())?, hangup })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = hangup => {}
        }
    }
}

fn hangups_are_ignored() -> bool {
    // Without /proc, a hang-up is heard.
    ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default()) & HANGUP_BIT != 0
}

/// The mask of ignored signals in a process's status.
fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let nohup = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
        assert_eq!(ignored_signals(nohup) & HANGUP_BIT, 1);
        assert_eq!(ignored_signals(&nohup.replace("1001", "1000")) & HANGUP_BIT, 0);
        assert_eq!(ignored_signals(""), 0);
    }
}
