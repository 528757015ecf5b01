//! An HTTP request as the policy reads it.
//!
//! All data is borrowed: reading a request allocates nothing.
//!
//! Not here: the client's address (`client_address`).

use std::net::IpAddr;

use http::header::HOST;
use http::request::Parts;
use tollgate::Request;
use tollgate::policy::without_port;

use crate::identity::Identity;

/// The head of an HTTP request with the client address.
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
    /// Creates the view of a request from this client. An [`Identity`] in its extensions is
    /// trusted.
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

    /// The host of the request line takes precedence over `Host` (RFC 9112, 3.2.2). Some services
    /// use the header instead, see [`other_host`](Request::other_host).
    fn host(&self) -> Option<&str> {
        let written = || std::str::from_utf8(self.parts.headers.get(HOST)?.as_bytes()).ok();
        self.parts.uri.host().or_else(written)
    }

    /// Returns the first `Host` line that names a different host than [`host`](Request::host). A
    /// service that reads the header would use it.
    fn other_host(&self) -> Option<&str> {
        let host = self.host().map(without_port);
        let lines = self.parts.headers.get_all(HOST).iter();
        let mut written = lines.filter_map(|line| std::str::from_utf8(line.as_bytes()).ok());
        written.find(|it| host.is_none_or(|host| !host.eq_ignore_ascii_case(without_port(it))))
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

    /// Over HTTP/2 each cookie may have its own line (RFC 9113, 8.2.3).
    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        self.parts.headers.get_all(name).iter().nth(index).map(http::HeaderValue::as_bytes)
    }

    fn visit_header<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r [u8])) {
        self.parts.headers.get_all(name).iter().for_each(|line| visit(line.as_bytes()));
    }

    /// Whether there is an [`Identity`], even an empty one: authentication has run.
    fn is_identified(&self) -> bool {
        self.identity.is_some()
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

    fn visit_claim<'r>(&'r self, name: &str, visit: &mut dyn FnMut(&'r str)) {
        let claims = self.identity.map_or(&[][..], |identity| &identity.claims);
        claims.iter().filter(|(known, _)| known == name).for_each(|(_, value)| visit(value));
    }
}

#[cfg(test)]
mod tests {
    use http::request::Builder;
    use tollgate::Limiter;

    use super::*;

    fn admits(limiter: &Limiter, request: Builder) -> bool {
        let (parts, ()) = request.body(()).unwrap().into_parts();
        limiter.check(&HttpRequest::new(&parts, None)).is_allowed()
    }

    #[test]
    fn headers_add_no_plan_to_an_empty_identity() {
        let policy =
            "plans: {from: header:X-Plan}\nlimits: [{by: global, bucket: 9/day, plans: {gone: blocked}}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let claimed = || http::Request::get("/").header("x-plan", "gone");
        assert!(!admits(&limiter, claimed()), "without an identity the header counts");
        assert!(admits(&limiter, claimed().extension(Identity::new())));
    }

    #[test]
    fn a_verified_claim_still_names_the_user() {
        let policy = "identify: {user: ['claim:sub']}\nlimits: [{by: user, missing: refuse, bucket: 9/day}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        assert!(admits(&limiter, http::Request::get("/").extension(Identity::new().claim("sub", "ann"))));
    }

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
    fn the_request_line_takes_precedence_over_the_host_header() {
        check_host("/x", Some(b"example.com:8080"), Some("example.com:8080"));
        check_host("http://example.com:8080/x", Some(b"other.test"), Some("example.com"));
        check_host("http://[2001:db8::1]:80/x", None, Some("[2001:db8::1]"));
        check_host("/x", Some(b"\xff\xfe"), None);
        check_host("/x", None, None);
    }

    #[track_caller]
    fn check_other_host(uri: &str, lines: &[&[u8]], expected: Option<&str>) {
        let request = http::Request::builder().uri(uri);
        let request = lines.iter().fold(request, |request, line| request.header("host", *line));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        assert_eq!(HttpRequest::new(&parts, None).other_host(), expected, "{uri} {lines:?}");
    }

