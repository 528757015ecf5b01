//! The checks of one request: a buffer that matching fills.

use smallvec::SmallVec;
use tollgate_core::{Quota, Rule};

use super::Block;
use crate::key::Key;
use crate::limit::{Limit, Mode};
use crate::priority::PriorityClass;

/// One charge against one window of a limit.
#[derive(Clone, Debug)]
pub struct Check<'p> {
    /// The limit.
    pub limit: &'p Limit,
    /// The window of the limit, with the numbers of the key's plan or override.
    pub rule: &'p Rule,
    /// The key whose allowance is charged.
    pub key: Key,
    /// The units to charge. Concurrency limits take one slot instead.
    pub cost: u64,
    /// The index of the request, among requests that are decided together.
    pub part: u32,
    /// Whether the check is charged although the request is refused.
    pub count_denied: bool,
}

impl Check<'_> {
    /// Whether the check takes a slot.
    pub const fn is_slot(&self) -> bool {
        matches!(self.rule.quota, Quota::Concurrency(_))
    }

    /// Whether the limit may delay the request: it has a leaky queue whose places are not all free, and is in force.
    pub fn may_delay(&self) -> bool {
        let Quota::Bucket(bucket) = &self.rule.quota else { return false };
        self.limit.mode() == Mode::Enforce && bucket.queue().is_some_and(|queue| queue.free < queue.length)
    }
}

/// A limit with a learned number of slots that covers a request. The node counts it, not the store.
#[derive(Clone, Debug)]
pub struct AdaptiveCheck<'p> {
    /// The limit.
    pub limit: &'p Limit,
    /// The key whose requests in flight are counted.
    pub key: Key,
}

/// A check of an ad-hoc rule, decided together with requests.
#[derive(Clone, Debug)]
pub struct RuleCheck {
    /// The rule.
    pub rule: Rule,
    /// The key whose allowance is charged.
    pub key: Key,
    /// The units to charge.
    pub cost: u64,
}

