//! A batch: the requests and changes of one call.
//!
//! In: requests, one after the other (`builder`). Out: the rules, the keys and the items that
//! `encoding` writes for the script, and that `reply` replays.
//!
//! Items run in order. Requests that touch the same key keep their order. A request that is
//! identical to the last request on its keys joins its item, so that many requests for one hot key
//! become one "take up to n" that costs Redis as much as one request.
//!
//! Not here: the tasks that wait for the replies (`waiters`).

mod builder;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Quota, Rule, RuleId};
use tollgate_store::Check;

pub(crate) use builder::{BatchBuilder, Request};

/// The requests and changes of one call.
#[derive(Default)]
pub(crate) struct Batch {
    /// The number of requests and changes.
    pub(crate) requests: usize,
    pub(crate) rules: Vec<(RuleId, Quota)>,
    pub(crate) keys: Vec<Key>,
    /// The names of the keys, concatenated.
    names: Vec<u8>,
    /// The end of each name in `names`.
    name_ends: Vec<usize>,
    /// The names of the markers of changes with an id; they follow the names of the keys.
    markers: Vec<Vec<u8>>,
    pub(crate) items: Vec<Item>,
}

/// A key of the batch.
pub(crate) struct Key {
    pub(crate) hash: u64,
    /// The index of its rule.
    pub(crate) rule: usize,
    /// The indices of the rules that its rule replaced; the key's names under them follow its own
    /// name.
    pub(crate) before: SmallVec<[usize; 2]>,
    /// The index of its name.
    name: usize,
    /// The offset of the bare key in its name.
    bare: usize,
    /// The index of the last item on this key.
    last: usize,
}

/// An operation of the batch.
pub(crate) enum Item {
    /// Identical requests.
    Requests {
        /// The checks of each request.
        checks: SmallVec<[CheckRequest; 2]>,
        /// The number of requests.
        many: usize,
    },
    /// A change that is not a request.
    Change {
        /// The index of the key.
        key: usize,
        /// The change.
        adjustment: Adjustment,
        /// The index of its marker, if it is applied once.
        marker: Option<usize>,
    },
}

/// A check on one key of the batch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckRequest {
    pub(crate) key: usize,
    pub(crate) amount: Amount,
    pub(crate) binding: bool,
    pub(crate) count_denied: bool,
}

impl Batch {
    /// Iterates over all names: in the order of the keys, including names under replaced rules, then
    /// the markers.
    pub(crate) fn names(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.name_ends.len()).map(|at| self.name(at)).chain(self.markers.iter().map(Vec::as_slice))
    }

    /// The number of names.
    pub(crate) const fn name_count(&self) -> usize {
        self.name_ends.len() + self.markers.len()
    }

    /// The index of a marker among all names.
    pub(crate) const fn marker_at(&self, marker: usize) -> usize {
        self.name_ends.len() + marker
    }

    fn name(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.name_ends[at - 1] };
        &self.names[start..self.name_ends[at]]
    }

    /// The name of a key without the bare key.
    pub(crate) fn name_prefix(&self, key: usize) -> &[u8] {
        let key = &self.keys[key];
        &self.name(key.name)[..key.bare]
    }

    /// The bare key, as the caller passed it.
    pub(crate) fn bare_key(&self, key: usize) -> &[u8] {
        let key = &self.keys[key];
        &self.name(key.name)[key.bare..]
    }

    /// The ID of the rule of a key.
    pub(crate) fn rule_id(&self, key: usize) -> RuleId {
        self.rules[self.keys[key].rule].0
    }

    /// The quota of a key.
    pub(crate) fn quota(&self, key: usize) -> &Quota {
        &self.rules[self.keys[key].rule].1
    }

    /// The rule of a key, with the parts that a change needs.
    pub(crate) fn rule(&self, key: usize) -> Rule {
        Rule {
            name: "".into(),
            id: self.rule_id(key),
            quota: self.quota(key).clone(),
            before: None,
            lease: None,
            far: None,
        }
    }
}

/// Whether two checks use one state with different quotas.
pub(crate) fn clash(one: &Check<'_>, other: &Check<'_>) -> bool {
    shares_states(&one.rule.quota)
        && one.rule.id == other.rule.id
        && one.key == other.key
        && one.rule.quota != other.rule.quota
}

/// Whether rules with different quotas may have the same ID, and therefore share states.
fn shares_states(quota: &Quota) -> bool {
    match quota {
        Quota::Bucket(bucket) => bucket.is_shared() || bucket.is_short_queue(),
        Quota::FixedWindow(_)
        | Quota::SlidingWindow(_)
        | Quota::SlidingParts(_)
        | Quota::SlidingLog(_)
        | Quota::Concurrency(_) => true,
    }
}

/// Hashes a key for this process.
pub(crate) fn hash(rule: RuleId, key: &[u8]) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    use std::sync::LazyLock;
    static HASHER: LazyLock<foldhash::fast::RandomState> = LazyLock::new(Default::default);
    let mut hasher = HASHER.build_hasher();
    hasher.write_u64(rule.0);
    hasher.write(key);
    hasher.finish()
}
