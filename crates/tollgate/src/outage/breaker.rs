//! Circuit breaker: decides whether the store is called.
//!
//! ```text
//!            K failures in a row                    the wait is over
//!  closed ───────────────────────► open ◄──────────────────────────► half-open
//!    ▲                              ▲  the probe failed: wait twice     │
//!    └──────────────────────────────┴───── the probe was answered ──────┘
//! ```
//!
//! A store that does not answer takes a whole deadline, and a request that waits for it holds
//! memory and a connection meanwhile. So after several consecutive failures requests no longer
//! wait, except for one probe at a time.
//!
//! Backoff is jittered (half of each wait is random), so that nodes that lost the store together do
//! not return together. It has an upper bound, so that recovery is detected soon. There is no
//! timer: requests probe.
//!
//! A store shares calls among requests, so one failed call fails many requests together: they count
//! as one failure. Requests that were already in progress when a failure was counted add nothing,
//! and an answer counts only in the epoch of its request: a failure, an opening and a closing each
//! begin a new epoch. If a part of a store fails (one node of a cluster) and the others answer,
//! consecutive failures happen by chance: so the breaker stays closed while the store has recently
//! answered any request.
//!
//! Clocks, randomness and locks are arguments or owned by the caller.

use tollgate_core::{Span, Timestamp};

/// The circuit breaker as a state machine, driven by its caller.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// The number of consecutive failures that opens it.
    max_failures: u32,
    first: Span,
    longest: Span,
    phase: Phase,
    epoch: u32,
    /// The time of the last answer while failures were counted.
    answered: Option<Timestamp>,
}

/// The breaker stays closed while the last answer is no older than this: a part of the store may
/// have failed.
const RECENT_ANSWER_AGE: Span = Span::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// All requests use the store. Counts the failures since the last answer.
    Closed { failures: u32 },
    /// No request uses the store before `probe_at`. `wait` is the backoff before jitter.
    Open { wait: Span, probe_at: Timestamp },
    /// One probe is in progress; other requests do not use the store.
    HalfOpen { wait: Span },
}

/// Permission to call the store, to be returned with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    epoch: u32,
    is_probe: bool,
}

impl Ticket {
    pub(crate) const fn is_probe(self) -> bool {
        self.is_probe
    }
}

impl Breaker {
    pub(crate) const fn new(max_failures: u32, first: Span, longest: Span) -> Self {
        Self { max_failures, first, longest, phase: Phase::Closed { failures: 0 }, epoch: 0, answered: None }
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the ticket of a request in a closed epoch.
    pub(crate) const fn ordinary(epoch: u32) -> Ticket {
        Ticket { epoch, is_probe: false }
    }

    /// Returns a ticket if the store may be called.
    pub(crate) fn ask(&mut self, now: Timestamp) -> Option<Ticket> {
        match self.phase {
            Phase::Closed { .. } => Some(Self::ordinary(self.epoch)),
            Phase::Open { wait, probe_at } if probe_at <= now => {
                self.phase = Phase::HalfOpen { wait };
                Some(Ticket { epoch: self.epoch, is_probe: true })
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => None,
        }
    }

    /// Records an answer. Returns whether it closed the breaker.
    pub(crate) fn succeeded(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        self.answered = Some(now);
        if ticket.epoch != self.epoch {
            return false;
        }
        match self.phase {
            Phase::Closed { .. } => {
                self.phase = Phase::Closed { failures: 0 };
                false
            }
            Phase::HalfOpen { .. } if ticket.is_probe => {
                self.phase = Phase::Closed { failures: 0 };
                self.epoch = self.epoch.wrapping_add(1);
                true
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => false,
        }
    }

    /// Records a failure. Returns whether it opened the breaker.
    pub(crate) fn failed(&mut self, ticket: Ticket, now: Timestamp, rng: u32) -> bool {
        if ticket.epoch != self.epoch {
            return false;
        }
        match self.phase {
            Phase::Closed { failures } => {
                let failures = failures.saturating_add(1);
                self.epoch = self.epoch.wrapping_add(1);
                let is_recent = self.answered.is_some_and(|at| now.since(at) < RECENT_ANSWER_AGE);
                // `u32::MAX` means never: the counter saturates there.
                if failures < self.max_failures || self.max_failures == u32::MAX || is_recent {
                    self.phase = Phase::Closed { failures };
                    return false;
                }
                self.open(self.first, now, rng);
                true
            }
            Phase::HalfOpen { wait } if ticket.is_probe => {
                self.open((wait + wait).min(self.longest), now, rng);
                false
            }
            Phase::Open { .. } | Phase::HalfOpen { .. } => false,
        }
    }

    /// Records that the caller left without waiting for the answer. After an abandoned probe, the
    /// next request may probe.
    pub(crate) fn abandoned(&mut self, ticket: Ticket, now: Timestamp) {
        if let Phase::HalfOpen { wait } = self.phase
            && ticket.is_probe
            && ticket.epoch == self.epoch
        {
            self.phase = Phase::Open { wait, probe_at: now };
        }
    }

    fn open(&mut self, wait: Span, now: Timestamp, rng: u32) {
        let half = wait.as_micros() / 2;
        let random = u128::from(half) * u128::from(rng) / u128::from(u32::MAX);
        let jittered = (wait.as_micros() - half) + u64::try_from(random).unwrap_or(half);
        self.phase = Phase::Open { wait, probe_at: now + Span::from_micros(jittered) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_BACKOFF: Span = Span::from_millis(100);
    const MAX_BACKOFF: Span = Span::from_secs(1);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_secs(1_000) + Span::from_millis(millis)
    }

    /// A breaker opened at time zero by three failures, with the longest jitter.
    fn opened() -> Breaker {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for failure in 0..3 {
            let ticket = breaker.ask(at(0)).unwrap();
            assert_eq!(breaker.failed(ticket, at(0), u32::MAX), failure == 2);
        }
        breaker
    }

    #[test]
    fn only_consecutive_failures_open_the_breaker() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for _ in 0..10 {
            for _ in 0..2 {
                let ticket = breaker.ask(at(0)).unwrap();
                assert!(!breaker.failed(ticket, at(0), 0));
            }
            let ticket = breaker.ask(at(0)).unwrap();
            assert!(!breaker.succeeded(ticket, at(0)));
        }
        assert_eq!(breaker.phase(), Phase::Closed { failures: 0 });
    }

    #[test]
    fn requests_that_fail_together_are_one_failure() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for call in 0..3 {
            let crowd: Vec<_> = (0..100).map(|_| breaker.ask(at(0)).unwrap()).collect();
            let opened = crowd.into_iter().filter(|&ticket| breaker.failed(ticket, at(0), 0)).count();
            assert_eq!(opened, usize::from(call == 2));
        }
    }

    #[test]
    fn a_recent_answer_keeps_the_breaker_closed() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        let well = breaker.ask(at(0)).unwrap();
        assert!(!breaker.succeeded(well, at(0)));
        for _ in 0..50 {
            let ticket = breaker.ask(at(99)).unwrap();
            assert!(!breaker.failed(ticket, at(99), 0), "a partial failure, consecutive by chance");
        }
        let ticket = breaker.ask(at(100)).unwrap();
        assert!(breaker.failed(ticket, at(100), 0), "the last answer is too old");
    }

    #[test]
    fn a_partial_failure_keeps_the_breaker_closed() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for _ in 0..10 {
            let (dead, well) = (breaker.ask(at(0)).unwrap(), breaker.ask(at(0)).unwrap());
            assert!(!breaker.failed(dead, at(50), 0));
            assert!(!breaker.succeeded(well, at(0)), "the request is from an earlier epoch");
            let next = breaker.ask(at(51)).unwrap();
            breaker.succeeded(next, at(0));
            assert_eq!(breaker.phase(), Phase::Closed { failures: 0 });
        }
    }

