//! When the store is asked and when it is left alone.
//!
//! ```text
//!            K failures in a row                    the wait is over
//!  closed ───────────────────────► open ◄──────────────────────────► half-open
//!    ▲                              ▲  the probe failed: wait twice     │
//!    └──────────────────────────────┴───── the probe was answered ──────┘
//! ```
//!
//! A store that gives no answer takes a whole deadline to say nothing, and a
//! request that waits for it holds memory and a connection meanwhile. So after
//! some failures in a row nobody waits any more, but for one request at a time
//! that finds out whether the store is back.
//!
//! Waits are jittered (half of each is random), so that nodes which lost the store
//! together do not come back together, and end at a longest one, so that it is
//! found again soon. Nothing happens by itself: it is requests that probe.
//!
//! A store shares calls, so one that fails fails many requests at once: that is one
//! failure. Whatever was under way when a failure was counted says nothing new, and an
//! answer counts only in the epoch it was asked in: a failure, an opening and a closing
//! each begin one. Where a part of a store fails (one node of a cluster) and the others
//! answer, failures come in a row by chance: so a store that has just answered somebody is
//! asked on.
//!
//! Not here: clocks, randomness, locks. They are arguments, or the caller's.

use tollgate_core::{Span, Timestamp};

/// Whether the store is asked: a state machine, driven from outside.
#[derive(Debug)]
pub(crate) struct Breaker {
    /// So many failures in a row open it.
    most: u32,
    first: Span,
    longest: Span,
    phase: Phase,
    epoch: u32,
    /// When somebody was last answered while failures were counted.
    answered: Option<Timestamp>,
}

/// Who was answered this short a time ago is asked on: a part of it may have failed.
const RECENT_ANSWER: Span = Span::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Everybody asks. So many failed since somebody was answered.
    Closed { failures: u32 },
    /// Nobody asks before `probe_at`. `wait` is the one before jitter.
    Open { wait: Span, probe_at: Timestamp },
    /// One request has been sent to find out; the others are not asked.
    HalfOpen { wait: Span },
}

/// Leave to ask the store, to be handed back with what came of it.
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
    pub(crate) const fn new(most: u32, first: Span, longest: Span) -> Self {
        Self { most, first, longest, phase: Phase::Closed { failures: 0 }, epoch: 0, answered: None }
    }

    pub(crate) const fn phase(&self) -> Phase {
        self.phase
    }

    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// What a request is given that asks in a closed epoch.
    pub(crate) const fn ordinary(epoch: u32) -> Ticket {
        Ticket { epoch, is_probe: false }
    }

    /// Leave to ask the store, if there is any.
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

    /// The store answered. Whether that closed the breaker.
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

    /// The store gave no answer. Whether that opened the breaker.
    pub(crate) fn failed(&mut self, ticket: Ticket, now: Timestamp, rng: u32) -> bool {
        if ticket.epoch != self.epoch {
            return false;
        }
        match self.phase {
            Phase::Closed { failures } => {
                let failures = failures.saturating_add(1);
                self.epoch = self.epoch.wrapping_add(1);
                let is_recent = self.answered.is_some_and(|at| now.since(at) < RECENT_ANSWER);
                // `u32::MAX` is never: that many cannot be told from more.
                if failures < self.most || self.most == u32::MAX || is_recent {
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

    /// Whoever asked has gone without waiting for the answer. Of a probe: nothing
    /// was found out, so the next request may.
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

    /// Opened at zero by three failures, with the longest jitter.
    fn opened() -> Breaker {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for failure in 0..3 {
            let ticket = breaker.ask(at(0)).unwrap();
            assert_eq!(breaker.failed(ticket, at(0), u32::MAX), failure == 2);
        }
        breaker
    }

    #[test]
    fn only_failures_in_a_row_open_it() {
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
    fn a_store_that_has_just_answered_somebody_is_asked_on() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        let well = breaker.ask(at(0)).unwrap();
        assert!(!breaker.succeeded(well, at(0)));
        for _ in 0..50 {
            let ticket = breaker.ask(at(99)).unwrap();
            assert!(!breaker.failed(ticket, at(99), 0), "a part of it, by chance in a row");
        }
        let ticket = breaker.ask(at(100)).unwrap();
        assert!(breaker.failed(ticket, at(100), 0), "nobody was answered for a while");
    }

    #[test]
    fn a_store_of_which_a_part_fails_is_asked_on() {
        let mut breaker = Breaker::new(3, MIN_BACKOFF, MAX_BACKOFF);
        for _ in 0..10 {
            let (dead, well) = (breaker.ask(at(0)).unwrap(), breaker.ask(at(0)).unwrap());
            assert!(!breaker.failed(dead, at(50), 0));
            assert!(!breaker.succeeded(well, at(0)), "asked before, it says nothing");
            let next = breaker.ask(at(51)).unwrap();
            breaker.succeeded(next, at(0));
            assert_eq!(breaker.phase(), Phase::Closed { failures: 0 });
        }
    }

    #[test]
    fn after_the_wait_one_request_probes_and_no_other() {
        let mut breaker = opened();
        assert_eq!(breaker.ask(at(99)), None);
        let probe = breaker.ask(at(100)).unwrap();
        assert_eq!((breaker.ask(at(100)), breaker.ask(at(100_000))), (None, None));
        assert!(breaker.succeeded(probe, at(0)));
        assert!(breaker.ask(at(100)).is_some() && breaker.ask(at(100)).is_some());
    }

    #[test]
    fn waits_double_to_the_longest_and_the_rng_take_up_to_half() {
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
    fn a_probe_that_is_given_up_lets_the_next_request_probe() {
        let mut breaker = opened();
        let probe = breaker.ask(at(100)).unwrap();
        breaker.abandoned(probe, at(120));
        let next = breaker.ask(at(120)).unwrap();
        breaker.abandoned(Breaker::ordinary(next.epoch), at(120));
        assert_eq!(breaker.ask(at(120)), None, "only a probe can give up a probe");
        assert!(breaker.succeeded(next, at(0)));
    }

    #[test]
    fn an_answer_to_a_question_from_before_changes_nothing() {
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
    fn it_can_be_told_never_to_open() {
        let mut breaker = Breaker::new(u32::MAX, MIN_BACKOFF, MAX_BACKOFF);
        breaker.phase = Phase::Closed { failures: u32::MAX - 1 };
        for _ in 0..3 {
            let ticket = breaker.ask(at(0)).unwrap();
            assert!(!breaker.failed(ticket, at(0), 0));
        }
    }
}
