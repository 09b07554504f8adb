//! The files that images are: read only where they are regular and whole, replaced only where a regular file or nothing is.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::PersonaliseError;
use crate::personalise::{MAX_ISO_BYTES, io_error};

/// Where an ISO 9660 file system has its Primary Volume Descriptor, and its length (ECMA-119, 8.4), bytes.
const DESCRIPTOR_AT: u64 = 16 * 2048;
const DESCRIPTOR_BYTES: usize = 2048;

/// Opens an image for reading, and tells its size, bytes.
pub(crate) fn open_image(iso: &Path) -> Result<(File, u64), PersonaliseError> {
    let opening = || io_error(iso, "cannot open the worker image");
    let metadata = fs::metadata(iso).map_err(opening())?;
    // Opening a pipe would wait for its writer, and a device has no end.
    if !metadata.is_file() {
        return Err(PersonaliseError::NoFile { iso: iso.into() });
    }
    let bytes = metadata.len();
    if bytes > MAX_ISO_BYTES {
        return Err(PersonaliseError::TooLarge { iso: iso.into(), bytes });
    }
    let file = File::open(iso).map_err(opening())?;
    match volume_bytes(&file, bytes).map_err(io_error(iso, "cannot read it"))? {
        Some(whole) if whole > bytes => Err(PersonaliseError::Short { iso: iso.into(), bytes, whole }),
        _ => Ok((file, bytes)),
    }
}

/// Bytes of the file system that a file of `bytes` begins with; none where it is no ISO 9660.
fn volume_bytes(file: &File, bytes: u64) -> io::Result<Option<u64>> {
    let mut descriptor = [0; DESCRIPTOR_BYTES];
    if bytes < DESCRIPTOR_AT + descriptor.len() as u64 {
        return Ok(None);
    }
    file.read_exact_at(&mut descriptor, DESCRIPTOR_AT)?;
    let number = |at: usize, length: usize| {
        descriptor[at..at + length].iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
    };
    let is_one = descriptor[..6] == *b"\x01CD001";
    Ok(is_one.then(|| number(80, 4) * number(128, 2)))
}

/// Where a file is written that replaces `path` in one step: where a link leads. What is there and is no regular file stays.
pub(crate) fn replaceable(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Ok(found) if found.is_file() => Ok(found),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else than a regular file is there")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_owned()),
        Err(error) => Err(error),
    }
}
