//! The model of one bucket of a server, and the pace that follows from it.
//!
//! The server decides; this model only predicts. Three rules keep it close:
//!
//! - A call takes its units from the model when it is sent. A response that reports `r` remaining units was counted
//!   before some of the other calls that are under way, so the truth is between `r` minus those calls and `r`. A model
//!   outside of this range is moved to its edge.
//! - A bucket that refills is used at its rate, above a small reserve that absorbs the jitter of the network. A window
//!   is used a little faster than evenly (`window_pace`), so that it is used up before it ends (`window_end`).
//! - After a reset one call goes ahead, and the others follow its response: a reset that is announced too early costs
//!   one refusal.
//!
//! Most headers do not say whether a bucket refills or has windows. A reset that moves, or units that return before the
//! reset, mean refilling. If neither is seen until the bucket is empty, one call is sent at the time at which a
//! refilling bucket had units again: its answer tells.
//!
//! Numbers are floats: they are estimates, and no decision of a limiter follows from them.
//!
//! Invariant: no call is sent before the time that a refusal named, up to [`MAX_BLOCK`].

mod cost;
mod guess;
mod jitter;
mod learning;
mod silent_window;
mod window_end;
mod window_pace;

use tollgate::{Span, Timestamp};

use crate::headers::{BucketKind, Shape};
use cost::CostSample;
use guess::Guess;
use jitter::Jitter;
use silent_window::SilentWindow;
use window_end::WindowEnd;
use window_pace::{WindowPace, WindowState};

/// The longest time for which a refusal or a reset stops a bucket. Afterwards one call finds out.
pub const MAX_BLOCK: Span = Span::from_hours(1);

/// The part of a refilling bucket that is kept in reserve, and the largest such reserve.
const RESERVE: (f64, f64) = (0.05, 5.0);
/// The part of a refilling bucket that the reserve for the jitter of the network can have: calls that arrive together
/// empty the other half, and calls that arrive late let this half fill up.
const MAX_JITTER_RESERVE: f64 = 0.5;
/// The part of the rate of a refilling bucket that is used.
const PACE: f64 = 0.99;
/// The part of a limit up to which the units that were seen may be a burst of a bucket that refills.
const MAX_SMALL_BURST: f64 = 0.5;
/// The time for which calls wait for the answer of a probe.
const PROBE_TIMEOUT: Span = Span::from_secs(2);
/// The wait for a bucket that is empty and has no known reset.
const DEFAULT_RESET: Span = Span::from_secs(1);
/// The calls that are sent before the first response of a bucket, and the time for which others wait for it.
const SLOW_START: (u32, Span) = (4, Span::from_millis(250));
/// Refusals against the prediction after which a refilling bucket is taken for a window.
const MAX_SURPRISES: u32 = 3;
/// Full buckets of calls after which one such refusal is forgotten.
const SURPRISE_MEMORY: f64 = 20.0;

/// The state of a bucket in a response, with times of the local clock.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// The units of a full bucket, or of a window.
    pub limit: Option<u64>,
    /// The units that are left.
    pub remaining: Option<u64>,
    /// The time of the reset.
    pub reset_at: Option<Timestamp>,
    /// The window that `limit` is for.
    pub window: Option<Span>,
    /// The shape, if the dialect defines it.
    pub shape: Option<Shape>,
    /// Whether `reset_at` is more precise than a second.
    pub is_precise: bool,
    /// The reset on the clock of the server, if it is a date: all responses of a window have the same.
    pub reset_mark: Option<Timestamp>,
}

/// When a call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// Now.
    Now,
    /// At this time, unless a response tells otherwise before.
    At(Timestamp),
    /// After a response to a call that is under way, and at this time at the latest.
    AfterAnswer(Timestamp),
}

/// The units of one call that is under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ticket {
    sent_at: Timestamp,
    /// The number of the call in its bucket.
    number: u64,
    /// The calls that were under way when it was sent.
    others: u32,
    cost: f64,
    is_probe: bool,
    /// Whether the call is sent before the announced end of its window, to find out whether the window has ended.
    is_early: bool,
}

impl Ticket {
    /// Returns the units that the call was expected to cost.
    pub const fn cost(&self) -> f64 {
        self.cost
    }
}

