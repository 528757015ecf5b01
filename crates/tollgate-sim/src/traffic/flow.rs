//! Yields arrivals in the order of their times, including retries.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fastrand::Rng;
use tollgate::{Span, Timestamp};

use super::client::{Client, mixed};
use super::{Retry, Traffic};

/// Start of every flow, in seconds since 1970: noon of New Year's Day 2026, rounded down to the start of a window.
const START_SECS: u64 = 1_767_268_800;

/// First backoff of clients that ignore `Retry-After`, in microseconds, for windows of at least a minute.
const INITIAL_BACKOFF_US: u64 = 1_000_000;
/// The shortest backoff, in microseconds.
const MIN_BACKOFF_US: u64 = 1_000;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of the request.
    pub at: Timestamp,
    /// Index of the client.
    pub client: u32,
    /// Number of earlier attempts of the same request.
    pub tries: u32,
    /// Time of the first attempt.
    pub first: Timestamp,
}

/// Reaction of a client to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The request was admitted, or the client does not retry.
    Done,
    /// The client will retry.
    ComesBack,
    /// The client has used all of its attempts.
    GivesUp,
}

/// A scheduled request. Requests of the same time are ordered by the moment at which they were scheduled.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: u64,
    order: u64,
    client: u32,
    tries: u32,
    first: u64,
}

/// Running traffic. See [`Traffic::start`].
pub struct Flow {
    begin: u64,
    end: u64,
    retries: bool,
    retry: Retry,
    first_wait: u64,
    window: u64,
    clients: Vec<Client>,
    queue: BinaryHeap<Reverse<Due>>,
    order: u64,
    rng: Rng,
}

impl Flow {
    pub(super) fn new(traffic: &Traffic) -> Self {
        let window = traffic.rate.period.as_micros().max(1);
        let begin = START_SECS * 1_000_000 / window * window;
        let mut flow = Self {
            begin,
            end: begin.saturating_add(traffic.duration.as_micros()),
            retries: traffic.shape.retries(),
            retry: traffic.retry,
            first_wait: INITIAL_BACKOFF_US.min(window / 60).max(MIN_BACKOFF_US),
            window,
            clients: (0..traffic.clients).map(|number| Client::new(traffic, number)).collect(),
            queue: BinaryHeap::new(),
            order: 0,
            rng: Rng::with_seed(mixed(traffic.seed, 0)),
        };
        (0..traffic.clients).for_each(|client| flow.ask_anew(client));
        flow
    }

    /// Returns the start of the flow, which is the start of a window.
    pub const fn begin(&self) -> Timestamp {
        Timestamp::from_micros(self.begin)
    }

    /// Reports the outcome of an arrival: admitted or refused, with an optional wait. Returns the reaction of the
    /// client.
    pub fn after_reply(&mut self, arrival: &Arrival, admitted: bool, retry_after: Option<Span>) -> Next {
        if admitted || !self.retries {
            return Next::Done;
        }
        if arrival.tries + 1 >= self.retry.attempts {
            return Next::GivesUp;
        }
        let Some(wait) = self.wait(arrival.tries, retry_after) else { return Next::GivesUp };
        let at = arrival.at.as_micros().saturating_add(wait);
        self.push(at, arrival.client, arrival.tries + 1, arrival.first.as_micros());
        Next::ComesBack
    }

    /// Returns the wait before the next attempt; `None` if waiting does not help.
    fn wait(&mut self, tries: u32, retry_after: Option<Span>) -> Option<u64> {
        let wait = if self.retry.honours_retry_after {
            // `Retry-After` has whole seconds.
            let advised = retry_after?.as_secs_ceil().saturating_mul(1_000_000);
            // Jitter only extends the wait.
            if self.retry.jitter {
                advised.saturating_add(self.rng.u64(0..=advised.max(self.first_wait)))
            } else {
                advised
            }
        } else {
            let doubled = self.first_wait.saturating_mul(1 << tries.min(20)).min(self.window);
            if self.retry.jitter { self.rng.u64(0..=doubled) } else { doubled }
        };
        Some(wait.max(MIN_BACKOFF_US))
    }

    fn ask_anew(&mut self, client: u32) {
        if let Some(after) = self.clients[client as usize].next() {
            let at = self.begin.saturating_add(after);
            self.push(at, client, 0, at);
        }
    }

    fn push(&mut self, at: u64, client: u32, tries: u32, first: u64) {
        self.order += 1;
        self.queue.push(Reverse(Due { at, order: self.order, client, tries, first }));
    }
}

/// Retries after the end of the traffic are dropped.
impl Iterator for Flow {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let Reverse(due) = self.queue.pop()?;
        if due.at >= self.end {
            // The queue is sorted, so all remaining requests are after the end too.
            self.queue.clear();
            return None;
        }
        if due.tries == 0 {
            self.ask_anew(due.client);
        }
        let (at, first) = (Timestamp::from_micros(due.at), Timestamp::from_micros(due.first));
        Some(Arrival { at, client: due.client, tries: due.tries, first })
    }
}
