//! HdrHistogram V2 deflate blobs, read with limits: a 37-byte blob can ask for 50 MB, and hostile counts overflow the library's sums.

use std::io::Read;

use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};

use crate::{CELLS, HIGHEST_NS, LOWEST_NS, SIGNIFICANT_FIGURES};

/// The largest deflated blob that is read, bytes: all cells filled with random counts make less.
pub const MAX_BLOB_BYTES: usize = 256 << 10;

/// What a blob of our bounds inflates to at the very most, bytes: the header and 9 bytes a cell.
const MAX_INFLATED_BYTES: usize = V2_HEADER_BYTES + CELLS * 9;
/// Cookie, payload length, normalising offset, figures, lowest, highest, ratio.
const V2_HEADER_BYTES: usize = 40;
/// Cookie and length before the zlib stream.
const DEFLATE_HEADER_BYTES: usize = 8;

/// A blob that is not a histogram of ours.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// Longer than [`MAX_BLOB_BYTES`].
    #[error("a histogram blob of {0} bytes; at most {MAX_BLOB_BYTES} are allowed")]
    TooLong(usize),
    /// Not a V2 deflate blob.
    #[error("not an HdrHistogram V2 deflate blob: {0}")]
    Malformed(String),
    /// A histogram of other bounds; merging it would round its values again.
    #[error(
        "a histogram from {lowest} to {highest} ns with {figures} figures; \
         expected {LOWEST_NS} to {HIGHEST_NS} ns with {SIGNIFICANT_FIGURES}"
    )]
    OtherBounds {
        /// The blob's lowest discernible value.
        lowest: u64,
        /// The blob's highest value.
        highest: u64,
        /// The blob's significant figures.
        figures: u32,
    },
    /// Numbers beside the histogram that contradict it.
    #[error("the figures beside a histogram contradict it: {0}")]
    Inconsistent(String),
}

/// Writes the blob.
pub(crate) fn encode(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut bytes)
        .expect("writing to memory does not fail, and counts stay below 2^63");
    bytes
}

/// Reads a blob of this crate's bounds.
pub(crate) fn decode(blob: &[u8]) -> Result<Histogram<u64>, BlobError> {
    if blob.len() > MAX_BLOB_BYTES {
        return Err(BlobError::TooLong(blob.len()));
    }
    let inflated = inflate(blob)?;
    check_header(&inflated)?;
    check_counts(&inflated[V2_HEADER_BYTES..])?;
    Deserializer::new().deserialize(&mut inflated.as_slice()).map_err(|error| BlobError::Malformed(error.to_string()))
}

fn inflate(blob: &[u8]) -> Result<Vec<u8>, BlobError> {
    let deflated = blob.get(DEFLATE_HEADER_BYTES..).ok_or_else(|| BlobError::Malformed("too short".into()))?;
    let mut inflated = Vec::new();
    ZlibDecoder::new(deflated)
        .take(MAX_INFLATED_BYTES as u64 + 1)
        .read_to_end(&mut inflated)
        .map_err(|error| BlobError::Malformed(error.to_string()))?;
    if inflated.len() > MAX_INFLATED_BYTES {
        return Err(BlobError::Malformed(format!("it inflates to more than {MAX_INFLATED_BYTES} bytes")));
    }
    if inflated.len() < V2_HEADER_BYTES {
        return Err(BlobError::Malformed("too short".into()));
    }
    Ok(inflated)
}

fn check_header(inflated: &[u8]) -> Result<(), BlobError> {
    let u32_at = |at: usize| u32::from_be_bytes([inflated[at], inflated[at + 1], inflated[at + 2], inflated[at + 3]]);
    let u64_at = |at: usize| (u64::from(u32_at(at)) << 32) | u64::from(u32_at(at + 4));
    let payload = u32_at(4) as usize;
    if payload != inflated.len() - V2_HEADER_BYTES {
        return Err(BlobError::Malformed(format!("its payload length is {payload}")));
    }
    let (figures, lowest, highest) = (u32_at(12), u64_at(16), u64_at(24));
    if (lowest, highest, figures) != (LOWEST_NS, HIGHEST_NS, u32::from(SIGNIFICANT_FIGURES)) {
        return Err(BlobError::OtherBounds { lowest, highest, figures });
    }
    Ok(())
}

