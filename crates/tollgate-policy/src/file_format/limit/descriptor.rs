//! The descriptors of a limit, and words that only such a limit has: `descriptor`, `domain`, `quota`,
//! `charge`, `owner`.

use tollgate_document::{Entry, Fields, Kind, Located, Node, Problems, RateText, short, whole_number};

use super::values::parsed;
use crate::descriptor::{DescriptorPattern, EntryPattern, MAX_ENTRIES, domain};
use crate::source::KeySource;

/// Words that select requests and conflict with `descriptor`.
const REQUEST_WORDS: [&str; 5] = ["endpoint", "except", "method", "host", "headers"];
/// Words that only limits on descriptors have.
const DESCRIPTOR_WORDS: [&str; 4] = ["domain", "quota", "charge", "owner"];
const EXAMPLE: &str = "the entries are a list, in the order of the descriptor: [plan=gold, user]";
/// The maximum of `quota`: the protocol encodes it in 32 bits.
const MAX_AHEAD: u64 = u32::MAX as u64;

/// The descriptor words of a limit.
#[derive(Default)]
pub(super) struct DescriptorText {
    /// The key, if it is determined without reading `by`.
    pub(super) by: Option<Vec<Located<KeySource>>>,
    pub(super) pattern: Option<Located<DescriptorPattern>>,
    pub(super) domains: Vec<Located<Box<str>>>,
    pub(super) quota: Option<Located<u64>>,
}

pub(super) fn read(fields: &Fields<'_>, problems: &mut Problems) -> DescriptorText {
    let Some(entry) = fields.entry("descriptor") else {
        if fields.mentions("descriptor") {
            return DescriptorText { by: Some(Vec::new()), ..DescriptorText::default() };
        }
        for word in DESCRIPTOR_WORDS {
            stands_alone(fields, word, problems);
        }
        return DescriptorText::default();
    };
    for word in REQUEST_WORDS {
        if let Some(beside) = fields.entry(word) {
            problems
                .error(beside.name.place, format!("`{word}` cannot be combined with `descriptor`"))
                .label("remove this")
                .related(entry.name.place, "the descriptor selects the requests")
                .help("a limit covers requests or descriptors: write two limits to cover both");
        }
    }
    let pattern = pattern(&entry.value, problems);
    let by = match &pattern {
        // The entries determine whether the key is valid.
        None => Some(Vec::new()),
        Some(_) if fields.mentions("by") => None,
        Some(pattern) => Some(vec![Located::new(KeySource::Descriptor, pattern.place)]),
    };
    DescriptorText {
        by,
        pattern,
        domains: fields.get("domain").map(|it| domains(it, problems)).unwrap_or_default(),
        quota: fields.get("quota").and_then(|it| quota(it, problems)),
    }
}

fn domains(node: &Node, problems: &mut Problems) -> Vec<Located<Box<str>>> {
    let mut found: Vec<Located<Box<str>>> = Vec::new();
    for item in node.items() {
        let Some(domain) = parsed(item, "`domain`", domain, problems) else { continue };
        if let Some(first) = found.iter().find(|known| known.value == domain.value) {
            problems
                .error(domain.place, format!("the domain `{}` is listed twice", short(&domain.value)))
                .label("again here")
                .related(first.place, "first here");
            continue;
        }
        found.push(domain);
    }
    found
}

/// Reports a word of limits on descriptors in another limit.
fn stands_alone(fields: &Fields<'_>, word: &str, problems: &mut Problems) {
    let Some(entry) = fields.entry(word) else { return };
    let problem = problems.error(entry.name.place, format!("`{word}` belongs to a limit on descriptors"));
    problem.label(match word {
        "domain" => "did you mean `host`?",
        "quota" => "did you mean `bucket`?",
        "charge" => "did you mean `cost: {settle: …}`?",
        _ => "remove this",
    });
    problem.help("`descriptor: [plan=gold, user]` makes it a limit on descriptors, which proxies send");
}

fn quota(node: &Node, problems: &mut Problems) -> Option<Located<u64>> {
    if let Some(text) = node.text().filter(|text| whole_number(text).is_none())
        && RateText::parse(text).is_ok()
    {
        problems
            .error(node.place, "`quota` is a number of units that are granted ahead, not a rate")
            .label(format!("did you mean `bucket: {}`?", short(text)))
            .help("a proxy admits the granted units locally: quota: 10");
        return None;
    }
    node.whole("`quota`", 1..=MAX_AHEAD, problems)
}

/// Reads a pattern. Returns `None` after reporting an invalid entry.
fn pattern(node: &Node, problems: &mut Problems) -> Option<Located<DescriptorPattern>> {
    if let Kind::Map(entries) = &node.kind {
        let written: Vec<_> = entries.iter().map(written).collect();
        problems
            .error(node.place, "`descriptor` is a list of entries, not a map")
            .label(format!("did you mean `[{}]`?", short(&written.join(", "))))
            .help("entries come in an order, so they are a list");
        return None;
    }
    if let Some(text) = node.text().filter(|text| text.contains(", ")) {
        problems
            .error(node.place, "several entries are a list")
            .label(format!("did you mean `[{}]`?", short(text)))
            .help("one entry with a comma in its value is a list of one, in quotes: [\"city=Bonn, Rhein\"]");
        return None;
    }
    let items = node.items();
    if items.is_empty() || items.len() > MAX_ENTRIES {
        problems
            .error(node.place, format!("`descriptor` holds one to {MAX_ENTRIES} entries"))
            .label(format!("this holds {}", items.len()))
            .help(EXAMPLE);
        return None;
    }
    let entries: Vec<_> = items.iter().filter_map(|item| entry(item, problems)).collect();
    (entries.len() == items.len()).then(|| Located::new(DescriptorPattern::new(entries), node.place))
}

fn entry(node: &Node, problems: &mut Problems) -> Option<EntryPattern> {
    match &node.kind {
        // YAML reads `plan: gold` as a map.
        Kind::Map(entries) if entries.len() == 1 => {
            problems
                .error(node.place, "an entry is written with `=`")
                .label(format!("did you mean `{}`?", short(&written(&entries[0]))));
            None
        }
        Kind::List(_) => {
            problems
                .error(node.place, "a limit covers one descriptor, not a list of them")
                .label("this is a list")
                .help(EXAMPLE);
            None
        }
        _ => Some(parsed(node, "an entry of `descriptor`", EntryPattern::parse, problems)?.value),
    }
}

/// Returns the descriptor syntax for an entry of a map.
fn written(entry: &Entry) -> String {
    match entry.value.text() {
        Some(value) if !value.is_empty() && value != "*" => format!("{}={value}", entry.name.value),
        _ => entry.name.value.clone(),
    }
}
