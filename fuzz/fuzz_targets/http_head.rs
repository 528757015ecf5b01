//! Decides arbitrary HTTP/1.1 request heads: client address, path, keys, rejection.
//!
//! hyper parses heads with httparse, as this target does; the code under test starts after that.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::HeaderMap;
use libfuzzer_sys::fuzz_target;
use tollgate::Limiter;
use tollgate_http::{HttpRequest, Rejection, client_address};

/// Reads every part of a head: addresses, path, query, cookie, header.
const POLICY: &str = "
client: {trusted_proxies: [127.0.0.0/8]}
limits:
  - {name: address, by: ip, bucket: 5/minute}
  - {name: reports, endpoint: 'GET /reports/{name}', by: ['path:name', 'query:page'], bucket: 5/minute}
  - {name: session, by: ['cookie:session', 'header:x-session'], bucket: 5/minute}
  - {name: user, by: user, bucket: 5/minute}
";

static LIMITER: LazyLock<Limiter> =
    LazyLock::new(|| Limiter::from_policy(POLICY).unwrap_or_else(|error| panic!("{}", error.render("POLICY"))));

fuzz_target!(|head: &[u8]| {
    let Some(parts) = parts(head) else { return };
    let settings = LIMITER.policy().client();
    let client = client_address(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), &parts.headers, settings);
    let decision = LIMITER.check(&HttpRequest::new(&parts, client));
    let id = LIMITER.id_of(&decision);
    let headers = LIMITER.policy().headers();
    tollgate_http::write_headers(&mut HeaderMap::new(), &decision, id, headers, None);
    if let Some(rejection) = Rejection::of(&decision, id, None) {
        let _ = rejection.response(&parts.headers, headers);
    }
});

/// Parses a head, `None` if it is incomplete or invalid.
fn parts(head: &[u8]) -> Option<http::request::Parts> {
    let mut slots = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut slots);
    if !request.parse(head).ok()?.is_complete() {
        return None;
    }
    let mut builder = http::Request::builder().method(request.method?).uri(request.path?);
    for header in request.headers.iter() {
        builder = builder.header(header.name, header.value);
    }
    Some(builder.body(()).ok()?.into_parts().0)
}
