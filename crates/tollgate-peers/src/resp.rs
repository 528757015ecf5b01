//! The client side of the Redis protocol, as far as calls between peers need it.

#[cfg(test)]
use crate::wire;

/// The maximum number of bytes of a reply. The state of a log can be large.
const MAX_REPLY_BYTES: usize = 1 << 24;
/// The maximum number of bytes of a line.
const MAX_LINE_BYTES: usize = 1024;

/// A reply of the other node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame<'b> {
    /// Bytes.
    Bulk(&'b [u8]),
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
    out.reserve(START.len() + payload.len() + 16);
    out.extend_from_slice(START);
    line(out, b'$', payload.len());
    out.extend_from_slice(payload);
    out.extend_from_slice(b"\r\n");
}

/// A call up to its payload.
const START: &[u8] = b"*3\r\n$7\r\nTG.CALL\r\n$1\r\n2\r\n";

fn line(out: &mut Vec<u8>, kind: u8, number: usize) {
    // Not `to_string`, which allocates.
    let (mut digits, mut start, mut rest) = ([0; 20], 20, number);
    loop {
        start -= 1;
        digits[start] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.push(kind);
    out.extend_from_slice(&digits[start..]);
    out.extend_from_slice(b"\r\n");
}

/// Returns the first reply in the bytes and its length; `None` if more bytes are needed.
pub(crate) fn next(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, Malformed> {
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
            Ok(Some((Frame::Bulk(&bytes[start..start + length]), start + length + 2)))
        }
        b'+' | b'-' => {
            if bytes.len() < end + 2 {
                return Ok(None);
            }
            let text = String::from_utf8_lossy(&bytes[1..end]).into_owned();
            Ok(Some((if kind == b'+' { Frame::Simple(text) } else { Frame::Error(text) }, end + 2)))
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
            let (mut at, mut found) = (0, Vec::new());
            for end in [cut, all.len()] {
                while let Some((frame, length)) = next(&all[at..end]).unwrap() {
                    found.push(frame);
                    at += length;
                }
            }
            let text = |frame: &str| frame.to_owned();
            let expected = [
                Frame::Bulk(b"ab\r"),
                Frame::Simple(text("OK")),
                Frame::Error(text("ERR no")),
                Frame::Bulk(b""),
            ];
            assert_eq!(found, expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_stranger_is_not_a_peer() {
        for bytes in
            [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"$-1\r\n", b"$99999999\r\n", b"$2\r\nabcd", b":1\r\n"]
        {
            assert_eq!(next(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(next(&[b'-'; MAX_LINE_BYTES]), Err(Malformed));
    }

    #[test]
    fn a_call_is_a_command_of_three_words() {
        for payload in [&b""[..], b"x", &[7; 12_345]] {
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            command(&mut expected, &[b"TG.CALL", wire::VERSION.to_string().as_bytes(), payload]);
            call(&mut found, payload);
            assert_eq!(found, expected);
        }
    }
}
