//! Limits and windows that never refuse, because a narrower one always refuses first.

use std::collections::HashSet;

use tollgate_core::Rule;
use tollgate_document::Problems;

use super::cover::{counts_together, covers};
use super::promise::fires_first;
use super::{LintedLimit, pairs};
use crate::cost::Cost;
use crate::limit::{Allowance, Limit, Missing};
use crate::lint::Lint;

/// Reports limits that never fire, and returns their indices.
pub(super) fn find_lints(linted: &[LintedLimit<'_>], problems: &mut Problems) -> HashSet<usize> {
    let mut idle = HashSet::new();
    for ((first_at, first), (at, limit)) in pairs(linted, is_comparable) {
        if idle.contains(&at) || idle.contains(&first_at) || !is_idle_behind(first, limit) {
            continue;
        }
        // Of two equal limits, only the second one is reported.
        if first_at > at && is_idle_behind(limit, first) {
            continue;
        }
        idle.insert(at);
        problems
            .warning(Lint::NeverFires, limit.amount(), "this limit never refuses a request")
            .label(format!("`{}` always refuses first", first.live.name()))
            .related(first.amount(), format!("{} on the same requests", first.grants()))
            .help("remove it, or make it narrower than the other");
    }
    for (at, limit) in linted.iter().enumerate().filter(|(_, it)| is_comparable(it)) {
        if !idle.contains(&at) {
            windows(limit, problems);
        }
    }
    idle
}

/// Reports windows of one limit that never fire because of another window of the same limit.
fn windows(limit: &LintedLimit<'_>, problems: &mut Problems) {
    let Some(rates) = &limit.written.windows else { return };
    let sets: Vec<&[Rule]> = rule_sets(limit.live).collect();
    let behind = |first: usize, at: usize| {
        sets.iter().all(|set| match (set.get(first), set.get(at)) {
            (Some(first), Some(window)) => fires_first(&first.quota, &window.quota),
            _ => false,
        })
    };
    for (at, rate) in rates.value.iter().enumerate() {
        let others = (0..rates.value.len()).filter(|first| *first != at);
        let found = others.into_iter().find(|&first| behind(first, at) && (first < at || !behind(at, first)));
        let Some((first, rule)) =
            found.and_then(|it| Some((rates.value.get(it)?, limit.live.rules().get(it)?)))
        else {
            continue;
        };
        problems
            .warning(Lint::NeverFires, rate.place, "this window never refuses a request")
            .label("it admits everything that the other window admits")
            .related(first.place, format!("{} always refuses first", rule.quota))
            .help("remove it, or make it narrower than the other");
    }
}

/// Whether the limit's numbers describe it fully: it counts admitted requests at one cost.
fn is_comparable(limit: &LintedLimit<'_>) -> bool {
    limit.is_enforced()
        && matches!(limit.live.cost(), Cost::Fixed(_))
        && limit.live.settle().is_none()
        && limit.live.ahead().is_none()
        // A learned number of slots has no bound in advance.
        && limit.live.adaptive().is_none()
        // The number of parts of a sliding window affects the proof, not the bound.
        && limit.written.parts.is_none_or(|it| it.value == 1)
        && limit.written.strict.is_none_or(|it| !it.value)
        && !limit.live.count_denied()
}

/// Whether `first` refuses every request that `limit` would refuse.
fn is_idle_behind(first: &LintedLimit<'_>, limit: &LintedLimit<'_>) -> bool {
    let (first, limit) = (first.live, limit.live);
    let refuses_uncounted = |allowance: &Allowance| *allowance == Allowance::Blocked;
    let grants_more = |allowance: &Allowance| *allowance == Allowance::Unlimited;
    counts_together(first, limit)
        && first.cost() == limit.cost()
        && first.on_outage() == limit.on_outage()
        && limit.missing() != Missing::Refuse
        && !exceptions(limit).any(refuses_uncounted)
        && !exceptions(first).any(grants_more)
        && covers(first, limit)
        && rule_sets(first).all(|narrow| rule_sets(limit).all(|wide| all_behind(narrow, wide)))
}

fn all_behind(narrow: &[Rule], wide: &[Rule]) -> bool {
    wide.iter().all(|wide| narrow.iter().any(|narrow| fires_first(&narrow.quota, &wide.quota)))
}

fn exceptions(limit: &Limit) -> impl Iterator<Item = &Allowance> {
    limit.plans().map(|(_, it)| it).chain(limit.overrides().map(|(_, it)| it))
}

/// Returns the limit's own rules, and the rules of plans and overrides.
fn rule_sets(limit: &Limit) -> impl Iterator<Item = &[Rule]> {
    let others = exceptions(limit).filter_map(|it| match it {
        Allowance::Rules(rules) => Some(&rules[..]),
        Allowance::Unlimited | Allowance::Blocked => None,
    });
    std::iter::once(limit.rules()).chain(others)
}
