//! The deny cache of a node: a refused batch is refused again until its wait is over.
//!
//! As in `tollgate-redis/src/deny_cache.rs`, with a simpler table: it finds whole batches instead of single keys.

use std::collections::VecDeque;
use std::sync::Mutex;

use tollgate::store::{Answer, Check, Outcomes};
use tollgate::{Amount, RuleId, Span, Timestamp, Verdict};

use super::clock::TrueTime;
use crate::executor::lock;

/// The largest number of batches.
pub(super) const MAX_BATCHES: usize = 32;

/// The cached refusals of a node.
pub(super) struct DenyCache {
    keep: Span,
    /// A defect: how long an entry is used after its wait is over.
    lasting: Span,
    batches: Mutex<Cached>,
}

#[derive(Default)]
struct Cached {
    entries: VecDeque<Entry>,
    /// The last change of each key: a reply to an earlier call is not cached.
    changed: VecDeque<(RuleId, Vec<u8>, Timestamp)>,
}

/// The rule, key, units and capacity of a check.
type Name = (RuleId, Vec<u8>, u64, u64);

struct Entry {
    checks: Vec<Name>,
    outcomes: Outcomes,
    /// The time of the answer by the store's clock, and when the call was sent by this node's clock.
    at: Timestamp,
    sent_at: Timestamp,
    wait: Span,
}

impl DenyCache {
    pub(super) fn new(keep: TrueTime, lasting: TrueTime) -> Self {
        Self {
            keep: Span::from_micros(if keep == 0 { 0 } else { keep.max(lasting) }),
            lasting: Span::from_micros(lasting),
            batches: Mutex::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.batches).entries.len()
    }

    /// Caches a refusal, if all checks are for units and the wait is known.
    pub(super) fn learn(&self, checks: &[Check<'_>], answer: &Answer, sent_at: Timestamp) {
        if self.keep.is_zero() || answer.admitted {
            return;
        }
        let (Some(named), Some(wait)) = (names(checks), wait(checks, &answer.outcomes)) else { return };
        let mut cached = lock(&self.batches);
        let is_outdated = |(rule, key, at): &(RuleId, Vec<u8>, Timestamp)| {
            *at >= sent_at && named.iter().any(|it| it.0 == *rule && it.1 == *key)
        };
        if cached.changed.iter().any(is_outdated) {
            return;
        }
        cached.entries.retain(|entry| entry.checks != named);
        if cached.entries.len() == MAX_BATCHES {
            cached.entries.pop_front();
        }
        let outcomes = answer.outcomes.clone();
        cached.entries.push_back(Entry { checks: named, outcomes, at: answer.at, sent_at, wait });
    }

    /// Forgets the refusals of a key that is about to be changed.
    pub(super) fn forget(&self, rule: RuleId, key: &[u8], now: Timestamp) {
        let mut cached = lock(&self.batches);
        cached.entries.retain(|entry| !entry.checks.iter().any(|it| it.0 == rule && it.1 == key));
        cached.changed.retain(|it| it.0 != rule || it.1 != key);
        if cached.changed.len() == 2 * MAX_BATCHES {
            cached.changed.pop_front();
        }
        cached.changed.push_back((rule, key.to_vec(), now));
    }

    /// Refuses a batch that was refused before. Returns the time of the store.
    pub(super) fn recall(
        &self,
        checks: &[Check<'_>],
        now: Timestamp,
        outcomes: &mut Outcomes,
    ) -> Option<Timestamp> {
        if self.keep.is_zero() {
            return None;
        }
        let named = names(checks)?;
        let cached = lock(&self.batches);
        let entry = cached.entries.iter().find(|entry| entry.checks == named)?;
        let passed = now.since(entry.sent_at);
        // The clock of the store may have run faster by one in a thousand since the call was sent.
        let latest = Span::from_micros(passed.as_micros() + passed.as_micros() / 1_000 + 1);
        if passed > self.keep || latest >= entry.wait + self.lasting {
            return None;
        }
        outcomes.clear();
        outcomes.extend(entry.outcomes.iter().copied());
        Some(entry.at + passed)
    }
}

fn names(checks: &[Check<'_>]) -> Option<Vec<Name>> {
    let name = |check: &Check<'_>| match check.amount {
        Amount::Exactly(units) if !check.count_denied => {
            Some((check.rule.id, check.key.to_vec(), units, check.rule.quota.capacity()))
        }
        _ => None,
    };
    checks.iter().map(name).collect()
}

/// The longest wait of the checks that refused.
fn wait(checks: &[Check<'_>], outcomes: &Outcomes) -> Option<Span> {
    let of = |(check, outcome): (&Check<'_>, &tollgate::Outcome)| match outcome.verdict {
        Verdict::Refused { retry_after } if check.binding => Some(retry_after),
        _ => None,
    };
    checks.iter().zip(outcomes).filter_map(of).max()
}
