//! A ring, its registrations and its buffers: the one place that talks to io_uring.
//!
//! What makes it sound: a buffer is the kernel's from [`Ring::push`] until its completion is reaped, and cannot be borrowed
//! meanwhile; a ring that is dropped with I/O in flight leaks itself and its arena, because the kernel may still write there.

#![expect(unsafe_code, reason = "io_uring takes addresses that must stay valid until the completion")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, opcode, squeue};

use crate::arena::Arena;

/// What a ring is built for.
#[derive(Debug, Clone)]
pub(crate) struct RingSpec<'a> {
    /// Requests in flight at most.
    pub(crate) slots: u32,
    /// Buffers and bytes of each; a multiple of 4 KiB keeps them page-aligned.
    pub(crate) buffers: u32,
    pub(crate) buffer_bytes: usize,
    /// Files, addressed by index.
    pub(crate) files: &'a [RawFd],
    /// First rung of [`LADDER`] tried.
    pub(crate) first_rung: u32,
    pub(crate) register_buffers: bool,
    /// CPUs that the kernel's worker threads may use, where the engine thread itself is pinned.
    pub(crate) io_wq_cpus: Option<&'a [usize]>,
}

/// What the kernel granted and refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) granted: Vec<String>,
    pub(crate) refused: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Read,
    Write,
    /// fdatasync.
    FlushData,
    /// fsync.
    Flush,
    Nop,
}

/// Where a request's bytes are on the disk and in its buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) buffer: u32,
    /// First byte within the buffer.
    pub(crate) skip: u32,
    pub(crate) length: u32,
}

/// A request that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) slot: u32,
    /// Bytes moved, or the negative error number.
    pub(crate) result: i32,
}

/// Marks a slot without a request.
const FREE: u32 = u32::MAX;

/// Marks a slot whose request moves no bytes.
const NO_BUFFER: u32 = u32::MAX - 1;

/// User data of a cancellation, which has no slot.
const CANCEL: u64 = u64::MAX;

pub(crate) struct Ring {
    /// The queues borrow from the leaked `owner`; they are forgotten before it is freed.
    submitter: ManuallyDrop<Submitter<'static>>,
    submission: ManuallyDrop<SubmissionQueue<'static>>,
    completion: ManuallyDrop<CompletionQueue<'static>>,
    owner: *mut IoUring,
    arena: ManuallyDrop<Arena>,
    /// File descriptors, or their registered numbers where `file_flags` says so.
    targets: Box<[Fd]>,
    file_flags: squeue::Flags,
    buffers_registered: bool,
    buffer_bytes: usize,
    buffers_a_piece: usize,
    /// The buffer that each slot's request uses, `NO_BUFFER` where it uses none, `FREE` where the slot has no request.
    slots: Box<[u32]>,
    busy_buffers: Box<[bool]>,
    in_flight: u32,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ring")
            .field("in_flight", &self.in_flight)
            .field("arena", &self.arena)
            .finish_non_exhaustive()
    }
}

type SetUp = fn(&mut io_uring::Builder<squeue::Entry, io_uring::cqueue::Entry>);

/// Set-up flags from best to plain. SINGLE_ISSUER is a condition of DEFER_TASKRUN; NO_SQARRAY needs kernel 6.6.
const LADDER: [(&[&str], SetUp); RUNGS as usize] = [
    (&["SINGLE_ISSUER", "DEFER_TASKRUN", "COOP_TASKRUN", "NO_SQARRAY"], |builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_no_sqarray();
    }),
    (&["SINGLE_ISSUER", "DEFER_TASKRUN", "COOP_TASKRUN"], |builder| {
        builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun();
    }),
    (&["SINGLE_ISSUER", "COOP_TASKRUN"], |builder| {
        builder.setup_single_issuer().setup_coop_taskrun();
    }),
    (&["COOP_TASKRUN"], |builder| {
        builder.setup_coop_taskrun();
    }),
    (&[], |_| {}),
];

/// Rungs of the set-up ladder.
pub(crate) const RUNGS: u32 = 5;

