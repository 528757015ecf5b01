//! Two limits that count the same requests by the same key.

use std::collections::{HashMap, HashSet};

use tollgate_document::Problems;

use super::LintedLimit;
use crate::lint::Lint;

/// Reports pairs. `idle` are the indices of limits that were reported never to fire, which is
/// the stronger finding.
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
            // A different algorithm is intended, and so is a candidate in shadow mode.
            limit.algorithm.map(|it| it.value.word()),
            limit.mode.map(|it| it.value),
            limit.slots.is_some(),
            // So is a limit on requests beside one on tokens: the units differ.
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
