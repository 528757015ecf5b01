//! Client addresses behind trusted and untrusted proxies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use tollgate::Policy;
use tollgate::policy::ClientAddress;
use tollgate_http::{client_address, client_address_behind};

const XFF: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";

fn settings(header: &str) -> ClientAddress {
    let text = format!(
        "client: {{trusted_proxies: [10.0.0.0/8, 'fd00::/8'], header: {header}}}\n\
         limits: [{{by: ip, bucket: 1/s}}]"
    );
    Policy::parse(&text).unwrap().client().clone()
}

fn found(peer: &str, header: &str, lines: &[&[u8]], settings: &ClientAddress) -> IpAddr {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(HeaderName::try_from(header).unwrap(), HeaderValue::from_bytes(line).unwrap());
    }
    client_address(Some(peer.parse().unwrap()), &headers, settings).unwrap()
}

#[track_caller]
fn check(peer: &str, header: &str, lines: &[&str], expected: &str) {
    let bytes: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    let found = found(peer, header, &bytes, &settings(header));
    assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} says {lines:?}");
}

#[test]
fn headers_of_an_untrusted_peer_are_ignored() {
    check("198.51.100.2", XFF, &["203.0.113.9"], "198.51.100.2");
    check("198.51.100.2", FORWARDED, &["for=203.0.113.9"], "198.51.100.2");
}

#[test]
fn the_first_untrusted_address_from_the_right_is_the_client() {
    check("10.0.0.1", XFF, &["203.0.113.9"], "203.0.113.9");
    check("10.0.0.1", XFF, &["6.6.6.6, 203.0.113.9"], "203.0.113.9");
    check("10.0.0.1", XFF, &["6.6.6.6, 203.0.113.9, 10.2.2.2, fd00::7"], "203.0.113.9");
    check("::ffff:10.0.0.1", XFF, &["::ffff:203.0.113.9"], "203.0.113.9");
    check("10.0.0.1", FORWARDED, &["for=6.6.6.6, For=\"[2001:db8::9]:4711\";proto=https"], "2001:db8::9");
}

#[test]
fn client_address_behind_trusts_any_peer() {
    for (lines, expected) in [
        (&[(XFF, "6.6.6.6, 203.0.113.9, 10.2.2.2"), ("x-real-ip", "6.6.6.6")][..], "203.0.113.9"),
        (&[(XFF, "6.6.6.6"), (XFF, "203.0.113.9")], "203.0.113.9"),
        (&[(XFF, "unknown"), ("x-real-ip", "6.6.6.6")], "198.51.100.2"),
        (&[("x-real-ip", "203.0.113.9")], "203.0.113.9"),
        (&[("x-real-ip", "nonsense")], "198.51.100.2"),
        (&[(FORWARDED, "for=6.6.6.6")], "198.51.100.2"),
    ] {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        let found = client_address_behind("198.51.100.2".parse().unwrap(), &headers, &settings(XFF));
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{lines:?}");
    }
}

#[test]
fn all_lines_of_a_header_are_one_list() {
    check("10.0.0.1", XFF, &["6.6.6.6", "203.0.113.9", "10.2.2.2"], "203.0.113.9");
    check("10.0.0.1", XFF, &["6.6.6.6, 203.0.113.9", "10.2.2.2,10.3.3.3"], "203.0.113.9");
    check("10.0.0.1", FORWARDED, &["for=203.0.113.9", "for=10.2.2.2"], "203.0.113.9");
}

#[test]
fn without_an_untrusted_hop_the_outermost_hop_is_the_client() {
    check("10.0.0.1", XFF, &[], "10.0.0.1");
    check("10.0.0.1", XFF, &[""], "10.0.0.1");
    check("10.0.0.1", XFF, &["10.5.5.5, 10.2.2.2"], "10.5.5.5");
}

#[test]
fn an_invalid_address_ends_the_walk_at_the_last_valid_one() {
    check("10.0.0.1", XFF, &["203.0.113.9, junk, 10.2.2.2"], "10.2.2.2");
    check("10.0.0.1", XFF, &["203.0.113.9, junk"], "10.0.0.1");
    check("10.0.0.1", FORWARDED, &["for=203.0.113.9, for=unknown, for=10.2.2.2"], "10.2.2.2");
    check("10.0.0.1", FORWARDED, &["for=203.0.113.9, for=_hidden"], "10.0.0.1");
    check("10.0.0.1", FORWARDED, &["for=203.0.113.9, proto=https"], "10.0.0.1");
}

#[test]
fn quoted_text_is_not_read_as_an_address() {
    check("10.0.0.1", FORWARDED, &[r#"for=203.0.113.9;host="x,for=6.6.6.6""#], "203.0.113.9");
    check("10.0.0.1", FORWARDED, &[r#"for=203.0.113.9;host="x\",for=6.6.6.6""#], "203.0.113.9");
    check("10.0.0.1", FORWARDED, &[r#"for=203.0.113.9;host="x;for=6.6.6.6""#], "203.0.113.9");
}

#[test]
fn only_the_configured_header_is_read() {
    let mut headers = HeaderMap::new();
    headers.insert(XFF, HeaderValue::from_static("6.6.6.6"));
    headers.insert("x-real-ip", HeaderValue::from_static("6.6.6.6"));
    let peer = Some([10, 0, 0, 1].into());
    assert_eq!(client_address(peer, &headers, &settings(FORWARDED)), peer);
    assert_eq!(client_address(peer, &headers, &settings("none")), peer);
    assert_eq!(client_address(None, &headers, &settings(XFF)), None);
}

#[test]
fn an_endless_chain_of_trusted_hops_is_cut() {
    let line = format!("6.6.6.6, {}10.7.7.7", "10.9.9.9, ".repeat(10_000));
    check("10.0.0.1", XFF, &[&line], "10.9.9.9");
    check("10.0.0.1", XFF, &[&format!("6.6.6.6{}", ",".repeat(10_000))], "10.0.0.1");
}

/// Arbitrary header bytes.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let special = prop::sample::select(b",;=\"\\[]:%. for0123456789".to_vec());
    let any = prop_oneof![special, (0x20..=0xff_u8).prop_filter("not a header", |byte| *byte != 0x7f)];
    prop::collection::vec(any, 0..80)
}

proptest! {
    #[test]
    fn arbitrary_headers_do_not_panic(lines in prop::collection::vec(bytes(), 0..5), forwarded in any::<bool>()) {
        let header = if forwarded { FORWARDED } else { XFF };
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        found("10.0.0.1", header, &lines, &settings(header));
    }

    #[test]
    fn prepended_elements_do_not_change_the_result(
        prefix in bytes(),
        lines in prop::collection::vec(bytes(), 0..3),
        proxies in prop::collection::vec(prop::array::uniform3(any::<u8>()), 0..4),
        forwarded in any::<bool>(),
        own_line in any::<bool>(),
    ) {
        let header = if forwarded { FORWARDED } else { XFF };
        let hop = |address: IpAddr| {
            if forwarded { format!("for=\"{address}\";host=\"a,b\"") } else { address.to_string() }
        };
        let client: IpAddr = [203, 0, 113, 9].into();
        let mut written = vec![hop(client)];
        written.extend(proxies.iter().map(|[a, b, c]| hop([10, *a, *b, *c].into())));
        let written = written.join(", ").into_bytes();

        let mut all: Vec<Vec<u8>> = lines;
        if own_line {
            all.extend([prefix, written]);
        } else {
            all.push([&prefix[..], b", ", &written].concat());
        }
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(found("10.0.0.1", header, &all, &settings(header)), client);
    }
}
