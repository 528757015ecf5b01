//! Applies a response to buckets, breaker and budget, and chooses the next step of its call.

use http::StatusCode;
use smallvec::SmallVec;
use tollgate::{Span, Timestamp};

use super::{Grant, Scheduler};
use crate::bucket::Observation;
use crate::clock_offset::ClockOffset;
use crate::headers::{Advice, BucketReport, Reset, Wait};
use crate::registry::{BucketRef, Common, RouteBuckets};
use crate::retry::{AttemptOutcome, Backoff, Safety};

/// The shortest wait that a server can name. Shorter ones are replaced by a backoff.
const MIN_NAMED_WAIT: Span = Span::from_millis(1);

/// The call of an attempt, as far as retries depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The attempts so far, with this one.
    pub(crate) tries: u32,
    pub(crate) safety: Safety,
    /// Whether the request can be sent again.
    pub(crate) is_repeatable: bool,
    pub(crate) deadline: Timestamp,
    /// Two random numbers from 0 to 1.
    pub(crate) random: [f64; 2],
}

/// The next step of a call after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The caller gets the response or the error.
    Return,
    /// The call is sent again after this wait, when its buckets permit it.
    Retry(Span),
}

impl Scheduler {
    /// Ends an attempt that got the head of a response.
    pub(crate) fn answered(
        &mut self,
        grant: &Grant,
        (status, advice): (StatusCode, &Advice<'_>),
        attempt: &Attempt,
        now: Timestamp,
    ) -> NextStep {
        let outcome = AttemptOutcome::of(status, advice);
        if let (Some(date), Some(scope)) = (advice.date, self.registry.known_scope(grant.key.scope)) {
            let seen = ClockOffset::observed(date, grant.sent_at, now);
            scope.offset.get_or_insert(seen).narrow(seen);
        }
        let named_until = self.named_until(grant, advice, now);
        let reported = if self.settings.learn { self.learn_route(grant, advice) } else { SmallVec::new() };
        let blocked_until = match outcome {
            AttemptOutcome::Refused => Some(self.refused_until(grant, advice, named_until, attempt, now)),
            AttemptOutcome::Failed => named_until,
            AttemptOutcome::Answered => None,
        };
        let refused = (outcome == AttemptOutcome::Refused).then_some(blocked_until).flatten();
        self.update_buckets(grant, advice, &reported, refused, now);
        if let Some(until) = blocked_until.filter(|_| outcome != AttemptOutcome::Answered) {
            self.block_others(grant, advice, until, now);
        }
        let step = self.next_step(grant, (outcome, advice), named_until, attempt, now);
        let keys: SmallVec<[u64; 4]> =
            grant.tickets.iter().map(|it| it.0).chain(reported.iter().map(|it| it.0)).collect();
        self.pump_all(keys.into_iter(), now);
        step
    }

    /// Ends an attempt that got no response.
    pub(crate) fn failed(&mut self, grant: &Grant, attempt: &Attempt, now: Timestamp) -> NextStep {
        let advice = Advice::default();
        let step = self.next_step(grant, (AttemptOutcome::Failed, &advice), None, attempt, now);
        self.cancel(grant, now);
        step
    }

    /// Returns the local time until which a response tells to wait.
    fn named_until(&mut self, grant: &Grant, advice: &Advice<'_>, now: Timestamp) -> Option<Timestamp> {
        let until = match advice.wait? {
            Wait::After(span) => now + span,
            Wait::Until(date) => self.local_time(grant, date),
        };
        (until > now + MIN_NAMED_WAIT).then_some(until)
    }

    fn local_time(&mut self, grant: &Grant, date: Timestamp) -> Timestamp {
        let offset = self.registry.known_scope(grant.key.scope).and_then(|scope| scope.offset);
        // Without a `Date`, the clocks are assumed to agree.
        offset.map_or(date, |offset| offset.local(date))
    }

    /// Returns the time until which a refusal stops its bucket.
    fn refused_until(
        &mut self,
        grant: &Grant,
        advice: &Advice<'_>,
        named_until: Option<Timestamp>,
        attempt: &Attempt,
        now: Timestamp,
    ) -> Timestamp {
        let mut expected = None;
        for (key, ticket) in &grant.tickets {
            if let Some(entry) = self.registry.known_bucket(*key) {
                expected = expected.max(entry.bucket.probe_refused(ticket, now));
            }
        }
        let route = self.registry.route(grant.key.route);
        if let Some(named_until) = named_until {
            route.refusals = 0;
            return now + Backoff::extend_wait(named_until.since(now), attempt.random[0]);
        }
        route.refusals = route.refusals.saturating_add(1);
        let refusals = route.refusals;
        let backoff = now + self.settings.backoff.refusal_wait(refusals, attempt.random[0]);
        let empty = advice.buckets.iter().filter(|it| it.remaining == Some(0));
        let reset = empty.filter_map(|it| it.reset).map(|it| self.reset_time(grant, it, now)).max();
        expected.or(reset).filter(|it| *it > now).unwrap_or(backoff)
    }

    fn reset_time(&mut self, grant: &Grant, reset: Reset, now: Timestamp) -> Timestamp {
        match reset {
            Reset::After(span) => now + span,
            Reset::At(date) => self.local_time(grant, date),
        }
    }

    /// Remembers the buckets that a response reports for its route. Returns the keys of the buckets, each with the
    /// place of its report.
    fn learn_route(&mut self, grant: &Grant, advice: &Advice<'_>) -> SmallVec<[(u64, usize); 4]> {
        let key = grant.key;
        if advice.buckets.is_empty() {
            return SmallVec::new();
        }
        let refs: RouteBuckets = advice
            .buckets
            .iter()
            .map(|it| self.registry.bucket_ref(key.scope, key.route, &it.name))
            .collect();
        let keys =
            refs.iter().enumerate().map(|(at, it)| (self.registry.resolve(*it, key.resource), at)).collect();
        let is_shared = refs.iter().all(|it| matches!(it, BucketRef::Fixed(bucket) if *bucket != key.route));
        if let Some(scope) = self.registry.known_scope(key.scope) {
            match &scope.common {
                Common::Unknown if is_shared => scope.common = Common::One(refs.clone()),
                Common::One(common) if *common == refs => {}
                _ => scope.common = Common::Several,
            }
        }
        let route = self.registry.route(key.route);
        if route.buckets != refs {
            route.buckets = refs;
        }
        keys
    }

    /// Ends the tickets of an attempt in their buckets, with the reports of its response.
    fn update_buckets(
        &mut self,
        grant: &Grant,
        advice: &Advice<'_>,
        reported: &[(u64, usize)],
        refused: Option<Timestamp>,
        now: Timestamp,
    ) {
        let route = self.registry.route(grant.key.route);
        route.calls = route.calls.saturating_sub(1);
        let others = route.calls;
        if refused.is_none() {
            route.refusals = 0;
        }
        let observations: SmallVec<[Observation; 2]> =
            advice.buckets.iter().map(|report| self.observe(grant, report, now)).collect();
        #[allow(clippy::cast_precision_loss)] // estimates
        let lacks_units = |key: u64, report: &BucketReport<'_>| {
            let held = grant.tickets.iter().find(|(held, _)| *held == key);
            let cost = held.map_or(1.0, |(_, ticket)| ticket.cost());
            report.remaining.is_some_and(|it| (it as f64) < cost)
        };
        let has_empty = reported.iter().any(|(key, at)| lacks_units(*key, &advice.buckets[*at]));
        for (key, at) in reported {
            let report = &advice.buckets[*at];
            let entry = self.registry.named_bucket(*key, report.kind, now, || report.name.as_str());
            let held = grant.tickets.iter().find(|(held, _)| held == key);
            let is_new = held.is_none() && entry.bucket.level().is_none();
            let ticket = held.map_or_else(|| entry.bucket.adopt(grant.sent_at), |it| it.1);
            let is_refused = !has_empty || lacks_units(*key, report);
            match refused.filter(|_| is_refused) {
                Some(until) => {
                    entry.bucket.report_refusal(&observations[*at], now);
                    entry.bucket.refuse(&ticket, until, (advice.precise_wait, report.remaining), now);
                }
                None => entry.bucket.report(&ticket, &observations[*at], now),
            }
            if is_new {
                entry.bucket.reserve_for(others);
            }
        }
        let is_silent = reported.is_empty() && !advice.is_global;
        for (key, ticket) in &grant.tickets {
            if reported.iter().any(|(other, _)| other == key) {
                continue;
            }
            let Some(entry) = self.registry.known_bucket(*key) else { continue };
            if let Some(until) = refused.filter(|_| is_silent && *key != grant.key.scope) {
                entry.bucket.refuse(ticket, until, (advice.precise_wait, None), now);
            } else {
                entry.bucket.finish(ticket);
                entry.bucket.admit(now);
            }
        }
    }

