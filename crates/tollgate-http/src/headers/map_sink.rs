//! Header values for a header map.
//!
//! A response has six or more rate-limit headers. Separate values would take two allocations each;
//! here they share one buffer.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::header_sink::{FieldName, HeaderSink};

/// The initial capacity in bytes for values: those of three limits with ordinary names take half of it.
const INITIAL_BYTES: usize = 320;

/// The number of headers that fit without a heap allocation; most responses have fewer.
const INITIAL_HEADERS: usize = 10;

/// Header values in one buffer, which are set together. They are kept while the inner service produces its response.
pub(crate) struct MapSink {
    text: Vec<u8>,
    /// The name of the current header.
    name: Option<&'static HeaderName>,
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

impl MapSink {
    pub(super) fn new() -> Self {
        Self {
            text: Vec::with_capacity(INITIAL_BYTES),
            name: None,
            begin: 0,
            ends: SmallVec::new(),
            ready: None,
        }
    }

    /// Sets the headers and replaces existing headers of the same names.
    ///
    /// A full map (32,768 headers) stays unchanged, because inserting would panic.
    pub(crate) fn set(&mut self, headers: &mut HeaderMap) {
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

impl HeaderSink for MapSink {
    #[inline]
    fn start(&mut self, name: &'static FieldName) {
        self.name = Some(&name.name);
    }

    #[inline]
    fn end(&mut self) {
        if !self.is_blank()
            && let Some(name) = self.name
        {
            self.begin = self.text.len();
            self.ends.push((name, self.begin));
        }
    }

    /// Only one such value is kept.
    fn add(&mut self, name: &'static FieldName, value: &HeaderValue) {
        self.ready = Some((&name.name, value.clone())).filter(|(_, value)| !value.is_empty());
    }

    #[inline]
    fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    #[inline]
    fn is_blank(&self) -> bool {
        self.text.len() == self.begin
    }
}
