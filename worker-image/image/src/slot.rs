//! The bootstrap slot: a fixed number of bytes in the ISO that begin with a marker.
//!
//! The ISO's second initrd is an uncompressed cpio archive with one file, [`FILE_NAME`], of [`BYTES`] bytes: a marker line, the
//! JSON of a [`Bootstrap`] on the second, and blanks to the end. It is found by its marker and overwritten in place, so that
//! personalising needs no tool and leaves the archive as it was.

use crate::{Bootstrap, BootstrapError, PersonaliseError};

/// Bytes of the slot. Room for the most URLs and address ranges; GRUB reads it in one go.
pub const BYTES: usize = 16 << 10;
/// Name of the slot's file in the root of the worker's file system.
pub const FILE_NAME: &str = "bootstrap";

/// Two halves, joined at run time: no program in the image may contain the marker itself.
const MARKER_HALVES: [&str; 2] = ["FOURCORNERS-WORKER-", "BOOTSTRAP-SLOT-1\n"];

/// The line that the slot begins with, and that occurs nowhere else in the ISO.
#[must_use]
pub fn marker() -> Vec<u8> {
    MARKER_HALVES.concat().into_bytes()
}

/// A slot that nobody has written to.
#[must_use]
pub fn empty() -> Vec<u8> {
    let mut bytes = marker();
    bytes.resize(BYTES, b' ');
    bytes
}

/// The slot's bytes for a fleet.
///
/// # Errors
/// [`PersonaliseError::Bootstrap`] where a field is wrong, [`PersonaliseError::TooLong`] where it does not fit.
pub fn encode(bootstrap: &Bootstrap) -> Result<Vec<u8>, PersonaliseError> {
    bootstrap.check()?;
    let mut bytes = marker();
    serde_json::to_writer(&mut bytes, bootstrap).map_err(|error| BootstrapError {
        field: "(all)".into(),
        found: error.to_string(),
        allowed: "what JSON can hold".into(),
    })?;
    if bytes.len() > BYTES {
        return Err(PersonaliseError::TooLong { over: bytes.len() - BYTES, room: BYTES - marker().len() });
    }
    bytes.resize(BYTES, b' ');
    Ok(bytes)
}

/// Why a worker cannot use its slot.
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// The slot does not begin with the marker.
    #[error("the bootstrap slot is damaged: it does not begin with its marker")]
    NoMarker,
    /// Not JSON, or fields missing.
    #[error("the bootstrap slot is damaged: {0}")]
    Json(#[from] serde_json::Error),
    /// A field is wrong.
    #[error(transparent)]
    Field(#[from] BootstrapError),
}

/// Reads a slot; none where nobody has written to it.
///
/// # Errors
/// The slot was damaged, or its bootstrap data is of no use.
pub fn decode(bytes: &[u8]) -> Result<Option<Bootstrap>, SlotError> {
    let json = bytes.strip_prefix(marker().as_slice()).ok_or(SlotError::NoMarker)?.trim_ascii();
    if json.is_empty() {
        return Ok(None);
    }
    let bootstrap: Bootstrap = serde_json::from_slice(json)?;
    bootstrap.check()?;
    Ok(Some(bootstrap))
}
