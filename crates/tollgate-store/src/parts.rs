//! Batches whose keys are in several places, such as the partitions of a cluster.
//!
//! Each place charges its own part atomically. If one part is refused or fails, the charges of the
//! other parts are undone, and the replies are merged into the answer to the whole batch
//! ([`Parts::reserve`]).
//!
//! For about one round trip, other requests can see units that were reserved and will be released.
//! They may be refused because of them, but are never admitted wrongly. If the process dies in that
//! moment, the units stay charged.
//!
//! Sending a part to its place is the job of a store ([`Places`]).

use std::future::Future;
use std::pin::Pin;

use smallvec::SmallVec;
use tollgate_core::{Adjustment, Amount, Outcome, Rule, Timestamp, Verdict};

use crate::CallFailure;
use crate::store::{Answer, Check, Outcomes};
use crate::undo::undo_check;

/// A check that outlives its caller.
#[derive(Clone, Debug)]
pub struct OwnedCheck {
    /// The rule, with its quota.
    pub rule: Rule,
    /// The key.
    pub key: Box<[u8]>,
    /// Units, or a slot.
    pub amount: Amount,
    /// Whether a refusal by this rule refuses the batch.
    pub binding: bool,
    /// Whether the rule is charged although the batch is refused.
    pub count_denied: bool,
}

impl OwnedCheck {
    /// Copies a check.
    pub fn of(check: &Check<'_>) -> Self {
        let Check { rule, key, amount, binding, count_denied } = *check;
        Self { rule: rule.clone(), key: key.into(), amount, binding, count_denied }
    }

    /// Borrows the check.
    pub fn check(&self) -> Check<'_> {
        let Self { rule, key, amount, binding, count_denied } = self;
        Check { rule, key, amount: *amount, binding: *binding, count_denied: *count_denied }
    }
}

/// The checks of a batch that one place decides.
#[derive(Clone, Debug)]
pub struct Part {
    /// The place.
    pub place: usize,
    checks: Vec<(usize, OwnedCheck)>,
}

impl Part {
    /// Borrows the checks.
    pub fn checks(&self) -> SmallVec<[Check<'_>; 4]> {
        self.checks.iter().map(|(_, owned)| owned.check()).collect()
    }
}

/// The reply to one part.
#[derive(Clone, Debug)]
pub struct PartReply {
    /// The answer to its checks.
    pub answer: Answer,
    /// The indices of the checks that renewed a slot which their owner held before.
    pub renewed: SmallVec<[usize; 1]>,
}

/// A change that undoes the charge of one check.
#[derive(Clone, Copy, Debug)]
pub struct Undo<'p> {
    /// The place of the key.
    pub place: usize,
    /// The index of the check in the batch.
    pub at: usize,
    /// The rule.
    pub rule: &'p Rule,
    /// The key.
    pub key: &'p [u8],
    /// The change.
    pub adjustment: Adjustment,
}

/// The reply of a place, which is awaited after its call was sent.
pub type PlaceReply<T> = Pin<Box<dyn Future<Output = Result<T, CallFailure>> + Send>>;

/// The places of a store.
pub trait Places {
    /// Sends a part to its place.
    fn decide(&self, part: &Part) -> PlaceReply<PartReply>;

