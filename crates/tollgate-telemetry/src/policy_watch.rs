//! Observes the decisions of one policy, on the path of every request.
//!
//! An admitted request allocates nothing here, unless a path has to be redacted. Recording spenders
//! skips an update when the lock is taken. Counts of routes and of exhausted keys must not have gaps,
//! so these wait for their locks; each lock is held for a few writes, and only sampled requests and
//! requests of exhausted keys take it. Only refusals and sampled requests are stored as records.
//!
//! `tests/cheap.rs` checks this.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollgate::policy::{Key, KeyDisplay};
use tollgate::{
    Event, Fate, Limit, LimitOutcome, Mode, NotHeld, Policy, Quota, Request, Rule, RuleId, Settlement, Span,
    Subject, Verdict, Watch,
};

use crate::counting::PolicyCounters;
use crate::describe::{self, Describer, method_of, path_of, show_address};
use crate::record::Record;
use crate::redact::PathRedactor;
use crate::spenders::Asker;
use crate::watcher::Inner;

/// Observes the decisions of one policy.
pub(crate) struct PolicyWatch {
    policy: Arc<Policy>,
    version: u64,
    counters: Arc<PolicyCounters>,
    /// Redacts keys in paths and hosts.
    redactor: Option<PathRedactor>,
    all: Arc<Inner>,
}

impl PolicyWatch {
    pub(crate) fn new(
        policy: &Arc<Policy>,
        version: u64,
        redactor: Option<PathRedactor>,
        all: Arc<Inner>,
    ) -> Self {
        Self { counters: all.counters.of(policy), policy: Arc::clone(policy), version, redactor, all }
    }

