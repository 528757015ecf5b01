//! Parses the heads that most clients send, in one pass over their bytes.
//!
//! `httparse` and the checks of `request_head` read a head several times: for its end, its lines, its bytes and its
//! names. This parser reads each byte once and gives up at the first one that is not ordinary.
//!
//! Invariant: a head that is found here is the same to `httparse` and `request_head`, which read every head that is not.
//! Tested by `heads_are_the_same_to_both_parsers`, with mutated heads.

use httparse::Header;

use super::request_head::{Framing, RequestBody, RequestHead, is_target_byte};

/// The maximum number of headers of a head that is parsed here.
pub(super) const MAX_PLAIN_HEADERS: usize = 24;

/// The methods with the space after them.
const METHODS: [&str; 7] = ["GET ", "POST ", "PUT ", "DELETE ", "PATCH ", "HEAD ", "OPTIONS "];

const VERSION_LINE: &[u8] = b" HTTP/1.1\r\n";

/// Returns the head at the start of the bytes and its length. `None` says nothing about the head.
pub(super) fn parse<'h, 'b>(
    bytes: &'b [u8],
    space: &'h mut [Header<'b>],
) -> Option<(RequestHead<'h, 'b>, usize)> {
    let method = METHODS.iter().find(|method| bytes.starts_with(method.as_bytes()))?;
    let method = &method[..method.len() - 1];
    let start = method.len() + 1;
    let (end, query_at) = target(bytes, start)?;
    if !bytes.get(end..)?.starts_with(VERSION_LINE) {
        return None;
    }
    // All bytes of a target are ASCII.
    let target = std::str::from_utf8(&bytes[start..end]).ok()?;
    let (path, query) = match query_at {
        Some(at) => (&target[..at - start], Some(&target[at - start + 1..])),
        None => (target, None),
    };
    let mut at = end + VERSION_LINE.len();
    let (mut count, mut framing) = (0, Framing::default());
    loop {
        if let [b'\r', b'\n', ..] = bytes.get(at..)? {
            break;
        }
        let colon = name_end(bytes, at)?;
        let (value, next) = value(bytes, colon + 1)?;
        let header = space.get_mut(count)?;
        *header = Header { name: std::str::from_utf8(&bytes[at..colon]).ok()?, value };
        framing.add(header)?;
        (count, at) = (count + 1, next);
    }
    let length = at + 2;
    let Framing { host, body, is_last } = framing;
    let (bytes, ahead) = bytes.split_at(length);
    let head = RequestHead {
        method,
        path,
        query,
        host: host?,
        bytes,
        ahead,
        headers: &mut space[..count],
        body: body.unwrap_or(RequestBody::Length(0)),
        whole_body: None,
        is_last,
        is_last_if_answered: is_last,
    };
    Some((head, length))
}

/// Returns the end of the target and the place of its first `?`.
fn target(bytes: &[u8], start: usize) -> Option<(usize, Option<usize>)> {
    if bytes.get(start) != Some(&b'/') {
        return None;
    }
    let (mut at, mut query_at) = (start, None);
    loop {
        match *bytes.get(at)? {
            b' ' => return Some((at, query_at)),
            b'?' if query_at.is_none() => query_at = Some(at),
            byte if is_target_byte(byte) => {}
            _ => return None,
        }
        at += 1;
    }
}

/// Returns the place of the colon after a name.
fn name_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while is_name_byte(*bytes.get(at)?) {
        at += 1;
    }
    (at > start && bytes[at] == b':').then_some(at)
}

/// Returns the value after a colon, without the white space around it, and the start of the next line.
fn value(bytes: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let mut start = start;
    while let b' ' | b'\t' = bytes.get(start)? {
        start += 1;
    }
    let mut end = start;
    loop {
        end = control_byte(bytes, end)?;
        match bytes[end] {
            b'\t' => end += 1,
            b'\r' => break,
            _ => return None,
        }
    }
    let next = end + 2;
    while let Some(b' ' | b'\t') = bytes[start..end].last() {
        end -= 1;
    }
    (bytes.get(next - 1) == Some(&b'\n')).then_some((&bytes[start..end], next))
}

