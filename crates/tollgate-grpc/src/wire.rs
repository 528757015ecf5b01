//! Reads and writes the protobuf wire format.
//!
//! It is hand-written because these few messages are processed for every request: fields are
//! borrowed from the message when reading, and written directly after the frame prefix.
//!
//! Groups, which proto3 does not have, are malformed.
//!
//! Not here: the meaning of the fields (the crates of the services).
//!
//! Invariant: no input causes a panic, and no memory is allocated for an announced length.
//! `tests/answers/hostile.rs` of `tollgate-rls` checks this.

/// The bytes are not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireError;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'m> {
    /// Integers, enums and booleans.
    Varint(u64),
    /// Strings, bytes and messages.
    Bytes(&'m [u8]),
    /// A number of 8 bytes, such as a `double`, or of 4 bytes, as its bits.
    Fixed(u64),
}

impl<'m> Value<'m> {
    /// Returns the value of an integer, an enum or a boolean.
    #[inline]
    pub const fn varint(self) -> Result<u64, WireError> {
        if let Self::Varint(value) = self { Ok(value) } else { Err(WireError) }
    }

    /// Converts to a `uint32` like protobuf: the low half.
    #[allow(clippy::cast_possible_truncation, reason = "so does protobuf")]
    pub fn uint32(self) -> Result<u32, WireError> {
        self.varint().map(|it| it as u32)
    }

    /// Converts to an `int32` like protobuf: the low half, with its sign.
    #[allow(clippy::cast_possible_truncation, reason = "so does protobuf")]
    pub fn int32(self) -> Result<i32, WireError> {
        self.varint().map(|it| it as i32)
    }

    /// Returns the content of a string, a byte field or a message.
    #[inline]
    pub const fn bytes(self) -> Result<&'m [u8], WireError> {
        if let Self::Bytes(bytes) = self { Ok(bytes) } else { Err(WireError) }
    }

    /// Returns a `double`.
    pub const fn double(self) -> Result<f64, WireError> {
        if let Self::Fixed(bits) = self { Ok(f64::from_bits(bits)) } else { Err(WireError) }
    }

    /// Returns a string; invalid UTF-8 makes the message invalid.
    #[inline]
    pub fn text(self) -> Result<&'m str, WireError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| WireError)
    }
}

/// Reads the fields of a message.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'m>(&'m [u8]);

impl<'m> Reader<'m> {
    /// Reads the fields of this message.
    pub const fn new(message: &'m [u8]) -> Self {
        Self(message)
    }

    /// Returns the next field, in wire order.
    #[inline]
    pub fn next_field(&mut self) -> Result<Option<(u32, Value<'m>)>, WireError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = u32::try_from(self.read_varint()?).map_err(|_| WireError)?;
        let number = tag >> 3;
        if number == 0 {
            return Err(WireError);
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.read_varint()?),
            1 => Value::Fixed(self.read_fixed(8)?),
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| WireError)?;
                Value::Bytes(self.take(length)?)
            }
            5 => Value::Fixed(self.read_fixed(4)?),
            _ => return Err(WireError),
        };
        Ok(Some((number, value)))
    }

    /// Reads a little-endian number of up to 8 bytes.
    fn read_fixed(&mut self, length: usize) -> Result<u64, WireError> {
        Ok(self.take(length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'m [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(WireError)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn read_varint(&mut self) -> Result<u64, WireError> {
        // Most numbers fit one byte.
        if let [small @ ..0x80, rest @ ..] = self.0 {
            self.0 = rest;
            return Ok(u64::from(*small));
        }
        let mut value = 0;
        for (at, byte) in self.0.iter().take(10).enumerate() {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if at == 9 && bits > 1 {
                return Err(WireError);
            }
            value |= bits << (7 * at);
            if *byte < 0x80 {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(WireError)
    }
}

/// Writes the fields of a message. Fields with default values are omitted.
pub trait Write {
    /// Writes an integer, an enum or a boolean.
    fn put_uint(&mut self, number: u32, value: u64);
    /// Writes a string or bytes.
    fn put_bytes(&mut self, number: u32, bytes: &[u8]);
    /// Writes a message, even if it is empty.
    fn put_message(&mut self, number: u32, fields: impl FnOnce(&mut Self));
}

impl Write for Vec<u8> {
    #[inline]
    fn put_uint(&mut self, number: u32, value: u64) {
        if value != 0 {
            put_varint(self, u64::from(number << 3));
            put_varint(self, value);
        }
    }

    #[inline]
    fn put_bytes(&mut self, number: u32, bytes: &[u8]) {
        if !bytes.is_empty() {
            put_varint(self, u64::from(number << 3 | 2));
            put_varint(self, bytes.len() as u64);
            self.extend_from_slice(bytes);
        }
    }

    #[inline]
    fn put_message(&mut self, number: u32, fields: impl FnOnce(&mut Self)) {
        put_varint(self, u64::from(number << 3 | 2));
        let start = self.len();
        // Reserves one byte for the length; longer messages are moved.
        self.push(0);
        fields(self);
        let length = self.len() - start - 1;
        if let Ok(short @ ..0x80) = u8::try_from(length) {
            self[start] = short;
        } else {
            let mut long = Vec::with_capacity(10);
            put_varint(&mut long, length as u64);
            self.splice(start..=start, long);
        }
    }
}

/// Writes a `double`, which only metadata has.
pub fn put_double(out: &mut Vec<u8>, number: u32, value: f64) {
    put_varint(out, u64::from(number << 3 | 1));
    out.extend_from_slice(&value.to_le_bytes());
}

/// Writes a field of a `oneof`, even if it has the default value.
pub fn put_always(out: &mut Vec<u8>, number: u32, value: u64) {
    put_varint(out, u64::from(number << 3));
    put_varint(out, value);
}

/// Writes an integer in the variable-length encoding, without a field number.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the remaining bits fit into seven")]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
