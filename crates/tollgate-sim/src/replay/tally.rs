//! Counts the results of one limit.
//!
//! Not here: deciding (`run`), rendering (`report`).

use tollgate::policy::Mode;
use tollgate::{Limit, LimitOutcome, Policy, Quota, RuleId, Span, Timestamp};

use super::curve::Trial;
use super::heat::Heat;
use super::population::Population;
use super::report::{Exactness, LimitReport};
use super::{Settings, amount};
use crate::distance::{Disagreement, Distance};
use crate::waits::WaitCounter;

/// The results of one limit.
pub(super) struct Tally {
    pub(super) checked: u64,
    pub(super) refused: u64,
    pub(super) decided: u64,
    pub(super) blocked: u64,
    pub(super) without_key: u64,
    keys: Population,
    heat: Heat,
    /// The limit's own rules. Plans and overrides have other numbers, for which no curve is computed.
    own: Vec<RuleId>,
    trial: Option<Trial>,
    /// The waits of admitted requests, if the limit has a queue.
    waits: Option<WaitCounter>,
    distances: Vec<Option<Distance>>,
    /// Requests whose cost the log states: charged from the start, or settled.
    pub(super) cost_known: u64,
    pub(super) settled: u64,
}

/// Memory budget of one limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Keys that are counted exactly.
    pub(super) keys: usize,
    /// Bytes of the curve.
    pub(super) curve: usize,
    /// Units that the exact logs hold, per window.
    pub(super) exactness: usize,
}

/// Bytes of all curves of a run and of one curve; units of all logs of a run and of one log.
const MAX_CURVE_BYTES: (usize, usize) = (256 << 20, 96 << 20);
const MAX_LOG_UNITS: (usize, usize) = (4 << 20, 1 << 20);
const MIN_CURVE_BYTES: usize = 512 << 10;
const MIN_LOG_UNITS: usize = 8 << 10;
/// Keys that are counted exactly in a run, and by one limit.
const MAX_KEYS: (usize, usize) = (1 << 20, 1 << 17);
const MIN_KEYS: usize = 1 << 10;

impl Room {
    /// Returns the budget of each limit of these policies, so that memory does not grow with their number.
    pub(super) fn among<'p>(policies: impl Iterator<Item = &'p Policy>, settings: &Settings) -> Self {
        let (mut limits, mut curves, mut windows) = (0, 0, 0);
        for policy in policies {
            limits += policy.limits().len();
            for limit in reported_limits(policy, settings) {
                curves += 1;
                windows += limit.rules().len();
            }
        }
        let share =
            |(all, most): (usize, usize), among: usize, least| (all / among.max(1)).clamp(least, most);
        Self {
            keys: share(MAX_KEYS, limits, MIN_KEYS),
            curve: share(MAX_CURVE_BYTES, curves, MIN_CURVE_BYTES),
            exactness: share(MAX_LOG_UNITS, windows, MIN_LOG_UNITS),
        }
    }
}

/// A request as one limit saw it.
#[allow(clippy::struct_excessive_bools, reason = "four facts that do not hang together")]
pub(super) struct LimitObservation {
    /// Hash of the key.
    pub(super) key_hash: u64,
    pub(super) at: Timestamp,
    pub(super) refused: bool,
    pub(super) without_key: bool,
    pub(super) cost: u64,
    /// The wait of an admitted request in the queue of the limit.
    pub(super) wait: Span,
    /// The actual cost, if the limit settles and the log states it.
    pub(super) settled: Option<u64>,
    /// Whether the cost comes from the log.
    pub(super) cost_known: bool,
    /// Whether the limit's own numbers applied.
    pub(super) on_own: bool,
}

impl Tally {
    /// Creates empty counts.
    pub(super) fn of(limit: &Limit, settings: &Settings, room: Room, first: Timestamp) -> Self {
        let quotas: Vec<Quota> = limit.rules().iter().map(|rule| rule.quota.clone()).collect();
        let is_wanted = limit.mode() != Mode::Off && settings.is_about(limit.name());
        let grid = settings.suggest.is_requested();
        let trial = (is_wanted && (settings.curves || grid))
            .then(|| Trial::of(&quotas, limit.count_denied(), grid, room.curve))
            .flatten();
        // A limit that counts refusals would have to count those of the log too, so it is not compared.
        let is_compared = is_wanted && settings.exactness && !limit.count_denied();
        Self {
            checked: 0,
            refused: 0,
            decided: 0,
            blocked: 0,
            without_key: 0,
            keys: Population::new(room.keys),
            heat: Heat::starting(first),
            own: limit.rules().iter().map(|rule| rule.id).collect(),
            trial,
            waits: limit.every_rule().any(|rule| is_queue(&rule.quota)).then(WaitCounter::default),
            distances: quotas
                .iter()
                .map(|quota| is_compared.then(|| Distance::within(quota, room.exactness)).flatten())
                .collect(),
            cost_known: 0,
            settled: 0,
        }
    }

