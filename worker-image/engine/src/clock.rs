//! Nanoseconds of the monotonic clock, and how they convert to [`Instant`].

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Now, ns of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CPU time of the calling thread, ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
}

#[inline]
#[expect(clippy::cast_sign_loss, reason = "these clocks start at 0")]
fn nanoseconds(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// A reading of both clocks at once; [`Instant`] is the same clock but does not tell its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Anchor {
    instant: Instant,
    ns: u64,
}

impl Anchor {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), ns: now_ns() }
    }

    pub(crate) fn to_ns(self, instant: Instant) -> u64 {
        let forward = instant.checked_duration_since(self.instant);
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match forward {
            Some(ahead) => self.ns.saturating_add(nanoseconds(ahead)),
            None => self.ns.saturating_sub(nanoseconds(self.instant.duration_since(instant))),
        }
    }

    pub(crate) fn to_instant(self, ns: u64) -> Instant {
        if ns >= self.ns {
            self.instant + Duration::from_nanos(ns - self.ns)
        } else {
            let behind = Duration::from_nanos(self.ns - ns);
            self.instant.checked_sub(behind).unwrap_or(self.instant)
        }
    }
}

/// The kernel's clock source, by name.
pub(crate) fn source() -> String {
    std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_convert_there_and_back() {
        let anchor = Anchor::now();
        let now = now_ns();
        for ns in [now, now + 5_000_000_000, now - 1_000_000] {
            assert_eq!(anchor.to_ns(anchor.to_instant(ns)), ns);
        }
    }

    #[test]
    fn cpu_time_grows_with_work() {
        let before = thread_cpu_ns();
        let end = now_ns() + 2_000_000;
        while now_ns() < end {}
        assert!(thread_cpu_ns() > before);
    }
}
