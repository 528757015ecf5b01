//! Lints on redundant endpoints, and on limits that no request matches.

use tollgate_document::Problems;

use super::{LintedLimit, MAX_COMPARED_PAIRS};
use crate::file_format::File;
use crate::file_format::lists::Entry;
use crate::limit::HeaderMatch;
use crate::lint::Lint;
use crate::lists::Condition;
use crate::pattern::PathPattern;
use crate::source::KeySource;

pub(super) fn find_lints(linted: &[LintedLimit<'_>], file: &File, problems: &mut Problems) {
    for limit in linted {
        shadowed(limit, problems);
        contradicting(limit, problems);
        passed_by(limit, &file.allow, problems);
    }
}

/// Reports an endpoint that another endpoint of the same list covers.
fn shadowed(limit: &LintedLimit<'_>, problems: &mut Problems) {
    // If a segment is part of the key, the pattern that names the segment matters.
    if limit.live.by().iter().any(|part| part.path_parameter().is_some()) {
        return;
    }
    let all = &limit.written.endpoint;
    let looked_at = MAX_COMPARED_PAIRS / all.len().max(1);
    for (at, endpoint) in all.iter().enumerate().take(looked_at) {
        let covering = all.iter().enumerate().find(|(other_at, other)| {
            *other_at != at
                && other.value.covers_all_of(&endpoint.value)
                && (*other_at < at || !endpoint.value.covers_all_of(&other.value))
        });
        let Some((_, other)) = covering else { continue };
        problems
            .warning(Lint::ShadowedEndpoint, endpoint.place, "this endpoint is redundant")
            .label(format!("`{}` covers it", other.value))
            .related(other.place, "this one")
            .help("remove it, or write a separate limit for it");
    }
}

/// Reports one header that must have two values.
fn contradicting(limit: &LintedLimit<'_>, problems: &mut Problems) {
    let headers = limit.live.headers();
    let differ = |a: &HeaderMatch, b: &HeaderMatch| {
        a.name == b.name && a.value.is_some() && b.value.is_some() && a.value != b.value
    };
    let found =
        headers.iter().enumerate().find(|(at, one)| headers[..*at].iter().any(|other| differ(one, other)));
    if let Some((_, header)) = found {
        problems
            .warning(Lint::MatchesNothing, limit.written.place, "no request matches this limit")
            .label(format!("`{}` would need two values at once", header.name))
            .help("header names are case-insensitive; for either value write two limits");
    }
}

/// Reports a limit whose requests all match an entry of `allow`.
fn passed_by(limit: &LintedLimit<'_>, allow: &[Entry], problems: &mut Problems) {
    let lets_pass = |wanted: &HeaderMatch, entry: &Entry| match &entry.conditions[..] {
        [Condition::Present(KeySource::Header(name))] => *name == wanted.name,
        [Condition::Value(KeySource::Header(name), values)] => {
            let value = wanted.value.as_ref();
            *name == wanted.name
                && value.is_some_and(|it| values.iter().any(|known| **known == *it.as_bytes()))
        }
        _ => false,
    };
    let lets_all_pass = |entry: &&Entry| match &entry.conditions[..] {
        [Condition::Endpoint(patterns)] if limit.live.descriptor().is_none() => {
            let passes = |it: &PathPattern| patterns.iter().any(|wide| wide.covers_all_of(it));
            limit.live.endpoints().iter().all(passes)
        }
        _ => false,
    };
    if let Some(entry) = allow.iter().find(lets_all_pass) {
        problems
            .warning(Lint::MatchesNothing, limit.written.place, "no request matches this limit")
            .label("every request to its endpoints passes all limits")
            .related(entry.place, "by this entry of `allow`")
            .help("`allow` takes precedence over all limits: remove one of the two");
        return;
    }
    for wanted in limit.live.headers() {
        let Some(entry) = allow.iter().find(|entry| lets_pass(wanted, entry)) else { continue };
        problems
            .warning(Lint::MatchesNothing, limit.written.place, "no request matches this limit")
            .label(format!(
                "it requires `{}`, and every request with that header passes all limits",
                wanted.name
            ))
            .related(entry.place, "by this entry of `allow`")
            .help("`allow` takes precedence over all limits: remove one of the two");
        return;
    }
}
