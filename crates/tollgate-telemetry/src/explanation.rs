//! Explains the arithmetic of a limit in words.
//!
//! A refused caller can check the sum: the quota, the units left, the units requested, the units
//! missing, and the time until they return. Every number comes from the outcome that was returned, so
//! the words cannot contradict the decision; `tests/explanation` parses the numbers and compares them.
//!
//! The text describes the key *before* the request. A refusal changes nothing, unless the limit counts
//! refusals (`count_denied`): then the outcome has the state after the refusal, the words say so, and
//! the missing units are not stated.
//!
//! A tally counts refusals in full, beyond its limit. It refuses even a request of cost zero, and the
//! text says that the count exceeds the limit.
//!
//! An outcome does not say whether a window is overdrawn, nor by how much. When nothing is left in a
//! window, the missing units are stated as "at least".
//!
//! The wording of a quota is in `promise`, the summary sentence in `summary`, rounding in `numbers`.

mod numbers;
mod promise;
mod summary;

use tollgate::{Bucket, Mode, Queue, Quota, SlidingWindow, Span, Timestamp, Verdict, Window};

use self::numbers::{Tokens, clock, exactly, local, moment, past_time, per, span, stretch};
pub(crate) use self::promise::promise;
use self::promise::{definition, promised};
pub(crate) use self::summary::summary;
use crate::record::LimitRecord;

/// Returns the lines that explain an outcome.
pub(crate) fn arithmetic(limit: &LimitRecord, at: Timestamp) -> Vec<String> {
    let mut lines = vec![promised(limit, definition), standing(limit, at), amount(limit)];
    lines.extend(waiting(limit, at));
    match &limit.quota {
        Quota::SlidingWindow(window) => lines.push(border(window, at)),
        Quota::SlidingParts(window) => {
            let border = at.before(window.rate().period);
            lines.push(format!("what came by {} no longer counts", past_time(border, at)));
        }
        _ => {}
    }
    if limit.degraded {
        lines.push("counted on this node alone, by its share, because the store does not answer".to_owned());
    }
    if limit.outcome.is_leased() {
        lines.push(
            "decided by this node from units that it had leased from the store, without asking it; what is \
             left includes them, and other nodes may have spent since the last answer of the store"
                .to_owned(),
        );
    }
    if limit.is_candidate {
        lines.push("a candidate: evaluated beside the live limit, it does not refuse".to_owned());
    } else if limit.mode == Mode::Shadow {
        lines.push("in shadow mode: it counts and does not refuse".to_owned());
    }
    lines
}

const fn tokens(one: bool) -> &'static str {
    if one { "token" } else { "tokens" }
}

/// Returns the tokens that a bucket held, with as many decimals as this request needs.
fn held(limit: &LimitRecord, bucket: &Bucket) -> Tokens {
    let tokens = Tokens::of(bucket, &limit.outcome, limit.outcome.units());
    match limit.outcome.retry_after() {
        Some(wait) => tokens.against(limit.cost, bucket, wait),
        None => tokens,
    }
}

/// Returns the whole units that were left before the request, at least zero.
fn left(limit: &LimitRecord) -> u64 {
    limit.outcome.remaining.saturating_add(limit.outcome.units()).min(limit.outcome.limit)
}

/// Whether nothing was left that a refusal could charge. A refusal never overdraws a key.
fn is_overdrawn(limit: &LimitRecord) -> bool {
    match &limit.quota {
        Quota::Bucket(it) if it.queue().is_some() => limit.outcome.reset_after > it.fill_time(),
        Quota::Bucket(it) => held(limit, it).is_overdrawn(),
        _ => false,
    }
}

/// Returns the bucket of a limit without a queue, whose tokens are described.
fn token_bucket(limit: &LimitRecord) -> Option<&Bucket> {
    match &limit.quota {
        Quota::Bucket(it) if it.queue().is_none() => Some(it),
        _ => None,
    }
}

/// Returns the queue of a limit, with its bucket.
fn queue(quota: &Quota) -> Option<(&Bucket, Queue)> {
    match quota {
        Quota::Bucket(it) => it.queue().map(|queue| (it, queue)),
        _ => None,
    }
}

