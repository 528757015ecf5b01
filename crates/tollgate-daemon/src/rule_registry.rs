//! The registry of rules: nodes that share a store count together while their numbers differ.
//!
//! A changed bucket is another rule with states of its own, so a node that starts with changed numbers
//! would forget the usage under the old ones, and during a rolling deploy the old and the new nodes
//! would admit up to the sum of both limits. Each node therefore registers the rules of its policy in
//! the store, and makes the rules of all other versions predecessors of its own: it carries their usage
//! over, and charges them with every unit that it admits.
//!
//! **Invariant.** In any stretch `d`, all nodes together admit at most `B + r·d` units of a key, where `B`
//! is the largest burst and `r` the largest rate of the limit's versions in force. So if one version is
//! larger than all others, they admit at most that.
//!
//! *Each version knows every other one.* A version comes into force on a node only when each live node
//! knows its rules (`agreement`). Until then, the node uses the rules of a version that all know. A node
//! that joins reads all versions before its first request.
//!
//! *Then the bound holds.* Let `D(X)` be the debt of a key under version `X`, and `D` the debt of a
//! bucket `B, r` that is charged with every admitted unit. Always `D − D(X) ≤ B − B(X)`: a charge adds the
//! same to both, or leaves `D(X) = B(X)` and `D ≤ B`; in time, `D` falls at least as fast as `D(X)`; and a
//! state that was not charged because it was empty starts from the highest usage of the others. If `X`
//! admits `c` units, `D(X) + c ≤ B(X)`, so `D + c ≤ B`: no unit is admitted beyond the bucket `B, r`. One
//! script decides a key under all its versions, which are in one partition of a cluster.
//!
//! Windows, logs, slots and shared buckets with other numbers have the same states, so their new numbers
//! come into force without an agreement.
//!
//! *A node that was out of touch for longer than its registration counts* does not use the store before it has
//! registered again: a version that it does not know may have come into force meanwhile.
//!
//! The registry is read at the start and every [`HEARTBEAT_INTERVAL`], and costs requests nothing. Its
//! storage is in the store (`tollgate_store::version_registry`), the carrying over in `tollgate_core::carry`. Tested by
//! `tollgate-cli/tests/redis/versions.rs` with real processes, and by `tollgate-redis/tests/store/versions.rs`.

mod agreement;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tollgate::policy::{MAX_RULE_SET_BYTES, RuleSet};
use tollgate::store::VersionRegistry;
use tollgate::store::version_registry::{MAX_RULES_BYTES, Registration};
use tollgate::{Policy, StoreError};
use tollgate_server::ModeOverrides;

use agreement::Agreement;

use crate::store::{AnyStore, in_full};

/// The time between two readings of the registry.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
/// The same while a version waits for its agreement.
const AGREEMENT_INTERVAL: Duration = Duration::from_millis(250);
/// The same while requests are held back: a store that is back should be used soon.
const HOLD_INTERVAL: Duration = Duration::from_millis(25);
/// The time that the start waits for the registry.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum time for which requests that began under the rules before a change are waited for.
const MAX_IN_FLIGHT: Duration = Duration::from_secs(2);
/// The number of failed readings of a store that works, after which a node no longer waits for its first
/// reading.
const MAX_FAILURES: u32 = 3;
/// The maximum number of versions whose rules are reported as unreadable.
const MAX_REPORTED: usize = 256;

const _: () = assert!(MAX_RULE_SET_BYTES <= MAX_RULES_BYTES, "registered rules can be read");

/// The rules of this node and of those that share its store.
pub(crate) struct RuleRegistry {
    store: Arc<AnyStore>,
    agreement: Mutex<Agreement>,
    /// Notified when this node wants another version.
    wanted: Notify,
    /// The versions whose rules could not be read, which were reported.
    unreadable: Mutex<Vec<u64>>,
}

impl RuleRegistry {
    /// Registers the rules of a policy at the start. Returns the policy to put into force, and a warning if
    /// the registry cannot be used.
    pub(crate) async fn join(store: &Arc<AnyStore>, policy: Policy) -> (Arc<Self>, Policy, Option<String>) {
        let registry = Arc::new(Self {
            store: Arc::clone(store),
            agreement: Mutex::new(Agreement::new(policy)),
            wanted: Notify::new(),
            unreadable: Mutex::default(),
        });
        let warning = registry.size_warning();
        if let Some(versions) = store.versions() {
            // `connect` reports a failure.
            let _late = timeout(JOIN_TIMEOUT, registry.exchange(versions)).await;
        }
        let policy = registry.agreement.lock().policy();
        (registry, policy, warning)
    }

    /// Holds back requests to the store if the registry has not been read yet: they would be counted apart.
    /// `maintain` releases them.
    pub(crate) fn hold_until_read(&self) {
        let agreement = self.agreement.lock();
        let is_registered = agreement.wanted().rules.len() <= MAX_RULE_SET_BYTES;
        if let (Some(versions), None, true) = (self.store.versions(), agreement.acknowledged(), is_registered)
        {
            versions.gate().hold(true);
        }
    }

