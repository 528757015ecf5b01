//! An HTTP/1.1 request as the policy reads it, borrowed from the bytes of its head.
//!
//! The target is in origin form and there is one `Host`, so the request has one host name.

use std::net::IpAddr;

use tollgate::Request;

use crate::header_lines::HeaderLines;

/// The head of an HTTP/1.1 request in a buffer, with the client address.
#[derive(Debug)]
pub struct RawRequest<'a, H> {
    /// The method.
    pub method: &'a str,
    /// The path as received, without the query.
    pub path: &'a str,
    /// The query, which follows the `?`.
    pub query: Option<&'a str>,
    /// The value of the only `Host` header.
    pub host: &'a str,
    /// The client address.
    pub client: Option<IpAddr>,
    /// The headers.
    pub headers: &'a H,
}

// Derived, they would require that the headers can be copied.
impl<H> Clone for RawRequest<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for RawRequest<'_, H> {}

impl<H: HeaderLines> Request for RawRequest<'_, H> {
    fn method(&self) -> &str {
        self.method
    }

    fn path(&self) -> &str {
        self.path
    }

    fn host(&self) -> Option<&str> {
        Some(self.host)
    }

    fn query(&self) -> Option<&str> {
        self.query
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.first_line(name)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        self.headers.lines(name).nth(index)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        self.headers.lines(name).for_each(visit);
    }
}
