//! Parses one Redis URL.
//!
//! The `url` crate does not serve here. It rejects several hosts as soon as one of them has a port
//! or brackets (`a:7000,b:7001`: "invalid port number"). It accepts a `%` that encodes nothing, a
//! second `@` in a password, port 0 and the host `10.0.0`, all of which are mistakes in a Redis URL.
//! Its errors name neither the place of the mistake nor the correction.
//!
//! Invariant: no error quotes text that may be part of a password.

use std::net::{Ipv4Addr, Ipv6Addr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode};

use super::Address;

/// The expected format of a URL.
pub(super) const URL_SHAPE: &str =
    "such as redis://HOST:6379, redis://USER:PASSWORD@HOST:6379/0 or rediss://HOST for TLS";
const SENTINEL_SHAPE: &str = "such as redis-sentinel://HOST:26379,HOST:26379/PRIMARY";
const CLUSTER_SHAPE: &str = "such as redis-cluster://HOST:6379,HOST:6379";

/// The characters that RFC 3986 does not list as unreserved.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The mistake, and the expected format.
type UrlError = (String, String);

/// The parts of a URL.
pub(super) struct Url {
    pub(super) kind: Kind,
    pub(super) tls: bool,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) addresses: Vec<Address>,
    pub(super) database: i64,
}

/// The topology that a URL describes.
pub(super) enum Kind {
    /// One server, or a cluster if there are several URLs.
    Standalone,
    Sentinel {
        primary: String,
        username: Option<String>,
        password: Option<String>,
    },
    Cluster,
}

/// The topology that a scheme implies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Standalone,
    Sentinel,
    Cluster,
}

impl Scheme {
    const fn port(self) -> u16 {
        match self {
            Self::Sentinel => 26379,
            Self::Standalone | Self::Cluster => 6379,
        }
    }

    const fn shape(self) -> &'static str {
        match self {
            Self::Standalone => URL_SHAPE,
            Self::Sentinel => SENTINEL_SHAPE,
            Self::Cluster => CLUSTER_SHAPE,
        }
    }
}

