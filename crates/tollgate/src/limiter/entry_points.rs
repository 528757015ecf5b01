//! Decisions other than about a single request: batches, a limit by name, an ad hoc rule.
//!
//! Each has two forms: one that waits for the store, and a `try_` form that returns `None` where it
//! would have to wait.

use tollgate_core::Rule;
use tollgate_policy::{Key, Limit, Matched, Request, RuleCheck};
use tollgate_store::Store;

use super::Limiter;
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Decides about several requests whose ends are not observed: all of them are charged or none.
    /// [`LimitOutcome::part`](crate::LimitOutcome::part) is the index of the request of an outcome.
    pub async fn decide_batch<R: Request + Sync>(&self, requests: &[R]) -> Decision<'_> {
        self.decide_together_with(requests, &[]).await
    }

    /// Works as [`decide_batch`](Self::decide_batch) with additional rules that are in no policy.
    /// Their parts follow those of the requests.
    pub async fn decide_together_with<'l, R: Request + Sync>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
    ) -> Decision<'l> {
        let first = requests.first().map(|it| it as &(dyn Request + Sync));
        let matched =
            |it: &mut Decision<'l>| self.policy.match_requests_with_rules(requests, rules, &mut it.checks);
        self.decide_matched(first, matched).await
    }

    /// Decides a batch without waiting, if the store can answer at once or the breaker is open.
    /// Returns `None` if nothing was done and the caller must use
    /// [`decide_batch`](Self::decide_batch).
    pub fn try_decide_batch<R: Request, T>(
        &self,
        requests: &[R],
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> Option<T> {
        self.try_decide_together_with(requests, &[], then)
    }

    /// Decides as [`decide_together_with`](Self::decide_together_with) without waiting, if the
    /// store can answer at once or the breaker is open.
    pub fn try_decide_together_with<'l, R: Request, T>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let first = requests.first().map(|it| it as &dyn Request);
        let matched =
            |it: &mut Decision<'l>| self.policy.match_requests_with_rules(requests, rules, &mut it.checks);
        self.try_decide_matched(first, matched, then)
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

    /// Decides about a key by one limit without waiting, if the store can answer at once or the
    /// breaker is open. Returns `None` if nothing was done and the caller must use
    /// [`decide_named`](Self::decide_named).
    pub fn try_decide_named<'l, T>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        self.try_decide_matched(None, |it| self.match_named(limit, key, plan, cost, it), then)
    }

    /// Decides by a rule that is in no policy, whose numbers the caller provides. Rules with one id
    /// share the usage of their keys.
    pub async fn decide_rule<'l>(&'l self, rule: &'l Rule, key: Key, cost: u64) -> Decision<'l> {
        self.decide_matched(None, |it| self.policy.match_rule(rule, key, cost, &mut it.checks)).await
    }

    /// Decides by a rule without waiting, if the store can answer at once or the breaker is open.
    /// Returns `None` if nothing was done and the caller must use
    /// [`decide_rule`](Self::decide_rule).
    #[inline]
    pub fn try_decide_rule<'l, T>(
        &'l self,
        rule: &'l Rule,
        key: Key,
        cost: u64,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let matched = |it: &mut Decision<'l>| self.policy.match_rule(rule, key, cost, &mut it.checks);
        self.try_decide_matched(None, matched, then)
    }

    fn match_named<'l>(
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

    async fn decide_matched<'l>(
        &'l self,
        request: Option<&(dyn Request + Sync)>,
        matched: impl FnOnce(&mut Decision<'l>) -> Matched<'l>,
    ) -> Decision<'l> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        let matched = matched(&mut decision);
        let mut decision = self.conclude(matched, decision).await;
        self.notify(request.map(|it| it as &dyn Request), &mut decision, started_at);
        decision
    }

    #[inline]
    fn try_decide_matched<'l, T>(
        &'l self,
        request: Option<&dyn Request>,
        matched: impl FnOnce(&mut Decision<'l>) -> Matched<'l>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let started_at = self.started_at();
        let mut decision = Decision::undecided();
        let matched = matched(&mut decision);
        self.try_conclude(matched, &mut decision).then(|| {
            self.notify(request, &mut decision, started_at);
            then(&decision)
        })
    }
}
