//! Messages of a stream, with a bound on their size.
//!
//! A message is returned as soon as its last byte has arrived. A prefix that announces more than the
//! bound is refused before its message arrives, so a sender cannot make the receiver buffer it.

use bytes::{Buf, Bytes, BytesMut};

use crate::call::PREFIX_BYTES;

/// The reason why a stream of messages cannot be read further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// The message announces this many bytes, which is more than the bound.
    TooLarge(usize),
    /// The message is compressed.
    Compressed,
    /// The bytes are not a gRPC message.
    Malformed,
}

/// Splits the bytes of a stream into messages.
///
/// ```
/// # use tollgate_grpc::{MessageError, MessageReader};
/// let mut reader = MessageReader::new(10);
/// reader.push(&[0, 0, 0, 0, 2, b'h']);
/// assert_eq!(reader.next_message(), Ok(None));
/// reader.push(b"i");
/// assert_eq!(reader.next_message(), Ok(Some("hi".into())));
/// reader.push(&[0, 0, 0, 0, 11]);
/// assert_eq!(reader.next_message(), Err(MessageError::TooLarge(11)));
/// ```
#[derive(Debug)]
pub struct MessageReader {
    received: BytesMut,
    max_message_bytes: usize,
}

impl MessageReader {
    /// Creates a reader of messages with up to this many bytes.
    pub fn new(max_message_bytes: usize) -> Self {
        Self { received: BytesMut::new(), max_message_bytes }
    }

    /// Adds received bytes. Call [`next_message`](Self::next_message) until it returns `None` before the
    /// next call.
    pub fn push(&mut self, bytes: &[u8]) {
        self.received.extend_from_slice(bytes);
    }

    /// Returns the next message; `None` if it has not arrived completely.
    pub fn next_message(&mut self) -> Result<Option<Bytes>, MessageError> {
        let [flag, a, b, c, d, ..] = self.received[..] else { return Ok(None) };
        match flag {
            0 => {}
            1 => return Err(MessageError::Compressed),
            _ => return Err(MessageError::Malformed),
        }
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
        if length > self.max_message_bytes {
            return Err(MessageError::TooLarge(length));
        }
        if self.received.len() - PREFIX_BYTES < length {
            return Ok(None);
        }
        self.received.advance(PREFIX_BYTES);
        let message = self.received.split_to(length).freeze();
        if self.received.is_empty() {
            // A large message does not keep its memory.
            self.received = BytesMut::new();
        }
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_wherever_the_stream_is_cut() {
        let stream = [&[0, 0, 0, 0, 3, 1, 2, 3][..], &[0, 0, 0, 0, 0], &[0, 0, 0, 0, 1, 9]].concat();
        for size in 1..=stream.len() {
            let mut reader = MessageReader::new(3);
            let mut found = Vec::new();
            for piece in stream.chunks(size) {
                reader.push(piece);
                while let Some(message) = reader.next_message().unwrap() {
                    found.push(message.to_vec());
                }
            }
            assert_eq!(found, [vec![1, 2, 3], vec![], vec![9]], "{size}");
        }
    }

    #[test]
    fn what_is_not_a_plain_message_is_refused() {
        for (bytes, error) in
            [([1, 0, 0, 0, 0], MessageError::Compressed), ([7, 0, 0, 0, 0], MessageError::Malformed)]
        {
            let mut reader = MessageReader::new(3);
            reader.push(&bytes);
            assert_eq!(reader.next_message(), Err(error));
        }
    }
}
