//! Which address is the client's.
//!
//! Whoever connects is believed about whom it speaks for only if it is a trusted
//! proxy. So the walk starts at the connection, and each trusted hop may name
//! the one before it: from the right of the forwarding header to the left, over
//! all its lines as one list. The first address that is not trusted is the
//! client. Everything to the left of it was written by the client, or could
//! have been, and is not even looked at.
//!
//! A hop that names no address (`unknown`, `_hidden`, nonsense) ends the walk at
//! the last good one, which is a proxy's: such clients share an allowance, and
//! none escapes it.
//!
//! Not here: headers of single vendors (`CF-Connecting-IP`), which mean nothing
//! from anybody else; cutting addresses to prefixes (`tollgate_policy`).
//!
//! Invariant: nothing that an untrusted client puts in front of the header
//! changes the result. Held by `tests/client_address.rs`. Each byte of the
//! header is looked at once and nothing is allocated.

mod elements;
mod node;

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use tollgate::policy::{ClientAddress, ForwardedHeader};

use self::elements::Elements;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// A request passes a handful of proxies; a header that claims more is hostile.
const MAX_HOPS: usize = 64;

/// The client's address, given who is at the other end of the connection.
///
/// `None` when that is not known, as on a Unix socket: then no header can be
/// trusted either.
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
/// assert_eq!(client([198, 51, 100, 2]), Some([198, 51, 100, 2].into())); // a stranger
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
pub fn client_address(peer: Option<IpAddr>, headers: &HeaderMap, settings: &ClientAddress) -> Option<IpAddr> {
    let peer = peer?.to_canonical();
    Some(if settings.trusted_proxies.contains(peer) { named_by(peer, headers, settings) } else { peer })
}

/// The client's address, given a peer that is believed whoever it is: a proxy
/// that asks about its client's requests (forward auth).
///
/// What it says with `X-Real-IP` counts where it sends no forwarding header.
pub fn client_address_behind(peer: IpAddr, headers: &HeaderMap, settings: &ClientAddress) -> IpAddr {
    let peer = peer.to_canonical();
    let header = match settings.header {
        ForwardedHeader::None => return peer,
        ForwardedHeader::XForwardedFor => &X_FORWARDED_FOR,
        ForwardedHeader::Forwarded => &FORWARDED,
    };
    if headers.contains_key(header) {
        return named_by(peer, headers, settings);
    }
    let real_ip = headers.get(&X_REAL_IP).and_then(|line| node::address(line.as_bytes().trim_ascii()));
    real_ip.unwrap_or(peer)
}

/// The client that a believed peer names.
fn named_by(peer: IpAddr, headers: &HeaderMap, settings: &ClientAddress) -> IpAddr {
    match settings.header {
        ForwardedHeader::None => peer,
        ForwardedHeader::XForwardedFor => {
            let hops = from_the_right(headers, &X_FORWARDED_FOR, Elements::unquoted);
            walk(peer, hops.map(node::address), settings)
        }
        ForwardedHeader::Forwarded => {
            let hops = from_the_right(headers, &FORWARDED, Elements::quoted);
            walk(peer, hops.map(node::forwarded_for), settings)
        }
    }
}

/// The peer names a hop; as long as that is trusted, the one it names is the next.
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

/// The elements of all lines of a header, the last first. Empty ones mean nothing (RFC 9110, 5.6.1).
fn from_the_right<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
    split: fn(&'h [u8], u8) -> Elements<'h>,
) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).into_iter().rev();
    let elements = lines.flat_map(move |line| split(line.as_bytes(), b','));
    elements.take(MAX_HOPS).map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
}