    /// Stops the buckets that a refusal or an announced failure concerns besides those that it reports.
    fn block_others(&mut self, grant: &Grant, advice: &Advice<'_>, until: Timestamp, now: Timestamp) {
        let until = until.min(now + crate::bucket::MAX_BLOCK);
        if advice.is_global {
            if let Some(scope) = self.registry.known_scope(grant.key.scope) {
                scope.is_global = true;
            }
            let ticket = grant.tickets.iter().find(|(key, _)| *key == grant.key.scope).map(|(_, it)| it);
            let bucket = &mut self.registry.bucket(grant.key.scope, now).bucket;
            if advice.buckets.is_empty() {
                bucket.refuse_every_route(ticket, until, now);
            } else {
                bucket.block(until);
            }
        }
        // Which of several buckets refused is not always reported; the route waits in any case.
        let mut keys = self.keys(&grant.key);
        keys.retain(|key| *key != grant.key.scope);
        if !advice.buckets.iter().any(|it| it.remaining == Some(0)) {
            for key in keys {
                self.registry.bucket(key, now).bucket.block(until);
            }
        }
    }

    fn observe(&mut self, grant: &Grant, report: &BucketReport<'_>, now: Timestamp) -> Observation {
        Observation {
            limit: report.limit,
            remaining: report.remaining,
            reset_at: report.reset.map(|reset| self.reset_time(grant, reset, now)),
            window: report.window,
            shape: report.shape,
            is_precise: report.is_precise,
            reset_mark: match report.reset {
                Some(Reset::At(date)) => Some(date),
                _ => None,
            },
        }
    }

