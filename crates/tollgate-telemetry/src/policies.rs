//! The policies that packed records refer to.
//!
//! A packed record has the number of its policy, and is built from that policy when it is read. A policy is kept
//! while it decides, and until the records of the replaced policy are built ([`RecordStore::retire`]): with the next
//! tick, or when the next policy comes into force.
//!
//! [`RecordStore::retire`]: crate::record_store::RecordStore::retire

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tollgate::Policy;

/// A policy with the number by which records refer to it.
pub(crate) struct RecordedPolicy {
    pub(crate) number: u32,
    pub(crate) policy: Arc<Policy>,
    pub(crate) version: u64,
}

/// The policies that packed records refer to.
#[derive(Default)]
pub(crate) struct Policies(RwLock<RecordedPolicies>);

#[derive(Default)]
pub(crate) struct RecordedPolicies {
    last: u32,
    policies: Vec<Arc<RecordedPolicy>>,
}

impl RecordedPolicies {
    /// Returns the policy with this number.
    pub(crate) fn get(&self, number: u32) -> Option<&RecordedPolicy> {
        self.policies.iter().find(|it| it.number == number).map(|it| &**it)
    }
}

impl Policies {
    /// Adds a policy that comes into force. It is kept as long as the returned value.
    pub(crate) fn add(&self, policy: &Arc<Policy>, version: u64) -> Arc<RecordedPolicy> {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // After four billion policies, no record of the first one is left.
        all.last = all.last.wrapping_add(1);
        let added = Arc::new(RecordedPolicy { number: all.last, policy: Arc::clone(policy), version });
        all.policies.push(Arc::clone(&added));
        added
    }

    /// Locks the policies: none is removed meanwhile.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, RecordedPolicies> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the policies that are no longer in force. No new record will refer to them.
    pub(crate) fn replaced(&self) -> Vec<Arc<RecordedPolicy>> {
        // Most calls find no such policy. This check without the write lock may be outdated; the check below
        // decides.
        if self.read().policies.iter().all(|it| Arc::strong_count(it) > 1) {
            return Vec::new();
        }
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let unused =
            all.policies.iter_mut().filter_map(|it| Arc::get_mut(it).is_some().then(|| Arc::clone(it)));
        unused.collect()
    }

    /// Removes a policy that no record refers to.
    pub(crate) fn remove(&self, number: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).policies.retain(|it| it.number != number);
    }
}
