//! A store in another process.
//!
//! A new kind of store is a variant here, with its settings in `configuration::store`. Leases, outage
//! rules and periodic work are the same for all kinds.

use std::fmt;

use tollgate::StoreError;
use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_redis::{RedisSettings, RedisStore};

use super::delegate::delegate_store;

/// The settings of a store in another process, with the contents of the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteSettings {
    /// Redis.
    Redis(RedisSettings),
    /// PostgreSQL.
    Postgres(PostgresSettings),
}

/// A store in another process.
pub(crate) enum RemoteStore {
    /// Redis.
    Redis(RedisStore),
    /// PostgreSQL.
    Postgres(PostgresStore),
}

delegate_store!(RemoteStore: Redis, Postgres);

impl RemoteStore {
    /// Creates a store that connects when it is first used.
    pub(crate) fn new(settings: RemoteSettings) -> Self {
        match settings {
            RemoteSettings::Redis(settings) => Self::Redis(RedisStore::new(settings)),
            RemoteSettings::Postgres(settings) => Self::Postgres(PostgresStore::new(settings)),
        }
    }

    /// Returns the kind of the store, as the overview names it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
        }
    }

    /// Connects, and checks that the store can be used.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::Redis(store) => store.connect().await,
            Self::Postgres(store) => store.connect().await,
        }
    }

    /// Announces this node to the other nodes until dropped.
    pub(crate) async fn announce(&self) {
        match self {
            Self::Redis(store) => store.announce().await,
            Self::Postgres(store) => store.announce().await,
        }
    }

    /// Returns the Redis store, if it is one.
    pub(crate) const fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Redis(store) => Some(store),
            Self::Postgres(_) => None,
        }
    }

    /// Returns the PostgreSQL store, if it is one.
    pub(crate) const fn postgres(&self) -> Option<&PostgresStore> {
        match self {
            Self::Postgres(store) => Some(store),
            Self::Redis(_) => None,
        }
    }
}

/// Shows the address of the store, without its password.
impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(store) => store.settings().fmt(f),
            Self::Postgres(store) => store.settings().fmt(f),
        }
    }
}
