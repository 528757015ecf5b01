//! The assignments of one bucket: the rate of each proxy, and its expiry.
//!
//! There is no acknowledgement in the protocol. A proxy that was lowered may use its old assignment
//! until it has received the new one, so others are raised only after it has reported again, or after
//! the old assignment has expired. The same holds for a proxy whose stream has ended.
//!
//! Invariant: `exposure` is at most the budget, unless the budget fell since. Tested by `tests/bound.rs`.

use tollgate::{Mode, Span, Timestamp};

use crate::division::{self, DemandRate, max_min};
use crate::shares::Share;
use crate::terms::Terms;
use crate::wire::{Action, BucketUsage, Strategy};
use crate::{ASSIGNMENT_TTL, ASSIGNMENT_TTL_SECONDS};

/// A report that arrives earlier after a lowered assignment was sent may have been written before it.
const ACK_DELAY: Span = Span::from_secs(1);
/// The shortest time over which demand is measured.
const MIN_SAMPLE: Span = Span::from_secs(1);
/// A bucket without requests for this long is abandoned.
const IDLE_TIME: Span = Span::from_secs(120);
/// A proxy whose share differs from its target by less than one part in this many keeps it.
pub(crate) const SLACK_PARTS: u64 = 50;
/// The stretch over which overshoot is measured.
const OVERSHOOT_SPAN: Span = Span::from_secs(10);

/// The place of one proxy in a bucket.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) stream: u64,
    /// Tokens per fill interval.
    pub(crate) assigned: u64,
    lowered: Option<Lowered>,
    /// The end of the last assignment that was sent.
    expires: Timestamp,
    pub(crate) demand_rate: DemandRate,
    reported_at: Timestamp,
    /// Requests that were reported since the last sample of demand.
    unsampled: u64,
    busy_at: Timestamp,
    /// Flips when the fill interval changes.
    version: bool,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
}

/// An assignment that a proxy may still use.
#[derive(Clone, Copy, Debug)]
struct Lowered {
    from: u64,
    /// The time at which the lower assignment was sent.
    sent: Option<Timestamp>,
    /// The end of the higher assignment.
    until: Timestamp,
}

/// The assignment of a proxy whose stream has ended, which may be using it still.
#[derive(Debug)]
struct Ghost {
    tokens: u64,
    until: Timestamp,
}

impl Seat {
    /// Returns the tokens that the proxy may be using.
    fn exposure(&self, now: Timestamp) -> u64 {
        let old = self.lowered.filter(|it| now < it.until).map_or(0, |it| it.from);
        self.assigned.max(old)
    }

    /// Returns the higher assignment that the proxy may be using, and for how many seconds at most.
    pub(crate) fn may_still_use(&self, now: Timestamp) -> Option<(u64, u64)> {
        let lowered = self.lowered.filter(|it| now < it.until && it.from > self.assigned)?;
        Some((lowered.from, lowered.until.since(now).as_secs_ceil()))
    }

    fn lower(&mut self, tokens: u64, now: Timestamp) {
        if self.expires > now {
            self.lowered = Some(Lowered { from: self.exposure(now), sent: None, until: self.expires });
        }
        self.assigned = tokens;
    }

    fn sample(&mut self, usage: &BucketUsage, terms: Option<&Terms>, now: Timestamp) {
        let requests = usage.allowed.saturating_add(usage.denied);
        self.unsampled = self.unsampled.saturating_add(requests);
        (self.allowed, self.denied) =
            (self.allowed.saturating_add(usage.allowed), self.denied.saturating_add(usage.denied));
        if requests > 0 {
            self.busy_at = now;
        }
        let elapsed = now.since(self.reported_at);
        if elapsed < MIN_SAMPLE {
            return;
        }
        let sampled = per_fill(self.unsampled, elapsed, terms);
        (self.unsampled, self.reported_at) = (0, now);
        // A rise counts at once, a fall by half.
        self.demand_rate = DemandRate::Known(match self.demand_rate {
            DemandRate::Known(before) if sampled < before => u64::midpoint(before, sampled),
            _ => sampled,
        });
    }
}

/// Returns requests over a time as requests per fill interval.
fn per_fill(requests: u64, elapsed: Span, terms: Option<&Terms>) -> u64 {
    let fill = u128::from(terms.map_or(1, |it| it.fill_seconds)) * 1_000_000;
    let rate = u128::from(requests) * fill / u128::from(elapsed.as_micros().max(1));
    u64::try_from(rate).unwrap_or(u64::MAX).min(u64::from(u32::MAX))
}

/// One bucket and the proxies that use it.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// The limit on it; `None` if no limit covers it.
    pub(crate) terms: Option<Terms>,
    pub(crate) seats: Vec<Seat>,
    ghosts: Vec<Ghost>,
    pub(crate) share: Share,
    /// Whether assignments may have to change.
    pub(crate) is_due: bool,
    /// Whether a proxy has come back that had an assignment before.
    has_returned: bool,
    window: (Timestamp, u64),
    /// Requests above the limit, as reported.
    pub(crate) overshoot: u64,
}

