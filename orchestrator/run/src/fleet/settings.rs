use std::{sync::Arc, time::Duration};

use worker_protocol::{Failed, Finished, Hello, Progress, Ready, Sample};

use super::{authority::Authority, clock::OrchestratorClock};

/// How long a process on this machine may stay away before it is lost.
pub const LOCAL_GRACE: Duration = Duration::from_secs(5);
/// How long a worker in a machine of its own may stay away: its silence is found out by itself later than by us, and then it waits up to
/// 5 s between attempts, which take up to 5 s to connect and 10 s for the handshake.
pub const MACHINE_GRACE: Duration = Duration::from_secs(30);
/// From the connection to a worker's valid Hello, the TLS handshake included; a slower peer is dropped.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// The same while others wait for the place: a crowd of silent connections keeps no worker out for long.
pub const CROWDED_TIMEOUT: Duration = Duration::from_secs(1);
/// A session on which nothing is heard for this long is dead, though TCP has not noticed.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(15);
/// A message that the peer's TCP does not take within this time ends the session.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// An event that the caller does not take within this time ends the session it came from; it is told again on the next.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two measurements of a worker's clock.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(60);
/// Probes a measurement; the fastest counts.
pub const PROBE_BURST: u64 = 16;
/// A probe whose reply takes longer is given up.
pub const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// A whole burst; without enough replies in it there is no measurement.
pub const BURST_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that have not enrolled yet; more wait in the listener's backlog.
pub const MAX_UNENROLLED: usize = 256;
/// Messages waiting for one worker; beyond it the session ends, and what matters is said again on the next.
pub const OUTBOUND_QUEUE: usize = 64;
/// Events a worker that may wait for the caller: more than the samples a worker sends ahead of their acknowledgement.
pub const EVENTS_PER_WORKER: usize = worker_protocol::MAX_SAMPLES_IN_FLIGHT + 32;

/// Who belongs to the fleet, and its limits.
#[derive(Debug, Clone)]
pub struct FleetSettings {
    /// What a worker must present.
    pub token: String,
    /// Whose certificate workers pin.
    pub authority: Arc<Authority>,
    /// The workers; names, UUIDs and MAC addresses are distinct.
    pub expected: Vec<Expected>,
    /// The clock of the run.
    pub clock: OrchestratorClock,
    /// Times and numbers.
    pub limits: FleetLimits,
}

/// A worker that may enrol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Name in the run.
    pub name: String,
    /// Identity, compared without regard to case and with its first three fields in either byte order.
    pub uuid: String,
    /// MAC addresses of the machine, any of which identifies it as well; none for a process.
    pub macs: Vec<String>,
    /// Disks that it must have. A machine must have no other; what else a process was given is left alone.
    pub disks: Vec<ExpectedDisk>,
}

/// A data disk of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectedDisk {
    /// Serial, or what the disk is called where it has none.
    pub serial: String,
    /// Exact size as the hypervisor reads it back, bytes.
    pub size_bytes: u64,
    /// Where it is found if no disk has that serial, as [`worker_protocol::DiskInfo::scsi_address`].
    pub scsi_address: Option<String>,
}

/// A fleet's times and numbers; the defaults are the constants of this module.
#[derive(Debug, Clone, Copy)]
pub struct FleetLimits {
    /// How long a worker may stay away before it is lost ([`LOCAL_GRACE`], [`MACHINE_GRACE`]).
    pub grace: Duration,
    /// From connection to Hello.
    pub hello_timeout: Duration,
    /// The same while others wait.
    pub crowded_timeout: Duration,
    /// Silence that ends a session; pings go out at a third of it.
    pub keepalive_timeout: Duration,
    /// How long an event waits for the caller before its session ends.
    pub event_timeout: Duration,
    /// Between measurements of the clocks.
    pub probe_interval: Duration,
    /// Connections before enrolment.
    pub max_unenrolled: usize,
}

impl Default for FleetLimits {
    fn default() -> Self {
        Self {
            grace: LOCAL_GRACE,
            hello_timeout: HELLO_TIMEOUT,
            crowded_timeout: CROWDED_TIMEOUT,
            keepalive_timeout: KEEPALIVE_TIMEOUT,
            event_timeout: EVENT_TIMEOUT,
            probe_interval: PROBE_INTERVAL,
            max_unenrolled: MAX_UNENROLLED,
        }
    }
}

/// What happens in the fleet. `worker` is the name from [`Expected`].
#[derive(Debug, Clone, PartialEq)]
pub enum FleetEvent {
    /// A session with the worker begins.
    Enrolled {
        /// The worker.
        worker: String,
        /// What it said; the token is blanked.
        hello: Box<Hello>,
        /// The same process as before, within its grace: its job goes on.
        resumed: bool,
    },
    /// The worker's job waits for its start.
    Ready {
        /// The worker.
        worker: String,
        /// What the engine was granted.
        ready: Ready,
    },
    /// The worker's job did not start or broke off. To be acknowledged by [`super::Fleet::ack_job`].
    Failed {
        /// The worker.
        worker: String,
        /// Why.
        failed: Failed,
    },
    /// A fill's or a read-back's progress.
    Progress {
        /// The worker.
        worker: String,
        /// How far.
        progress: Progress,
    },
    /// One second of a load job: each number once, ascending; a number left out is a gap. To be acknowledged by
    /// [`super::Fleet::ack_samples`] once stored.
    Sample {
        /// The worker.
        worker: String,
        /// The second.
        sample: Sample,
    },
    /// The worker's job is over. To be acknowledged by [`super::Fleet::ack_job`] once stored.
    Finished {
        /// The worker.
        worker: String,
        /// Its totals.
        finished: Box<Finished>,
    },
    /// The session ended; the worker has [`FleetLimits::grace`] to come back.
    Disconnected {
        /// The worker.
        worker: String,
        /// Why the session ended.
        why: String,
    },
    /// The worker and the job it held are gone. It may enrol again, without that job.
    Lost {
        /// The worker.
        worker: String,
        /// The job it held.
        job: Option<u64>,
        /// Why.
        why: String,
    },
    /// A connection was refused; the run goes on.
    Refused {
        /// Address of the peer.
        peer: String,
        /// Why.
        reason: String,
    },
}
