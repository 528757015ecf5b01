//! Summarizes a decision and its reason in one sentence.

use tollgate::{Mode, Quota};

use super::numbers::span;
use super::{held, is_charged, is_not_held, is_overdrawn, is_tally, left, queued};
use crate::describe::is_room_full;
use crate::record::{LimitRecord, Record, RecordFate};

/// Returns one sentence with the decision and its reason.
pub(crate) fn summary(record: &Record) -> String {
    let limiting = record.limiting.and_then(|place| record.limits.get(place));
    let mut text = match (record.fate, limiting) {
        (RecordFate::Refused, Some(limit)) if is_room_full(record.reason.as_deref()) => {
            room_full(record, limit)
        }
        (RecordFate::Refused, Some(limit)) if is_not_held(limit) => not_held(record, limit),
        (RecordFate::Refused, Some(limit)) => refused(limit),
        (RecordFate::Admitted, Some(limit)) => {
            let queued = queued(limit).map_or_else(String::new, |it| format!("; it {it}"));
            format!("Admitted by `{}`: {}{queued}.", name(limit), stood_against(limit))
        }
        (RecordFate::Admitted, None) if record.reason.is_none() => match in_shadow(record) {
            Some(clause) => return format!("Admitted: {clause}."),
            None => return uncounted(record, RecordFate::Admitted),
        },
        (fate, _) => return uncounted(record, fate),
    };
    if record.allowed
        && let Some(would) = would_refuse(record)
    {
        text = format!("{text} {would}.");
    }
    if record.degraded {
        text.push_str(" The store gave no answer: it was counted on this node alone, by its share.");
    }
    text
}

/// Names the limits in shadow mode that would have refused an admitted request.
fn would_refuse(record: &Record) -> Option<String> {
    let counted = record.limits.iter().filter(|it| it.mode == Mode::Shadow && !it.outcome.is_admitted());
    let counted = counted.map(|it| format!("`{}`", name(it)));
    let blocked = record.shadowed.iter().map(|it| {
        let reason = it.reason.strip_prefix("blocked: ").unwrap_or(&it.reason);
        format!("`{}` ({reason})", it.limit)
    });
    let would: Vec<_> = counted.chain(blocked).collect();
    let count = if would.len() == 1 { "counts" } else { "count" };
    (!would.is_empty()).then(|| format!("{} would have refused, and only {count}", would.join(" and ")))
}

/// Describes a decision in which only limits in shadow mode took part.
fn in_shadow(record: &Record) -> Option<String> {
    let names: Vec<_> = record.limits.iter().map(|it| format!("`{}`", name(it))).collect();
    let (have, count) = if names.len() == 1 { ("has", "counts") } else { ("have", "count") };
    let room = || format!("{} {have} room, and only {count}", names.join(" and "));
    would_refuse(record).or_else(|| (!names.is_empty()).then(room))
}

/// Returns the name of a limit and its window.
fn name(limit: &LimitRecord) -> String {
    match &limit.window {
        Some(window) => format!("{}/{window}", limit.name),
        None => limit.name.to_string(),
    }
}

/// Describes a request that could have waited, if the waiting room of the server had not been full.
fn room_full(record: &Record, limit: &LimitRecord) -> String {
    let (reason, name) = (record.reason.as_deref().unwrap_or_default(), name(limit));
    let (place, wait) = match limit.quota {
        Quota::Concurrency(_) => ("for a slot", "try again"),
        _ => ("in the queue", "it passes"),
    };
    let wait = limit.outcome.retry_after().map_or_else(String::new, |it| format!("; {wait} in {}", span(it)));
    format!("Refused: {reason}; it would have had to wait {place} of `{name}`{wait}.")
}

/// Describes a request that was refused although the queue of the limit had room for it.
fn not_held(record: &Record, limit: &LimitRecord) -> String {
    let reason = record.reason.as_deref().unwrap_or("it was not held");
    let passes =
        limit.outcome.retry_after().map_or_else(String::new, |it| format!("; it passes in {}", span(it)));
    format!(
        "Refused by `{}`: {}, so it would have to wait in the queue, and {reason}{passes}.",
        name(limit),
        stood_against(limit)
    )
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
    if cost == 0 && is_tally(limit) {
        return format!(
            "Refused by `{name}`: more than {} {} counted already; {passes}.",
            limit.outcome.limit,
            were(limit.outcome.limit)
        );
    }
    if is_charged(limit) {
        let charged = if is_overdrawn(limit) { "" } else { ", and charged all the same" };
        let (were, after) = (were(cost), stood(limit));
        return format!(
            "Refused by `{name}`: {cost} {were} asked for{charged}; after that {after}; {passes}."
        );
    }
    format!("Refused by `{name}`: {}; {passes}.", stood_against(limit))
}

const fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Describes the units left and the units requested.
fn stood_against(limit: &LimitRecord) -> String {
    let cost = if matches!(limit.quota, Quota::Concurrency(_)) { 1 } else { limit.cost };
    format!("{} and {cost} {} asked for", stood(limit), were(cost))
}

/// Describes the units left.
fn stood(limit: &LimitRecord) -> String {
    let most = limit.outcome.limit;
    match &limit.quota {
        Quota::Bucket(it) if it.queue().is_some() => {
            format!("{} of {most} places {} left", left(limit), were(left(limit)))
        }
        Quota::Bucket(bucket) => {
            let held = held(limit, bucket);
            let shown = held.shown();
            if held.is_overdrawn() {
                format!("it was overdrawn by {shown} of {most} tokens")
            } else {
                let were = if held.is_one() { "was" } else { "were" };
                format!("{shown} of {most} tokens {were} left")
            }
        }
        Quota::Concurrency(_) => format!("{} of {most} slots were free", left(limit)),
        _ => format!("{} of {most} {} left", left(limit), were(left(limit))),
    }
}

/// Describes a decision that was made without counting.
fn uncounted(record: &Record, fate: RecordFate) -> String {
    let reason = record.reason.as_deref();
    let by = record.limit.as_deref().map_or_else(String::new, |limit| format!(" by `{limit}`"));
    match fate {
        RecordFate::Admitted => {
            let nothing =
                if record.switched_off { "every limit is switched off" } else { "no limit applies" };
            format!("Admitted: {}.", reason.unwrap_or(nothing))
        }
        RecordFate::AllowListed => format!("Admitted: {}.", reason.unwrap_or("allow-listed")),
        RecordFate::DenyListed => format!("Refused: {}.", reason.unwrap_or("deny-listed")),
        RecordFate::AmbiguousPath => format!("Refused: {}.", reason.unwrap_or("the path is ambiguous")),
        RecordFate::Uncountable => format!("Refused{by}: {}.", reason.unwrap_or("the store gives no answer")),
        RecordFate::Blocked | RecordFate::Refused | RecordFate::Shed => {
            let reason = reason.unwrap_or("there is no room");
            format!("Refused{by}: {}.", reason.strip_prefix("blocked: ").unwrap_or(reason))
        }
    }
}