    #[test]
    fn after_the_backoff_exactly_one_request_probes() {
        let mut breaker = opened();
        assert_eq!(breaker.ask(at(99)), None);
        let probe = breaker.ask(at(100)).unwrap();
        assert_eq!((breaker.ask(at(100)), breaker.ask(at(100_000))), (None, None));
        assert!(breaker.succeeded(probe, at(0)));
        assert!(breaker.ask(at(100)).is_some() && breaker.ask(at(100)).is_some());
    }

    #[test]
    fn backoff_doubles_up_to_its_maximum_with_jitter_of_up_to_half() {
        for (rng, waits) in
            [(u32::MAX, [100, 200, 400, 800, 1_000, 1_000]), (0, [50, 100, 200, 400, 500, 500])]
        {
            let mut breaker = Breaker::new(1, MIN_BACKOFF, MAX_BACKOFF);
            let ticket = breaker.ask(at(0)).unwrap();
            assert!(breaker.failed(ticket, at(0), rng));
            let mut now = 0;
            for wait in waits {
                assert_eq!(breaker.ask(at(now + wait - 1)), None);
                now += wait;
                let probe = breaker.ask(at(now)).unwrap();
                assert!(!breaker.failed(probe, at(now), rng));
            }
        }
    }

    #[test]
    fn an_abandoned_probe_lets_the_next_request_probe() {
        let mut breaker = opened();
        let probe = breaker.ask(at(100)).unwrap();
        breaker.abandoned(probe, at(120));
        let next = breaker.ask(at(120)).unwrap();
        breaker.abandoned(Breaker::ordinary(next.epoch), at(120));
        assert_eq!(breaker.ask(at(120)), None, "only a probe can abandon a probe");
        assert!(breaker.succeeded(next, at(0)));
    }

    #[test]
    fn an_answer_from_an_earlier_epoch_changes_nothing() {
        let mut breaker = Breaker::new(1, MIN_BACKOFF, MAX_BACKOFF);
        let (early, ticket) = (breaker.ask(at(0)).unwrap(), breaker.ask(at(0)).unwrap());
        assert!(breaker.failed(ticket, at(0), 0));
        assert!(!breaker.succeeded(early, at(0)));
        assert!(!breaker.failed(early, at(0), 0));
        assert_eq!(breaker.ask(at(10)), None);
        let probe = breaker.ask(at(50)).unwrap();
        assert!(breaker.succeeded(probe, at(0)));
        assert!(!breaker.failed(early, at(60), 0), "of the epoch before last");
        assert!(!breaker.failed(probe, at(60), 0));
        assert_eq!(breaker.phase(), Phase::Closed { failures: 0 });
    }

    #[test]
    fn the_breaker_can_be_disabled() {
        let mut breaker = Breaker::new(u32::MAX, MIN_BACKOFF, MAX_BACKOFF);
        breaker.phase = Phase::Closed { failures: u32::MAX - 1 };
        for _ in 0..3 {
            let ticket = breaker.ask(at(0)).unwrap();
            assert!(!breaker.failed(ticket, at(0), 0));
        }
    }
}
