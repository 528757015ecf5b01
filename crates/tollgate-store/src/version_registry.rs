//! The registry of rules in a shared store: which rules its nodes use, and have used.
//!
//! A state is stored under the id of its rule, and a rule whose numbers change gets another id. A node
//! that knows the rules of other nodes, and those of earlier ones whose usage still counts, makes them
//! predecessors of its own, and then carries their usage over and charges them too
//! (`tollgate_core::Rule::replacing`). It learns them here.
//!
//! The registry has *versions*: the rules of a policy as bytes, whose meaning only the caller knows
//! (`tollgate_policy::RuleSet`), under a digest. Versions have increasing revisions. A node tells which
//! version is in force on it, and up to which revision it knows the rules of all versions. It is bounded:
//! [`MAX_VERSIONS`] versions, and each is forgotten when its usage no longer counts.
//!
//! A registration counts for [`REGISTRATION_LIFETIME`]. After that, other nodes no longer wait for the node, so
//! it must not use the store before it has registered again: [`StoreGate`].
//!
//! Not here: when a version comes into force (the daemon).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Span, Timestamp};

use crate::StoreError;

/// The maximum number of versions that a registry keeps beside that of the registering node.
pub const MAX_VERSIONS: usize = 32;
/// The maximum length of the rules of a version, in bytes.
pub const MAX_RULES_BYTES: usize = 4 << 20;
/// The longest time for which a version is kept after its last use: longer than any quota counts.
pub const MAX_MEMORY: Span = Span::from_days(800);
/// The time for which a registration counts, by the clock of the store.
pub const REGISTRATION_LIFETIME: Duration = Duration::from_secs(10);
/// The time after which a node takes its registration for expired. The rest is for clocks that run at
/// different speeds, and for requests that are under way.
const USABLE_LIFETIME: Span = Span::from_secs(9);

/// The rules of a policy, as a registry keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The digest of the rules.
    pub digest: u64,
    /// How long usage that is charged now still counts.
    pub memory: Span,
    /// The encoded rules.
    pub rules: Arc<[u8]>,
}

/// The entry of a node.
#[derive(Clone, Copy, Debug)]
pub struct Registration<'r> {
    /// The version to register.
    pub version: &'r Version,
    /// Whether to send its rules. They are sent once; afterwards, the digest is enough.
    pub sends_rules: bool,
    /// The digest of the version that is in force on this node.
    pub in_force: u64,
    /// The revision up to which this node knows the rules of all versions. `None` for a node that joins:
    /// it reads all versions before it serves.
    pub known_revision: Option<u64>,
}

/// The versions and the other nodes of a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// The newest revision.
    pub revision: u64,
    /// The versions whose usage may count, the oldest revision first.
    pub versions: Vec<RegisteredVersion>,
    /// The other nodes.
    pub nodes: Vec<RegisteredNode>,
}

/// A version in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredVersion {
    /// The digest of its rules.
    pub digest: u64,
    /// Its revision: later versions have higher ones.
    pub revision: u64,
    /// How long it is kept if no node uses it.
    pub expires_in: Span,
}

/// Another node in a registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisteredNode {
    /// The digest of the version that is in force on it.
    pub in_force: u64,
    /// The revision up to which it knows the rules of all versions.
    pub known_revision: u64,
}

/// A future of a call to a registry.
pub type RegistryFuture<'r, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'r>>;

/// A store in which nodes register the rules that they use.
///
/// Other writers of the store may have written anything: an entry that no node can have written is replaced
/// or ignored, and never an error.
pub trait VersionRegistry: Send + Sync {
    /// Registers a node with its version. `None`: the rules of the version have to be sent.
    fn register<'r>(&'r self, registration: &'r Registration<'r>) -> RegistryFuture<'r, Option<Registry>>;

    /// Returns the rules of a version, as they are stored: at most [`MAX_RULES_BYTES`].
    fn registered_rules(&self, digest: u64) -> RegistryFuture<'_, Option<Vec<u8>>>;

    /// Returns the gate of the store: it refuses all requests while the gate is closed.
    fn gate(&self) -> &StoreGate;

    /// Returns whether the store refuses all requests.
    fn is_held(&self) -> bool;
}

/// Whether a node may use its store: it knows the rules of other nodes, and its registration has not expired.
#[derive(Debug, Default)]
pub struct StoreGate {
    is_held: AtomicBool,
    /// The end of the registration in microseconds; 0 if there is none.
    registered_until: AtomicU64,
}

impl StoreGate {
    /// Closes the gate, because this node does not know which rules other nodes use, or opens it.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::Release);
    }

    /// Opens the gate without a registration, because the registry cannot be used.
    pub fn open_unregistered(&self) {
        self.registered_until.store(0, Ordering::Release);
        self.hold(false);
    }

    /// Records a registration that was sent at `sent`.
    pub fn register(&self, sent: Timestamp) {
        self.registered_until.store((sent + USABLE_LIFETIME).as_micros(), Ordering::Release);
    }

    /// Returns whether requests have to be refused. `now` is only called if there is a registration.
    pub fn is_closed(&self, now: impl FnOnce() -> Timestamp) -> bool {
        let until = self.registered_until.load(Ordering::Acquire);
        self.is_held.load(Ordering::Acquire) || (until != 0 && now().as_micros() > until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_not_used_after_the_registration_has_expired() {
        let gate = StoreGate::default();
        let at = |seconds| move || Timestamp::from_secs(seconds);
        assert!(!gate.is_closed(at(1_000)), "a node that does not register is not bound to it");
        gate.register(Timestamp::from_secs(1_000));
        assert!(!gate.is_closed(at(1_009)) && gate.is_closed(at(1_010)));
        gate.hold(false);
        assert!(gate.is_closed(at(1_010)));
        gate.open_unregistered();
        assert!(!gate.is_closed(at(1_010)));
        gate.register(Timestamp::from_secs(1_010));
        gate.hold(true);
        assert!(gate.is_closed(at(1_010)));
    }
}
