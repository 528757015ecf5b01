//! Classifies a decision and counts it, in total and for each limit that took part.
//!
//! This runs on every request. It takes no lock, allocates nothing, and writes only to the stripe of
//! the current thread (`stripes`).
//!
//! A limit with several windows counts once: it has room if every window has room, and its remaining
//! share is the smallest of its windows.

#[cfg(test)]
mod allocation;

use std::sync::Arc;

use tollgate::policy::Allowance;
use tollgate::{Decision, Event, Fate, Limit, LimitOutcome, Mode, Outcome, Policy, Shed, ShedCause, Span};

use crate::class_counter::ClassCounter;
use crate::counts::{Kind, Totals};
use crate::histogram::{LATENCY, WAIT};
use crate::limit_counter::{Field, LimitCounter};
use crate::observation::limit_of;
use crate::queue_counter::QueueCounter;
use crate::stripes::{Stripe, Striped};

/// The counters of one policy's limits, indexed by the place of the limit.
pub(crate) struct PolicyCounters {
    totals: Arc<Striped<Totals>>,
    limits: Box<[Place]>,
    details: Details,
    /// Whether it has any of these, or priority classes.
    has_details: bool,
    /// The counters of the priority classes, by rank.
    classes: Box<[Arc<ClassCounter>]>,
    /// Whether a limit of the policy is a shedder.
    has_shedders: bool,
}

/// What a policy has that counts apart from the outcomes of limits, also for admitted requests.
#[derive(Clone, Copy)]
struct Details {
    has_candidates: bool,
    has_queues: bool,
}

struct Place {
    counter: Arc<LimitCounter>,
    /// The place of the candidate that is evaluated beside this limit.
    candidate: Option<usize>,
    /// The place of the live limit, if this limit is its candidate.
    live: Option<usize>,
    is_off: bool,
    /// Whether each key has at most one window, and the limit has no `soft` threshold.
    is_simple: bool,
}

/// The outcome of one limit in a decision, over all of its windows.
struct Part<'d> {
    limit: &'d Limit,
    has_room: bool,
    is_exhausted: bool,
    is_soft: bool,
    share: u16,
}