impl Ring {
    /// Builds and registers a ring on the thread that will use it.
    ///
    /// # Errors
    /// The kernel's, where there is no io_uring at all, no timeout on its waits (before 5.11), or no memory.
    pub(crate) fn build(spec: &RingSpec<'_>) -> io::Result<(Self, Grants)> {
        let mut grants = Grants::default();
        let ring = climb(spec, &mut grants).map_err(name_the_limit)?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "io_uring of this kernel has no wait with timeout (needs 5.11)",
            ));
        }
        let arena = Arena::new(spec.buffers as usize * spec.buffer_bytes)?;
        let owner = Box::into_raw(Box::new(ring));
        // SAFETY: `owner` was just leaked from a box, is not null, and nothing else refers to it; it is freed in `drop` only.
        let (submitter, submission, completion) = unsafe { &mut *owner }.split();
        let mut ring = Self {
            submitter: ManuallyDrop::new(submitter),
            submission: ManuallyDrop::new(submission),
            completion: ManuallyDrop::new(completion),
            owner,
            arena: ManuallyDrop::new(arena),
            targets: spec.files.iter().map(|&file| Fd(file)).collect(),
            file_flags: squeue::Flags::empty(),
            buffers_registered: false,
            buffer_bytes: spec.buffer_bytes,
            buffers_a_piece: ((1 << 30) / spec.buffer_bytes).max(1),
            slots: vec![FREE; spec.slots as usize].into(),
            busy_buffers: vec![false; spec.buffers as usize].into(),
            in_flight: 0,
        };
        ring.register(spec, &mut grants);
        Ok((ring, grants))
    }

    fn register(&mut self, spec: &RingSpec<'_>, grants: &mut Grants) {
        if grants.note("registered files", self.submitter.register_files(spec.files)) {
            self.targets = (0..).take(spec.files.len()).map(Fd).collect();
            self.file_flags = squeue::Flags::FIXED_FILE;
        }
        grants.note("registered ring", self.submitter.register_ring_fd());
        if let Some(cpus) = spec.io_wq_cpus {
            grants.note("io-wq affinity", self.submitter.register_iowq_aff(&cpu_set(cpus)));
        }
        if !spec.register_buffers || spec.buffers == 0 {
            return;
        }
        let registered = self.register_arena();
        if let Err(error) = &registered {
            grants.warnings.push(format!(
                "buffers are not registered with the kernel ({error}; raise the locked-memory limit): each I/O costs more CPU"
            ));
        }
        self.buffers_registered = grants.note("registered buffers", registered);
    }

    /// Registers the arena in pieces of whole buffers, because the kernel takes at most 1 GiB a piece.
    fn register_arena(&mut self) -> io::Result<()> {
        let piece = self.buffers_a_piece * self.buffer_bytes;
        let pieces: Vec<libc::iovec> = (0..self.arena.length())
            .step_by(piece)
            .map(|start| libc::iovec {
                iov_base: self.arena.address(start).cast(),
                iov_len: piece.min(self.arena.length() - start),
            })
            .collect();
        // SAFETY: the pieces are inside the arena, which lives until the ring is gone (or for ever, if I/O is in flight then).
        unsafe { self.submitter.register_buffers(&pieces) }
    }

    /// Requests that the kernel has.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes of all buffers.
    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena.length()
    }

    /// A buffer that no request uses.
    #[inline]
    pub(crate) fn buffer_mut(&mut self, buffer: u32) -> &mut [u8] {
        assert!(!self.busy_buffers[buffer as usize], "buffer {buffer} is in flight");
        // SAFETY: no request that uses this buffer is in flight (asserted), and buffers do not overlap.
        unsafe { self.arena.slice_mut(buffer as usize * self.buffer_bytes, self.buffer_bytes) }
    }

    /// Queues a request; the next [`Ring::enter`] submits it. The slot and the buffer must be free.
    #[inline]
    pub(crate) fn push(&mut self, slot: u32, request: Request, transfer: &Transfer) {
        assert!(self.slots[slot as usize] == FREE, "slot {slot} is in flight");
        let moves = matches!(request, Request::Read | Request::Write);
        self.slots[slot as usize] = if moves { self.claim_buffer(transfer) } else { NO_BUFFER };
        let entry = self.entry(request, transfer).user_data(u64::from(slot));
        // SAFETY: the buffer is inside the arena, free until now and marked busy until the completion; the arena outlives the
        // request, because a ring with requests in flight is never freed. The file stays open: its owner outlives the ring.
        let pushed = unsafe { self.submission.push(&entry) };
        assert!(pushed.is_ok(), "the submission queue has an entry for each slot");
        self.in_flight += 1;
    }

    #[inline]
    fn claim_buffer(&mut self, transfer: &Transfer) -> u32 {
        let end = transfer.skip as usize + transfer.length as usize;
        assert!(end <= self.buffer_bytes, "{end} bytes in a buffer of {}", self.buffer_bytes);
        assert!(!self.busy_buffers[transfer.buffer as usize], "buffer {} is in flight", transfer.buffer);
        self.busy_buffers[transfer.buffer as usize] = true;
        transfer.buffer
    }

    #[inline]
    fn entry(&self, request: Request, transfer: &Transfer) -> squeue::Entry {
        match request {
            Request::Nop => opcode::Nop::new().build(),
            Request::Flush => self.flush(transfer.file, FsyncFlags::empty()),
            Request::FlushData => self.flush(transfer.file, FsyncFlags::DATASYNC),
            Request::Read | Request::Write => self.transfer(request, transfer).flags(self.file_flags),
        }
    }

    #[inline]
    fn transfer(&self, request: Request, transfer: &Transfer) -> squeue::Entry {
        let file = self.targets[transfer.file as usize];
        let address = self.arena.address(transfer.buffer as usize * self.buffer_bytes + transfer.skip as usize);
        let (length, offset) = (transfer.length, transfer.offset);
        #[expect(clippy::cast_possible_truncation, reason = "an arena has a few pieces of 1 GiB")]
        let piece = (transfer.buffer as usize / self.buffers_a_piece) as u16;
        match (request, self.buffers_registered) {
            (Request::Read, true) => opcode::ReadFixed::new(file, address, length, piece).offset(offset).build(),
            (Request::Read, false) => opcode::Read::new(file, address, length).offset(offset).build(),
            (_, true) => opcode::WriteFixed::new(file, address, length, piece).offset(offset).build(),
            (_, false) => opcode::Write::new(file, address, length).offset(offset).build(),
        }
    }

    fn flush(&self, file: u32, flags: FsyncFlags) -> squeue::Entry {
        opcode::Fsync::new(self.targets[file as usize]).flags(flags).build().flags(self.file_flags)
    }

    /// Submits what was pushed, and waits until a completion is there or `wait_ns` are over; 0 only looks.
    ///
    /// # Errors
    /// The kernel's, but not a time that ran out, a signal, or a shortage that the next call may find gone.
    #[inline]
    pub(crate) fn enter(&mut self, wait_ns: u64) -> io::Result<()> {
        self.submission.sync();
        let to_submit = self.submission.len();
        let time = Timespec::new().sec(wait_ns / 1_000_000_000).nsec(subsecond(wait_ns));
        let args = SubmitArgs::new().timespec(&time);
        let want = u32::from(wait_ns > 0);
        #[expect(clippy::cast_possible_truncation, reason = "the queue has at most 32,768 entries")]
        let to_submit = to_submit as u32;
        // SAFETY: the arguments live across the call and are of the type that EXT_ARG announces.
        let entered = unsafe { self.submitter.enter(to_submit, want, ENTER_FLAGS, Some(&args)) };
        let outcome = match entered {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        };
        self.submission.sync();
        self.completion.sync();
        outcome
    }

    /// How many completions to handle before their slots are issued again: `limit`, but all where the device has nothing left to
    /// do. Then it idles anyway, and one system call for all costs least (a page cache answers within the call).
    #[inline]
    pub(crate) fn reissue_batch(&self, limit: u32) -> usize {
        let ready = self.completion.len();
        if ready >= self.in_flight as usize { ready } else { limit as usize }
    }

    /// Takes up to `limit` completions that are there, in order; `into` must have room. The kernel learns at the next enter.
    #[inline]
    pub(crate) fn reap(&mut self, limit: usize, into: &mut Vec<Completion>) {
        while into.len() < limit {
            let Some(entry) = self.completion.next() else { break };
            if entry.user_data() == CANCEL {
                continue;
            }
            #[expect(clippy::cast_possible_truncation, reason = "user data are slot numbers")]
            let slot = entry.user_data() as u32;
            self.release(slot);
            into.push(Completion { slot, result: entry.result() });
        }
        // Published before the next enter, or it would count these completions as new and return at once.
        self.completion.sync();
    }

    #[inline]
    fn release(&mut self, slot: u32) {
        let buffer = std::mem::replace(&mut self.slots[slot as usize], FREE);
        assert!(buffer != FREE, "slot {slot} completed without a request");
        if buffer != NO_BUFFER {
            self.busy_buffers[buffer as usize] = false;
        }
        self.in_flight -= 1;
    }

    /// Asks the kernel to cancel all requests in flight; they complete with ECANCELED where it can.
    pub(crate) fn cancel_all(&mut self) -> io::Result<()> {
        for slot in (0_u64..).zip(&self.slots).filter_map(|(slot, &buffer)| (buffer != FREE).then_some(slot)) {
            let entry = opcode::AsyncCancel::new(slot).build().user_data(CANCEL);
            // SAFETY: a cancellation has no memory of its own.
            if unsafe { self.submission.push(&entry) }.is_err() {
                break;
            }
        }
        self.enter(0)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            return;
        }
        // Released here and now: the kernel drops a closed ring's references later, and the next job's exclusive open would fail.
        if self.file_flags.contains(squeue::Flags::FIXED_FILE) {
            let _ = self.submitter.unregister_files();
        }
        if self.buffers_registered {
            let _ = self.submitter.unregister_buffers();
        }
        // SAFETY: `owner` came from a box, and the queues that borrow from it are never used again.
        drop(unsafe { Box::from_raw(self.owner) });
        // SAFETY: the arena is dropped once, here, and no request uses it.
        unsafe { ManuallyDrop::drop(&mut self.arena) };
    }
}

