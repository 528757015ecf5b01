//! The gateway behind a load balancer that sends PROXY headers.

use tollgate::{Limiter, Policy};
use tollgate_gateway::{Gateway, StartError};

use crate::support::{Behind, Upstream, settings};

const TRUSTING: &str =
    "client: {trusted_proxies: [127.0.0.1]}\nlimits: [{name: each, by: ip, bucket: 1/hour}]";
const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn v2(source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(source);
    header.extend([192, 0, 2, 1, 0x12, 0x67, 1, 187]);
    header
}

#[test]
fn limits_and_upstreams_use_the_client_of_the_proxy_header() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("proxy_protocol: true").limited(TRUSTING).serve();
    let get = |header: &[u8]| gateway.connect().ask([header, GET.as_bytes()].concat()).status();
    let v1 = |source: &str| format!("PROXY TCP4 {source} 192.0.2.1 4711 443\r\n").into_bytes();
    assert_eq!(get(&v1("203.0.113.1")), 200);
    assert_eq!(get(&v1("203.0.113.1")), 429);
    assert_eq!(get(&v2([203, 0, 113, 1])), 429, "the same client, said differently");
    assert_eq!(get(&v2([203, 0, 113, 2])), 200);
    assert_eq!(get(b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 443\r\n"), 200);
    // The balancer connects for itself, as for health checks.
    assert_eq!(get(b"PROXY UNKNOWN\r\n"), 200);
    assert_eq!(get(b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0"), 429);
    let addresses: Vec<_> =
        upstream.seen().iter().map(|it| it.header("x-forwarded-for").to_owned()).collect();
    assert_eq!(addresses, ["203.0.113.1", "203.0.113.2", "2001:db8::9", "127.0.0.1"]);
}

#[test]
fn a_connection_without_the_header_is_closed() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream)
        .with("proxy_protocol: true, timeouts: {client_headers: 200ms}")
        .limited(TRUSTING)
        .serve();
    for wrong in
        [GET, "PROXY TCP4 nonsense\r\n", "PROXY TCP4 203.0.113.1 ", "\r\n\r\n\0\r\nQUIT\n\x31\x11\0\0", "P"]
    {
        let mut client = gateway.connect();
        client.send(wrong);
        client.assert_closed();
    }
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn proxy_headers_of_untrusted_peers_are_refused() {
    let upstream = Upstream::ok();
    let strangers = TRUSTING.replace("127.0.0.1", "10.0.0.0/8");
    let gateway = Behind::new(&upstream).with("proxy_protocol: true").limited(&strangers).serve();
    let mut client = gateway.connect();
    client.send([&v2([203, 0, 113, 1]), GET.as_bytes()].concat());
    client.assert_closed();
    assert_eq!(upstream.connections(), 0);

    let settings = settings("upstream: \"http://127.0.0.1:1\", proxy_protocol: true").unwrap();
    let nobody = Limiter::new(Policy::parse("limits: []").unwrap());
    assert!(matches!(Gateway::new(settings, nobody.into(), None), Err(StartError::NobodyTrusted)));
}

#[test]
fn a_balancer_is_refused_once_it_is_no_longer_trusted() {
    let upstream = Upstream::ok();
    let gateway = Behind::new(&upstream).with("proxy_protocol: true").limited(TRUSTING).serve();
    let request = |last| [&v2([203, 0, 113, last]), GET.as_bytes()].concat();
    assert_eq!(gateway.connect().ask(request(1)).status(), 200);
    gateway.limit_by(&TRUSTING.replace("127.0.0.1", "10.0.0.0/8"));
    let mut client = gateway.connect();
    client.send(request(2));
    client.assert_closed();
    assert_eq!(upstream.seen().len(), 1);
    gateway.limit_by(TRUSTING);
    assert_eq!(gateway.connect().ask(request(3)).status(), 200);
}
