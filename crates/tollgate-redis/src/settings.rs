//! Where Redis is, and how long it may take.
//!
//! A password is never shown: neither settings nor what is wrong with a URL hold
//! it in any text that they give away.
//!
//! - `url`: one URL.
//!
//! Not here: reading files (certificates and passwords come as they are).

mod url;

use std::fmt;
use std::time::Duration;

use url::{Kind, Url};

/// How to reach Redis, and how it is used.
///
/// ```
/// # use tollgate_redis::{RedisSettings, SettingsError};
/// let settings = RedisSettings::parse(&["redis://ann:s3cret@10.0.0.7"])?;
/// assert_eq!(settings.password.as_deref(), Some("s3cret"));
/// assert_eq!(settings.to_string(), "redis://ann:***@10.0.0.7:6379");
/// assert!(RedisSettings::parse(&["http://10.0.0.7"]).is_err());
/// # Ok::<(), SettingsError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// One server, or how several work together.
    pub topology: Topology,
    /// A user of Redis' access control lists; `None`: the default one.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<String>,
    /// The number of the database. Cluster knows only 0.
    pub database: i64,
    /// TLS, if it is spoken.
    pub tls: Option<Tls>,
    /// How long a decision may wait for Redis, connecting included.
    pub deadline: Duration,
    /// For how long a refusal may be remembered without asking again. Zero: not at all.
    pub deny_cache: Duration,
    /// What every key begins with, so that several Tollgates can share one Redis.
    pub prefix: String,
}

/// One server, or how several work together.
#[derive(Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server.
    Standalone(Address),
    /// Sentinels, which know who the primary is.
    Sentinel {
        /// The sentinels.
        sentinels: Vec<Address>,
        /// What they call the primary.
        primary: String,
        /// The user and the password of the sentinels themselves, if they want any.
        username: Option<String>,
        /// The sentinels' own password.
        password: Option<String>,
    },
    /// Some nodes of a Redis Cluster; the others are found.
    Cluster(Vec<Address>),
}

/// A server's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates (PEM) that the server is believed by, instead of the public ones.
    pub ca: Option<Vec<u8>>,
}

/// Why settings cannot be used. Never holds a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not a URL of Redis.
    #[error("{wrong}; {expected}")]
    Url {
        /// Which of those that were given, from 0.
        index: usize,
        /// What is wrong with it.
        wrong: String,
        /// How it should look.
        expected: String,
    },
}

impl RedisSettings {
    /// One server with defaults for everything else.
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            username: None,
            password: None,
            database: 0,
            tls: None,
            deadline: Duration::from_millis(50),
            deny_cache: Duration::from_secs(1),
            prefix: String::new(),
        }
    }

    /// Reads a URL, or several of the nodes of one cluster.
    ///
    /// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`: one server.
    /// - `redis-sentinel://[USER:PASSWORD@]HOST[:PORT],…/PRIMARY[/DATABASE]`, with
    ///   `?sentinel_username=…&sentinel_password=…` if the sentinels want them.
    /// - `redis-cluster://[USER:PASSWORD@]HOST[:PORT],…`, or several of `redis://`.
    ///
    /// With `rediss` over TLS; `valkey` and `valkeys` are the same. What is not
    /// plain in a user or a password is percent-encoded.
    pub fn parse(urls: &[&str]) -> Result<Self, SettingsError> {
        let failed = |index, (wrong, expected)| SettingsError::Url { index, wrong, expected };
        let mut read = Vec::new();
        for (index, text) in urls.iter().enumerate() {
            read.push(Url::parse(text).map_err(|why| failed(index, why))?);
        }
        let mut rest = read.into_iter();
        let Some(mut first) = rest.next() else {
            return Err(failed(0, ("there is no URL".to_owned(), url::URL_SHAPE.to_owned())));
        };
        for (index, other) in rest.enumerate() {
            first.join(other).map_err(|why| failed(index + 1, why))?;
        }
        Ok(first.into())
    }

    /// The URL, as anybody may see it.
    pub fn shown(&self) -> String {
        self.to_string()
    }

    /// Whether sentinels or a cluster stand behind it.
    const fn scheme(&self) -> &'static str {
        match (&self.topology, self.tls.is_some()) {
            (Topology::Standalone(_), false) => "redis",
            (Topology::Standalone(_), true) => "rediss",
            (Topology::Sentinel { .. }, false) => "redis-sentinel",
            (Topology::Sentinel { .. }, true) => "rediss-sentinel",
            (Topology::Cluster(_), false) => "redis-cluster",
            (Topology::Cluster(_), true) => "rediss-cluster",
        }
    }
}

