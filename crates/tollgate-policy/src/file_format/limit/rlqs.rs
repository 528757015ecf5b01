//! The buckets of a limit that a quota service divides: `rlqs: {domain: edge, bucket: {name: search}}`.

use tollgate_document::{Fields, Kind, Located, Node, Problems, Words, short};

use super::values::parsed;
use crate::bucket_pattern::BucketPattern;
use crate::descriptor::domain;

pub(crate) const WORDS: Words = Words {
    section: "`rlqs`",
    known: &["domain", "bucket"],
    synonyms: &[("bucket", &["bucket_id", "entries", "id", "buckets"]), ("domain", &["domains"])],
};

/// The words that a limit may have beside `rlqs`.
const COMPANIONS: [&str; 8] = ["name", "rlqs", "bucket", "rate", "algorithm", "mode", "on_outage", "expect"];
/// The algorithms that a proxy can apply.
const ALGORITHMS: [&str; 2] = ["token-bucket", "gcra"];
/// The maximum number of entries of a bucket.
const MAX_ENTRIES: usize = 16;
/// The maximum length of a key or a value, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// Reads `rlqs`, and reports the words that cannot stand beside it.
pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> Option<Located<BucketPattern>> {
    let entry = fields.entry("rlqs")?;
    for word in super::WORDS.known.iter().filter(|word| !COMPANIONS.contains(word)) {
        let Some(beside) = fields.entry(word) else { continue };
        problems
            .error(beside.name.place, format!("`{word}` cannot be combined with `rlqs`"))
            .label("remove this")
            .related(entry.name.place, "proxies count the requests of these buckets by themselves")
            .help(match *word {
                "by" => "every distinct bucket id has a budget of its own: `tenant: \"*\"` in `bucket` is any value",
                "slots" | "queue" => "a proxy can apply a rate, not a number of concurrent requests: use `descriptor` with `slots`",
                "cost" => "a proxy counts every request as one: use `descriptor` for costs",
                "windows" => "a bucket has one assignment: write one `rate`",
                _ => "a limit with `rlqs` has a `rate`, and may have `name`, `algorithm`, `mode`, `on_outage` and `expect`",
            });
    }
    if let Some(node) = fields.get("algorithm")
        && let Some(text) = node.text().filter(|text| !ALGORITHMS.contains(text))
    {
        problems
            .error(node.place, format!("a proxy cannot apply `{}`", short(text)))
            .label("`token-bucket` or `gcra`")
            .related(entry.name.place, "proxies count the requests of these buckets by themselves")
            .help("remove the line: the rate is divided into token buckets");
    }
    read_pattern(&entry.value, problems)
}

fn read_pattern(node: &Node, problems: &mut Problems) -> Option<Located<BucketPattern>> {
    if !matches!(node.kind, Kind::Map(_)) {
        problems
            .error(node.place, format!("`rlqs` cannot be {}", node.describe()))
            .label("a domain and a bucket")
            .help("rlqs: {domain: edge, bucket: {name: search, tenant: \"*\"}}");
        return None;
    }
    let fields = node.fields(&WORDS, problems)?;
    for (word, help) in [
        ("domain", "`domain` is that of the filter `rate_limit_quota` in Envoy"),
        ("bucket", "`bucket` has the entries of `bucket_id_builder` in Envoy: {name: search, tenant: \"*\"}"),
    ] {
        if !fields.mentions(word) {
            problems.error(node.place, format!("`rlqs` has no `{word}`")).label("add it").help(help);
        }
    }
    let domain = fields.get("domain").and_then(|it| parsed(it, "`domain`", domain, problems));
    let entries = fields.get("bucket").and_then(|it| read_entries(it, problems));
    let pattern = BucketPattern { domain: domain?.value, entries: entries? };
    Some(Located::new(pattern, node.place))
}

type Entries = Vec<(Box<str>, Option<Box<str>>)>;

fn read_entries(node: &Node, problems: &mut Problems) -> Option<Entries> {
    let Kind::Map(entries) = &node.kind else {
        problems
            .error(node.place, format!("`bucket` of `rlqs` cannot be {}", node.describe()))
            .label("a map of entries")
            .help("bucket: {name: search, tenant: \"*\"}");
        return None;
    };
    if entries.is_empty() || entries.len() > MAX_ENTRIES {
        problems
            .error(node.place, format!("`bucket` has one to {MAX_ENTRIES} entries"))
            .label(format!("{} here", entries.len()));
        return None;
    }
    let mut found: Entries = Vec::with_capacity(entries.len());
    let mut is_valid = true;
    for entry in entries {
        let key = &entry.name.value;
        let value = entry.value.text();
        let is_text = |text: &str| (1..=MAX_TEXT_BYTES).contains(&text.len());
        match value {
            Some(value) if is_text(key) && is_text(value) => {
                found.push((key.as_str().into(), (value != "*").then(|| value.into())));
            }
            _ => {
                is_valid = false;
                problems
                    .error(entry.value.place, format!("the entry `{}` needs a value", short(key)))
                    .label(format!("a text of 1 to {MAX_TEXT_BYTES} bytes, or `\"*\"` for any"));
            }
        }
    }
    found.sort_unstable();
    is_valid.then_some(found)
}