    /// Sends a change to its place.
    fn change(&self, undo: &Undo<'_>) -> PlaceReply<Outcome>;
}

/// The answer to a batch, and the charges that it left behind.
#[derive(Debug)]
pub struct Reserved {
    /// The answer.
    pub answer: Result<Answer, CallFailure>,
    /// The replies of an admitted batch: its charges, for [`Parts::undo`].
    pub charged: Option<Replies>,
}

/// The reply of each part.
pub type Replies = SmallVec<[Result<PartReply, CallFailure>; 4]>;

/// The states of keys after an undo, by the index of the check.
type KeyStates = SmallVec<[(usize, Outcome); 4]>;

/// A batch, split by the places of its keys.
#[derive(Clone, Debug)]
pub struct Parts(SmallVec<[Part; 4]>);

impl Parts {
    /// Splits a batch by the places of its keys. Two checks that `clash` are never in one part.
    pub fn split(
        checks: &[Check<'_>],
        place_of: impl Fn(&[u8]) -> usize,
        clash: impl Fn(&Check<'_>, &Check<'_>) -> bool,
    ) -> Self {
        let mut parts: SmallVec<[Part; 4]> = SmallVec::new();
        for (at, check) in checks.iter().enumerate() {
            let place = place_of(check.key);
            let fits = |part: &&mut Part| {
                part.place == place && !part.checks.iter().any(|(_, owned)| clash(&owned.check(), check))
            };
            let owned = (at, OwnedCheck::of(check));
            match parts.iter_mut().find(fits) {
                Some(part) => part.checks.push(owned),
                None => parts.push(Part { place, checks: vec![owned] }),
            }
        }
        Self(parts)
    }

    /// Sends the parts to all places at the same time, and charges all of them or none.
    pub async fn reserve<P: Places + Sync>(&self, places: &P) -> Reserved {
        let sent: SmallVec<[_; 4]> = self.0.iter().map(|part| places.decide(part)).collect();
        let mut replies = Replies::new();
        for reply in sent {
            replies.push(reply.await);
        }
        if replies.iter().all(|it| it.as_ref().is_ok_and(|it| it.answer.admitted)) {
            let answer = self.merge(&replies, true, &[]).ok_or_else(incomplete);
            return Reserved { answer, charged: Some(replies) };
        }
        let (key_states, has_failed) = self.undo(places, &replies).await;
        let failures = replies.iter().filter_map(|it| it.as_ref().err());
        let answer = match failures.cloned().reduce(|worst, failure| worst.or_worse(&failure)) {
            // A reservation that could not be undone has been applied.
            Some(failure) => Err(if has_failed { failure.in_doubt() } else { failure }),
            None => self.merge(&replies, false, &key_states).ok_or_else(incomplete),
        };
        Reserved { answer, charged: None }
    }

    /// Undoes the charges of admitted parts, except for limits that count refusals. Returns the states
    /// of the keys, and whether undoing failed for one of them.
    pub async fn undo<P: Places + Sync>(
        &self,
        places: &P,
        replies: &[Result<PartReply, CallFailure>],
    ) -> (KeyStates, bool) {
        let sent: SmallVec<[_; 4]> =
            self.undos(replies).iter().map(|undo| (undo.at, places.change(undo))).collect();
        let (mut key_states, mut has_failed) = (SmallVec::new(), false);
        for (at, change) in sent {
            match change.await {
                Ok(outcome) => key_states.push((at, outcome)),
                Err(_) => has_failed = true,
            }
        }
        (key_states, has_failed)
    }

    fn undos(&self, replies: &[Result<PartReply, CallFailure>]) -> Vec<Undo<'_>> {
        let mut changes = Vec::new();
        for (part, reply) in self.0.iter().zip(replies) {
            let Some(reply) = reply.as_ref().ok().filter(|it| it.answer.admitted) else { continue };
            let outcomes = part.checks.iter().zip(&reply.answer.outcomes).enumerate();
            // The last charge first: a queue takes back only its last place.
            for (place, ((at, owned), outcome)) in outcomes.rev() {
                let is_renewed = reply.renewed.contains(&place);
                let undo = undo_check(owned.amount, outcome, is_renewed, reply.answer.at);
                if let Some(adjustment) = undo.filter(|_| !owned.count_denied) {
                    let (place, rule, key) = (part.place, &owned.rule, &*owned.key);
                    changes.push(Undo { place, at: *at, rule, key, adjustment });
                }
            }
        }
        changes
    }

    /// Merges the replies of all parts; `None` if one is missing or incomplete. In a refusal, the
    /// limits that would have admitted the request report that without a charge, with the state
    /// after the undo.
    fn merge(
        &self,
        replies: &[Result<PartReply, CallFailure>],
        admitted: bool,
        undone: &[(usize, Outcome)],
    ) -> Option<Answer> {
        let count = self.0.iter().map(|part| part.checks.len()).sum();
        let mut outcomes: SmallVec<[Option<Outcome>; 4]> = SmallVec::from_elem(None, count);
        let mut earliest: Option<Timestamp> = None;
        for (part, reply) in self.0.iter().zip(replies) {
            let answer = &reply.as_ref().ok()?.answer;
            earliest = Some(earliest.map_or(answer.at, |at| at.min(answer.at)));
            for ((at, _), outcome) in part.checks.iter().zip(&answer.outcomes) {
                let since = undone.iter().find(|(undone, _)| undone == at).map(|(_, outcome)| *outcome);
                let mut outcome = since.unwrap_or(*outcome);
                if let (false, Verdict::Admitted { .. }) = (admitted, outcome.verdict) {
                    outcome.verdict = Verdict::admitted(0);
                }
                outcomes[*at] = Some(outcome);
            }
        }
        let outcomes: Option<Outcomes> = outcomes.into_iter().collect();
        Some(Answer { admitted, at: earliest?, outcomes: outcomes? })
    }
}

fn incomplete() -> CallFailure {
    CallFailure::failed("the reply of a partition is incomplete")
}

/// The number of partitions. It is part of the format of keys in Redis, and does not change.
pub const PARTITIONS: usize = 256;

/// Returns the partition of a key. It depends on the key and not on the rule, so the limits of one
/// caller are decided in one place.
pub fn partition(key: &[u8]) -> usize {
    // FNV-1a with a finalizer; part of the format, so it must not change.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in key {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    usize::from(hash.to_be_bytes()[0])
}
