//! `worker-init`: the first program of a worker VM.
//!
//! It loads the drivers, gives each network interface an address, shows on the console what the machine is and why it cannot
//! go on where it cannot, and keeps the agent running. It knows nothing of the protocol: the agent calls the orchestrator.

mod agent;
mod console;
mod disks;
mod machine;
mod network;
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
use status::Status;

/// How often the loop looks at everything.
const TICK: Duration = Duration::from_millis(100);
/// After this long the agent starts without a known address: the network may configure itself (IPv6), and the agent's own words help.
const NO_ADDRESS_PATIENCE: Duration = Duration::from_secs(15);
/// The status is printed at most this often, so that a flapping link does not scroll everything away.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);

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

/// The status last printed, and when.
#[derive(Default)]
struct Shown {
    text: String,
    at: Option<Instant>,
}

impl Shown {
    fn tick(&mut self, console: &Console, status: impl Fn() -> String) {
        if self.at.is_some_and(|at| at.elapsed() < STATUS_INTERVAL) {
            return;
        }
        let text = status();
        if text != self.text {
            console.line(&text);
            *self = Self { text, at: Some(Instant::now()) };
        }
    }
}
