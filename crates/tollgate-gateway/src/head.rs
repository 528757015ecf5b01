//! Rewrites the heads of forwarded requests and responses.
//!
//! Requests: one host, one path, no hop-by-hop headers, and the client address. Responses: no
//! hop-by-hop headers (RFC 9110, 7.6).
//!
//! The path is forwarded unchanged except that `.` and `..` are resolved: limits match the resolved
//! path, so the upstream must see the same path.

use std::net::IpAddr;

use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri, Version};
use http_body::Body;
use smallvec::SmallVec;
use tollgate::Policy;
use tollgate::policy::path;
use tollgate_http::{RequestPriority, SoftNotice};

use crate::host::is_host;
use crate::override_headers::is_override;
use crate::problem::Problem;
use crate::settings::Forwarding;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The spellings with an underscore, which some servers read as `Tollgate-Soft` and
/// `Tollgate-Priority`; only the limiter may set those headers.
static UNDERSCORE_MARKS: [HeaderName; 2] =
    [HeaderName::from_static("tollgate_soft"), HeaderName::from_static("tollgate_priority")];

/// The maximum number of headers that the gateway adds.
const MAX_ADDED_HEADERS: usize = 6;

/// The client as upstreams are told. Created once for each connection.
pub(crate) struct Caller {
    pub(crate) address: IpAddr,
    pub(crate) address_text: HeaderValue,
    pub(crate) scheme: HeaderValue,
}

impl Caller {
    pub(crate) fn new(address: IpAddr, secure: bool) -> Self {
        let address = address.to_canonical();
        let text = HeaderValue::try_from(address.to_string());
        Self {
            address,
            // An address contains only characters that are valid in a header.
            address_text: text.unwrap_or_else(|_| HeaderValue::from_static("unknown")),
            scheme: HeaderValue::from_static(if secure { "https" } else { "http" }),
        }
    }
}

/// The number of headers that the client sent, without the marks of the limiter.
pub(crate) fn sent<B>(request: &Request<B>) -> usize {
    let marks = usize::from(request.extensions().get::<SoftNotice>().is_some())
        + usize::from(request.extensions().get::<RequestPriority>().is_some());
    request.headers().len().saturating_sub(marks)
}

/// Prepares the head of a request for an upstream.
pub(crate) fn prepare(
    parts: &mut Parts,
    caller: &Caller,
    forwarding: Forwarding,
    trusts: impl FnOnce(IpAddr) -> bool,
    needs_host: impl FnOnce() -> bool,
) -> Result<(), Problem> {
    if parts.method == Method::CONNECT {
        return Err(Problem::Tunnel);
    }
    if is_otherwise_encoded(&parts.headers) {
        return Err(Problem::Encoding);
    }
    // The asterisk is only for `OPTIONS` (RFC 9112, 3.2.4), and only web schemes are forwarded. A
    // target that is not a path (`GET login`) is parsed as a host and has an empty path.
    let is_web = |scheme: &Scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
    let is_asterisk = parts.uri.path() == "*" && parts.method == Method::OPTIONS;
    if !(parts.uri.path().starts_with('/') || is_asterisk)
        || parts.uri.scheme().is_some_and(|scheme| !is_web(scheme))
    {
        return Err(Problem::Target);
    }
    let host = host(parts, needs_host)?;
    let version = via(parts.version);
    let upgrade = crate::tunnel::wanted(parts.version, &parts.headers);
    let trailers =
        parts.headers.get(TE).is_some_and(|it| names(it).any(|it| it.eq_ignore_ascii_case("trailers")));
    strip_hop_by_hop(&mut parts.headers);
    let headers = &mut parts.headers;
    // Grows the map once; a map that cannot grow is already full.
    let _full = headers.try_reserve(MAX_ADDED_HEADERS);
    headers.remove(EXPECT);
    for mark in &UNDERSCORE_MARKS {
        headers.remove(mark);
    }
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    join_cookies(headers);
    add_forwarding_headers(headers, caller, &host, forwarding, trusts);
    headers.append(VIA, version);
    headers.insert(HOST, host);
    if let Some(uri) = origin_form(&parts.uri)? {
        parts.uri = uri;
    }
    parts.version = Version::HTTP_11;
    Ok(())
}

