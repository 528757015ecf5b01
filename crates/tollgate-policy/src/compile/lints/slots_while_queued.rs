//! Slots that are held by requests that wait in the queue of another limit.
//!
//! A leaky queue decides when a request arrives and makes it wait after that. All limits of the request
//! are charged then, also its slots: it holds them while it waits and does no work.

use tollgate_core::Quota;
use tollgate_document::Problems;

use super::cover::covers;
use super::{LintedLimit, pairs};
use crate::lint::Lint;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    let mut reported = Vec::new();
    let is_meant = |it: &LintedLimit<'_>| it.is_enforced() && (holds_slots(it) || makes_wait(it));
    for ((at, slots), (_, queue)) in pairs(linted, is_meant) {
        let share_requests = covers(slots.live, queue.live) || covers(queue.live, slots.live);
        if !holds_slots(slots) || !makes_wait(queue) || !share_requests || reported.contains(&at) {
            continue;
        }
        reported.push(at);
        problems
            .warning(Lint::SlotsWhileQueued, slots.amount(), "requests hold these slots while they wait in a queue")
            .label("taken when a request arrives, not when it starts")
            .related(queue.amount(), "its requests wait after that")
            .help("count the requests that wait, too, or let requests wait for the slots instead: `queue` beside `slots`");
    }
}

fn holds_slots(limit: &LintedLimit<'_>) -> bool {
    limit.live.rules().iter().any(|rule| matches!(rule.quota, Quota::Concurrency(_)))
}

/// Whether a queue delays requests: not all of its places are free.
fn makes_wait(limit: &LintedLimit<'_>) -> bool {
    let delays = |quota: &Quota| match quota {
        Quota::Bucket(it) => it.queue().is_some_and(|queue| queue.free < queue.length),
        _ => false,
    };
    limit.live.rules().iter().any(|rule| delays(&rule.quota))
}
