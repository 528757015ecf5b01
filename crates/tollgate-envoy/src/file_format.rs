//! One file as written: its domain and the tree of its descriptors.
//!
//! `config` compares files with each other, `domains` looks up descriptors of requests.

mod rate_limit;

use std::collections::HashMap;

use tollgate::policy::Lint;
use tollgate_document::{Located, Node, Place, Problems};

use crate::metadata::Metadata;
use crate::section::{DESCRIPTOR, FILE, Fields, quoted};
pub use rate_limit::{Allowance, RateLimit};

/// The domain whose descriptors describe requests in Tollgate's own words.
pub const RESERVED_DOMAIN: &str = "tollgate";

/// A descriptor of a file: it matches one entry of a request.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "the format has as many switches")]
pub struct Descriptor {
    /// The key of the entry.
    pub key: Located<String>,
    /// The value, which may contain `*`; `None` matches any value.
    pub value: Option<String>,
    /// The limit of descriptors that end here.
    pub rate_limit: Option<RateLimit>,
    /// The descriptors for the next entry.
    pub descriptors: Vec<Self>,
    /// Whether the limit counts without refusing.
    pub shadow_mode: bool,
    /// Whether the limit refuses a request only if all other `quota_mode` limits of the request refuse.
    pub quota_mode: bool,
    /// Whether all values of the pattern share one counter.
    pub share_threshold: bool,
    /// Whether the metrics of the limit distinguish all values.
    pub detailed_metric: bool,
    /// Whether the metrics of limits from here on distinguish the values of this entry.
    pub value_to_metric: bool,
    /// Data that responses of the limit pass to the proxy.
    pub metadata: Option<Metadata>,
}

impl Descriptor {
    /// Whether the value is a pattern.
    pub fn is_wildcard(&self) -> bool {
        self.value.as_deref().is_some_and(|value| value.contains('*'))
    }

    /// Returns `key` or `key_value`, the name in metrics and messages of envoyproxy/ratelimit.
    pub fn composite(&self) -> String {
        composite(&self.key.value, self.value.as_deref())
    }
}

/// Returns `key` or `key_value`.
pub(crate) fn composite(key: &str, value: Option<&str>) -> String {
    value.map_or_else(|| key.to_owned(), |value| format!("{key}_{value}"))
}

/// Reads one file. `left` is the number of descriptors that may still follow in all files.
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
                .error(domain.place, format!("the domain `{RESERVED_DOMAIN}` is reserved"))
                .label("give it another name")
                .help("its descriptors describe a request in Tollgate's own words, and limits on paths apply to them");
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

/// Reads the descriptors of one level.
fn descriptors(fields: &Fields<'_>, left: &mut usize, problems: &mut Problems) -> Vec<Descriptor> {
    let mut seen: HashMap<(String, Option<String>), Place> = HashMap::new();
    let mut all = Vec::new();
    for node in fields.list("descriptors", "descriptors, each with a `key`", problems) {
        let Some(rest) = left.checked_sub(1) else {
            problems
                .error(node.place, "the files hold too many descriptors")
                .label("the maximum is exceeded here");
            return all;
        };
        *left = rest;
        let Some(descriptor) = descriptor(node, left, problems) else { continue };
        let id = (descriptor.key.value.clone(), descriptor.value.clone());
        if let Some(first) = seen.get(&id) {
            problems
                .error(
                    // The target of an alias is written once, so the report points at the alias.
                    if descriptor.key.place == *first { node.place } else { descriptor.key.place },
                    format!("{} is written twice", shown(&descriptor)),
                )
                .label("again here")
                .related(*first, "first here")
                .help("combine both in one of them");
            continue;
        }
        seen.insert(id, descriptor.key.place);
        all.push(descriptor);
    }
    all
}

/// Formats `` key `plan` with value `gold` ``, short enough for a message.
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
            .warning(Lint::EnvoyStarInKey, key.place, "`*` in a key is not a wildcard")
            .help("only in a `value` it matches any characters");
    }
    let value = fields.text("value", problems);
    let rate_limit =
        fields.entry("rate_limit").and_then(|it| rate_limit::read(&it.value, it.name.place, problems));
    let share_threshold = fields.flag("share_threshold", problems) == Some(true);
    if share_threshold && !value.as_ref().is_some_and(|value| value.value.contains('*')) {
        let problem = problems
            .error(fields.place_of("share_threshold"), "`share_threshold` needs a `value` with `*` in it");
        match &value {
            Some(_) => problem.label("this is a single value with its own counter"),
            None => problem.label("without a `value`, each value has its own counter"),
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
                        format!("`{word}` has no effect without a `rate_limit` beside it"),
                    )
                    .help("it applies to the limit of this descriptor, not to those below it");
            }
        }
    }
    let metadata = fields.get("metadata").and_then(|node| {
        node.entries("`metadata`", problems)?;
        Some(Metadata::of(node))
    });
    let descriptors = descriptors(&fields, left, problems);
    // Other values were reported, and the file is refused.
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
