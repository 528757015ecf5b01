//! The address of Redis, and the deadlines.
//!
//! Passwords are never shown: neither the settings nor their errors include a password in any text.
//!
//! - `url`: parses one URL.
//!
//! Not here: reading files (certificates and passwords are passed as values).

mod url;

use std::fmt;
use std::time::Duration;

pub use tollgate_store::server_url::{Address, SettingsError};
use tollgate_store::server_url::{AddressList, encode};

use url::{Kind, Url};

/// The settings of a [`RedisStore`](crate::RedisStore): how to reach Redis, and how to use it.
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
    /// One server, Sentinel or Cluster.
    pub topology: Topology,
    /// A user of the Redis access control list; `None`: the default user.
    pub username: Option<String>,
    /// The password of the user.
    pub password: Option<String>,
    /// The number of the database. A cluster has only database 0.
    pub database: i64,
    /// The TLS settings; `None`: no TLS.
    pub tls: Option<Tls>,
    /// The maximum time that a decision waits for Redis, including connecting.
    pub deadline: Duration,
    /// The maximum time that a refusal is cached. Zero disables the deny cache.
    pub deny_cache: Duration,
    /// The prefix of every key, so that several deployments can share one Redis.
    pub prefix: String,
}

/// The topology of Redis: one server, Sentinel or Cluster.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    Standalone(Address),
    /// Sentinels that name the primary.
    Sentinel {
        /// The addresses of the sentinels.
        sentinels: Vec<Address>,
        /// The name of the primary in the sentinels.
        primary: String,
        /// The user for the sentinels themselves, if they require one.
        username: Option<String>,
        /// The password for the sentinels themselves, if they require one.
        password: Option<String>,
    },
    /// Some nodes of a Redis Cluster; the other nodes are discovered.
    Cluster(Vec<Address>),
}

/// The TLS settings of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// The CA certificates (PEM) to trust instead of the public ones.
    pub ca: Option<Vec<u8>>,
    /// The certificate that this client presents, if the server requires one.
    pub client: Option<ClientCertificate>,
}

/// A certificate of a client and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The chain, the client's own certificate first.
    pub chain: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

/// Does not show the key.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}

impl RedisSettings {
    /// Creates settings for a topology, with defaults for the other fields.
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

    /// Parses a URL, or several URLs of the nodes of one cluster.
    ///
    /// - `redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE]`: one server.
    /// - `redis-sentinel://[USER:PASSWORD@]HOST[:PORT],…/PRIMARY[/DATABASE]`, with
    ///   `?sentinel_username=…&sentinel_password=…` if the sentinels require them.
    /// - `redis-cluster://[USER:PASSWORD@]HOST[:PORT],…`, or several `redis://` URLs.
    ///
    /// The scheme `rediss` uses TLS; `valkey` and `valkeys` are aliases. Special characters in a
    /// user or a password are percent-encoded.
    pub fn parse(urls: &[&str]) -> Result<Self, SettingsError> {
        let failed = |index, (wrong, expected): (String, String)| SettingsError::new(index, wrong, expected);
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

    /// The scheme of the topology.
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

/// Formats the URL, with `***` for a password.
impl fmt::Display for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        if self.username.is_some() || self.password.is_some() {
            write!(f, "{}", encode(self.username.as_deref().unwrap_or_default()))?;
            f.write_str(if self.password.is_some() { ":***@" } else { "@" })?;
        }
        let addresses = match &self.topology {
            Topology::Standalone(address) => std::slice::from_ref(address),
            Topology::Sentinel { sentinels, .. } => sentinels,
            Topology::Cluster(nodes) => nodes,
        };
        write!(f, "{}", AddressList(addresses))?;
        if let Topology::Sentinel { primary, .. } = &self.topology {
            write!(f, "/{}", encode(primary))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the displayed URL (`Ok`) or a part of the error (`Err`). Neither contains a secret.
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
    fn urls_are_parsed() {
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
    fn errors_name_the_mistake_and_the_expected_format() {
        check(&[], Err("there is no URL"));
        check(&[""], Err("there is no URL"));
        check(&["localhost:6379"], Err("did you mean `redis://localhost:6379`?"));
        check(&["ann:hunter2@localhost:6379"], Err("begins with `redis://`"));
        check(&["http://h"], Err("`http://` is not a scheme of Redis"));
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
        check(&["redis://::1"], Err("write an IPv6 address in brackets"));
        check(&["redis://[::1"], Err("write an IPv6 address in brackets"));
        check(&["redis://[h]:1"], Err("write an IPv6 address in brackets"));
        check(&["redis://a b"], Err("`a b` is not a host"));
        check(&["redis://10.0.0:1"], Err("`10.0.0` is not a host"));
        check(&["redis://h/main"], Err("`main` is not the number of a database"));
        check(&["redis://h/-1"], Err("`-1` is not the number of a database"));
        check(&["redis://h/0/1"], Err("more than a database"));
        check(&["redis://a,b"], Err("several hosts"));
        check(&["redis://:hunter2@h?timeout=1"], Err("`timeout` is not a known parameter"));
        check(&["redis://:hunt#er@h"], Err("`#` is written `%23`"));
        check(&["redis://:hunter/2@h"], Err("`/` in a user or a password is written `%2F`"));
        check(&["redis://:hunter?2@h"], Err("`?` in a user or a password is written `%3F`"));
        check(&["redis://:hunter@2@h"], Err("`@` in a user or a password is written `%40`"));
        check(&["redis-cluster://u:hunter2@a,u:hunter2@b"], Err("write them once, before the first host"));
        check(&["redis://:hunter%2@h"], Err("`%` itself is written `%25`"));
        check(&["redis://:hunter%zz@h"], Err("`%` itself is written `%25`"));
        check(&["redis://:hunter%ff@h"], Err("not UTF-8"));
        check(&["redis-cluster://a/1"], Err("a cluster has only database 0"));
        check(&["redis-cluster://a/b/c"], Err("a cluster has only database 0"));
        check(&["redis-sentinel://a,b"], Err("the name of the primary is missing"));
        check(&["redis-sentinel://a/main/x"], Err("`x` is not the number of a database"));
        check(&["redis-sentinel://a/main/1/2"], Err("more than a database"));
        check(&["redis-sentinel://a/main?sentinel_pass=hunter2"], Err("did you mean `sentinel_password`?"));
        check(&["redis-sentinel://a/main?hunter2"], Err("only `sentinel_username` and `sentinel_password`"));
        check(&["redis://a", "redis-sentinel://b/main"], Err("list all sentinels in one URL"));
        check(&["redis-sentinel://b/main", "redis://a"], Err("list all sentinels in one URL"));
        check(&["redis://a", "rediss://b"], Err("TLS for one and not for the other"));
        check(&["redis://a", "redis://:hunter2@b"], Err("the same user and password"));
        check(&["redis://a", "redis://b/1"], Err("a cluster has only database 0"));
        check(&["redis://a/1", "redis://b"], Err("a cluster has only database 0"));
    }
}
