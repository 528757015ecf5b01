//! A store in another process.
//!
//! A new kind of store is a variant here, with its settings in `configuration::store`. Leases, outage
//! rules and periodic work are the same for all kinds.

use std::fmt;

use tollgate::StoreError;
use tollgate_redis::{RedisSettings, RedisStore};

use super::delegate::delegate_store;
use super::peers::{PeerRemote, Peers};

/// The settings of a store in another process, with the contents of the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RemoteSettings {
    /// Redis.
    Redis(RedisSettings),
    /// Tollgate nodes.
    Peers(Box<PeerRemote>),
}

/// A store in another process.
pub(crate) enum RemoteStore {
    /// Redis.
    Redis(RedisStore),
    /// Tollgate nodes.
    Peers(Peers),
}

delegate_store!(RemoteStore: Redis, Peers);

impl RemoteStore {
    /// Creates a store that connects when it is first used.
    pub(crate) fn new(settings: RemoteSettings) -> Self {
        match settings {
            RemoteSettings::Redis(settings) => Self::Redis(RedisStore::new(settings)),
            RemoteSettings::Peers(remote) => Self::Peers(Peers::new(*remote)),
        }
    }

    /// Returns the kind of the store, as the overview names it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Peers(_) => "peers",
        }
    }

    /// Connects, and checks that the store can be used.
    pub(crate) async fn connect(&self) -> Result<(), StoreError> {
        match self {
            Self::Redis(store) => store.connect().await,
            Self::Peers(peers) => peers.connect().await,
        }
    }

    /// Announces this node to the other nodes until dropped.
    pub(crate) async fn announce(&self) {
        match self {
            Self::Redis(store) => store.announce().await,
            Self::Peers(peers) => peers.watch().await,
        }
    }

    /// Returns the Redis store, if it is one.
    pub(crate) const fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Redis(store) => Some(store),
            Self::Peers(_) => None,
        }
    }

    /// Returns the store in several nodes, if it is one.
    pub(crate) const fn peers(&self) -> Option<&Peers> {
        match self {
            Self::Peers(peers) => Some(peers),
            Self::Redis(_) => None,
        }
    }
}

/// Shows the address of the store, without its password.
impl fmt::Display for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(store) => store.settings().fmt(f),
            Self::Peers(peers) => peers.settings().fmt(f),
        }
    }
}