/// Whether the body has a transfer encoding other than `chunked`.
pub(crate) fn is_otherwise_encoded(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    lines.next().is_some_and(|it| !it.as_bytes().eq_ignore_ascii_case(b"chunked")) || lines.next().is_some()
}

/// Converts the head of [`prepare`] for an upstream that uses HTTP/2.
pub(crate) fn to_http2(parts: &mut Parts, secure: bool) -> Result<(), Problem> {
    let host = parts.headers.remove(HOST).ok_or(Problem::NoHost)?;
    let authority = Authority::try_from(host.as_bytes()).map_err(|_| Problem::BadHost)?;
    let mut uri = std::mem::take(&mut parts.uri).into_parts();
    uri.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = Some(authority);
    // No fallback: limits matched this target.
    parts.uri = Uri::from_parts(uri).map_err(|_| Problem::BadHost)?;
    parts.version = Version::HTTP_2;
    // HTTP/2 has no protocol upgrade, and frames of its own.
    parts.headers.remove(CONNECTION);
    parts.headers.remove(UPGRADE);
    parts.headers.remove(TRANSFER_ENCODING);
    Ok(())
}

/// Undoes [`to_http2`]: the next attempt may use another upstream.
pub(crate) fn to_http1(parts: &mut Parts) {
    let authority = parts.uri.authority();
    if let Some(host) = authority.and_then(|it| HeaderValue::from_str(it.as_str()).ok()) {
        parts.headers.insert(HOST, host);
    }
    // Dot segments are already resolved.
    if let Ok(Some(uri)) = origin_form(&parts.uri) {
        parts.uri = uri;
    }
    parts.version = Version::HTTP_11;
}

/// Declares a body of unknown length as chunked. Without the header, hyper sends a `GET` or `HEAD` request without its
/// body.
pub(crate) fn set_transfer_encoding<B: Body>(request: &mut Request<B>) {
    if !request.body().is_end_stream() && request.body().size_hint().exact().is_none() {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Returns the host of a request: the host of its target if there is one, else of its header. An invalid header, or none
/// in an HTTP/1.1 request, is an error beside any target (RFC 9112, 3.2).
fn host(parts: &Parts, needs_host: impl FnOnce() -> bool) -> Result<HeaderValue, Problem> {
    let mut lines = parts.headers.get_all(HOST).iter();
    let (line, second) = (lines.next(), lines.next());
    if second.is_some() {
        return Err(Problem::ManyHosts);
    }
    match (parts.uri.authority(), line) {
        (_, Some(line)) if !line.to_str().is_ok_and(is_host) => Err(Problem::BadHost),
        (Some(_), None) if parts.version == Version::HTTP_11 => Err(Problem::NoHost),
        (Some(authority), _) if !is_host(authority.as_str()) => Err(Problem::BadHost),
        (Some(authority), _) => HeaderValue::from_str(authority.as_str()).map_err(|_| Problem::BadHost),
        (None, Some(line)) => Ok(line.clone()),
        // HTTP/1.0 permits requests without a host, but the HTTP/1.1 request to the upstream needs
        // one. If limits match hosts, no such limit applied, and an invented host would bypass
        // them.
        (None, None) if parts.version == Version::HTTP_10 && !needs_host() => {
            Ok(HeaderValue::from_static("localhost"))
        }
        (None, None) => Err(Problem::NoHost),
    }
}

const fn via(version: Version) -> HeaderValue {
    match version {
        Version::HTTP_10 => HeaderValue::from_static("1.0 tollgate"),
        Version::HTTP_2 => HeaderValue::from_static("2 tollgate"),
        _ => HeaderValue::from_static("1.1 tollgate"),
    }
}

/// Compares text: strings are compared by length first, which is faster than comparing a list of
/// names.
pub(crate) fn is_hop_by_hop(name: &str) -> bool {
    matches!(
        name,
        "connection"
            | "transfer-encoding"
            | "upgrade"
            | "te"
            | "keep-alive"
            | "proxy-connection"
            | "proxy-authenticate"
            | "proxy-authorization"
            | "http2-settings"
    )
}

/// Whether a name of a header is this one in any case; `known` is in lower case. No other character of a name becomes a
/// letter, a digit or `-` by this bit. Without an early end, a few instructions compare all bytes.
#[inline]
pub(crate) fn is_name(name: &str, known: &str) -> bool {
    let differing = |differs, (byte, known): (u8, u8)| differs | ((byte | 0x20) ^ known);
    name.len() == known.len() && name.bytes().zip(known.bytes()).fold(0, differing) == 0
}

/// Same as [`is_hop_by_hop`], for a name in any case.
pub(crate) fn is_hop_by_hop_in_any_case(name: &str) -> bool {
    let is = |known: &str| is_name(name, known);
    match name.len() {
        2 => is("te"),
        7 => is("upgrade"),
        10 => is("connection") || is("keep-alive"),
        14 => is("http2-settings"),
        16 => is("proxy-connection"),
        17 => is("transfer-encoding"),
        18 => is("proxy-authenticate"),
        19 => is("proxy-authorization"),
        _ => false,
    }
}

/// Removes the headers that `Connection` nominates.
pub(crate) fn strip_nominated(headers: &mut HeaderMap) {
    let harmless =
        |name: &str| ["close", "keep-alive", "upgrade", "te"].iter().any(|it| name.eq_ignore_ascii_case(it));
    // Most requests nominate nothing, so nothing is collected.
    let nominates = headers.get_all(CONNECTION).iter().flat_map(names).any(|name| !harmless(name));
    if nominates {
        let nominated: SmallVec<[HeaderName; 4]> = headers
            .get_all(CONNECTION)
            .iter()
            .flat_map(names)
            .filter_map(|name| HeaderName::try_from(name).ok())
            .filter(|name| may_be_listed(name) && !is_hop_by_hop(name.as_str()))
            .collect();
        for name in nominated {
            headers.remove(name);
        }
    }
}

/// Removes the hop-by-hop headers, whatever `Connection` says.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    // Most requests have at most one of them.
    let found: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|it| is_hop_by_hop(it.as_str())).cloned().collect();
    if found.contains(&TRANSFER_ENCODING) {
        // `Transfer-Encoding` took precedence, so the length must not be forwarded (RFC 9112, 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    for name in found {
        headers.remove(name);
    }
}

