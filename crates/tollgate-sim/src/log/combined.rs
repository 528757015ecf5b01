//! The line formats of nginx and Apache: common and combined, optionally with a host first or further fields at the
//! end.
//!
//! `[HOST] CLIENT IDENT USER [TIME] "REQUEST" STATUS BYTES "REFERER" "USER AGENT" …`
//!
//! A line is a request if it has a client, a time in brackets and a quoted text after it. Logs of real traffic
//! contain handshakes, empty requests and attacks, and each of them counts as a request. Fields after that are
//! optional.

use super::address::Client;
use super::batch::{Batch, Facts};
use super::target::{put_host, put_request};
use super::text::unescaped;
use super::time::Times;
use crate::entry::Slot;

/// Reads a line into a batch. Returns `false` and leaves the batch unchanged if the line is not a request.
pub(super) fn read(line: &[u8], times: &mut Times, batch: &mut Batch) -> bool {
    let Some((head, at, rest)) = around_the_time(line, times) else { return false };
    let Some((request, rest)) = quoted(rest.trim_ascii_start()) else { return false };
    let Some(client) = put_head(batch, head) else { return false };
    put_request(batch, &unescaped(request));
    let status = put_tail(batch, rest);
    batch.finish(Facts { at, client, cost: None, status });
    true
}

/// Returns the text before the time, the time, and the text after it. User names may contain brackets.
fn around_the_time<'l>(line: &'l [u8], times: &mut Times) -> Option<(&'l [u8], u64, &'l [u8])> {
    for open in memchr::memchr_iter(b'[', line) {
        if open == 0 || line[open - 1] != b' ' {
            continue;
        }
        let (head, rest) = (&line[..open - 1], &line[open + 1..]);
        let close = memchr::memchr(b']', rest)?;
        if let Some(at) = times.read(&rest[..close]) {
            return Some((head, at, &rest[close + 1..]));
        }
    }
    None
}

/// Reads the client, and the host and user if present.
fn put_head(batch: &mut Batch, head: &[u8]) -> Option<Client> {
    let (first, mut rest) = word(head);
    if first.is_empty() {
        return None;
    }
    let mut client = Client::read(first);
    if !matches!(client, Client::Address(_)) {
        let (second, behind) = word(rest);
        if Client::is_address(second) || (has_port(first) && !second.is_empty() && second != b"-") {
            client = Client::read(second);
            put_host(batch, first);
            rest = behind;
        }
    }
    // A list of addresses; the first field belongs to a proxy.
    let mut last = first;
    while last.ends_with(b",") {
        (last, rest) = word(rest);
    }
    let (_ident, user) = word(rest);
    if !user.is_empty() && user != b"-" && user != b"\"\"" {
        batch.put(Slot::User, &unescaped(user));
    }
    Some(client)
}

/// Reads status, referer and user agent, and returns the status.
fn put_tail(batch: &mut Batch, rest: &[u8]) -> Option<u16> {
    let (status, rest) = word(rest.trim_ascii_start());
    let (_bytes, rest) = word(rest);
    let mut rest = rest;
    for name in ["referer", "user-agent"] {
        let [b'"', inner @ ..] = rest else { break };
        // A truncated line has no closing quote.
        let (value, behind) = quoted(rest).unwrap_or((inner, b""));
        if value != b"-" && !value.is_empty() {
            batch.put_header(name, &unescaped(value));
        }
        rest = behind.trim_ascii_start();
    }
    match status {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            Some(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
        }
        _ => None,
    }
}

/// Splits off the first word and the blanks after it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', text) {
        Some(end) => (&text[..end], text[end..].trim_ascii_start()),
        None => (text, b""),
    }
}

/// Splits a quoted text off the start.
///
/// The closing quote is followed by a blank or the end and has no backslash before it. Some servers do not write
/// backslashes: if there is no such quote, the next quote closes the text.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let [b'"', inner @ ..] = text else { return None };
    let parts = |end: usize| (&inner[..end], &inner[end + 1..]);
    let mut from = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &inner[from..]) {
        let at = from + found;
        match (inner[at], inner.get(at + 1)) {
            (b'\\', None) => break,
            (b'\\', Some(_)) => from = at + 2,
            (_, None | Some(b' ')) => return Some(parts(at)),
            _ => from = at + 1,
        }
        if from > inner.len() {
            break;
        }
    }
    memchr::memchr(b'"', inner).map(parts)
}

/// Whether a text ends with a port, such as `example.com:443`.
fn has_port(text: &[u8]) -> bool {
    let mut parts = text.rsplitn(2, |byte| *byte == b':');
    let port = parts.next().unwrap_or_default();
    let host = parts.next().unwrap_or_default();
    !host.is_empty() && !port.is_empty() && port.len() <= 5 && port.iter().all(u8::is_ascii_digit)
}
