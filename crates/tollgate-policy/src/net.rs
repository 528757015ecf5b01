//! IP networks, and sets of networks with fast lookup.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tollgate_document::{Mistake, short};

/// An IP network: an address and the length of its prefix.
///
/// A `Net` has no bit set beyond its prefix, and an IPv4 network is
/// never stored as IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

impl Net {
    /// Returns the network of `prefix` bits that contains `address`. `::ffff:a.b.c.d` becomes `a.b.c.d`;
    /// a prefix longer than the address yields the whole address.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        let address = address.to_canonical();
        let prefix = prefix.min(if address.is_ipv4() { 32 } else { 128 });
        let address = match address {
            IpAddr::V4(it) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from(u32::from(it) & mask))
            }
            IpAddr::V6(it) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from(u128::from(it) & mask))
            }
        };
        Self { address, prefix }
    }

    /// Returns the first address.
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Returns the length of the prefix in bits.
    pub const fn prefix(&self) -> u8 {
        self.prefix
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Mistake> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let Ok(written) = address.parse::<IpAddr>() else {
            return Err(Mistake::new(format!("`{}` is not an address", short(address)))
                .at(0..address.len())
                .help(
                    "addresses look like 10.0.0.1 or 2001:db8::1, networks like 10.0.0.0/8 or 2001:db8::/32",
                ));
        };
        let address = written.to_canonical();
        let (bits, mapped) = match (address, written) {
            (IpAddr::V4(_), IpAddr::V6(_)) => (128, 96),
            (IpAddr::V4(_), _) => (32, 0),
            _ => (128, 0),
        };
        let Some(prefix) = prefix else { return Ok(Self::around(address, bits - mapped)) };
        let at = text.len() - prefix.len()..text.len();
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| (mapped..=bits).contains(prefix));
        let Some(prefix) = prefix else {
            return Err(Mistake::new(format!("a prefix of this address has {mapped} to {bits} bits"))
                .at(at)
                .label("not this many"));
        };
        let net = Self::around(address, prefix - mapped);
        if net.address != address {
            return Err(Mistake::new(format!("`{text}` has bits beyond its prefix"))
                .label(format!("did you mean `{net}` or `{address}`?"))
                .help("the address of a network ends in zeros"));
        }
        Ok(net)
    }

    /// Returns the first and last address, with IPv4 mapped into IPv6.
    fn range(&self) -> (u128, u128) {
        let first = number(self.address);
        let host_bits = match self.address {
            IpAddr::V4(_) => 32 - u32::from(self.prefix),
            IpAddr::V6(_) => 128 - u32::from(self.prefix),
        };
        (first, first | u128::MAX.checked_shr(128 - host_bits).unwrap_or(0))
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = if self.address.is_ipv4() { 32 } else { 128 };
        if self.prefix == whole {
            return write!(f, "{}", self.address);
        }
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(it) => u128::from(it.to_ipv6_mapped()),
        IpAddr::V6(it) => u128::from(it),
    }
}

/// A set of networks with numbers, searched by binary search.
///
/// Two networks are nested or disjoint. Networks inside others are removed, so the rest
/// is sorted and never overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetSet(Vec<Range>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u128,
    last: u128,
    entry: u32,
}

impl NetSet {
    pub(crate) fn new(nets: impl IntoIterator<Item = (Net, u32)>) -> Self {
        let mut ranges: Vec<Range> = nets
            .into_iter()
            .map(|(net, entry)| {
                let (first, last) = net.range();
                Range { first, last, entry }
            })
            .collect();
        ranges.sort_by_key(|range| (range.first, std::cmp::Reverse(range.last), range.entry));
        let mut end = None;
        ranges.retain(|range| {
            let apart = end.is_none_or(|end| range.first > end);
            end = if apart { Some(range.last) } else { end };
            apart
        });
        Self(ranges)
    }

    /// Whether one of the networks contains this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.find(address).is_some()
    }

    /// Whether the set is empty.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the networks in the order of their addresses, without those inside others.
    pub fn iter(&self) -> impl Iterator<Item = Net> {
        self.0.iter().map(|range| {
            let address = IpAddr::V6(Ipv6Addr::from(range.first)).to_canonical();
            let host_bits = (range.first ^ range.last).count_ones();
            let bits = if address.is_ipv4() && host_bits <= 32 { 32 } else { 128 };
            Net::around(address, u8::try_from(bits - host_bits).unwrap_or(0))
        })
    }

    pub(crate) fn find(&self, address: IpAddr) -> Option<u32> {
        let wanted = number(address);
        let next = self.0.partition_point(|range| range.first <= wanted);
        self.0[..next].last().filter(|range| wanted <= range.last).map(|range| range.entry)
    }
}

impl FromIterator<Net> for NetSet {
    fn from_iter<I: IntoIterator<Item = Net>>(nets: I) -> Self {
        Self::new(nets.into_iter().map(|net| (net, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_its_networks_hold() {
        let nets =
            ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32", "0.0.0.0/32", "::ffff:9.9.9.0/120"];
        let nets: Vec<Net> = nets.iter().map(|net| Net::parse(net).unwrap()).collect();
        let set: NetSet = nets.iter().copied().collect();
        let written: Vec<_> = set.iter().map(|net| net.to_string()).collect();
        assert_eq!(written, ["0.0.0.0", "9.9.9.0/24", "10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
        for (address, held) in [
            ("10.0.0.0", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("9.255.255.255", false),
            ("9.9.9.77", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("::ffff:10.1.2.3", true),
            ("2001:db8:ffff::1", true),
            ("2001:db9::", false),
            ("0.0.0.0", true),
            ("0.0.0.1", false),
            ("::", false),
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(set.contains(address), held, "{address}");
        }
        let all: NetSet = [Net::parse("::/0").unwrap()].into_iter().collect();
        assert!(all.contains("1.2.3.4".parse().unwrap()), "everything is everything");
    }

    #[test]
    fn networks_with_host_bits_or_odd_prefixes_are_mistakes() {
        for text in
            ["10.0.0.1/8", "10.0.0.0/33", "::/129", "10.0.0/8", "", "/", "::ffff:1.2.3.4/20", "1.2.3.4/x"]
        {
            assert!(Net::parse(text).is_err(), "{text}");
        }
        assert_eq!(Net::around("2001:db8:1:2:3::4".parse().unwrap(), 64).to_string(), "2001:db8:1:2::/64");
        assert_eq!(Net::around("203.0.113.9".parse().unwrap(), 64).to_string(), "203.0.113.9");
    }
}