/// Describes the wait of an admitted request in the queue of its limit: `waits 300 ms in the queue
/// (place 3 of 50)`.
fn queued(limit: &LimitRecord) -> Option<String> {
    let wait = limit.outcome.wait();
    let (bucket, queue) = queue(&limit.quota).filter(|_| !wait.is_zero())?;
    let (place, length) = (bucket.place_of(wait), queue.length);
    Some(format!("waits {} in the queue (place {place} of {length})", span(wait)))
}

/// Whether the queue of the limit had room, and the request could not be held for its wait. The queue
/// itself refuses only if it has too few places.
fn is_not_held(limit: &LimitRecord) -> bool {
    queue(&limit.quota).is_some()
        && limit.cost > 0
        && limit.outcome.retry_after().is_some()
        && left(limit) >= limit.cost
        && !limit.count_denied
}

/// Whether the request was charged although it was refused. Slots are never charged on refusal.
fn is_charged(limit: &LimitRecord) -> bool {
    limit.count_denied
        && limit.cost > 0
        && limit.outcome.units() == 0
        && !matches!(limit.quota, Quota::Concurrency(_))
}

/// Whether the limit counts refusals in full, beyond its limit.
fn is_tally(limit: &LimitRecord) -> bool {
    matches!(&limit.quota, Quota::FixedWindow(window) if window.is_tally())
}

/// Describes the state of the key.
fn standing(limit: &LimitRecord, at: Timestamp) -> String {
    let time = clock(at);
    let stood = match (&limit.quota, token_bucket(limit)) {
        (_, Some(bucket)) => {
            let held = held(limit, bucket);
            let overdrawn = if held.is_overdrawn() { "overdrawn by " } else { "" };
            format!("{overdrawn}{} {} at {time}", held.shown(), tokens(held.is_one()))
        }
        (Quota::Bucket(_), None) => {
            format!("{} of {} places left at {time}", left(limit), limit.outcome.limit)
        }
        (Quota::Concurrency(_), _) => format!("{} of {} free at {time}", left(limit), limit.outcome.limit),
        _ => format!("{} of {} left at {time}", left(limit), limit.outcome.limit),
    };
    match (is_charged(limit), is_overdrawn(limit)) {
        (false, _) => stood,
        (true, true) => format!("{stood}, before and after this refusal"),
        (true, false) if is_tally(limit) => {
            format!("{stood}, after this refusal, which is counted in full")
        }
        (true, false) => {
            format!("{stood}, after this refusal, which is charged too as far as something was left")
        }
    }
}

/// Describes the requested amount and whether it was available.
fn amount(limit: &LimitRecord) -> String {
    let (cost, outcome) = (limit.cost, &limit.outcome);
    if let Quota::Concurrency(_) = limit.quota {
        return match outcome.verdict {
            Verdict::Admitted { units: 0, .. } => "looked at: nothing is held".to_owned(),
            Verdict::Admitted { .. } => format!("1 asked for: {} free after it", outcome.remaining),
            Verdict::Refused { .. } => "1 asked for: 1 short".to_owned(),
            Verdict::Never => format!("{cost} asked for: slots are taken one by one"),
        };
    }
    match outcome.verdict {
        Verdict::Admitted { units: 0, .. } if cost == 0 => "0 asked for: only looked at".to_owned(),
        Verdict::Admitted { units: 0, .. } if is_charged(limit) => {
            format!("{cost} asked for: there was room, and another limit refused")
        }
        Verdict::Admitted { units: 0, .. } => {
            format!("{cost} asked for: there is room, and nothing was taken")
        }
        Verdict::Admitted { units, .. } => {
            let after = match token_bucket(limit) {
                Some(bucket) => held(limit, bucket).without(units),
                None => outcome.remaining.to_string(),
            };
            format!("{cost} asked for: {after} left after it")
        }
        Verdict::Refused { .. } if is_not_held(limit) => {
            format!("{cost} asked for: there is room, but it would have to wait, and it was not held")
        }
        Verdict::Refused { .. } if cost == 0 => {
            format!("0 asked for: more than {} counted already", outcome.limit)
        }
        Verdict::Refused { .. } if is_charged(limit) && is_overdrawn(limit) => {
            format!("{cost} asked for: refused; overdrawn as it is, it was charged nothing more")
        }
        Verdict::Refused { .. } if is_charged(limit) => {
            format!("{cost} asked for: refused, and charged all the same")
        }
        Verdict::Refused { .. } => {
            let short = match (token_bucket(limit), left(limit)) {
                (Some(bucket), _) => held(limit, bucket).missing(cost),
                (_, 0) => format!("at least {cost}"),
                (_, left) => cost.saturating_sub(left).to_string(),
            };
            format!("{cost} asked for: {short} short")
        }
        Verdict::Never => format!("{cost} asked for: more than the {} it ever holds", outcome.limit),
    }
}

