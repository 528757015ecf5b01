//! LEB128 numbers and texts as bytes.
//!
//! Reading any input ends in a value or in [`Damaged`], and allocates no more than the length of the
//! input.

/// Error returned when bytes end too early or hold a value out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Appends bytes after their length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads values from bytes.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Result<u8, Damaged> {
        let (&byte, rest) = self.0.split_first().ok_or(Damaged)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Damaged> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if part << shift >> shift != part {
                return Err(Damaged);
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Damaged)
    }

    /// Reads a number of any smaller type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, Damaged> {
        T::try_from(self.number()?).map_err(|_| Damaged)
    }

    /// Reads eight bytes.
    pub(crate) fn fixed(&mut self) -> Result<u64, Damaged> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(Damaged)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let length: usize = self.small()?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Damaged)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damaged)
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
            assert_eq!((reader.number(), reader.text(), reader.byte()), (Ok(number), Ok("é"), Err(Damaged)));
        }
    }

    #[test]
    fn damaged_bytes_are_errors() {
        assert_eq!(Reader(&[0x80; 9]).number(), Err(Damaged));
        assert_eq!(Reader(&[0xff; 10]).number(), Err(Damaged));
        assert_eq!(Reader(&[5, b'a']).text(), Err(Damaged));
        assert_eq!(Reader(&[1, 0xff]).text(), Err(Damaged));
        assert_eq!(Reader(&[0xff, 0xff, 0x03]).small::<u8>(), Err(Damaged));
        assert_eq!(Reader(&[0; 7]).fixed(), Err(Damaged));
    }
}
