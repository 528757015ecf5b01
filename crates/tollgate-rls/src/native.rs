//! Domains that the policy itself speaks of: the descriptors of a request are decided as
//! one, all charged or none.
//!
//! - A descriptor meets every limit whose pattern covers it; its status speaks of the one
//!   that refuses for longest, or else has the least left.
//! - In the domain `tollgate` a descriptor describes a request (`request_descriptor`), and meets the
//!   limits on paths.
//! - Hits that are not said are what the limit says a request costs. Zero hits only look, and
//!   are refused where one would be.
//! - An override is a part of the batch, by its own numbers and in a counter of its own.
//! - Hits that are given back are no part of the batch: they are done one by one.
//! - A limit that says `quota: N` hands out up to N more with what it admits.

use smallvec::SmallVec;
use tollgate::policy::{Checks, Descriptor, Matched, RuleCheck};
use tollgate::{
    Adjustment, CalendarUnit, Decision, Fate, LimitOutcome, Limiter, Quota, Rate, Request, Span, Store,
    Window,
};

use crate::grpc::Refusal;
use crate::request::RateLimitRequest;
use crate::response::{self, Answer, CurrentLimit, Status};
use crate::unit::Unit;
use crate::upstream;

/// A descriptor as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorRequest<'m> {
    pub(crate) domain: &'m str,
    pub(crate) entries: &'m [(&'m str, &'m str)],
    pub(crate) cost: Option<u64>,
}

impl Request for DescriptorRequest<'_> {
    fn method(&self) -> &'static str {
        ""
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn cost(&self) -> Option<u64> {
        self.cost
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        Some(Descriptor { domain: self.domain, entries: self.entries })
    }
}

/// A request that can be asked again at another cost.
pub(crate) trait WithCost: Request + Clone + Sync + Send {
    fn costing(&self, cost: u64) -> Self;
}

impl WithCost for DescriptorRequest<'_> {
    fn costing(&self, cost: u64) -> Self {
        Self { cost: Some(cost), ..*self }
    }
}

/// The parts of a request that are decided together, and which descriptor each is: first the descriptors that
/// meet the policy, then the overrides.
pub(crate) struct Batch<R> {
    pub(crate) parts: SmallVec<[R; 2]>,
    overrides: Vec<RuleCheck>,
    /// The numbers of the overrides.
    units: SmallVec<[(u32, Unit); 1]>,
    pub(crate) places: SmallVec<[usize; 2]>,
}

impl<R> Default for Batch<R> {
    fn default() -> Self {
        let (parts, units, places) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
        Self { parts, overrides: Vec::new(), units, places }
    }
}

impl<'m> Batch<DescriptorRequest<'m>> {
    /// `counts_overrides`: whether numbers that come with a descriptor count in this domain.
    pub(crate) fn of(asked: &'m RateLimitRequest<'_>, counts_overrides: bool) -> Result<Self, Refusal> {
        let mut batch = Self::default();
        let mut places = SmallVec::<[usize; 1]>::new();
        for (place, descriptor) in asked.descriptors.iter().enumerate().filter(|(_, it)| !it.gives_back) {
            let Some(instead) = descriptor.instead else {
                batch.places.push(place);
                let cost = asked.cost(descriptor);
                batch.parts.push(DescriptorRequest {
                    domain: asked.domain,
                    entries: &descriptor.entries,
                    cost,
                });
                continue;
            };
            if counts_overrides {
                let (requests, unit) = (instead.requests, instead.unit()?);
                let rule = upstream::rule(None, requests, unit)?;
                let key = upstream::override_key(asked.domain, descriptor);
                batch.overrides.push(RuleCheck { rule, key, cost: upstream::hits(asked, descriptor) });
                batch.units.push((requests, unit));
                places.push(place);
            }
        }
        batch.places.extend(places);
        Ok(batch)
    }
}

impl<R: WithCost> Batch<R> {
    /// The parts that only look.
    pub(crate) fn looks(&self) -> SmallVec<[usize; 2]> {
        let costs = self.parts.iter().map(Request::cost);
        let costs = costs.chain(self.overrides.iter().map(|it| Some(it.cost)));
        costs.enumerate().filter(|(_, cost)| *cost == Some(0)).map(|(at, _)| at).collect()
    }

    /// Rules that stand in no policy.
    pub(crate) fn overrides(&self) -> &[RuleCheck] {
        &self.overrides
    }

    /// What they look for: whether there is one. Others ask as they do.
    fn looked_for(&self) -> SmallVec<[R; 2]> {
        let one = |part: &R| if part.cost() == Some(0) { part.costing(1) } else { part.clone() };
        self.parts.iter().map(one).collect()
    }

    /// The same of the overrides.
    pub(crate) fn overrides_looked_for(&self) -> Vec<RuleCheck> {
        self.overrides.iter().map(|it| RuleCheck { cost: it.cost.max(1), ..it.clone() }).collect()
    }

    /// Decides about all parts as one. `looked_for`: the overrides, as [`overrides_looked_for`](Self::overrides_looked_for)
    /// has them.
    pub(crate) async fn decide<'l, S: Store>(
        &'l self,
        limiter: &'l Limiter<S>,
        looked_for: &'l [RuleCheck],
    ) -> Decision<'l> {
        let looks = self.looks();
        if !looks.is_empty()
            && let Some(refused) = limiter.refuse_together_with(&self.looked_for(), looked_for, &looks).await
        {
            return refused;
        }
        limiter.decide_together_with(&self.parts, &self.overrides).await
    }

    /// What a decision about it comes to.
    pub(crate) fn answer<'d>(
        &self,
        decision: &'d Decision<'_>,
        descriptors: usize,
        ahead: &Ahead,
    ) -> Answer<'d> {
        let mut answer = answer(decision, &self.places, descriptors, ahead);
        // They have numbers, and no name.
        for (&place, &(requests, unit)) in self.places.iter().skip(self.parts.len()).zip(&self.units) {
            if let Some(limit) = answer.statuses.get_mut(place).and_then(|it| it.limit.as_mut()) {
                *limit = CurrentLimit { requests, unit: Some(unit), name: "" };
            }
        }
        answer
    }
}

