//! Keeps the agent running and shows what it says.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::console::Console;
use crate::processes::{self, Ended};

const PROGRAM: &str = "/bin/worker";
/// The bootstrap slot's file.
pub(crate) const SLOT: &str = "/bootstrap";
/// Wait before a crashed agent starts again; doubled at each crash up to the second value.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(15);
/// An agent that ran this long was well; its next crash counts as the first again.
const WELL_AFTER: Duration = Duration::from_secs(60);
/// Longest line of the agent's that is shown whole, bytes: an address, what stands in the way there, and two fingerprints.
const LINE_BYTES: u64 = 1000;
/// Lines of the agent's shown a second; the others are counted.
const LINES_A_SECOND: u32 = 20;

/// The agent's process.
pub(crate) struct Agent {
    state: State,
    starts: u32,
    last_end: Option<String>,
    delay: Duration,
}

enum State {
    Waiting {
        until: Instant,
    },
    Running {
        pid: u32,
        since: Instant,
    },
    /// Asked to end, and not to be started again.
    Stopping {
        pid: u32,
    },
    Stopped,
    /// It ended with status 0: its fleet is no more.
    Done,
}

impl Agent {
    pub(crate) fn new() -> Self {
        let state = State::Waiting { until: Instant::now() };
        Self { state, starts: 0, last_end: None, delay: FIRST_DELAY }
    }

    /// Starts the agent where it does not run and its wait is over.
    pub(crate) fn tick(&mut self, console: &Console) {
        let State::Waiting { until } = self.state else { return };
        if Instant::now() < until {
            return;
        }
        let mut command = Command::new(PROGRAM);
        // The agent reads the slot itself: a command line with the token would be visible to every program.
        command.arg("--bootstrap").arg(SLOT).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.starts += 1;
        match processes::start(&mut command) {
            Ok(mut child) => {
                self.state = State::Running { pid: child.id(), since: Instant::now() };
                show(child.stdout.take(), console);
                show(child.stderr.take(), console);
            }
            Err(error) => self.wait(format!("{PROGRAM} cannot be started: {error}"), console),
        }
    }

    /// Takes note if it was the agent that ended.
    pub(crate) fn ended(&mut self, ended: &Ended, console: &Console) {
        match self.state {
            State::Running { pid, since } if pid == ended.pid => {
                if since.elapsed() > WELL_AFTER {
                    self.delay = FIRST_DELAY;
                }
                if ended.well() {
                    self.state = State::Done;
                } else {
                    self.wait(ended.how(), console);
                }
            }
            State::Stopping { pid } if pid == ended.pid => self.state = State::Stopped,
            _ => {}
        }
    }

    /// Its fleet is no more.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. } | State::Stopping { .. })
    }

    /// Asks it to end; it is not started again.
    pub(crate) fn stop(&mut self) {
        self.state = match self.state {
            State::Running { pid, .. } => {
                let pid_of_agent = i32::try_from(pid).ok().and_then(Pid::from_raw);
                // It may have ended just now: then its end is noted next.
                let _ = pid_of_agent.map(|pid| kill_process(pid, Signal::TERM));
                State::Stopping { pid }
            }
            _ => State::Stopped,
        };
    }

    fn wait(&mut self, why: String, console: &Console) {
        console.line(&format!("fourcorners-worker: the agent ended ({why}); it starts again in {:?}", self.delay));
        self.last_end = Some(why);
        self.state = State::Waiting { until: Instant::now() + self.delay };
        self.delay = (self.delay * 2).min(LONGEST_DELAY);
    }

    /// For the status.
    pub(crate) fn line(&self) -> String {
        match (&self.state, &self.last_end) {
            (State::Waiting { .. }, None) => "waits for network, disks and random numbers".into(),
            (State::Waiting { .. }, Some(why)) => format!("ended ({why}); starts again"),
            (State::Running { .. }, None) => "is running".into(),
            (State::Running { .. }, Some(why)) => {
                format!("is running, started {} times; last it ended with {why}", self.starts)
            }
            (State::Stopping { .. }, _) => "was asked to end and has not".into(),
            (State::Stopped, _) => "has ended".into(),
            (State::Done, _) => "is done: its fleet is no more".into(),
        }
    }
}

/// Shows what the agent prints, with a bound on length and rate.
fn show(output: Option<impl Read + Send + 'static>, console: &Console) {
    let Some(output) = output else { return };
    let console = console.another();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut allowance = Allowance::new();
        let mut line = Vec::new();
        while output.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            for text in allowance.pass(Instant::now(), String::from_utf8_lossy(&line).trim_end()) {
                console.line(&format!("agent: {text}"));
            }
            line.clear();
        }
    });
}

/// Lets so many lines a second pass.
struct Allowance {
    second: Instant,
    passed: u32,
    left_out: u32,
}

impl Allowance {
    fn new() -> Self {
        Self { second: Instant::now(), passed: 0, left_out: 0 }
    }

    /// The lines to show for a line that came in.
    fn pass(&mut self, now: Instant, line: &str) -> Vec<String> {
        let mut lines = Vec::new();
        if now.saturating_duration_since(self.second) >= Duration::from_secs(1) {
            if self.left_out > 0 {
                lines.push(format!("({} lines left out)", self.left_out));
            }
            *self = Self { second: now, passed: 0, left_out: 0 };
        }
        if self.passed < LINES_A_SECOND {
            self.passed += 1;
            lines.push(line.to_owned());
        } else {
            self.left_out += 1;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_cut_and_counted() {
        let mut allowance = Allowance::new();
        let start = allowance.second;
        let shown: usize = (0..100).map(|_| allowance.pass(start, "x").len()).sum();
        assert_eq!(shown, 20);
        assert_eq!(allowance.pass(start + Duration::from_secs(1), "y"), ["(80 lines left out)", "y"]);
        assert_eq!(allowance.pass(start + Duration::from_secs(1), "z"), ["z"]);
    }
}
