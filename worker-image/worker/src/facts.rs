//! What the worker says of itself, and its clock.

use std::time::{Duration, Instant};

use worker_protocol::{Hello, PROTOCOL_VERSION};

use crate::{AgentError, Machine, disks::Claims};

/// The worker's monotonic clock: `worker_ns` counts from the agent's start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WorkerClock {
    origin: Instant,
}

impl WorkerClock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.ns_of(Instant::now())
    }

    pub(crate) fn ns_of(&self, instant: Instant) -> u64 {
        u64::try_from(instant.saturating_duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn instant_of(&self, worker_ns: u64) -> Instant {
        self.origin + Duration::from_nanos(worker_ns)
    }
}

/// Who this worker is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    uuid: String,
    macs: Vec<String>,
}

impl Identity {
    /// As given (other processes on this machine have other identities, but the same MAC addresses), else the machine's own.
    pub(crate) fn of(given: Option<String>, machine: &Machine) -> Result<Self, AgentError> {
        if let Some(uuid) = given {
            return Ok(Self { uuid, macs: Vec::new() });
        }
        let identity = Self { uuid: machine.uuid().unwrap_or_default(), macs: machine.macs() };
        if identity.uuid.is_empty() && identity.macs.is_empty() {
            let problem =
                "not given, and this machine has no SMBIOS UUID that can be read and no MAC address".to_owned();
            return Err(AgentError::Option { option: "--uuid", problem });
        }
        Ok(identity)
    }
}

/// The Hello of this process, but for its activity.
pub(crate) fn hello(identity: Identity, token: String, claims: &Claims) -> Hello {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = rustix::system::sysinfo();
    Hello {
        protocol_version: PROTOCOL_VERSION,
        token,
        uuid: identity.uuid,
        macs: identity.macs,
        boot_id: uuid::Uuid::new_v4().to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_bytes: u64::from(system.mem_unit).saturating_mul(system.totalram),
        disks: claims.infos(),
        every_disk: claims.are_all(),
        activity: None,
    }
}
