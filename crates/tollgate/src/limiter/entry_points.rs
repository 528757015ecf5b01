//! Decisions other than about a single input: batches, a limit by name, an ad hoc rule.
//!
//! Each waits for the store; its `try_` form returns a [`Pending`] where it would have to wait.

use tollgate_core::Rule;
use tollgate_policy::{Input, Key, Limit, Matched, RuleCheck};
use tollgate_store::Store;

use super::{Limiter, Patience, Pending};
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Decides about several requests or descriptors whose ends are not observed: all of them are
    /// charged or none. Slots of limits on descriptors are held until
    /// [`release_descriptor`](Self::release_descriptor), or until their leases end; other slots are only read. [`LimitOutcome::part`](crate::LimitOutcome::part) is the index of the input of
    /// an outcome.
    pub async fn decide_batch<I: Input + Sync>(&self, inputs: &[I]) -> Decision<'_> {
        self.decide_batch_with_rules(inputs, &[]).await
    }

    /// Works as [`decide_batch`](Self::decide_batch) with additional rules that are in no policy.
    /// Their parts follow those of the inputs.
    pub async fn decide_batch_with_rules<'l, I: Input + Sync>(
        &'l self,
        inputs: &[I],
        rules: &'l [RuleCheck],
    ) -> Decision<'l> {
        let first = inputs.first().map(|it| it as &(dyn Input + Sync));
        let matching = |it: &mut Decision<'l>| self.match_inputs(inputs, rules, it);
        self.decide_matched(first, matching).await
    }

    /// Decides as [`decide_batch`](Self::decide_batch) without waiting, or returns the decision that
    /// waits, as [`try_decide`](Self::try_decide) does.
    pub fn try_decide_batch<'l, I: Input, T>(
        &'l self,
        inputs: &[I],
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        let first = inputs.first().map(|it| it as &dyn Input);
        let matching = |it: &mut Decision<'l>| self.match_inputs(inputs, &[], it);
        self.try_decide_matched(first, matching, Patience::None, then)
    }

    /// Decides about a key by one limit, on the given plan or the default one. A limit that is off
    /// admits without counting.
    pub async fn decide_named<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
    ) -> Decision<'l> {
        self.decide_matched(None, |it| self.match_named(limit, key, plan, cost, it)).await
    }

    /// Decides as [`decide_named`](Self::decide_named) without waiting, or returns the decision that
    /// waits.
    pub fn try_decide_named<'l, T>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        let matching = |it: &mut Decision<'l>| self.match_named(limit, key, plan, cost, it);
        self.try_decide_matched(None, matching, Patience::None, then)
    }

    /// Decides by a rule that is in no policy, whose numbers the caller provides. Rules with one id
    /// share the usage of their keys.
    pub async fn decide_rule<'l>(&'l self, rule: &'l Rule, key: Key, cost: u64) -> Decision<'l> {
        self.decide_matched(None, |it| self.policy.match_rule(rule, key, cost, &mut it.checks)).await
    }

    /// Decides as [`decide_rule`](Self::decide_rule) without waiting, or returns the decision that
    /// waits.
    #[inline]
    pub fn try_decide_rule<'l, T>(
        &'l self,
        rule: &'l Rule,
        key: Key,
        cost: u64,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Result<T, Pending<'l, S>> {
        let matching = |it: &mut Decision<'l>| self.policy.match_rule(rule, key, cost, &mut it.checks);
        self.try_decide_matched(None, matching, Patience::None, then)
    }

    /// Starts to load the state of a key under a rule that is in no policy, for a decision that follows soon. A hint:
    /// it changes nothing.
    #[inline]
    pub fn prefetch_rule(&self, rule: &Rule, key: &Key) {
        self.store.prefetch(rule, key.as_bytes());
    }

    pub(super) fn match_named<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        decision: &mut Decision<'l>,
    ) -> Matched<'l> {
        let matched = self.policy.match_limit(limit, key, plan, cost, &mut decision.checks);
        self.name_owner(decision);
        matched
    }
}