impl PolicyCounters {
    /// `counters` has one entry for each limit of the policy, in the same order.
    pub(crate) fn new(
        totals: Arc<Striped<Totals>>,
        policy: &Policy,
        counters: Vec<Arc<LimitCounter>>,
        classes: Box<[Arc<ClassCounter>]>,
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
                is_simple: !has_windows(limit) && limit.soft().is_none(),
            })
            .collect();
        let mut has_candidates = false;
        for limit in policy.limits() {
            let Some(live) = limit.candidate_of().and_then(|live| limits.get_mut(live)) else { continue };
            live.candidate = Some(limit.place());
            has_candidates = true;
        }
        let has_queues = limits.iter().any(|it| it.counter.queue().is_some());
        let has_shedders = policy.matched_limits().iter().any(Limit::is_shed);
        let details = Details { has_candidates, has_queues };
        let has_details = has_candidates || has_queues || !classes.is_empty();
        Self { totals, limits, details, has_details, classes, has_shedders }
    }

    /// Returns the stripe of the current thread.
    #[inline]
    pub(crate) fn stripe(&self) -> Stripe {
        self.totals.current()
    }

    /// Counts a decision, and passes the outcome of each window of each limit to `each`. `limiting` is the limit that
    /// refused, if one did.
    #[inline(always)]
    pub(crate) fn count<'d>(
        &self,
        event: &'d Event<'_, '_>,
        limiting: Option<LimitOutcome<'d>>,
        stripe: Stripe,
        each: impl FnMut(&LimitOutcome<'d>),
    ) {
        let (decision, totals, adder) = (event.decision, self.totals.at(stripe), stripe.adder);
        totals.latency.put(&LATENCY, totals.latency_sampler.latency(event), adder);
        let in_shadow = self.count_limits(decision, stripe, each);
        let is_plain = !self.has_details
            && matches!(decision.fate(), Fate::Admitted)
            && !in_shadow
            && !decision.is_degraded()
            && decision.shadowed().is_empty();
        if is_plain {
            let kind = if decision.is_limited() { Kind::Allowed } else { Kind::Unlimited };
            totals.count(kind, adder);
        } else {
            self.count_details(event, limiting, stripe, in_shadow);
        }
    }

    /// Counts what is left of a decision after the outcomes of its limits.
    #[inline(never)]
    fn count_details(
        &self,
        event: &Event<'_, '_>,
        limiting: Option<LimitOutcome<'_>>,
        stripe: Stripe,
        mut in_shadow: bool,
    ) {
        let (decision, totals, adder) = (event.decision, self.totals.at(stripe), stripe.adder);
        for block in decision.shadowed() {
            in_shadow |= block.limit.candidate_of().is_none();
            self.count_one(block.limit, Field::ShadowLimited);
        }
        if let Fate::Shed(Shed { cause: ShedCause::Adaptive(shed), .. }) = decision.fate() {
            self.count_one(shed.limit, Field::Limited);
        }
        let kind = self.kind(decision, decision.is_limited());
        totals.count(kind, adder);
        if let Some(class) = decision.priority()
            && let Some(counter) = self.classes.get(usize::from(class.rank()))
        {
            counter.count(stripe, kind);
        }
        if decision.is_degraded() {
            totals.count(Kind::Degraded, adder);
        }
        if in_shadow && decision.is_allowed() {
            totals.count(Kind::ShadowLimited, adder);
        }
        let wait = match decision.fate() {
            Fate::Refused => limiting.and_then(|it| it.advised_wait()),
            _ => decision.advised_wait(),
        };
        if let Some(wait) = wait {
            totals.wait.put(&WAIT, Span::from(wait).as_micros(), adder);
        }
        if self.details.has_candidates {
            self.compare(event);
        }
        if self.details.has_queues && decision.is_allowed() {
            self.count_waits(event);
        }
    }

    /// Counts the outcome of each limit, and passes that of each of its windows to `each`. Returns whether a limit in
    /// shadow mode would have refused.
    #[inline(always)]
    fn count_limits<'d>(
        &self,
        decision: &'d Decision<'_>,
        stripe: Stripe,
        mut each: impl FnMut(&LimitOutcome<'d>),
    ) -> bool {
        let has_single_windows = !decision.is_degraded() && !decision.repeats_limits();
        let (mut counted, mut in_shadow) = (None, false);
        for window in decision.limits() {
            each(&window);
            let outcome = window.outcome();
            match self.limits.get(window.limit().place()) {
                Some(place) if place.is_simple && has_single_windows => {
                    if outcome.is_admitted() && outcome.remaining > 0 {
                        place.counter.record(stripe, Field::Allowed, share(outcome));
                    } else {
                        in_shadow |= self.count_part(&Part::new(window.limit(), outcome), false, stripe);
                    }
                }
                _ => in_shadow |= self.count_window(&mut counted, outcome, decision, stripe),
            }
        }
        if let Some(limit) = &counted {
            in_shadow |= self.count_part(limit, decision.is_degraded(), stripe);
        }
        in_shadow
    }

    /// Adds the outcome of a window to that of its limit, and counts the limit before it. Returns whether that limit, in
    /// shadow mode, would have refused.
    #[inline(never)]
    fn count_window<'d>(
        &self,
        counted: &mut Option<Part<'d>>,
        outcome: &Outcome,
        decision: &'d Decision<'_>,
        stripe: Stripe,
    ) -> bool {
        let Some(window) = limit_of(decision, outcome) else { return false };
        let part = Part::of(&window);
        match counted {
            // Windows of one limit are adjacent.
            Some(limit) if limit.limit.place() == part.limit.place() => {
                limit.add(&part);
                false
            }
            _ => counted
                .replace(part)
                .is_some_and(|limit| self.count_part(&limit, decision.is_degraded(), stripe)),
        }
    }

    /// Counts the slots of a request that was counted as admitted, and starts now. Corrects the counts of one that
    /// finds no slot. Passes the outcome of each window of each limit to `each`.
    pub(crate) fn count_start<'d>(&self, decision: &'d Decision<'_>, each: impl FnMut(&LimitOutcome<'d>)) {
        self.count_limits(decision, self.stripe(), each);
        if let Fate::Shed(Shed { cause: ShedCause::Adaptive(shed), .. }) = decision.fate() {
            self.count_one(shed.limit, Field::Limited);
        }
        if !decision.is_allowed() {
            let kind = self.kind(decision, true);
            self.recount(decision, Kind::Allowed, kind);
        }
    }

    /// Records the wait of an admitted request in the queue of each limit that delays it.
    #[cold]
    fn count_waits(&self, event: &Event<'_, '_>) {
        let Some(at) = event.decision.at() else { return };
        for it in event.decision.limits().filter(LimitOutcome::is_binding) {
            let wait = it.outcome().wait();
            if !wait.is_zero()
                && let Some(queue) = self.queue(it.limit())
            {
                queue.enter(at, wait, event.at);
            }
        }
    }

    /// Returns the counters of the queues of a limit, if it has any.
    pub(crate) fn queue(&self, limit: &Limit) -> Option<&QueueCounter> {
        self.limits.get(limit.place())?.counter.queue()
    }

    /// Corrects the counts of a request that was counted as admitted, and refused because it could not
    /// be held for its wait. The limits that delay it have refused it.
    pub(crate) fn withdraw(&self, decision: &Decision<'_>) {
        let mut last = None;
        let refused = decision.limits().filter(|it| it.is_binding() && !it.outcome().is_admitted());
        for limit in refused.map(|it| it.limit().place()) {
            // Windows of one limit are adjacent.
            if last.replace(limit) != Some(limit)
                && let Some(Place { counter, .. }) = self.limits.get(limit)
            {
                counter.count(Field::Limited);
                counter.uncount(Field::Allowed);
            }
        }
        self.recount(decision, Kind::Allowed, Kind::Limited);
    }

    /// Corrects the counts of a request that was counted as admitted, and refused by the throttle of its
    /// upstream. Its limits had room.
    pub(crate) fn throttle(&self, decision: &Decision<'_>, was_limited: bool) {
        let before = if was_limited { Kind::Allowed } else { Kind::Unlimited };
        self.recount(decision, before, Kind::Shed);
    }

    /// Counts a decision as `after` that was counted as `before`.
    fn recount(&self, decision: &Decision<'_>, before: Kind, after: Kind) {
        let stripe = self.stripe();
        let (totals, adder) = (self.totals.at(stripe), stripe.adder);
        totals.count(after, adder);
        totals.uncount(before, adder);
        if let Some(class) = decision.priority()
            && let Some(counter) = self.classes.get(usize::from(class.rank()))
        {
            counter.count(stripe, after);
            counter.uncount(stripe, before);
        }
        if let Some(wait) = decision.advised_wait() {
            totals.wait.put(&WAIT, Span::from(wait).as_micros(), adder);
        }
    }

    /// Classifies a decision, and counts the limits that refused it without counting.
    #[inline(always)]
    fn kind(&self, decision: &Decision<'_>, applied: bool) -> Kind {
        match decision.fate() {
            Fate::Admitted if applied => Kind::Allowed,
            Fate::Admitted | Fate::AllowListed(_) => Kind::Unlimited,
            Fate::Refused if self.has_shedders && decision.is_shed() => Kind::Shed,
            Fate::Refused => Kind::Limited,
            Fate::Shed(_) => Kind::Shed,
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
            // Deny lists and ambiguous paths.
            _ => Kind::Blocked,
        }
    }

    fn count_one(&self, limit: &Limit, field: Field) {
        if let Some(place) = self.limits.get(limit.place()) {
            place.counter.count(field);
        }
    }

    /// Counts the outcome of a limit. Returns whether the limit would have refused if it were not in
    /// shadow mode.
    fn count_part(&self, part: &Part<'_>, is_degraded: bool, stripe: Stripe) -> bool {
        let Some(Place { counter, .. }) = self.limits.get(part.limit.place()) else { return false };
        let is_shadow = !part.has_room && part.limit.mode() == Mode::Shadow;
        let field = match (part.has_room, is_shadow) {
            (true, _) => Field::Allowed,
            (false, false) => Field::Limited,
            (false, true) => Field::ShadowLimited,
        };
        counter.record(stripe, field, part.share);
        // Most requests have none of these.
        if part.is_exhausted | part.is_soft | is_degraded {
            for (happened, field) in [
                (part.is_exhausted, Field::Exhausted),
                (part.is_soft, Field::Soft),
                (is_degraded, Field::Degraded),
            ] {
                if happened {
                    counter.count_at(stripe, field);
                }
            }
        }
        is_shadow && part.limit.candidate_of().is_none()
    }

    /// Counts how candidates and their live limits would have answered.
    ///
    /// A limit that makes no check because a plan or an override exempts the request counts as allowing
    /// it. A refusal without counting is not compared, because the outcome of the other limit is
    /// unknown.
    #[cold]
    fn compare(&self, event: &Event<'_, '_>) {
        let decision = event.decision;
        // A degraded decision is not compared either: both limits counted only this node's share.
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
            // A candidate that took part is counted in its own iteration.
            if let Some(candidate) = candidate.filter(|&it| verdict(decision, it).is_none()) {
                self.compare_both(event, (place, verdict(decision, place)), (candidate, None));
            }
        }
    }

    /// Compares two limits, given by place, with their answers; `None` if a limit took no part.
    fn compare_both(
        &self,
        event: &Event<'_, '_>,
        (live, live_allows): (usize, Option<bool>),
        (candidate, allows): (usize, Option<bool>),
    ) {
        let (Some(live), Some(candidate)) = (self.limits.get(live), self.limits.get(candidate)) else {
            return;
        };
        // A check that names one limit does not check the other one.
        let both_took_part = live_allows.is_some() && allows.is_some();
        if live.is_off || candidate.is_off || (event.subject.is_none() && !both_took_part) {
            return;
        }
        candidate.counter.agree(live_allows.unwrap_or(true), allows.unwrap_or(true), event.at);
    }
}