/// A reusable buffer for the checks of one request.
///
/// Holds four checks before it needs the heap, as the outcomes of a store do: a decision is returned by value, and room
/// for more would be copied with it.
#[derive(Clone, Debug, Default)]
pub struct Checks<'p> {
    pub(super) list: SmallVec<[Check<'p>; 4]>,
    pub(super) adaptive: SmallVec<[AdaptiveCheck<'p>; 1]>,
    pub(super) shadowed: SmallVec<[Block<'p>; 2]>,
    /// The priority class of the request; of requests that are decided together, the least important.
    pub(super) priority: Option<&'p PriorityClass>,
    /// The index of the current request, among requests that are decided together.
    pub(super) part: u32,
    /// Whether several checks may belong to one window of one limit.
    pub(super) repeats_limits: bool,
    /// The numbers of the `fair_by` keys, each with the place of its limit.
    pub(super) fair: FairNumbers,
}

/// The numbers of `fair_by` keys, each with the place of its limit.
pub(super) type FairNumbers = SmallVec<[(usize, u64); 1]>;

impl<'p> Checks<'p> {
    /// Creates an empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the buffer of a request of this class, without checks.
    pub fn of_class(priority: Option<&'p PriorityClass>) -> Self {
        Self { priority, ..Self::default() }
    }

    /// Returns the limits with a learned number of slots that cover the request.
    pub fn adaptive(&self) -> &[AdaptiveCheck<'p>] {
        &self.adaptive
    }

    /// Returns the refusals without a check that limits in shadow mode would have caused.
    pub fn shadowed(&self) -> &[Block<'p>] {
        &self.shadowed
    }

    /// Returns the priority class of the request, if the policy has classes. For requests that are
    /// decided together, returns the least important of their classes.
    pub const fn priority(&self) -> Option<&'p PriorityClass> {
        self.priority
    }

    /// Whether several checks may belong to one window of one limit: for requests that are decided
    /// together, paths with several readings and ambiguous keys.
    pub const fn repeats_limits(&self) -> bool {
        self.repeats_limits
    }

    /// Adds a check with an empty key, and returns the key.
    #[inline]
    pub(super) fn push_unkeyed(&mut self, limit: &'p Limit, rule: &'p Rule, cost: u64) -> &mut Key {
        let (part, count_denied) = (self.part, limit.count_denied || is_tally(rule));
        let index = self.list.len();
        self.list.push(Check { limit, rule, key: Key::default(), cost, part, count_denied });
        &mut self.list[index].key
    }

    /// Adds one check per window.
    #[inline]
    pub(super) fn push(&mut self, limit: &'p Limit, rules: &'p [Rule], key: Key, cost: u64) {
        // The last window takes the key, the others clone it.
        let Some((last, others)) = rules.split_last() else {
            return self.push_adaptive(limit, key);
        };
        let part = self.part;
        let count_denied = |rule: &Rule| limit.count_denied || is_tally(rule);
        for rule in others {
            let (key, count_denied) = (key.clone(), count_denied(rule));
            self.list.push(Check { limit, rule, key, cost, part, count_denied });
        }
        self.list.push(Check { limit, rule: last, key, cost, part, count_denied: count_denied(last) });
    }

    /// Adds a limit with a learned number of slots, once for each key: paths with several readings and
    /// ambiguous keys may name it twice.
    #[cold]
    fn push_adaptive(&mut self, limit: &'p Limit, key: Key) {
        let is_known = |it: &AdaptiveCheck<'_>| it.limit.place == limit.place && it.key == key;
        if limit.adaptive.is_some() && !self.adaptive.iter().any(is_known) {
            self.adaptive.push(AdaptiveCheck { limit, key });
        }
    }

    /// Returns the number of the key that shares the slots of a limit fairly
    /// ([`SlotQueue::fair_sources`](crate::SlotQueue::fair_sources)), the same for equal keys of this
    /// process. Zero if all requests have one key.
    pub fn fair_number(&self, limit: &Limit) -> u64 {
        self.fair.iter().find(|(place, _)| *place == limit.place).map_or(0, |(_, number)| *number)
    }

    /// Keeps the checks that `is_kept` selects.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&Check<'p>) -> bool) {
        self.list.retain(|check| is_kept(check));
    }

    /// Removes the checks of concurrent requests.
    pub fn remove_slots(&mut self) {
        self.list.retain(|check| !check.is_slot());
        self.adaptive.clear();
    }

    /// Moves all checks to the end of `all`, if the request has nothing else than checks and a priority class: no
    /// learned limits, no blocks in shadow mode, no other requests that are decided together. Returns whether it did.
    ///
    /// For requests that wait together: a buffer of its own for each would be large.
    pub fn move_to(&mut self, all: &mut Vec<Check<'p>>) -> bool {
        let is_plain = self.adaptive.is_empty() && self.shadowed.is_empty() && self.fair.is_empty();
        if !is_plain || self.repeats_limits || self.part != 0 {
            return false;
        }
        all.extend(self.list.drain(..));
        true
    }

    /// Adds checks that [`move_to`](Self::move_to) has moved.
    pub fn move_back(&mut self, checks: impl IntoIterator<Item = Check<'p>>) {
        self.list.extend(checks);
    }

    /// Adds the checks of slots of the same request.
    pub fn append(&mut self, slots: Self) {
        self.list.extend(slots.list);
        self.adaptive.extend(slots.adaptive);
    }

    /// Stops refusals from being counted by limits that count them.
    pub fn ignore_refusals(&mut self) {
        self.list.iter_mut().for_each(|check| check.count_denied = false);
    }

    /// Removes all checks and the priority class.
    pub fn clear(&mut self) {
        self.remove_checks();
        self.priority = None;
    }

    /// Removes all checks and keeps the priority class.
    pub fn remove_checks(&mut self) {
        self.list.clear();
        self.adaptive.clear();
        self.shadowed.clear();
        self.fair.clear();
        (self.part, self.repeats_limits) = (0, false);
    }
}

impl<'p> std::ops::Deref for Checks<'p> {
    type Target = [Check<'p>];

    fn deref(&self) -> &[Check<'p>] {
        &self.list
    }
}

/// Whether the rule counts refused requests by itself.
const fn is_tally(rule: &Rule) -> bool {
    matches!(&rule.quota, Quota::FixedWindow(window) if window.is_tally())
}
