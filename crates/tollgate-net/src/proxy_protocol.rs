//! The PROXY protocol, versions 1 and 2: the client address from a load balancer.
//!
//! If the header is required, a connection without it is closed, and the header of an untrusted
//! peer is not read. No bytes after the header are consumed.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt};

/// The first bytes of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// The maximum length of a version 1 line, including its end.
const MAX_V1_BYTES: usize = 107;

/// The maximum length of a version 2 header: addresses and a few hundred bytes of extensions.
const MAX_V2_BYTES: usize = 4096;

/// Reads the header. `None`: the balancer connects for itself (health checks).
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    // The shortest header of either version is longer than this.
    let mut start = [0; SIGNATURE.len()];
    stream.read_exact(&mut start).await?;
    if start == SIGNATURE {
        return read_v2(stream).await;
    }
    let mut line = start.to_vec();
    if !line.starts_with(b"PROXY ") {
        return Err(wrong("no PROXY header"));
    }
    // Byte by byte: the bytes after the line belong to the next reader.
    while !line.ends_with(b"\r\n") {
        if line.len() >= MAX_V1_BYTES {
            return Err(wrong("a PROXY line without an end"));
        }
        line.push(stream.read_u8().await?);
    }
    let line =
        std::str::from_utf8(&line[..line.len() - 2]).map_err(|_| wrong("a PROXY line that is not text"))?;
    v1(line).ok_or_else(|| wrong("an invalid PROXY line"))
}

/// Parses a version 1 line. The inner `None` is `UNKNOWN`.
#[allow(clippy::option_option, reason = "invalid, no client, a client")]
fn v1(line: &str) -> Option<Option<SocketAddr>> {
    let mut words = line.split(' ').skip(1);
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(None);
    }
    let (source, destination): (IpAddr, IpAddr) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let port: u16 = words.next()?.parse().ok()?;
    let _: u16 = words.next()?.parse().ok()?;
    let fits = match family {
        "TCP4" => source.is_ipv4() && destination.is_ipv4(),
        "TCP6" => source.is_ipv6() && destination.is_ipv6(),
        _ => false,
    };
    (fits && words.next().is_none()).then(|| Some(SocketAddr::new(source, port)))
}

async fn read_v2(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let [version_command, family, high, low] = head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_V2_BYTES {
        return Err(wrong("a PROXY header that is too long"));
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    match version_command {
        0x20 => Ok(None),
        0x21 => v2_source(family, &rest),
        _ => Err(wrong("a PROXY header of an unknown version or command")),
    }
}

/// Parses the source address and port of a version 2 header. Extensions follow it.
fn v2_source(family: u8, rest: &[u8]) -> io::Result<Option<SocketAddr>> {
    let too_short = || wrong("a PROXY header without its addresses");
    let port = |at: usize| -> io::Result<u16> {
        let bytes = rest.get(at..at + 2).and_then(|it| it.try_into().ok());
        bytes.map(u16::from_be_bytes).ok_or_else(too_short)
    };
    match family {
        0x11 => {
            let source: [u8; 4] = rest.get(..4).and_then(|it| it.try_into().ok()).ok_or_else(too_short)?;
            Ok(Some(SocketAddr::new(Ipv4Addr::from(source).into(), port(8)?)))
        }
        0x21 => {
            let source: [u8; 16] = rest.get(..16).and_then(|it| it.try_into().ok()).ok_or_else(too_short)?;
            Ok(Some(SocketAddr::new(Ipv6Addr::from(source).into(), port(32)?)))
        }
        // Unspecified, datagrams, Unix sockets: no client address.
        _ => Ok(None),
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<Option<&str>, &str>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut stream = [bytes, b"GET"].concat();
        let mut cursor = &mut &stream.split_off(0)[..];
        let read = runtime.block_on(read(&mut cursor));
        match expected {
            Ok(source) => {
                assert_eq!(read.unwrap().map(|it| it.to_string()).as_deref(), source, "{bytes:?}");
                assert_eq!(*cursor, b"GET", "{bytes:?}");
            }
            Err(message) => assert!(read.unwrap_err().to_string().contains(message), "{bytes:?}"),
        }
    }

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_name_the_client_and_leave_the_rest() {
        check(b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443\r\n", Ok(Some("203.0.113.9:4711")));
        check(b"PROXY TCP6 2001:db8::9 2001:db8::1 4711 443\r\n", Ok(Some("[2001:db8::9]:4711")));
        check(b"PROXY UNKNOWN\r\n", Ok(None));
        check(b"PROXY UNKNOWN ::1 ::1 1 2\r\n", Ok(None));
        let v4 = [203, 0, 113, 9, 192, 0, 2, 1, 0x12, 0x67, 1, 187];
        check(&v2(0x21, 0x11, &v4), Ok(Some("203.0.113.9:4711")));
        check(&v2(0x21, 0x11, &[&v4[..], &[0x04, 0, 1, 0]].concat()), Ok(Some("203.0.113.9:4711")));
        check(&v2(0x20, 0x00, &[]), Ok(None));
        check(&v2(0x21, 0x31, &[0; 216]), Ok(None));
        let mut v6 = [0; 36];
        (v6[0], v6[1], v6[15], v6[32]) = (0x20, 0x01, 9, 1);
        check(&v2(0x21, 0x21, &v6), Ok(Some("[2001::9]:256")));
    }

    #[test]
    fn invalid_headers_are_refused() {
        check(b"GET / HTTP/1.1\r\n", Err("no PROXY header"));
        check(b"PROXY TCP4 203.0.113.9\r\n", Err("an invalid PROXY line"));
        check(b"PROXY TCP4 2001:db8::9 2001:db8::1 4711 443\r\n", Err("an invalid PROXY line"));
        check(b"PROXY TCP4 203.0.113.9 192.0.2.1 4711 443 x\r\n", Err("an invalid PROXY line"));
        check(b"PROXY TCP4 203.0.113.9 192.0.2.1 99999 443\r\n", Err("an invalid PROXY line"));
        check(&[b"PROXY ", &[b'x'; 200][..]].concat(), Err("without an end"));
        check(&v2(0x11, 0x11, &[0; 12]), Err("unknown version"));
        check(&v2(0x21, 0x11, &[0; 4]), Err("without its addresses"));
        check(&v2(0x21, 0x11, &[0; 5000]), Err("too long"));
    }
}
