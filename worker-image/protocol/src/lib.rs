//! The messages between orchestrator and worker, versioned. No I/O.
//!
//! One WebSocket over TLS a worker at [`SESSION_PATH`]; each binary frame is one message in MessagePack with named fields.
//! The worker speaks first ([`Hello`]); the orchestrator answers [`Welcome`] or [`Reject`]. Unknown *fields* are
//! ignored, so that a newer peer may add some; an unknown *message* is a decode error, so a new kind of message needs
//! a new [`PROTOCOL_VERSION`].
//!
//! All times named `*_ns` are nanoseconds. `worker_ns` counts on the worker's monotonic clock from the start of its
//! process; `orchestrator_ns` on the orchestrator's monotonic clock from the start of its process. Neither is ever compared with
//! the other except through a clock offset that probes measured.

mod codec;
mod fingerprint;
mod matching;
mod messages;

pub use codec::{
    DecodeError, EncodeError, decode_from_orchestrator, decode_from_worker, encode, encode_first, hello_version,
};
pub use fingerprint::{Fingerprint, FingerprintError};
pub use matching::{NoDisk, find_disk};
pub use messages::*;

/// The version in the first message of each side. Peers of different versions refuse each other by name.
pub const PROTOCOL_VERSION: u32 = 1;

/// Path of the worker's WebSocket on the orchestrator.
pub const SESSION_PATH: &str = "/api/worker/v1/session";

/// The largest frame either side sends or accepts, bytes. A [`Finished`] of 31 disks × 2 operations × one deflated
/// histogram (30 KiB at the very worst) fits twice over; beyond it the session is closed with an error.
pub const MAX_MESSAGE_BYTES: usize = 4 << 20;

/// The most disks one worker may report or be assigned.
pub const MAX_DISKS: usize = 256;

/// Samples that a worker keeps while nobody acknowledges them: more than a day at one a second. Beyond it the oldest are dropped
/// and the case is incomplete (a gap is shown as a gap).
pub const MAX_UNACKNOWLEDGED_SAMPLES: usize = 100_000;

/// Samples that a worker sends ahead of their acknowledgement; the rest wait on the worker. It bounds what a slow store makes the
/// orchestrator hold in memory.
pub const MAX_SAMPLES_IN_FLIGHT: usize = 64;

/// What the first message of each side is longer by, bytes: it fills a packet of the largest MTU in use (jumbo frames of 9216).
pub const FIRST_MESSAGE_PADDING: usize = 9216;

/// The largest [`Hello`], bytes: [`MAX_DISKS`] disks with long paths fit. Until a peer has shown its token, this is the limit.
pub const MAX_HELLO_BYTES: usize = 256 << 10;
