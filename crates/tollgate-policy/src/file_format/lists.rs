//! `allow` and `deny` as written.

#[cfg(feature = "schema")]
use schemars::JsonSchema;

use tollgate_document::{Kind, Located, Node, Place, Problems, short};

use super::limit::patterns;
use super::sections;
use crate::lists::{Condition, ListEntry};
use crate::net::Net;
use crate::source::KeySource;

/// Conditions on a request, all of which must hold: `ip`, `endpoint`, `user`, `api_key`, `tenant`,
/// `header:NAME` and so on, each with a value or a list of values.
#[cfg(feature = "schema")]
#[derive(JsonSchema)]
#[schemars(rename = "ListEntry", transparent)]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct EntrySchema(std::collections::BTreeMap<String, super::OneOrMany<String>>);

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) place: Place,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) meaning: ListEntry,
}

pub(super) fn read(what: &str, node: &Node, problems: &mut Problems) -> Vec<Entry> {
    let Kind::List(items) = &node.kind else {
        problems
            .error(node.place, format!("{what} is a list, not {}", node.describe()))
            .label("begin each entry with `- `")
            .help("an entry looks like `- ip: 10.0.0.0/8` or `- api_key: [one, two]`");
        return Vec::new();
    };
    items.iter().filter_map(|item| entry(what, item, problems)).collect()
}

fn entry(what: &str, node: &Node, problems: &mut Problems) -> Option<Entry> {
    if let Some(text) = node.text() {
        let name = if Net::parse(text).is_ok() { "ip" } else { "api_key" };
        problems
            .error(node.place, format!("an entry of {what} names the property to compare"))
            .label(format!("did you mean `{name}: {}`?", short(text)))
            .help("an entry looks like `- ip: 10.0.0.0/8` or `- api_key: [one, two]`");
        return None;
    }
    let entries = node.entries(&format!("an entry of {what}"), problems)?;
    let before = problems.has_errors();
    let conditions: Vec<Condition> = entries
        .iter()
        .filter_map(|entry| condition(&Node::scalar(&entry.name), &entry.value, problems))
        .collect();
    if conditions.is_empty() {
        if before == problems.has_errors() && entries.is_empty() {
            problems.error(node.place, format!("an entry of {what} needs a condition"));
        }
        return None;
    }
    let text: Vec<String> =
        entries.iter().map(|entry| format!("{}: {}", entry.name.value, entry.value.describe())).collect();
    let meaning = ListEntry::new(text.join(", ").replace('`', ""), node.place.line);
    Some(Entry { place: node.place, conditions, meaning })
}

/// Reads one condition, of a list or a priority class.
pub(super) fn condition(name: &Node, node: &Node, problems: &mut Problems) -> Option<Condition> {
    match name.text() {
        Some("endpoint") => return endpoint(node, problems),
        Some(word @ ("path" | "paths" | "route" | "url" | "uri")) => {
            problems
                .error(name.place, format!("`{word}` cannot be a condition here"))
                .label("did you mean `endpoint`?");
            return None;
        }
        _ => {}
    }
    let Located { value: source, place } = sections::source(name, "a condition", problems)?;
    if matches!(source, KeySource::Global | KeySource::Path(_) | KeySource::Descriptor) {
        problems.error(place, format!("`{source}` cannot be a condition here")).help(
            "conditions are ip, endpoint, user, api_key, tenant, header:NAME, cookie:NAME, query:NAME, claim:NAME \
             and descriptor:NAME",
        );
        return None;
    }
    if is_empty(node, problems) {
        return None;
    }
    if source == KeySource::Ip {
        let nets = node.items().iter().filter_map(|node| Some(sections::net(node, problems)?.value));
        return Some(Condition::Address(nets.collect()));
    }
    let mut values = Vec::with_capacity(node.items().len());
    for item in node.items() {
        match item.word("a value", problems)?.value {
            "*" => return Some(Condition::Present(source)),
            // A block of text ends in a line break that no request contains.
            word => values.push(word.trim_end_matches(['\r', '\n']).as_bytes().into()),
        }
    }
    Some(Condition::Value(source, values))
}

fn endpoint(node: &Node, problems: &mut Problems) -> Option<Condition> {
    if is_empty(node, problems) {
        return None;
    }
    let patterns = patterns(node.items(), "`endpoint`", problems);
    Some(Condition::Endpoint(patterns.into_iter().map(|it| it.value).collect()))
}

/// Reports a condition without values.
fn is_empty(node: &Node, problems: &mut Problems) -> bool {
    if node.items().is_empty() {
        problems
            .error(node.place, "this list is empty, so the entry matches no request")
            .label("give it a value");
    }
    node.items().is_empty()
}
