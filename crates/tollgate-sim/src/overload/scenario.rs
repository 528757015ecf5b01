//! The input of a run.

use tollgate::{PolicyError, Span};

use super::protection::Protection;
use super::shape::Shape;

/// The most workers of the service.
pub const MAX_WORKERS: u32 = 10_000;
/// The highest load.
pub const MAX_LOAD: f64 = 100.0;
/// The longest service time. A call that takes longer than its timeout never succeeds.
pub const MAX_SERVICE_TIME: Span = Span::from_millis(500);
/// The longest run.
pub const MAX_DURATION: Span = Span::from_secs(3_600);
/// The shortest run: phases of a few seconds.
const MIN_DURATION: Span = Span::from_secs(10);

/// A service, its overload, and the compared protections.
///
/// ```
/// # use tollgate_sim::overload::{OverloadRun, Protection, Scenario, Shape};
/// let scenario = Scenario { protections: vec![Protection::None, Protection::Adaptive], ..Scenario::new(Shape::Step) };
/// let scenario = Scenario { workers: 8, duration: tollgate::Span::from_secs(24), ..scenario };
/// let report = OverloadRun::new(scenario)?.run();
/// let [none, adaptive] = report.protections.as_slice() else { panic!("two protections") };
/// assert!(none.goodput < 0.3 && adaptive.goodput > 0.9);
///
/// let idle = Scenario { workers: 0, ..Scenario::new(Shape::Step) };
/// assert!(OverloadRun::new(idle).is_err());
/// # Ok::<(), tollgate_sim::overload::ScenarioError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The way in which the service is overloaded.
    pub shape: Shape,
    /// The compared protections.
    pub protections: Vec<Protection>,
    /// The calls that the service works on at once.
    pub workers: u32,
    /// The mean time that a worker needs for a call.
    pub service_time: Span,
    /// The offered work in the overload, as a multiple of the work that the service can do.
    pub load: f64,
    /// The length of the run.
    pub duration: Span,
    /// Seed of the random numbers.
    pub seed: u64,
    /// The most attempts of all calls under one protection. Later calls are dropped, and the report says so.
    pub max_attempts: u64,
}

/// Reason why a scenario cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Number of workers out of range.
    #[error("a service has 1 to {max} workers", max = MAX_WORKERS)]
    Workers,
    /// Service time out of range.
    #[error("a service time is 1ms to {max}; callers give up after one second", max = MAX_SERVICE_TIME)]
    ServiceTime,
    /// Load out of range or not a number.
    #[error("a load is a multiple of the capacity, from 1 to {max}", max = MAX_LOAD)]
    Load,
    /// Duration out of range.
    #[error("the duration must be {min} to {max}", min = MIN_DURATION, max = MAX_DURATION)]
    Duration,
    /// There are no protections.
    #[error("there is no protection to look at; name at least one, such as `none`")]
    NoProtection,
    /// There are too many calls.
    #[error(
        "that is about {expected} calls for each protection, and {max} are worked through; take fewer workers, a longer \
         service time, a lower load or less time"
    )]
    TooMany {
        /// Estimated calls under each protection.
        expected: u64,
        /// The most attempts.
        max: u64,
    },
    /// The policy of a protection is invalid, which is a defect of this crate.
    #[error("the policy of a protection is invalid")]
    Policy(#[from] PolicyError),
}

impl Scenario {
    /// Creates a scenario with defaults: 32 workers of 25 ms, four times their capacity, a minute, all protections.
    pub fn new(shape: Shape) -> Self {
        Self {
            shape,
            protections: Protection::ALL.to_vec(),
            workers: 32,
            service_time: Span::from_millis(25),
            load: 4.0,
            duration: Span::from_secs(60),
            seed: 1,
            max_attempts: 20_000_000,
        }
    }

    /// Returns the calls per second that the healthy service can answer.
    #[allow(clippy::cast_precision_loss, reason = "at most half a second")]
    pub fn capacity(&self) -> f64 {
        f64::from(self.workers) * 1e6 / self.service_time.as_micros() as f64
    }

    /// Checks that the scenario is valid.
    pub fn check(&self) -> Result<(), ScenarioError> {
        if !(1..=MAX_WORKERS).contains(&self.workers) {
            return Err(ScenarioError::Workers);
        }
        if !(Span::from_millis(1)..=MAX_SERVICE_TIME).contains(&self.service_time) {
            return Err(ScenarioError::ServiceTime);
        }
        if !(1.0..=MAX_LOAD).contains(&self.load) {
            return Err(ScenarioError::Load);
        }
        if !(MIN_DURATION..=MAX_DURATION).contains(&self.duration) {
            return Err(ScenarioError::Duration);
        }
        if self.protections.is_empty() {
            return Err(ScenarioError::NoProtection);
        }
        let expected = self.expected_calls();
        if expected > self.max_attempts {
            return Err(ScenarioError::TooMany { expected, max: self.max_attempts });
        }
        Ok(())
    }

    /// Estimates the number of calls, without retries.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, which saturates"
    )]
    fn expected_calls(&self) -> u64 {
        let mut from = 0;
        let phases = self.shape.phases(self.duration, self.capacity(), self.load);
        let calls = phases.iter().map(|phase| {
            let seconds = (phase.until - std::mem::replace(&mut from, phase.until)) as f64 / 1e6;
            phase.calls * seconds
        });
        calls.sum::<f64>() as u64
    }
}
