//! Takes the steps of a test, in virtual time, with the limiter that serves.
//!
//! Each test begins with a fresh store. The first step that is not as expected ends it: what comes after
//! depends on it, and would only repeat the complaint.
//!
//! A request of a test takes no time unless it says so (`takes`): its slots are given back, and its cost is
//! settled, when it ends.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use serde::Serialize;
use tollgate::{Limiter, ManualClock, MemoryStore, Policy, Receipt, Request, Timestamp};

use crate::answer::Answer;
use crate::coverage::Coverage;
use crate::explanation;
use crate::suite::Test;
use crate::timeline::{START, Settle, Step};

/// Room in the store of a test for each key that it may have: so much that none gives way to another.
const SLOTS_PER_KEY: usize = 8;
/// A store has at least so much, and at most: one for a million keys takes longer to make than a test takes to run.
const STORE_KEYS: std::ops::RangeInclusive<usize> = 1_024..=65_536;

/// So that keys are placed the same way each time.
const SEED: u64 = 7;

/// What came of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The name of the test.
    pub name: String,
    /// The line it begins in.
    pub line: u32,
    /// How many requests were made.
    pub requests: u64,
    /// The step that was not as expected; `None`: passed.
    pub surprise: Option<UnexpectedStep>,
}

/// A step that was not as expected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnexpectedStep {
    /// The line the step begins in.
    pub line: u32,
    /// What was asked.
    pub request: String,
    /// Which of them, from one.
    pub number: u64,
    /// How many there are in the step.
    pub of: u64,
    /// When, since the start of the test, in words.
    pub after: String,
    /// What was expected and what came, one or more.
    pub mismatches: Vec<Mismatch>,
    /// What each limit said.
    pub why: Vec<String>,
}

/// Something that was expected and did not come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mismatch {
    /// The line of the expectation.
    pub line: u32,
    /// What was expected.
    pub expected: String,
    /// What came.
    pub came: String,
}

impl Verdict {
    /// Whether everything was as expected.
    pub const fn has_passed(&self) -> bool {
        self.surprise.is_none()
    }
}

impl Test {
    /// Runs it against a policy, and notes what it covers.
    pub fn run(&self, policy: &Policy, coverage: &mut Coverage) -> Verdict {
        let mut run = Run::new(policy, &self.steps);
        let surprise = self.steps.iter().find_map(|step| run.step(step, coverage));
        Verdict { name: self.name().to_owned(), line: self.line(), requests: run.requests, surprise }
    }
}

/// A test that is under way.
struct Run {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    /// Requests that have not ended, by when they will, in the order in which they came.
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

    /// All requests of a step; what was not as expected, if something was not.
    fn step(&mut self, step: &Step, coverage: &mut Coverage) -> Option<UnexpectedStep> {
        let mut allowed = 0;
        for index in 0..step.times {
            let now = step.time_of(index);
            self.end_until(now);
            self.clock.set(now);
            self.requests += 1;
            let view = step.asked.view(self.limiter.policy());
            let is_last = index + 1 == step.times;
            let (ending, surprise) = {
                let decision = self.limiter.check(&view);
                let answer = Answer { limiter: &self.limiter, decision: &decision, asked: &step.asked };
                allowed += u64::from(decision.is_allowed());
                coverage.note(&view, &decision);
                let mismatches = mismatches(step, &answer, is_last.then_some(allowed));
                let surprise = (!mismatches.is_empty()).then(|| UnexpectedStep {
                    line: step.line,
                    request: described(step, &view),
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

    /// Ends the requests that end by then, each in its time.
    fn end_until(&mut self, now: Timestamp) {
        while let Some(entry) = self.under_way.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), (receipt, settle)) = entry.remove_entry();
            self.clock.set(at);
            match settle {
                None => {}
                Some(Settle::All(cost)) => drop(at_once(self.limiter.settle_receipt(&receipt, cost))),
                Some(Settle::Limits(costs)) => {
                    let costs: Vec<_> =
                        costs.iter().map(|(name, cost)| (name.value.as_str(), *cost)).collect();
                    at_once(self.limiter.settle_limits(&receipt, &costs));
                }
            }
            at_once(self.limiter.release_receipt(&receipt));
        }
    }
}

/// Everything about one answer that was not as expected. Of the last, with how many were allowed.
fn mismatches<S>(step: &Step, answer: &Answer<'_, '_, S>, last: Option<u64>) -> Vec<Mismatch> {
    let Some(expectation) = &step.expectation else { return Vec::new() };
    let mut wrong: Vec<_> = expectation.of_each(answer).into_iter().collect();
    if let Some(allowed) = last {
        wrong.extend(expectation.of_all(allowed, step.times));
        wrong.extend(expectation.of_last(answer));
    }
    wrong
}

/// `POST /login from 203.0.113.9`.
fn described(step: &Step, view: &impl Request) -> String {
    let from = view.client().map_or_else(String::new, |it| format!(" from {it}"));
    format!("{}{from}", step.asked)
}

/// The store is in this process: it has answered by the time it is asked.
fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
