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
