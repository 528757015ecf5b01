//! Reads and writes numbers and bytes.

/// Error returned when bytes are not a call or a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not a call between peers, or are damaged")]
pub(crate) struct WireError;

/// The bytes that have not been read.
pub(crate) struct Reader<'b>(pub(crate) &'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn byte(&mut self) -> Result<u8, WireError> {
        let (&first, rest) = self.0.split_first().ok_or(WireError)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError),
        }
    }

    pub(crate) fn number(&mut self) -> Result<u64, WireError> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(WireError);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            shift += 7;
            if shift > 63 {
                return Err(WireError);
            }
        }
    }

    pub(crate) fn small(&mut self) -> Result<u32, WireError> {
        u32::try_from(self.number()?).map_err(|_| WireError)
    }

    /// Reads a count that is at most `max` and fits the rest of the bytes.
    pub(crate) fn count(&mut self, max: usize) -> Result<usize, WireError> {
        let count = usize::try_from(self.number()?).map_err(|_| WireError)?;
        if count > max { Err(WireError) } else { Ok(count) }
    }

    pub(crate) fn fixed(&mut self) -> Result<u64, WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(WireError)?;
        self.0 = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    pub(crate) fn wide(&mut self) -> Result<u128, WireError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(WireError)?;
        self.0 = rest;
        Ok(u128::from_le_bytes(*bytes))
    }

    /// Reads bytes with their length before them.
    pub(crate) fn bytes(&mut self) -> Result<&'b [u8], WireError> {
        let length = usize::try_from(self.number()?).map_err(|_| WireError)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(WireError)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Checks that all bytes have been read.
    pub(crate) fn end(self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError) }
    }
}

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push((number & 0x7f) as u8);
}

/// Appends bytes with their length before them.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}
