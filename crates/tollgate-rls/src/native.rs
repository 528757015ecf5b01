//! Domains of the policy: the descriptors of a request are decided together, all charged or none.
//!
//! - A descriptor is checked against every limit whose pattern matches it. Its status describes the
//!   limit with the longest wait if one refuses, else the limit with the least left.
//! - In the domain `tollgate` a descriptor describes a request (`request_descriptor`) and is
//!   checked against the limits on paths.
//! - If the hits are not given, a request has the cost of the limit. Zero hits only peek, and are
//!   refused if one hit would be.
//! - An override is part of the batch, with its own quota and its own counter.
//! - Refunded hits are not part of the batch; they are applied one by one. Negative hits on a limit with
//!   slots release a slot.
//! - Hits on a limit with `charge: afterwards` are not part of the batch: they are charged after it, and are
//!   never refused.
//! - A limit with `quota: N` grants up to N more hits in advance with an admitted request, unless it
//!   has a queue.

use std::time::Duration;

use smallvec::SmallVec;
use tollgate::policy::{Checks, Matched, RuleCheck};
use tollgate::{
    CalendarUnit, Decision, Descriptor, Fate, Input, LimitOutcome, Limiter, Policy, Quota, Rate, Span, Store,
    Subject, Window,
};

use crate::request::{Entries, RateLimitRequest};
use crate::response::{self, Answer, CurrentLimit, Status};
use crate::unit::Unit;
use crate::upstream;
use tollgate_grpc::call::Refusal;

/// A descriptor that owns its list of entries, as a part of a batch.
#[derive(Clone, Debug)]
pub(crate) struct DescriptorPart<'m> {
    pub(crate) domain: &'m str,
    pub(crate) entries: Entries<'m>,
    pub(crate) cost: Option<u64>,
}

impl DescriptorPart<'_> {
    fn as_descriptor(&self) -> Descriptor<'_> {
        Descriptor { domain: self.domain, entries: &self.entries, cost: self.cost }
    }
}

impl Input for DescriptorPart<'_> {
    fn add_checks<'p>(&self, policy: &'p Policy, out: &mut Checks<'p>) -> Matched<'p> {
        self.as_descriptor().add_checks(policy, out)
    }

    fn subject(&self) -> Subject<'_> {
        Subject::Descriptor(self.as_descriptor())
    }
}

/// A part of a batch, which can be repeated with another cost.
pub(crate) trait Part: Input + Clone + Sync + Send {
    fn cost(&self) -> Option<u64>;

    fn costing(&self, cost: u64) -> Self;

    /// The descriptor, if the part is one.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }
}

impl Part for DescriptorPart<'_> {
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        Some(self.as_descriptor())
    }

    fn cost(&self) -> Option<u64> {
        self.cost
    }

    fn costing(&self, cost: u64) -> Self {
        Self { cost: Some(cost), ..self.clone() }
    }
}

/// The parts of a request that are decided together, each with the index of its descriptor: first
/// the descriptors for the policy, then the overrides.
pub(crate) struct Batch<P> {
    pub(crate) parts: SmallVec<[P; 2]>,
    overrides: Vec<RuleCheck>,
    /// The quotas of the overrides.
    units: SmallVec<[(u32, Unit); 1]>,
    pub(crate) places: SmallVec<[usize; 2]>,
}

impl<P> Default for Batch<P> {
    fn default() -> Self {
        let (parts, units, places) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
        Self { parts, overrides: Vec::new(), units, places }
    }
}

