//! The shapes of overload, as phases.

use serde::Serialize;
use tollgate::Span;

/// The load outside of the overload, as a multiple of the capacity.
pub(super) const CALM_LOAD: f64 = 0.7;

/// The number of routes of the service in `slow-dependency`. The calls are distributed evenly.
pub(super) const ROUTES: u8 = 4;

/// The way in which a service is overloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// The load rises at once and falls at once.
    Step,
    /// The load rises and falls three times.
    Square,
    /// A short overload, and callers that retry without a bound on their retries.
    RetryStorm,
    /// The same with a retry budget.
    RetryStormBudget,
    /// The load is constant, and every call takes longer.
    SlowUpstream,
    /// The load is constant, and calls of one route take longer.
    SlowDependency,
}

/// A part of a scenario with constant load and constant speed of the service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    /// The end, in microseconds since the start.
    pub(super) until: u64,
    /// Calls per second.
    pub(super) calls: f64,
    /// The factor of all service times.
    pub(super) slowdown: f64,
    /// The further factor for the calls of the slow route.
    pub(super) route_slowdown: f64,
    pub(super) is_overload: bool,
    /// The calls per second that an ideal protection would have answered.
    pub(super) possible: f64,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Self; 6] = [
        Self::Step,
        Self::Square,
        Self::RetryStorm,
        Self::RetryStormBudget,
        Self::SlowUpstream,
        Self::SlowDependency,
    ];

    /// Returns the name on the command line and in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Square => "square",
            Self::RetryStorm => "retry-storm",
            Self::RetryStormBudget => "retry-storm-budget",
            Self::SlowUpstream => "slow-upstream",
            Self::SlowDependency => "slow-dependency",
        }
    }

    /// Returns the shape of this name.
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shape| shape.word() == word)
    }

    /// Returns a description for users.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Step => "the load rises at once, stays for half of the time, and falls at once",
            Self::Square => "the load rises and falls three times",
            Self::RetryStorm => "a short overload; callers try up to four times, without a retry budget",
            Self::RetryStormBudget => {
                "a short overload; callers try up to four times, with a budget of one retry for ten calls"
            }
            Self::SlowUpstream => "constant load; every call takes longer for half of the time",
            Self::SlowDependency => {
                "constant load; calls of one route of four take longer for half of the time"
            }
        }
    }

    /// Returns the most attempts of a call, and the retries that each call adds to the budget, if there is one.
    pub(super) const fn retries(self) -> (u32, Option<f64>) {
        match self {
            Self::RetryStorm => (4, None),
            Self::RetryStormBudget => (4, Some(0.1)),
            _ => (1, None),
        }
    }

    /// Returns the number of routes, which have separate limits.
    pub(super) const fn routes(self) -> u8 {
        if matches!(self, Self::SlowDependency) { ROUTES } else { 1 }
    }

    /// Returns the parts of the time with overload, in parts of a 24th.
    const fn overloads(self) -> &'static [(u64, u64)] {
        match self {
            Self::Step | Self::SlowUpstream | Self::SlowDependency => &[(6, 18)],
            Self::Square => &[(3, 6), (9, 12), (15, 18)],
            Self::RetryStorm | Self::RetryStormBudget => &[(4, 8)],
        }
    }

    /// Returns the phases of a run. `load` is a multiple of the capacity, which is in calls per second.
    pub(super) fn phases(self, duration: Span, capacity: f64, load: f64) -> Vec<Phase> {
        let at = |part: u64| duration.as_micros() / 24 * part;
        let calm = |until| Phase {
            until,
            calls: CALM_LOAD * capacity,
            slowdown: 1.0,
            route_slowdown: 1.0,
            is_overload: false,
            possible: CALM_LOAD * capacity,
        };
        let mut phases = Vec::new();
        for &(from, until) in self.overloads() {
            phases.push(calm(at(from)));
            phases.push(Phase { is_overload: true, ..self.overload(calm(at(until)), capacity, load) });
        }
        phases.push(calm(duration.as_micros()));
        phases
    }

    /// Returns a phase in which the service is offered `load` times the work that it can do.
    fn overload(self, calm: Phase, capacity: f64, load: f64) -> Phase {
        match self {
            Self::Step | Self::Square | Self::RetryStorm | Self::RetryStormBudget => {
                Phase { calls: load * capacity, possible: capacity, ..calm }
            }
            Self::SlowUpstream => {
                let slowdown = load / CALM_LOAD;
                Phase { slowdown, possible: capacity / slowdown, ..calm }
            }
            Self::SlowDependency => {
                let slow = CALM_LOAD / f64::from(ROUTES);
                let others = CALM_LOAD - slow;
                let route_slowdown = (load - others) / slow;
                // The others first, and the slow route with the workers that are left.
                let possible = others * capacity + (1.0 - others) * capacity / route_slowdown;
                Phase { route_slowdown, possible, ..calm }
            }
        }
    }
}
