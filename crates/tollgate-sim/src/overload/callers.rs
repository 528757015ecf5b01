//! The callers of the service: their calls, and their retries.

use fastrand::Rng;

use super::protection::CLASSES;
use super::scenario::Scenario;
use super::shape::Phase;

/// The wait before the first retry, in microseconds. Each further wait is twice as long, and all vary by half.
const BACKOFF_MICROS: f64 = 100_000.0;

/// The share of a service time that is the same for all calls. The other part has an exponential distribution.
const FIXED_WORK: f64 = 0.5;

/// A call, which may take several attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallInfo {
    /// The time of the first attempt, in microseconds since the start.
    pub(super) at: u64,
    /// The index of its class.
    pub(super) class: u8,
    /// The number of its route. Route 0 becomes slow in `slow-dependency`.
    pub(super) route: u8,
    /// The work, as a multiple of the mean service time.
    pub(super) work: f64,
    /// The attempts so far.
    pub(super) attempts: u32,
}

/// The callers. The same seed gives the same calls, regardless of the answers.
pub(super) struct Callers {
    phases: Vec<Phase>,
    /// The index of the present phase, and the time of the last call in microseconds.
    phase: usize,
    now: f64,
    routes: u8,
    calls: Rng,
    backoffs: Rng,
    max_attempts: u32,
    budget: Option<RetryBudget>,
}

/// Retries that the callers together may make.
struct RetryBudget {
    per_call: f64,
    max: f64,
    left: f64,
}

impl Callers {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let (max_attempts, per_call) = scenario.shape.retries();
        let capacity = scenario.capacity();
        Self {
            phases: scenario.shape.phases(scenario.duration, capacity, scenario.load),
            phase: 0,
            now: 0.0,
            routes: scenario.shape.routes(),
            calls: Rng::with_seed(scenario.seed),
            backoffs: Rng::with_seed(scenario.seed ^ 0x9e37_79b9_7f4a_7c15),
            max_attempts,
            // At most the retries of one second are saved.
            budget: per_call.map(|per_call| RetryBudget { per_call, max: per_call * capacity, left: 0.0 }),
        }
    }

    /// Returns the next call; `None` after the end.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive and shorter than an hour"
    )]
    pub(super) fn next_call(&mut self) -> Option<CallInfo> {
        loop {
            let phase = self.phases.get(self.phase)?;
            let at = self.now + exponential(&mut self.calls) * 1e6 / phase.calls;
            if at < phase.until as f64 {
                self.now = at;
                break;
            }
            // Calls are independent of each other, so the rest of the gap can be drawn anew.
            self.now = phase.until as f64;
            self.phase += 1;
        }
        let drawn = self.calls.u8(0..100);
        let mut share = 0;
        let class = CLASSES.iter().position(|(_, percent, _)| {
            share += percent;
            drawn < share
        });
        Some(CallInfo {
            at: self.now as u64,
            class: class.unwrap_or(0) as u8,
            route: self.calls.u8(0..self.routes),
            work: FIXED_WORK + (1.0 - FIXED_WORK) * exponential(&mut self.calls),
            attempts: 0,
        })
    }

    /// Records a new call, which adds to the retry budget.
    pub(super) fn record_call(&mut self) {
        if let Some(budget) = &mut self.budget {
            budget.left = (budget.left + budget.per_call).min(budget.max);
        }
    }

    /// Returns the wait before the next attempt of a call, in microseconds; `None` if the caller gives up.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most some seconds")]
    pub(super) fn retry_after(&mut self, call: &CallInfo) -> Option<u64> {
        if call.attempts >= self.max_attempts {
            return None;
        }
        if let Some(budget) = &mut self.budget {
            if budget.left < 1.0 {
                return None;
            }
            budget.left -= 1.0;
        }
        let doubled = f64::from(1_u32 << (call.attempts.saturating_sub(1)).min(10));
        Some((BACKOFF_MICROS * doubled * (0.5 + self.backoffs.f64())) as u64)
    }
}

/// Returns a number with an exponential distribution and a mean of one.
fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}