impl<'m> Batch<DescriptorPart<'m>> {
    /// Creates the batch of a request, and takes the entries of its parts from the request.
    /// `counts_overrides`: whether overrides count in this domain.
    pub(crate) fn of(request: &mut RateLimitRequest<'m>, counts_overrides: bool) -> Result<Self, Refusal> {
        let mut batch = Self::default();
        let mut places = SmallVec::<[usize; 1]>::new();
        let (domain, hits) = (request.domain, request.hits);
        let all = request.descriptors.iter_mut().enumerate();
        for (place, descriptor) in all.filter(|(_, it)| !it.gives_back) {
            let cost = descriptor.cost(hits);
            let Some(instead) = descriptor.instead else {
                batch.places.push(place);
                let entries = std::mem::take(&mut descriptor.entries);
                batch.parts.push(DescriptorPart { domain, entries, cost });
                continue;
            };
            if counts_overrides {
                let (requests, unit) = (instead.requests, instead.unit()?);
                let rule = upstream::rule(None, requests, unit)?;
                let key = upstream::override_key(domain, descriptor);
                batch.overrides.push(RuleCheck { rule, key, cost: cost.unwrap_or(1) });
                batch.units.push((requests, unit));
                places.push(place);
            }
        }
        batch.places.extend(places);
        Ok(batch)
    }
}

impl<P: Part> Batch<P> {
    /// Whether a part only peeks.
    pub(crate) fn looks(&self) -> bool {
        self.parts.iter().any(|part| part.cost() == Some(0)) || self.overrides.iter().any(|it| it.cost == 0)
    }

    /// Charges the parts that report a cost afterwards, and sets their statuses. They are never refused.
    pub(crate) async fn charge_afterwards<'l, S: Store>(
        &self,
        limiter: &'l Limiter<S>,
        answer: &mut Answer<'l>,
    ) {
        let reports = self.parts.iter().zip(&self.places).filter_map(|(part, &place)| {
            let descriptor = part.descriptor().filter(|it| it.cost.is_some_and(|cost| cost > 0))?;
            Some((descriptor, place))
        });
        let (descriptors, places): (Vec<_>, Vec<_>) = reports.unzip();
        if descriptors.is_empty() {
            return;
        }
        let charged = limiter.charge_afterwards(&descriptors).await;
        for (part, place) in (0..).zip(places) {
            let of_part = charged.limits().filter(|it| it.part() == part && it.is_binding());
            let Some(charged) = described(of_part) else { continue };
            if let Some(slot) = answer.statuses.get_mut(place).filter(|it| it.limit.is_none()) {
                let name = limiter.policy().limit(charged.name()).map_or("", |it| it.name());
                let Status { limit, remaining, reset, .. } = status(&charged);
                let limit = limit.map(|it| CurrentLimit { requests: it.requests, unit: it.unit, name });
                *slot = Status { limit, remaining, reset, ..Status::default() };
            }
        }
    }

    /// The rules of the overrides, which are not in the policy.
    pub(crate) fn overrides(&self) -> &[RuleCheck] {
        &self.overrides
    }

    /// Decides all parts together.
    pub(crate) async fn decide<'l, S: Store>(&'l self, limiter: &'l Limiter<S>) -> Decision<'l> {
        if (self.looks() || limiter.policy().charges_afterwards())
            && let Some(refused) = limiter.refuse_batch_with_rules(&self.parts, &self.overrides).await
        {
            return refused;
        }
        limiter.decide_batch_with_rules(&self.parts, &self.overrides).await
    }

    /// Converts a decision to the response.
    pub(crate) fn answer<'d>(
        &self,
        decision: &'d Decision<'_>,
        descriptors: usize,
        ahead: &Ahead,
    ) -> Answer<'d> {
        let mut answer = answer(decision, &self.places, descriptors, ahead);
        // Overrides have numbers but no name.
        for (&place, &(requests, unit)) in self.places.iter().skip(self.parts.len()).zip(&self.units) {
            if let Some(limit) = answer.statuses.get_mut(place).and_then(|it| it.limit.as_mut()) {
                *limit = CurrentLimit { requests, unit: Some(unit), name: "" };
            }
        }
        answer
    }
}

/// Hits granted in advance: the index of the part, and the quota.
pub(crate) type Ahead = SmallVec<[(usize, response::Quota); 1]>;