impl Bucket {
    pub(crate) fn new(terms: Option<Terms>, now: Timestamp) -> Self {
        let share = Share::default();
        let (seats, ghosts, window) = (Vec::new(), Vec::new(), (now, 0));
        Self { terms, seats, ghosts, share, is_due: true, has_returned: false, window, overshoot: 0 }
    }

    /// Returns the terms if assignments are limited.
    pub(crate) fn enforced(&self) -> Option<&Terms> {
        self.terms.as_ref().filter(|it| it.mode == Mode::Enforce)
    }

    pub(crate) fn seat(&mut self, stream: u64) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|it| it.stream == stream)
    }

    /// Takes a report. Returns whether the proxy is new in this bucket. `settling` is true shortly
    /// after the start of this process, when proxies come back that have assignments.
    pub(crate) fn report(
        &mut self,
        stream: u64,
        usage: &BucketUsage,
        now: Timestamp,
        settling: bool,
    ) -> bool {
        self.window.1 = self.window.1.saturating_add(usage.allowed);
        self.is_due = true;
        let terms = self.terms.clone();
        if let Some(seat) = self.seat(stream) {
            if seat.lowered.is_some_and(|it| it.sent.is_some_and(|at| now.since(at) >= ACK_DELAY)) {
                seat.lowered = None;
            }
            seat.sample(usage, terms.as_ref(), now);
            return false;
        }
        let mut seat = Seat {
            stream,
            assigned: 0,
            lowered: None,
            expires: Timestamp::EPOCH,
            demand_rate: DemandRate::Unknown,
            reported_at: now,
            unsampled: 0,
            busy_at: now,
            version: false,
            allowed: usage.allowed,
            denied: usage.denied,
        };
        // A first report with a time is that of a proxy that has reported to another stream before.
        if usage.elapsed >= MIN_SAMPLE {
            let requests = usage.allowed.saturating_add(usage.denied);
            // Its usage is about the requests that it admitted; other proxies that come back use the rest.
            let admitted = per_fill(usage.allowed, usage.elapsed, terms.as_ref());
            self.has_returned = true;
            let demand_rate =
                if settling { admitted } else { per_fill(requests, usage.elapsed, terms.as_ref()) };
            (seat.assigned, seat.demand_rate) = (self.take_over(admitted), DemandRate::Known(demand_rate));
        }
        self.seats.push(seat);
        true
    }

    /// Takes up to this many tokens over from assignments of ended streams, and returns their number.
    /// Which of them the proxy had does not matter: the sum stays the same.
    fn take_over(&mut self, tokens: u64) -> u64 {
        let mut left = tokens;
        for ghost in &mut self.ghosts {
            let taken = ghost.tokens.min(left);
            ghost.tokens -= taken;
            left -= taken;
        }
        tokens - left
    }

    /// Removes a proxy, which may use its assignment until it expires.
    pub(crate) fn leave(&mut self, stream: u64, now: Timestamp) {
        let Some(at) = self.seats.iter().position(|it| it.stream == stream) else { return };
        let seat = self.seats.swap_remove(at);
        if seat.expires > now {
            let tokens = seat.exposure(now);
            self.ghosts.push(Ghost { tokens, until: seat.expires });
        }
        self.is_due = true;
    }

    /// Whether nothing uses the bucket.
    pub(crate) fn is_unused(&self, now: Timestamp) -> bool {
        self.seats.is_empty() && self.ghosts.iter().all(|it| it.until <= now)
    }

    /// Returns the streams of proxies without requests for a long time.
    pub(crate) fn idle(&self, now: Timestamp) -> Vec<u64> {
        let idle = self.seats.iter().filter(|it| now.since(it.busy_at) >= IDLE_TIME);
        idle.map(|it| it.stream).collect()
    }

    /// Returns the tokens that proxies may be using.
    pub(crate) fn exposure(&self, now: Timestamp) -> u64 {
        let ghosts = self.ghosts.iter().filter(|it| now < it.until).map(|it| it.tokens);
        self.seats.iter().map(|it| it.exposure(now)).chain(ghosts).sum()
    }

    /// Returns the tokens of proxies whose streams have ended, and for how many seconds at most they are held.
    pub(crate) fn left_behind(&self, now: Timestamp) -> (u64, u64) {
        let ghosts = self.ghosts.iter().filter(|it| now < it.until && it.tokens > 0);
        ghosts.fold((0, 0), |(tokens, seconds): (u64, u64), it| {
            (tokens.saturating_add(it.tokens), seconds.max(it.until.since(now).as_secs_ceil()))
        })
    }

    fn demands(&self) -> Vec<DemandRate> {
        self.seats.iter().map(|it| it.demand_rate).collect()
    }

    /// Returns the tokens that the proxies of this node want.
    pub(crate) fn wanted(&self) -> u64 {
        self.enforced().map_or(0, |terms| division::wanted(terms.tokens, &self.demands()))
    }

    /// Changes assignments to follow demand, and returns the streams whose assignment changed.
    pub(crate) fn divide(&mut self, budget: u64, now: Timestamp, settling: bool) -> Vec<u64> {
        self.ghosts.retain(|it| now < it.until);
        self.is_due = !self.ghosts.is_empty() || self.seats.iter().any(|it| it.lowered.is_some());
        if self.enforced().is_none() {
            return Vec::new();
        }
        let is_awaited = settling && self.has_returned;
        self.is_due |= is_awaited;
        let targets = division::targets(budget, &self.demands(), !is_awaited);
        let before: Vec<u64> = self.seats.iter().map(|it| it.assigned).collect();
        let slack = budget / SLACK_PARTS;
        let is_over = before.iter().sum::<u64>() > budget;
        // Slack of large shares must not keep a small share below its target.
        let is_worth_it = |seat: &Seat, target: u64| target > seat.assigned + slack.min(target / 16);
        let is_short = self.seats.iter().zip(&targets).any(|(seat, target)| is_worth_it(seat, *target));
        for (seat, target) in self.seats.iter_mut().zip(&targets) {
            let excess = seat.assigned.saturating_sub(*target);
            if excess > if is_over || is_short { 0 } else { slack } {
                seat.lower(*target, now);
            }
        }
        let mut free = budget.saturating_sub(self.exposure(now));
        for (seat, target) in self.seats.iter_mut().zip(&targets).filter(|(it, _)| it.assigned == 0) {
            let known = seat.exposure(now).min(*target);
            let cost = target - known;
            // A new proxy leaves half of the free rate to the next one.
            let most =
                if seat.demand_rate == DemandRate::Unknown && free < cost { free.div_ceil(2) } else { free };
            let granted = cost.min(most);
            seat.assigned = known + granted;
            free -= granted;
        }
        let free = free.saturating_sub(division::reserve(budget));
        let mut costs = Vec::with_capacity(targets.len());
        for (seat, target) in self.seats.iter_mut().zip(&targets) {
            let is_worth_it = is_worth_it(seat, *target);
            if is_worth_it {
                seat.assigned = seat.exposure(now).min(*target);
            }
            costs.push(if is_worth_it { target - seat.assigned } else { 0 });
        }
        for (seat, raise) in self.seats.iter_mut().zip(max_min(free, &costs)) {
            seat.assigned += raise;
        }
        let changed = self.seats.iter().zip(&before).filter(|(it, before)| it.assigned != **before);
        changed.map(|(it, _)| it.stream).collect()
    }

    /// Returns the instruction for a proxy, which is about to be sent.
    pub(crate) fn action(&mut self, stream: u64, now: Timestamp) -> Option<Action> {
        let terms = self.terms.clone();
        let seat = self.seat(stream)?;
        let strategy = match terms.filter(|it| it.mode == Mode::Enforce) {
            None => Strategy::AllowAll,
            Some(terms) => terms.strategy(seat.assigned, seat.version),
        };
        if let Some(lowered) = &mut seat.lowered {
            lowered.sent.get_or_insert(now);
        }
        seat.expires = now + ASSIGNMENT_TTL;
        Some(Action::Assign { strategy, ttl_seconds: ASSIGNMENT_TTL_SECONDS })
    }

    /// Puts other terms in force. Assignments keep their rates until the next division.
    pub(crate) fn change_terms(&mut self, terms: Option<Terms>, now: Timestamp) {
        let (was, fill) =
            (self.enforced().map(|it| it.fill_seconds), terms.as_ref().map(|it| it.fill_seconds));
        self.terms = terms;
        self.is_due = true;
        let fill = fill.filter(|_| self.enforced().is_some());
        for seat in &mut self.seats {
            match (was, fill) {
                (Some(was), Some(fill)) if was != fill => {
                    // The old assignment runs on until the proxy has the new one: rounded up.
                    let scaled = |tokens: u64| (tokens * fill).div_ceil(was);
                    let exposure = scaled(seat.exposure(now));
                    (seat.assigned, seat.version) = (exposure, !seat.version);
                    seat.lowered = None;
                    if let DemandRate::Known(demand_rate) = seat.demand_rate {
                        seat.demand_rate = DemandRate::Known(scaled(demand_rate));
                    }
                }
                (Some(_), Some(_)) => {}
                // The proxy was not limited, so it has no assignment that could be lowered.
                _ => (seat.assigned, seat.lowered) = (0, None),
            }
        }
    }

    /// Counts the requests above the limit.
    pub(crate) fn measure(&mut self, now: Timestamp) {
        let elapsed = now.since(self.window.0);
        if elapsed < OVERSHOOT_SPAN {
            return;
        }
        if let Some(terms) = self.enforced() {
            let limit = u128::from(terms.tokens) * u128::from(elapsed.as_micros())
                / (u128::from(terms.fill_seconds) * 1_000_000);
            let limit = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(terms.burst);
            self.overshoot += self.window.1.saturating_sub(limit);
        }
        self.window = (now, 0);
    }
}
