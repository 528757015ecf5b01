//! Observes the decisions of one policy, on the path of every request.
//!
//! Neither an admitted nor a refused request allocates here, unless a path has to be redacted or a refusal cannot be
//! packed (`packed_record`). Recording spenders skips an update when the lock is taken. Counts of routes and of
//! exhausted keys must not have gaps, so these wait for their locks; each lock is held for a few writes, and only
//! refusals, sampled requests and requests of exhausted keys take it. Only refusals and sampled requests are stored as
//! records.
//!
//! `tests/cheap.rs` checks this.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tollgate::policy::{Key, KeyDisplay};
use tollgate::{
    Decision, Event, Fate, Limit, LimitOutcome, Mode, NotHeld, Outcome, Policy, Quota, Rule, RuleId,
    Settlement, Span, Subject, Verdict, Watch,
};

use crate::address::{ShownAddress, number_of};
use crate::counting::PolicyCounters;
use crate::describe::{self, Describer, method_of, path_of, raw_path, without_query};
use crate::key_cache::{KeyCache, ShownKey};
use crate::observation::{Caller, KeyHashes, Observation, limit_of};
use crate::packed_record::{PackedRecord, pack};
use crate::policies::RecordedPolicy;
use crate::record::{Record, RecordHead};
use crate::redact::PathRedactor;
use crate::stripes::Stripe;
use crate::top::KeyName;
use crate::watcher::Inner;

/// Observes the decisions of one policy.
pub(crate) struct PolicyWatch {
    policy: Arc<RecordedPolicy>,
    counters: Arc<PolicyCounters>,
    /// Redacts keys in paths and hosts.
    redactor: Option<PathRedactor>,
    keys: KeyCache,
    /// Whether a limit of the policy settles its charges.
    settles: bool,
    all: Arc<Inner>,
}

impl PolicyWatch {
    pub(crate) fn new(
        policy: &Arc<Policy>,
        version: u64,
        redactor: Option<PathRedactor>,
        all: Arc<Inner>,
    ) -> Self {
        Self {
            counters: all.counters.of(policy),
            policy: all.records.add_policy(policy, version, &all.secret),
            redactor,
            keys: KeyCache::new(),
            settles: policy.settles(),
            all,
        }
    }

