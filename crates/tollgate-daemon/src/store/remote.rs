//! A store in another process.
//!
//! A new kind of store is a variant here, with its settings in `configuration::store`. Leases, outage
//! rules and periodic work are the same for all kinds.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::StoreError;
use tollgate::store::{NodeBoard, VersionRegistry};
use tollgate_postgres::{PostgresSettings, PostgresStore};
use tollgate_redis::{RedisSettings, RedisStore, Topology};

use super::delegate::delegate_store;
use super::peers::{PeerRemote, Peers};

/// The settings of a store in another process, with the contents of the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteSettings {
    /// Redis.
    Redis(RedisSettings),
    /// PostgreSQL.
    Postgres(PostgresSettings),
    /// Tollgate nodes.
    Peers(Box<PeerRemote>),
}

/// A store in another process.
pub(crate) enum RemoteStore {
    /// Redis.
    Redis(RedisStore),
    /// PostgreSQL.
    Postgres(PostgresStore),
    /// Tollgate nodes.
    Peers(Peers),
}

delegate_store!(RemoteStore: Redis, Postgres, Peers);

impl RemoteStore {
    /// Creates a store that connects when it is first used.
    pub(crate) fn new(settings: RemoteSettings) -> Self {
        match settings {
            RemoteSettings::Redis(settings) => Self::Redis(RedisStore::new(settings)),
            RemoteSettings::Postgres(settings) => Self::Postgres(PostgresStore::new(settings)),
            RemoteSettings::Peers(remote) => Self::Peers(Peers::new(*remote)),
        }
    }

    /// Returns the kind of the store, as the overview names it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "postgres",
            Self::Peers(_) => "peers",
        }
    }

    /// Connects, and checks that the store can be used.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::Redis(store) => store.connect().await,
            Self::Postgres(store) => store.connect().await,
            Self::Peers(peers) => peers.connect().await,
        }
    }

    /// Announces this node to the other nodes until dropped.
    pub(crate) async fn announce(&self) {
        match self {
            Self::Redis(store) => store.announce().await,
            Self::Postgres(store) => store.announce().await,
            Self::Peers(peers) => peers.watch().await,
        }
    }

    /// Returns the place where the nodes that share this store leave reports, if it has one.
    pub(crate) fn node_board(&self) -> Option<Arc<dyn NodeBoard>> {
        match self {
            Self::Redis(store) => Some(store.node_board()),
            Self::Postgres(store) => Some(store.node_board()),
            Self::Peers(_) => None,
        }
    }

    /// Returns the registry of rules, if the store has one.
    pub(crate) const fn versions(&self) -> Option<&dyn VersionRegistry> {
        match self {
            Self::Redis(store) => Some(store),
            Self::Postgres(store) => Some(store),
            Self::Peers(_) => None,
        }
    }

    /// Removes this node from the registries of the store.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        match self {
            Self::Redis(store) => store.leave().await,
            Self::Postgres(store) => store.leave().await,
            Self::Peers(_) => Ok(()),
        }
    }

    /// Returns the maximum duration of a decision.
    pub(crate) fn deadline(&self) -> Duration {
        match self {
            Self::Redis(store) => store.settings().deadline,
            Self::Postgres(store) => store.settings().deadline,
            Self::Peers(peers) => peers.settings().deadline,
        }
    }

    /// Returns whether a part of the store can be down while others answer.
    pub(crate) fn is_partitioned(&self) -> bool {
        match self {
            Self::Redis(store) => matches!(store.settings().topology, Topology::Cluster(_)),
            Self::Postgres(_) => false,
            Self::Peers(_) => true,
        }
    }

    /// Returns the Redis store, if it is one.
    pub(crate) const fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Redis(store) => Some(store),
            Self::Postgres(_) | Self::Peers(_) => None,
        }
    }

    /// Returns the PostgreSQL store, if it is one.
    pub(crate) const fn postgres(&self) -> Option<&PostgresStore> {
        match self {
            Self::Postgres(store) => Some(store),
            Self::Redis(_) | Self::Peers(_) => None,
        }
    }

    /// Returns the store in several nodes, if it is one.
    pub(crate) const fn peers(&self) -> Option<&Peers> {
        match self {
            Self::Peers(peers) => Some(peers),
            Self::Redis(_) | Self::Postgres(_) => None,
        }
    }
}

/// Shows the address of the store, without its password.
impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(store) => store.settings().fmt(f),
            Self::Postgres(store) => store.settings().fmt(f),
            Self::Peers(peers) => peers.settings().fmt(f),
        }
    }
}