/// The model of one bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    kind: BucketKind,
    shape: Option<Shape>,
    limit: Option<f64>,
    window: Option<Span>,
    /// Whether the server reports the window; otherwise it was measured.
    is_window_reported: bool,
    /// The units that are left, at `updated`; `None` until the server reports them.
    level: Option<f64>,
    updated: Timestamp,
    /// The largest number of remaining units that was reported: the capacity may be less than the limit.
    max_seen: f64,
    /// The smallest number of remaining units that was reported in this window.
    min_seen: f64,
    /// Units per microsecond.
    rate: Option<f64>,
    reset_at: Option<Timestamp>,
    window_end: WindowEnd,
    window_pace: WindowPace,
    blocked_until: Timestamp,
    sent: u64,
    in_flight: u32,
    /// The number of the first call after a reset that no response has confirmed.
    unconfirmed: Option<u64>,
    probe_sent: Option<Timestamp>,
    average_cost: f64,
    jitter: Jitter,
    sample: Option<CostSample>,
    surprises: u32,
    admitted: u32,
    guess: Option<Guess>,
    /// The limit of a bucket that concerns every route.
    silent: Option<Box<SilentWindow>>,
    created: Timestamp,
    /// The end of the slow start; `None` before the first call and after the first response.
    slow_until: Option<Timestamp>,
    is_new: bool,
}

impl Bucket {
    /// Creates the model of a bucket that no response has described yet.
    pub fn new(kind: BucketKind, now: Timestamp) -> Self {
        Self {
            kind,
            shape: None,
            limit: None,
            window: None,
            is_window_reported: false,
            level: None,
            updated: now,
            max_seen: 0.0,
            min_seen: f64::INFINITY,
            rate: None,
            reset_at: None,
            window_end: WindowEnd::default(),
            window_pace: WindowPace::new(now),
            blocked_until: Timestamp::EPOCH,
            sent: 0,
            in_flight: 0,
            unconfirmed: None,
            probe_sent: None,
            average_cost: 1.0,
            jitter: Jitter::default(),
            sample: None,
            surprises: 0,
            admitted: 0,
            guess: None,
            silent: None,
            created: now,
            slow_until: None,
            is_new: true,
        }
    }

    /// Returns the calls that are under way.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the time until which a refusal stops the bucket.
    pub fn blocked_until(&self) -> Timestamp {
        self.blocked_until
    }

    /// Returns the predicted units that are left.
    pub fn level(&self) -> Option<f64> {
        self.level
    }

    /// Returns the units of a full bucket or of a window.
    pub fn limit(&self) -> Option<f64> {
        self.limit
    }

    /// Returns the shape, as far as it is known.
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Returns the units per second that the bucket gets.
    pub fn rate_per_second(&self) -> Option<f64> {
        self.rate.map(|rate| rate * 1e6)
    }

    /// Returns when a call may be sent. `cost` is its known cost in tokens.
    pub fn ready(&mut self, now: Timestamp, cost: Option<f64>) -> Ready {
        self.advance(now);
        if now < self.blocked_until {
            return Ready::At(self.blocked_until);
        }
        if let Some(end) = self.slow_until.filter(|end| self.in_flight >= SLOW_START.0 && now < *end) {
            return Ready::AfterAnswer(end);
        }
        if let Some(silent) = &mut self.silent {
            return silent.ready(now);
        }
        if let Some(guess) = &self.guess {
            return guess.ready(now);
        }
        if self.kind == BucketKind::Slots {
            let free = self.limit.is_none_or(|limit| f64::from(self.in_flight) < limit.max(1.0));
            return if free { Ready::Now } else { Ready::AfterAnswer(now + PROBE_TIMEOUT) };
        }
        let Some(level) = self.level.filter(|_| self.kind != BucketKind::Other) else { return Ready::Now };
        if self.unconfirmed.is_some() {
            return self.probe_ready(now);
        }
        let cost = self.cost(cost);
        match (self.shape, self.rate) {
            (Some(Shape::Refill), Some(rate)) => {
                let capacity = self.capacity();
                let need = (cost + self.reserve(rate, capacity)).min(capacity.max(cost));
                if level >= need { Ready::Now } else { Ready::At(after(now, (need - level) / rate)) }
            }
            (shape, rate) if level < cost => {
                let known = self.reset_at.filter(|at| *at > self.updated);
                let reset = known.unwrap_or(self.updated + DEFAULT_RESET);
                if reset <= now {
                    return self.overdue_ready(now);
                }
                match rate.filter(|_| shape.is_none()) {
                    Some(rate) => self.shape_probe_ready(now, after(self.updated, 2.0 * cost / rate), reset),
                    None => self.early_ready(now, reset),
                }
            }
            // A small burst of a bucket that refills, or the rest of a window: its last units tell.
            (None, Some(_)) if self.limit.is_some_and(|limit| self.capacity() < limit * MAX_SMALL_BURST) => {
                Ready::Now
            }
            _ => self.window_ready(now, level, cost),
        }
    }

