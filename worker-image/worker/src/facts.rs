//! What the worker says of itself, and its clock.

use std::time::{Duration, Instant};

use worker_protocol::{DiskInfo, Hello, PROTOCOL_VERSION};

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

/// The Hello of this process, but for its activity.
pub(crate) fn hello(uuid: String, token: String, disks: Vec<DiskInfo>) -> Hello {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let system = rustix::system::sysinfo();
    Hello {
        protocol_version: PROTOCOL_VERSION,
        token,
        uuid,
        macs: Vec::new(),
        boot_id: uuid::Uuid::new_v4().to_string(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        memory_bytes: u64::from(system.mem_unit).saturating_mul(system.totalram),
        disks,
        activity: None,
    }
}
