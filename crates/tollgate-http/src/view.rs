//! An HTTP request as a policy sees it.
//!
//! Everything is borrowed: looking at a request allocates nothing.
//!
//! Not here: which address is the client's (`client_address`).

use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use tollgate::Request;

use crate::identity::Identity;

/// The head of an HTTP request, with the client's address settled.
///
/// ```
/// # use tollgate::Request as _;
/// # use tollgate_http::HttpRequest;
/// let request = http::Request::get("/search?q=x").header("Host", "example.com").body(()).unwrap();
/// let (parts, ()) = request.into_parts();
/// let view = HttpRequest::new(&parts, Some([203, 0, 113, 9].into()));
/// assert_eq!((view.path(), view.query(), view.host()), ("/search", Some("q=x"), Some("example.com")));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpRequest<'a> {
    parts: &'a Parts,
    client: Option<IpAddr>,
    identity: Option<&'a Identity>,
}

impl<'a> HttpRequest<'a> {
    /// A request from this client. An [`Identity`] in its extensions is believed.
    pub fn new(parts: &'a Parts, client: Option<IpAddr>) -> Self {
        Self { parts, client, identity: parts.extensions.get() }
    }
}

impl Request for HttpRequest<'_> {
    fn method(&self) -> &str {
        self.parts.method.as_str()
    }

    fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// What the request line asks for goes before `Host` (RFC 9112, 3.2.2), so a
    /// caller cannot show one host to the policy and another to the service.
    fn host(&self) -> Option<&str> {
        let written = || std::str::from_utf8(self.parts.headers.get(HOST)?.as_bytes()).ok();
        self.parts.uri.host().or_else(written)
    }

    fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.parts.headers.get(name).map(http::HeaderValue::as_bytes)
    }

    fn user(&self) -> Option<&str> {
        self.identity?.user.as_deref()
    }

    fn api_key(&self) -> Option<&str> {
        self.identity?.api_key.as_deref()
    }

    fn tenant(&self) -> Option<&str> {
        self.identity?.tenant.as_deref()
    }

    fn plan(&self) -> Option<&str> {
        self.identity?.plan.as_deref()
    }

    fn claim(&self, name: &str) -> Option<&str> {
        self.identity?.claims.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_host(uri: &str, host: Option<&[u8]>, expected: Option<&str>) {
        let mut request = http::Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(HttpRequest::new(&parts, None).host(), expected, "{uri} {host:?}");
    }

    #[test]
    fn the_request_line_goes_before_the_host_header() {
        check_host("/x", Some(b"example.com:8080"), Some("example.com:8080"));
        check_host("http://example.com:8080/x", Some(b"other.test"), Some("example.com"));
        check_host("http://[2001:db8::1]:80/x", None, Some("[2001:db8::1]"));
        check_host("/x", Some(b"\xff\xfe"), None);
        check_host("/x", None, None);
    }

    #[test]
    fn a_verified_identity_goes_before_what_headers_claim() {
        let policy = "limits: [{by: [user, claim:org], bucket: 1/minute}]";
        let limiter = tollgate::Limiter::from_policy(policy).unwrap();
        let admitted = |claimed: &str, verified: &str| {
            let identity = Identity::new().user(verified).claim("org", "acme");
            let request = http::Request::get("/").header("x-user-id", claimed).extension(identity);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            limiter.check(&HttpRequest::new(&parts, None)).is_allowed()
        };
        assert!(admitted("eve", "ann"));
        assert!(!admitted("mallory", "ann"), "another header is not another user");
        assert!(admitted("eve", "bob"));
    }

    #[test]
    fn the_first_value_of_a_header_counts_whatever_its_bytes() {
        let request = http::Request::get("/").header("x-id", &b"\xc3\x28"[..]).header("X-Id", "second");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(HttpRequest::new(&parts, None).header("x-id"), Some(&b"\xc3\x28"[..]));
        assert_eq!(HttpRequest::new(&parts, None).header("not a name"), None);
    }
}
