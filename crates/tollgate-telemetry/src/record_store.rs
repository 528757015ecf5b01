//! Stores records and reads them.
//!
//! ```text
//! decision ─► pack ─► ring of bytes ─► read ─► unpack with its policy ─► Record
//!          └ cannot be packed ─► describe ─► Record in the ring ─┘
//! ```
//!
//! Storing costs a copy of a few hundred bytes under a lock. Records are built by their readers, after the lock is
//! released.

use std::hash::RandomState;
use std::sync::Arc;

use tollgate::{DecisionId, Policy};

use crate::describe::Describer;
use crate::packed_record::unpack;
use crate::policies::{Policies, RecordedPolicies, RecordedPolicy};
use crate::record::{Record, RecordHead};
use crate::ring::{Content, RetentionCounts, Ring, RingCursor, StoredContent, StoredRecord};

/// The number of records that are built at a time for a policy that was replaced.
const RECORDS_PER_STEP: usize = 64;

/// The records and the policies that they refer to.
pub(crate) struct RecordStore {
    ring: Ring,
    policies: Policies,
}

/// The selected records after a sequence number.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecordPage {
    /// The selected records, the oldest first.
    pub records: Vec<Arc<Record>>,
    /// The number of records that were read, selected or not.
    pub read: usize,
    /// The sequence number of the last record that was read; `None` if there was no record.
    pub last: Option<u64>,
    /// The number of records in between that were evicted.
    pub missed: u64,
}

impl RecordStore {
    /// Creates a store with room for `records` refusals.
    pub(crate) fn new(records: usize) -> Self {
        Self { ring: Ring::new(records), policies: Policies::default() }
    }

    /// Adds a policy that comes into force.
    pub(crate) fn add_policy(
        &self,
        policy: &Arc<Policy>,
        version: u64,
        secret: &RandomState,
    ) -> Arc<RecordedPolicy> {
        self.retire(secret);
        self.policies.add(policy, version)
    }

    /// Stores a packed record. `key_hash` identifies the allowance that refused, or else the caller.
    pub(crate) fn keep_packed(&self, head: RecordHead, policy: &RecordedPolicy, bytes: &[u8], key_hash: u64) {
        self.ring.keep(head, Content::Packed(policy.number, bytes), key_hash);
    }

    /// Stores a record, as [`keep_packed`](Self::keep_packed) does.
    pub(crate) fn keep(&self, record: Record, key_hash: u64) {
        self.ring.keep(RecordHead::of(&record), Content::Built(Arc::new(record)), key_hash);
    }

    /// Returns the record of a decision.
    pub(crate) fn find(&self, id: DecisionId, secret: &RandomState) -> Option<Arc<Record>> {
        let policies = self.policies.read();
        build(self.ring.find(id)?, &policies, secret)
    }

    /// Returns those of the oldest records after `seq` that `is_wanted` selects. At most `most` are read. A number that
    /// was not assigned yet belongs to an earlier process: all records are after it.
    pub(crate) fn after(
        &self,
        seq: u64,
        most: usize,
        secret: &RandomState,
        is_wanted: impl FnMut(&RecordHead) -> bool,
    ) -> RecordPage {
        let policies = self.policies.read();
        let page = self.ring.after(seq, most, is_wanted);
        let records = page.records.into_iter().filter_map(|it| build(it, &policies, secret)).collect();
        RecordPage { records, read: page.read, last: page.last, missed: page.missed }
    }

    /// Returns the latest records, at most `most`, the newest last.
    pub(crate) fn latest(&self, most: usize, refused_only: bool, secret: &RandomState) -> Vec<Arc<Record>> {
        let policies = self.policies.read();
        let stored = self.ring.latest(most, refused_only);
        stored.into_iter().filter_map(|it| build(it, &policies, secret)).collect()
    }

    /// Builds the records of policies that were replaced, and drops these policies.
    pub(crate) fn retire(&self, secret: &RandomState) {
        for policy in self.policies.replaced() {
            let mut from = RingCursor::default();
            while let Some(stored) = self.ring.packed_by(policy.number, &mut from, RECORDS_PER_STEP) {
                let policies = self.policies.read();
                let built = stored.into_iter().filter_map(|it| build(it, &policies, secret));
                let built: Vec<_> = built.collect();
                drop(policies);
                self.ring.replace(built);
            }
            self.policies.remove(policy.number);
        }
    }

    /// Drops all records and keeps the sequence number.
    pub(crate) fn clear(&self) {
        self.ring.clear();
    }

    /// Returns the number and age of the stored refusals.
    pub(crate) fn kept(&self) -> RetentionCounts {
        self.ring.kept()
    }
}

/// Builds a record from its stored form. `None` only if the policy is not known, which `retire` prevents.
fn build(stored: StoredRecord, policies: &RecordedPolicies, secret: &RandomState) -> Option<Arc<Record>> {
    match stored.content {
        StoredContent::Built(record) => Some(record),
        StoredContent::Packed(number, bytes) => {
            let RecordedPolicy { policy, version, .. } = policies.get(number)?;
            // Paths and hosts are redacted already.
            let describer = Describer { policy, version: *version, secret, redactor: None };
            let record = unpack(&bytes, &describer)?;
            Some(Arc::new(Record { seq: stored.seq, ..record }))
        }
    }
}
