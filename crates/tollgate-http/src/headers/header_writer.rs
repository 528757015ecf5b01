//! Writes several header values into one buffer.
//!
//! A response has six or more rate-limit headers. Separate values would take two allocations each;
//! here they share one buffer.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::decimal::{EIGHT_DIGITS, eight_digits, short_digits};

/// The initial capacity in bytes for values: those of three limits with ordinary names take half of it.
const INITIAL_BYTES: usize = 320;

/// The number of headers that fit without a heap allocation; most responses have fewer.
const INITIAL_HEADERS: usize = 10;

/// A buffer of header values under construction.
pub(super) struct HeaderWriter {
    text: Vec<u8>,
    /// The offset at which the current value starts.
    begin: usize,
    ends: Ends,
    ready: Option<PreparedHeader>,
}

/// A header whose value exists already.
type PreparedHeader = (&'static HeaderName, HeaderValue);

/// The header names, each with the end of its value in the text. A value starts at the end of the
/// previous value.
type Ends = SmallVec<[(&'static HeaderName, usize); INITIAL_HEADERS]>;

/// Header values that are ready to be set. They are kept while the inner service produces its
/// response.
pub(crate) struct PreparedHeaders(HeaderWriter);

impl HeaderWriter {
    pub(super) fn new() -> Self {
        Self { text: Vec::with_capacity(INITIAL_BYTES), begin: 0, ends: SmallVec::new(), ready: None }
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn raw(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Writes the digits of a number.
    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        if number < EIGHT_DIGITS {
            // Adds eight bytes and removes the excess: a copy of variable length would be a call of `memcpy`.
            let (digits, length) = short_digits(number);
            let end = self.text.len() + length;
            self.bytes(&digits);
            self.text.truncate(end);
        } else {
            self.long_number(number);
        }
    }

    fn long_number(&mut self, number: u64) {
        self.number(number / EIGHT_DIGITS);
        self.bytes(&eight_digits(number % EIGHT_DIGITS));
    }

    /// Whether the current value is still empty.
    pub(super) fn is_blank(&self) -> bool {
        self.text.len() == self.begin
    }

    /// Ends the current value and assigns it to `name`. An empty value produces no header, as for
    /// structured fields (RFC 9651, 3.1).
    #[inline]
    pub(super) fn end(&mut self, name: &'static HeaderName) {
        if !self.is_blank() {
            self.begin = self.text.len();
            self.ends.push((name, self.begin));
        }
    }

    /// Writes a number as a complete value.
    pub(super) fn number_for(&mut self, name: &'static HeaderName, number: u64) {
        self.number(number);
        self.end(name);
    }

    /// Writes a constant as a complete value.
    pub(super) fn fixed_for(&mut self, name: &'static HeaderName, value: &'static str) {
        self.raw(value);
        self.end(name);
    }

    /// Sets a value that exists already. Only one such value is kept; an empty value produces no
    /// header.
    pub(super) fn ready_for(&mut self, name: &'static HeaderName, value: HeaderValue) {
        self.ready = Some((name, value)).filter(|(_, value)| !value.is_empty());
    }

    pub(super) fn finish(self) -> PreparedHeaders {
        PreparedHeaders(self)
    }

    /// Sets the headers and replaces existing headers of the same names.
    ///
    /// A full map (32,768 headers) stays unchanged, because inserting would panic.
    pub(super) fn set(&mut self, headers: &mut HeaderMap) {
        // Grows the map once.
        let _full = headers.try_reserve(self.ends.len() + 1);
        if let Some((name, value)) = self.ready.take() {
            let _full = headers.try_insert(name, value);
        }
        let (mut text, mut begin) = (Bytes::from(std::mem::take(&mut self.text)), 0);
        for &(name, end) in &self.ends {
            // The last value takes the rest of the text, without another reference to it.
            if let Ok(value) = HeaderValue::from_maybe_shared(text.split_to(end - begin)) {
                let _full = headers.try_insert(name, value);
            }
            begin = end;
        }
    }
}

impl PreparedHeaders {
    /// Sets the headers and replaces existing headers of the same names.
    pub(crate) fn set(mut self, headers: &mut HeaderMap) {
        self.0.set(headers);
    }

    /// Appends the headers as lines of HTTP/1.1.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut line = |name: &HeaderName, value: &[u8]| {
            out.extend_from_slice(name.as_str().as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        };
        if let Some((name, value)) = &self.0.ready {
            line(name, value.as_bytes());
        }
        let mut begin = 0;
        for (at, (name, end)) in self.0.ends.iter().enumerate() {
            // As in a map, the last value of a name counts.
            if !self.0.ends[at + 1..].iter().any(|later| later.0.as_str() == name.as_str()) {
                line(name, &self.0.text[begin..*end]);
            }
            begin = *end;
        }
    }

    /// Whether there is a header of this name, in any case.
    pub(crate) fn contains(&self, name: &str) -> bool {
        let is_same = |known: &HeaderName| {
            let known = known.as_str();
            known.len() == name.len() && known.eq_ignore_ascii_case(name)
        };
        self.0.ready.as_ref().is_some_and(|it| is_same(it.0)) || self.0.ends.iter().any(|it| is_same(it.0))
    }
}