    fn describer(&self) -> Describer<'_> {
        let Self { policy, version, redactor, all, .. } = self;
        Describer { policy, version: *version, secret: &all.secret, redactor: redactor.as_ref() }
    }

    /// Updates the state of the key of one limit.
    #[inline]
    fn look_at(&self, event: &Event<'_, '_>, it: &LimitOutcome<'_>) {
        let (all, outcome) = (&self.all, it.outcome());
        let key_hash = all.key_hash(it.policy_rule(), it.key());
        // A limit that does not refuse raises no alert.
        if it.is_binding() {
            let refused = match outcome.verdict {
                // The time at which a slot is released is unknown.
                Verdict::Refused { .. } if matches!(it.rule().quota, Quota::Concurrency(_)) => {
                    Some(Span::ZERO)
                }
                Verdict::Refused { retry_after } => Some(retry_after),
                Verdict::Never if outcome.remaining == 0 => Some(Span::ZERO),
                _ => None,
            };
            if outcome.remaining > 0 && refused.is_none() {
                all.zero.left(key_hash);
            } else if refused.is_some() || outcome.limit > 1 {
                all.zero.empty(key_hash, it.policy_rule().id, refused, event.at, || {
                    let describer = self.describer();
                    (describer.name_of(it), describer.key(it), describer.tag(it))
                });
            }
        }
        let units = outcome.units();
        if units > 0 {
            self.spent(event, it, key_hash, units);
        } else if it.limit().count_denied() && !event.decision.is_allowed() {
            self.charged(event, it, key_hash);
        }
    }

    /// Records a refused request that was charged, by at most its cost.
    #[cold]
    fn charged(&self, event: &Event<'_, '_>, it: &LimitOutcome<'_>, key_hash: u64) {
        let units = it.cost().min(it.outcome().limit);
        if units > 0 && !matches!(it.rule().quota, Quota::Concurrency(_)) {
            self.spent(event, it, key_hash, units);
        }
    }

    #[inline]
    fn spent(&self, event: &Event<'_, '_>, it: &LimitOutcome<'_>, key_hash: u64, units: u64) {
        match event.subject {
            Some(subject) => {
                let path = path_of(subject, self.redactor.as_ref());
                let asker = Asker { client: subject.client(), method: method_of(subject), path: &path };
                self.spent_by(&asker, event, it, key_hash, units);
            }
            None => {
                self.spent_by(&Asker { client: None, method: "", path: "" }, event, it, key_hash, units);
            }
        }
    }

    #[inline]
    fn spent_by(
        &self,
        asker: &Asker<'_>,
        event: &Event<'_, '_>,
        it: &LimitOutcome<'_>,
        key_hash: u64,
        units: u64,
    ) {
        let (all, period) = (&self.all, it.policy_rule().quota.period());
        let caller = all.spenders.caller(asker);
        all.spenders.spent(key_hash, (caller, asker), units, event.at, period);
        // A proxy that sends descriptors reports no final cost.
        let may_be_settled = |it: Subject<'_>| it.request().is_some_and(Request::may_be_settled);
        if it.limit().settle().is_some() || event.subject.is_none_or(may_be_settled) {
            all.reservations.put(key_hash, event.id, caller);
        }
    }

    /// Raises an alert if a request is shed whose class is not the least important one.
    fn look_at_class(&self, event: &Event<'_, '_>) {
        let Some(class) = event.decision.priority() else { return };
        if usize::from(class.rank()) + 1 >= self.policy.priorities().len() || !event.decision.is_shed() {
            return;
        }
        match event.decision.fate() {
            Fate::Shed(shed) => self.all.shed_alerts.shed(shed.name(), class.name(), event.at),
            _ => {
                if let Some(limiting) = event.decision.limiting() {
                    self.all.shed_alerts.shed(limiting.name(), class.name(), event.at);
                }
            }
        }
    }

    /// Counts a refusal, and returns the hash of the key or client that was refused.
    fn refuse(&self, event: &Event<'_, '_>) -> u64 {
        let (all, describer) = (&self.all, self.describer());
        self.look_at_class(event);
        match event.decision.fate() {
            Fate::Refused => {
                let Some(limiting) = event.decision.limiting() else { return 0 };
                let key_hash = all.key_hashes.hash_one((limiting.limit().name(), limiting.key().as_bytes()));
                all.top.refused(key_hash, event.at, || {
                    (describer.name_of(&limiting), describer.key(&limiting), describer.tag(&limiting))
                });
                key_hash
            }
            Fate::Blocked(block) => {
                let client = event.subject.and_then(Subject::client);
                let key_hash = all.key_hashes.hash_one((block.limit.name(), client));
                all.top.refused(key_hash, event.at, || {
                    let shown = client.map(|it| show_address(it, &self.policy, &all.secret));
                    let key = shown.map_or("unknown client".into(), |it| format!("client {it}"));
                    let tag = describer.tag_of_client(event.subject).unwrap_or(0);
                    (block.limit.shared_name(), key.into(), tag)
                });
                key_hash
            }
            // No limit refused.
            _ => all.key_hashes.hash_one(event.subject.and_then(Subject::client)),
        }
    }

    #[cold]
    fn remember(&self, event: &Event<'_, '_>, caller: u64) {
        self.all.ring.keep(self.record(event), caller);
    }

    fn record(&self, event: &Event<'_, '_>) -> Record {
        let key_hash = |it: &LimitOutcome<'_>| self.all.key_hash(it.policy_rule(), it.key());
        let record = self.describer().describe(event.subject, event.decision, event.at, key_hash);
        Record { id: event.id, took: event.took.into(), ..record }
    }
}