    fn describer(&self) -> Describer<'_> {
        let RecordedPolicy { policy, version, .. } = &*self.policy;
        Describer { policy, version: *version, secret: &self.all.secret, redactor: self.redactor.as_ref() }
    }

    /// Returns the redacted path of an event; empty if there is no request.
    #[inline]
    fn path<'d>(&self, event: &Event<'d, '_>) -> Cow<'d, str> {
        event.subject.map_or(Cow::Borrowed(""), |it| path_of(it, self.redactor.as_ref()))
    }

    /// Returns the allowance that a limit has counted.
    #[inline(always)]
    fn key_hash(&self, it: &LimitOutcome<'_>) -> u64 {
        self.all.key_hash(it.policy_rule(), it.key())
    }

    /// Returns the hashes of the allowances of all limits.
    fn key_hashes(&self, decision: &Decision<'_>) -> KeyHashes {
        decision.limits().map(|it| self.key_hash(&it)).collect()
    }

    /// Creates the observation of an event, whose redacted path is `path`.
    #[inline(always)]
    fn observe<'e, 'd, 'l>(
        &'e self,
        event: &'e Event<'d, 'l>,
        path: &'e str,
        stripe: Stripe,
    ) -> Observation<'e, 'd, 'l> {
        Observation { event, path, own: self.all.spenders.own_places(stripe) }
    }

    /// Updates the state of the key of one limit.
    #[inline(never)]
    fn look_at(&self, observed: &Observation<'_, '_, '_>, it: &LimitOutcome<'_>, key_hash: u64) {
        let (outcome, event) = (it.outcome(), observed.event);
        // A limit that does not refuse raises no alert.
        if it.is_binding() {
            if outcome.remaining > 0 && !matches!(outcome.verdict, Verdict::Refused { .. }) {
                self.all.zero.left(key_hash);
            } else {
                self.look_at_exhausted(event, it, key_hash);
            }
        }
        let units = outcome.units();
        if units > 0 {
            self.spent(observed, it, key_hash, units, observed.caller(&self.all.spenders));
        } else if it.limit().count_denied() && !event.decision.is_allowed() {
            self.charged(observed, it, key_hash);
        }
    }

    /// Updates the state of a key that has nothing left, or too little for a request.
    #[inline(never)]
    fn look_at_exhausted(&self, event: &Event<'_, '_>, it: &LimitOutcome<'_>, key_hash: u64) {
        let outcome = it.outcome();
        let refused = match outcome.verdict {
            // The time at which a slot is released is unknown.
            Verdict::Refused { .. } if matches!(it.rule().quota, Quota::Concurrency(_)) => Some(Span::ZERO),
            Verdict::Refused { retry_after } => Some(retry_after),
            // Nothing remains, see above.
            Verdict::Never => Some(Span::ZERO),
            Verdict::Admitted { .. } => None,
        };
        if refused.is_some() || outcome.limit > 1 {
            let name = || self.name(it, key_hash);
            self.all.zero.empty(key_hash, it.policy_rule().id, refused, event.at, name);
        }
    }

    /// Records a refused request that was charged, by at most its cost.
    #[cold]
    fn charged(&self, observed: &Observation<'_, '_, '_>, it: &LimitOutcome<'_>, key_hash: u64) {
        let units = it.cost().min(it.outcome().limit);
        if units > 0 && !matches!(it.rule().quota, Quota::Concurrency(_)) {
            self.spent(observed, it, key_hash, units, observed.caller(&self.all.spenders));
        }
    }

    /// Adds units that a caller spent.
    #[inline]
    fn spent(
        &self,
        observed: &Observation<'_, '_, '_>,
        it: &LimitOutcome<'_>,
        key_hash: u64,
        units: u64,
        caller: Caller,
    ) {
        if observed.own.is_none_or(|own| !own.try_add(key_hash, caller.hash, units, observed.event.at)) {
            self.add_spent(observed, it.policy_rule(), key_hash, units, caller.hash);
        }
    }

    /// Adds units of a caller that has none pending.
    #[inline(never)]
    fn add_spent(
        &self,
        observed: &Observation<'_, '_, '_>,
        rule: &Rule,
        key_hash: u64,
        units: u64,
        caller: u64,
    ) {
        let (own, at, period) = (observed.own, observed.event.at, rule.quota.period());
        self.all.spenders.add_spent(own, key_hash, (caller, &observed.asker()), units, at, period);
    }

    /// Updates the state of a key of an admitted request that was charged nothing, or that has nothing left.
    #[inline(never)]
    fn look_at_admitted(&self, observed: &Observation<'_, '_, '_>, outcome: &Outcome, key_hash: u64) {
        if let Some(it) = limit_of(observed.event.decision, outcome) {
            self.look_at(observed, &it, key_hash);
        }
    }

    /// Passes the redacted key of a limit to `then`. `key_hash` is the hash of its allowance.
    #[inline]
    fn show_key<T>(&self, it: &LimitOutcome<'_>, key_hash: u64, then: impl FnOnce(&ShownKey) -> T) -> T {
        self.keys.with(key_hash, |out| self.describer().show_key(it, out), then)
    }

    /// Returns the name of the key of a limit. `key_hash` is the hash of its allowance.
    fn name(&self, it: &LimitOutcome<'_>, key_hash: u64) -> KeyName {
        KeyName { limit: self.describer().name_of(it), key: self.show_key(it, key_hash, |key| *key) }
    }

    /// Raises an alert if a request is shed whose class is not the least important one.
    fn look_at_class(&self, event: &Event<'_, '_>) {
        let Some(class) = event.decision.priority() else { return };
        let classes = self.policy.policy.priorities().len();
        if usize::from(class.rank()) + 1 >= classes || !event.decision.is_shed() {
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
    fn refuse(&self, event: &Event<'_, '_>, limiting: Option<LimitOutcome<'_>>) -> u64 {
        let all = &self.all;
        self.look_at_class(event);
        match event.decision.fate() {
            Fate::Refused => {
                let Some(limiting) = limiting else { return 0 };
                let key_hash = all.hash_of_limit(limiting.limit(), limiting.key());
                all.top.refused(key_hash, event.at, || self.name(&limiting, key_hash));
                key_hash
            }
            Fate::Blocked(block) => {
                let client = event.subject.and_then(Subject::client);
                let key_hash = all.hash_key.hash(number_of(client), [block.limit.name().as_bytes()]);
                let show = |out: &mut String| {
                    // Writing to a string does not fail.
                    let _never = match client {
                        None => write!(out, "unknown client"),
                        Some(client) => {
                            let client = ShownAddress::of(client, &self.policy.policy, &all.secret);
                            write!(out, "client {client}")
                        }
                    };
                    self.describer().tag_of_client(event.subject).unwrap_or(0)
                };
                all.top.refused(key_hash, event.at, || KeyName {
                    limit: block.limit.shared_name(),
                    key: self.keys.with(key_hash, show, |key| *key),
                });
                key_hash
            }
            // No limit refused.
            _ => all.hash_key.hash(number_of(event.subject.and_then(Subject::client)), []),
        }
    }

    /// Counts a refusal and stores its record. `limiting` is the limit that refused, if there is one.
    fn record_refusal(
        &self,
        observed: &Observation<'_, '_, '_>,
        key_hashes: &[u64],
        limiting: Option<LimitOutcome<'_>>,
        not_held: Option<NotHeld>,
    ) {
        let caller = self.refuse(observed.event, limiting);
        self.remember(observed, key_hashes, limiting, not_held, caller);
    }

    /// Counts and records a request that was refused after its decision.
    fn record_late_refusal(&self, event: &Event<'_, '_>, not_held: Option<NotHeld>) {
        let decision = event.decision;
        let (key_hashes, path) = (self.key_hashes(decision), self.path(event));
        let observed = self.observe(event, &path, self.counters.stripe());
        self.record_refusal(&observed, &key_hashes, decision.limiting(), not_held);
    }

    /// Observes an admitted request.
    ///
    /// This is a third of the time of a check in memory. What few requests need is in functions of its own, which get no
    /// reference to a `LimitOutcome`: it would be in memory for all requests.
    #[inline]
    fn admitted(&self, event: &Event<'_, '_>) {
        let (decision, stripe) = (event.decision, self.counters.stripe());
        let redacted;
        let path = match (&self.redactor, event.subject) {
            (_, None) => "",
            (None, Some(subject)) => without_query(raw_path(subject)),
            (Some(redactor), Some(subject)) => {
                redacted = redactor.path(raw_path(subject));
                &redacted
            }
        };
        let observed = self.observe(event, path, stripe);
        let mut caller = Caller::default();
        if decision.limits().len() > 0 {
            caller = observed.caller(&self.all.spenders);
            if caller.may_be_settled || self.settles {
                self.all.reservations.put(event.id, caller.hash);
            }
        }
        let mut is_shadowed = !decision.shadowed().is_empty();
        self.counters.count(event, None, stripe, |it| {
            let (outcome, key_hash) = (it.outcome(), self.key_hash(it));
            match outcome.verdict {
                Verdict::Admitted { units: units @ 1.., .. } if outcome.remaining > 0 => {
                    // A limit that does not refuse raises no alert.
                    if it.is_binding() {
                        self.all.zero.left(key_hash);
                    }
                    self.spent(&observed, it, key_hash, units, caller);
                }
                _ => {
                    self.look_at_admitted(&observed, outcome, key_hash);
                    // Also a candidate.
                    is_shadowed |= !it.is_admitted() && !it.is_binding();
                }
            }
        });
        let weight = self.all.top.stands_for(event.id.0);
        let is_recorded = self.all.samples.choose(event.id, event.subject, is_shadowed, event.at);
        if is_recorded || weight.is_some() {
            self.sample(&observed, weight, is_recorded);
        }
    }

    /// Counts the route of an admitted request, which stands for `weight` requests if there is one, and stores its record
    /// if `is_recorded`.
    #[inline(never)]
    fn sample(&self, observed: &Observation<'_, '_, '_>, weight: Option<u64>, is_recorded: bool) {
        let event = observed.event;
        if let Some(weight) = weight {
            self.count_route(event, observed.path, weight);
        }
        if is_recorded {
            let (key_hashes, limiting) = (self.key_hashes(event.decision), event.decision.limiting());
            self.remember(observed, &key_hashes, limiting, None, 0);
        }
    }

    /// Observes a refused request.
    #[inline(never)]
    fn refused(&self, event: &Event<'_, '_>) {
        let (decision, path, stripe) = (event.decision, self.path(event), self.counters.stripe());
        let (limiting, mut key_hashes) = (decision.limiting(), KeyHashes::new());
        let observed = self.observe(event, &path, stripe);
        self.counters.count(event, limiting, stripe, |it| {
            let key_hash = self.key_hash(it);
            key_hashes.push(key_hash);
            self.look_at(&observed, it, key_hash);
        });
        self.count_route(event, &path, 1);
        self.record_refusal(&observed, &key_hashes, limiting, decision.not_held());
    }

    /// Counts the route of a request, which stands for `weight` requests.
    fn count_route(&self, event: &Event<'_, '_>, path: &str, weight: u64) {
        if let Some(subject) = event.subject {
            let is_refused = !event.decision.is_allowed();
            self.all.top.routed(method_of(subject), path, is_refused, weight, event.at);
        }
    }

    /// Stores the record of a decision. `caller` identifies the allowance that refused, or else the caller.
    #[inline(never)]
    fn remember(
        &self,
        observed: &Observation<'_, '_, '_>,
        key_hashes: &[u64],
        limiting: Option<LimitOutcome<'_>>,
        not_held: Option<NotHeld>,
        caller: u64,
    ) {
        let (event, describer) = (observed.event, self.describer());
        let show_key = |index, it: &LimitOutcome<'_>, then: &mut dyn FnMut(&ShownKey, u64)| {
            let key_hash = key_hashes.get(index).copied().unwrap_or(0);
            self.show_key(it, key_hash, |key| then(key, key_hash));
        };
        let is_stored = PackedRecord::with_buffer(|packed| {
            pack(packed, &describer, event, limiting, not_held, observed.path, show_key)?;
            let head = RecordHead {
                seq: 0,
                id: event.id,
                at: event.at,
                allowed: event.decision.is_allowed(),
                is_trace_sampled: packed.is_trace_sampled,
            };
            self.all.records.keep_packed(head, &self.policy, packed.as_bytes()?, caller);
            Some(())
        });
        if is_stored.is_none() {
            self.remember_unpacked(event, not_held, caller);
        }
    }

    #[cold]
    fn remember_unpacked(&self, event: &Event<'_, '_>, not_held: Option<NotHeld>, caller: u64) {
        let key_hash = |it: &LimitOutcome<'_>| self.all.key_hash(it.policy_rule(), it.key());
        let record = self.describer().describe(event.subject, event.decision, event.at, key_hash);
        let mut record = Record { id: event.id, took: event.took().into(), ..record };
        if let Some(not_held) = not_held {
            record.reason = Some(describe::not_held(not_held).into());
        }
        self.all.records.keep(record, caller);
    }
}

