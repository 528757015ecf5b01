//! The client of a log line: an address in one of several notations, or a host name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The client of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// The line has no client.
    Unknown,
    Address(IpAddr),
    /// A host name, mapped to an address that no client has.
    Name(IpAddr),
}

impl Client {
    /// Reads a client field: an address, optionally with port, brackets or zone; the first of a list, as in
    /// `X-Forwarded-For`; `-` or an empty text; or a host name.
    pub(super) fn read(text: &[u8]) -> Self {
        if let Some(address) = v4(text) {
            return Self::Address(IpAddr::V4(address));
        }
        let text = text.split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
        if text.is_empty() || text == b"-" {
            return Self::Unknown;
        }
        match std::str::from_utf8(text).ok().and_then(address) {
            Some(address) => Self::Address(address),
            None => Self::Name(stand_in(text)),
        }
    }

    /// Whether a text is exactly an address.
    pub(super) fn is_address(text: &[u8]) -> bool {
        matches!(Self::read(text), Self::Address(_))
    }

    pub(super) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Unknown => None,
            Self::Address(address) | Self::Name(address) => Some(address),
        }
    }
}

/// Parses a dotted IPv4 address, the common case.
fn v4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut numbers = [0_u8; 4];
    let mut parts = text.split(|byte| *byte == b'.');
    for number in &mut numbers {
        *number = match parts.next()? {
            [a @ b'0'..=b'9'] => a - b'0',
            [a @ b'1'..=b'9', b @ b'0'..=b'9'] => (a - b'0') * 10 + (b - b'0'),
            [a @ b'1'..=b'2', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
                let number = u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0');
                u8::try_from(number).ok()?
            }
            _ => return None,
        };
    }
    parts.next().is_none().then(|| Ipv4Addr::from(numbers))
}

/// Parses every other notation of an address.
fn address(text: &str) -> Option<IpAddr> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, _) = rest.split_once(']')?;
        return v6(inner);
    }
    if let Some(address) = v6(text) {
        return Some(address);
    }
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some(IpAddr::V4(address));
    }
    let (host, port) = text.rsplit_once(':')?;
    port.parse::<u16>().ok()?;
    host.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

fn v6(text: &str) -> Option<IpAddr> {
    let (address, _zone) = text.split_once('%').unwrap_or((text, ""));
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

/// Maps a host name to an address in its own /64 network, because policies count IPv6 clients by /64. The mapping
/// ignores case. Addresses of `fd00::/8` are not routed on the internet (RFC 4193).
fn stand_in(name: &[u8]) -> IpAddr {
    // FNV-1a: the hash is the same on every machine and in every release, so reports of different weeks can be
    // compared.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in name {
        hash = (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3);
    }
    // The last bytes affect mainly the upper bits: mix them down before the upper eight bits are cut off.
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let network = (0xfd << 56) | (hash >> 8);
    IpAddr::V6(Ipv6Addr::from(u128::from(network) << 64 | 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_in_any_notation_or_a_host_name() {
        let addresses = [
            ("203.0.113.9", "203.0.113.9"),
            ("203.0.113.9:51234", "203.0.113.9"),
            ("203.0.113.9, 10.0.0.1", "203.0.113.9"),
            (" 203.0.113.9 ", "203.0.113.9"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:443", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("::ffff:203.0.113.9", "::ffff:203.0.113.9"),
        ];
        for (text, expected) in addresses {
            assert_eq!(Client::read(text.as_bytes()), Client::Address(expected.parse().unwrap()), "{text}");
        }
        for nobody in ["", "-", " ", ", 10.0.0.1"] {
            assert_eq!(Client::read(nobody.as_bytes()), Client::Unknown, "{nobody}");
        }
        for name in ["unicomp6.unicomp.net", "256.0.0.1", "203.0.113.9:x", "[::1", "unix:", "\u{fc}"] {
            assert!(matches!(Client::read(name.as_bytes()), Client::Name(_)), "{name}");
        }
    }

    #[test]
    fn names_are_told_apart_by_the_network_of_64_bits() {
        let mut networks: Vec<_> = (0..10_000)
            .map(|number| match Client::read(format!("host{number}.example").as_bytes()) {
                Client::Name(IpAddr::V6(address)) => u128::from(address) >> 64,
                other => panic!("{other:?}"),
            })
            .collect();
        networks.sort_unstable();
        networks.dedup();
        assert_eq!(networks.len(), 10_000);
        assert!(networks.iter().all(|it| it >> 56 == 0xfd));
        assert_eq!(Client::read(b"A.example"), Client::read(b"a.example"));
    }
}
