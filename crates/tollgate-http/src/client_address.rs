//! Determines the client address of a request behind proxies.
//!
//! A peer may speak for another address only if it is a trusted proxy. The walk therefore starts at
//! the connection. Each trusted hop names the hop before it: the forwarding header is read from
//! right to left, with all its lines joined into one list. The first address that is not trusted is
//! the client. The client may have written every element to the left of that address, so those
//! elements are not read.
//!
//! A hop that names no valid address (`unknown`, `_hidden`, malformed text) ends the walk at the
//! last valid address, which belongs to a proxy. Such clients share one allowance and cannot escape
//! it.
//!
//! Not here: vendor headers (`CF-Connecting-IP`), which are only meaningful when that vendor sends
//! them; truncating addresses to prefixes (`tollgate_policy`).
//!
//! Invariant: data that an untrusted client prepends to the header does not change the result.
//! `tests/client_address.rs` checks this. Each byte of the header is read once and nothing is
//! allocated.

mod elements;
mod node;

use std::net::IpAddr;

use tollgate::policy::{ClientAddress, ForwardedHeader};

use self::elements::Elements;
use crate::header_lines::HeaderLines;

const X_FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED: &str = "forwarded";
const X_REAL_IP: &str = "x-real-ip";

/// The number of hops that are read; a header with more elements is treated as hostile.
const MAX_HOPS: usize = 64;

/// Returns the client address for a connection from `peer`.
///
/// Returns `None` when the peer address is unknown, as on a Unix socket: no header can be trusted
/// then.
///
/// ```
/// # use http::HeaderMap;
/// # use tollgate_http::client_address;
/// # use tollgate::Policy;
/// let policy = Policy::parse("
/// client: {trusted_proxies: [10.0.0.0/8]}
/// limits: [{by: ip, bucket: 10/minute}]
/// ")?;
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7".parse().unwrap());
/// let client = |peer: [u8; 4]| client_address(Some(peer.into()), &headers, policy.client());
/// assert_eq!(client([10, 0, 0, 1]), Some([203, 0, 113, 9].into()));    // through two proxies
/// assert_eq!(client([198, 51, 100, 2]), Some([198, 51, 100, 2].into())); // an untrusted peer
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn client_address(
    peer: Option<IpAddr>,
    headers: &impl HeaderLines,
    settings: &ClientAddress,
) -> Option<IpAddr> {
    let peer = peer?.to_canonical();
    Some(if settings.trusted_proxies.contains(peer) { named_by(peer, headers, settings) } else { peer })
}

/// Returns the client address for a peer that is trusted whatever its address is, such as a proxy
/// that makes forward-auth requests.
///
/// `X-Real-IP` is used when the request has no forwarding header.
pub fn client_address_behind(peer: IpAddr, headers: &impl HeaderLines, settings: &ClientAddress) -> IpAddr {
    let peer = peer.to_canonical();
    let header = match settings.header {
        ForwardedHeader::None => return peer,
        ForwardedHeader::XForwardedFor => X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => FORWARDED,
    };
    if headers.first_line(header).is_some() {
        return named_by(peer, headers, settings);
    }
    let real_ip = headers.first_line(X_REAL_IP).and_then(|line| node::address(line.trim_ascii()));
    real_ip.unwrap_or(peer)
}

/// Returns the client address that a trusted peer names.
fn named_by(peer: IpAddr, headers: &impl HeaderLines, settings: &ClientAddress) -> IpAddr {
    match settings.header {
        ForwardedHeader::None => peer,
        ForwardedHeader::XForwardedFor => {
            let hops = from_the_right(headers, X_FORWARDED_FOR, Elements::unquoted);
            walk(peer, hops.map(node::address), settings)
        }
        ForwardedHeader::Forwarded => {
            let hops = from_the_right(headers, FORWARDED, Elements::quoted);
            walk(peer, hops.map(node::forwarded_for), settings)
        }
    }
}

/// Follows the hops while each one is trusted, starting at `peer`.
fn walk(peer: IpAddr, mut hops: impl Iterator<Item = Option<IpAddr>>, settings: &ClientAddress) -> IpAddr {
    let mut client = peer;
    while let Some(Some(address)) = hops.next() {
        client = address;
        if !settings.trusted_proxies.contains(client) {
            break;
        }
    }
    client
}

/// Iterates over the elements of all lines of a header, last element first. Empty elements are
/// skipped (RFC 9110, 5.6.1).
fn from_the_right<'h>(
    headers: &'h impl HeaderLines,
    name: &'static str,
    split: fn(&'h [u8], u8) -> Elements<'h>,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.lines(name).rev();
    let elements = lines.flat_map(move |line| split(line, b','));
    elements.take(MAX_HOPS).map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
