//! What one limit did, counted as the log goes by.
//!
//! Not here: deciding (`run`), wording (`report` is filled here, and read by others).

use tollgate::policy::Mode;
use tollgate::{Limit, LimitOutcome, Policy, Quota, RuleId, Timestamp};

use super::curve::Trial;
use super::heat::Heat;
use super::population::Population;
use super::report::{Exactness, LimitReport};
use super::{Settings, amount};
use crate::distance::{Disagreement, Distance};

/// What one limit did.
pub(super) struct Tally {
    pub(super) checked: u64,
    pub(super) refused: u64,
    pub(super) decided: u64,
    pub(super) blocked: u64,
    pub(super) without_key: u64,
    keys: Population,
    heat: Heat,
    /// The limit's own rules: plans and overrides have other numbers, which are not compared with anything.
    own: Vec<RuleId>,
    trial: Option<Trial>,
    distances: Vec<Option<Distance>>,
}

/// One request as a limit met it.
pub(super) struct Meeting {
    /// Its key.
    pub(super) spot: u64,
    pub(super) at: Timestamp,
    pub(super) refused: bool,
    pub(super) without_key: bool,
    pub(super) cost: u64,
    /// Whether it met the limit's own numbers.
    pub(super) on_own: bool,
}

impl Tally {
    /// Nothing yet. `most_keys`: before they are estimated.
    pub(super) fn of(limit: &Limit, settings: &Settings, most_keys: usize, first: Timestamp) -> Self {
        let quotas: Vec<Quota> = limit.rules().iter().map(|rule| rule.quota.clone()).collect();
        let is_wanted = limit.mode() != Mode::Off && settings.is_about(limit.name());
        let grid = settings.suggest.is_asked();
        let trial = (is_wanted && (settings.curves || grid))
            .then(|| Trial::of(&quotas, limit.count_denied(), grid))
            .flatten();
        // A log beside a limit that counts refusals would have to count those of the other.
        let is_compared = is_wanted && settings.exactness && !limit.count_denied();
        Self {
            checked: 0,
            refused: 0,
            decided: 0,
            blocked: 0,
            without_key: 0,
            keys: Population::new(most_keys),
            heat: Heat::starting(first),
            own: limit.rules().iter().map(|rule| rule.id).collect(),
            trial,
            distances: quotas
                .iter()
                .map(|quota| is_compared.then(|| Distance::new(quota)).flatten())
                .collect(),
        }
    }

    /// A request that the limit was asked about.
    pub(super) fn meet(&mut self, it: &Meeting, name: impl FnOnce() -> String) {
        self.checked += 1;
        self.refused += u64::from(it.refused);
        self.without_key += u64::from(it.without_key);
        self.keys.met(it.spot, it.refused, name);
        self.heat.note(it.at, it.refused);
        if let Some(trial) = self.trial.as_mut().filter(|_| it.on_own) {
            trial.request(it.spot, it.cost, it.at);
        }
    }

    /// A request that the limit refuses without counting.
    pub(super) fn block(&mut self, at: Timestamp, without_key: bool) {
        self.checked += 1;
        self.refused += 1;
        self.blocked += 1;
        self.without_key += u64::from(without_key);
        self.heat.note(at, true);
    }

    /// Which of the limit's own windows a rule is.
    pub(super) fn window(&self, rule: RuleId) -> Option<usize> {
        self.own.iter().position(|&own| own == rule)
    }

    /// What one window answered, where no other stood in its way: only then was it charged for what it admitted.
    pub(super) fn compare(&mut self, window: usize, spot: u64, it: &LimitOutcome<'_>, at: Timestamp) {
        if let Some(Some(distance)) = self.distances.get_mut(window) {
            distance.request(spot, it.cost(), at, it.outcome().is_admitted());
        }
    }

    fn exactness(&self) -> Option<Exactness> {
        let compared: Vec<_> = self.distances.iter().flatten().collect();
        if compared.is_empty() || compared.len() < self.distances.len() {
            return None;
        }
        let closed = compared.iter().map(|it| it.closed()).fold(Disagreement::default(), Disagreement::and);
        let open: Option<Vec<_>> = compared.iter().map(|it| it.open()).collect();
        let open = open.map(|all| all.into_iter().fold(Disagreement::default(), Disagreement::and));
        (closed.requests > 0).then(|| Exactness {
            closed,
            open,
            sampled: compared.iter().any(|it| it.is_sampled()),
        })
    }

    /// What is told of it. `mode` is what the policy says, also of a limit that was left out.
    pub(super) fn finish(
        self,
        limit: &Limit,
        mode: Mode,
        settings: &Settings,
        last: Timestamp,
    ) -> LimitReport {
        let exactness = self.exactness();
        let results = self.trial.as_ref().map(Trial::results).filter(|results| results.requests > 0);
        LimitReport {
            name: limit.name().to_owned(),
            algorithm: limit.rules().first().map_or("", |rule| rule.quota.algorithm()).to_owned(),
            amount: amount::all_written(limit.rules().iter().map(|rule| &rule.quota)),
            by: limit.by().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            mode: match mode {
                Mode::Enforce => "enforce",
                Mode::Shadow => "shadow",
                Mode::Off => "off",
            }
            .to_owned(),
            checked: self.checked,
            refused: self.refused,
            decided: self.decided,
            blocked: self.blocked,
            without_key: self.without_key,
            keys: self.keys.keys(),
            top: self.keys.top(settings.top),
            heat: self.heat.finish(last),
            curve: results.as_ref().filter(|_| settings.curves).map(super::curve::Results::curve),
            exactness,
            suggestion: results
                .as_ref()
                .filter(|_| settings.suggest.is_asked())
                .map(|results| settings.suggest.propose(results)),
        }
    }
}

/// Whether a limit cannot be replayed: a log does not say when a request ended, so nothing would give slots back.
pub(super) fn has_slots(limit: &Limit) -> bool {
    limit.every_rule().any(|rule| matches!(rule.quota, Quota::Concurrency(_)))
}

/// Whether no request of a log can meet it: it covers descriptors, or is asked for by name.
pub(super) fn is_unreachable(limit: &Limit) -> bool {
    limit.descriptor().is_some() || limit.apart().is_some()
}

/// The limits of a policy that are told of.
pub(super) fn told<'p>(policy: &'p Policy, settings: &'p Settings) -> impl Iterator<Item = &'p Limit> {
    policy.limits().iter().filter(|limit| settings.is_about(limit.name()))
}
