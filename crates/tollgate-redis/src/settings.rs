//! Where Redis is, and how long it may take.

use std::time::Duration;

/// How to reach Redis, and how it is used.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Name or address of the host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates (PEM) that the server is believed by, instead of the system's.
    pub ca: Option<Vec<u8>>,
}

/// Why settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not a URL of Redis.
    #[error("{0}")]
    Url(String),
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
    pub fn parse(urls: &[&str]) -> Result<Self, SettingsError> {
        let _ = urls;
        Err(SettingsError::Url("not yet".to_owned()))
    }
}
