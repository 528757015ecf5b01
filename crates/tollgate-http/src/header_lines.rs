//! The header lines of a request, in a map or in a buffer.
//!
//! The tower layer has a `HeaderMap`; the HTTP/1.1 path of the gateway has the bytes of the head. Code that reads headers
//! takes this trait, so that both share one implementation.

use http::HeaderMap;

/// The header lines of a request.
pub trait HeaderLines {
    /// Iterates over the lines of a header in order. `name` is in lower case.
    fn lines<'h>(&'h self, name: &str) -> impl DoubleEndedIterator<Item = &'h [u8]>;

    /// Returns the first line of a header. `name` is in lower case.
    fn first_line(&self, name: &str) -> Option<&[u8]>;
}

impl HeaderLines for HeaderMap {
    fn lines<'h>(&'h self, name: &str) -> impl DoubleEndedIterator<Item = &'h [u8]> {
        self.get_all(name).into_iter().map(http::HeaderValue::as_bytes)
    }

    fn first_line(&self, name: &str) -> Option<&[u8]> {
        self.get(name).map(http::HeaderValue::as_bytes)
    }
}