impl Url {
    pub(super) fn parse(text: &str) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(("there is no URL".to_owned(), URL_SHAPE.to_owned()));
        }
        let Some((word, rest)) = text.split_once("://") else { return Err(without_scheme(text)) };
        let (scheme, tls) = read_scheme(word)?;
        Self::parse_rest(rest, scheme, tls).map_err(|wrong| (wrong, scheme.shape().to_owned()))
    }

    fn parse_rest(rest: &str, scheme: Scheme, tls: bool) -> Result<Self, String> {
        if rest.contains('#') {
            return Err("a `#` is written `%23`".to_owned());
        }
        let (authority, path, query) = split(rest)?;
        let (credentials, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (username, password) = read_credentials(credentials, scheme)?;
        let addresses = read_hosts(hosts, scheme)?;
        let mut path: Vec<_> = path.split('/').collect();
        // The empty element after a trailing slash.
        if path.last() == Some(&"") {
            path.pop();
        }
        let (kind, database) = match scheme {
            Scheme::Standalone => (Kind::Standalone, read_database(&path)?),
            Scheme::Cluster if matches!(path[..], [] | ["0"]) => (Kind::Cluster, 0),
            Scheme::Cluster => return Err("a cluster has only database 0".to_owned()),
            Scheme::Sentinel => {
                let Some((primary, path)) = path.split_first().filter(|(name, _)| !name.is_empty()) else {
                    return Err("the name of the primary is missing".to_owned());
                };
                let (primary, database) = (decoded(primary)?, read_database(path)?);
                (Kind::Sentinel { primary, username: None, password: None }, database)
            }
        };
        let mut url = Self { kind, tls, username, password, addresses, database };
        url.take_query(query)?;
        Ok(url)
    }

    fn take_query(&mut self, query: &str) -> Result<(), String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match (&mut self.kind, name) {
                (Kind::Sentinel { username, .. }, "sentinel_username") => *username = some(decoded(value)?),
                (Kind::Sentinel { password, .. }, "sentinel_password") => *password = some(decoded(value)?),
                (Kind::Sentinel { .. }, name) if name.starts_with("sentinel_pass") => {
                    return Err(
                        "an unknown parameter follows `?`: did you mean `sentinel_password`?".to_owned()
                    );
                }
                // The text after a `?` may be part of a password, so it is not quoted.
                (Kind::Sentinel { .. }, _) => {
                    return Err("only `sentinel_username` and `sentinel_password` can follow `?`".to_owned());
                }
                (_, name) if pair.contains('=') && plain(name) => {
                    return Err(format!("`{name}` is not a known parameter: this URL takes none"));
                }
                _ => return Err("this URL takes no parameters".to_owned()),
            }
        }
        Ok(())
    }

    /// Adds another node of the same cluster.
    pub(super) fn join(&mut self, other: Self) -> Result<(), UrlError> {
        let wrong = |text: &str, shape: &str| Err((text.to_owned(), shape.to_owned()));
        let is_sentinel = |url: &Self| matches!(url.kind, Kind::Sentinel { .. });
        if is_sentinel(self) || is_sentinel(&other) {
            return wrong("list all sentinels in one URL, separated by commas", SENTINEL_SHAPE);
        }
        if self.tls != other.tls {
            return wrong(
                "several URLs are one cluster: TLS for one and not for the other is not",
                CLUSTER_SHAPE,
            );
        }
        if (&self.username, &self.password) != (&other.username, &other.password) {
            return wrong(
                "several URLs are one cluster, and must have the same user and password",
                CLUSTER_SHAPE,
            );
        }
        if self.database != 0 || other.database != 0 {
            return wrong("several URLs are one cluster, and a cluster has only database 0", CLUSTER_SHAPE);
        }
        for address in other.addresses {
            if !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
        // Also if both URLs name the same node: several URLs always mean a cluster.
        self.kind = Kind::Cluster;
        Ok(())
    }
}

/// Splits into authority, path and query.
fn split(rest: &str) -> Result<(&str, &str, &str), String> {
    let must = |char: char, code: &str| format!("a `{char}` in a user or a password is written `{code}`");
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
    if path.contains('@') {
        return Err(must('/', "%2F"));
    }
    if query.contains('@') && !query.starts_with("sentinel_") {
        return Err(must('?', "%3F"));
    }
    Ok((authority, path.strip_prefix('/').unwrap_or(path), query))
}

/// Returns the error for a text without a scheme. The text is quoted only if it cannot contain a
/// password.
fn without_scheme(text: &str) -> UrlError {
    let shape = URL_SHAPE.to_owned();
    if !text.contains('@') && read_hosts(text, Scheme::Standalone).is_ok() {
        return ("it has no scheme".to_owned(), format!("did you mean `redis://{text}`?"));
    }
    ("a URL of Redis begins with `redis://`".to_owned(), shape)
}

/// Reads the topology of a scheme, and whether it uses TLS.
fn read_scheme(word: &str) -> Result<(Scheme, bool), UrlError> {
    let word = word.to_ascii_lowercase();
    let known = |word: &str| {
        let (base, scheme) = match word.split_once('-') {
            None => (word, Scheme::Standalone),
            Some((base, "sentinel")) => (base, Scheme::Sentinel),
            Some((base, "cluster")) => (base, Scheme::Cluster),
            Some(_) => return None,
        };
        match base {
            "redis" | "valkey" => Some((scheme, false)),
            "rediss" | "valkeys" => Some((scheme, true)),
            _ => None,
        }
    };
    if let Some(found) = known(&word) {
        return Ok(found);
    }
    let shape = URL_SHAPE.to_owned();
    if word.contains("unix") {
        return Err(("sockets of the file system are not supported".to_owned(), shape));
    }
    let meant = match word.replace(['+', '_'], "-").as_str() {
        "redis-tls" | "redis-ssl" | "valkey-tls" | "valkey-ssl" | "tls" => Some("rediss".to_owned()),
        "sentinel" => Some("redis-sentinel".to_owned()),
        "cluster" => Some("redis-cluster".to_owned()),
        "tcp" | "reds" | "rdis" | "redi" | "redsi" => Some("redis".to_owned()),
        other => known(other).map(|_| other.to_owned()),
    };
    match meant {
        Some(meant) => {
            let wrong = format!("`{word}://` is not known here: did you mean `{meant}://`?");
            Err((wrong, shape))
        }
        // The text before `://` may be part of a password.
        None if plain(&word) => Err((format!("`{word}://` is not spoken by Redis"), shape)),
        None => Err(("a URL of Redis begins with `redis://`".to_owned(), shape)),
    }
}

