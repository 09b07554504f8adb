//! What a thread counts in a second, and what it keeps of errors and stalls. All memory is allocated beforehand.

use latency_histogram::Recorder;

use crate::limits::{FIRST_OFFSETS, MAX_ERROR_KINDS, MAX_STALLS};
use crate::offsets::Op;
use crate::outcome::IoErrors;

/// One operation of one lane in one second.
#[derive(Debug, Default)]
pub(crate) struct OpTally {
    /// None where the workload has no such operation.
    pub(crate) latency: Option<Recorder>,
    /// Only in open loops.
    pub(crate) service: Option<Recorder>,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
}

/// One lane in one second.
#[derive(Debug, Default)]
pub(crate) struct LaneTally {
    pub(crate) read: OpTally,
    pub(crate) write: OpTally,
    pub(crate) flushes: u64,
}

impl LaneTally {
    #[inline]
    pub(crate) fn op(&mut self, op: Op) -> &mut OpTally {
        match op {
            Op::Read => &mut self.read,
            Op::Write => &mut self.write,
        }
    }
}

/// Which recorders a workload needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kinds {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) service: bool,
}

/// A thread's second.
#[derive(Debug)]
pub(crate) struct SecondTally {
    /// The second that this counts, from the start of the job.
    pub(crate) second: u32,
    /// All seconds before this one are over for the thread; those between had no completion.
    pub(crate) over: u32,
    /// The thread was loading for all of it.
    pub(crate) whole: bool,
    pub(crate) lanes: Box<[LaneTally]>,
}

impl SecondTally {
    pub(crate) fn new(lanes: usize, kinds: Kinds) -> Self {
        let op = |used: bool| OpTally {
            latency: used.then(Recorder::new),
            service: (used && kinds.service).then(Recorder::new),
            ..OpTally::default()
        };
        let lane = || LaneTally { read: op(kinds.reads), write: op(kinds.writes), flushes: 0 };
        Self { second: 0, over: 0, whole: true, lanes: (0..lanes).map(|_| lane()).collect() }
    }
}

/// How an I/O failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    /// The kernel's number.
    Errno(i32),
    /// Fewer bytes than asked.
    Short,
    /// Other bytes than written.
    Mismatch,
}

#[derive(Debug, Clone, Copy)]
struct KindLog {
    code: ErrorCode,
    count: u64,
    offsets: [u64; FIRST_OFFSETS],
}

/// Errors of a lane by kind.
#[derive(Debug)]
pub(crate) struct ErrorLog {
    kinds: Vec<KindLog>,
    other: u64,
}

impl ErrorLog {
    pub(crate) fn new() -> Self {
        Self { kinds: Vec::with_capacity(MAX_ERROR_KINDS), other: 0 }
    }

    pub(crate) fn note(&mut self, code: ErrorCode, offset: u64) {
        let known = self.kinds.iter().position(|kind| kind.code == code);
        let index = match known {
            Some(index) => index,
            None if self.kinds.len() < MAX_ERROR_KINDS => {
                self.kinds.push(KindLog { code, count: 0, offsets: [0; FIRST_OFFSETS] });
                self.kinds.len() - 1
            }
            None => {
                self.other += 1;
                return;
            }
        };
        let kind = &mut self.kinds[index];
        if let Some(place) = usize::try_from(kind.count).ok().and_then(|count| kind.offsets.get_mut(count)) {
            *place = offset;
        }
        kind.count += 1;
    }

    /// Adds the log to a disk's errors.
    pub(crate) fn add_to(&self, errors: &mut Vec<IoErrors>) {
        for kind in &self.kinds {
            let kept = usize::try_from(kind.count).unwrap_or(usize::MAX).min(FIRST_OFFSETS);
            add(errors, name(kind.code), kind.count, &kind.offsets[..kept]);
        }
        if self.other > 0 {
            add(errors, "other".to_owned(), self.other, &[]);
        }
    }
}

fn add(errors: &mut Vec<IoErrors>, kind: String, count: u64, offsets: &[u64]) {
    match errors.iter_mut().find(|known| known.kind == kind) {
        Some(known) => {
            known.count += count;
            known.first_offsets.extend(offsets.iter().take(FIRST_OFFSETS.saturating_sub(known.first_offsets.len())));
        }
        None => errors.push(IoErrors { kind, count, first_offsets: offsets.to_vec() }),
    }
}

/// The name by which errors of a kind are counted.
fn name(code: ErrorCode) -> String {
    let known = [
        (libc::EIO, "EIO"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::EINVAL, "EINVAL"),
        (libc::ENXIO, "ENXIO"),
        (libc::ENODEV, "ENODEV"),
        (libc::EROFS, "EROFS"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EBADF, "EBADF"),
        (libc::EFBIG, "EFBIG"),
        (libc::EDQUOT, "EDQUOT"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EREMOTEIO, "EREMOTEIO"),
        (libc::ENODATA, "ENODATA"),
        (libc::EILSEQ, "EILSEQ"),
        (libc::ECANCELED, "ECANCELED"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::ESTALE, "ESTALE"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EPERM, "EPERM"),
        (libc::ENOLINK, "ENOLINK"),
    ];
    match code {
        ErrorCode::Short => "short".to_owned(),
        ErrorCode::Mismatch => "mismatch".to_owned(),
        ErrorCode::Errno(number) => known
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| format!("errno {number}"), |(_, name)| (*name).to_owned()),
    }
}

