//! Questions that are no single request: several as one, a limit by its name, a rule of the asker's own.
//!
//! Each comes in two kinds: one that waits for the store, and one that does not and says so
//! where it would have to.

use tollgate_core::Rule;
use tollgate_policy::{Key, Limit, Matched, Request, RuleCheck};
use tollgate_store::Store;

use super::Limiter;
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Decides about several requests as one, whose end nobody here will see: all of them are
    /// charged or none is. [`LimitOutcome::part`](crate::LimitOutcome::part) tells whose an
    /// outcome is.
    pub async fn decide_batch<R: Request + Sync>(&self, requests: &[R]) -> Decision<'_> {
        self.decide_together_with(requests, &[]).await
    }

    /// The same together with rules that stand in no policy: they are the parts behind those of the requests.
    pub async fn decide_together_with<'l, R: Request + Sync>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
    ) -> Decision<'l> {
        let first = requests.first().map(|it| it as &(dyn Request + Sync));
        let matched = |it: &mut Decision<'l>| self.policy.survey_all_with(requests, rules, &mut it.checks);
        self.decide_matched(first, matched).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_batch`](Self::decide_batch) is to be asked.
    pub fn try_decide_batch<R: Request, T>(
        &self,
        requests: &[R],
        then: impl FnOnce(&Decision<'_>) -> T,
    ) -> Option<T> {
        self.try_decide_together_with(requests, &[], then)
    }

    /// [`decide_together_with`](Self::decide_together_with) without waiting, if the store can or is left alone.
    pub fn try_decide_together_with<'l, R: Request, T>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let first = requests.first().map(|it| it as &dyn Request);
        let matched = |it: &mut Decision<'l>| self.policy.survey_all_with(requests, rules, &mut it.checks);
        self.try_decide_matched(first, matched, then)
    }

    /// Decides by one limit about a key that is known, on this plan or the
    /// default one. A limit that is off admits, and counts nothing.
    pub async fn decide_named<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
    ) -> Decision<'l> {
        self.decide_matched(None, |it| self.match_named(limit, key, plan, cost, it)).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_named`](Self::decide_named) is to be asked.
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

    /// Decides by a rule that stands in no policy: whoever asks brings the numbers. Rules of
    /// one id share what their keys have spent.
    pub async fn decide_rule<'l>(&'l self, rule: &'l Rule, key: Key, cost: u64) -> Decision<'l> {
        self.decide_matched(None, |it| self.policy.match_rule(rule, key, cost, &mut it.checks)).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_rule`](Self::decide_rule) is to be asked.
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
