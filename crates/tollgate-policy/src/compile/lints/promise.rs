//! Proven bounds on the units that a limit admits.
//!
//! Each algorithm has an upper bound on the units it admits in a stretch of time, and a set of
//! streams that it admits completely. If the upper bound of one limit stays within the streams
//! that another limit admits, the second limit never fires behind the first. A stretch is closed
//! at both ends; its length is the difference of its last and first instant, in microseconds:
//!
//! ```text
//! bucket of b, c every p     at most  b + d·c/p                 refuses nothing of a stream iff that holds of it
//! log of L in W              at most  L·(⌊d/W⌋ + 1)             iff at most L in any stretch of W - 1
//! fixed window of L in W     at most  L·(⌈d/W⌉ + 1)             if  at most L in any stretch of W - 1
//! two counters of L in W     at most  L·(⌈d/W⌉ + 1)             if  b + W·c/p <= L, for a stream within b + d·c/p
//! ```
//!
//! Proof of the last row: with `P` in the previous window and `C` in this one, `e` into it, the
//! estimate is `P·(W-e)/W + C = (P+C)·(W-e)/W + C·e/W`; `P+C` arrived within `W+e`, `C` within `e`.
//! Windows that begin together and whose lengths are multiples are compared window by window.
//!
//! Combinations that are not listed are not compared (`None`, `false`): windows in parts, tallies.
//!
//! Invariant: a limit that is reported never to fire never fires. Tested by
//! `tests/lints/never.rs`, which runs random limits in virtual time.

use tollgate_core::{Algorithm as _, Bucket, FixedWindow, Quota, Rate, Rule, Window};

/// The bound `burst + d·count/period` for any stretch of `d`.
struct Line {
    burst: u128,
    count: u128,
    period: u128,
}

impl Line {
    fn of(quota: &Quota) -> Option<Self> {
        let line = |bursts: u64, Rate { count, period }: Rate, burst: u64| Self {
            burst: u128::from(bursts) * u128::from(burst),
            count: count.into(),
            period: period.as_micros().into(),
        };
        match quota {
            Quota::Bucket(it) if !it.is_shared() => Some(line(1, it.rate(), rounded_up(it))),
            Quota::SlidingLog(it) => Some(line(1, it.rate(), it.rate().count)),
            Quota::SlidingWindow(it) => Some(line(2, it.rate(), it.rate().count)),
            Quota::FixedWindow(it) => Some(line(2, plain(it)?, it.capacity())),
            _ => None,
        }
    }
}

/// Returns the capacity of a bucket. The bounded wait of a queue holds a fraction of a unit more.
fn rounded_up(bucket: &Bucket) -> u64 {
    let is_whole = bucket.grains().is_multiple_of(bucket.grains_per_unit().into());
    bucket.capacity() + u64::from(!is_whole)
}

/// Returns the rate of a window of constant length that counts admitted requests.
fn plain(window: &FixedWindow) -> Option<Rate> {
    match window.window() {
        Window::Epoch(length) | Window::Anchored(length) if !window.is_tally() => {
            Some(Rate::new(window.capacity(), *length))
        }
        _ => None,
    }
}

/// Returns the maximum number of units admitted in a stretch of this many microseconds.
fn most(quota: &Quota, stretch: u128) -> Option<u128> {
    let windows = |Rate { count, period }: Rate, touched: fn(u128, u128) -> u128| {
        u128::from(count).checked_mul(touched(stretch, period.as_micros().into()) + 1)
    };
    match quota {
        Quota::Bucket(it) if !it.is_shared() => {
            let Rate { count, period } = it.rate();
            let back = stretch.checked_mul(count.into())? / u128::from(period.as_micros());
            Some(u128::from(rounded_up(it)) + back)
        }
        Quota::SlidingLog(it) => windows(it.rate(), |stretch, period| stretch / period),
        Quota::SlidingWindow(it) => windows(it.rate(), u128::div_ceil),
        Quota::FixedWindow(it) => windows(plain(it)?, u128::div_ceil),
        _ => None,
    }
}

/// Returns the rate of windows that begin at multiples of their length since 1970.
fn on_grid(quota: &Quota) -> Option<Rate> {
    match quota {
        Quota::SlidingWindow(it) => Some(it.rate()),
        Quota::FixedWindow(it) if matches!(it.window(), Window::Epoch(_)) => plain(it),
        _ => None,
    }
}

/// Whether `wide` refuses nothing of any stream that `narrow` admits.
pub(super) fn fires_first(narrow: &Quota, wide: &Quota) -> bool {
    fires_first_or_unknown(narrow, wide).unwrap_or(false)
}

