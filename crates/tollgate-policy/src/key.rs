//! Keys of allowances, in an unambiguous encoding.
//!
//! Each part of a key is a tag, a length and that many bytes. Different lists of parts
//! therefore have different encodings, and the replacement for a missing part never equals a real
//! part. Parts are bounded: a longer part is stored as its SHA-256 digest, under a tag of its
//! own.
//!
//! `redact` hides keys in responses and logs.
//!
//! Invariants: different parts have different bytes; a part takes at most [`MAX_PART_BYTES`] and a
//! few bytes of overhead. Tested by `tests/keys.rs`.

use std::fmt::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

use crate::net::Net;
use crate::source::KeySource;
use tollgate_document::sanitize;

/// The maximum length of a part in bytes. A longer part is stored as its digest.
pub const MAX_PART_BYTES: usize = 128;
/// Keys up to this length need no heap. With it, a check fits 128 bytes, which compilers
/// move without calling `memcpy`.
const INLINE_BYTES: usize = 80;
/// The maximum number of bytes of a key that are shown.
const MAX_SHOWN_BYTES: usize = 256;

/// The key of an allowance: canonical, unambiguous and bounded.
///
/// ```
/// # use tollgate_policy::{Call, Checks, Policy};
/// let policy = Policy::parse("limits: [{by: [user, api_key], bucket: 10/minute}]")?;
/// let mut checks = Checks::new();
/// policy.match_request(&Call::new("GET", "/").user("ann").api_key("k\n1"), &mut checks);
/// assert_eq!(checks[0].key.display().to_string(), "ann, k\\n1");
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(SmallVec<[u8; INLINE_BYTES]>);

impl Clone for Key {
    fn clone(&self) -> Self {
        // One copy, where `SmallVec::clone` pushes byte by byte.
        Self(SmallVec::from_slice(&self.0))
    }
}

pub(crate) mod tag {
    //! Tags are letters, so that a key in a dump is recognizable. The tag of a digest is the
    //! upper-case letter.
    pub(crate) const USER: u8 = b'u';
    pub(crate) const API_KEY: u8 = b'k';
    pub(crate) const TENANT: u8 = b't';
    pub(crate) const HEADER: u8 = b'h';
    pub(crate) const COOKIE: u8 = b'c';
    pub(crate) const QUERY: u8 = b'q';
    pub(crate) const PATH: u8 = b'p';
    pub(crate) const CLAIM: u8 = b'j';
    pub(crate) const GLOBAL: u8 = b'g';
    pub(crate) const IP: u8 = b'i';
    /// A key that the caller passed, instead of a request.
    pub(crate) const NAMED: u8 = b'n';
    /// The name of a descriptor entry; the value follows under its own tag.
    pub(crate) const WORD: u8 = b'w';
    pub(crate) const ENTRY: u8 = b'e';
    /// The address of a caller that lacks the part.
    pub(crate) const INSTEAD: u8 = b'-';
    /// Shared by all callers that lack the part.
    pub(crate) const SHARED: u8 = b'*';
    /// The caller lacks the part, and its address is unknown.
    pub(crate) const UNKNOWN: u8 = b'?';
}

