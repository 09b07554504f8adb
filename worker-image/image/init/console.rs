//! The screen and the serial port, both written to at once.

use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// A VM has a screen, a serial port, or both.
const TERMINALS: [&str; 2] = ["/dev/tty0", "/dev/ttyS0"];
/// Lines that may wait for a terminal. A serial port that nobody reads may block for ever; then lines are dropped, and init goes on.
const QUEUE_LINES: usize = 256;

/// Both terminals.
pub(crate) struct Console {
    terminals: Vec<SyncSender<String>>,
    lines: Arc<AtomicUsize>,
}

impl Console {
    pub(crate) fn open() -> Self {
        let open = |path| OpenOptions::new().write(true).open(path).ok();
        let terminals = TERMINALS.into_iter().filter_map(open).map(|mut terminal| {
            let (sender, lines) = sync_channel::<String>(QUEUE_LINES);
            thread::spawn(move || {
                for line in lines {
                    // A terminal that refuses (no such port) is of no use to anybody.
                    if terminal.write_all(line.as_bytes()).is_err() {
                        return;
                    }
                }
            });
            sender
        });
        Self { terminals: terminals.collect(), lines: Arc::default() }
    }

    /// Prints a line, or several.
    pub(crate) fn line(&self, text: &str) {
        let mut printable: String =
            text.chars().map(|c| if c == '\n' || (' '..='~').contains(&c) { c } else { '?' }).collect();
        printable.push('\n');
        self.lines.fetch_add(printable.lines().count(), Ordering::Relaxed);
        for terminal in &self.terminals {
            // Full or gone: see QUEUE_LINES.
            let _ = terminal.try_send(printable.clone());
        }
    }

    /// Lines printed so far, by all threads.
    pub(crate) fn lines(&self) -> usize {
        self.lines.load(Ordering::Relaxed)
    }

    /// A sender of lines for another thread.
    pub(crate) fn another(&self) -> Self {
        Self { terminals: self.terminals.clone(), lines: Arc::clone(&self.lines) }
    }
}
