//! Parses addresses in the notations that proxies use.

use std::net::IpAddr;

use super::elements::Elements;

/// Parses the address in `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80` or
/// `"[fe80::1%eth0]"`; returns `None` for other text.
pub(super) fn address(node: &[u8]) -> Option<IpAddr> {
    let node = std::str::from_utf8(node).ok()?.trim_ascii();
    let node = node.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(node);
    let (host, port) = match node.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        // Several colons without brackets: an IPv6 address without a port.
        None => match node.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, Some(port)),
            _ => (node, None),
        },
    };
    if !port.is_none_or(is_port) {
        return None;
    }
    // The zone identifies a network interface of the proxy, not the client.
    let host = host.split_once('%').map_or(host, |(host, _zone)| host);
    host.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// Parses the `for` parameter of one element of `Forwarded` (RFC 7239).
///
/// An element with two `for` parameters is malformed, as is an address with escapes. Both yield
/// `None`.
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let value = |pair: &'_ [u8]| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        pair[..at].trim_ascii().eq_ignore_ascii_case(b"for").then(|| at + 1)
    };
    let mut nodes = Elements::quoted(element, b';').filter_map(|pair| value(pair).map(|at| &pair[at..]));
    let node = nodes.next()?;
    if nodes.next().is_some() { None } else { address(node) }
}

/// Whether the text is a port: digits, or an obfuscated port such as `_x7` (RFC 7239, 6.3).
fn is_port(port: &str) -> bool {
    !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed_in_every_notation() {
        for (node, expected) in [
            ("192.0.2.1", Some("192.0.2.1")),
            (" 192.0.2.1:4711 ", Some("192.0.2.1")),
            ("\"192.0.2.1:4711\"", Some("192.0.2.1")),
            ("192.0.2.1:_x7", Some("192.0.2.1")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:DB8::1]", Some("2001:db8::1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("\"[2001:db8::1%eth0]:80\"", Some("2001:db8::1")),
            ("fe80::1%25eth0", Some("fe80::1")),
            ("::ffff:192.0.2.1", Some("192.0.2.1")),
            ("[::ffff:c000:0201]:80", Some("192.0.2.1")),
            ("", None),
            ("unknown", None),
            ("_hidden", None),
            ("localhost", None),
            ("192.0.2", None),
            ("192.0.2.01", None),
            ("192.0.2.1:", None),
            ("192.0.2.1:80 x", None),
            ("192.0.2.1/24", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]80", None),
            ("[]", None),
            ("\"192.0.2.1", None),
            ("2001:db8::1::", None),
        ] {
            assert_eq!(address(node.as_bytes()), expected.map(|it| it.parse().unwrap()), "{node}");
        }
        assert_eq!(address(b"\xff\xfe"), None);
    }

    #[test]
    fn exactly_one_for_parameter_outside_quotes_is_accepted() {
        for (element, expected) in [
            ("for=192.0.2.1", Some("192.0.2.1")),
            ("For = \"[2001:db8::1]:80\"; proto=https", Some("2001:db8::1")),
            ("by=10.0.0.1;FOR=192.0.2.1;host=x", Some("192.0.2.1")),
            ("for=192.0.2.1;host=\"x;for=6.6.6.6\"", Some("192.0.2.1")),
            ("for=192.0.2.1;for=6.6.6.6", None),
            ("for=unknown", None),
            ("for=_gazonk", None),
            ("proto=https", None),
            ("for", None),
            ("192.0.2.1", None),
        ] {
            assert_eq!(
                forwarded_for(element.as_bytes()),
                expected.map(|it| it.parse().unwrap()),
                "{element}"
            );
        }
    }
}