    #[test]
    fn hosts_are_compared_without_case_and_port() {
        check_other_host("/x", &[], None);
        check_other_host("/x", &[b"a.test"], None);
        check_other_host("/x", &[b"a.test:80", b"A.TEST:8080", b"b.test"], Some("b.test"));
        check_other_host("/x", &[b"\xff", b"b.test"], Some("b.test"));
        check_other_host("http://a.test/x", &[], None);
        check_other_host("http://a.test:80/x", &[b"A.test:8080"], None);
        check_other_host("http://a.test/x", &[b"b.test:80"], Some("b.test:80"));
        check_other_host("http://a.test/x", &[b"a.test", b"b.test"], Some("b.test"));
        check_other_host("http://[2001:db8::1]:80/x", &[b"[2001:DB8::1]"], None);
        check_other_host("http://[2001:db8::1]/x", &[b"[2001:db8::2]"], Some("[2001:db8::2]"));
    }

    #[test]
    fn both_host_names_of_a_request_count_against_limits_by_host() {
        let policy = "limits: [{host: api.example.com, by: global, bucket: 3/day}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let get = |uri: &str, hosts: &[&str]| {
            let request = http::Request::get(uri);
            admits(&limiter, hosts.iter().fold(request, |request, host| request.header("host", *host)))
        };
        assert!(get("http://other.test/", &["api.example.com"]));
        assert!(get("http://api.example.com/", &["other.test"]));
        assert!(get("/", &["other.test", "api.example.com"]));
        assert!(!get("http://other.test/", &["api.example.com"]), "all three have counted, once each");
        assert!(get("/", &["other.test"]));
    }

    #[test]
    fn cookies_are_found_on_every_line() {
        let policy = "limits: [{by: 'cookie:sid', missing: refuse, bucket: 1/day}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let get = |sid: &str| {
            let request = http::Request::get("/").header("cookie", "theme=dark");
            admits(&limiter, request.header("cookie", format!("sid={sid}")))
        };
        assert!(get("ann"));
        assert!(!get("ann"));
        assert!(get("bob"), "another cookie is another caller");
    }

    #[test]
    fn callers_with_several_credentials_share_one_allowance() {
        let limiter = Limiter::from_policy("limits: [{by: api_key, missing: skip, bucket: 1/day}]").unwrap();
        let get = |key: &str, token: &str| {
            let request = http::Request::get("/").header("x-api-key", "own").header("x-api-key", key);
            admits(&limiter, request.header("authorization", format!("Bearer {token}")))
        };
        assert!(get("a", "1"));
        assert!(!get("b", "2"));
        assert!(get("own", "3"), "the same key twice is one key");
    }

    #[test]
    fn a_claim_that_was_given_two_values_names_no_caller() {
        let limiter = Limiter::from_policy("limits: [{by: 'claim:org', bucket: 1/day}]").unwrap();
        let get = |org: &str| {
            let identity = Identity::new().claim("org", "acme").claim("org", org);
            admits(&limiter, http::Request::get("/").extension(identity))
        };
        assert!(get("a"));
        assert!(!get("b"));
        assert!(get("acme"));
    }

    #[test]
    fn a_denied_cookie_on_the_second_line_is_denied() {
        let policy = "deny: [{'cookie:sid': stolen}]\nlimits: [{by: global, bucket: 9/day}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let get = |second: &'static str| {
            admits(&limiter, http::Request::get("/").header("cookie", "a=1").header("cookie", second))
        };
        assert!(!get("sid=stolen"));
        assert!(get("sid=own"));
    }

    #[test]
    fn headers_add_no_user_to_an_empty_identity() {
        let policy = "allow: [{user: admin}]\nlimits: [{by: user, missing: refuse, bucket: 9/day}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let claimed = || http::Request::get("/").header("x-user-id", "admin");
        assert!(admits(&limiter, claimed()), "without an identity the header counts");
        assert!(!admits(&limiter, claimed().extension(Identity::new())));

        let limiter = Limiter::from_policy("limits: [{by: user, bucket: 1/day}]").unwrap();
        admits(&limiter, claimed().extension(Identity::new()));
        admits(&limiter, claimed().extension(Identity::new()));
        assert!(admits(&limiter, claimed()), "admin has spent nothing");
    }

    #[test]
    fn a_verified_identity_takes_precedence_over_headers() {
        let policy = "limits: [{by: [user, claim:org], bucket: 1/minute}]";
        let limiter = Limiter::from_policy(policy).unwrap();
        let admitted = |claimed: &str, verified: &str| {
            let identity = Identity::new().user(verified).claim("org", "acme");
            admits(&limiter, http::Request::get("/").header("x-user-id", claimed).extension(identity))
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