/// Removes fields from trailers that arrive after the decision and must not change it: the client,
/// the framing, and the rate-limit headers (RFC 9110, 6.5.1).
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    let settled = |name: &HeaderName| {
        let text = name.as_str();
        is_hop_by_hop(name.as_str())
            || is_claim(name.as_str())
            || is_override(text)
            || !may_be_listed(name)
            || matches!(
                text,
                "retry-after"
                    | "tollgate-decision"
                    | "tollgate-degraded"
                    | "tollgate-soft"
                    | "tollgate_soft"
                    | "tollgate-priority"
                    | "tollgate_priority"
                    | "set-cookie"
                    | "trailer"
            )
            || text.starts_with("ratelimit")
            || text.starts_with("x-ratelimit")
    };
    let found: SmallVec<[HeaderName; 4]> = trailers.keys().filter(|it| settled(it)).cloned().collect();
    for name in found {
        trailers.remove(name);
    }
}

/// Removes headers that some servers confuse with a header that the policy reads: CGI maps both
/// `X-Api-Key` and `X_Api_Key` to `HTTP_X_API_KEY`.
pub(crate) fn strip_lookalikes(headers: &mut HeaderMap, policy: &Policy) {
    let is_lookalike = |name: &&HeaderName| policy.reads_lookalike_of(name.as_str());
    let found: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_lookalike).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

/// Whether a header states the client that a request is forwarded for. Some servers read `_` as
/// `-`.
pub(crate) fn is_claim(text: &str) -> bool {
    let claims = |text: &str| text == "forwarded" || text == "x-real-ip" || text.starts_with("x-forwarded");
    match text.as_bytes().first() {
        Some(b'x' | b'f') => claims(text) || (text.contains('_') && claims(&text.replace('_', "-"))),
        _ => false,
    }
}

/// Whether `Connection` may nominate this header. A client must not be able to hide headers that
/// the upstream needs.
pub(crate) fn may_be_listed(name: &HeaderName) -> bool {
    use http::header::{AUTHORIZATION, CONTENT_TYPE};
    let kept = [&HOST, &CONTENT_LENGTH, &CONTENT_TYPE, &AUTHORIZATION, &COOKIE, &FORWARDED, &VIA];
    !kept.contains(&name) && !name.as_str().starts_with("x-forwarded-")
}