/// What is handed out ahead: to which part, and how much of it.
pub(crate) type Ahead = SmallVec<[(usize, response::Quota); 1]>;

/// How much more than was asked for each part may be given, as its limits say and have left.
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
        let most = of_part.try_fold((u64::MAX, Span::from_micros(u64::MAX)), |(units, valid), limit| {
            let ahead = limit.limit().ahead()?;
            if limit.cost() == 0 || matches!(limit.rule().quota, Quota::Concurrency(_)) {
                return None;
            }
            let units = units.min(ahead).min(limit.outcome().remaining).min(u64::from(u32::MAX));
            Some((units, valid.min(time_for(units, &limit))))
        });
        if let Some((units @ 1.., valid)) = most {
            wishes.push((part, units, valid));
        }
    }
    wishes
}

/// How long a limit takes to grant so many: for that long, and at least a second, they are
/// good. A proxy that has used them up sooner refuses until then.
fn time_for(units: u64, limit: &LimitOutcome<'_>) -> Span {
    let quota = &limit.rule().quota;
    let micros =
        u128::from(quota.period().as_micros()) * u128::from(units) / u128::from(quota.capacity().max(1));
    let micros = u64::try_from(micros).unwrap_or(u64::MAX).max(1_000_000);
    match quota {
        // Not beyond the window that they are of.
        Quota::FixedWindow(_) => Span::from_micros(micros.min(limit.outcome().reset_after.as_micros())),
        _ => Span::from_micros(micros),
    }
}

/// What was handed out, if it was.
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

/// What a batch comes to. Descriptors that are no part of it are fine so far.
fn answer<'d>(decision: &'d Decision<'_>, places: &[usize], descriptors: usize, ahead: &Ahead) -> Answer<'d> {
    let quota = ahead.first().filter(|_| descriptors == 1).map(|(_, quota)| *quota);
    let mut answer = Answer { over: !decision.is_allowed(), quota, ..Answer::default() };
    answer.statuses.resize(descriptors, Status::default());
    // Without counting, nobody knows whose fault it was; it is everybody's.
    let uncounted = answer.over && decision.fate() != Fate::Refused;
    for (part, &place) in places.iter().enumerate() {
        let of_part = decision.limits().filter(|it| it.part() as usize == part && it.is_binding());
        let mut status = spoken_of(of_part).map_or_else(Status::default, |limit| status(&limit));
        status.over |= uncounted;
        answer.over |= status.over;
        status.quota = ahead.iter().find(|(of, _)| *of == part).map(|(_, quota)| *quota);
        if let Some(slot) = answer.statuses.get_mut(place) {
            *slot = status;
        }
    }
    answer
}

/// The limit that a status speaks of: the one that refuses for longest, or has the least left.
fn spoken_of<'d>(limits: impl Iterator<Item = LimitOutcome<'d>>) -> Option<LimitOutcome<'d>> {
    limits.max_by_key(|limit| {
        let refuses = is_over(limit);
        let wait = limit.advised_wait().map_or(u64::MAX, Span::as_micros);
        (refuses, if refuses { wait } else { 0 }, std::cmp::Reverse(limit.outcome().remaining))
    })
}

/// Whoever only looks is over the limit where nothing is left, also while no store tells before.
fn is_over(limit: &LimitOutcome<'_>) -> bool {
    let outcome = limit.outcome();
    !outcome.is_admitted() || (limit.cost() == 0 && outcome.remaining == 0)
}

/// How one limit stands.
pub(crate) fn status<'d>(limit: &LimitOutcome<'d>) -> Status<'d> {
    let outcome = limit.outcome();
    let until = limit.advised_wait().unwrap_or(outcome.reset_after);
    let (requests, unit) = rate(&limit.rule().quota);
    Status {
        over: is_over(limit),
        limit: Some(CurrentLimit { requests: most(requests), unit, name: limit.name() }),
        remaining: most(outcome.remaining),
        reset: Some(until.as_secs_ceil()),
        quota: None,
    }
}

/// Gives back what a request costs, to every limit that it meets, and tells how the one with
/// the least left stands then. That the store gave no answer is no reason to refuse.
pub(crate) async fn give_back<'l, S: Store>(
    limiter: &'l Limiter<S>,
    request: &(impl Request + Sync),
) -> Status<'l> {
    let mut checks = Checks::new();
    if limiter.policy().match_request(request, &mut checks) != Matched::Applies {
        return Status::default();
    }
    let mut told = Status { remaining: u32::MAX, ..Status::default() };
    for check in checks.iter().filter(|it| !matches!(it.rule.quota, Quota::Concurrency(_))) {
        let grant = Adjustment::Grant { units: check.cost };
        let Ok(outcome) = limiter.store().adjust(check.rule, check.key.as_bytes(), grant).await else {
            continue;
        };
        if told.limit.is_none() || most(outcome.remaining) < told.remaining {
            let (requests, unit) = rate(&check.rule.quota);
            told = Status {
                limit: Some(CurrentLimit { requests: most(requests), unit, name: &check.rule.name }),
                remaining: most(outcome.remaining),
                reset: Some(outcome.reset_after.as_secs_ceil()),
                ..Status::default()
            };
        }
    }
    if told.limit.is_some() { told } else { Status::default() }
}

/// How many a limit grants in which time; no unit where its time is none.
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

/// As much as the field holds.
pub(crate) fn most(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