    /// Takes the units of a call that is sent now.
    pub fn take(&mut self, now: Timestamp, cost: Option<f64>) -> Ticket {
        self.advance(now);
        let cost = self.cost(cost);
        let is_shape_probe =
            self.shape.is_none() && self.rate.is_some() && self.level.is_some_and(|it| it < cost);
        let is_probe = self.unconfirmed.is_some() || is_shape_probe;
        if is_probe {
            self.probe_sent = Some(now);
        }
        let is_empty = self.level.is_some_and(|it| it < cost);
        let is_early = !is_probe && is_empty && self.early_try().is_some_and(|at| at <= now);
        if is_early {
            self.window_end.tried();
        }
        if let Some(level) = &mut self.level {
            *level = (*level - cost).max(-cost);
        }
        self.window_pace.take(cost);
        if let Some(silent) = &mut self.silent {
            silent.take(now);
        }
        if let Some(guess) = &mut self.guess {
            guess.take();
        }
        if std::mem::take(&mut self.is_new) {
            self.slow_until = Some(now + SLOW_START.1);
        }
        self.sent += 1;
        let (number, others) = (self.sent, self.in_flight);
        let ticket = Ticket { sent_at: now, number, others, cost, is_probe, is_early };
        self.in_flight += 1;
        self.updated = now;
        ticket
    }

    /// Returns the units of a call that was sent before it was known that it needs this bucket.
    pub fn adopt(&mut self, sent_at: Timestamp) -> Ticket {
        self.sent += 1;
        let (others, cost) = (self.in_flight, self.average_cost);
        self.in_flight += 1;
        Ticket { sent_at, number: self.sent, others, cost, is_probe: false, is_early: false }
    }

    /// Takes the units of calls that are under way, and will be [adopted](Self::adopt) with their responses.
    pub fn reserve_for(&mut self, calls: u32) {
        let units = f64::from(calls) * self.average_cost;
        self.level = self.level.map(|level| level - units);
    }

    /// Ends a call that got no response, or a response without a word about this bucket.
    pub fn finish(&mut self, ticket: &Ticket) {
        self.end(ticket);
        self.admitted += 1;
        if f64::from(self.admitted) >= SURPRISE_MEMORY * self.limit.unwrap_or(10.0).max(10.0) {
            self.admitted = 0;
            self.surprises = self.surprises.saturating_sub(1);
        }
    }

    /// Gives back the units of a call that was not sent.
    pub fn withdraw(&mut self, ticket: &Ticket) {
        self.end(ticket);
        self.level = self.level.map(|level| level + ticket.cost);
        self.window_pace.take(-ticket.cost);
        if let Some(silent) = &mut self.silent {
            silent.remove(ticket.sent_at);
        }
    }

    /// Ends a call whose response reports the state of the bucket.
    pub fn report(&mut self, ticket: &Ticket, seen: &Observation, now: Timestamp) {
        self.finish(ticket);
        self.jitter.record(now.since(ticket.sent_at));
        self.advance(now);
        self.guess = None;
        let seen = &Observation { reset_at: seen.reset_at.map(|at| at.min(now + MAX_BLOCK)), ..*seen };
        let remaining = self.learn_numbers(seen);
        self.estimate_rate(seen, remaining, now);
        let Some(remaining) = remaining else { return };
        if ticket.is_probe && self.shape.is_none() && self.unconfirmed.is_none() {
            self.shape = Some(Shape::Refill);
        }
        #[allow(clippy::cast_precision_loss)] // estimates
        let uncertain = ((self.sent - ticket.number) + u64::from(ticket.others)) as f64 * self.average_cost;
        self.watch_shape(remaining, uncertain, seen, now);
        self.max_seen = self.max_seen.max(remaining + ticket.cost);
        self.sample_cost(ticket, remaining, seen, now);
        if self.shape == Some(Shape::Refill) {
            self.unconfirmed = None;
            let refilled = self.rate.unwrap_or(0.0) * span_us(now.since(ticket.sent_at));
            let level = self.level.unwrap_or(remaining);
            self.level = Some(level.clamp(remaining - uncertain, remaining + refilled));
        } else {
            self.report_window(ticket, remaining, uncertain, seen, now);
        }
        self.updated = now;
    }

