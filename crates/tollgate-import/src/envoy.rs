//! Imports files of envoyproxy/ratelimit as limits on descriptors.
//!
//! In those files a descriptor has one limit, and a named value takes precedence over a pattern
//! and over the bare key. In a policy every matching limit applies. If a single entry is open,
//! the values with their own descriptor become `overrides`, and both decide alike.
//! Elsewhere a comment describes the difference.
//!
//! `tollgate_envoy` reads the files and serves them as they are, `output` writes
//! YAML.

mod precedence;

use std::collections::HashSet;

use tollgate_document::{Diagnostic, Diagnostics};
use tollgate_envoy::{Allowance, Descriptor, EnvoyConfig, EnvoyFile, RateLimit, Unit};

use crate::ImportedPolicy;
use crate::output::{LimitDraft, Output, quoted, scalar};
use precedence::{Level, Shadows};

/// Imports files of envoyproxy/ratelimit as one policy. With `merge`, several files may define one
/// domain. Returns all mistakes in each file otherwise.
///
/// ```
/// # use tollgate_envoy::EnvoyFile;
/// let text = "
/// domain: shop
/// descriptors:
///   - key: plan
///     value: gold
///     descriptors:
///       - {key: user, rate_limit: {unit: minute, requests_per_unit: 600}}
/// ";
/// let file = EnvoyFile { name: "shop.yaml".into(), text: text.into() };
/// let imported = tollgate_import::envoy(&[file], false).unwrap();
/// assert!(imported.policy.contains("descriptor: [plan=gold, user]"));
/// assert!(tollgate::Policy::parse(&imported.policy).is_ok());
/// ```
pub fn envoy(files: &[EnvoyFile], merge: bool) -> Result<ImportedPolicy, Vec<(String, Diagnostics)>> {
    let config = EnvoyConfig::read(files, merge).map_err(reworded)?;
    let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
    let mut out = Output::new("envoy", &names.join(", "));
    out.note(
        "Serve it with `tollgate serve --config THIS`, and let Envoy ask its rate limit service instead. To \
         serve the files as they are, with nothing that differs: `tollgate serve --envoy-config DIR`.",
    );
    out.note(
        "Every limit that fits a descriptor applies, and all descriptors of a request are decided as one. There, \
         each descriptor has one limit: a named value goes before a pattern, and a pattern before the bare key.",
    );
    out.note(
        "Refused requests are counted by all their limits, as there. A question that costs nothing (`hits_addend: 0`) \
         is refused here when nothing is left; there, only when more than the limit was counted.",
    );
    for domain in config.domains() {
        let mut importer = Importer { domain: &domain.name, replaced: HashSet::new(), out: &mut out };
        importer.collect_replaced(&domain.descriptors);
        importer.level(&domain.descriptors, &mut Vec::new());
    }
    Ok(out.finish())
}

/// Replaces advice for the server, which reads a folder, by advice for this command.
fn reworded(mistakes: Vec<(String, Diagnostics)>) -> Vec<(String, Diagnostics)> {
    let reword = |mistake: &mut Diagnostic| {
        for help in mistake.help.iter_mut().filter(|help| help.contains("merge_domains")) {
            "combine them, or enable merging: `--merge`".clone_into(help);
        }
    };
    mistakes.into_iter().map(|(file, mistakes)| (file, mistakes.reworded(reword))).collect()
}

struct Importer<'c> {
    domain: &'c str,
    /// Names that some limit of the domain replaces.
    replaced: HashSet<&'c str>,
    out: &'c mut Output,
}

impl<'c> Importer<'c> {
    fn collect_replaced(&mut self, descriptors: &'c [Descriptor]) {
        for descriptor in descriptors {
            let limits = descriptor.rate_limit.iter().flat_map(|limit| &limit.replaces);
            self.replaced.extend(limits.map(|name| name.value.as_str()));
            self.collect_replaced(&descriptor.descriptors);
        }
    }

