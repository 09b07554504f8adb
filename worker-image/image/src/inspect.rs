//! What an image is and says, personal or not.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::build::hex;
use crate::files::open_image;
use crate::personalise::{CHUNK_BYTES, find_slot, io_error};
use crate::slot::{self, SlotError};
use crate::{Bootstrap, PersonaliseError};

/// What was found in an image.
#[derive(Debug)]
pub struct Inspection {
    /// Its size, bytes.
    pub size_bytes: u64,
    /// SHA-256 of the file, in hexadecimal digits.
    pub sha256: String,
    /// SHA-256 with an empty slot, in hexadecimal digits: the same for an image and everything that was made from it by personalising.
    pub base_sha256: String,
    /// What its slot says; none where nobody has written to it.
    pub bootstrap: Result<Option<Bootstrap>, SlotError>,
}

/// Whether a file is a worker image: whole, with one slot. Reads it whole.
///
/// # Errors
/// Why it is none.
pub fn recognise(iso: &Path) -> Result<(), PersonaliseError> {
    let (mut file, bytes) = open_image(iso)?;
    find_slot(&mut file, iso, bytes).map(drop)
}

/// Reads an image whole.
///
/// # Errors
/// It cannot be read, or is no worker image.
pub fn inspect(iso: &Path) -> Result<Inspection, PersonaliseError> {
    let (mut file, size_bytes) = open_image(iso)?;
    let at = find_slot(&mut file, iso, size_bytes)?;
    digests(&mut file, at, size_bytes).map_err(io_error(iso, "cannot read it"))
}

fn digests(file: &mut File, slot_at: u64, size_bytes: u64) -> io::Result<Inspection> {
    let (mut whole, mut base) = (Sha256::new(), Sha256::new());
    let mut slot_found = vec![0; slot::BYTES];
    file.seek(SeekFrom::Start(0))?;
    copy(&mut file.by_ref().take(slot_at), &mut [&mut whole, &mut base])?;
    file.read_exact(&mut slot_found)?;
    whole.update(&slot_found);
    base.update(slot::empty());
    copy(file, &mut [&mut whole, &mut base])?;
    let bootstrap = slot::decode(&slot_found);
    Ok(Inspection { size_bytes, sha256: hex(whole), base_sha256: hex(base), bootstrap })
}

/// Feeds all that is left to the digests.
fn copy(source: &mut impl Read, digests: &mut [&mut Sha256]) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        digests.iter_mut().for_each(|digest| digest.update(&buffer[..read]));
    }
}
