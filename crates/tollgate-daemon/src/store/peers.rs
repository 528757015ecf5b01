//! Tollgate nodes as their own store, in this process.
//!
//! The store is in `tollgate_peers`, its settings in `configuration::store`, and the command by which other nodes
//! call this one in `tollgate_resp`.

use std::ops::Deref;
use std::sync::Arc;

use tollgate::{MemoryStore, Policy};
use tollgate_peers::{PeerSettings, PeerStore};
use tollgate_resp::{Password, PeerCalls};

use super::remote::RemoteSettings;
use crate::configuration::Listen;
use crate::failure::Failure;

/// The settings of a store in several nodes, with the contents of the files that they name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerRemote {
    pub(crate) settings: PeerSettings,
    /// The certificates of the authorities that other nodes are verified with.
    pub(crate) ca: Option<Vec<u8>>,
    /// The port that this node listens on, once it is known.
    pub(crate) port: u16,
    /// The maximum number of own keys, once it is known.
    pub(crate) max_keys: usize,
}

/// A store in several nodes, with the port of this one.
pub(crate) struct Peers {
    store: PeerStore,
    port: u16,
}

impl PeerRemote {
    /// Finds this node in its list.
    fn locate(&mut self, listen: &Listen) -> Result<(), Failure> {
        let port =
            listen.address().and_then(|it| it.rsplit_once(':')).and_then(|(_, port)| port.parse().ok());
        self.port = port.unwrap_or(0);
        let settings = &mut self.settings;
        if settings.name().is_none() && settings.advertise.is_none() {
            let here = settings.find_here(self.port).map_err(|error| {
                let help = "the list holds the address of `listen.resp` once, as the other nodes reach it; if it cannot be \
                            told from the addresses of this machine, write `store.advertise: HOST:PORT`";
                Failure::with_help(format_args!("cannot use the store {settings}: {error}"), help)
            })?;
            settings.advertise = Some(here);
        }
        Ok(())
    }
}

/// Completes the settings of a store with what only a start knows.
pub(crate) fn complete(
    settings: Option<RemoteSettings>,
    listen: &Listen,
    policy: &Policy,
) -> Result<Option<RemoteSettings>, Failure> {
    let Some(RemoteSettings::Peers(mut remote)) = settings else { return Ok(settings) };
    remote.locate(listen)?;
    remote.max_keys = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
    Ok(Some(RemoteSettings::Peers(remote)))
}

impl Deref for Peers {
    type Target = PeerStore;

    fn deref(&self) -> &PeerStore {
        &self.store
    }
}

impl Peers {
    pub(crate) fn new(remote: PeerRemote) -> Self {
        let PeerRemote { settings, ca, port, max_keys } = remote;
        // The certificates were read, and hold at least one.
        let tls = settings.tls.then(|| tollgate_net::client_tls(ca.as_deref()).ok()).flatten().map(Arc::new);
        Self { store: PeerStore::new(settings, MemoryStore::new(max_keys), tls), port }
    }

    /// Connects to all other nodes.
    pub(crate) async fn connect(&self) -> Result<(), tollgate::StoreError> {
        self.store.refresh(self.port).await;
        self.store.connect().await
    }

    /// Looks up the members until dropped.
    pub(crate) async fn watch(&self) {
        self.store.watch(self.port).await;
    }

    /// Returns the settings with which the Redis protocol accepts calls.
    pub(crate) fn calls(&self) -> tollgate_resp::PeerSettings {
        let password = self.store.settings().password.as_deref().and_then(Password::new);
        tollgate_resp::PeerSettings { password, calls: Arc::new(Calls(self.store.clone())) }
    }
}

struct Calls(PeerStore);

impl PeerCalls for Calls {
    fn call(&self, version: &[u8], payload: &[u8]) -> Result<Vec<u8>, String> {
        self.0.serve(version, payload)
    }
}
