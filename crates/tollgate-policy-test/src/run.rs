//! Runs the steps of a test, in virtual time, with the limiter that serves requests.
//!
//! Each test starts with an empty store. The first unexpected outcome ends the test, because later steps depend on
//! it.
//!
//! A request takes no time unless the test states it (`takes`). Its slots are released and its cost is settled when
//! it ends.

use std::collections::BTreeMap;

use serde::Serialize;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Receipt, Subject, Timestamp};

use crate::answer::Answer;
use crate::coverage::Coverage;
use crate::explanation;
use crate::suite::Test;
use crate::timeline::{START, Settle, Step};

/// Store capacity for each key of a test, large enough to avoid evictions.
const SLOTS_PER_KEY: usize = 8;
/// Bounds of the store capacity, in keys: creating a store for a million keys takes longer than running a test.
const STORE_KEYS: std::ops::RangeInclusive<usize> = 1_024..=65_536;

/// Fixed seed of the store's hash, so that runs are reproducible.
const SEED: u64 = 7;

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Name of the test.
    pub name: String,
    /// First line of the test.
    pub line: u32,
    /// Number of requests.
    pub requests: u64,
    /// The step with an unexpected outcome; `None` if the test passed.
    pub surprise: Option<UnexpectedStep>,
}

/// A step with an unexpected outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnexpectedStep {
    /// First line of the step.
    pub line: u32,
    /// The request.
    pub request: String,
    /// Index of the request within the step, starting at 1.
    pub number: u64,
    /// Number of requests of the step.
    pub of: u64,
    /// Time since the start of the test, as text.
    pub after: String,
    /// Expected and actual values, at least one pair.
    pub mismatches: Vec<Mismatch>,
    /// The result of each limit.
    pub why: Vec<String>,
}

/// A difference between expected and actual outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// Line of the expectation.
    pub line: u32,
    /// Expected value.
    pub expected: String,
    /// Actual value.
    pub came: String,
}

impl Verdict {
    /// Whether all outcomes were as expected.
    pub const fn has_passed(&self) -> bool {
        self.surprise.is_none()
    }
}

impl Test {
    /// Runs the test against a policy, and records its coverage.
    pub fn run(&self, policy: &Policy, coverage: &mut Coverage) -> Verdict {
        let mut run = Run::new(policy, &self.steps);
        let surprise = self.steps.iter().find_map(|step| run.step(step, coverage));
        Verdict { name: self.name().to_owned(), line: self.line(), requests: run.requests, surprise }
    }
}

/// A running test.
struct Run {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    /// Requests that have not ended, by the time of their end, then by the order of their start.
    under_way: BTreeMap<(Timestamp, u64), (Receipt, Option<Settle>)>,
    requests: u64,
}

impl Run {
    fn new(policy: &Policy, steps: &[Step]) -> Self {
        let clock = ManualClock::at(steps.first().map_or(START, |step| step.start));
        // All requests of a step have the same keys.
        let keys = steps.len().saturating_mul(policy.limits().len()).saturating_mul(SLOTS_PER_KEY);
        let most = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
        let keys = keys.clamp(*STORE_KEYS.start(), *STORE_KEYS.end()).min(most);
        let store = MemoryStore::with_seed(keys, clock.clone(), SEED);
        let limiter = Limiter::with_store(policy.clone(), store);
        Self { limiter, clock, under_way: BTreeMap::new(), requests: 0 }
    }

    /// Runs all requests of a step. Returns the unexpected outcome, if any.
    fn step(&mut self, step: &Step, coverage: &mut Coverage) -> Option<UnexpectedStep> {
        let mut allowed = 0;
        for index in 0..step.times {
            let now = step.time_of(index);
            self.end_until(now);
            self.clock.set(now);
            self.requests += 1;
            let view = step.request.view(self.limiter.policy());
            let subject = view.subject();
            let is_last = index + 1 == step.times;
            let (ending, surprise) = {
                let decision = self.limiter.check(&subject);
                let answer = Answer { limiter: &self.limiter, decision: &decision, request: &step.request };
                allowed += u64::from(decision.is_allowed());
                coverage.note(subject, &decision);
                let mismatches = mismatches(step, &answer, is_last.then_some(allowed));
                let surprise = (!mismatches.is_empty()).then(|| UnexpectedStep {
                    line: step.line,
                    request: described(step, subject),
                    number: index + 1,
                    of: step.times,
                    after: now.since(step.start).to_string(),
                    mismatches,
                    why: explanation::lines(&answer),
                });
                let has_end = decision.owner().is_some() || step.settle.is_some();
                (decision.receipt().filter(|_| has_end), surprise)
            };
            if surprise.is_some() {
                return surprise;
            }
            if let Some(receipt) = ending {
                self.under_way.insert((now + step.takes, self.requests), (receipt, step.settle.clone()));
                self.end_until(now);
            }
        }
        None
    }

    /// Ends the requests that end by `now`, each at its time.
    fn end_until(&mut self, now: Timestamp) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), (receipt, settle)) = entry.remove_entry();
            self.clock.set(at);
            // The store is in memory, so neither waits.
            let _always = match settle {
                None => true,
                Some(Settle::All(cost)) => self.limiter.try_settle_receipt(&receipt, cost),
                Some(Settle::Limits(costs)) => {
                    let costs: Vec<_> =
                        costs.iter().map(|(name, cost)| (name.value.as_str(), *cost)).collect();
                    self.limiter.try_settle_limits(&receipt, &costs)
                }
            };
            let _always = self.limiter.try_release_receipt(&receipt);
        }
    }
}

/// Returns all mismatches of one request; for the last one, `last` is the number of allowed requests.
fn mismatches<S>(step: &Step, answer: &Answer<'_, '_, S>, last: Option<u64>) -> Vec<Mismatch> {
    let Some(expectation) = &step.expectation else { return Vec::new() };
    let mut wrong: Vec<_> = expectation.of_each(answer).into_iter().collect();
    if let Some(allowed) = last {
        wrong.extend(expectation.of_all(allowed, step.times));
        wrong.extend(expectation.of_last(answer));
    }
    wrong
}

/// Describes a request: `POST /login from 203.0.113.9`.
fn described(step: &Step, subject: Subject<'_>) -> String {
    let from = subject.client().map_or_else(String::new, |it| format!(" from {it}"));
    format!("{}{from}", step.request)
}
