//! Frames: the units of a segment, each with its length and a checksum.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | length of the payload |
//! | 4 | CRC-32 of the length, the kind and the payload |
//! | 1 | kind |
//! | length | payload |
//!
//! A frame that a crash has cut, or whose bytes have changed, fails its checksum.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The bytes before the payload.
pub(crate) const HEAD_BYTES: usize = 9;
/// The maximum length of a payload. Records are bounded far below; a larger length is damage.
pub(crate) const MAX_PAYLOAD_BYTES: usize = 1 << 20;
/// The length of a first read, which nearly every frame fits.
const FIRST_READ_BYTES: usize = 512;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A decision.
    Record,
    /// The definition of a limit, to which later records of the segment refer.
    Definition,
}

impl Kind {
    const fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Record),
            2 => Some(Self::Definition),
            _ => None,
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Record => 1,
            Self::Definition => 2,
        }
    }
}

/// Appends a frame whose payload `write` appends. Returns `false`, and appends nothing, if the payload
/// is too long.
pub(crate) fn put(out: &mut Vec<u8>, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES - 1]);
    out.push(kind.byte());
    write(out);
    let length = out.len() - start - HEAD_BYTES;
    if length > MAX_PAYLOAD_BYTES {
        out.truncate(start);
        return false;
    }
    // Fits, as just checked.
    let length = u32::try_from(length).unwrap_or(0).to_le_bytes();
    let sum = checksum(length, &out[start + HEAD_BYTES - 1..]);
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
    true
}

/// Returns the first frame of `bytes` and its length with its head; `None` if it is cut or damaged.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Kind, &[u8], usize)> {
    let length = payload_length(bytes)?;
    let frame = bytes.get(..HEAD_BYTES + length)?;
    let (_, sum) = head(frame)?;
    let kind = Kind::of(*frame.get(HEAD_BYTES - 1)?)?;
    let known = checksum(u32::try_from(length).ok()?.to_le_bytes(), &frame[HEAD_BYTES - 1..]);
    (known == sum).then(|| (kind, &frame[HEAD_BYTES..], frame.len()))
}

/// Reads the frame at an offset, with its head. `None` if it is cut or damaged.
pub(crate) fn read_at(file: &File, offset: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; FIRST_READ_BYTES];
    let read = read_up_to(file, &mut bytes, offset)?;
    bytes.truncate(read);
    let Some(length) = payload_length(&bytes) else { return Ok(None) };
    let whole = HEAD_BYTES + length;
    if whole > bytes.len() {
        let start = bytes.len();
        bytes.resize(whole, 0);
        let more = read_up_to(file, &mut bytes[start..], offset + start as u64)?;
        bytes.truncate(start + more);
    }
    bytes.truncate(whole);
    Ok(parse(&bytes).is_some().then_some(bytes))
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_up_to(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Returns the length of the payload, if it is plausible.
fn payload_length(bytes: &[u8]) -> Option<usize> {
    usize::try_from(head(bytes)?.0).ok().filter(|length| *length <= MAX_PAYLOAD_BYTES)
}

fn head(bytes: &[u8]) -> Option<(u32, u32)> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (sum, _) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*length), u32::from_le_bytes(*sum)))
}

fn checksum(length: [u8; 4], kind_and_payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length);
    hasher.update(kind_and_payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_back_and_any_changed_or_missing_byte_is_noticed() {
        let mut bytes = Vec::new();
        assert!(put(&mut bytes, Kind::Record, |out| out.extend_from_slice(b"payload")));
        assert_eq!(parse(&bytes), Some((Kind::Record, &b"payload"[..], bytes.len())));
        for at in 0..bytes.len() {
            assert_eq!(parse(&bytes[..at]), None, "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(parse(&changed), None, "changed at {at}");
        }
    }

    #[test]
    fn a_payload_that_is_too_long_is_not_written() {
        let mut bytes = b"before".to_vec();
        assert!(!put(&mut bytes, Kind::Record, |out| out.resize(out.len() + MAX_PAYLOAD_BYTES + 1, 7)));
        assert_eq!(bytes, b"before");
    }
}
