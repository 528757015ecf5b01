//! The arithmetic of a limit, in words.
//!
//! Whoever was refused can check the sum: what the limit promises, what was left, what was
//! asked for, how much was missing, when that comes back. Every number comes from the
//! answer that was given, so words and decision cannot disagree (`tests/words.rs` reads the
//! numbers back out and holds them to it).
//!
//! What is told is how the key stood *before* the request. A refusal changes nothing, but
//! where a limit counts refusals: then it is what was left after, and the words say so.
//!
//! Not here: rounding (`figures`).

mod figures;

use tollgate::{Bucket, CalendarUnit, Mode, Quota, Span, Timestamp, Verdict, Window};

use self::figures::{Tokens, clock, exactly, moment, per, span, stretch};
use crate::record::{LimitRecord, Record, RecordFate};

/// How the answer comes about.
pub(crate) fn arithmetic(limit: &LimitRecord, at: Timestamp) -> Vec<String> {
    let mut lines = vec![definition(&limit.quota), standing(limit, at), demand(limit)];
    lines.extend(waiting(limit, at));
    if limit.degraded {
        lines.push("counted on this node alone, by its share, since the store gives no answer".to_owned());
    }
    if limit.is_candidate {
        lines.push("a candidate: tried beside the limit in force, it refuses nobody".to_owned());
    } else if limit.mode == Mode::Shadow {
        lines.push("in shadow mode: it counts, and refuses nobody".to_owned());
    }
    lines
}

/// What a limit promises, shortly.
pub(crate) fn promise(quota: &Quota) -> String {
    match quota {
        Quota::Bucket(it) => {
            format!("{} {}, at most {} at once", it.rate().count, per(it.rate().period), quota.capacity())
        }
        _ => definition(quota),
    }
}

/// What a limit promises, as the first line of a sum.
fn definition(quota: &Quota) -> String {
    let capacity = quota.capacity();
    match quota {
        Quota::Bucket(it) => {
            let count = it.rate().count;
            format!("{count} {} {}, in a bucket of {capacity}", tokens(count == 1), per(it.rate().period))
        }
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) => format!("{capacity} in each {}", stretch(*length)),
            Window::Anchored(length) => {
                format!("{capacity} in each {}, from a key's first request on", stretch(*length))
            }
            Window::Calendar(calendar) => {
                let unit = match calendar.unit() {
                    CalendarUnit::Hour => "hour",
                    CalendarUnit::Day => "day",
                    CalendarUnit::Week => "week",
                    CalendarUnit::Month => "month",
                };
                format!("{capacity} in each {unit} of the calendar in {}", calendar.zone())
            }
        },
        Quota::SlidingWindow(it) => {
            let stretch = stretch(it.rate().period);
            match it.parts() {
                1 => {
                    format!("{capacity} in any {stretch}, estimated from this one and the last, which fades")
                }
                parts => {
                    format!(
                        "{capacity} in any {stretch}, estimated from {parts} parts, the oldest of which fades"
                    )
                }
            }
        }
        Quota::SlidingLog(it) => format!("{capacity} in any {}, each counted", stretch(it.rate().period)),
        Quota::Concurrency(it) => format!("{capacity} at once, each for {} at most", exactly(it.ttl())),
    }
}

const fn tokens(one: bool) -> &'static str {
    if one { "token" } else { "tokens" }
}

/// What a bucket held, with as many places as this request needs.
fn held(limit: &LimitRecord, bucket: &Bucket) -> Tokens {
    let tokens = Tokens::of(bucket, &limit.outcome, limit.outcome.units());
    if limit.outcome.is_admitted() { tokens } else { tokens.against(limit.cost) }
}

/// What was left before the request. Overdrawn or not, no whole unit is below none.
fn left(limit: &LimitRecord) -> u64 {
    limit.outcome.remaining.saturating_add(limit.outcome.units()).min(limit.outcome.limit)
}

/// Whether the request was charged although it was refused. Slots never are.
fn is_charged(limit: &LimitRecord) -> bool {
    limit.count_denied
        && limit.cost > 0
        && limit.outcome.units() == 0
        && !matches!(limit.quota, Quota::Concurrency(_))
}

/// How the key stood.
fn standing(limit: &LimitRecord, at: Timestamp) -> String {
    let time = clock(at);
    let stood = match &limit.quota {
        Quota::Bucket(bucket) => {
            let held = held(limit, bucket);
            let overdrawn = if held.is_overdrawn() { "overdrawn by " } else { "" };
            format!("{overdrawn}{} {} at {time}", held.shown(), tokens(held.is_one()))
        }
        Quota::Concurrency(_) => format!("{} of {} free at {time}", left(limit), limit.outcome.limit),
        _ => format!("{} of {} left at {time}", left(limit), limit.outcome.limit),
    };
    if is_charged(limit) { format!("{stood}, after this refusal, which is charged too") } else { stood }
}

/// What was asked for, and whether it was there.
fn demand(limit: &LimitRecord) -> String {
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
            let after = match &limit.quota {
                Quota::Bucket(bucket) => held(limit, bucket).without(units),
                _ => outcome.remaining.to_string(),
            };
            format!("{cost} asked for: {after} left after it")
        }
        Verdict::Refused { .. } => {
            let short = match &limit.quota {
                Quota::Bucket(bucket) => held(limit, bucket).missing(cost),
                _ => cost.saturating_sub(left(limit)).to_string(),
            };
            format!("{cost} asked for: {short} short")
        }
        Verdict::Never => format!("{cost} asked for: more than the {} it ever holds", outcome.limit),
    }
}