/// Whether a key of the limit may have several windows.
fn has_windows(limit: &Limit) -> bool {
    let plans = limit.plans().map(|(_, it)| it);
    let others = plans.chain(limit.overrides().map(|(_, it)| it));
    let has_several = |it: &Allowance| matches!(it, Allowance::Rules(rules) if rules.len() > 1);
    limit.rules().len() > 1 || others.into_iter().any(has_several)
}

/// Whether the limit at this place allowed the request; `None` if it took no part.
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
        Self { is_soft: window.is_soft(), ..Self::new(window.limit(), window.outcome()) }
    }

    /// The outcome of a window whose limit has no `soft` threshold.
    #[inline]
    fn new(limit: &'d Limit, outcome: &Outcome) -> Self {
        Self {
            limit,
            has_room: outcome.is_admitted(),
            is_exhausted: is_exhausted(outcome),
            is_soft: false,
            share: share(outcome),
        }
    }

    /// Adds another window of the same limit.
    fn add(&mut self, other: &Self) {
        self.has_room &= other.has_room;
        self.is_exhausted |= other.is_exhausted;
        self.is_soft |= other.is_soft;
        self.share = self.share.min(other.share);
    }
}

/// Whether this request took the last unit. If nothing was charged, the requested units are still left.
#[inline]
fn is_exhausted(outcome: &Outcome) -> bool {
    outcome.remaining == 0 && outcome.units() > 0
}

/// The remaining share in per mille, rounded up, so that zero means that nothing is left.
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
    fn a_share_is_zero_only_if_nothing_is_left_and_at_most_one() {
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
