//! Tollgate nodes as their own store, in this process.
//!
//! The store is in `tollgate_peers`, its settings in `configuration::store`, and the command by which other nodes
//! call this one in `tollgate_resp`.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use tollgate::policy::OnOutage;
use tollgate::{MemoryStore, Policy, RuleId};
use tollgate_peers::{PeerSettings, PeerStore, Served};
use tollgate_resp::{Password, PeerCalls, PeerReply};

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
    /// The percentage with which a key begins whose usage is lost, for limits that refuse in an outage.
    pub(crate) lost_shares: HashMap<RuleId, u8>,
}

/// A store in several nodes, with the port of this one.
pub(crate) struct Peers {
    store: PeerStore,
    port: u16,
}

impl PeerRemote {
    /// Returns whether two settings are equal except for the members of a list.
    fn is_same_besides_list(&self, other: &Self) -> bool {
        let PeerSettings { members, advertise, .. } = self.settings.clone();
        let settings = PeerSettings { members, advertise, ..other.settings.clone() };
        let is_list = |it: &Self| it.settings.name().is_none();
        settings == self.settings && self.ca == other.ca && is_list(self) && is_list(other)
    }

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

/// Returns the settings of a list that is in force without a restart: nothing else may have changed.
pub(crate) fn changed_list(
    old: Option<&RemoteSettings>,
    new: Option<&RemoteSettings>,
    listen: &Listen,
    policy: &Policy,
) -> Result<Option<Box<PeerRemote>>, Failure> {
    let (Some(RemoteSettings::Peers(old)), Some(RemoteSettings::Peers(remote))) = (old, new) else {
        return Ok(None);
    };
    if !old.is_same_besides_list(remote) {
        return Ok(None);
    }
    match complete(Some(RemoteSettings::Peers(remote.clone())), listen, policy)? {
        Some(RemoteSettings::Peers(remote)) => Ok(Some(remote)),
        _ => Ok(None),
    }
}

/// Returns the percentage with which keys begin whose usage is lost. The percentage is zero for a
/// limit that refuses in an outage, and the share of an outage for all other limits.
fn lost_shares(policy: &Policy) -> HashMap<RuleId, u8> {
    let refusing = policy.limits().iter().filter(|it| it.on_outage() == OnOutage::Deny);
    refusing.flat_map(tollgate::Limit::rules).map(|rule| (rule.id, 0)).collect()
}

/// Completes the settings of a store with the values that are only known at the start.
pub(crate) fn complete(
    settings: Option<RemoteSettings>,
    listen: &Listen,
    policy: &Policy,
) -> Result<Option<RemoteSettings>, Failure> {
    let Some(RemoteSettings::Peers(mut remote)) = settings else { return Ok(settings) };
    remote.locate(listen)?;
    remote.max_keys = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
    remote.lost_shares = lost_shares(policy);
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
        let PeerRemote { settings, ca, port, max_keys, lost_shares } = remote;
        // The certificates were read, and hold at least one.
        let tls = settings.tls.then(|| tollgate_net::client_tls(ca.as_deref()).ok()).flatten().map(Arc::new);
        let store = PeerStore::new(settings, MemoryStore::new(max_keys), tls);
        store.set_lost_shares(lost_shares);
        Self { store, port }
    }

    /// Uses another list, and the limits of another policy.
    pub(crate) fn use_list(&self, remote: &PeerRemote) {
        let PeerSettings { members, advertise, .. } = &remote.settings;
        self.store.set_lost_shares(remote.lost_shares.clone());
        let is_changed = self.store.settings().name().is_none() && {
            let mut sorted = members.clone();
            sorted.sort();
            sorted != self.store.members()
        };
        if is_changed {
            tracing::info!(list = %remote.settings, "the list of peers has changed: keys that move take their usage along");
            self.store.set_members(members, advertise.as_ref());
        }
    }

    /// Connects to all other nodes.
    pub(crate) async fn connect(&self) -> Result<(), tollgate::StoreError> {
        self.store.refresh(self.port).await;
        self.store.connect().await
    }

    /// Looks up the members, and exchanges the holders of keys with them, until dropped.
    pub(crate) async fn watch(&self) {
        tokio::join!(self.store.watch(self.port), self.store.tend());
    }

    /// Returns the settings with which the Redis protocol accepts calls.
    pub(crate) fn calls(&self) -> tollgate_resp::PeerSettings {
        let password = self.store.settings().password.as_deref().and_then(Password::new);
        tollgate_resp::PeerSettings { password, calls: Arc::new(Calls(self.store.clone())) }
    }
}

struct Calls(PeerStore);

impl PeerCalls for Calls {
    fn call(&self, version: &[u8], payload: &[u8]) -> PeerReply {
        match self.0.serve(version, payload) {
            Served::Now(reply) => PeerReply::Now(reply),
            Served::Later(reply) => PeerReply::Later(reply),
        }
    }
}
