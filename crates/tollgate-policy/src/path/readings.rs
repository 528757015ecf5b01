//! The readings of a path: all paths that upstream servers may interpret it as.
//!
//! The caller chooses the spelling of a path, and the server chooses its meaning. Limits
//! apply under every reading, so no spelling bypasses a limit.
//!
//! | in the path | readings |
//! |---|---|
//! | `%2F`, `%5C`, `\`, `;x`, `%3F`, `%23`, `%00`, `%09`, `%0A`, `%0D`, `%u002F`, `%C0%AF` | see `decoding` |
//! | `.` and `..` | text, or resolved: with empty segments merged first, or last |
//! | `//` | an empty segment, or one slash; at the front also an authority, as in `new URL(target, base)` |
//! | blanks, control characters and dots at the end of a segment | text, or removed, as on Windows and with patterns that end in `$` |
//! | `/` at the end | text, or removed |
//!
//! Invariant: a path without any of these has one reading, which is borrowed.
//! Tested by `tests/readings.rs` against models of servers.

use std::borrow::Cow;

use super::decoding::{Decoding, escape, is_escaped_twice};
use super::{case, normal, plain, segments};
use crate::settings::PathSettings;

/// The maximum number of bytes written for the readings of one path. A path that would need more is
/// refused: only a hostile path is that long and that ambiguous.
const MAX_WRITTEN_BYTES: usize = 64 * 1024;

/// All readings of one path.
///
/// ```
/// # use tollgate_policy::path::Readings;
/// # use tollgate_policy::PathSettings;
/// let readings = Readings::of("/x%2f..%2flogin", PathSettings::default());
/// assert!(readings.iter().any(|it| it == "/login") && readings.is_ambiguous());
/// let readings = Readings::of("/login", PathSettings::default());
/// assert!(readings.iter().eq(["/login"]) && !readings.is_ambiguous());
/// ```
#[derive(Clone, Debug)]
pub struct Readings<'p> {
    first: Cow<'p, str>,
    others: Vec<String>,
    is_ambiguous: bool,
    is_excessive: bool,
}

impl<'p> Readings<'p> {
    /// Computes the readings of a path. A query or fragment is removed.
    pub fn of(path: &'p str, settings: PathSettings) -> Self {
        match plain(path, settings) {
            Some(path) => Self::single(Cow::Borrowed(path)),
            None => Self::of_unusual(path, settings),
        }
    }

    const fn single(path: Cow<'p, str>) -> Self {
        Self { first: path, others: Vec::new(), is_ambiguous: false, is_excessive: false }
    }

    fn of_unusual(path: &'p str, settings: PathSettings) -> Self {
        let end = path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len());
        let path = &path[..end];
        let decodings = Decoding::all(path.as_bytes(), settings.reading);
        let is_escaped_twice = is_escaped_twice(path);
        let mut all = Self { is_ambiguous: is_escaped_twice, ..Readings::single(Cow::Borrowed("")) };
        let count = decodings.clone().count();
        let sent_on = without_dot_segments(path);
        let written = count * (1 + usize::from(sent_on.is_some()));
        if count > 1 && written.saturating_mul(path.len()) > MAX_WRITTEN_BYTES {
            all.first = normal(path);
            (all.is_ambiguous, all.is_excessive) = (true, true);
            return all;
        }
        let is_literal = count == 1 && decodings.clone().all(|it| it == Decoding::LITERAL);
        if is_literal && path.starts_with('/') && !segments(path).any(is_disputed) {
            let only = normal(path);
            let only = if settings.ignore_case { Cow::Owned(case::fold(&only)) } else { only };
            return Self { is_ambiguous: is_escaped_twice, ..Self::single(only) };
        }
        // The path as received, then as a gateway in front of the server forwards it.
        for path in [Some(path), sent_on.as_deref()].into_iter().flatten() {
            for decoding in decodings.clone() {
                let mut text = decoding.write(path);
                if !text.starts_with('/') {
                    text.insert(0, '/');
                }
                all.add(&text, settings);
            }
        }
        all
    }

    /// Adds the readings of a decoded path.
    fn add(&mut self, text: &str, settings: PathSettings) {
        self.add_resolved(text, settings);
        if settings.reading.is_declared() {
            return;
        }
        if text.starts_with("//") {
            let rest = text.trim_start_matches('/');
            self.add_resolved(rest.find('/').map_or("/", |at| &rest[at..]), settings);
        }
        for trim in [trimmed_end, trimmed] {
            if text.split('/').any(|segment| trim(segment).len() < segment.len()) {
                let segments: Vec<_> = text.split('/').map(trim).collect();
                self.add_spelling(resolved(&segments.join("/")), settings);
            }
        }
    }

    /// Adds the path with dot segments and empty segments removed, in either order, and kept.
    fn add_resolved(&mut self, text: &str, settings: PathSettings) {
        self.add_place(resolved(text), settings);
        let has_dots = text.split('/').any(|it| matches!(it, "." | ".."));
        if has_dots {
            let late = resolved_before_merging(text);
            self.add_place(merged(text), settings);
            self.add_place(merged(&late), settings);
            self.add_spelling(late, settings);
        }
        if has_dots || text.contains("//") || text.ends_with('/') {
            self.add_spelling(text.to_owned(), settings);
        }
    }

    /// Adds a new reading that refers to a different resource.
    fn add_place(&mut self, path: String, settings: PathSettings) {
        let path = if settings.ignore_case { case::fold(&path) } else { path };
        if self.first.is_empty() {
            self.first = Cow::Owned(path);
        } else if *self.first != *path {
            self.is_ambiguous = true;
            self.push(path);
        }
    }

    /// Adds a reading that servers treat as the same resource, or as none.
    fn add_spelling(&mut self, path: String, settings: PathSettings) {
        self.push(if settings.ignore_case { case::fold(&path) } else { path });
    }

    fn push(&mut self, path: String) {
        if !self.iter().any(|known| known == path) {
            self.others.push(path);
        }
    }

    /// Returns the distinct readings. In the first one, escapes of separators are text and
    /// dot segments are resolved, unless the settings declare another reading.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        std::iter::once(&*self.first).chain(self.others.iter().map(String::as_str))
    }

    /// Returns the first reading, if it is the only one.
    pub(crate) fn only(&self) -> Option<&str> {
        self.others.is_empty().then_some(&self.first)
    }

    /// Whether servers may interpret the path as different resources, including servers that decode
    /// escapes twice, whose interpretation is not among the readings. Empty segments, a trailing slash, and blanks and dots at the end of a segment do not count: well-behaved clients send
    /// them and are not refused, and limits apply under those readings too.
    pub const fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Whether the path has too many readings. The request must be refused.
    pub const fn is_excessive(&self) -> bool {
        self.is_excessive
    }
}

