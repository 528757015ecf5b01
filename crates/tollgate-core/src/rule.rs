//! A quota with an identity: whose state is whose.
//!
//! Two rules with one id share their states, so the id is made of everything
//! that gives a state its meaning. A rule whose numbers change gets a new id and
//! remembers the old one, so that a store can carry a key's usage over when it
//! next meets the key, and need not visit them all.
//!
//! Of slots, windows, logs and shared buckets a state means the same whatever the limit
//! ([`Quota::identity`]): there, rules of one id can have different ones, and a
//! store must not take the id for the quota.

use crate::quota::Quota;

/// Tells states of one rule from those of another, the same on every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RuleId(pub u64);

/// A quota that keeps its states under an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What answers, metrics and operators call it.
    pub name: Box<str>,
    /// Under which its states are kept.
    pub id: RuleId,
    /// What it promises.
    pub quota: Quota,
    /// What it was before the last change, if states from then may still count.
    pub before: Option<Box<Predecessor>>,
}

/// What a rule was before its numbers changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Under which its states were kept.
    pub id: RuleId,
    /// What it promised.
    pub quota: Quota,
    /// And before that: a key need not have spent between two changes.
    pub before: Option<Box<Predecessor>>,
}

/// How many different rules back usage is looked for.
const MAX_PREDECESSORS: usize = 32;

impl Predecessor {
    /// This one and those before it, each id once, without `except`.
    fn chain(self, except: RuleId) -> Option<Box<Self>> {
        let mut all: Vec<Self> = Vec::new();
        let mut next = Some(Box::new(self));
        while let Some(mut one) = next {
            next = one.before.take();
            if one.id != except && all.iter().all(|known| known.id != one.id) {
                all.push(*one);
            }
        }
        Self::linked(all)
    }

    /// The first of these, each with the next before it.
    fn linked(mut all: Vec<Self>) -> Option<Box<Self>> {
        all.truncate(MAX_PREDECESSORS);
        all.into_iter().rev().fold(None, |before, one| Some(Box::new(Self { before, ..one })))
    }
}

impl Rule {
    /// A rule known by its name and numbers alone: equal ones share their states.
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
        Self { name: name.into(), id, quota, before: None }
    }

    /// The same rule, carrying over what keys have spent under `before`, and
    /// under what that one had replaced.
    #[must_use]
    pub fn replacing(self, before: &Self) -> Self {
        let earlier = before.before.clone();
        if before.id == self.id {
            return Self { before: earlier.and_then(|earlier| earlier.chain(self.id)), ..self };
        }
        let last = Predecessor { id: before.id, quota: before.quota.clone(), before: earlier };
        Self { before: last.chain(self.id), ..self }
    }

    /// The same rule, which also carries over what keys have spent under `other`. Keys
    /// have spent under this rule's own predecessors, or under the other.
    #[must_use]
    pub fn continuing(self, other: &Self) -> Self {
        let known = |id| id == self.id || self.predecessors().any(|it| it.id == id);
        if known(other.id) {
            return self;
        }
        let mut all: Vec<Predecessor> = self.predecessors().cloned().collect();
        all.push(Predecessor { id: other.id, quota: other.quota.clone(), before: None });
        Self { before: Predecessor::linked(all), ..self }
    }

    /// What it was before, the latest first and each once. A rule that has come back to
    /// what it once was is not its own predecessor.
    pub fn predecessors(&self) -> impl Iterator<Item = &Predecessor> {
        std::iter::successors(self.before.as_deref(), |last| last.before.as_deref())
    }
}

impl RuleId {
    /// An id from words. The words are set apart, so `["a", "bc"]` is not `["ab", "c"]`.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        // FNV-1a. Stable for ever, because ids are part of the keys in Redis; not
        // keyed, because the words come from the operator and not from a request.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut mix = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for word in words {
            (word.len() as u64).to_le_bytes().into_iter().chain(word.bytes()).for_each(&mut mix);
        }
        Self(hash)
    }
}