    fn size_warning(&self) -> Option<String> {
        let size = self.agreement.lock().wanted().rules.len();
        (self.store.versions().is_some() && size > MAX_RULE_SET_BYTES).then(|| {
            format!(
                "warning: the rules of this policy take {size} bytes, more than the {MAX_RULE_SET_BYTES} that are registered in the store\n  \
                 = help: a node that starts with changed numbers begins without the usage under the old ones. Plans need less room than overrides\n"
            )
        })
    }

    /// Sets the policy of the file, after a reload, and puts it into force: with its own numbers, or with
    /// those that all nodes know.
    pub(crate) fn reload(&self, policy: Policy, switches: &ModeOverrides<AnyStore>) {
        let is_shared = self.store.versions().is_some();
        let mut agreement = self.agreement.lock();
        agreement.want(policy, is_shared);
        if agreement.is_pending() && agreement.others() > 0 {
            let nodes = agreement.others();
            tracing::info!(nodes, "changed numbers come into force when the other nodes know them");
        }
        // Under the lock: the last policy has to win.
        switches.reload(agreement.policy());
        drop(agreement);
        self.wanted.notify_one();
    }

    /// Reads the registry periodically, and puts changed rules into force, until dropped.
    pub(crate) async fn maintain(&self, switches: &ModeOverrides<AnyStore>) {
        let (Some(remote), Some(versions)) = (self.store.remote(), self.store.versions()) else { return };
        let gate = versions.gate();
        let (mut failures, mut has_warned) = (0, false);
        loop {
            match self.exchange(versions).await {
                Ok(is_changed) => {
                    (failures, has_warned) = (0, false);
                    if is_changed {
                        self.put_in_force(switches);
                        gate.hold(false);
                        sleep(remote.deadline().min(MAX_IN_FLIGHT)).await;
                        // Other nodes may wait for this one.
                        self.agreement.lock().acknowledge();
                        continue;
                    }
                    gate.hold(false);
                }
                // An outage is reported elsewhere. A reload takes effect in it, too.
                // A part of a store that is down must not hold back the other parts.
                Err(_)
                    if remote.connect().await.is_err()
                        && !(versions.is_held() && remote.is_partitioned()) =>
                {
                    if self.agreement.lock().is_pending() {
                        gate.hold(true);
                        self.agreement.lock().leave();
                        self.put_in_force(switches);
                    }
                }
                Err(error) => {
                    failures += 1;
                    if failures >= MAX_FAILURES {
                        gate.open_unregistered();
                        if !std::mem::replace(&mut has_warned, true) {
                            let error = in_full(&error);
                            tracing::warn!(
                                error,
                                "cannot read the rules of other nodes: changed numbers are counted apart"
                            );
                        }
                    }
                }
            }
            let interval = match (versions.is_held(), self.agreement.lock().is_pending()) {
                (true, _) => HOLD_INTERVAL,
                (false, true) => AGREEMENT_INTERVAL,
                (false, false) => HEARTBEAT_INTERVAL,
            };
            let _due = timeout(interval, self.wanted.notified()).await;
        }
    }

    /// Puts the present rules into force.
    fn put_in_force(&self, switches: &ModeOverrides<AnyStore>) {
        let mut agreement = self.agreement.lock();
        switches.reload(agreement.policy());
        if agreement.take_agreed() {
            tracing::info!("the changed numbers are in force: all nodes know them");
        }
    }

    /// Registers this node, and reads the versions of the others. Returns whether the policy to put into
    /// force has changed.
    async fn exchange(&self, versions: &dyn VersionRegistry) -> Result<bool, StoreError> {
        let (version, in_force, known_revision) = {
            let agreement = self.agreement.lock();
            (agreement.wanted().clone(), agreement.in_force(), agreement.acknowledged())
        };
        if version.rules.len() > MAX_RULE_SET_BYTES {
            return Ok(false);
        }
        let mut registration =
            Registration { version: &version, sends_rules: false, in_force, known_revision };
        let mut registry = versions.register(&registration).await?;
        if registry.is_none() {
            registration.sends_rules = true;
            registry = versions.register(&registration).await?;
        }
        let registry = registry.unwrap_or_default();
        let unknown = self.agreement.lock().unknown(&registry);
        let mut learned = Vec::new();
        for digest in unknown {
            learned.push((digest, self.read_version(versions, digest).await?));
        }
        Ok(self.agreement.lock().observe(&version, &registry, learned))
    }

    /// Reads the rules of a version. `None` if they are gone, or not those that a node has registered, or not
    /// written by a version of Tollgate that this one knows.
    async fn read_version(
        &self,
        versions: &dyn VersionRegistry,
        digest: u64,
    ) -> Result<Option<RuleSet>, StoreError> {
        let Some(bytes) = versions.registered_rules(digest).await? else { return Ok(None) };
        let error = match RuleSet::decode(&bytes) {
            Ok(rules) if rules.digest() == digest => return Ok(Some(rules)),
            Ok(_) => "they are not those that a node has registered".to_owned(),
            Err(error) => error.to_string(),
        };
        let mut unreadable = self.unreadable.lock();
        if !unreadable.contains(&digest) && unreadable.len() < MAX_REPORTED {
            unreadable.push(digest);
            tracing::warn!(
                error,
                "the rules of another version in the store cannot be read: its usage is counted apart"
            );
        }
        Ok(None)
    }
}
