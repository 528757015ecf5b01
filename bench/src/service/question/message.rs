//! A minimal protobuf encoder and decoder: numbers, text, messages.

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a number.
    pub(super) fn number(mut self, field: u8, number: u64) -> Self {
        self.varint(u64::from(field << 3));
        self.varint(number);
        self
    }

    /// Adds bytes: text, or another message.
    pub(super) fn bytes(mut self, field: u8, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        self.varint(u64::from(field << 3 | 2));
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns the gRPC frame of the message, not compressed.
    pub(super) fn framed(&self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        [&[0][..], &length.to_be_bytes(), &self.0].concat()
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Returns the message of a gRPC frame; `None` if it is incomplete.
pub(super) fn unframed(bytes: &[u8]) -> Option<&[u8]> {
    let (head, message) = bytes.split_at_checked(5)?;
    let length = u32::from_be_bytes(head.get(1..)?.try_into().ok()?);
    (head[0] == 0 && u64::from(length) == message.len() as u64).then_some(message)
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

/// Returns the fields of a message in order; `None` if it is malformed.
pub(super) fn fields(mut message: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (bytes, rest) = message.split_at_checked(length)?;
                message = rest;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        fields.push((tag >> 3, value));
    }
    Some(fields)
}

/// Returns the number of a field; zero if it is absent.
pub(super) fn number(fields: &[(u64, Value<'_>)], field: u64) -> u64 {
    let found = fields.iter().rev().find(|(at, _)| *at == field);
    found.map_or(0, |(_, value)| if let Value::Number(number) = value { *number } else { 0 })
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = message.split_first()?;
        *message = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_are_decoded() {
        let inner = Message::default().bytes(1, "user").number(2, 300);
        let message = Message::default().number(1, u64::MAX).bytes(2, &inner).number(3, 0);
        let framed = message.framed();
        let read = fields(unframed(&framed).unwrap()).unwrap();
        let expected =
            [(1, Value::Number(u64::MAX)), (2, Value::Bytes(inner.as_ref())), (3, Value::Number(0))];
        assert_eq!(read, expected);
        assert_eq!(fields(inner.as_ref()).map(|it| (number(&it, 2), number(&it, 9))), Some((300, 0)));
    }

    #[test]
    fn bytes_match_the_protobuf_encoding_guide() {
        assert_eq!(Message::default().number(1, 150).0, [0x08, 0x96, 0x01]);
        assert_eq!(Message::default().bytes(2, "testing").0, b"\x12\x07testing");
    }

    #[test]
    fn an_incomplete_message_is_rejected() {
        assert_eq!(unframed(b"\0\0\0\0\x05abc"), None);
        assert_eq!(fields(b"\x12\x07test"), None);
        assert_eq!(fields(b"\x08\xff"), None);
    }
}