impl From<Url> for RedisSettings {
    fn from(url: Url) -> Self {
        let mut addresses = url.addresses;
        let topology = match url.kind {
            Kind::Standalone if addresses.len() == 1 => Topology::Standalone(addresses.remove(0)),
            Kind::Standalone | Kind::Cluster => Topology::Cluster(addresses),
            Kind::Sentinel { primary, username, password } => {
                Topology::Sentinel { sentinels: addresses, primary, username, password }
            }
        };
        Self {
            username: url.username,
            password: url.password,
            database: url.database,
            tls: url.tls.then(Tls::default),
            ..Self::new(topology)
        }
    }
}

/// The URL, with `***` for a password.
impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        if self.username.is_some() || self.password.is_some() {
            f.write_str(&url::encoded(self.username.as_deref().unwrap_or_default()))?;
            f.write_str(if self.password.is_some() { ":***@" } else { "@" })?;
        }
        let addresses = match &self.topology {
            Topology::Standalone(address) => std::slice::from_ref(address),
            Topology::Sentinel { sentinels, .. } => sentinels,
            Topology::Cluster(nodes) => nodes,
        };
        for (index, address) in addresses.iter().enumerate() {
            write!(f, "{}{address}", if index > 0 { "," } else { "" })?;
        }
        if let Topology::Sentinel { primary, .. } = &self.topology {
            write!(f, "/{}", url::encoded(primary))?;
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        Ok(())
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("url", &self.to_string())
            .field("own_ca", &self.tls.as_ref().is_some_and(|tls| tls.ca.is_some()))
            .field("deadline", &self.deadline)
            .field("deny_cache", &self.deny_cache)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standalone(address) => f.debug_tuple("Standalone").field(address).finish(),
            Self::Sentinel { sentinels, primary, username, password: _ } => f
                .debug_struct("Sentinel")
                .field("sentinels", sentinels)
                .field("primary", primary)
                .field("username", username)
                .finish_non_exhaustive(),
            Self::Cluster(nodes) => f.debug_tuple("Cluster").field(nodes).finish(),
        }
    }
}