    fn next_step(
        &mut self,
        grant: &Grant,
        (outcome, advice): (AttemptOutcome, &Advice<'_>),
        named_until: Option<Timestamp>,
        attempt: &Attempt,
        now: Timestamp,
    ) -> NextStep {
        let (breaker, backoff, tries) = (self.settings.breaker, self.settings.backoff, self.settings.tries);
        let Some(scope) = self.registry.known_scope(grant.key.scope) else { return NextStep::Return };
        match outcome {
            AttemptOutcome::Failed => {
                scope.breaker.failed(&breaker, attempt.random[1], now);
                self.counts.failed += 1;
            }
            AttemptOutcome::Refused => {
                scope.breaker.succeeded();
                self.counts.refused += 1;
            }
            AttemptOutcome::Answered => scope.breaker.succeeded(),
        }
        let permitted = attempt.is_repeatable
            && attempt.tries < tries
            && now < attempt.deadline
            && outcome.permits_retry(attempt.safety, advice);
        if !permitted {
            return NextStep::Return;
        }
        let wait = match outcome {
            // The buckets have the time of a refusal.
            AttemptOutcome::Refused | AttemptOutcome::Answered => Span::ZERO,
            AttemptOutcome::Failed => {
                let own = backoff.wait(attempt.tries, attempt.random[0]);
                let wait = named_until.map_or(own, |named_until| {
                    Backoff::extend_wait(named_until.since(now), attempt.random[0]).max(own)
                });
                if now + wait >= attempt.deadline || scope.breaker.is_open() {
                    return NextStep::Return;
                }
                if !scope.budget.withdraw() {
                    self.counts.over_budget += 1;
                    return NextStep::Return;
                }
                wait
            }
        };
        self.counts.retries += 1;
        NextStep::Retry(wait)
    }
}