/// When what is missing comes back; of what passed, when all has.
fn waiting(limit: &LimitRecord, at: Timestamp) -> Option<String> {
    let outcome = &limit.outcome;
    match outcome.verdict {
        Verdict::Refused { retry_after } => Some(coming_back(&limit.quota, retry_after, at)),
        Verdict::Never => Some("waiting does not help".to_owned()),
        Verdict::Admitted { .. } if outcome.reset_after.is_zero() => None,
        Verdict::Admitted { .. } => {
            let (wait, until) = (span(outcome.reset_after), at + outcome.reset_after);
            Some(match &limit.quota {
                Quota::Bucket(_) => format!("full again in {wait}"),
                Quota::FixedWindow(_) => format!("the window closes in {wait}, at {}", moment(until, at)),
                Quota::SlidingWindow(_) | Quota::SlidingLog(_) => format!("all is back in {wait}"),
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
            // Rates that do not divide have no short interval: then as they were written.
            let one = match unit.checked_rem(ticks) {
                Some(0) => format!("one comes back every {}", exactly(Span::from_micros(unit / ticks))),
                _ => format!("{} come back {}", bucket.rate().count, per(bucket.rate().period)),
            };
            format!("{one}: enough in {shown}")
        }
        Quota::FixedWindow(_) => {
            let capacity = quota.capacity();
            format!(
                "the window closes in {shown}, at {}: then there are {capacity} again",
                moment(at + wait, at)
            )
        }
        Quota::SlidingWindow(_) => format!("enough has faded in {shown}"),
        Quota::SlidingLog(_) => format!("enough has left the window in {shown}"),
        Quota::Concurrency(_) => format!("one is free in {shown} at the latest"),
    }
}

/// What was decided and why, in one sentence.
pub(crate) fn summary(record: &Record) -> String {
    let decider = record.decider.and_then(|place| record.limits.get(place));
    let mut text = match (record.fate, decider) {
        (RecordFate::Refused, Some(limit)) => refused(limit),
        (RecordFate::Admitted, Some(limit)) => {
            format!("Admitted by `{}`: {}.", name(limit), stood_against(limit))
        }
        (fate, _) => return uncounted(record, fate),
    };
    if record.allowed {
        let would = record.limits.iter().filter(|it| it.mode == Mode::Shadow && !it.outcome.is_admitted());
        let would: Vec<_> = would.map(|it| format!("`{}`", name(it))).collect();
        if !would.is_empty() {
            text = format!("{text} {} would have refused, and only counts.", would.join(" and "));
        }
    }
    if record.degraded {
        text.push_str(" The store gave no answer: it was counted on this node alone, by its share.");
    }
    text
}

/// A limit and its window, as rules are called.
fn name(limit: &LimitRecord) -> String {
    match &limit.window {
        Some(window) => format!("{}/{window}", limit.name),
        None => limit.name.to_string(),
    }
}

fn refused(limit: &LimitRecord) -> String {
    let (cost, name) = (limit.cost, name(limit));
    let Some(wait) = limit.outcome.retry_after() else {
        let most = limit.outcome.limit;
        let were = were(cost);
        return format!(
            "Refused by `{name}`: {cost} {were} asked for and it never holds more than {most}; waiting does not help."
        );
    };
    let passes = match limit.quota {
        Quota::Concurrency(_) => format!("one is free in {} at the latest", span(wait)),
        _ => format!("it passes in {}", span(wait)),
    };
    format!("Refused by `{name}`: {}; {passes}.", stood_against(limit))
}

const fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// What was left, and what was asked for.
fn stood_against(limit: &LimitRecord) -> String {
    let (cost, most) = (limit.cost, limit.outcome.limit);
    let asked = format!("{cost} {} asked for", were(cost));
    match &limit.quota {
        Quota::Bucket(bucket) => {
            let held = held(limit, bucket);
            let shown = held.shown();
            if held.is_overdrawn() {
                format!("it was overdrawn by {shown} of {most} tokens and {asked}")
            } else {
                let were = if held.is_one() { "was" } else { "were" };
                format!("{shown} of {most} tokens {were} left and {asked}")
            }
        }
        Quota::Concurrency(_) => format!("{} of {most} slots were free and 1 was asked for", left(limit)),
        _ => format!("{} of {most} {} left and {asked}", left(limit), were(left(limit))),
    }
}

/// What was decided without counting.
fn uncounted(record: &Record, fate: RecordFate) -> String {
    let reason = record.reason.as_deref();
    let by = record.limit.as_deref().map_or_else(String::new, |limit| format!(" by `{limit}`"));
    match fate {
        RecordFate::Admitted => format!("Admitted: {}.", reason.unwrap_or("no limit applies")),
        RecordFate::AllowListed => format!("Admitted: {}.", reason.unwrap_or("allow-listed")),
        RecordFate::DenyListed => format!("Refused: {}.", reason.unwrap_or("deny-listed")),
        RecordFate::Uncountable => format!("Refused{by}: {}.", reason.unwrap_or("the store gives no answer")),
        RecordFate::Blocked | RecordFate::Refused => {
            let reason = reason.unwrap_or("there is no room");
            format!("Refused{by}: {}.", reason.strip_prefix("blocked: ").unwrap_or(reason))
        }
    }
}
