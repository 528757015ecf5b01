//! What a decision counts as: of all, and for each limit that took part.
//!
//! This is on the way of every request. It takes no lock and no memory, and all that it
//! writes is this thread's own (`stripes`).
//!
//! A limit with several windows counts once: it has room if all of them have, and what is
//! left is the least of them.

#[cfg(test)]
mod allocation;

use std::sync::Arc;

use tollgate::{Decision, Event, Fate, Limit, LimitOutcome, Mode, Outcome, Policy};

use crate::counts::{Kind, Totals};
use crate::histogram::{LATENCY, WAIT};
use crate::limit_counter::{Field, LimitCounter};
use crate::stripes::Striped;

/// The counters that one policy's limits count in, by their place.
pub(crate) struct PolicyCounters {
    totals: Arc<Striped<Totals>>,
    limits: Box<[Place]>,
    has_candidates: bool,
}

struct Place {
    counter: Arc<LimitCounter>,
    /// The limit that is tried beside it.
    candidate: Option<usize>,
    /// The limit that it is tried beside.
    live: Option<usize>,
    is_off: bool,
}

/// One limit's part in a decision, all of its windows.
struct Part<'d> {
    limit: &'d Limit,
    has_room: bool,
    is_exhausted: bool,
    is_soft: bool,
    share: u16,
}

impl PolicyCounters {
    /// `counters` are those of the policy's limits, in their order.
    pub(crate) fn new(
        totals: Arc<Striped<Totals>>,
        policy: &Policy,
        counters: Vec<Arc<LimitCounter>>,
    ) -> Self {
        let mut limits: Box<[Place]> = policy
            .limits()
            .iter()
            .zip(counters)
            .map(|(limit, counter)| Place {
                counter,
                candidate: None,
                live: limit.candidate_of(),
                is_off: limit.mode() == Mode::Off,
            })
            .collect();
        let mut has_candidates = false;
        for limit in policy.limits() {
            let Some(live) = limit.candidate_of().and_then(|live| limits.get_mut(live)) else { continue };
            live.candidate = Some(limit.place());
            has_candidates = true;
        }
        Self { totals, limits, has_candidates }
    }

    /// Counts a decision.
    #[inline]
    pub(crate) fn count(&self, event: &Event<'_, '_>) {
        let (decision, totals) = (event.decision, self.totals.mine());
        totals.latency.put(&LATENCY, event.took.as_micros());
        let is_degraded = decision.is_degraded();
        let (mut applied, mut in_shadow) = (is_degraded, false);

        let mut open: Option<Part<'_>> = None;
        for limit in decision.limits() {
            applied = true;
            // Windows of one limit are neighbours.
            match &mut open {
                Some(part) if part.limit.place() == limit.limit().place() => part.add(&limit),
                _ => {
                    if let Some(part) = open.replace(Part::of(&limit)) {
                        in_shadow |= self.count_part(&part, is_degraded);
                    }
                }
            }
        }
        if let Some(part) = &open {
            in_shadow |= self.count_part(part, is_degraded);
        }
        for block in decision.shadowed() {
            applied = true;
            in_shadow |= block.limit.candidate_of().is_none();
            self.count_one(block.limit, Field::ShadowLimited);
        }

        totals.count(self.kind(decision, applied));
        if is_degraded {
            totals.count(Kind::Degraded);
        }
        if in_shadow && decision.is_allowed() {
            totals.count(Kind::ShadowLimited);
        }
        if let Some(wait) = decision.advised_wait() {
            totals.wait.put(&WAIT, wait.as_micros());
        }
        if self.has_candidates {
            self.compare(event);
        }
    }

    /// What a decision counts as among all, and the limits that refused without counting.
    #[inline]
    fn kind(&self, decision: &Decision<'_>, applied: bool) -> Kind {
        match decision.fate() {
            Fate::Admitted if applied => Kind::Allowed,
            Fate::Admitted | Fate::AllowListed(_) => Kind::Unlimited,
            Fate::Refused => Kind::Limited,
            Fate::DenyListed(_) | Fate::AmbiguousPath => Kind::Blocked,
            Fate::Blocked(block) => {
                self.count_one(block.limit, Field::Blocked);
                Kind::Blocked
            }
            Fate::Uncountable => {
                for limit in decision.uncountable() {
                    self.count_one(limit, Field::Blocked);
                    self.count_one(limit, Field::Degraded);
                }
                Kind::Uncountable
            }
        }
    }

    fn count_one(&self, limit: &Limit, field: Field) {
        if let Some(place) = self.limits.get(limit.place()) {
            place.counter.count(field);
        }
    }