/// Walks the payload's zig-zag varints: runs of empty cells must stay inside the histogram, and the counts' sum inside 2^63.
fn check_counts(payload: &[u8]) -> Result<(), BlobError> {
    let (mut cells, mut total, mut at) = (0_u64, 0_u64, 0);
    while at < payload.len() {
        let (number, length) =
            zig_zag_varint(&payload[at..]).ok_or_else(|| BlobError::Malformed("it ends within a count".into()))?;
        at += length;
        if number < 0 {
            cells = cells.saturating_add(number.unsigned_abs());
        } else {
            cells = cells.saturating_add(1);
            total = total.saturating_add(number.unsigned_abs());
        }
    }
    if cells > CELLS as u64 || total > i64::MAX.unsigned_abs() {
        return Err(BlobError::Malformed(format!("it holds {total} counts in {cells} cells")));
    }
    Ok(())
}

/// A ZigZag LEB128 number of up to 9 bytes (the ninth holds 8 bits), and its length.
fn zig_zag_varint(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(9).enumerate() {
        let bits = if index == 8 { u64::from(byte) } else { u64::from(byte & 0x7f) };
        value |= bits << (7 * index);
        if byte & 0x80 == 0 || index == 8 {
            let number = (value >> 1).cast_signed() ^ -(value & 1).cast_signed();
            return Some((number, index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::ZlibEncoder};
    use proptest::prelude::*;

    use super::*;
    use crate::Latencies;

    fn deflate(inflated: &[u8]) -> Vec<u8> {
        let mut blob = vec![0x1c, 0x84, 0x93, 0x14, 0, 0, 0, 0];
        let mut encoder = ZlibEncoder::new(&mut blob, Compression::default());
        encoder.write_all(inflated).unwrap();
        encoder.finish().unwrap();
        let length = u32::try_from(blob.len() - 8).unwrap();
        blob[4..8].copy_from_slice(&length.to_be_bytes());
        blob
    }

    fn with_payload(payload: &[u8]) -> Vec<u8> {
        let mut inflated = inflate(&encode(&crate::new_histogram())).unwrap()[..V2_HEADER_BYTES].to_vec();
        inflated[4..8].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_be_bytes());
        inflated.extend_from_slice(payload);
        deflate(&inflated)
    }

    #[test]
    fn other_bounds_are_refused_by_name() {
        let mut other = Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).unwrap();
        other.record(77).unwrap();
        let error = decode(&encode(&other)).unwrap_err();
        assert!(matches!(error, BlobError::OtherBounds { lowest: 1, highest: 1_000_000, figures: 2 }), "{error}");
    }

    #[test]
    fn hostile_counts_are_errors() {
        for payload in [
            &[0xff; 9][..],
            &[0xff; 18],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe],
            &[0x80],
            &[0xfd, 0xff, 0xff, 0x7f],
        ] {
            assert!(decode(&with_payload(payload)).is_err(), "{payload:02x?}");
        }
    }

    #[test]
    fn a_bomb_is_refused() {
        assert!(matches!(decode(&deflate(&vec![0; 50 << 20])), Err(BlobError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn mutated_blobs_never_panic(
            values in prop::collection::vec(1_u64..10_000_000_000, 1..200),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut latencies = Latencies::new();
            values.iter().for_each(|&value| latencies.record(value));
            let mut inflated = inflate(&latencies.encode()).unwrap();
            for (at, byte) in changes {
                let at = at.index(inflated.len());
                inflated[at] = byte;
            }
            let _ = decode(&deflate(&inflated));
            let _ = decode(&inflated);
        }
    }
}