fn names(value: &HeaderValue) -> impl Iterator<Item = &str> {
    value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|it| !it.is_empty())
}

/// Joins cookie lines, which only HTTP/2 permits (RFC 9113, 8.2.3). Limits read all lines, and a
/// service that reads only the first line must see the same cookies.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_some() {
        let lines: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        if let Ok(joined) = HeaderValue::from_bytes(&lines.join(&b"; "[..])) {
            headers.insert(COOKIE, joined);
        }
    }
}

fn add_forwarding_headers(
    headers: &mut HeaderMap,
    caller: &Caller,
    host: &HeaderValue,
    forwarding: Forwarding,
    trusts: impl FnOnce(IpAddr) -> bool,
) {
    let claims = headers.keys().any(|it| is_claim(it.as_str()));
    let believed = claims && trusts(caller.address);
    if claims && !believed {
        let claimed: SmallVec<[HeaderName; 4]> =
            headers.keys().filter(|it| is_claim(it.as_str())).cloned().collect();
        for name in claimed {
            headers.remove(name);
        }
    }
    if matches!(forwarding, Forwarding::XForwarded | Forwarding::Both) {
        let addresses = if believed { joined(headers, &X_FORWARDED_FOR, &caller.address_text) } else { None };
        headers.insert(&X_FORWARDED_FOR, addresses.unwrap_or_else(|| caller.address_text.clone()));
        // Kept from the first proxy, which saw the original request.
        headers.entry(&X_FORWARDED_PROTO).or_insert_with(|| caller.scheme.clone());
        headers.entry(&X_FORWARDED_HOST).or_insert_with(|| host.clone());
    }
    if matches!(forwarding, Forwarding::Forwarded | Forwarding::Both) {
        // The host was validated and has no quotes.
        let element = forwarded_element(caller, host.to_str().unwrap_or_default());
        let element =
            HeaderValue::try_from(element).unwrap_or_else(|_| HeaderValue::from_static("for=unknown"));
        let elements = if believed { joined(headers, &FORWARDED, &element) } else { None };
        headers.insert(FORWARDED, elements.unwrap_or(element));
    }
}

/// Joins all lines of a list header and one more member into one line.
fn joined(headers: &HeaderMap, name: &HeaderName, last: &HeaderValue) -> Option<HeaderValue> {
    headers.get(name)?;
    let mut line = Vec::new();
    for value in headers.get_all(name).iter().chain([last]).filter(|it| !it.is_empty()) {
        if !line.is_empty() {
            line.extend_from_slice(b", ");
        }
        line.extend_from_slice(value.as_bytes());
    }
    HeaderValue::try_from(line).ok()
}

/// Returns the element of `Forwarded` about this hop. The host has no quotes.
pub(crate) fn forwarded_element(caller: &Caller, host: &str) -> String {
    let scheme = caller.scheme.to_str().unwrap_or("http");
    let address = match caller.address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("\"[{address}]\""),
    };
    format!("for={address};host=\"{host}\";proto={scheme}")
}

