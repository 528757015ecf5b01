//! Describes the quota of a limit: the first line of an explanation, and the text in lists.
//!
//! The text names the plan, override or call that set the quota. For a limit that this node counts
//! alone, it states both the quota of the policy and the share of this node.

use tollgate::{Queue, Quota, Window};

use super::numbers::{exactly, per, stretch};
use super::tokens;
use crate::describe::{CALL, CLASS};
use crate::record::LimitRecord;

/// Returns the short description of a quota.
pub(crate) fn promise(limit: &LimitRecord) -> String {
    promised(limit, shortly)
}

/// Describes the quota with its source and this node's share of it.
pub(super) fn promised(limit: &LimitRecord, word: fn(&Quota, &str) -> String) -> String {
    let by = match limit.granted_by.as_deref() {
        None => String::new(),
        Some(CALL) => ", as the call said".to_owned(),
        Some(by) => match (by.strip_prefix("plan "), by.strip_prefix(CLASS)) {
            (Some(plan), _) => format!(" by plan `{plan}`"),
            (None, Some(class)) => format!(" for priority `{class}`"),
            (None, None) => " by an override for this key".to_owned(),
        },
    };
    match &limit.whole {
        Some(whole) if *whole != limit.quota => format!(
            "{}{}; in this outage this node grants its share: {}",
            word(whole, &by),
            if limit.granted_by.as_deref() == Some(CALL) { "" } else { " in the file" },
            word(&limit.quota, "")
        ),
        _ => word(&limit.quota, &by),
    }
}

fn shortly(quota: &Quota, by: &str) -> String {
    match quota {
        Quota::Bucket(it) if it.queue().is_none() => {
            format!("{} {}{by}, at most {} at once", it.rate().count, per(it.rate().period), quota.capacity())
        }
        _ => definition(quota, by),
    }
}

/// Describes a queue: `and 50 that wait, for 2 s at most, of which 5 start immediately`.
fn of_queue(queue: Queue) -> String {
    let wait = queue.wait.map_or_else(String::new, |it| format!(", for {} at most", exactly(it)));
    let free = match queue.free {
        0 => String::new(),
        1 => ", of which 1 starts immediately".to_owned(),
        free => format!(", of which {free} start immediately"),
    };
    format!("and {} that wait{wait}{free}", queue.length)
}

/// Describes a quota as the first line of an explanation.
pub(super) fn definition(quota: &Quota, by: &str) -> String {
    let capacity = quota.capacity();
    let text = match quota {
        Quota::Bucket(it) => {
            let (count, period) = (it.rate().count, per(it.rate().period));
            if let Some(queue) = it.queue() {
                return format!("{count} {period}{by}, {}", of_queue(queue));
            }
            return format!("{count} {} {period}{by}, in a bucket of {capacity}", tokens(count == 1));
        }
        Quota::FixedWindow(it) => match it.window() {
            Window::Epoch(length) => format!("{capacity} in each {}", stretch(*length)),
            Window::Anchored(length) => {
                format!("{capacity} in each {}, from a key's first request on", stretch(*length))
            }
            Window::Calendar(calendar) => {
                let unit = calendar.unit().word();
                format!("{capacity} in each {unit} of the calendar in {}", calendar.zone())
            }
        },
        Quota::SlidingWindow(it) => {
            let stretch = stretch(it.rate().period);
            format!("{capacity} in any {stretch}, estimated from this one and the last, which fades")
        }
        Quota::SlidingParts(it) => {
            let (stretch, parts) = (stretch(it.rate().period), it.parts());
            let strict = if it.is_strict() { ", each in full until its last request has left" } else { "" };
            format!("{capacity} in any {stretch}, counted in {parts} parts at most{strict}")
        }
        Quota::SlidingLog(it) => format!("{capacity} in any {}, each counted", stretch(it.rate().period)),
        Quota::Concurrency(it) => format!("{capacity} at once, each for {} at most", exactly(it.ttl())),
    };
    let tally = matches!(quota, Quota::FixedWindow(it) if it.is_tally());
    format!("{text}{by}{}", if tally { ", refusals included" } else { "" })
}