    /// Counts a limit. Whether it would have refused, had it not been in shadow mode.
    #[inline]
    fn count_part(&self, part: &Part<'_>, is_degraded: bool) -> bool {
        let Some(Place { counter, .. }) = self.limits.get(part.limit.place()) else { return false };
        let is_shadow = part.limit.mode() == Mode::Shadow;
        counter.count(match (part.has_room, is_shadow) {
            (true, _) => Field::Allowed,
            (false, false) => Field::Limited,
            (false, true) => Field::ShadowLimited,
        });
        counter.left(part.share);
        for (happened, field) in [
            (part.is_exhausted, Field::Exhausted),
            (part.is_soft, Field::Soft),
            (is_degraded, Field::Degraded),
        ] {
            if happened {
                counter.count(field);
            }
        }
        !part.has_room && is_shadow && part.limit.candidate_of().is_none()
    }

    /// Counts how limits that are tried beside others would have answered.
    ///
    /// One that makes no check of a request, since a plan or an override lets it pass,
    /// allows it. Of a refusal without counting nothing is known.
    #[cold]
    fn compare(&self, event: &Event<'_, '_>) {
        let decision = event.decision;
        // Nor of a share of one beside a share of the other.
        if decision.is_degraded() || !matches!(decision.fate(), Fate::Admitted | Fate::Refused) {
            return;
        }
        let counted = decision.limits().map(|it| it.limit().place());
        let blocked = decision.shadowed().iter().map(|it| it.limit.place());
        let mut last = None;
        for place in counted.chain(blocked) {
            if last.replace(place) == Some(place) {
                continue;
            }
            let Some(Place { candidate, live, .. }) = self.limits.get(place) else { continue };
            if let Some(live) = *live {
                self.compare_both(event, (live, verdict(decision, live)), (place, verdict(decision, place)));
            }
            // A candidate that took part is counted when its own turn comes.
            if let Some(candidate) = candidate.filter(|&it| verdict(decision, it).is_none()) {
                self.compare_both(event, (place, verdict(decision, place)), (candidate, None));
            }
        }
    }

    /// The places of both and whether they allowed it, if they took part.
    fn compare_both(
        &self,
        event: &Event<'_, '_>,
        (live, live_allows): (usize, Option<bool>),
        (candidate, allows): (usize, Option<bool>),
    ) {
        let (Some(live), Some(candidate)) = (self.limits.get(live), self.limits.get(candidate)) else {
            return;
        };
        // Where one limit was named, the other was not asked.
        let both_took_part = live_allows.is_some() && allows.is_some();
        if live.is_off || candidate.is_off || (event.request.is_none() && !both_took_part) {
            return;
        }
        candidate.counter.agree(live_allows.unwrap_or(true), allows.unwrap_or(true), event.at);
    }
}

/// Whether the limit at this place allowed it; `None`: it took no part.
fn verdict(decision: &Decision<'_>, place: usize) -> Option<bool> {
    if decision.shadowed().iter().any(|block| block.limit.place() == place) {
        return Some(false);
    }
    let of_place = decision.limits().filter(|it| it.limit().place() == place);
    of_place.map(|it| it.outcome().is_admitted()).reduce(|all, one| all && one)
}

impl<'d> Part<'d> {
    #[inline]
    fn of(window: &LimitOutcome<'d>) -> Self {
        let outcome = window.outcome();
        Self {
            limit: window.limit(),
            has_room: outcome.is_admitted(),
            is_exhausted: is_exhausted(outcome),
            is_soft: window.is_soft(),
            share: share(outcome),
        }
    }

    fn add(&mut self, window: &LimitOutcome<'d>) {
        let other = Self::of(window);
        self.has_room &= other.has_room;
        self.is_exhausted |= other.is_exhausted;
        self.is_soft |= other.is_soft;
        self.share = self.share.min(other.share);
    }
}

/// Whether this was the last unit. Where nothing was charged, what was asked for is left.
#[inline]
fn is_exhausted(outcome: &Outcome) -> bool {
    outcome.remaining == 0 && outcome.units() > 0
}

/// What is left, in per mille, rounded up: only nothing is zero.
#[inline]
fn share(outcome: &Outcome) -> u16 {
    let (left, limit) = (outcome.remaining.min(outcome.limit), outcome.limit.max(1));
    let share = match left.checked_mul(1000) {
        Some(left) => left.div_ceil(limit),
        None => (u128::from(left) * 1000).div_ceil(u128::from(limit)).try_into().unwrap_or(1000),
    };
    u16::try_from(share).unwrap_or(1000)
}

#[cfg(test)]
mod tests {
    use tollgate::{Span, Verdict};

    use super::*;

    #[test]
    fn a_share_is_zero_only_of_nothing_and_never_above_all() {
        let share = |remaining, limit| {
            share(&Outcome { verdict: Verdict::Never, limit, remaining, reset_after: Span::ZERO })
        };
        for (remaining, limit, wanted) in [
            (0, 10, 0),
            (1, 10, 100),
            (9, 10, 900),
            (10, 10, 1000),
            (1, 1_000_000, 1),
            (901, 1001, 901),
            (0, u64::MAX, 0),
            (1, u64::MAX, 1),
            (u64::MAX, u64::MAX, 1000),
            (u64::MAX / 2, u64::MAX, 500),
            (7, 0, 0),
        ] {
            assert_eq!(share(remaining, limit), wanted, "{remaining} of {limit}");
        }
    }
}
