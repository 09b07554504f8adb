//! `worker-init`: the first program of a worker VM.
//!
//! It loads the drivers, gives each network interface an address, shows on the console what the machine is and why it cannot
//! go on where it cannot, and keeps the agent running. It knows nothing of the protocol: the agent calls the orchestrator.

mod agent;
mod console;
mod disks;
mod machine;
mod network;
mod power;
mod processes;
mod status;

use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use worker_image::{Bootstrap, slot};

use agent::{Agent, SLOT};
use console::Console;
use network::Network;
use power::PowerButton;
use status::Status;

/// How often the loop looks at everything.
const TICK: Duration = Duration::from_millis(100);
/// After this long the agent starts without a known address: the network may configure itself (IPv6), and the agent's own words help.
const NO_ADDRESS_PATIENCE: Duration = Duration::from_secs(15);
/// The status is printed at most this often, so that a flapping link does not scroll everything away.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// After so many other lines it is printed again: a screen has 25.
const STATUS_AFTER_LINES: usize = 15;
/// How long a machine that was asked to shut down waits for its agent, which stops its I/O within 5 s.
const AGENT_STOP: Duration = Duration::from_secs(8);
/// The console's threads need a moment before the power goes; nobody waits for them otherwise.
const LAST_WORDS: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    if std::process::id() != 1 {
        eprintln!("worker-init is the first program of a worker VM (process 1) and does nothing elsewhere");
        return ExitCode::FAILURE;
    }
    let problems = machine::mount_all();
    let console = Console::open();
    // Software looks for this line to see that a kernel boots; see docs/image.md.
    console.line("fourcorners-worker: init is running");
    for problem in problems.iter().chain(&machine::load_modules()) {
        console.line(&format!("fourcorners-worker: {problem}"));
    }
    run(&console)
}

/// What the image was told.
fn bootstrap() -> Result<Bootstrap, String> {
    let bytes = fs::read(SLOT).map_err(|error| format!("{SLOT} cannot be read: {error}"))?;
    match slot::decode(&bytes) {
        Ok(Some(bootstrap)) => Ok(bootstrap),
        Ok(None) => {
            Err("this image is not personalised: it does not know its orchestrator (fourcorners image personalise)"
                .into())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn run(console: &Console) -> ! {
    let bootstrap = bootstrap();
    let button = PowerButton::watch();
    let entropy = machine::entropy();
    let identity = machine::identity();
    let mut network = Network::new(bootstrap.as_ref().ok());
    let mut disks = disks::Settling::new();
    let mut agent = bootstrap.is_ok().then(Agent::new);
    let mut shown = Shown::default();
    let started = Instant::now();
    loop {
        for ended in processes::ended() {
            network.ended(&ended);
            if let Some(agent) = &mut agent {
                agent.ended(&ended, console);
            }
        }
        if agent.as_ref().is_some_and(Agent::is_done) {
            power_off(console, "the agent is done");
        }
        if button.is_pressed() {
            shut_down(console, agent);
        }
        network.tick();
        let found = disks.tick();
        let connected = network.has_address() || started.elapsed() > NO_ADDRESS_PATIENCE;
        if let Some(agent) = agent.as_mut().filter(|_| entropy.is_finished() && found.settled && connected) {
            agent.tick(console);
        }
        shown.tick(console, || {
            Status {
                identity: &identity,
                bootstrap: bootstrap.as_ref(),
                entropy: entropy.is_finished(),
                disks: &found,
                interfaces: &network.lines(),
                agent: agent.as_ref().map(Agent::line),
            }
            .to_string()
        });
        thread::sleep(TICK);
    }
}

/// Ends in order, the agent first: nothing is to be written while the power goes.
fn shut_down(console: &Console, agent: Option<Agent>) -> ! {
    console.line("fourcorners-worker: the power button was pressed: stopping the agent");
    if let Some(mut agent) = agent {
        let until = Instant::now() + AGENT_STOP;
        agent.stop();
        while agent.is_running() && Instant::now() < until {
            thread::sleep(TICK);
            for ended in processes::ended() {
                agent.ended(&ended, console);
            }
        }
        console.line(&format!("fourcorners-worker: the agent {}", agent.line()));
    }
    power_off(console, "asked to by the power button")
}

fn power_off(console: &Console, why: &str) -> ! {
    console.line(&format!("fourcorners-worker: {why}: powering off"));
    thread::sleep(LAST_WORDS);
    machine::power_off()
}

/// The status last printed, when, and how many lines there were then.
#[derive(Default)]
struct Shown {
    text: String,
    at: Option<Instant>,
    lines: usize,
}

impl Shown {
    fn tick(&mut self, console: &Console, status: impl Fn() -> String) {
        if self.at.is_some_and(|at| at.elapsed() < STATUS_INTERVAL) {
            return;
        }
        let text = status();
        if text != self.text || console.lines() - self.lines >= STATUS_AFTER_LINES {
            console.line(&text);
            *self = Self { text, at: Some(Instant::now()), lines: console.lines() };
        }
    }
}
