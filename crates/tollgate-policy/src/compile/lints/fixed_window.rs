//! A fixed window without a second limit that bounds bursts at its border.
//!
//! A shorter window bounds such a burst, and so does a window of another algorithm that grants
//! no more. A short and a long window that belong together are both bounded.

use tollgate_core::{Quota, Rule};
use tollgate_document::{Located, Problems};

use super::cover::{counts_together, covers};
use super::promise::{is_slower, pace};
use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::file_format::limit::{Algorithm, Align};
use crate::lint::Lint;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) {
    for limit in linted.iter().filter(|it| it.is_on()).take(MAX_COMPARED_PAIRS / linted.len().max(1)) {
        let Some(algorithm) = fixed(limit).filter(|_| is_alone(limit, linted)) else { continue };
        problems
            .warning(
                Lint::FixedWindowAlone,
                algorithm.place,
                "a fixed window admits up to twice its rate around its border",
            )
            .label("the end of one window and the start of the next")
            .help("`algorithm: sliding-window` with `strict: true` never does; or add a shorter limit beside it");
    }
}

fn fixed(limit: &LintedLimit<'_>) -> Option<Located<Algorithm>> {
    let is_calendar = limit.written.align.is_some_and(|align| align.value == Align::Calendar);
    limit.written.algorithm.filter(|it| it.value == Algorithm::FixedWindow && !is_calendar)
}

/// Whether no other window, in this limit or another, bounds a window of the limit.
fn is_alone(limit: &LintedLimit<'_>, linted: &[LintedLimit<'_>]) -> bool {
    let own = limit.live.rules();
    let has_own = |window: &Rule| own.iter().any(|rule| is_beside(rule, window));
    let left: Vec<&Rule> = own.iter().filter(|window| !has_own(window)).collect();
    left.into_iter().any(|window| {
        !linted.iter().filter(|it| !std::ptr::eq(*it, limit) && it.is_enforced()).any(|other| {
            other.live.rules().iter().any(|rule| is_beside(rule, window)) && counts_the_same(other, limit)
        })
    })
}

/// Whether the other limit counts all requests of this limit, in the same units and under one key.
fn counts_the_same(other: &LintedLimit<'_>, limit: &LintedLimit<'_>) -> bool {
    other.live.cost() == limit.live.cost()
        && other.live.settle() == limit.live.settle()
        && counts_together(other.live, limit.live)
        && covers(other.live, limit.live)
}

/// Whether a rule bounds bursts at the border of a window, or the window is the shorter of the
/// two.
fn is_beside(rule: &Rule, window: &Rule) -> bool {
    if pace(rule).is_none() {
        return false;
    }
    let (rule_alone, window_alone) = (std::slice::from_ref(rule), std::slice::from_ref(window));
    let (length, window_length) = (rule.quota.period(), window.quota.period());
    let (count, window_count) = (rule.quota.capacity(), window.quota.capacity());
    let is_shorter = length < window_length && count < window_count;
    let is_no_wider = !matches!(rule.quota, Quota::FixedWindow(_))
        && count <= window_count
        && !is_slower(window_alone, rule_alone);
    let is_longer = length > window_length && is_slower(rule_alone, window_alone);
    is_shorter || is_no_wider || is_longer
}