/// Returns how many additional hits may be granted in advance to each part, by the `quota` of its
/// limits and the units left.
pub(crate) fn wishes(decision: &Decision<'_>, parts: usize) -> SmallVec<[(usize, u64, Span); 1]> {
    let mut wishes = SmallVec::new();
    let hands_out = |limit: LimitOutcome<'_>| limit.limit().ahead().is_some();
    if decision.fate() != Fate::Admitted || decision.is_degraded() || !decision.limits().any(hands_out) {
        return wishes;
    }
    for part in 0..parts {
        let mut of_part =
            decision.limits().filter(|it| it.part() as usize == part && it.is_binding()).peekable();
        if of_part.peek().is_none() {
            continue;
        }
        let granted = of_part.try_fold((u64::MAX, Span::from_micros(u64::MAX)), |(units, valid), limit| {
            let ahead = limit.limit().ahead()?;
            // Hits that wait in a queue cannot be granted in advance.
            let has_wait = matches!(&limit.rule().quota, Quota::Bucket(it) if it.queue().is_some());
            if limit.cost() == 0 || has_wait || matches!(limit.rule().quota, Quota::Concurrency(_)) {
                return None;
            }
            let units = units.min(ahead).min(limit.outcome().remaining).min(u64::from(u32::MAX));
            Some((units, valid.min(time_for(units, &limit))))
        });
        if let Some((units @ 1.., valid)) = granted {
            wishes.push((part, units, valid));
        }
    }
    wishes
}

/// The time in which a limit grants this many units, at least a second: the validity of hits
/// granted in advance. A proxy that has used them up sooner refuses until then.
fn time_for(units: u64, limit: &LimitOutcome<'_>) -> Span {
    let quota = &limit.rule().quota;
    let micros =
        u128::from(quota.period().as_micros()) * u128::from(units) / u128::from(quota.capacity().max(1));
    let micros = u64::try_from(micros).unwrap_or(u64::MAX).max(1_000_000);
    match quota {
        // Not beyond the end of their window.
        Quota::FixedWindow(_) => Span::from_micros(micros.min(limit.outcome().reset_after.as_micros())),
        _ => Span::from_micros(micros),
    }
}

/// Returns the hits that were granted in advance, if the charge succeeded.
pub(crate) fn handed_out<S: Store>(
    limiter: &Limiter<S>,
    decision: &Decision<'_>,
    units: u64,
    valid: Span,
) -> Option<response::Quota> {
    let at = decision.at().filter(|_| decision.fate() == Fate::Admitted)?;
    let requests = u32::try_from(units).unwrap_or(u32::MAX);
    Some(response::Quota { requests, until: at + valid, id: limiter.id_of(decision) })
}

/// Converts the decision about a batch to the response. Descriptors that are not part of it have
/// the status OK.
fn answer<'d>(decision: &'d Decision<'_>, places: &[usize], descriptors: usize, ahead: &Ahead) -> Answer<'d> {
    let quota = ahead.first().filter(|_| descriptors == 1).map(|(_, quota)| *quota);
    let mut answer = Answer { over: !decision.is_allowed(), quota, ..Answer::default() };
    answer.statuses.resize(descriptors, Status::default());
    // Without counting, the refusing descriptor is unknown, so all are reported as over the limit.
    let uncounted = answer.over && decision.fate() != Fate::Refused;
    for (part, &place) in places.iter().enumerate() {
        let of_part = decision.limits().filter(|it| it.part() as usize == part && it.is_binding());
        let mut status = described(of_part).map_or_else(Status::default, |limit| status(&limit));
        status.over |= uncounted;
        answer.over |= status.over;
        status.quota = ahead.iter().find(|(of, _)| *of == part).map(|(_, quota)| *quota);
        if let Some(slot) = answer.statuses.get_mut(place) {
            *slot = status;
        }
    }
    answer
}

/// The limit that a status describes: the refusing limit with the longest wait, else the limit with
/// the least left.
fn described<'d>(limits: impl Iterator<Item = LimitOutcome<'d>>) -> Option<LimitOutcome<'d>> {
    limits.max_by_key(|limit| {
        let refuses = is_over(limit);
        let wait = limit.advised_wait().unwrap_or(Duration::MAX);
        (refuses, if refuses { wait } else { Duration::ZERO }, std::cmp::Reverse(limit.outcome().remaining))
    })
}