/// `host:port`, with brackets around an IPv6 address.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Ok`: how it is shown; `Err`: part of what is wrong. Neither holds a secret.
    #[track_caller]
    fn check(urls: &[&str], expected: Result<&str, &str>) {
        let read = RedisSettings::parse(urls);
        match (&read, expected) {
            (Ok(settings), Ok(shown)) => assert_eq!(settings.to_string(), shown, "{urls:?}"),
            (Err(error), Err(part)) => {
                assert!(error.to_string().contains(part), "{urls:?}: {error}");
                assert!(error.to_string().contains("://"), "{urls:?}: how it should look: {error}");
            }
            (Ok(settings), Err(_)) => panic!("{urls:?} is read as {settings}"),
            (Err(error), Ok(_)) => panic!("{urls:?} is not read: {error}"),
        }
        let reply = match &read {
            Ok(settings) => format!("{settings} {settings:?} {:?} {:#?}", settings.topology, settings),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!reply.contains("hunter"), "{urls:?}: {reply}");
    }

    #[test]
    fn a_url_is_read() {
        check(&["redis://localhost"], Ok("redis://localhost:6379"));
        check(&["REDIS://localhost/"], Ok("redis://localhost:6379"));
        check(&["redis://10.0.0.1:7000/3"], Ok("redis://10.0.0.1:7000/3"));
        check(&["redis://[::1]:7000"], Ok("redis://[::1]:7000"));
        check(&["redis://[2001:db8::1]/1"], Ok("redis://[2001:db8::1]:6379/1"));
        check(&["rediss://h"], Ok("rediss://h:6379"));
        check(&["valkey://h"], Ok("redis://h:6379"));
        check(&["valkeys://h"], Ok("rediss://h:6379"));
        check(&["redis://:hunter2@h"], Ok("redis://:***@h:6379"));
        check(&["redis://ann:hunter2@h"], Ok("redis://ann:***@h:6379"));
        check(&["redis://ann@h"], Ok("redis://ann@h:6379"));
        check(&["redis://ann:@h"], Ok("redis://ann@h:6379"));
        check(&["redis://a%40b:hunter%2F2@h"], Ok("redis://a%40b:***@h:6379"));
        check(&["redis-sentinel://a,b:1,[::1]/main"], Ok("redis-sentinel://a:26379,b:1,[::1]:26379/main"));
        check(
            &["rediss-sentinel://u:hunter2@a/main/2?sentinel_username=s&sentinel_password=hunter3"],
            Ok("rediss-sentinel://u:***@a:26379/main/2"),
        );
        check(&["redis-cluster://:hunter2@a,b:7001"], Ok("redis-cluster://:***@a:6379,b:7001"));
        check(&["rediss-cluster://a"], Ok("rediss-cluster://a:6379"));
        check(&["redis://a", "redis://b:7001", "valkey://a"], Ok("redis-cluster://a:6379,b:7001"));
        check(&["redis-cluster://a", "redis-cluster://b"], Ok("redis-cluster://a:6379,b:6379"));
    }

    #[test]
    fn parts_are_decoded() {
        let settings = RedisSettings::parse(&[
            "redis-sentinel://a%3Ab:p%40%2f%25%C3%A9@h/main?sentinel_password=s%26%3D",
        ]);
        let settings = settings.unwrap();
        assert_eq!(
            (settings.username.as_deref(), settings.password.as_deref()),
            (Some("a:b"), Some("p@/%é"))
        );
        let Topology::Sentinel { primary, username, password, .. } = settings.topology else {
            unreachable!("it is one of sentinels")
        };
        assert_eq!((&*primary, username, password.as_deref()), ("main", None, Some("s&=")));
        assert_eq!(RedisSettings::parse(&["redis://u:a:b@h"]).unwrap().password.as_deref(), Some("a:b"));
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_and_how_it_should_look() {
        check(&[], Err("there is no URL"));
        check(&[""], Err("there is no URL"));
        check(&["localhost:6379"], Err("did you mean `redis://localhost:6379`?"));
        check(&["ann:hunter2@localhost:6379"], Err("begins with `redis://`"));
        check(&["http://h"], Err("`http://` is not spoken by Redis"));
        check(&["redis+tls://:hunter2@h"], Err("did you mean `rediss://`?"));
        check(&["redis+cluster://h"], Err("did you mean `redis-cluster://`?"));
        check(&["redis+sentinel://h"], Err("did you mean `redis-sentinel://`?"));
        check(&["redis+unix:///run/redis.sock"], Err("sockets of the file system"));
        check(&["redis://"], Err("it names no host"));
        check(&["redis://:hunter2@"], Err("it names no host"));
        check(&["redis://:hunter2@:6379"], Err("it names no host"));
        check(&["redis-cluster://a,,b"], Err("it names no host"));
        check(&["redis://h:0"], Err("a port is a number"));
        check(&["redis://h:65536"], Err("a port is a number"));
        check(&["redis://h:"], Err("a port is a number"));
        check(&["redis://ann:hunter2"], Err("a port is a number"));
        check(&["redis://::1"], Err("an IPv6 address stands in brackets"));
        check(&["redis://[::1"], Err("an IPv6 address stands in brackets"));
        check(&["redis://[h]:1"], Err("an IPv6 address stands in brackets"));
        check(&["redis://a b"], Err("`a b` is not a host"));
        check(&["redis://10.0.0:1"], Err("`10.0.0` is not a host"));
        check(&["redis://h/main"], Err("`main` is not the number of a database"));
        check(&["redis://h/-1"], Err("`-1` is not the number of a database"));
        check(&["redis://h/0/1"], Err("more than a database"));
        check(&["redis://a,b"], Err("several hosts"));
        check(&["redis://:hunter2@h?timeout=1"], Err("`timeout` is not known here"));
        check(&["redis://:hunt#er@h"], Err("`#` is written `%23`"));
        check(&["redis://:hunter/2@h"], Err("`/` in a user or a password is written `%2F`"));
        check(&["redis://:hunter?2@h"], Err("`?` in a user or a password is written `%3F`"));
        check(&["redis://:hunter@2@h"], Err("`@` in a user or a password is written `%40`"));
        check(&["redis-cluster://u:hunter2@a,u:hunter2@b"], Err("they stand once, before the first host"));
        check(&["redis://:hunter%2@h"], Err("`%` itself is written `%25`"));
        check(&["redis://:hunter%zz@h"], Err("`%` itself is written `%25`"));
        check(&["redis://:hunter%ff@h"], Err("not UTF-8"));
        check(&["redis-cluster://a/1"], Err("a cluster knows only database 0"));
        check(&["redis-cluster://a/b/c"], Err("a cluster knows only database 0"));
        check(&["redis-sentinel://a,b"], Err("it does not say what the sentinels call the primary"));
        check(&["redis-sentinel://a/main/x"], Err("`x` is not the number of a database"));
        check(&["redis-sentinel://a/main/1/2"], Err("more than a database"));
        check(&["redis-sentinel://a/main?sentinel_pass=hunter2"], Err("did you mean `sentinel_password`?"));
        check(&["redis-sentinel://a/main?hunter2"], Err("only `sentinel_username` and `sentinel_password`"));
        check(&["redis://a", "redis-sentinel://b/main"], Err("sentinels stand in one URL"));
        check(&["redis-sentinel://b/main", "redis://a"], Err("sentinels stand in one URL"));
        check(&["redis://a", "rediss://b"], Err("TLS for one and not for the other"));
        check(&["redis://a", "redis://:hunter2@b"], Err("the same user and password"));
        check(&["redis://a", "redis://b/1"], Err("a cluster knows only database 0"));
        check(&["redis://a/1", "redis://b"], Err("a cluster knows only database 0"));
    }
}
