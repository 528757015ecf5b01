//! One file as it was written: its domain and the tree of its descriptors.
//!
//! Not here: what two files have to do with each other (`config`), how descriptors
//! of requests find their limit (`domains`).

mod rate_limit;

use std::collections::HashMap;

use tollgate::policy::{Lint, Located, Node, Place, Problems};

use crate::metadata::Metadata;
use crate::section::{DESCRIPTOR, FILE, Fields, quoted};
pub use rate_limit::{Allowance, RateLimit};

/// This domain means requests in Tollgate's own words, and not descriptors.
const RESERVED_DOMAIN: &str = "tollgate";

/// What a request's entry must be, and what follows from it.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "the format has as many switches")]
pub struct Descriptor {
    /// The key of the entry.
    pub key: Located<String>,
    /// Its value, perhaps with `*` in it; none: any value.
    pub value: Option<String>,
    /// The limit on descriptors that end here.
    pub rate_limit: Option<RateLimit>,
    /// What the next entry may be.
    pub descriptors: Vec<Self>,
    /// Whether the limit only counts, and refuses nothing.
    pub shadow_mode: bool,
    /// Whether the limit refuses a request only together with all others of its kind.
    pub quota_mode: bool,
    /// Whether all values of the pattern share one counter.
    pub share_threshold: bool,
    /// Whether the metrics of the limit tell all values apart.
    pub detailed_metric: bool,
    /// Whether the metrics of limits from here on tell the values of this entry apart.
    pub value_to_metric: bool,
    /// What is handed to the proxy with answers of the limit.
    pub metadata: Option<Metadata>,
}

impl Descriptor {
    /// Whether its value is a pattern.
    pub fn is_wildcard(&self) -> bool {
        self.value.as_deref().is_some_and(|value| value.contains('*'))
    }

    /// `key` or `key_value`, as metrics and messages of envoyproxy/ratelimit call it.
    pub fn composite(&self) -> String {
        composite(&self.key.value, self.value.as_deref())
    }
}

/// `key` or `key_value`.
pub(crate) fn composite(key: &str, value: Option<&str>) -> String {
    value.map_or_else(|| key.to_owned(), |value| format!("{key}_{value}"))
}

/// Reads one file. `left` is how many more descriptors all files may hold.
pub(crate) fn read(
    root: &Node,
    left: &mut usize,
    problems: &mut Problems,
) -> Option<(Located<String>, Vec<Descriptor>)> {
    let fields = FILE.read(root, problems)?;
    let domain = fields.text("domain", problems);
    match &domain {
        Some(domain) if domain.value == RESERVED_DOMAIN => {
            problems
                .error(domain.place, format!("the domain `{RESERVED_DOMAIN}` is taken"))
                .label("give it another name")
                .help("its descriptors describe a request in Tollgate's own words, and meet the limits on paths");
        }
        None if fields.lacks("domain") => {
            problems
                .error(fields.place_of("domain"), "the file has no `domain`")
                .help("write `domain: NAME`, with the name that the proxy sends");
        }
        _ => {}
    }
    let descriptors = descriptors(&fields, left, problems);
    Some((domain?, descriptors))
}

/// The descriptors of one level.
fn descriptors(fields: &Fields<'_>, left: &mut usize, problems: &mut Problems) -> Vec<Descriptor> {
    let mut seen: HashMap<(String, Option<String>), Place> = HashMap::new();
    let mut all = Vec::new();
    for node in fields.list("descriptors", "descriptors, each with a `key`", problems) {
        let Some(rest) = left.checked_sub(1) else {
            problems
                .error(node.place, "the files hold too many descriptors")
                .label("from here on it is too much");
            return all;
        };
        *left = rest;
        let Some(descriptor) = descriptor(node, left, problems) else { continue };
        let id = (descriptor.key.value.clone(), descriptor.value.clone());
        if let Some(first) = seen.get(&id) {
            problems
                .error(
                    // What an alias stands for is written once; the alias itself is what is too much.
                    if descriptor.key.place == *first { node.place } else { descriptor.key.place },
                    format!("{} is written twice", shown(&descriptor)),
                )
                .label("again here")
                .related(*first, "first here")
                .help("put what both say under one of them");
            continue;
        }
        seen.insert(id, descriptor.key.place);
        all.push(descriptor);
    }
    all
}

/// `` key `plan` with value `gold` ``, short enough for a message.
pub(crate) fn shown(descriptor: &Descriptor) -> String {
    let key = quoted(&descriptor.key.value);
    match &descriptor.value {
        Some(value) => format!("the key {key} with the value {}", quoted(value)),
        None => format!("the key {key} without a value"),
    }
}

fn descriptor(node: &Node, left: &mut usize, problems: &mut Problems) -> Option<Descriptor> {
    let fields = DESCRIPTOR.read(node, problems)?;
    let key = fields.text("key", problems);
    if key.is_none() && fields.lacks("key") {
        problems
            .error(fields.place_of("key"), "a descriptor has no `key`")
            .help("write `key: NAME`, with the key of the entry that the proxy sends");
    }
    if let Some(key) = key.as_ref().filter(|key| key.value.contains('*')) {
        problems
            .warning(Lint::EnvoyStarInKey, key.place, "`*` in a key is a character like any other")
            .help("only in a `value` it stands for any characters");
    }
    let value = fields.text("value", problems);
    let rate_limit =
        fields.entry("rate_limit").and_then(|it| rate_limit::read(&it.value, it.name.place, problems));
    let share_threshold = fields.flag("share_threshold", problems) == Some(true);
    if share_threshold && !value.as_ref().is_some_and(|value| value.value.contains('*')) {
        let problem = problems
            .error(fields.place_of("share_threshold"), "`share_threshold` needs a `value` with `*` in it");
        match &value {
            Some(_) => problem.label("this value is one alone, and shares with nobody"),
            None => problem.label("without a `value`, each has a counter of its own"),
        };
        problem.help("to count all values together, write `value: \"*\"` beside it");
    }
    if rate_limit.is_none() && fields.lacks("rate_limit") {
        for word in ["shadow_mode", "quota_mode", "detailed_metric", "metadata"] {
            if fields.entry(word).is_some() {
                problems
                    .warning(
                        Lint::EnvoyIdleWord,
                        fields.place_of(word),
                        format!("`{word}` does nothing without a `rate_limit` beside it"),
                    )
                    .help(
                        "it says something about the limit of this descriptor, and not about those below it",
                    );
            }
        }
    }
    let metadata = fields.get("metadata").and_then(|node| {
        node.entries("`metadata`", problems)?;
        Some(Metadata::of(node))
    });
    let descriptors = descriptors(&fields, left, problems);
    // What is neither true nor false was reported, and the file is refused.
    let mut is = |word| fields.flag(word, problems) == Some(true);
    let [shadow_mode, quota_mode] = ["shadow_mode", "quota_mode"].map(&mut is);
    let [detailed_metric, value_to_metric] = ["detailed_metric", "value_to_metric"].map(&mut is);
    Some(Descriptor {
        key: key?,
        value: value.map(|value| value.value),
        rate_limit,
        descriptors,
        shadow_mode,
        quota_mode,
        share_threshold,
        detailed_metric,
        value_to_metric,
        metadata,
    })
}
