//! What is told of refused connections: strangers may cause any number, and each told one is a line of the log and a row of the store.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The last refusals kept for a person.
pub const MAX_REFUSALS_KEPT: usize = 8;
/// Refusals told one after another; then one in each [`REFUSAL_INTERVAL`], with the number of those left out.
pub const REFUSAL_BURST: u32 = 64;
/// See [`REFUSAL_BURST`].
pub const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a reason that are told at most: it may quote what a stranger sent.
const MAX_REASON_BYTES: usize = 300;

/// The last refusals, and how many more may be told now.
#[derive(Debug)]
pub(super) struct Refusals {
    kept: VecDeque<String>,
    allowance: u32,
    refilled: Instant,
    untold: u64,
}

impl Refusals {
    pub(super) fn new(now: Instant) -> Self {
        Self { kept: VecDeque::new(), allowance: REFUSAL_BURST, refilled: now, untold: 0 }
    }

    /// Keeps a refusal; answers its reason as it is to be told, or none where there were too many.
    pub(super) fn add(&mut self, peer: &str, reason: &str, now: Instant) -> Option<String> {
        if self.kept.len() == MAX_REFUSALS_KEPT {
            self.kept.pop_front();
        }
        let reason = short(reason);
        self.kept.push_back(format!("{peer}: {reason}"));
        let intervals = now.saturating_duration_since(self.refilled).as_secs() / REFUSAL_INTERVAL.as_secs();
        if let Some(more) = u32::try_from(intervals).ok().filter(|&more| more > 0) {
            self.allowance = self.allowance.saturating_add(more).min(REFUSAL_BURST);
            self.refilled = now;
        }
        if self.allowance == 0 {
            self.untold += 1;
            return None;
        }
        self.allowance -= 1;
        match std::mem::take(&mut self.untold) {
            0 => Some(reason),
            untold => Some(format!("{reason} (and {untold} more were refused before it)")),
        }
    }

    /// The last ones, newest last.
    pub(super) fn kept(&self) -> Vec<String> {
        self.kept.iter().cloned().collect()
    }
}

/// A reason on one line and cut: what does not print, a terminal's commands among it, as an escape.
pub(super) fn short(reason: &str) -> String {
    let mut told = String::new();
    for character in reason.chars() {
        let shown = match character {
            '"' | '\'' | '\\' => character.to_string(),
            other => other.escape_debug().to_string(),
        };
        if told.len() + shown.len() > MAX_REASON_BYTES {
            told.push('…');
            break;
        }
        told.push_str(&shown);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_short_line_whatever_was_sent() {
        let mut refusals = Refusals::new(Instant::now());
        let long = "x".repeat(250_000);
        for sent in [&*long, &"ä\u{202e}".repeat(5_000), "\x1b[2J\r\nforged line\u{9b}1m"] {
            let told = refusals.add("peer", &format!("expected a Hello: {sent}"), Instant::now()).unwrap();
            assert!(told.len() <= MAX_REASON_BYTES + '…'.len_utf8(), "{} bytes", told.len());
            assert!(!told.contains(|character: char| character.is_control() || character == '\u{202e}'), "{told:?}");
            assert_eq!(refusals.kept().last(), Some(&format!("peer: {told}")));
        }
        let plain = "no worker with UUID \"a\\b\" isn't ours";
        assert_eq!(refusals.add("peer", plain, Instant::now()).unwrap(), plain);
    }

    #[test]
    fn a_flood_is_counted_and_not_told() {
        let start = Instant::now();
        let mut refusals = Refusals::new(start);
        let told = (0..10_000).filter_map(|number| refusals.add("peer", &format!("no {number}"), start)).count();
        assert_eq!(told, REFUSAL_BURST as usize);
        assert_eq!(refusals.kept().len(), MAX_REFUSALS_KEPT);
        assert_eq!(refusals.kept()[7], "peer: no 9999");
        let later = start + REFUSAL_INTERVAL;
        assert_eq!(refusals.add("peer", "late", later).unwrap(), "late (and 9936 more were refused before it)");
        assert_eq!(refusals.add("peer", "late", later), None, "one in an interval");
        let much_later = start + Duration::from_secs(100_000);
        let told = (0..200).filter_map(|_| refusals.add("peer", "again", much_later)).count();
        assert_eq!(told, REFUSAL_BURST as usize, "the allowance does not grow beyond the burst");
    }
}