/// Whether the limit is exceeded. A check that only peeks is over the limit if nothing is left.
fn is_over(limit: &LimitOutcome<'_>) -> bool {
    let outcome = limit.outcome();
    !outcome.is_admitted() || (limit.cost() == 0 && outcome.remaining == 0)
}

/// Converts the outcome of one limit to a status.
pub(crate) fn status<'d>(limit: &LimitOutcome<'d>) -> Status<'d> {
    let outcome = limit.outcome();
    let until = limit.advised_wait().map_or(outcome.reset_after, Span::from);
    let (requests, unit) = rate(&limit.rule().quota);
    Status {
        over: is_over(limit),
        limit: Some(CurrentLimit { requests: saturate_u32(requests), unit, name: limit.name() }),
        remaining: saturate_u32(outcome.remaining),
        reset: Some(until.as_secs_ceil()),
        quota: None,
    }
}

/// Which changes a call with negative hits may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refunds {
    /// Refund units, and release slots.
    All,
    /// Release the slots of a named owner.
    OwnSlots,
}

/// Refunds the cost of a part to every limit that applies and releases its slots, and returns the status of
/// the limit with the least left. If the store does not answer, the change is deferred.
pub(crate) async fn refund<'l, S: Store>(
    limiter: &'l Limiter<S>,
    part: &impl Part,
    permitted: Refunds,
) -> Status<'l> {
    let mut checks = Checks::new();
    if part.add_checks(limiter.policy(), &mut checks) != Matched::Applies {
        return Status::default();
    }
    let mut late = Checks::new();
    let descriptor = part.descriptor();
    limiter.policy().match_late_charges(descriptor.as_slice(), &mut late);
    let owner = descriptor.and_then(|it| limiter.policy().slot_owner(&it));
    let mut status = Status { remaining: u32::MAX, ..Status::default() };
    for check in checks.iter().chain(late.iter()) {
        let changed = match (&check.rule.quota, permitted) {
            // The end of a request is reported only for descriptors.
            (Quota::Concurrency(_), _) if check.limit.descriptor().is_none() => continue,
            (Quota::Concurrency(_), Refunds::OwnSlots) if owner.is_none() => continue,
            (Quota::Concurrency(_), _) => limiter.release_descriptor(check, owner, check.cost).await,
            (_, Refunds::OwnSlots) => continue,
            (_, Refunds::All) => limiter.grant(check.limit.name(), check.rule, &check.key, check.cost).await,
        };
        let Ok(Some(outcome)) = changed else { continue };
        if status.limit.is_none() || saturate_u32(outcome.remaining) < status.remaining {
            let (requests, unit) = rate(&check.rule.quota);
            status = Status {
                limit: Some(CurrentLimit { requests: saturate_u32(requests), unit, name: &check.rule.name }),
                remaining: saturate_u32(outcome.remaining),
                reset: Some(outcome.reset_after.as_secs_ceil()),
                ..Status::default()
            };
        }
    }
    if status.limit.is_some() { status } else { Status::default() }
}

/// The rate of a quota: requests, and the unit if the period is one.
fn rate(quota: &Quota) -> (u64, Option<Unit>) {
    let per = |rate: Rate| (rate.count, Unit::of_span(rate.period));
    match quota {
        Quota::Bucket(it) => per(it.rate()),
        Quota::SlidingWindow(it) => per(it.rate()),
        Quota::SlidingParts(it) => per(it.rate()),
        Quota::SlidingLog(it) => per(it.rate()),
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) | Window::Anchored(length) => (quota.capacity(), Unit::of_span(*length)),
            Window::Calendar(calendar) => (quota.capacity(), Some(of_calendar(calendar.unit()))),
        },
        Quota::Concurrency(it) => (u64::from(it.slots()), None),
    }
}

const fn of_calendar(unit: CalendarUnit) -> Unit {
    match unit {
        CalendarUnit::Hour => Unit::Hour,
        CalendarUnit::Day => Unit::Day,
        CalendarUnit::Week => Unit::Week,
        CalendarUnit::Month => Unit::Month,
    }
}

/// Saturates at the maximum of the field.
pub(crate) fn saturate_u32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
