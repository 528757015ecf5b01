//! Coverage of a policy by its tests: limits, plans and overrides.
//!
//! A limit is covered when a request was checked by it, and when it refused one: a test that never reaches a limit
//! proves nothing about its number. In shadow mode, a refusal that would have happened counts. Plans and overrides
//! are covered when they applied to a request.
//!
//! Not counted: limits that are off, and limits of Envoy files, which requests of a test cannot reach.

use std::collections::HashMap;

use serde::Serialize;
use tollgate::policy::{Allowance, Checks, Key};
use tollgate::{Decision, Fate, Input as _, Limit, Mode, Policy, Subject};

/// Coverage of a policy by its tests.
#[derive(Clone, Debug)]
pub struct Coverage {
    policy: Policy,
    /// The policy without exceptions. It tells which limits cover a request even if an exception exempts it.
    plain: Policy,
    limits: Vec<LimitCoverage>,
}

/// Coverage of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitCoverage {
    /// Name of the limit.
    pub name: String,
    /// Index of the limit in the policy.
    #[serde(skip)]
    place: usize,
    /// Whether the limit checked a request, or refused one without counting.
    #[serde(rename = "asked")]
    pub checked: bool,
    /// Whether the limit refused, or would have refused in shadow mode.
    pub refused: bool,
    /// Plans, by name.
    pub plans: Vec<Exception>,
    /// Overrides, by key.
    pub overrides: Vec<Exception>,
    /// Indices of the overrides.
    #[serde(skip)]
    keys: HashMap<Key, usize>,
}

/// A plan or an override.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exception {
    /// The plan, or the key.
    pub name: String,
    /// Whether it applied to a request.
    pub met: bool,
}

impl Coverage {
    /// Creates empty coverage of a policy.
    pub fn of(policy: &Policy) -> Self {
        let counts = |limit: &&Limit| limit.mode() != Mode::Off && limit.envoy_match().is_none();
        let limits = policy.limits().iter().filter(counts).map(LimitCoverage::not_yet).collect();
        Self { plain: policy.without_exceptions(), policy: policy.clone(), limits }
    }

    /// Records a decision.
    pub(crate) fn note(&mut self, subject: Subject<'_>, decision: &Decision<'_>) {
        for it in decision.limits() {
            self.seen(it.limit(), !it.outcome().is_admitted());
        }
        if let Fate::Blocked(block) = decision.fate() {
            self.seen(block.limit, true);
        }
        decision.shadowed().iter().for_each(|block| self.seen(block.limit, true));
        self.note_exceptions(subject);
    }

    fn seen(&mut self, limit: &Limit, refused: bool) {
        if let Some(covered) = self.limits.iter_mut().find(|it| it.place == limit.place()) {
            covered.checked = true;
            covered.refused |= refused;
        }
    }

    fn note_exceptions(&mut self, subject: Subject<'_>) {
        if self.limits.iter().all(|it| it.plans.is_empty() && it.overrides.is_empty()) {
            return;
        }
        let mut checks = Checks::new();
        subject.add_checks(&self.plain, &mut checks);
        let plan = self.policy.plan_in_force(subject);
        for check in checks.iter() {
            let Some(covered) = self.limits.iter_mut().find(|it| it.place == check.limit.place()) else {
                continue;
            };
            if let Some(&at) = covered.keys.get(&check.key) {
                covered.overrides[at].met = true;
            } else if let Some(met) = covered.plans.iter_mut().find(|it| Some(&it.name) == plan.as_ref()) {
                met.met = true;
            }
        }
    }

    /// Returns the coverage of each limit, in the order of the policy.
    pub fn limits(&self) -> &[LimitCoverage] {
        &self.limits
    }

    /// Returns the number of covered points and of all points. Each limit has a point for a check and one for a
    /// refusal, and each plan and override has one.
    pub fn points(&self) -> (usize, usize) {
        let met: Vec<bool> = self.limits.iter().flat_map(LimitCoverage::points).collect();
        (met.iter().filter(|met| **met).count(), met.len())
    }

    /// Returns the coverage in percent, rounded down: 100 means all points.
    pub fn percent(&self) -> u8 {
        let (met, all) = self.points();
        (met * 100).checked_div(all).and_then(|it| u8::try_from(it).ok()).unwrap_or(100)
    }
}

impl LimitCoverage {
    fn not_yet(limit: &Limit) -> Self {
        let mut plans: Vec<_> = limit.plans().map(|(name, _)| Exception::not_yet(name.to_owned())).collect();
        plans.sort_by(|a, b| a.name.cmp(&b.name));
        let shown = |(key, _): (&Key, &Allowance)| (key.display().to_string(), key.clone());
        let mut overrides: Vec<_> = limit.overrides().map(shown).collect();
        overrides.sort_by(|a, b| a.0.cmp(&b.0));
        let (names, keys): (Vec<_>, Vec<_>) = overrides.into_iter().unzip();
        let keys = keys.into_iter().enumerate().map(|(at, key)| (key, at)).collect();
        Self {
            name: limit.name().to_owned(),
            place: limit.place(),
            checked: false,
            refused: false,
            plans,
            overrides: names.into_iter().map(Exception::not_yet).collect(),
            keys,
        }
    }

    /// Returns whether each point is covered.
    fn points(&self) -> impl Iterator<Item = bool> {
        let exceptions = self.plans.iter().chain(&self.overrides).map(|it| it.met);
        [self.checked, self.refused].into_iter().chain(exceptions)
    }
}

impl Exception {
    const fn not_yet(name: String) -> Self {
        Self { name, met: false }
    }
}
