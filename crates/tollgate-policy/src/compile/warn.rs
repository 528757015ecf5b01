//! What works and is probably not meant.

use std::collections::{HashMap, HashSet};

use crate::diagnostic::Problems;
use crate::document::short;
use crate::lists::Condition;
use crate::source::KeySource;
use crate::written::File;
use crate::written::limit::{Algorithm, Align, Limit};
use crate::written::sections::Client;

pub(super) fn about_limits(file: &File, problems: &mut Problems) {
    fixed_windows_alone(&file.limits, problems);
    same_twice(&file.limits, problems);
    for limit in &file.limits {
        if let (Some(missing), [only]) = (&limit.missing, &limit.by[..])
            && matches!(only.value, KeySource::Global | KeySource::Descriptor)
        {
            problems
                .warning(missing.place, "`missing` does nothing here")
                .label(format!("`by: {}` is never missing", only.value))
                .help("remove the line");
        }
        odd_entries(limit, problems);
        if let Some(quota) = &limit.quota {
            let all = quota.value.saturating_add(1);
            problems
                .warning(quota.place, "a quota is charged when it is handed out, used or not")
                .label(format!("Envoy ignores it: each of its requests is charged {all}"))
                .help("keep it if your proxy uses quotas; else remove the line");
        }
    }
    if let Some(default) = file.plans.as_ref().and_then(|plans| plans.default.as_ref())
        && !file.limits.iter().flat_map(|limit| &limit.plans).any(|(name, _)| name.value == default.value)
    {
        problems
            .warning(default.place, format!("no limit has a plan `{}`", default.value))
            .label("callers without a plan get the limit's own amount")
            .help("write it under `plans` of a limit, or leave `default` out");
    }
    for entry in &file.allow {
        if let [Condition::Address(nets)] = &entry.conditions[..]
            && nets.iter().any(|net| net.prefix() == 0)
        {
            problems
                .warning(entry.place, "this entry lets everybody pass")
                .label("no limit applies any more");
        }
    }
}

pub(super) fn about_client(client: Option<&Client>, problems: &mut Problems) {
    let Some(client) = client else { return };
    if let Some(net) = client.trusted_proxies.iter().find(|net| net.value.prefix() == 0) {
        problems
            .warning(net.place, "every caller is trusted to say who it is")
            .label("anybody can make up an address per request, and pass every limit by ip")
            .help("list the addresses of your own proxies");
    }
    if let Some(prefix) = client.ipv6_prefix.filter(|prefix| prefix.value > 64) {
        problems
            .warning(prefix.place, "one customer owns at least a /64")
            .label("and so has many keys under a longer prefix")
            .help("64 is the default; 56 and 48 are common");
    }
}

/// A fixed window with nothing beside it.
fn fixed_windows_alone(limits: &[Limit], problems: &mut Problems) {
    let fixed = |limit: &Limit| {
        limit
            .algorithm
            .filter(|it| it.value == Algorithm::FixedWindow)
            .filter(|_| limit.align.is_none_or(|align| align.value != Align::Calendar))
    };
    let key = |limit: &Limit| -> Vec<String> { limit.by.iter().map(|it| it.value.to_string()).collect() };
    let beside: HashSet<_> = limits.iter().filter(|limit| fixed(limit).is_none()).map(key).collect();
    let alone = limits.iter().filter(|limit| !beside.contains(&key(limit))).filter_map(fixed);
    let places: Vec<_> = alone.map(|algorithm| algorithm.place).collect();
    // Once: an imported policy has hundreds of them.
    let Some((first, others)) = places.split_first() else { return };
    let problem = problems
        .warning(*first, "a fixed window admits up to twice its rate around its border")
        .label("the end of one window and the start of the next")
        .help("`sliding-window` does not, at the same price; or add a shorter limit beside it");
    match others {
        [] => {}
        [other] => drop(problem.help(format!("one more limit is such a window: line {}", other.line))),
        _ => {
            let lines: Vec<_> = others.iter().take(5).map(|it| it.line.to_string()).collect();
            let more = if others.len() > lines.len() { ", ..." } else { "" };
            problem.help(format!(
                "{} more limits are such windows: lines {}{more}",
                others.len(),
                lines.join(", ")
            ));
        }
    }
}

/// `plan:gold` is a key without a value, and one that proxies hardly send.
fn odd_entries(limit: &Limit, problems: &mut Problems) {
    let Some(descriptor) = &limit.descriptor else { return };
    for entry in descriptor.value.entries() {
        if let (Some((key, value)), None) = (entry.key().split_once(':'), entry.written()) {
            problems
                .warning(descriptor.place, format!("the entry `{}` may never come", short(entry.key())))
                .label(format!("did you mean `{}`?", short(&format!("{key}={}", value.trim()))))
                .help("the value of an entry stands behind a `=`");
        }
    }
}

/// Two limits that count the same requests by the same key.
fn same_twice(limits: &[Limit], problems: &mut Problems) {
    let mut seen = HashMap::with_capacity(limits.len());
    for limit in limits {
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
        );
        if limit.by.is_empty() {
            continue;
        }
        if let Some(first) = seen.insert(scope, limit.place) {
            problems
                .warning(limit.place, "this limit counts the same requests by the same key as another")
                .label("again here")
                .related(first, "first here")
                .help("one limit can hold several rates: windows: [10/second, 1000/hour]");
        }
    }
}