/// Whether a segment, as received, gives the path several readings.
fn is_disputed(segment: &str) -> bool {
    let bytes = segment.as_bytes();
    let is_edge = |byte: u8| byte <= b' ' || byte == 0x7F;
    let first = escape(bytes).or(bytes.first().copied());
    let last = match bytes {
        [.., b'%', high, low] => escape(&[b'%', *high, *low]),
        _ => bytes.last().copied(),
    };
    bytes.is_empty() || first.is_some_and(is_edge) || last.is_some_and(|it| is_edge(it) || it == b'.')
}

/// Returns the path without dot segments, each `..` removed with its predecessor, and without empty
/// segments. Other segments are unchanged. `None` if the path has no dot segments.
///
/// A gateway forwards this form, so that the upstream server has no dots to resolve.
///
/// ```
/// # use tollgate_policy::path::without_dot_segments;
/// assert_eq!(without_dot_segments("/a/%2E%2e/b%3Bc").as_deref(), Some("/b%3Bc"));
/// assert_eq!(without_dot_segments("/a/.").as_deref(), Some("/a/"));
/// assert_eq!(without_dot_segments("/.well-known//x"), None);
/// ```
pub fn without_dot_segments(path: &str) -> Option<String> {
    // Dots and escapes are rare, so the second scan rarely runs.
    if !path.bytes().any(|byte| matches!(byte, b'.' | b'%')) || !path.split('/').any(|it| dots(it) > 0) {
        return None;
    }
    let mut out = String::with_capacity(path.len() + 1);
    let mut is_folder = false;
    for segment in path.split('/') {
        is_folder = segment.is_empty() || dots(segment) > 0;
        match dots(segment) {
            2 => out.truncate(out.rfind('/').unwrap_or(0)),
            0 if !segment.is_empty() => {
                out.push('/');
                out.push_str(segment);
            }
            _ => {}
        }
    }
    if is_folder || out.is_empty() {
        out.push('/');
    }
    Some(out)
}

/// Returns the number of dots of a dot segment, escaped or not; zero for other segments.
fn dots(segment: &str) -> usize {
    let (mut rest, mut count) = (segment, 0);
    while !rest.is_empty() {
        let escape = rest.get(..3).filter(|it| it.eq_ignore_ascii_case("%2e"));
        rest = match (rest.strip_prefix('.'), escape) {
            (Some(rest), _) => rest,
            (None, Some(_)) => &rest[3..],
            (None, None) => return 0,
        };
        count += 1;
    }
    if count <= 2 { count } else { 0 }
}

/// Removes empty and dot segments, `..` with its predecessor.
pub(super) fn resolved(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or(0)),
            _ => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    rooted(out)
}

/// Removes dot segments as in RFC 3986, 5.2.4: `..` removes a preceding empty segment.
fn resolved_before_merging(text: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_dots = false;
    for segment in text.split('/').skip(1) {
        ends_in_dots = matches!(segment, "." | "..");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    if ends_in_dots {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Removes empty segments.
fn merged(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for segment in text.split('/').filter(|it| !it.is_empty()) {
        out.push('/');
        out.push_str(segment);
    }
    rooted(out)
}

fn rooted(mut path: String) -> String {
    if path.is_empty() {
        path.push('/');
    }
    path
}

/// Removes blanks and control characters on both sides of a segment, and dots at its end
/// unless it is a dot segment.
fn trimmed(segment: &str) -> &str {
    let mut rest = segment;
    while is_blank(rest) {
        rest = &rest[3..];
    }
    trimmed_end(rest)
}

/// Removes blanks, control characters and dots at the end of a segment.
fn trimmed_end(segment: &str) -> &str {
    let mut rest = segment;
    loop {
        let tail = rest.len().checked_sub(3).and_then(|at| rest.get(at..)).unwrap_or_default();
        rest = if is_blank(tail) {
            &rest[..rest.len() - 3]
        } else if rest.ends_with('.') && !matches!(rest, "." | "..") {
            &rest[..rest.len() - 1]
        } else {
            return rest;
        };
    }
}

/// Whether a normalized text begins with a blank or a control character, which are escapes.
fn is_blank(text: &str) -> bool {
    escape(text.as_bytes()).is_some_and(|byte| byte <= b' ' || byte == 0x7F)
}
