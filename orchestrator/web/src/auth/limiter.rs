//! Limits how often something may be tried: by address, by account. The memory is fixed, whatever is tried.

use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Keys share this many counters (1 MiB): two keys on one counter limit each other, which is rare and harmless. Which do is nobody's to choose,
/// as the hash has a random key.
const COUNTERS: usize = 1 << 16;

/// A number of tries at once, then one every so often (GCRA, which keeps one time a key).
#[derive(Debug)]
pub(crate) struct Limiter {
    hasher: RandomState,
    interval: Duration,
    burst: Duration,
    /// When the key's tries are all forgotten.
    forgotten: Mutex<Vec<Option<Instant>>>,
}

impl Limiter {
    /// `burst` tries at once, then one each `interval`.
    pub(crate) fn new(burst: u32, interval: Duration) -> Self {
        let forgotten = Mutex::new(vec![None; COUNTERS]);
        Self { hasher: RandomState::new(), interval, burst: interval * burst, forgotten }
    }

    /// Takes a try, or says how long to wait for one.
    pub(crate) fn take(&self, key: impl Hash, now: Instant) -> Result<(), Duration> {
        let mut counters = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = &mut counters[self.place(key)];
        let next = counter.map_or(now, |forgotten| forgotten.max(now)) + self.interval;
        let used = next - now;
        if used > self.burst {
            return Err(used - self.burst);
        }
        *counter = Some(next);
        Ok(())
    }

    /// Gives a try back: it was no failure.
    pub(crate) fn give_back(&self, key: impl Hash) {
        let mut counters = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = &mut counters[self.place(key)];
        *counter = counter.and_then(|forgotten| forgotten.checked_sub(self.interval));
    }

    fn place(&self, key: impl Hash) -> usize {
        // The remainder is below COUNTERS, on any width of usize.
        usize::try_from(self.hasher.hash_one(key) % COUNTERS as u64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_then_one_an_interval() {
        let limiter = Limiter::new(3, Duration::from_secs(10));
        let start = Instant::now();
        for _ in 0..3 {
            limiter.take("a", start).unwrap();
        }
        assert_eq!(limiter.take("a", start), Err(Duration::from_secs(10)));
        assert_eq!(
            limiter.take("a", start + Duration::from_secs(4)),
            Err(Duration::from_secs(6)),
            "asking costs nothing"
        );
        limiter.take("a", start + Duration::from_secs(10)).unwrap();
        assert!(limiter.take("a", start + Duration::from_secs(10)).is_err());
        for _ in 0..3 {
            limiter.take("a", start + Duration::from_secs(1000)).unwrap();
        }
    }

    #[test]
    fn a_try_given_back_is_not_counted() {
        let limiter = Limiter::new(1, Duration::from_secs(10));
        let start = Instant::now();
        for _ in 0..100 {
            limiter.take("a", start).unwrap();
            limiter.give_back("a");
        }
        limiter.take("a", start).unwrap();
        assert!(limiter.take("a", start).is_err());
    }

    #[test]
    fn many_keys_take_no_more_memory_and_most_are_apart() {
        let limiter = Limiter::new(1, Duration::from_secs(10));
        let start = Instant::now();
        let apart = (0..100).filter(|key: &u32| limiter.take(key, start).is_ok()).count();
        assert!(apart > 95, "{apart} of 100 had a counter of their own");
        for key in 0..100_000_u32 {
            let _ = limiter.take(key, start);
        }
        assert_eq!(limiter.forgotten.lock().unwrap().len(), COUNTERS);
        assert!(limiter.take(0_u32, start).is_err());
    }
}
