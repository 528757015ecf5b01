//! LEB128 numbers, and bytes after their length: the parts of states, quotas, calls between peers and
//! stored records.
//!
//! Reading any input ends in a value or in [`ReadError`]. It never panics, and allocates nothing.

use alloc::vec::Vec;

/// Error returned when bytes end too early or hold a value out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes end too early, or hold a value out of range")]
pub struct ReadError;

/// Appends a number: seven bits in each byte, the lowest first.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Appends bytes after their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A reader of the bytes that have not been read yet.
///
/// ```
/// # use tollgate_core::varint::{ReadError, Reader, put, put_bytes};
/// let mut bytes = Vec::new();
/// put(&mut bytes, 300);
/// put_bytes(&mut bytes, b"ann");
/// let mut reader = Reader(&bytes);
/// assert_eq!((reader.number(), reader.text(), reader.byte()), (Ok(300), Ok("ann"), Err(ReadError)));
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a byte.
    pub fn byte(&mut self) -> Result<u8, ReadError> {
        self.array().map(|[byte]| byte)
    }

    /// Reads a byte that is 0 or 1.
    pub fn flag(&mut self) -> Result<bool, ReadError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(ReadError),
        }
    }

    /// Reads a number of up to 64 bits.
    pub fn number(&mut self) -> Result<u64, ReadError> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(ReadError);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(ReadError)
    }

    /// Reads a number of a smaller type.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T, ReadError> {
        T::try_from(self.number()?).map_err(|_| ReadError)
    }

    /// Reads a number that is at most `max`.
    pub fn count(&mut self, max: usize) -> Result<usize, ReadError> {
        self.small::<usize>().and_then(|count| if count > max { Err(ReadError) } else { Ok(count) })
    }

    /// Reads a number of eight bytes, the lowest first.
    pub fn fixed(&mut self) -> Result<u64, ReadError> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads a number of sixteen bytes, the lowest first.
    pub fn wide(&mut self) -> Result<u128, ReadError> {
        self.array().map(u128::from_le_bytes)
    }

    /// Reads bytes after their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], ReadError> {
        let length = self.small()?;
        self.take(length)
    }

    /// Reads a number of bytes that is known.
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], ReadError> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(ReadError)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads UTF-8 text after its length.
    pub fn text(&mut self) -> Result<&'a str, ReadError> {
        core::str::from_utf8(self.bytes()?).map_err(|_| ReadError)
    }

    /// Checks that all bytes have been read.
    pub fn end(self) -> Result<(), ReadError> {
        if self.0.is_empty() { Ok(()) } else { Err(ReadError) }
    }

    /// Reads an array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], ReadError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(ReadError)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read_back() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, number);
            put_bytes(&mut out, "é".as_bytes());
            let mut reader = Reader(&out);
            assert_eq!((reader.number(), reader.text(), reader.end()), (Ok(number), Ok("é"), Ok(())));
        }
    }

    #[test]
    fn damaged_bytes_are_errors() {
        assert_eq!(Reader(&[0x80; 9]).number(), Err(ReadError));
        assert_eq!(Reader(&[0xff; 10]).number(), Err(ReadError));
        assert_eq!(
            Reader(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(),
            Err(ReadError)
        );
        assert_eq!(Reader(&[5, b'a']).text(), Err(ReadError));
        assert_eq!(Reader(&[1, 0xff]).text(), Err(ReadError));
        assert_eq!(Reader(&[0xff, 0xff, 0x03]).small::<u8>(), Err(ReadError));
        assert_eq!(Reader(&[3]).count(2), Err(ReadError));
        assert_eq!(Reader(&[2]).flag(), Err(ReadError));
        assert_eq!(Reader(&[0; 7]).fixed(), Err(ReadError));
        assert_eq!(Reader(&[0; 15]).wide(), Err(ReadError));
        assert_eq!(Reader(&[0]).end(), Err(ReadError));
    }
}