/// A time without completion, ns of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quiet {
    pub(crate) from_ns: u64,
    /// I/O was in flight from here on, where this is later than the start.
    pub(crate) busy_from_ns: u64,
    pub(crate) to_ns: u64,
}

impl Quiet {
    /// When it became a stall: quiet, and I/O in flight.
    pub(crate) fn stall_from_ns(self) -> u64 {
        self.from_ns.max(self.busy_from_ns)
    }

    pub(crate) fn stall_ns(self) -> u64 {
        self.to_ns.saturating_sub(self.stall_from_ns())
    }

    /// The time in which both are quiet; I/O is in flight where one of them has some.
    fn and(self, other: Self) -> Self {
        Self {
            from_ns: self.from_ns.max(other.from_ns),
            busy_from_ns: self.stall_from_ns().min(other.stall_from_ns()),
            to_ns: self.to_ns.min(other.to_ns),
        }
    }
}

/// Times without completion of a lane, ascending and without overlap.
#[derive(Debug)]
pub(crate) struct QuietLog {
    pub(crate) quiets: Vec<Quiet>,
    /// Beyond [`MAX_STALLS`].
    pub(crate) dropped: u64,
}

impl QuietLog {
    pub(crate) fn new() -> Self {
        Self { quiets: Vec::with_capacity(MAX_STALLS), dropped: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.quiets.len() < MAX_STALLS
    }

    pub(crate) fn note(&mut self, quiet: Quiet) {
        if self.has_room() {
            self.quiets.push(quiet);
        } else {
            self.dropped += 1;
        }
    }
}

/// Start and end of the times, longer than `threshold_ns`, in which no lane of a disk had a completion and one had I/O in flight.
pub(crate) fn common_stalls(lanes: &[&[Quiet]], threshold_ns: u64) -> Vec<(u64, u64)> {
    let Some((first, rest)) = lanes.split_first() else { return Vec::new() };
    let common = rest.iter().fold(first.to_vec(), |common, lane| {
        let pairs = common.iter().flat_map(|&one| lane.iter().map(move |&other| one.and(other)));
        pairs.filter(|quiet| quiet.to_ns.saturating_sub(quiet.from_ns) > threshold_ns).collect()
    });
    let stalls = common.into_iter().filter(|quiet| quiet.stall_ns() > threshold_ns);
    stalls.map(|quiet| (quiet.stall_from_ns(), quiet.to_ns)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_kind_with_their_first_offsets() {
        let mut log = ErrorLog::new();
        (0..20).for_each(|offset| log.note(ErrorCode::Errno(libc::EIO), offset));
        log.note(ErrorCode::Short, 99);
        let mut errors = Vec::new();
        log.add_to(&mut errors);
        log.add_to(&mut errors);
        assert_eq!(errors[0].kind, "EIO");
        assert_eq!(errors[0].count, 40);
        assert_eq!(errors[0].first_offsets, (0..8).collect::<Vec<u64>>());
        assert_eq!((errors[1].kind.as_str(), &errors[1].first_offsets[..]), ("short", &[99, 99][..]));
    }

    #[test]
    fn more_kinds_than_the_log_holds_are_counted_as_other() {
        let mut log = ErrorLog::new();
        (1..=20).for_each(|number| log.note(ErrorCode::Errno(number), 0));
        let mut errors = Vec::new();
        log.add_to(&mut errors);
        assert_eq!(errors.iter().map(|error| error.count).sum::<u64>(), 20);
        assert_eq!(errors.last().map(|error| (error.kind.as_str(), error.count)), Some(("other", 4)));
    }

    /// A time without completion with I/O in flight from `busy` on.
    fn quiet(from_ns: u64, busy_from_ns: u64, to_ns: u64) -> Quiet {
        Quiet { from_ns, busy_from_ns, to_ns }
    }

    #[test]
    fn a_disk_stalls_while_all_its_lanes_do() {
        let lanes: [&[Quiet]; 2] = [&[quiet(0, 0, 10), quiet(20, 20, 30)], &[quiet(5, 0, 25)]];
        assert_eq!(common_stalls(&lanes, 4), [(5, 10), (20, 25)]);
        assert_eq!(common_stalls(&lanes[..1], 4), [(0, 10), (20, 30)]);
        assert_eq!(common_stalls(&[], 4), []);
    }

    #[test]
    fn what_all_lanes_share_is_a_stall_only_beyond_the_threshold() {
        let lanes: [&[Quiet]; 2] = [&[quiet(0, 0, 10), quiet(20, 20, 30)], &[quiet(5, 0, 26)]];
        assert_eq!(common_stalls(&lanes, 5), [(20, 26)]);
    }

    #[test]
    fn a_lane_without_io_does_not_end_the_stall_of_another() {
        let idle = quiet(0, 100, 100);
        assert_eq!(common_stalls(&[&[quiet(10, 10, 60)], &[idle]], 5), [(10, 60)]);
        assert_eq!(common_stalls(&[&[quiet(10, 30, 60)], &[idle]], 5), [(30, 60)], "before, no lane had I/O");
        assert_eq!(common_stalls(&[&[idle], &[idle]], 5), []);
        assert_eq!(
            common_stalls(&[&[quiet(10, 10, 60)], &[quiet(0, 20, 40), quiet(40, 90, 90)]], 5),
            [(10, 40), (40, 60)]
        );
    }
}
