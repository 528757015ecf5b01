//! Writes replies in both versions of the protocol.
//!
//! Most replies consist of five integers, which `itoa` formats.

/// The protocol version of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Two = 2,
    Three = 3,
}

/// The maximum number of bytes of an error.
const MAX_ERROR_BYTES: usize = 1024;

/// `+text`
pub(crate) fn simple(out: &mut Vec<u8>, text: &str) {
    out.push(b'+');
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// `-text`. The text may contain data of a client, so line breaks and control characters are
/// replaced.
pub(crate) fn error(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'-');
    let shown = text.iter().take(MAX_ERROR_BYTES);
    out.extend(shown.map(|byte| if byte.is_ascii_control() { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

/// `:number`
#[inline]
pub(crate) fn integer(out: &mut Vec<u8>, number: i64) {
    if let Ok(digit @ 0..=9) = u8::try_from(number) {
        out.extend_from_slice(&[b':', b'0' + digit, b'\r', b'\n']);
        return;
    }
    out.push(b':');
    digits(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Writes a count as `:number`, saturated at `i64::MAX`.
#[inline]
pub(crate) fn count(out: &mut Vec<u8>, number: u64) {
    integer(out, i64::try_from(number).unwrap_or(i64::MAX));
}

fn digits(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn header(out: &mut Vec<u8>, kind: u8, count: usize) {
    out.push(kind);
    digits(out, i64::try_from(count).unwrap_or(i64::MAX));
    out.extend_from_slice(b"\r\n");
}

/// `$length` and the bytes.
pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The header of an array.
pub(crate) fn array(out: &mut Vec<u8>, count: usize) {
    header(out, b'*', count);
}

/// The header of a map with this number of pairs; an array in RESP2.
pub(crate) fn map(out: &mut Vec<u8>, protocol: Protocol, pairs: usize) {
    match protocol {
        Protocol::Two => header(out, b'*', 2 * pairs),
        Protocol::Three => header(out, b'%', pairs),
    }
}

/// A null reply.
pub(crate) fn null(out: &mut Vec<u8>, protocol: Protocol) {
    out.extend_from_slice(match protocol {
        Protocol::Two => b"$-1\r\n",
        Protocol::Three => b"_\r\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_by_the_standard_library() {
        for number in [0, 1, 9, 10, 16, -1, -10, 12_345, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            integer(&mut out, number);
            assert_eq!(out, format!(":{number}\r\n").into_bytes());
        }
    }

    #[test]
    fn an_error_is_always_one_line() {
        let mut out = Vec::new();
        error(&mut out, b"ERR a\r\n+OK\r\n\x1b[2J");
        assert_eq!(out, b"-ERR a  +OK   [2J\r\n");
        error(&mut out, &vec![b'x'; 100_000]);
        assert!(out.len() < 2 * MAX_ERROR_BYTES);
    }
}
