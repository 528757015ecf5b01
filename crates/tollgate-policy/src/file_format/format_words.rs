//! The words of the policy file, which brief diagnostics show in full.

use std::collections::HashSet;
use std::sync::LazyLock;

use serde_json::Value;
use tollgate_document::rate_words;

use super::limit::METHODS;
use super::schema;
use crate::lint::Lint;

/// Words of Envoy's files, which are read with the same tools.
const ENVOY_WORDS: [&str; 16] = [
    "domain",
    "key",
    "value",
    "descriptors",
    "rate_limit",
    "unit",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

static WORDS: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let mut words: HashSet<String> = ENVOY_WORDS.into_iter().map(Into::into).collect();
    collect_words(&schema(), &mut words);
    // Words inside values, which the schema describes by patterns.
    let in_values = rate_words().chain(METHODS).chain(Lint::ALL.iter().map(|it| it.code()));
    words.extend(in_values.map(str::to_owned));
    words
});

/// Returns the words of the policy file and of Envoy's files. Any other text of such a file may be a
/// secret: [`Diagnostics::brief`](crate::Diagnostics::brief) shortens it.
pub fn format_words() -> &'static HashSet<String> {
    &WORDS
}

/// Collects every word of the schema: names of fields, and enumerated values.
fn collect_words(part: &Value, words: &mut HashSet<String>) {
    match part {
        Value::Object(members) => {
            for (name, member) in members {
                words.insert(name.clone());
                collect_words(member, words);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_words(item, words)),
        Value::String(text) if !text.contains(char::is_whitespace) => drop(words.insert(text.clone())),
        _ => {}
    }
}
