//! Which member of the list this node is, and the members behind a name.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};
use tollgate_store::Clock;

use crate::settings::{Address, MAX_MEMBERS, PeerSettings};
use crate::store::PeerStore;

/// The interval between two lookups of a name.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum time of a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Error returned when it is not known which member of the list this node is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HereError {
    /// No address of the list is an address of this machine with the port of the listener.
    #[error("the list of peers does not name this node: no address is of this machine and has port {port}")]
    NotListed {
        /// The port of the listener.
        port: u16,
    },
    /// Several addresses of the list are of this node.
    #[error("the list of peers names this node twice, as {one} and as {other}")]
    ListedTwice {
        /// One address.
        one: Address,
        /// Another address.
        other: Address,
    },
}

impl PeerSettings {
    /// Finds the address of this node in the list, from the port that it listens on. Resolves the
    /// names of a list, so it may block.
    pub fn find_here(&self, port: u16) -> Result<Address, HereError> {
        let is_here = |address: &&Address| {
            let text = (&*address.host, address.port);
            let resolved = || text.to_socket_addrs().into_iter().flatten();
            address.port == port && resolved().any(|it| is_local(it.ip()))
        };
        let mut found = self.members.iter().filter(is_here);
        match (found.next(), found.next()) {
            (None, _) => Err(HereError::NotListed { port }),
            (Some(here), None) => Ok(here.clone()),
            (Some(one), Some(other)) => {
                Err(HereError::ListedTwice { one: one.clone(), other: other.clone() })
            }
        }
    }
}

/// Whether an IP address belongs to this machine: only those can be bound.
fn is_local(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_ok()
}

impl<C: Clock> PeerStore<C> {
    /// Looks up the members behind the name of the settings once. A list needs no lookup. `port` is the
    /// port that this node listens on.
    ///
    /// The last members stay if the lookup fails, or finds none.
    pub async fn refresh(&self, port: u16) {
        let settings = self.settings();
        let Some(name) = settings.name() else { return };
        let found = match timeout(LOOKUP_TIMEOUT, lookup_host((&*name.host, name.port))).await {
            Ok(Ok(found)) => found.collect::<Vec<_>>(),
            Ok(Err(error)) => return log_failure(name, &error.to_string()),
            Err(_) => return log_failure(name, "no answer in time"),
        };
        self.use_addresses(&found, port);
    }

    /// Uses the addresses that a lookup found. [`refresh`](Self::refresh) does this with the resolver of the
    /// system. The last members stay if there are none.
    pub fn use_addresses(&self, found: &[SocketAddr], port: u16) {
        let mut members: Vec<Address> = found.iter().map(|it| Address::of(it.ip(), it.port())).collect();
        members.sort();
        members.dedup();
        members.truncate(MAX_MEMBERS);
        let here = self.settings().advertise.clone().or_else(|| {
            let is_here = |it: &&Address| it.port == port && it.ip().is_some_and(is_local);
            members.iter().find(is_here).cloned()
        });
        let here = here.filter(|here| members.contains(here));
        if members.is_empty() || (members == self.members() && here == self.here()) {
            return;
        }
        let list = members.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        if let Some(here) = &here {
            tracing::info!(members = list, %here, "the list of peers has changed");
        } else {
            tracing::warn!(
                members = list,
                "the list of peers has changed and does not name this node: it owns no keys, and asks the others"
            );
        }
        self.set_members(&members, here.as_ref());
    }

    /// Looks up the members again and again, until dropped.
    pub async fn watch(&self, port: u16) {
        loop {
            sleep(LOOKUP_INTERVAL).await;
            self.refresh(port).await;
        }
    }
}

fn log_failure(name: &Address, error: &str) {
    tracing::warn!(%name, error, "the peers cannot be looked up: the last list stays");
}
