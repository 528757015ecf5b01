//! The address of a client, redacted as the policy's `privacy` says.

use std::fmt;
use std::hash::RandomState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate::Policy;
use tollgate::policy::KeyPrivacy;

/// An address as the policy's `privacy` shows it. The hidden part of the address is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShownAddress {
    /// The whole address.
    Plain(IpAddr),
    /// The tag of the address.
    Hash(u64),
    /// The first two numbers of the address; the others are zero.
    Prefix(IpAddr),
}

impl ShownAddress {
    /// Redacts an address.
    pub(crate) fn of(address: IpAddr, policy: &Policy, secret: &RandomState) -> Self {
        match (policy.privacy(), address) {
            (KeyPrivacy::Plain, _) => Self::Plain(address),
            (KeyPrivacy::Hashed, _) => Self::Hash(policy.address_tag(address, secret)),
            (KeyPrivacy::Truncated, IpAddr::V4(address)) => {
                let [first, second, ..] = address.octets();
                Self::Prefix(Ipv4Addr::new(first, second, 0, 0).into())
            }
            (KeyPrivacy::Truncated, IpAddr::V6(address)) => {
                let [first, second, ..] = address.segments();
                Self::Prefix(Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, 0).into())
            }
        }
    }
}

/// Returns an address as a number. Addresses of IPv4 have the numbers of their mapped addresses; an unknown address is zero.
#[inline]
pub(crate) fn number_of(client: Option<IpAddr>) -> u128 {
    match client {
        None => 0,
        Some(IpAddr::V4(address)) => address.to_ipv6_mapped().to_bits(),
        Some(IpAddr::V6(address)) => address.to_bits(),
    }
}

impl From<ShownAddress> for Box<str> {
    /// Returns the text of the address. Most records of a decision log have an IPv4 address, and its `Display` would
    /// take a third of the time in which a record is built.
    fn from(address: ShownAddress) -> Self {
        match address {
            ShownAddress::Plain(IpAddr::V4(address)) => ipv4_text(address),
            _ => address.to_string().into(),
        }
    }
}

/// Returns the four decimal numbers of an address.
fn ipv4_text(address: Ipv4Addr) -> Box<str> {
    let (mut bytes, mut length) = ([0; 16], 0);
    for octet in address.octets() {
        let digits = [octet / 100, octet / 10 % 10, octet % 10];
        let zeros = usize::from(octet < 100) + usize::from(octet < 10);
        for digit in digits.into_iter().skip(zeros) {
            bytes[length] = b'0' + digit;
            length += 1;
        }
        bytes[length] = b'.';
        length += 1;
    }
    // Digits and dots, without the last dot.
    std::str::from_utf8(&bytes[..length - 1]).unwrap_or_default().into()
}

impl fmt::Display for ShownAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(address) => address.fmt(f),
            Self::Hash(tag) => write!(f, "hash:{tag:016x}"),
            Self::Prefix(IpAddr::V4(address)) => {
                let [first, second, ..] = address.octets();
                write!(f, "{first}.{second}.…")
            }
            Self::Prefix(IpAddr::V6(address)) => {
                let [first, second, ..] = address.segments();
                write!(f, "{first:x}:{second:x}:…")
            }
        }
    }
}

/// Returns an address as the policy's `privacy` shows it.
///
/// A hashed address has the same hash as the key of a limit that counts by address, so that both can be
/// correlated.
pub fn show_address(address: IpAddr, policy: &Policy, secret: &RandomState) -> String {
    ShownAddress::of(address, policy, secret).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_an_address_is_its_display() {
        for octet in 0..=u8::MAX {
            for octets in [[octet, 0, 255, 9], [10, octet, 99, octet], [100, 1, octet, 200]] {
                let address = ShownAddress::Plain(IpAddr::from(octets));
                assert_eq!(*Box::<str>::from(address), *address.to_string());
            }
        }
        let others = [
            ShownAddress::Plain("2001:db8::1".parse().unwrap()),
            ShownAddress::Prefix("192.0.0.0".parse().unwrap()),
            ShownAddress::Hash(7),
        ];
        for address in others {
            assert_eq!(*Box::<str>::from(address), *address.to_string());
        }
    }
}
