use serde::Serialize;

use crate::{FIRST_MESSAGE_PADDING, MAX_DISKS, MAX_HELLO_BYTES, MAX_MESSAGE_BYTES, OrchestratorMessage, WorkerMessage};

/// A message that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Larger than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes; at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLarge(usize),
    /// Not a message of this protocol version.
    #[error("not a message of this protocol: {0}")]
    Malformed(#[from] rmp_serde::decode::Error),
    /// Well formed, but beyond a limit of the protocol.
    #[error("{what}: {found}; at most {limit} are allowed")]
    BeyondLimit {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many may be.
        limit: usize,
    },
}

/// A message that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The encoder's own error.
    #[error("cannot encode the message: {0}")]
    Encoder(#[from] rmp_serde::encode::Error),
    /// Larger than the peer would accept.
    #[error("a message of {0} bytes; at most {MAX_MESSAGE_BYTES} are allowed")]
    TooLarge(usize),
}

/// Encodes either side's message with named fields.
///
/// # Errors
/// [`EncodeError`] where the message is larger than [`MAX_MESSAGE_BYTES`].
pub fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let bytes = rmp_serde::to_vec_named(message)?;
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(EncodeError::TooLarge(bytes.len()));
    }
    Ok(bytes)
}

/// Encodes the first message of a session, with [`FIRST_MESSAGE_PADDING`] more bytes in a field that every reader ignores: a path that
/// loses large packets loses this one, and shows before any work is given out, not in the middle of a sample.
///
/// # Errors
/// As [`encode`].
pub fn encode_first<M: Serialize>(message: &M) -> Result<Vec<u8>, EncodeError> {
    #[derive(Serialize)]
    struct Padded<'a, M> {
        #[serde(flatten)]
        message: &'a M,
        #[serde(with = "serde_bytes")]
        padding: &'a [u8],
    }
    encode(&Padded { message, padding: &[0; FIRST_MESSAGE_PADDING] })
}

/// Reads what a worker sent.
///
/// # Errors
/// [`DecodeError`] for anything that is not a message within the protocol's limits.
pub fn decode_from_worker(bytes: &[u8]) -> Result<WorkerMessage, DecodeError> {
    let message: WorkerMessage = decode(bytes)?;
    let disks = match &message {
        WorkerMessage::Hello(hello) => hello.disks.len(),
        WorkerMessage::Sample(sample) => sample.disks.len(),
        WorkerMessage::Finished(finished) => finished.disks.len(),
        _ => 0,
    };
    within("disks", disks, MAX_DISKS)?;
    Ok(message)
}

/// The version that a Hello announces, also where the rest of it is of a version that this program does not know.
///
/// # Errors
/// [`DecodeError`] where it is no message with a `protocol_version`, or larger than [`MAX_HELLO_BYTES`].
pub fn hello_version(bytes: &[u8]) -> Result<u32, DecodeError> {
    #[derive(serde::Deserialize)]
    struct Versioned {
        protocol_version: u32,
    }
    if bytes.len() > MAX_HELLO_BYTES {
        return Err(DecodeError::BeyondLimit { what: "bytes in a Hello", found: bytes.len(), limit: MAX_HELLO_BYTES });
    }
    Ok(decode::<Versioned>(bytes)?.protocol_version)
}

/// Reads what the orchestrator sent.
///
/// # Errors
/// [`DecodeError`] for anything that is not a message within the protocol's limits.
pub fn decode_from_orchestrator(bytes: &[u8]) -> Result<OrchestratorMessage, DecodeError> {
    let message: OrchestratorMessage = decode(bytes)?;
    if let OrchestratorMessage::Prepare(prepare) = &message {
        within("disks", prepare.disks.len(), MAX_DISKS)?;
    }
    Ok(message)
}

fn decode<M: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<M, DecodeError> {
    if bytes.len() > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge(bytes.len()));
    }
    Ok(rmp_serde::from_slice(bytes)?)
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), DecodeError> {
    if found > limit {
        return Err(DecodeError::BeyondLimit { what, found, limit });
    }
    Ok(())
}