type Credentials = (Option<String>, Option<String>);

fn read_credentials(text: &str, scheme: Scheme) -> Result<Credentials, String> {
    if text.contains('@') {
        let once = if scheme == Scheme::Standalone { "" } else { "; write them once, before the first host" };
        return Err(format!("an `@` in a user or a password is written `%40`{once}"));
    }
    let (username, password) = text.split_once(':').unwrap_or((text, ""));
    Ok((some(decoded(username)?), some(decoded(password)?)))
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn read_hosts(text: &str, scheme: Scheme) -> Result<Vec<Address>, String> {
    let mut addresses = Vec::new();
    for host in text.split(',') {
        let address = read_address(host, scheme.port())?;
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if scheme == Scheme::Standalone && text.contains(',') {
        return Err("several hosts are redis-cluster:// or redis-sentinel://".to_owned());
    }
    Ok(addresses)
}

fn read_address(text: &str, default: u16) -> Result<Address, String> {
    let brackets = || "write an IPv6 address in brackets: [::1]:6379".to_owned();
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(brackets)?;
        host.parse::<Ipv6Addr>().map_err(|_| brackets())?;
        let port = if port.is_empty() { None } else { Some(port.strip_prefix(':').unwrap_or(port)) };
        (host, port)
    } else {
        if text.matches(':').count() > 1 {
            return Err(brackets());
        }
        let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        if host.is_empty() {
            return Err("it names no host".to_owned());
        }
        if !is_host(host) {
            return Err(format!("`{host}` is not a host"));
        }
        (host, port)
    };
    let port = match port {
        None => default,
        Some(port) => {
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|number| digits && *number > 0);
            // Not quoted: if the host is missing, the password is parsed as the port.
            number.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())?
        }
    };
    Ok(Address { host: host.to_owned(), port })
}

fn is_host(text: &str) -> bool {
    // Text that consists of digits and dots must be a valid IPv4 address.
    if text.bytes().all(|it| it.is_ascii_digit() || it == b'.') {
        return text.parse::<Ipv4Addr>().is_ok();
    }
    text.len() <= 253 && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
}

/// Reads the database from the path after the hosts or the primary.
fn read_database(path: &[&str]) -> Result<i64, String> {
    match path {
        [] => Ok(0),
        [number] => {
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            let read = number.parse().ok().filter(|_| digits);
            read.ok_or_else(|| format!("`{number}` is not the number of a database"))
        }
        _ => Err("more than a database follows the host".to_owned()),
    }
}

fn plain(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text.bytes().all(|it| it.is_ascii_alphanumeric() || b"+-_.".contains(&it))
}

/// Percent-decodes a text: `%40` is `@`.
fn decoded(text: &str) -> Result<String, String> {
    let is_digits = |code: &[u8]| code.iter().all(u8::is_ascii_hexdigit);
    if !text.match_indices('%').all(|(at, _)| text.as_bytes().get(at + 1..at + 3).is_some_and(is_digits)) {
        return Err("a `%` is followed by two hexadecimal digits; a `%` itself is written `%25`".to_owned());
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| "the percent-encoded text is not UTF-8".to_owned())
}

/// Percent-encodes a text: `@` is `%40`.
pub(super) fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}