impl Watch for PolicyWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        if event.decision.is_allowed() {
            self.admitted(event);
        } else {
            // The duration is recorded.
            self.refused(&event.with_duration());
        }
    }

    fn not_held(&self, event: &Event<'_, '_>, reason: NotHeld) {
        self.counters.withdraw(event.decision);
        self.record_late_refusal(event, Some(reason));
    }

    fn started(&self, event: &Event<'_, '_>) {
        let (decision, path, stripe) = (event.decision, self.path(event), self.counters.stripe());
        let (observed, mut key_hashes) = (self.observe(event, &path, stripe), KeyHashes::new());
        self.counters.count_start(decision, |it| {
            let key_hash = self.key_hash(it);
            key_hashes.push(key_hash);
            self.look_at(&observed, it, key_hash);
        });
        if !decision.is_allowed() {
            self.record_refusal(&observed, &key_hashes, decision.limiting(), decision.not_held());
        }
    }

    fn throttled(&self, event: &Event<'_, '_>, was_limited: bool) {
        self.counters.throttle(event.decision, was_limited);
        self.record_late_refusal(event, None);
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
        if let Some(caller) = self.all.reservations.settle(key_hash, id) {
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
            self.records.clear();
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
        self.hash_key.hash(rule.0.into(), [key.as_bytes()])
    }

    /// Returns the hash that identifies a key under all windows of a limit.
    fn hash_of_limit(&self, limit: &Limit, key: &Key) -> u64 {
        self.hash_key.hash(0, [limit.name().as_bytes(), key.as_bytes()])
    }

    /// Drops the exhausted state of a key that was refunded or reset.
    pub(crate) fn forget_key(&self, limit: &Limit, key: &Key) {
        for rule in limit.every_rule() {
            self.zero.left(self.key_hash(rule, key));
        }
    }
}