fn fires_first_or_unknown(narrow: &Quota, wide: &Quota) -> Option<bool> {
    let capacity = u128::from(wide.capacity());
    match wide {
        // A queue that refuses nothing still delays requests.
        Quota::Bucket(it) if it.queue().is_some() => None,
        Quota::Bucket(it) if !it.is_shared() => {
            let (line, rate) = (Line::of(narrow)?, it.rate());
            let slower = line.count.checked_mul(rate.period.as_micros().into())?
                <= line.period.checked_mul(rate.count.into())?;
            Some(line.burst <= capacity && slower)
        }
        Quota::SlidingLog(it) => within(narrow, it.rate().period.as_micros(), capacity),
        Quota::FixedWindow(it) if !it.is_tally() => {
            if let (Some(inner), Some(outer)) = (on_grid(narrow), on_grid(wide)) {
                let (inner_length, outer_length) = (inner.period.as_micros(), outer.period.as_micros());
                if outer_length.is_multiple_of(inner_length) {
                    let times = u128::from(outer_length / inner_length);
                    return Some(u128::from(inner.count).checked_mul(times)? <= capacity);
                }
                if inner_length.is_multiple_of(outer_length) && u128::from(inner.count) <= capacity {
                    return Some(true);
                }
            }
            within(narrow, it.window().longest().as_micros(), capacity)
        }
        Quota::SlidingWindow(it) => {
            let rate = it.rate();
            if let Quota::SlidingWindow(inner) = narrow
                && inner.rate().period == rate.period
            {
                return Some(u128::from(inner.rate().count) <= capacity);
            }
            let line = Line::of(narrow)?;
            let estimate = line.burst.checked_mul(line.period)?;
            let estimate = estimate.checked_add(line.count.checked_mul(rate.period.as_micros().into())?)?;
            Some(estimate <= capacity.checked_mul(line.period)?)
        }
        Quota::Concurrency(it) => match narrow {
            Quota::Concurrency(inner) => Some(inner.slots() <= it.slots() && inner.ttl() >= it.ttl()),
            _ => None,
        },
        _ => None,
    }
}

/// Whether at most `capacity` units pass in any window of this length.
fn within(narrow: &Quota, length: u64, capacity: u128) -> Option<bool> {
    Some(most(narrow, u128::from(length).checked_sub(1)?)? <= capacity)
}

/// Returns the long-term rate of a rule: the rate of a bucket, the number and length of a window.
/// `None` for rules that regain nothing over time.
pub(super) fn pace(rule: &Rule) -> Option<Rate> {
    match &rule.quota {
        Quota::Bucket(it) => Some(it.rate()),
        Quota::Concurrency(_) => None,
        other => Some(Rate::new(other.capacity(), other.period())),
    }
}

/// Whether the rules together grant a lower long-term rate than the others.
pub(super) fn is_slower(rules: &[Rule], others: &[Rule]) -> bool {
    let below = |a: Rate, b: Rate| {
        u128::from(a.count) * u128::from(b.period.as_micros())
            < u128::from(b.count) * u128::from(a.period.as_micros())
    };
    let others: Option<Vec<Rate>> = others.iter().map(pace).collect();
    let Some(others) = others.filter(|it| !it.is_empty()) else { return false };
    rules.iter().filter_map(pace).any(|one| others.iter().all(|other| below(one, *other)))
}

/// Estimates the units admitted in this many microseconds under full load, for messages and
/// comparisons, not for proofs. `None` if no rule has a known bound.
pub(super) fn about(rules: &[Rule], stretch: u64) -> Option<u64> {
    let one = |rule: &Rule| {
        let Rate { count, period } = pace(rule)?;
        let back = u128::from(count) * u128::from(stretch) / u128::from(period.as_micros().max(1));
        let capacity = u128::from(rule.quota.capacity());
        let all = if matches!(rule.quota, Quota::Bucket(_)) { capacity + back } else { capacity.max(back) };
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    };
    rules.iter().filter_map(one).min()
}

/// Returns the time after which the rules have regained everything.
pub(super) fn longest(rules: &[Rule]) -> u64 {
    rules.iter().map(|rule| rule.quota.period().as_micros()).max().unwrap_or(0)
}

/// Returns the units admitted in one step after a pause. For a fixed window that is twice its number:
/// the end of one window and the start of the next.
pub(super) fn max_burst(rule: &Rule) -> u64 {
    let capacity = rule.quota.capacity();
    match &rule.quota {
        Quota::FixedWindow(_) => capacity.saturating_mul(2),
        // All others wait for their turn.
        Quota::Bucket(it) => it.queue().map_or(capacity, |queue| capacity.min(queue.free.saturating_add(1))),
        _ => capacity,
    }
}

/// Returns the long-term units per second, rounded up. `None` if no rule has a known rate.
pub(super) fn a_second(rules: &[Rule]) -> Option<u64> {
    let one = |rule: &Rule| {
        let Rate { count, period } = pace(rule)?;
        let second = (u128::from(count) * 1_000_000).div_ceil(u128::from(period.as_micros().max(1)));
        Some(u64::try_from(second).unwrap_or(u64::MAX))
    };
    rules.iter().filter_map(one).min()
}