    /// Learns the numbers of a bucket from a refusal, which [`refuse`](Self::refuse) then ends.
    pub fn report_refusal(&mut self, seen: &Observation, now: Timestamp) {
        self.advance(now);
        self.guess = None;
        let remaining = self.learn_numbers(seen);
        self.level = self.level.or(remaining).or(Some(0.0));
    }

    /// Ends a call that the server refused. The bucket stops until `until`, which the server named or a backoff chose.
    ///
    /// `precise_wait` is the wait in milliseconds, if the server states it, and `remaining` the units that the refusal
    /// reports.
    pub fn refuse(
        &mut self,
        ticket: &Ticket,
        until: Timestamp,
        (precise_wait, remaining): (Option<Span>, Option<u64>),
        now: Timestamp,
    ) {
        self.advance(now);
        self.end(ticket);
        #[allow(clippy::cast_precision_loss)] // estimates
        let left = remaining.map_or(0.0, |it| it as f64);
        if self.shape != Some(Shape::Refill) && left >= ticket.cost {
            // A limit that no header shows: GitHub's secondary limits.
            if now >= self.blocked_until {
                self.window_pace.slow_down();
            }
            self.block(until.min(now + MAX_BLOCK).max(now));
            self.level = self.level.map(|level| level.min(left));
            return;
        }
        let until = until.min(now + MAX_BLOCK).max(now);
        let is_late = now < self.blocked_until;
        self.block(until);
        let is_soon =
            |rate: f64| precise_wait.is_some_and(|wait| span_us(wait) <= 4.0 * ticket.cost / rate + 5_000.0);
        if self.shape != Some(Shape::Refill) && self.rate.is_some_and(is_soon) {
            self.shape = Some(Shape::Refill);
        } else if ticket.is_probe && self.shape.is_none() && self.unconfirmed.is_none() {
            self.shape = Some(Shape::Window);
        } else if self.shape == Some(Shape::Refill)
            && left < ticket.cost
            && !is_late
            && !self.rate.is_some_and(is_soon)
        {
            self.surprises += 1;
            if self.surprises >= MAX_SURPRISES {
                (self.shape, self.surprises) = (Some(Shape::Window), 0);
            }
        }
        if self.level.is_none() {
            // The server reports no numbers: the rate has to be found.
            match &mut self.guess {
                Some(guess) => guess.refused(is_late, now),
                None => self.guess = Some(Guess::new(self.sent, self.created, now)),
            }
        } else {
            self.level = Some(self.level.unwrap_or(0.0).min(left));
            if self.shape != Some(Shape::Refill) {
                self.reset_at = Some(self.reset_at.map_or(until, |reset| reset.max(until)));
                self.unconfirmed = None;
            }
        }
        self.updated = now;
    }

    /// Learns from the refusal of a call that was sent to find out whether a window has ended. Returns the time at which
    /// the next one may, if it is known.
    pub fn probe_refused(&mut self, ticket: &Ticket, now: Timestamp) -> Option<Timestamp> {
        if self.shape == Some(Shape::Refill) || !(ticket.is_early || ticket.is_probe) {
            return None;
        }
        let jitter_us = self.jitter.spread_us();
        self.window_end.refused(ticket.sent_at, jitter_us);
        self.window_end.retry_at(jitter_us, now)
    }

    /// Stops the bucket until a time, because a refusal concerns it.
    pub fn block(&mut self, until: Timestamp) {
        self.blocked_until = self.blocked_until.max(until);
    }

    /// Learns from a refusal that concerns every route, for the bucket of the server. `ticket` is that of the call, if
    /// the server was known to have such a limit when the call was sent.
    pub fn refuse_every_route(&mut self, ticket: Option<&Ticket>, until: Timestamp, now: Timestamp) {
        let is_late = now < self.blocked_until;
        self.block(until);
        let silent = self.silent.get_or_insert_with(|| Box::new(SilentWindow::new(now)));
        if let Some(ticket) = ticket {
            silent.refused(ticket.sent_at, is_late, now);
        }
    }

    /// Counts a call without a refusal in a bucket that reports no numbers.
    pub fn admit(&mut self, now: Timestamp) {
        if let Some(guess) = &mut self.guess
            && guess.admitted(now)
        {
            self.guess = None;
        }
    }