/// IORING_ENTER_GETEVENTS and IORING_ENTER_EXT_ARG.
const ENTER_FLAGS: u32 = 1 | 8;

fn subsecond(nanoseconds: u64) -> u32 {
    u32::try_from(nanoseconds % 1_000_000_000).unwrap_or(0)
}

/// Tries the ladder's rungs from the best one allowed.
fn climb(spec: &RingSpec<'_>, grants: &mut Grants) -> io::Result<IoUring> {
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for (flags, set_up) in LADDER.iter().skip(spec.first_rung as usize) {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(spec.slots.next_power_of_two() * 2).dontfork();
        set_up(&mut builder);
        match builder.build(spec.slots.next_power_of_two()) {
            Ok(ring) => {
                grants.granted.extend(flags.iter().map(|&flag| flag.to_owned()));
                return Ok(ring);
            }
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                grants.refused.push(format!("{}: {error}", flags.join("|")));
                last = error;
            }
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Newer kernels count rings against the locked-memory limit, and say only that there is no memory where it does not suffice.
fn name_the_limit(error: io::Error) -> io::Error {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
    match limit.filter(|_| error.raw_os_error() == Some(libc::ENOMEM)) {
        Some(bytes) => io::Error::new(
            io::ErrorKind::OutOfMemory,
            format!(
                "{error}; the locked-memory limit is {bytes} bytes, which io_uring's queues count against: raise it \
                 (ulimit -l unlimited, or LimitMEMLOCK= of the service)"
            ),
        ),
        None => error,
    }
}

impl Grants {
    fn note(&mut self, what: &str, result: io::Result<()>) -> bool {
        match result {
            Ok(()) => {
                self.granted.push(what.to_owned());
                true
            }
            Err(error) => {
                self.refused.push(format!("{what}: {error}"));
                false
            }
        }
    }
}

fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a CPU set is an array of integers, for which all zeros is a value: the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE.unsigned_abs() as usize) {
        // SAFETY: the CPU is below the set's size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}
