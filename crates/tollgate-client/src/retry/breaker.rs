//! A circuit breaker for a server that fails.
//!
//! While most calls fail, the breaker is open: calls fail at once, except one probe in each interval. The first
//! success closes it. Refusals do not count: they are answers of a server that works.

use tollgate::{Span, Timestamp};

/// The settings of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Consecutive failures that open the breaker; 0 turns it off.
    pub failures: u32,
    /// The interval between two probes while the breaker is open.
    pub probe_interval: Span,
}

impl Default for BreakerSettings {
    /// 20 failures, and a probe each second.
    fn default() -> Self {
        Self { failures: 20, probe_interval: Span::from_secs(1) }
    }
}

/// The breaker of one server.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u32,
    /// The time of the next probe, if the breaker is open.
    next_probe: Option<Timestamp>,
}

impl Breaker {
    /// Returns whether a call may be sent now, or else when the next probe is due. A permitted call of an open
    /// breaker is its probe.
    pub fn permit(&mut self, settings: &BreakerSettings, now: Timestamp) -> Result<(), Timestamp> {
        match self.next_probe {
            Some(next) if now < next => Err(next),
            Some(_) => {
                self.next_probe = Some(now + settings.probe_interval);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Counts a call that the server answered or refused.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Counts a failed call. `random`, from 0 to 1, spreads the probes of clients that failed together.
    pub fn failed(&mut self, settings: &BreakerSettings, random: f64, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if settings.failures > 0 && self.failures >= settings.failures && self.next_probe.is_none() {
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let jitter = (settings.probe_interval.as_micros() as f64 * random.clamp(0.0, 1.0)) as u64;
            self.next_probe = Some(now + Span::from_micros(jitter));
        }
    }

    /// Whether the breaker is open.
    pub fn is_open(&self) -> bool {
        self.next_probe.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_breaker_permits_one_probe_per_interval_and_closes_at_the_first_success() {
        let settings = BreakerSettings { failures: 3, probe_interval: Span::from_secs(1) };
        let (mut breaker, start) = (Breaker::default(), Timestamp::from_secs(100));
        for _ in 0..3 {
            assert_eq!(breaker.permit(&settings, start), Ok(()));
            breaker.failed(&settings, 0.5, start);
        }
        assert!(breaker.is_open());
        let probe = start + Span::from_millis(500);
        assert_eq!(breaker.permit(&settings, start), Err(probe));
        assert_eq!(breaker.permit(&settings, probe), Ok(()));
        assert_eq!(breaker.permit(&settings, probe), Err(probe + Span::from_secs(1)));
        breaker.succeeded();
        assert_eq!(breaker.permit(&settings, probe), Ok(()));
    }

    #[test]
    fn a_breaker_that_is_off_never_opens() {
        let settings = BreakerSettings { failures: 0, ..BreakerSettings::default() };
        let mut breaker = Breaker::default();
        (0..100).for_each(|_| breaker.failed(&settings, 1.0, Timestamp::EPOCH));
        assert!(!breaker.is_open());
    }
}
