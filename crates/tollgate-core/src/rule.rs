//! A quota with a name and the id under which its states are stored.
//!
//! Two rules with one id share their states, so the id is derived from everything that determines
//! the meaning of a state. A rule whose numbers change gets a new id and remembers the old one. A
//! store then carries the usage of a key over at the next request for the key, and need not visit
//! all keys.
//!
//! For slots, windows, logs and shared buckets, the meaning of a state does not depend on the limit
//! ([`Quota::identity`]). Rules with one id can then have different limits, and a store must not
//! treat the id as the quota.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::quota::Quota;
use crate::time::Span;

/// Identifies the states of a rule, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub u64);

/// A quota with a name and the id under which its states are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name in answers and metrics.
    pub name: Box<str>,
    /// The id under which its states are stored.
    pub id: RuleId,
    /// The quota.
    pub quota: Quota,
    /// The rule before the last change, if its states may still count.
    pub before: Option<Box<Predecessor>>,
    /// How long a node may hold units that it leased, if it may lease any. Not part of the id: states
    /// have the same meaning with and without leases.
    pub lease: Option<Span>,
    /// The shares of other regions in the same limit, if a node may borrow units of them.
    pub far: Option<Arc<[FarRule]>>,
}

/// The share of another region in the limit of a rule.
///
/// A node leases units of it from the store of that region, under the rule that the nodes there
/// count by. All leases of a key need one `ttl` ([`LeaseRequest`](crate::LeaseRequest)), so
/// [`Rule::lease`] is the same wherever it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FarRule {
    /// The name of the region.
    pub region: Box<str>,
    /// The rule in that region. Its `lease` is how long borrowed units may be held.
    pub rule: Rule,
}

/// A rule before its numbers changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The id under which its states were stored.
    pub id: RuleId,
    /// The quota of that time.
    pub quota: Quota,
    /// The rule before this one: a key need not have spent between two changes.
    pub before: Option<Box<Predecessor>>,
}

/// The largest number of predecessors whose usage is looked up.
const MAX_PREDECESSORS: usize = 32;

impl Predecessor {
    /// Links predecessors into a chain that starts with the first: each id once, without `except`.
    fn chain(all: impl IntoIterator<Item = Self>, except: RuleId) -> Option<Box<Self>> {
        let mut distinct: Vec<Self> = Vec::new();
        for one in all {
            if one.id != except && distinct.iter().all(|known| known.id != one.id) {
                distinct.push(one);
            }
        }
        distinct.truncate(MAX_PREDECESSORS);
        distinct.into_iter().rev().fold(None, |before, one| Some(Box::new(Self { before, ..one })))
    }

    /// Returns the same predecessor without those before it.
    fn unlinked(&self) -> Self {
        Self { id: self.id, quota: self.quota.clone(), before: None }
    }
}

impl Rule {
    /// Creates a rule that is identified by its name and numbers. Equal rules share their states.
    ///
    /// ```
    /// # use tollgate_core::{Bucket, QuotaError, Rate, Rule};
    /// let rule = |rate| Ok::<_, QuotaError>(Rule::new("api", Bucket::new(rate)?));
    /// assert_eq!(rule(Rate::per_minute(10))?.id, rule(Rate::per_minute(10))?.id);
    /// assert_ne!(rule(Rate::per_minute(10))?.id, rule(Rate::per_minute(20))?.id);
    /// # Ok::<(), QuotaError>(())
    /// ```
    pub fn new(name: &str, quota: impl Into<Quota>) -> Self {
        let quota = quota.into();
        let id = RuleId::of([name, &quota.identity()]);
        Self { name: name.into(), id, quota, before: None, lease: None, far: None }
    }

    /// Returns the same rule, of which a node may lease units for `ttl`. Quotas whose units cannot be
    /// leased ([`Quota::is_leasable`]) are not leased.
    #[must_use]
    pub fn leased_for(self, ttl: Option<Span>) -> Self {
        let lease = ttl.filter(|_| self.quota.is_leasable());
        Self { lease, ..self }
    }

    /// Returns the same rule, which also carries over the usage of keys under `before` and its
    /// predecessors. It keeps its own predecessors.
    #[must_use]
    pub fn replacing(self, before: &Self) -> Self {
        let far = self.far.as_ref().map(|far| far.iter().map(|it| it.replacing(before)).collect());
        let own = self.predecessors().chain(before.predecessors()).map(Predecessor::unlinked);
        let all = core::iter::once(before.as_predecessor()).chain(own);
        let before = Predecessor::chain(all, self.id);
        Self { before, far, ..self }
    }

    /// Returns the same rule, which also carries over the usage of keys under `other`. A key has
    /// spent under this rule's own predecessors, or under `other`.
    #[must_use]
    pub fn continuing(self, other: &Self) -> Self {
        let own = self.predecessors().map(Predecessor::unlinked);
        let before = Predecessor::chain(own.chain([other.as_predecessor()]), self.id);
        Self { before, ..self }
    }

    fn as_predecessor(&self) -> Predecessor {
        Predecessor { id: self.id, quota: self.quota.clone(), before: None }
    }

    /// Returns the rules before this one, the latest first and each once. A rule that has returned
    /// to an earlier configuration is not its own predecessor.
    pub fn predecessors(&self) -> impl Iterator<Item = &Predecessor> {
        core::iter::successors(self.before.as_deref(), |last| last.before.as_deref())
    }
}

impl FarRule {
    /// Returns the same share, which also carries over the usage of keys under the share of its region
    /// in `before`. Without such a share, that region had the rule itself.
    fn replacing(&self, before: &Rule) -> Self {
        let mut known = before.far.iter().flat_map(|far| far.iter());
        let before = known.find(|it| it.region == self.region).map_or(before, |it| &it.rule);
        Self { region: self.region.clone(), rule: self.rule.clone().replacing(before) }
    }
}

impl RuleId {
    /// Derives an id from words.
    ///
    /// The words are separated, so `["a", "bc"]` differs from `["ab", "c"]`.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        // FNV-1a. It must never change, because ids are part of the keys in Redis. It is not keyed,
        // because the words come from the operator and not from a request.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for word in words {
            (word.len() as u64).to_le_bytes().into_iter().chain(word.bytes()).for_each(&mut mix);
        }
        Self(hash)
    }
}
