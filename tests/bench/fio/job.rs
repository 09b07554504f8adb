//! The cases, and what is measured of each.

use std::time::Duration;

/// One kind of I/O, as fio and the worker are both asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) access: Access,
    /// Bytes an I/O.
    pub(crate) block_bytes: u64,
    /// I/Os kept in flight.
    pub(crate) depth: u32,
    /// Window, seconds.
    pub(crate) seconds: u32,
    /// Load before it, seconds.
    pub(crate) ramp: u32,
}

/// Pattern and direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    RandomRead,
    SequentialWrite,
}

/// What one run of a job measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// I/Os a second.
    pub(crate) iops: f64,
    /// Mean latency, µs.
    pub(crate) mean_us: f64,
    /// 99th percentile of the latency, µs.
    pub(crate) p99_us: f64,
    /// CPU time of the process, seconds a million I/Os.
    pub(crate) cpu: f64,
}

/// One interleaved round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) fio: Figures,
    pub(crate) worker: Figures,
    pub(crate) control: Figures,
}

/// Two of the four corners at the outstanding I/Os of the published and of the deep profiles.
pub(crate) fn cases(seconds: u32, ramp: u32) -> Vec<Job> {
    let job = |access, block_bytes, depth| Job { access, block_bytes, depth, seconds, ramp };
    vec![
        job(Access::RandomRead, 4 << 10, 2),
        job(Access::RandomRead, 4 << 10, 16),
        job(Access::SequentialWrite, 32 << 10, 2),
        job(Access::SequentialWrite, 32 << 10, 8),
    ]
}

impl Job {
    /// The case's name, with its depth.
    pub(crate) fn name(&self) -> String {
        format!("{}, depth {}", self.kind(), self.depth)
    }

    /// The case's name.
    pub(crate) fn kind(&self) -> String {
        let access = match self.access {
            Access::RandomRead => "random read",
            Access::SequentialWrite => "sequential write",
        };
        format!("{}K {access}", self.block_bytes >> 10)
    }

    /// From the start of the load to the end of the window.
    pub(crate) fn length(&self) -> Duration {
        Duration::from_secs(u64::from(self.ramp) + u64::from(self.seconds))
    }
}
