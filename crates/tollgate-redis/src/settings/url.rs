//! Parses one Redis URL.
//!
//! Users, passwords and addresses are parsed by [`tollgate_store::server_url`].
//!
//! Invariant: no error quotes text that may be part of a password.

use tollgate_store::server_url::{Address, UrlParts, decode, must_encode};

/// The expected format of a URL.
pub(super) const URL_SHAPE: &str =
    "such as redis://HOST:6379, redis://USER:PASSWORD@HOST:6379/0 or rediss://HOST for TLS";
const SENTINEL_SHAPE: &str = "such as redis-sentinel://HOST:26379,HOST:26379/PRIMARY";
const CLUSTER_SHAPE: &str = "such as redis-cluster://HOST:6379,HOST:6379";

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
        let UrlParts { username, password, hosts, path, query } = UrlParts::parse(rest)?;
        if query.contains('@') && !query.starts_with("sentinel_") {
            return Err(must_encode('?'));
        }
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
                let (primary, database) = (decode(primary)?, read_database(path)?);
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
                (Kind::Sentinel { username, .. }, "sentinel_username") => *username = some(decode(value)?),
                (Kind::Sentinel { password, .. }, "sentinel_password") => *password = some(decode(value)?),
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
        None if plain(&word) => Err((format!("`{word}://` is not a scheme of Redis"), shape)),
        None => Err(("a URL of Redis begins with `redis://`".to_owned(), shape)),
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn read_hosts(text: &str, scheme: Scheme) -> Result<Vec<Address>, String> {
    let mut addresses = Vec::new();
    for address in Address::parse_list(text, scheme.port())? {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if scheme == Scheme::Standalone && text.contains(',') {
        return Err("several hosts are redis-cluster:// or redis-sentinel://".to_owned());
    }
    Ok(addresses)
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