/// Returns path and query with `.` and `..` resolved; `None` if the URI has that form already.
/// There is no fallback on errors: limits matched this target.
fn origin_form(uri: &Uri) -> Result<Option<Uri>, Problem> {
    let Some(path) = path::without_dot_segments(uri.path()) else {
        let plain = uri.scheme().is_none() && uri.authority().is_none();
        let alone = || uri.path_and_query().cloned().map_or_else(|| Uri::from_static("/"), Uri::from);
        return Ok((!plain).then(alone));
    };
    let target = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    PathAndQuery::try_from(target).map(|target| Some(target.into())).map_err(|_| Problem::Target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_resolved_and_the_rest_is_unchanged() {
        for (written, sent) in [
            ("/", "/"),
            ("/a//b/", "/a//b/"),
            ("/a%20b?x=/../y", "/a%20b?x=/../y"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/../login", "/login"),
            ("/a/%2e%2E/login?q=1", "/login?q=1"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/../../x", "/x"),
            ("/a/../x/..%3B/%6Cogin", "/x/..%3B/%6Cogin"),
            ("/a%2Fb/../c", "/c"),
            ("/a/./b/", "/a/b/"),
            ("http://example.com/a/../b", "/b"),
            ("http://example.com", "/"),
            ("*", "*"),
        ] {
            let uri: Uri = written.parse().unwrap();
            assert_eq!(origin_form(&uri).unwrap().unwrap_or(uri).to_string(), sent, "{written}");
        }
    }

    #[test]
    fn hop_by_hop_headers_are_the_same_in_any_case() {
        for name in [
            "connection",
            "transfer-encoding",
            "upgrade",
            "te",
            "keep-alive",
            "proxy-connection",
            "proxy-authenticate",
            "proxy-authorization",
            "http2-settings",
            "",
            "ta",
            "host",
            "accept",
            "upgrada",
            "connectiom",
            "content-length",
            "proxy-connectioo",
            "content-encodings",
            "proxy-authenticatf",
            "if-unmodified-since",
        ] {
            let expected = is_hop_by_hop(name);
            assert_eq!(is_hop_by_hop_in_any_case(name), expected, "{name}");
            assert_eq!(is_hop_by_hop_in_any_case(&name.to_ascii_uppercase()), expected, "{name}");
        }
    }

    fn prepared(headers: &[(&'static str, &'static str)], trusted: bool) -> Result<HeaderMap, Problem> {
        let mut request = http::Request::get("/x");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let caller = Caller::new([203, 0, 113, 9].into(), false);
        strip_nominated(&mut parts.headers);
        prepare(&mut parts, &caller, Forwarding::Both, |_| trusted, || false)?;
        Ok(parts.headers)
    }

    fn line(headers: &HeaderMap, name: &str) -> String {
        let values: Vec<_> = headers.get_all(name).iter().map(|it| it.to_str().unwrap()).collect();
        values.join(" | ")
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let headers = prepared(
            &[
                ("host", "example.com"),
                ("connection", "keep-alive, X-Private, Host, Content-Length, X-Forwarded-For"),
                ("keep-alive", "timeout=5"),
                ("x-private", "1"),
                ("proxy-authorization", "Basic x"),
                ("proxy-connection", "keep-alive"),
                ("te", "trailers, deflate"),
                ("upgrade", "h2c"),
                ("http2-settings", "x"),
                ("expect", "100-continue"),
                ("accept", "*/*"),
            ],
            false,
        )
        .unwrap();
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        let expected = [
            "accept",
            "forwarded",
            "host",
            "te",
            "via",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
        ];
        assert_eq!(names, expected);
        assert_eq!(line(&headers, "te"), "trailers");
        assert_eq!(line(&headers, "via"), "1.1 tollgate");
    }

    #[test]
    fn forwarding_headers_of_untrusted_peers_are_removed() {
        let claims = [
            ("host", "example.com"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=192.0.2.1"),
        ];
        let headers = prepared(&claims, false).unwrap();
        assert_eq!(line(&headers, "x-forwarded-for"), "203.0.113.9");
        assert_eq!(line(&headers, "x-forwarded-proto"), "http");
        assert_eq!(line(&headers, "forwarded"), "for=203.0.113.9;host=\"example.com\";proto=http");
        let headers = prepared(&claims, true).unwrap();
        assert_eq!(line(&headers, "x-forwarded-for"), "192.0.2.1, 198.51.100.7, 203.0.113.9");
        assert_eq!(line(&headers, "x-forwarded-proto"), "https");
        assert!(line(&headers, "forwarded").starts_with("for=192.0.2.1, for=203.0.113.9;"));
    }

    #[test]
    fn a_request_has_one_host_and_one_encoding() {
        assert_eq!(prepared(&[], false).unwrap_err(), Problem::NoHost);
        assert_eq!(prepared(&[("host", "a"), ("host", "b")], false).unwrap_err(), Problem::ManyHosts);
        assert_eq!(prepared(&[("host", "a/b")], false).unwrap_err(), Problem::BadHost);
        assert_eq!(
            prepared(&[("host", "a"), ("transfer-encoding", "gzip, chunked")], false).unwrap_err(),
            Problem::Encoding
        );
        let twice = [("host", "a"), ("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")];
        assert_eq!(prepared(&twice, false).unwrap_err(), Problem::Encoding);
        assert!(prepared(&[("host", "[::1]:8080"), ("transfer-encoding", "Chunked")], false).is_ok());
    }
}
