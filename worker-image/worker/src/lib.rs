//! The worker agent: dials the orchestrator over TLS, trusting one pinned CA, and drives the load engine.
//!
//! One task talks to the orchestrator; each job has a thread of its own beside the engine's, so that a clock probe is answered at once also
//! under load. [`Agent::run`] outlives its sessions: a job goes on while the agent redials, and what was not acknowledged is sent again.

mod agent;
mod args;
mod book;
mod bootstrap;
mod convert;
mod disks;
mod ending;
mod facts;
mod job;
mod link;
mod machine;
mod pin;

pub use agent::{Agent, AgentError, Config};
pub use args::{Args, DiskArg, TOKEN_VARIABLE};
pub use ending::Ending;
pub use machine::Machine;
pub use worker_protocol::Fingerprint;

use std::time::Duration;

/// A session on which nothing is heard for this long is dead, though TCP has not noticed; pings go out at a third of it.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// A message that the orchestrator's TCP does not take within this time ends the session.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// Addresses of one orchestrator.
pub const MAX_URLS: usize = 32;
/// From dialling one address to dialling the next beside it.
pub const DIAL_STAGGER: Duration = Duration::from_millis(250);
/// From dialling one address to a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// From a connection to the answer to Hello: less than the orchestrator allows (10 s), so that the worker's console says what did not come,
/// and not that it was cut off.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(8);
/// Before dialling again: first this long, then twice as long each time, up to [`MAX_BACKOFF`]; of that, a random half to whole.
pub const MIN_BACKOFF: Duration = Duration::from_millis(200);
/// The longest pause before dialling again.
pub const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Without a session and without news from a job for this long, the agent gives up; `--give-up-after` changes it.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(600);
/// A start that is past by more than this fails the job: the others have begun.
pub const MAX_START_LATENESS: Duration = Duration::from_millis(50);
/// A start farther ahead than this is refused: no orchestrator plans so, and the disks would be held for nothing.
pub const MAX_START_AHEAD: Duration = Duration::from_secs(600);
/// At its end the agent waits this long for a job's threads; the process's end takes those that hang in the kernel.
pub const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Refused jobs whose refusal is not acknowledged; beyond it the oldest is forgotten.
pub const MAX_REFUSED_JOBS: usize = 16;

/// Runs the agent as a process until it is told to end. Needs a Tokio runtime with time and I/O.
///
/// # Errors
/// [`AgentError`]: a bad option, a disk that cannot be examined, a final refusal, or nobody to talk to within the bound.
pub async fn run(args: Args) -> Result<(), AgentError> {
    let exit_on_stdin_close = args.exit_on_stdin_close;
    let agent = Agent::new(args.into_config()?)?;
    agent.run(ending::of_process(exit_on_stdin_close)).await
}
