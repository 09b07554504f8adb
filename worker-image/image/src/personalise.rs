//! Writing a fleet's bootstrap data into a copy of the ISO.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::files::{open_image, replaceable};
use crate::{Bootstrap, BootstrapError, slot};

/// Largest file taken for a worker ISO; ours are below 45 MB.
pub const MAX_ISO_BYTES: u64 = 512 << 20;
/// Bytes copied and searched at a time.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;

/// Why an ISO was not personalised.
#[derive(Debug, thiserror::Error)]
pub enum PersonaliseError {
    /// A field is of no use to any worker.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// The JSON does not fit the slot.
    #[error(
        "the bootstrap data is {over} bytes too long for the image's slot of {room} bytes; use fewer or shorter orchestrator URLs, \
         fewer address ranges, or a shorter token"
    )]
    TooLong {
        /// Bytes too many.
        over: usize,
        /// Bytes that fit.
        room: usize,
    },
    /// Not a worker ISO.
    #[error("{iso}: no bootstrap slot: this is not a worker image")]
    NoSlot {
        /// The file.
        iso: PathBuf,
    },
    /// Not one of ours, or damaged.
    #[error(
        "{iso}: the marker of the bootstrap slot occurs {count} times where it must occur once; build the image again"
    )]
    ManySlots {
        /// The file.
        iso: PathBuf,
        /// Occurrences.
        count: usize,
    },
    /// The slot does not lie wholly inside the file.
    #[error("{iso}: it ends inside its bootstrap slot; the file is cut off")]
    CutOff {
        /// The file.
        iso: PathBuf,
    },
    /// Shorter than its own file system.
    #[error("{iso}: {bytes} bytes of {whole}: the file is cut off; copy it again")]
    Short {
        /// The file.
        iso: PathBuf,
        /// Its size.
        bytes: u64,
        /// What its file system says that it has.
        whole: u64,
    },
    /// A directory, a device, a pipe.
    #[error("{iso}: this is no regular file, so no worker image")]
    NoFile {
        /// What was named.
        iso: PathBuf,
    },
    /// Larger than any worker ISO.
    #[error("{iso}: {bytes} bytes; a worker image has at most {MAX_ISO_BYTES}")]
    TooLarge {
        /// The file.
        iso: PathBuf,
        /// Its size.
        bytes: u64,
    },
    /// The file system refused.
    #[error("{path}: {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        what: &'static str,
        /// The system's own words.
        source: io::Error,
    },
}

pub(crate) fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> PersonaliseError {
    let path = path.to_owned();
    move |source| PersonaliseError::Io { path, what, source }
}

/// Copies `iso_in` to `iso_out` with the fleet's bootstrap data in its slot. A file that was at `iso_out` is replaced in one step, and
/// only when the copy is whole, and where it is a link, the file that this leads to; it is readable by its owner alone, since it holds
/// the enrolment token.
///
/// # Errors
/// See [`PersonaliseError`]; then `iso_out` is as it was.
pub fn personalise(iso_in: &Path, iso_out: &Path, bootstrap: &Bootstrap) -> Result<(), PersonaliseError> {
    let iso_out = &replaceable(iso_out).map_err(io_error(iso_out, "cannot replace it"))?;
    let dir = iso_out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut copy =
        tempfile::NamedTempFile::new_in(dir).map_err(io_error(iso_out, "cannot create the personal image"))?;
    personalise_into(iso_in, copy.as_file_mut(), bootstrap)?;
    copy.persist(iso_out).map_err(|error| io_error(iso_out, "cannot replace it")(error.error))?;
    Ok(())
}

/// As [`personalise`], into an open file that the caller made and keeps: it is written from its start, and cut to the image's length.
///
/// # Errors
/// See [`PersonaliseError`]; the file's content is then undefined.
pub fn personalise_into(iso_in: &Path, out: &mut File, bootstrap: &Bootstrap) -> Result<(), PersonaliseError> {
    let slot = slot::encode(bootstrap)?;
    let (mut source, bytes) = open_image(iso_in)?;
    let at = find_slot(&mut source, iso_in, bytes)?;
    let failed = "cannot copy the worker image";
    source.seek(SeekFrom::Start(0)).map_err(io_error(iso_in, failed))?;
    out.seek(SeekFrom::Start(0)).map_err(io_error(iso_in, failed))?;
    let copied = io::copy(&mut source, out).map_err(io_error(iso_in, failed))?;
    let written = out
        .set_len(copied)
        .and_then(|()| out.seek(SeekFrom::Start(at)))
        .and_then(|_| out.write_all(&slot))
        .and_then(|()| out.sync_all());
    written.map_err(io_error(iso_in, "cannot write its personal copy"))
}

/// Offset of the slot, which must be there exactly once and whole.
pub(crate) fn find_slot(iso: &mut (impl Read + Seek), name: &Path, bytes: u64) -> Result<u64, PersonaliseError> {
    let found = find_all(iso, &slot::marker()).map_err(io_error(name, "cannot read it"))?;
    match found.as_slice() {
        [] => Err(PersonaliseError::NoSlot { iso: name.into() }),
        [at] if at.saturating_add(slot::BYTES as u64) > bytes => Err(PersonaliseError::CutOff { iso: name.into() }),
        [at] => Ok(*at),
        many => Err(PersonaliseError::ManySlots { iso: name.into(), count: many.len() }),
    }
}

/// Offsets of all occurrences of `wanted`, read chunk by chunk with as much kept as an occurrence may reach over.
fn find_all(source: &mut (impl Read + Seek), wanted: &[u8]) -> io::Result<Vec<u64>> {
    source.seek(SeekFrom::Start(0))?;
    let mut found = Vec::new();
    let mut window: Vec<u8> = Vec::with_capacity(CHUNK_BYTES + wanted.len());
    let mut window_at = 0;
    loop {
        let fresh = source.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut window)?;
        if fresh == 0 {
            return Ok(found);
        }
        let hits = window.windows(wanted.len()).enumerate().filter(|(_, piece)| *piece == wanted);
        found.extend(hits.map(|(at, _)| window_at + at as u64));
        let keep = window.len().min(wanted.len() - 1);
        window_at += (window.len() - keep) as u64;
        window.drain(..window.len() - keep);
    }
}
