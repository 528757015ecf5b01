//! Watches the client of a request that waits before its body is read.
//!
//! The end of a connection comes after the bytes before it, so the body is read ahead, as far as it fits into one buffer. A
//! client that has sent a longer body, or its next request, is not watched: it may close its side and read the responses.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::buffer::Buffer;
use super::client::{BodyRest, Http1Client};

/// The search for the end of a body in the bytes ahead.
#[derive(Debug)]
pub struct ReadAhead {
    /// The part of the body after the bytes that were searched.
    body: BodyRest,
    /// The number of bytes that were searched for the end of a chunked body.
    searched: usize,
}

impl ReadAhead {
    /// Whether the bytes contain more than the body, or a malformed one. The same bytes may be followed by others in the
    /// next call.
    fn has_more_than_body(&mut self, bytes: &[u8]) -> bool {
        match &mut self.body {
            BodyRest::Length(left) => bytes.len() as u64 > *left,
            BodyRest::Chunked { decoder, .. } => {
                while self.searched < bytes.len() && !decoder.is_done() {
                    let Ok((used, _)) = decoder.decode(&bytes[self.searched..]) else {
                        // A decoder must not be used after an error. Any byte is more than an empty body.
                        self.body = BodyRest::Length(0);
                        return true;
                    };
                    self.searched += used;
                }
                self.searched < bytes.len()
            }
        }
    }
}

impl Http1Client<'_> {
    /// Starts to read ahead. No part of the body may have been taken.
    pub const fn read_ahead(&self) -> ReadAhead {
        ReadAhead { body: self.body, searched: 0 }
    }

    /// Resolves when the client has left. Must not be called after a part of the body was taken.
    pub fn poll_left_ahead(&mut self, ahead: &mut ReadAhead, cx: &mut Context<'_>) -> Poll<()> {
        let mut buffer = self.input.take().unwrap_or_else(Buffer::take);
        let left = loop {
            if buffer.is_full() || ahead.has_more_than_body(buffer.unread()) {
                break Poll::Pending;
            }
            match buffer.poll_fill(Pin::new(&mut *self.wire), u64::MAX, cx) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => break Poll::Ready(()),
            }
        };
        if !buffer.is_empty() {
            *self.input = Some(buffer);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunked::ChunkedDecoder;
    use super::*;

    #[track_caller]
    fn check(body: BodyRest, bytes: &str, expected: Option<usize>) {
        for size in 1..=bytes.len() {
            let mut ahead = ReadAhead { body, searched: 0 };
            let lengths = (size..bytes.len()).step_by(size).chain([bytes.len()]);
            let found = lengths.filter(|length| ahead.has_more_than_body(&bytes.as_bytes()[..*length])).min();
            let expected = expected.map(|expected| expected.next_multiple_of(size).min(bytes.len()));
            assert_eq!(found, expected, "{bytes:?} in pieces of {size}");
        }
    }

    #[test]
    fn the_next_request_is_found_after_a_body_that_arrives_in_pieces() {
        let chunked = || BodyRest::Chunked { decoder: ChunkedDecoder::new(), taken: 0 };
        check(BodyRest::Length(0), "GET", Some(1));
        check(BodyRest::Length(5), "hello", None);
        check(BodyRest::Length(5), "helloGET /", Some(6));
        check(chunked(), "5\r\nhello\r\n0\r\n\r\n", None);
        check(chunked(), "5\r\nhello\r\n0\r\nx: y\r\n\r\nGET", Some(22));
        check(chunked(), "5\r\nhello\r\n", None);
        check(chunked(), "nonsense", Some(1));
    }

    #[test]
    fn a_malformed_body_stays_malformed_each_time_a_request_that_waits_is_woken() {
        // A second search from its start would count the digits of the size once more.
        for bytes in ["f".repeat(17), "5\r\nhello\r\r".to_owned()] {
            let body = BodyRest::Chunked { decoder: ChunkedDecoder::new(), taken: 0 };
            let mut ahead = ReadAhead { body, searched: 0 };
            assert!((0..1_000).all(|_| ahead.has_more_than_body(bytes.as_bytes())), "{bytes:?}");
        }
    }
}
