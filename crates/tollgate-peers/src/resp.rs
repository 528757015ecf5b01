//! The client side of the Redis protocol, as far as calls between peers need it.

use bytes::{Buf, BytesMut};

use crate::wire;

/// The maximum number of bytes of a reply.
const MAX_REPLY_BYTES: usize = 1 << 20;
/// The maximum number of bytes of a line.
const MAX_LINE_BYTES: usize = 1024;

/// A reply of the other node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Bytes.
    Bulk(BytesMut),
    /// A short text, such as `OK`.
    Simple(String),
    /// An error.
    Error(String),
}

/// Error returned for bytes that are not a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    line(out, b'*', words.len());
    for word in words {
        line(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a call.
pub(crate) fn call(out: &mut Vec<u8>, payload: &[u8]) {
    command(out, &[b"TG.CALL", wire::VERSION.to_string().as_bytes(), payload]);
}

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    out.extend_from_slice(number.to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Removes the next reply from the bytes; `None` if more bytes are needed.
pub(crate) fn next(bytes: &mut BytesMut) -> Result<Option<Frame>, Malformed> {
    let Some(&kind) = bytes.first() else { return Ok(None) };
    let Some(end) = bytes.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\r') else {
        return if bytes.len() >= MAX_LINE_BYTES { Err(Malformed) } else { Ok(None) };
    };
    match kind {
        b'$' => {
            let length = std::str::from_utf8(&bytes[1..end]).ok().and_then(|it| it.parse::<usize>().ok());
            let length = length.filter(|it| *it <= MAX_REPLY_BYTES).ok_or(Malformed)?;
            let start = end + 2;
            if bytes.len() < start + length + 2 {
                return Ok(None);
            }
            if bytes[end + 1] != b'\n' || bytes[start + length..start + length + 2] != *b"\r\n" {
                return Err(Malformed);
            }
            bytes.advance(start);
            let body = bytes.split_to(length);
            bytes.advance(2);
            Ok(Some(Frame::Bulk(body)))
        }
        b'+' | b'-' => {
            if bytes.len() < end + 2 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&bytes[1..end]).into_owned();
            bytes.advance(end + 2);
            Ok(Some(if kind == b'+' { Frame::Simple(text) } else { Frame::Error(text) }))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_parsed_however_they_are_split() {
        let all = b"$3\r\nab\r\r\n+OK\r\n-ERR no\r\n$0\r\n\r\n";
        for cut in 0..all.len() {
            let (mut bytes, mut found) = (BytesMut::new(), Vec::new());
            for piece in [&all[..cut], &all[cut..]] {
                bytes.extend_from_slice(piece);
                while let Some(frame) = next(&mut bytes).unwrap() {
                    found.push(frame);
                }
            }
            let text = |frame: &str| frame.to_owned();
            let expected = [
                Frame::Bulk(b"ab\r"[..].into()),
                Frame::Simple(text("OK")),
                Frame::Error(text("ERR no")),
                Frame::Bulk(BytesMut::new()),
            ];
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_stranger_is_not_a_peer() {
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"$-1\r\n", b"$99999999\r\n", b"$2\r\nabcd", b":1\r\n"]
        {
            assert_eq!(next(&mut bytes.into()), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(next(&mut [b'-'; MAX_LINE_BYTES][..].into()), Err(Malformed));
    }
}