/// Describes when the missing units return, or for an admitted request, when the key is full again.
fn waiting(limit: &LimitRecord, at: Timestamp) -> Option<String> {
    let outcome = &limit.outcome;
    match outcome.verdict {
        Verdict::Refused { retry_after } if is_not_held(limit) => {
            Some(format!("it passes in {}, if no other request comes before", span(retry_after)))
        }
        Verdict::Refused { retry_after } => Some(coming_back(&limit.quota, retry_after, at)),
        Verdict::Never => Some("waiting does not help".to_owned()),
        Verdict::Admitted { .. } if !outcome.wait().is_zero() => queued(limit),
        Verdict::Admitted { .. } if outcome.reset_after.is_zero() => None,
        Verdict::Admitted { .. } => {
            let wait = span(outcome.reset_after);
            Some(match &limit.quota {
                Quota::Bucket(it) if it.queue().is_some() => format!("the queue is empty in {wait}"),
                Quota::Bucket(_) => format!("full again in {wait}"),
                Quota::FixedWindow(_) => closing(&limit.quota, outcome.reset_after, at),
                Quota::SlidingWindow(_) | Quota::SlidingParts(_) | Quota::SlidingLog(_) => {
                    format!("all is back in {wait}")
                }
                Quota::Concurrency(_) => format!("all are free in {wait} at the latest"),
            })
        }
    }
}

fn coming_back(quota: &Quota, wait: Span, at: Timestamp) -> String {
    let shown = span(wait);
    match quota {
        Quota::Bucket(bucket) => {
            let (unit, ticks) = (bucket.grains_per_unit(), u64::from(bucket.grains_per_tick()));
            // A rate that does not divide evenly has no short interval and is shown as written.
            let (comes, come) = match bucket.queue() {
                Some(_) => ("leaves the queue", "leave the queue"),
                None => ("comes back", "come back"),
            };
            let one = match unit.checked_rem(ticks) {
                Some(0) => format!("one {comes} every {}", exactly(Span::from_micros(unit / ticks))),
                _ => format!("{} {come} {}", bucket.rate().count, per(bucket.rate().period)),
            };
            format!("{one}: enough in {shown}")
        }
        Quota::FixedWindow(_) => {
            let capacity = quota.capacity();
            let are = if capacity == 1 { "is" } else { "are" };
            format!("{}: then there {are} {capacity} again", closing(quota, wait, at))
        }
        Quota::SlidingWindow(_) => format!("enough has faded in {shown}"),
        Quota::SlidingParts(_) | Quota::SlidingLog(_) => format!("enough has left the window in {shown}"),
        Quota::Concurrency(_) => format!("one is free in {shown} at the latest"),
    }
}

/// Describes when a window closes; for a calendar window, in its time zone too.
fn closing(quota: &Quota, wait: Span, at: Timestamp) -> String {
    let then = at + wait;
    let zone = match quota {
        Quota::FixedWindow(it) => match it.window() {
            Window::Calendar(calendar) => Some(calendar.zone()).filter(|zone| *zone != "UTC"),
            _ => None,
        },
        _ => None,
    };
    let there = zone.and_then(|zone| Some(format!(" ({} in {zone})", local(then, zone)?)));
    format!("the window closes in {}, at {}{}", span(wait), moment(then, at), there.unwrap_or_default())
}

/// Describes the position in a sliding window. Windows are counted from 1970.
fn border(window: &SlidingWindow, at: Timestamp) -> String {
    let length = window.rate().period.as_micros().max(1);
    let ago = Span::from_micros(at.as_micros() % length);
    let weight = u128::from(length - ago.as_micros()) * 100 / u128::from(length);
    format!(
        "this {} began at {}, {} ago; the one before counts for {weight} % now",
        stretch(window.rate().period),
        clock(at.before(ago)),
        span(ago)
    )
}
