//! Numbers of a queue without an effect.

use tollgate_core::{Bucket, Quota, Rule, Span};
use tollgate_document::Problems;

use super::LintedLimit;
use crate::limit::Allowance;
use crate::lint::Lint;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    for limit in linted {
        let Some(queue) = limit.written.queue.as_ref().map(|it| &it.value) else { continue };
        if let Some(free) = queue.free.filter(|it| it.value > queue.length.value) {
            problems
                .warning(Lint::IdleQueue, free.place, "more places are free than the queue has")
                .label(format!("`free: {}` is all of them", queue.length.value))
                .related(queue.length.place, "the length of the queue")
                .help("if no request is to wait, write the same number twice; else make `free` smaller");
        }
        let Some(wait) = queue.wait else { continue };
        let longest = buckets(limit).filter_map(longest_wait).max();
        if let Some(longest) = longest.filter(|longest| wait.value > *longest) {
            problems
                .warning(Lint::IdleQueue, wait.place, "no request waits that long")
                .label(format!("the last place waits {}", longest.human()))
                .related(queue.length.place, "the queue is full before")
                .help("remove `wait`, or make the queue longer");
        }
    }
}

/// Returns the buckets of the limit, its plans and its overrides.
fn buckets<'l>(limit: &LintedLimit<'l>) -> impl Iterator<Item = &'l Bucket> {
    let live = limit.live;
    let exceptions = live.plans().map(|(_, it)| it).chain(live.overrides().map(|(_, it)| it));
    let others = exceptions.filter_map(|it| match it {
        Allowance::Rules(rules) => Some(&rules[..]),
        Allowance::Unlimited | Allowance::Blocked => None,
    });
    let rules = std::iter::once(live.rules()).chain(others).flatten();
    rules.filter_map(|rule: &Rule| if let Quota::Bucket(it) = &rule.quota { Some(it) } else { None })
}

/// Returns the wait of the last place, if only the length bounds the queue.
fn longest_wait(bucket: &Bucket) -> Option<Span> {
    let queue = bucket.queue()?;
    let waiting = u128::from(queue.length.saturating_sub(queue.free));
    let ticks = (waiting * u128::from(bucket.grains_per_unit())).div_ceil(bucket.grains_per_tick().into());
    Some(Span::from_micros(u64::try_from(ticks).unwrap_or(u64::MAX)))
}
