//! Models of the algorithms, computed slowly from their definitions.
//!
//! Tokens are tokens and not arrival times, windows are counted individually, waits are searched
//! for and not solved for, and every fraction is exact (`Ratio<i128>`). The models share only the
//! input and output types with `src/`, so that an error would have to be made twice.
//!
//! Textbooks do not cover clocks that step back. There, each model implements the module docs of
//! its algorithm independently.

pub(crate) mod calendar;
mod concurrency;
mod fixed_window;
mod leaky_queue;
mod sliding_log;
mod sliding_parts;
mod sliding_window;
mod token_bucket;

use num_rational::Ratio;
use tollgate_core::{ChargeTimes, Outcome, Overdraft, Quota, Span, Timestamp, Verdict};

pub(crate) use concurrency::Slots;

/// A number without rounding.
pub(crate) type Exact = Ratio<i128>;

/// One key under one limit that counts units.
pub(crate) trait Model {
    fn take(&mut self, units: u64, now: Timestamp) -> Outcome;
    fn refund(&mut self, units: u64, charge: ChargeTimes, now: Timestamp);
    fn grant(&mut self, units: u64, now: Timestamp);
    fn charge(&mut self, units: u64, overdraft: Overdraft, now: Timestamp);
    /// Returns the units that are spent and not yet back, rounded up.
    fn used(&mut self, now: Timestamp) -> u64;

    fn take_up_to(&mut self, most: u64, now: Timestamp) -> Outcome {
        match self.take(0, now).remaining {
            0 if most > 0 => self.take(1, now),
            available => self.take(most.min(available), now),
        }
    }

    /// Spends units in advance. Most limits lease none.
    fn lease(&mut self, units: u64, ttl: Span, now: Timestamp) -> Outcome {
        let _ = (units, ttl);
        Outcome { verdict: admitted(0), ..self.take(0, now) }
    }

    fn return_lease(&mut self, units: u64, taken_at: Timestamp, ttl: Span, now: Timestamp) {
        let _ = (units, taken_at, ttl);
        self.take(0, now);
    }
}

/// Leases units of a window, which does not refill while it is open.
fn lease_available(model: &mut impl Model, units: u64, now: Timestamp) -> Outcome {
    let available = model.take(0, now).remaining;
    model.take(units.min(available), now)
}

/// Returns the model of a quota that counts units.
pub(crate) fn of(quota: &Quota) -> Box<dyn Model> {
    match quota {
        Quota::Bucket(it) if it.queue().is_some() => Box::new(leaky_queue::LeakyQueue::new(it)),
        Quota::Bucket(it) => Box::new(token_bucket::TokenBucket::new(it)),
        Quota::FixedWindow(it) => Box::new(fixed_window::Counter::new(it)),
        Quota::SlidingWindow(it) => Box::new(sliding_window::Estimate::new(it)),
        Quota::SlidingParts(it) => Box::new(sliding_parts::Pieces::new(it)),
        Quota::SlidingLog(it) => Box::new(sliding_log::Log::new(it)),
        Quota::Concurrency(_) => unreachable!("slots are not units: ask `Slots`"),
    }
}

fn ticks(at: Timestamp) -> i128 {
    at.as_micros().into()
}

fn whole(number: i128) -> u64 {
    u64::try_from(number).expect("test times and numbers fit")
}

fn span(ticks: i128) -> Span {
    Span::from_micros(whole(ticks))
}

fn admitted(units: u64) -> Verdict {
    Verdict::admitted(units)
}

/// Returns the first tick from `now` on at which `holds` is true, for a monotone predicate: doubles
/// to find a bound, then bisects.
fn first_tick(now: i128, holds: impl Fn(i128) -> bool) -> i128 {
    if holds(now) {
        return now;
    }
    let mut reach = 1;
    while !holds(now + reach) {
        reach *= 2;
    }
    let (mut no, mut yes) = (now + reach / 2, now + reach);
    while yes - no > 1 {
        let middle = no + (yes - no) / 2;
        if holds(middle) { yes = middle } else { no = middle }
    }
    yes
}