    /// Imports one level of the tree and the levels below. The depth of the file bounds the recursion.
    fn level(&mut self, siblings: &'c [Descriptor], path: &mut Vec<Level<'c>>) {
        for at in 0..siblings.len() {
            let here = Level { siblings, at };
            path.push(here);
            if let Some(limit) = &here.descriptor().rate_limit {
                self.limit(limit, path);
            }
            self.level(&here.descriptor().descriptors, path);
            path.pop();
        }
    }

    fn limit(&mut self, limit: &RateLimit, path: &[Level<'_>]) {
        let entries: Vec<_> = path.iter().map(|level| entry(level.descriptor())).collect();
        let origin = format!("domain {}: {}", quoted(self.domain), quoted(&entries.join(", ")));
        let Allowance::Requests { per_unit, unit } = limit.allowed else {
            self.out.note(format!("Unlimited, in {origin}: no limit is needed for that."));
            return;
        };
        let derived = || {
            let steps = path.iter().map(|level| level.descriptor().composite());
            std::iter::once(self.domain.to_owned()).chain(steps).collect::<Vec<_>>().join(".")
        };
        let mut draft = LimitDraft::new(&limit.name.clone().unwrap_or_else(derived));
        draft.comment(format!("From {origin}."));
        draft.always_list("descriptor", &entries).word("domain", self.domain);
        if let Some(odd) = path.iter().find(|level| level.descriptor().key.value.contains('=')) {
            let key = quoted(&odd.descriptor().key.value);
            draft.hindered(format!("the key {key} holds a `=`, which ends a key here"));
        }
        if per_unit == 0 {
            nothing_passes(unit, path, &mut draft);
        } else {
            grant(per_unit, unit, path, &mut draft);
        }
        self.rest(limit, path, &mut draft);
        self.out.limit(draft);
    }

    /// Adds comments on words that a policy does not have.
    fn rest(&self, limit: &RateLimit, path: &[Level<'_>], draft: &mut LimitDraft) {
        let Some(last) = path.last().map(Level::descriptor) else { return };
        if last.shadow_mode {
            draft.plain("mode", "shadow");
        }
        if !limit.replaces.is_empty() {
            let names: Vec<_> = limit.replaces.iter().map(|name| quoted(&name.value)).collect();
            draft.comment(format!(
                "`replaces`: there, {} is not asked when a request meets both; here both apply, and the \
                 stricter decides.",
                names.join(", "),
            ));
        }
        if let Some(name) = limit.name.as_deref().filter(|name| self.replaced.contains(name)) {
            draft.comment(format!(
                "`replaces`: in the file, other limits replace {}; here it applies beside them.",
                quoted(name)
            ));
        }
        if last.quota_mode {
            draft.comment(
                "`quota_mode`: there, it refuses only together with all other quotas of a request; here it \
                 refuses alone.",
            );
        }
        if last.detailed_metric || path.iter().any(|level| level.descriptor().value_to_metric) {
            draft.comment(
                "`detailed_metric`, `value_to_metric`: metrics here are by limit; `/v1/top` lists \
                 the keys that use most of it.",
            );
        }
        if last.metadata.is_some() {
            draft.comment("`metadata` is not passed to the proxy.");
        }
    }
}

/// Formats `user`, `plan=gold` or `path=/v1/*`.
fn entry(descriptor: &Descriptor) -> String {
    let key = &descriptor.key.value;
    descriptor.value.as_ref().map_or_else(|| key.clone(), |value| format!("{key}={value}"))
}

/// Whether more than one value fits.
fn is_open(descriptor: &Descriptor) -> bool {
    descriptor.value.is_none() || descriptor.is_wildcard()
}

fn grant(per_unit: u32, unit: Unit, path: &[Level<'_>], draft: &mut LimitDraft) {
    let open: Vec<_> = path.iter().filter(|level| is_open(level.descriptor())).collect();
    let shared = path.iter().any(|level| level.descriptor().share_threshold);
    if shared {
        count_together(&open, path, draft);
    }
    draft
        .plain("rate", format!("{per_unit}/{}", length(unit)))
        .plain("algorithm", "fixed-window")
        .plain("count_denied", "true");
    let alone = open.len() == 1 && !shared;
    let mut exceptions = Vec::new();
    for level in open {
        let Shadows { values, patterns, unknown } = level.shadows();
        let key = &level.descriptor().key.value;
        if alone {
            exceptions.extend(values.iter().map(|value| {
                // A value that begins with `key=` would be parsed as key and value.
                let plain = !value.starts_with(&format!("{key}="));
                if plain { scalar(value) } else { scalar(&format!("{key}={value}")) }
            }));
        } else if !values.is_empty() {
            draft.comment(differs(key, &values));
        }
        if !patterns.is_empty() {
            draft.comment(differs(key, &patterns));
        }
        if unknown {
            draft.comment(format!(
                "In the file, this limit does not apply to values of {} with their own descriptors; here it does.",
                quoted(key),
            ));
        }
    }
    if !exceptions.is_empty() {
        draft.comment("The values under `overrides` have their own descriptors, so this limit does not apply to them, as in the file.");
        let list: Vec<_> = exceptions.iter().map(|value| format!("{value}: unlimited")).collect();
        draft.plain("overrides", format!("{{{}}}", list.join(", ")));
    }
}

/// The maximum number of values that a comment lists.
const MAX_LISTED_VALUES: usize = 10;

fn differs(key: &str, values: &[&str]) -> String {
    let mut list: Vec<_> = values.iter().take(MAX_LISTED_VALUES).map(|value| quoted(value)).collect();
    if values.len() > MAX_LISTED_VALUES {
        list.push(format!("{} more", values.len() - MAX_LISTED_VALUES));
    }
    format!(
        "In the file, {} with {} has its own descriptors, so this limit does not apply to it; here it does.",
        quoted(key),
        list.join(", "),
    )
}

/// Imports `share_threshold`: counts by the open entries that do not share.
fn count_together(open: &[&Level<'_>], path: &[Level<'_>], draft: &mut LimitDraft) {
    let mut by = Vec::new();
    for level in open.iter().filter(|level| !level.descriptor().share_threshold) {
        let key = &level.descriptor().key.value;
        if path.iter().filter(|other| other.descriptor().key.value == *key).count() > 1 {
            draft.hindered(format!("several entries are called {}, and one of them counts", quoted(key)));
        }
        by.push(format!("descriptor:{key}"));
    }
    match by.as_slice() {
        [] => draft.plain("by", "global"),
        _ => draft.list("by", &by),
    };
}

/// Formats a unit as part of a rate.
const fn length(unit: Unit) -> &'static str {
    if matches!(unit, Unit::Year) { "365d" } else { unit.name() }
}

/// Imports a limit of zero. A named value is blocked; other values get the smallest rate that a
/// limit can have. The limit is never omitted, because that would admit everything.
fn nothing_passes(unit: Unit, path: &[Level<'_>], draft: &mut LimitDraft) {
    let once = |key: &str| path.iter().filter(|level| level.descriptor().key.value == key).count() == 1;
    let named = path.iter().rev().map(Level::descriptor).find(|it| !is_open(it) && once(&it.key.value));
    let Some((key, value)) = named.and_then(|it| Some((&it.key.value, it.value.as_ref()?))) else {
        let shadows = path.iter().map(Level::shadows);
        let alone =
            shadows.into_iter().all(|it| it.values.is_empty() && it.patterns.is_empty() && !it.unknown);
        let whose = if alone { "in all" } else { "of each value" };
        draft.comment(format!(
            "ALMOST: `requests_per_unit: 0` admits nothing there. A limit cannot say that of values that are not \
             named: this one admits a single request in 365 days, {whose}."
        ));
        if alone {
            draft.plain("by", "global").plain("rate", "1/365d");
            draft.plain("algorithm", "fixed-window").plain("count_denied", "true");
        } else {
            grant(1, Unit::Year, path, draft);
        }
        return;
    };
    draft.comment("`requests_per_unit: 0`: nothing passes. The rate is never used.");
    draft.word("by", &format!("descriptor:{key}")).plain("rate", format!("1/{}", length(unit)));
    draft.plain("algorithm", "fixed-window").plain("overrides", format!("{{{}: blocked}}", scalar(value)));
}