impl Watch for PolicyWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        self.counters.count(event);
        let decision = event.decision;
        let mut is_shadowed = !decision.shadowed().is_empty();
        for it in decision.limits() {
            self.look_at(event, &it);
            is_shadowed |= !it.is_binding() && !it.outcome().is_admitted();
        }
        let refused = !decision.is_allowed();
        let weight = if refused { Some(1) } else { self.all.top.stands_for(event.id.0) };
        if let (Some(weight), Some(subject)) = (weight, event.subject) {
            let path = path_of(subject, self.redactor.as_ref());
            self.all.top.routed(method_of(subject), &path, refused, weight, event.at);
        }
        if refused {
            let caller = self.refuse(event);
            self.remember(event, caller);
        } else if self.all.samples.choose(event.id, event.subject, is_shadowed, event.at) {
            self.remember(event, 0);
        }
    }

    fn not_held(&self, event: &Event<'_, '_>, reason: NotHeld) {
        self.counters.withdraw(event.decision);
        let caller = self.refuse(event);
        let record = self.record(event);
        self.all.ring.keep(Record { reason: Some(describe::not_held(reason).into()), ..record }, caller);
    }

    fn started(&self, event: &Event<'_, '_>) {
        self.counters.count_start(event.decision);
        for it in event.decision.limits() {
            self.look_at(event, &it);
        }
        if !event.decision.is_allowed() {
            let caller = self.refuse(event);
            self.remember(event, caller);
        }
    }

    fn throttled(&self, event: &Event<'_, '_>, was_limited: bool) {
        self.counters.throttle(event.decision, was_limited);
        let caller = self.refuse(event);
        self.remember(event, caller);
    }

    fn store_called(&self, took: Duration, answered: bool) {
        self.all.counters.record_call(took.into(), answered);
    }

    fn line_joined(&self, limit: &Limit) {
        if let Some(queue) = self.counters.queue(limit) {
            queue.join_line();
        }
    }

    fn line_left(&self, limit: &Limit, waited: Duration, is_served: bool) {
        if let Some(queue) = self.counters.queue(limit) {
            queue.leave_line(is_served.then_some(waited.into()));
        }
    }

    fn settled(&self, settlement: &Settlement<'_>) {
        let Settlement { id, rule, key, reserved, cost, .. } = *settlement;
        if let Some((at, wait)) = settlement.queued.filter(|_| cost == 0)
            && let Some(counter) = self.all.counters.limit(settlement.limit)
            && let Some(queue) = counter.queue()
        {
            queue.leave(at, wait);
        }
        let key_hash = self.all.allowance_hash(rule, key);
        if let Some(caller) = self.all.reservations.take(key_hash, id) {
            self.all.spenders.settle(key_hash, caller, reserved, cost);
        }
    }
}

impl Inner {
    /// Sets how keys are displayed and redacted. Stored records, keys and spenders were rendered by the
    /// previous settings, so they are dropped if the settings differ.
    pub(crate) fn show_as(&self, display: &KeyDisplay, redactor: Option<&PathRedactor>) {
        let shows = (display.clone(), redactor.cloned());
        let before = self.shows.lock().unwrap_or_else(PoisonError::into_inner).replace(shows.clone());
        if before.is_some_and(|before| before != shows) {
            self.ring.clear();
            self.top.clear();
            self.zero.clear();
            self.spenders.clear();
        }
    }

    /// Drops the exhausted keys of rules that a new policy does not have or does not enforce.
    pub(crate) fn refuses_by(&self, policy: &Policy) {
        if self.zero.is_empty() {
            return;
        }
        let refusing = policy.limits().iter().filter(|limit| limit.mode() == Mode::Enforce);
        let rules: HashSet<_> = refusing.flat_map(|limit| limit.every_rule().map(|rule| rule.id)).collect();
        self.zero.keep(|rule| rules.contains(&rule));
    }

    /// Returns the hash that identifies an allowance within this process.
    #[inline]
    pub(crate) fn key_hash(&self, rule: &Rule, key: &Key) -> u64 {
        self.allowance_hash(rule.id, key)
    }

    #[inline]
    fn allowance_hash(&self, rule: RuleId, key: &Key) -> u64 {
        self.key_hashes.hash_one((rule.0, key.as_bytes()))
    }

    /// Drops the exhausted state of a key that was refunded or reset.
    pub(crate) fn forget_key(&self, limit: &Limit, key: &Key) {
        for rule in limit.every_rule() {
            self.zero.left(self.key_hash(rule, key));
        }
    }
}
