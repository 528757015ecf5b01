//! Questions that are no single request: several as one, a limit by its name, a rule of the asker's own.
//!
//! Each comes in two kinds: one that waits for the store, and one that does not and says so
//! where it would have to.

use tollgate_core::Rule;
use tollgate_policy::{Key, Limit, Request, RuleCheck, Survey};
use tollgate_store::Store;

use super::Limiter;
use crate::decision::Decision;

impl<S: Store> Limiter<S> {
    /// Decides about several requests as one, whose end nobody here will see: all of them are
    /// charged or none is. [`LimitOutcome::part`](crate::LimitOutcome::part) tells whose an
    /// outcome is.
    pub async fn decide_together<R: Request + Sync>(&self, requests: &[R]) -> Decision<'_> {
        self.decide_together_with(requests, &[]).await
    }

    /// The same together with rules that stand in no policy: they are the parts behind those of the requests.
    pub async fn decide_together_with<'l, R: Request + Sync>(
        &'l self,
        requests: &[R],
        rules: &'l [RuleCheck],
    ) -> Decision<'l> {
        let first = requests.first().map(|it| it as &(dyn Request + Sync));
        let survey = |it: &mut Decision<'l>| self.policy.survey_all_with(requests, rules, &mut it.checks);
        self.decide_surveyed(first, survey).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_together`](Self::decide_together) is to be asked.
    pub fn decide_together_at_once<R: Request, T>(
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
        let survey = |it: &mut Decision<'l>| self.policy.survey_all_with(requests, rules, &mut it.checks);
        self.decide_surveyed_at_once(first, survey, then)
    }

    /// Decides by one limit about a key that is known, on this plan or the
    /// default one. A limit that is off admits, and counts nothing.
    pub async fn decide_by<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
    ) -> Decision<'l> {
        self.decide_surveyed(None, |it| self.survey_by(limit, key, plan, cost, it)).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_by`](Self::decide_by) is to be asked.
    pub fn decide_by_at_once<'l, T>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        self.decide_surveyed_at_once(None, |it| self.survey_by(limit, key, plan, cost, it), then)
    }

    /// Decides by a rule that stands in no policy: whoever asks brings the numbers. Rules of
    /// one id share what their keys have spent.
    pub async fn decide_rule<'l>(&'l self, rule: &'l Rule, key: Key, cost: u64) -> Decision<'l> {
        self.decide_surveyed(None, |it| self.policy.survey_rule(rule, key, cost, &mut it.checks)).await
    }

    /// The same without waiting, if the store can or is left alone. `None`: nothing has
    /// happened, and [`decide_rule`](Self::decide_rule) is to be asked.
    #[inline]
    pub fn decide_rule_at_once<'l, T>(
        &'l self,
        rule: &'l Rule,
        key: Key,
        cost: u64,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let survey = |it: &mut Decision<'l>| self.policy.survey_rule(rule, key, cost, &mut it.checks);
        self.decide_surveyed_at_once(None, survey, then)
    }

    fn survey_by<'l>(
        &'l self,
        limit: &'l Limit,
        key: Key,
        plan: Option<&str>,
        cost: Option<u64>,
        decision: &mut Decision<'l>,
    ) -> Survey<'l> {
        let survey = self.policy.survey_limit(limit, key, plan, cost, &mut decision.checks);
        self.name_owner(decision);
        survey
    }

    async fn decide_surveyed<'l>(
        &'l self,
        request: Option<&(dyn Request + Sync)>,
        survey: impl FnOnce(&mut Decision<'l>) -> Survey<'l>,
    ) -> Decision<'l> {
        let begun = self.begin();
        let mut decision = Decision::undecided();
        let survey = survey(&mut decision);
        let mut decision = self.conclude(survey, decision).await;
        self.tell(request.map(|it| it as &dyn Request), &mut decision, begun);
        decision
    }

    #[inline]
    fn decide_surveyed_at_once<'l, T>(
        &'l self,
        request: Option<&dyn Request>,
        survey: impl FnOnce(&mut Decision<'l>) -> Survey<'l>,
        then: impl FnOnce(&Decision<'l>) -> T,
    ) -> Option<T> {
        let begun = self.begin();
        let mut decision = Decision::undecided();
        let survey = survey(&mut decision);
        self.conclude_at_once(survey, &mut decision).then(|| {
            self.tell(request, &mut decision, begun);
            then(&decision)
        })
    }
}
