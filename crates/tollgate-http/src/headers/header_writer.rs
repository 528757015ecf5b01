//! Several header values, written one after another into one piece of memory.
//!
//! An answer has six of them or more, and each on its own would cost two
//! allocations; together they share theirs.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

/// Room for the values beside the names of limits: numbers, mostly.
const INITIAL_BYTES: usize = 256;

/// As many headers as most answers get.
const INITIAL_HEADERS: usize = 10;

/// Header values in the making.
pub(super) struct HeaderWriter {
    text: Vec<u8>,
    ends: Ends,
    ready: Option<PreparedHeader>,
}

/// A header whose value was made before.
type PreparedHeader = (&'static HeaderName, HeaderValue);

/// Which headers there are, and where in the text each of their values ends: it
/// begins where the one before has ended.
type Ends = SmallVec<[(&'static HeaderName, usize); INITIAL_HEADERS]>;

/// Header values, ready to be set. Kept while the service behind works on its answer.
pub(crate) struct PreparedHeaders {
    text: Bytes,
    ends: Ends,
    ready: Option<PreparedHeader>,
}

impl HeaderWriter {
    /// For limits whose names are this long together.
    pub(super) fn new(names: usize) -> Self {
        // Each name stands in two lists.
        let text = Vec::with_capacity(INITIAL_BYTES + 2 * names);
        Self { text, ends: SmallVec::new(), ready: None }
    }

    #[inline]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    #[inline]
    pub(super) fn raw(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    #[inline]
    pub(super) fn number(&mut self, number: u64) {
        self.raw(itoa::Buffer::new().format(number));
    }

    /// Where the value that is being written begins.
    fn begin(&self) -> usize {
        self.ends.last().map_or(0, |(_, end)| *end)
    }

    /// Whether nothing of this value has been written yet.
    pub(super) fn is_blank(&self) -> bool {
        self.text.len() == self.begin()
    }

    /// What was written since the last end is the value of this header. An empty
    /// value is no header, as it is of structured fields (RFC 9651, 3.1).
    pub(super) fn end(&mut self, name: &'static HeaderName) {
        if !self.is_blank() {
            self.ends.push((name, self.text.len()));
        }
    }

    /// A whole value that is a number.
    pub(super) fn number_for(&mut self, name: &'static HeaderName, number: u64) {
        self.number(number);
        self.end(name);
    }

    /// A whole value that is always the same.
    pub(super) fn fixed_for(&mut self, name: &'static HeaderName, value: &'static str) {
        self.raw(value);
        self.end(name);
    }

    /// A value that was made before, the only one of its kind. Empty is none.
    pub(super) fn ready_for(&mut self, name: &'static HeaderName, value: HeaderValue) {
        self.ready = Some((name, value)).filter(|(_, value)| !value.is_empty());
    }

    pub(super) fn finish(self) -> PreparedHeaders {
        PreparedHeaders { text: Bytes::from(self.text), ends: self.ends, ready: self.ready }
    }
}

impl PreparedHeaders {
    /// Sets the headers, in place of any of these names.
    ///
    /// A map that is full (32,768 headers, from a service gone mad) stays as it
    /// is: the alternative is a panic.
    pub(crate) fn set(self, headers: &mut HeaderMap) {
        // Grown once instead of on the way.
        let _full = headers.try_reserve(self.ends.len() + 1);
        if let Some((name, value)) = self.ready {
            let _full = headers.try_insert(name, value);
        }
        let mut begin = 0;
        for (name, end) in &self.ends {
            if let Ok(value) = HeaderValue::from_maybe_shared(self.text.slice(begin..*end)) {
                let _full = headers.try_insert(*name, value);
            }
            begin = *end;
        }
    }
}
