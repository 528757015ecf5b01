//! Two limits that count the same requests by the same key.

use std::collections::{HashMap, HashSet};

use super::LintedLimit;
use crate::diagnostic::Problems;
use crate::lint::Lint;

/// `idle`: limits of which it was said that they never fire, by their place. That says more.
pub(super) fn find_lints(limits: &[LintedLimit<'_>], idle: &HashSet<usize>, problems: &mut Problems) {
    let mut linted = HashMap::with_capacity(limits.len());
    for (at, LintedLimit { written: limit, live }) in limits.iter().enumerate() {
        if limit.by.is_empty() || idle.contains(&at) {
            continue;
        }
        let words = |items: Vec<String>| {
            let mut items = items;
            items.sort_unstable();
            items
        };
        let scope = (
            words(limit.endpoint.iter().map(|it| it.value.to_string()).collect()),
            words(limit.method.iter().map(|it| it.value.clone()).collect()),
            words(limit.host.iter().map(|it| it.value.to_string()).collect()),
            (
                limit.descriptor.as_ref().map(|it| it.value.clone()),
                words(limit.domain.iter().map(|it| it.value.to_string()).collect()),
            ),
            words(limit.headers.iter().map(|it| format!("{}={:?}", it.name, it.value)).collect()),
            limit.by.iter().map(|it| it.value.to_string()).collect::<Vec<_>>(),
            // Another algorithm has its reason, and so has a candidate in shadow mode.
            limit.algorithm.map(|it| it.value.word()),
            limit.mode.map(|it| it.value),
            limit.slots.is_some(),
            // So have requests beside tokens: what is counted are not the same units.
            (live.cost().to_string(), live.settle().map(ToString::to_string), live.count_denied()),
        );
        if let Some(first) = linted.insert(scope, limit.place) {
            problems
                .warning(
                    Lint::SameTwice,
                    limit.place,
                    "this limit counts the same requests by the same key as another",
                )
                .label("again here")
                .related(first, "first here")
                .help("one limit can hold several rates: windows: [10/second, 1000/hour]");
        }
    }
}