    /// Counts a request that the limit checked.
    pub(super) fn observe(&mut self, it: &LimitObservation, name: impl FnOnce() -> String) {
        self.checked += 1;
        self.refused += u64::from(it.refused);
        self.without_key += u64::from(it.without_key);
        self.cost_known += u64::from(it.cost_known);
        self.settled += u64::from(it.settled.is_some());
        self.keys.met(it.key_hash, it.refused, name);
        self.heat.note(it.at, it.refused);
        if let Some(waits) = &mut self.waits {
            waits.put(it.wait);
        }
        if let Some(trial) = self.trial.as_mut().filter(|_| it.on_own) {
            trial.request(it.key_hash, it.cost, it.settled, it.at);
        }
    }

    /// Counts a request that the limit refused without counting.
    pub(super) fn block(&mut self, at: Timestamp, without_key: bool) {
        self.checked += 1;
        self.refused += 1;
        self.blocked += 1;
        self.without_key += u64::from(without_key);
        self.heat.note(at, true);
    }

    /// Returns the index of a rule among the limit's own windows.
    pub(super) fn window(&self, rule: RuleId) -> Option<usize> {
        self.own.iter().position(|&own| own == rule)
    }

    /// Compares the answer of one window with the exact log. Only called if no other check refused the request,
    /// because only then was the window charged.
    pub(super) fn compare(&mut self, window: usize, key_hash: u64, it: &LimitOutcome<'_>, at: Timestamp) {
        if let Some(Some(distance)) = self.distances.get_mut(window) {
            distance.request(key_hash, it.cost(), at, it.outcome().is_admitted());
        }
    }

    fn exactness(&self) -> Option<Exactness> {
        let compared: Vec<_> = self.distances.iter().flatten().collect();
        // An exact log has no definition for costs that are settled later.
        if self.settled > 0 || compared.is_empty() || compared.len() < self.distances.len() {
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

    /// Returns the report. `mode` is the mode in the policy, also for a limit that was not replayed.
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
                .filter(|_| settings.suggest.is_requested())
                .map(|results| settings.suggest.propose(results)),
            waits: self.waits.as_ref().map(WaitCounter::waits),
        }
    }
}

/// Whether requests above the rate wait.
fn is_queue(quota: &Quota) -> bool {
    matches!(quota, Quota::Bucket(bucket) if bucket.queue().is_some())
}

/// Whether a limit has slots. It cannot be replayed, because a log does not state when a request ended.
pub(super) fn has_slots(limit: &Limit) -> bool {
    limit.every_rule().any(|rule| matches!(rule.quota, Quota::Concurrency(_)))
}

/// Whether no request of a log can match the limit: it covers descriptors, or is checked by name.
pub(super) fn is_unreachable(limit: &Limit) -> bool {
    limit.descriptor().is_some() || limit.envoy_match().is_some()
}

/// Returns the limits that are reported.
pub(super) fn reported_limits<'p>(
    policy: &'p Policy,
    settings: &'p Settings,
) -> impl Iterator<Item = &'p Limit> {
    policy.limits().iter().filter(|limit| settings.is_about(limit.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_policies_share_the_memory_budget_of_a_run() {
        let policy = |limits: usize| {
            let limits: Vec<_> =
                (0..limits).map(|it| format!("{{name: l{it}, by: ip, windows: [1/s, 9/m]}}")).collect();
            Policy::parse(&format!("limits: [{}]", limits.join(", "))).unwrap()
        };
        let alone = Room::among([policy(1)].iter(), &Settings::default());
        assert_eq!((alone.curve, alone.exactness, alone.keys), (96 << 20, 1 << 20, 1 << 17));
        let many = Room::among([policy(50), policy(50)].iter(), &Settings::default());
        assert!(
            100 * many.curve <= MAX_CURVE_BYTES.0
                && 200 * many.exactness <= MAX_LOG_UNITS.0
                && 100 * many.keys <= MAX_KEYS.0
        );
    }
}
