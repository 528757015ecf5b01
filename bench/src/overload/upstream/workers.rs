//! The workers of a service, and its queue.
//!
//! The time at which a request ends is known when it arrives: it starts when the first worker is free, in the order of
//! arrival. A timer that fires late delays a response, and not the requests behind it, so the capacity is exact.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use crate::overload::SERVICE_TIME;
use crate::zipf::Rng;

/// How the time of one request varies around the mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceTime {
    /// Every request takes the same time.
    Fixed,
    /// Between half and one and a half of the mean, each time as likely as any other.
    Uniform,
    /// Exponential: one request in a hundred takes 4.6 times the mean.
    Exponential,
}

impl ServiceTime {
    /// Returns the service time with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Fixed, Self::Uniform, Self::Exponential].into_iter().find(|it| it.name() == name)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Uniform => "uniform",
            Self::Exponential => "exponential",
        }
    }

    fn draw(self, rng: &mut Rng) -> Duration {
        SERVICE_TIME.mul_f64(match self {
            Self::Fixed => 1.0,
            Self::Uniform => 0.5 + rng.fraction(),
            Self::Exponential => rng.exponential(),
        })
    }
}

/// The workers of a service. Times are durations since an arbitrary instant.
pub(super) struct Workers {
    /// When each worker has ended all requests that were assigned to it.
    free_at: BinaryHeap<Reverse<Duration>>,
    service_time: ServiceTime,
    rng: Rng,
}

impl Workers {
    pub(super) fn new(count: usize, service_time: ServiceTime) -> Self {
        let free_at = (0..count).map(|_| Reverse(Duration::ZERO)).collect();
        Self { free_at, service_time, rng: Rng::new() }
    }

    /// Assigns a request to the worker that is free first, and returns the time at which it ends.
    pub(super) fn assign(&mut self, now: Duration) -> Duration {
        let Reverse(free_at) = self.free_at.pop().unwrap_or(Reverse(now));
        let end = free_at.max(now) + self.service_time.draw(&mut self.rng);
        self.free_at.push(Reverse(end));
        end
    }

    /// Changes the number of workers. New workers are free now; the first ones to be free leave.
    pub(super) fn set_count(&mut self, count: usize, now: Duration) {
        while self.free_at.len() > count {
            self.free_at.pop();
        }
        while self.free_at.len() < count {
            self.free_at.push(Reverse(now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_in_the_order_of_arrival() {
        let mut workers = Workers::new(2, ServiceTime::Fixed);
        let now = Duration::from_secs(1);
        let after = |millis| now + Duration::from_millis(millis);
        let ends: Vec<_> = (0..5).map(|_| workers.assign(now)).collect();
        assert_eq!(ends, [25, 25, 50, 50, 75].map(after));
        workers.set_count(1, now);
        assert_eq!(workers.assign(now), after(100), "the worker with the most work stays");
        workers.set_count(2, now);
        assert_eq!(workers.assign(now), after(25));
    }

    #[test]
    fn the_mean_service_time_is_known() {
        for time in [ServiceTime::Fixed, ServiceTime::Uniform, ServiceTime::Exponential] {
            let mut workers = Workers::new(1, time);
            let last = (0..10_000).map(|_| workers.assign(Duration::ZERO)).last().unwrap();
            let mean = last.as_secs_f64() / 10_000.0;
            assert!((mean / SERVICE_TIME.as_secs_f64() - 1.0).abs() < 0.03, "{time:?}: {mean}");
            assert_eq!(ServiceTime::named(time.name()), Some(time));
        }
    }
}
