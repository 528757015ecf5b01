//! What is done on the way of a request.
//!
//! A request that passes allocates nothing here, and waits for nobody: what is behind a
//! lock that somebody else has is left out. Only what is refused, or is in the sample,
//! is written down.
//!
//! Held by `tests/cheap.rs`.

use std::hash::BuildHasher as _;
use std::sync::{Arc, PoisonError};

use tollgate::policy::{Key, KeyPrivacy};
use tollgate::{Decision, Event, Fate, Limit, LimitOutcome, Policy, Request, Rule, Span, Timestamp, Verdict, Watch};

use crate::counting::PolicyCounters;
use crate::describe::{Describer, show_address};
use crate::record::Record;
use crate::watcher::Inner;

/// Watches what one policy decides.
pub(crate) struct PolicyWatch {
    policy: Arc<Policy>,
    version: u64,
    counters: Arc<PolicyCounters>,
    /// The limits' names by their place.
    names: Vec<Arc<str>>,
    all: Arc<Inner>,
}

impl PolicyWatch {
    pub(crate) fn new(policy: &Arc<Policy>, version: u64, all: Arc<Inner>) -> Self {
        let names = policy.limits().iter().map(|limit| limit.name().into()).collect();
        Self { counters: all.counters.of(policy), policy: Arc::clone(policy), version, names, all }
    }

    fn describer(&self) -> Describer<'_> {
        let Self { policy, version, names, all, .. } = self;
        Describer { policy, version: *version, secret: &all.secret, names }
    }

    /// What one limit's part says about its key.
    #[inline]
    fn look_at(&self, event: &Event<'_, '_>, it: &LimitOutcome<'_>) {
        let (all, outcome) = (&self.all, it.outcome());
        let spot = all.spot(it.policy_rule(), it.key());
        // What refuses nobody is nobody's alert.
        if it.is_binding() {
            let refused = matches!(outcome.verdict, Verdict::Refused { .. })
                || (outcome.verdict == Verdict::Never && outcome.remaining == 0);
            if outcome.remaining > 0 && !refused {
                all.zero.left(spot);
            } else if refused || outcome.limit > 1 {
                all.zero.empty(spot, refused, event.at, || {
                    let describer = self.describer();
                    (describer.name(it.limit()), describer.key(it))
                });
            }
        }
        let units = outcome.units();
        if units > 0
            && let Some(request) = event.request
        {
            all.spenders.spent(spot, request.client(), request.method(), request.path(), units, event.at);
        }
    }

    /// A limit refused: for whom.
    fn refuse(&self, event: &Event<'_, '_>) -> u64 {
        let (all, describer) = (&self.all, self.describer());
        match event.decision.fate() {
            Fate::Refused => {
                let Some(decider) = event.decision.adviser() else { return 0 };
                let limit = decider.limit();
                // Windows of one limit are one allowance to whoever reads.
                let spot = all.spots.hash_one((limit.name(), decider.key().as_bytes()));
                all.top.refused(spot, event.at, || (describer.name(limit), describer.key(&decider)));
                spot
            }
            Fate::Blocked(block) => {
                // Its key is gone, or was never there.
                let client = event.request.and_then(Request::client);
                let spot = all.spots.hash_one((block.limit.name(), client));
                all.top.refused(spot, event.at, || {
                    let shown = client.map(|it| show_address(it, self.policy.privacy(), &all.secret));
                    let key = shown.map_or("unknown client".into(), |it| format!("client {it}"));
                    (describer.name(block.limit), key.into())
                });
                spot
            }
            // No limit refused.
            _ => all.spots.hash_one(event.request.and_then(Request::client)),
        }
    }

    #[cold]
    fn remember(&self, event: &Event<'_, '_>, caller: u64) {
        let spot = |it: &LimitOutcome<'_>| self.all.spot(it.policy_rule(), it.key());
        let record = self.describer().describe(event.request, event.decision, event.at, spot);
        self.all.ring.keep(Record { id: event.id, took: event.took, ..record }, caller);
    }
}

impl Watch for PolicyWatch {
    fn decided(&self, event: &Event<'_, '_>) {
        self.counters.count(event);
        let decision = event.decision;
        let mut is_shadowed = false;
        for it in decision.limits() {
            self.look_at(event, &it);
            is_shadowed |= !it.is_binding() && !it.outcome().is_admitted();
        }
        let refused = !decision.is_allowed();
        let weight = if refused { Some(1) } else { self.all.top.stands_for(event.id.0) };
        if let (Some(weight), Some(request)) = (weight, event.request) {
            self.all.top.routed(request.method(), request.path(), refused, weight, event.at);
        }
        if refused {
            let caller = self.refuse(event);
            self.remember(event, caller);
        } else if self.all.samples.choose(event.id, event.request, is_shadowed, event.at) {
            self.remember(event, 0);
        }
    }

    fn asked(&self, took: Span, answered: bool) {
        self.all.counters.asked(took, answered);
    }
}

impl Inner {
    /// A policy shows keys like this. What is remembered was shown as another said: where
    /// that differs, it is forgotten rather than shown.
    pub(crate) fn show_as(&self, privacy: KeyPrivacy) {
        let before = self.privacy.lock().unwrap_or_else(PoisonError::into_inner).replace(privacy);
        if before.is_some_and(|before| before != privacy) {
            self.ring.clear();
            self.top.clear();
            self.zero.clear();
        }
    }

    /// What an allowance is known by, in this process.
    #[inline]
    fn spot(&self, rule: &Rule, key: &Key) -> u64 {
        self.spots.hash_one((rule.id.0, key.as_bytes()))
    }

    /// A key was given something back.
    pub(crate) fn forget_key(&self, limit: &Limit, key: &Key) {
        for rule in limit.every_rule() {
            self.zero.left(self.spot(rule, key));
        }
    }

    /// The record of a decision that nobody was told of.
    pub(crate) fn consider(
        &self,
        policy: &Policy,
        version: u64,
        request: Option<&dyn Request>,
        decision: &Decision<'_>,
        at: Timestamp,
    ) -> Record {
        let describer = Describer { policy, version, secret: &self.secret, names: &[] };
        let spot = |it: &LimitOutcome<'_>| self.spot(it.policy_rule(), it.key());
        let mut record = describer.describe(request, decision, at, spot);
        for limit in &mut record.limits {
            limit.count_denied = false;
        }
        record
    }
}