/// Returns the place of the first control character.
fn control_byte(bytes: &[u8], start: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let mut at = start;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let word = u64::from_le_bytes(*word);
        let is_delete = word ^ (ONES * 0x7f);
        let found = ((word.wrapping_sub(ONES * 0x20) & !word) | (is_delete.wrapping_sub(ONES) & !is_delete))
            & (ONES << 7);
        if found != 0 {
            // The lowest mark is exact: only a byte above a marked one may be marked in error.
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?.iter().position(u8::is_ascii_control)?;
    Some(at + rest)
}

/// Whether a byte may be in the name of a header (RFC 9110, 5.6.2).
const fn is_name_byte(byte: u8) -> bool {
    const TABLE: [bool; 256] = {
        let mut table = [false; 256];
        let allowed = b"!#$%&'*+-.^_`|~";
        let mut at = 0;
        while at < 128 {
            #[allow(clippy::cast_possible_truncation, reason = "less than 128")]
            let byte = at as u8;
            table[at] = byte.is_ascii_alphanumeric();
            at += 1;
        }
        at = 0;
        while at < allowed.len() {
            table[allowed[at] as usize] = true;
            at += 1;
        }
        table
    };
    TABLE[byte as usize]
}

#[cfg(test)]
mod tests {
    use httparse::EMPTY_HEADER;

    use super::super::{MAX_HEADERS, ParsedRequest, header_space};
    use super::*;

    const SEEDS: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"POST /a/b?c=d?e HTTP/1.1\r\nHost: example.com:80\r\nContent-Length: 5\r\nX-A: b, c  \r\n\r\nabcde",
        b"PUT /x HTTP/1.1\r\nhost:[::1]\r\nconnection: keep-alive\r\ncontent-length: 12\r\naccept: */*\r\n\r\n",
        b"DELETE /%2e/;a=b HTTP/1.1\r\nHOST: a\r\ncookie: a=1; b=2\r\nConnection: Close\r\nx: \xe9\t.\r\n\r\n",
        b"POST /up HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nx: y\r\n\r\n",
        b"OPTIONS /~!$&'()*+,;=:@ HTTP/1.1\r\nhost:a\r\nempty:\r\nblank: \t \r\nx: a long value of 31 bytes....\r\n\r\n",
        b"PATCH /a HTTP/1.1\r\nhost: a\r\nx: 12345678\r\ny: 1234567\x7f\r\nz: \x80\xff\r\n\r\nGET / HTTP/1.1\r\n",
    ];

    const INSERTS: [&[u8]; 16] = [
        b"\r",
        b"\n",
        b"\r\n",
        b"\0",
        b" ",
        b"\t",
        b":",
        b"?",
        b"#",
        b"\x7f",
        b"\xff",
        b"content-length: 3\r\n",
        b"transfer-encoding: chunked\r\n",
        b"host: b\r\n",
        b"connection: x\r\n",
        b"HTTP/1.0",
    ];

    /// Returns the head as text.
    fn shown(head: &RequestHead<'_, '_>, length: usize) -> String {
        format!("{head:?} {length}")
    }

    #[track_caller]
    fn check(bytes: &[u8]) -> bool {
        let mut space = header_space();
        let complete = match RequestHead::parse_any(bytes, &mut space.all, MAX_HEADERS) {
            ParsedRequest::Complete(head, length) => Some(shown(&head, length)),
            ParsedRequest::Partial | ParsedRequest::Unusual => None,
        };
        let mut space = [EMPTY_HEADER; MAX_PLAIN_HEADERS];
        let plain = parse(bytes, &mut space).map(|(head, length)| shown(&head, length));
        if plain.is_some() {
            assert_eq!(plain, complete, "{}", bytes.escape_ascii());
        }
        plain.is_some()
    }

    #[test]
    fn heads_are_the_same_to_both_parsers() {
        let seed = 1_763_446_000;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut found = 0;
        for _ in 0..40_000 {
            let mut head = SEEDS[rng.usize(..SEEDS.len())].to_vec();
            for _ in 0..rng.usize(..4) {
                let at = rng.usize(..head.len());
                match rng.usize(..5) {
                    0 => head[at] = rng.u8(..),
                    1 => drop(head.remove(at)),
                    2 => drop(head.splice(at..at, INSERTS[rng.usize(..INSERTS.len())].iter().copied())),
                    3 => head.truncate(at + 1),
                    _ => head[at] ^= 0x20,
                }
                if head.is_empty() {
                    head.push(b'G');
                }
            }
            found += usize::from(check(&head));
        }
        assert!(found > 10_000, "only {found} heads are plain (seed {seed})");
    }

    #[test]
    fn ordinary_heads_are_parsed_here() {
        for seed in SEEDS {
            let is_valid = !seed.contains(&b'\x7f');
            assert_eq!(check(seed), is_valid, "{}", seed.escape_ascii());
        }
        let many = |count: usize| format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(count));
        assert!(check(many(MAX_PLAIN_HEADERS - 1).as_bytes()));
        assert!(!check(many(MAX_PLAIN_HEADERS).as_bytes()));
    }
}
