//! Splits request lines and targets into method, host, path and query.

use super::batch::Batch;
use crate::entry::Slot;

/// Adds method, host, path and query of `GET /path?query HTTP/1.1` to a batch. Other content, such as the first bytes
/// of a TLS handshake, becomes an unknown method or a path.
pub(super) fn put_request(batch: &mut Batch, line: &[u8]) {
    let line = line.trim_ascii();
    if line.is_empty() || line == b"-" {
        return;
    }
    let Some(blank) = memchr::memchr(b' ', line) else {
        match line.first() {
            Some(b'/') => put_target(batch, line),
            _ => batch.put(Slot::Method, line),
        }
        return;
    };
    batch.put(Slot::Method, &line[..blank]);
    let rest = line[blank..].trim_ascii_start();
    // A path may contain blanks that the client should have escaped: the version is the text after the last blank.
    let target = match memchr::memrchr(b' ', rest) {
        Some(last) if rest[last..].starts_with(b" HTTP/") => rest[..last].trim_ascii_end(),
        _ if rest.starts_with(b"HTTP/") => b"",
        _ => rest,
    };
    put_target(batch, target);
}

/// Adds host, path and query of a path or a URL to a batch.
pub(super) fn put_target(batch: &mut Batch, target: &[u8]) {
    let mut target = target;
    if let Some(rest) = without_scheme(target) {
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
        put_host(batch, host);
        target = path;
    }
    if target.is_empty() {
        return;
    }
    let (path, query) = match memchr::memchr(b'?', target) {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    };
    if !path.is_empty() {
        batch.put(Slot::Path, path);
    }
    if let Some(query) = query {
        batch.put(Slot::Query, query);
    }
}

/// Adds a host to a batch, unless it is empty or `-`.
pub(super) fn put_host(batch: &mut Batch, host: &[u8]) {
    if !host.is_empty() && host != b"-" {
        batch.put(Slot::Host, host);
    }
}

fn without_scheme(target: &[u8]) -> Option<&[u8]> {
    if target.first() == Some(&b'/') {
        return None;
    }
    ["http://", "https://", "ws://", "wss://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    })
}