impl Key {
    /// Returns the encoded key, which every store uses.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads a key that [`as_bytes`](Self::as_bytes) has returned. `None` if the bytes are no key.
    ///
    /// ```
    /// # use tollgate_policy::Key;
    /// let key = Key::named(b"ann");
    /// assert_eq!(Key::from_bytes(key.as_bytes()), Some(key));
    /// assert_eq!(Key::from_bytes(b"ann"), None);
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let key = Self(SmallVec::from_slice(bytes));
        let headers = |length: usize| if length < 0x80 { 2 } else { 3 };
        let read: usize = key.parts().map(|(_, part)| headers(part.len()) + part.len()).sum();
        (read == bytes.len()).then_some(key)
    }

    /// Creates a key from bytes that another process encoded. It is compared with keys of requests, and
    /// not shown.
    pub(crate) fn from_encoded(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }

    /// Formats the key for people: parts joined by `, `, control characters escaped, long keys cut.
    pub fn display(&self) -> impl fmt::Display + '_ {
        KeyDisplay(self)
    }

    /// Whether a part that the request lacked was replaced by the client address, or by one key for all
    /// such requests.
    pub fn has_stand_in(&self) -> bool {
        self.parts().any(|(tag, _)| matches!(tag, tag::INSTEAD | tag::SHARED | tag::UNKNOWN))
    }

    /// Creates a key from a name that the caller passes, instead of a request.
    pub fn named(name: &[u8]) -> Self {
        let mut key = Self::default();
        key.push_bounded(tag::NAMED, name);
        key
    }

    /// Creates a key from a name in a numbered database, each of which has its own keys.
    pub fn named_in(database: u8, name: &[u8]) -> Self {
        let mut key = Self::default();
        key.push_bounded(tag::WORD, format!("db{database}").as_bytes());
        key.push_bounded(tag::NAMED, name);
        key
    }

    /// Creates the key of a descriptor: a part for each name and value, in order.
    pub fn of_entries<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut key = Self::default();
        key.push_entries(entries);
        key
    }

    pub(crate) fn push_entries<'a>(&mut self, entries: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (word, value) in entries {
            self.push_bounded(tag::WORD, word.as_bytes());
            self.push_bounded(tag::ENTRY, value.as_bytes());
        }
    }

    pub(crate) fn push_value(&mut self, source: &KeySource, value: &[u8]) {
        let tag = match source {
            KeySource::Ip | KeySource::Global | KeySource::Descriptor => tag::GLOBAL,
            KeySource::User => tag::USER,
            KeySource::ApiKey => tag::API_KEY,
            KeySource::Tenant => tag::TENANT,
            KeySource::Header(_) => tag::HEADER,
            KeySource::Cookie(_) => tag::COOKIE,
            KeySource::Query(_) => tag::QUERY,
            KeySource::Path(_) => tag::PATH,
            KeySource::Claim(_) => tag::CLAIM,
            KeySource::Entry(_) => tag::ENTRY,
        };
        self.push_bounded(tag, value);
    }

    /// Pushes a part; a long one as its digest.
    #[inline(never)]
    fn push_bounded(&mut self, tag: u8, value: &[u8]) {
        if value.len() > MAX_PART_BYTES {
            self.push(tag.to_ascii_uppercase(), &Sha256::digest(value));
        } else {
            self.push(tag, value);
        }
    }

    pub(crate) fn push_global(&mut self) {
        self.push(tag::GLOBAL, &[]);
    }

    pub(crate) fn push_address(&mut self, net: Net) {
        self.push_net(tag::IP, net);
    }

    /// Pushes the replacement for a missing part: the client address, if it is known.
    pub(crate) fn push_instead(&mut self, net: Option<Net>) {
        match net {
            Some(net) => self.push_net(tag::INSTEAD, net),
            None => self.push(tag::UNKNOWN, &[]),
        }
    }

    pub(crate) fn push_shared(&mut self) {
        self.push(tag::SHARED, &[]);
    }

    fn push_net(&mut self, tag: u8, net: Net) {
        match net.address() {
            IpAddr::V4(address) => self.push(tag, &address.octets()),
            IpAddr::V6(address) => self.push(tag, &address.octets()),
        }
    }

    // Inlined into the callers with parts of constant length, whose copies are then a few moves.
    #[inline(always)]
    fn push(&mut self, tag: u8, bytes: &[u8]) {
        // Most keys are one short part, which is written in place. Its length takes one byte.
        let end = bytes.len() + 2;
        if self.0.is_empty()
            && end <= INLINE_BYTES
            && let Ok(length) = u8::try_from(bytes.len())
        {
            self.0 = SmallVec::from_buf_and_len([0; INLINE_BYTES], end);
            let whole = &mut self.0[..end];
            (whole[0], whole[1]) = (tag, length);
            whole[2..].copy_from_slice(bytes);
        } else {
            self.push_further(tag, bytes);
        }
    }

    #[inline(never)]
    fn push_further(&mut self, tag: u8, bytes: &[u8]) {
        let length = bytes.len().min(MAX_PART_BYTES);
        self.0.reserve(length + 3);
        self.0.push(tag);
        // LEB128; the bound on parts keeps it to two bytes.
        if let Ok(short @ ..0x80) = u8::try_from(length) {
            self.0.push(short);
        } else {
            self.0.extend_from_slice(&[0x80, 1]);
        }
        self.0.extend_from_slice(&bytes[..length]);
    }

    /// Returns the tag and the bytes of each part.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (length, at) = match rest {
                [_, length @ ..0x80, ..] => (usize::from(*length), 2),
                [_, 0x80, 1, ..] => (MAX_PART_BYTES, 3),
                _ => return None,
            };
            let part = (rest[0], rest.get(at..at + length)?);
            rest = &rest[at + length..];
            Some(part)
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.display())
    }
}

struct KeyDisplay<'k>(&'k Key);

impl fmt::Display for KeyDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = CappedWriter { out: f, left: MAX_SHOWN_BYTES };
        let mut before = None;
        let mut parts = self.0.parts();
        let all = parts.try_for_each(|(tag, bytes)| {
            out.write_str(joint(before.replace(tag)))?;
            show_part(tag, bytes, &mut out)
        });
        match all {
            // The cap stopped the output, not the reader.
            Err(fmt::Error) if out.left == 0 => f.write_str("..."),
            other => other,
        }
    }
}

/// Returns the separator before a part: the name and the value of an entry belong together.
pub(crate) const fn joint(before: Option<u8>) -> &'static str {
    match before {
        None => "",
        Some(tag) if tag.eq_ignore_ascii_case(&tag::WORD) => "=",
        Some(_) => ", ",
    }
}

pub(crate) fn show_part(tag: u8, bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    match tag {
        tag::GLOBAL => out.write_str("everyone"),
        tag::SHARED => out.write_str("without"),
        tag::UNKNOWN => out.write_str("unknown client"),
        tag::IP => show_address(bytes, out),
        tag::INSTEAD => {
            out.write_str("client ")?;
            show_address(bytes, out)
        }
        _ if tag.is_ascii_uppercase() => {
            out.write_str("sha256:")?;
            bytes.iter().take(8).try_for_each(|byte| write!(out, "{byte:02x}"))
        }
        _ => String::from_utf8_lossy(bytes).chars().try_for_each(|char| match char {
            '\\' => out.write_str("\\\\"),
            _ => sanitize::show(char, out),
        }),
    }
}

fn show_address(bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        write!(out, "{}", Ipv4Addr::from(octets))
    } else if let Ok(octets) = <[u8; 16]>::try_from(bytes) {
        write!(out, "{}", Ipv6Addr::from(octets))
    } else {
        Ok(())
    }
}

/// Forwards a limited number of bytes, then fails.
struct CappedWriter<'o, 'f> {
    out: &'o mut fmt::Formatter<'f>,
    left: usize,
}

impl fmt::Write for CappedWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > self.left {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= text.len();
        self.out.write_str(text)
    }
}