    /// Whether nothing is lost if the model is forgotten.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.in_flight == 0 && now >= self.blocked_until && self.reset_at.is_none_or(|it| it <= now)
    }

    fn end(&mut self, ticket: &Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.slow_until = None;
        if ticket.is_probe {
            self.probe_sent = None;
        }
    }

    fn cost(&self, given: Option<f64>) -> f64 {
        match (self.kind, given) {
            (BucketKind::Tokens, Some(cost)) => cost,
            _ => self.average_cost,
        }
    }

    /// The largest level that the bucket is known to reach.
    fn capacity(&self) -> f64 {
        self.limit.map_or(self.max_seen, |limit| limit.min(self.max_seen)).max(1.0)
    }

    /// The units that are left at the server on purpose.
    fn reserve(&self, rate: f64, capacity: f64) -> f64 {
        let jitter = (rate * self.jitter.spread_us()).min(capacity * MAX_JITTER_RESERVE);
        (capacity * RESERVE.0).min(RESERVE.1).max(jitter)
    }

    /// Moves the model to a later time.
    fn advance(&mut self, now: Timestamp) {
        if self.shape == Some(Shape::Refill) {
            let capacity = self.capacity();
            if let (Some(level), Some(rate)) = (&mut self.level, self.rate) {
                let refilled = *level + rate * PACE * span_us(now.since(self.updated));
                *level = refilled.min(capacity.max(*level));
                self.updated = self.updated.max(now);
            }
        } else if self.level.is_some() && self.reset_at.is_some_and(|reset| reset <= now) {
            // A new window, of which no response has told yet.
            self.level = Some(self.capacity());
            self.unconfirmed = Some(self.sent + 1);
            (self.reset_at, self.probe_sent, self.sample) = (None, None, None);
            self.window_pace.restart();
            self.min_seen = f64::INFINITY;
        }
        if let Some(guess) = &mut self.guess {
            guess.advance(now);
        }
    }

    fn probe_ready(&self, now: Timestamp) -> Ready {
        match self.probe_sent.map(|sent| sent + PROBE_TIMEOUT).filter(|end| *end > now) {
            Some(end) => Ready::AfterAnswer(end),
            None => Ready::Now,
        }
    }

    /// Returns when a call of an empty bucket may be sent whose reset has passed, or was never reported: one at a time.
    /// Without this, the time of the next call would lie in the past, and its timer would never rest.
    fn overdue_ready(&self, now: Timestamp) -> Ready {
        if self.in_flight == 0 { Ready::Now } else { Ready::AfterAnswer(now + PROBE_TIMEOUT) }
    }

    /// Returns when a call may find out whether an empty bucket refills.
    fn shape_probe_ready(&self, now: Timestamp, due: Timestamp, reset: Timestamp) -> Ready {
        if due >= reset {
            return Ready::At(reset);
        }
        if self.in_flight > 0 {
            return Ready::AfterAnswer(reset.min(now + PROBE_TIMEOUT));
        }
        if due <= now { Ready::Now } else { Ready::At(due) }
    }

    /// Returns the time before the announced end of the window at which one call may be sent.
    fn early_try(&self) -> Option<Timestamp> {
        self.window_end.early_try(self.jitter.spread_us())
    }

    /// Returns when a call of an empty window may be sent: at the reset, or once before.
    fn early_ready(&self, now: Timestamp, reset: Timestamp) -> Ready {
        match self.early_try().filter(|at| *at < reset) {
            Some(at) if at > now => Ready::At(at),
            Some(_) if self.in_flight == 0 => Ready::Now,
            Some(_) => Ready::AfterAnswer(reset),
            None => Ready::At(reset),
        }
    }

    /// Returns when a call keeps to the even use of the window.
    fn window_ready(&mut self, now: Timestamp, level: f64, cost: f64) -> Ready {
        let (Some(limit), Some(reset)) = (self.limit, self.reset_at) else { return Ready::Now };
        let window = WindowState { level, limit, length: self.window, left: reset.since(now) };
        match self.window_pace.ready(&window, cost, now) {
            Ready::At(time) => Ready::At(time.min(reset)),
            ready => ready,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // spans of hours are exact
fn span_us(span: Span) -> f64 {
    span.as_micros() as f64
}

/// Returns the time some microseconds later, rounded up and bounded.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded, and NaN becomes zero
fn after(time: Timestamp, micros: f64) -> Timestamp {
    time + Span::from_micros(micros.clamp(0.0, span_us(MAX_BLOCK)).ceil() as u64)
}

#[cfg(test)]
mod tests;
