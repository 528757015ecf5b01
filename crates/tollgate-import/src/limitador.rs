//! Imports limits of Kuadrant's Limitador as limits on descriptors.
//!
//! Limitador and Tollgate both serve Envoy's protocol: a limit of a namespace
//! becomes a limit of the domain with that name, on descriptors with the entries of its
//! conditions and variables. Its window begins with the first request and does not
//! slide: `fixed-window`, aligned to the `first-request`.
//!
//! One difference remains: Limitador checks whether a descriptor *has* the entries, a policy whether
//! it has exactly those, in order. A comment at each limit says so.
//!
//! `condition` parses conditions, `output` writes YAML.

mod condition;

use std::collections::{BTreeMap, BTreeSet};

use tollgate_document::{Diagnostics, Document, Fields, Kind, Node, Problems, Words};

use crate::ImportedPolicy;
use crate::output::{LimitDraft, Output, quoted};
use condition::{Entry, Term};

/// The maximum number of limits in a file.
const MAX_LIMITS: usize = 10_000;

const LIMIT: Words = Words {
    section: "a limit of Limitador",
    known: &["id", "namespace", "max_value", "seconds", "name", "conditions", "variables"],
    synonyms: &[("max_value", &["maxValue", "limit"]), ("namespace", &["domain"])],
};

/// A limit as written.
struct Limit {
    line: u32,
    name: Option<String>,
    namespace: String,
    max_value: u64,
    seconds: u64,
    conditions: Vec<String>,
    variables: Vec<String>,
}

/// Imports a file of Limitador (`LIMITS_FILE`, or its custom resource) as a policy.
///
/// ```
/// let imported = tollgate_import::limitador("limits.yaml", r#"
/// - namespace: shop
///   max_value: 5
///   seconds: 60
///   conditions: ["descriptors[0].method == 'POST'"]
///   variables: ["descriptors[0].user_id"]
/// "#)?;
/// assert!(imported.policy.contains("descriptor: [method=POST, user_id]"));
/// # Ok::<(), tollgate_document::Diagnostics>(())
/// ```
pub fn limitador(name: &str, text: &str) -> Result<ImportedPolicy, Diagnostics> {
    let document = Document::parse(text)?;
    let mut problems = Problems::default();
    let limits = read(document.root(), &mut problems);
    if problems.has_errors() {
        return Err(problems.into_diagnostics(&document));
    }
    let mut out = Output::new("limitador", name);
    out.note(
        "Serve it with `tollgate serve --config THIS`, and let Envoy ask its rate limit service \
         instead of Limitador's. Namespaces are domains.",
    );
    out.note(
        "A limit here is for descriptors with exactly the entries listed, in that order: Limitador takes any \
         descriptor that has them, among others. Compare with the actions in Envoy's routes, and add entries \
         that are sent besides as bare words: `descriptor: [method=GET, path]`.",
    );
    let keys = keys_of_namespaces(&limits);
    let mut seen = BTreeMap::new();
    for limit in &limits {
        let mut draft = translate(limit, keys.get(limit.namespace.as_str()));
        let same = (&limit.namespace, limit.seconds, &limit.conditions, &limit.variables);
        if let Some(line) = seen.insert(same, limit.line) {
            draft.comment(format!(
                "Limitador takes this for the limit of line {line} with another number, and one of the two \
                 replaces the other; here both hold, so the smaller does."
            ));
        }
        out.limit(draft);
    }
    Ok(out.finish())
}

fn read(root: &Node, problems: &mut Problems) -> Vec<Limit> {
    // The custom resource of the operator contains the same list.
    let list = root.get("spec").unwrap_or(root);
    let list = list.get("limits").unwrap_or(list);
    let Kind::List(items) = &list.kind else {
        problems
            .error(list.place, "the file has no limits of Limitador")
            .label(format!("this is {}, and not a list", list.describe()))
            .help("a limits file is a list: `- {namespace: shop, max_value: 10, seconds: 60, conditions: [], variables: []}`");
        return Vec::new();
    };
    if let Some(first) = items.get(MAX_LIMITS) {
        problems.error(first.place, format!("more than {MAX_LIMITS} limits")).label("the first too many");
        return Vec::new();
    }
    items.iter().filter_map(|item| read_limit(item, problems)).collect()
}

fn read_limit(item: &Node, problems: &mut Problems) -> Option<Limit> {
    let item = &without_empty_lists(item);
    let fields = item.fields(&LIMIT, problems)?;
    let needed = |word: &'static str, problems: &mut Problems| {
        if !fields.mentions(word) {
            problems.error(fields.place(), format!("a limit of Limitador needs `{word}`"));
        }
        fields.get(word)
    };
    let namespace = needed("namespace", problems).and_then(|it| it.word("`namespace`", problems));
    let max_value =
        needed("max_value", problems).and_then(|it| it.whole("`max_value`", 0..=u64::MAX, problems));
    let seconds = needed("seconds", problems).and_then(|it| it.whole("`seconds`", 1..=u64::MAX, problems));
    let name = fields.get("name").or_else(|| fields.get("id")).and_then(|it| it.word("`name`", problems));
    Some(Limit {
        line: item.place.line,
        name: name.map(|it| it.value.to_owned()),
        conditions: texts(&fields, "conditions", problems),
        variables: texts(&fields, "variables", problems),
        namespace: namespace?.value.to_owned(),
        max_value: max_value?.value,
        seconds: seconds?.value,
    })
}

/// Removes lists without a value, which Limitador's own examples contain.
fn without_empty_lists(item: &Node) -> Node {
    let mut item = item.clone();
    if let Kind::Map(entries) = &mut item.kind {
        entries.retain(|entry| {
            entry.value.kind != Kind::Null || !matches!(entry.name.value.as_str(), "conditions" | "variables")
        });
    }
    item
}

fn texts(fields: &Fields<'_>, word: &'static str, problems: &mut Problems) -> Vec<String> {
    let items = fields.get(word).map_or(&[][..], Node::items);
    let what = format!("a part of `{word}`");
    items.iter().filter_map(|it| it.word(&what, problems)).map(|it| it.value.to_owned()).collect()
}

/// Returns the keys in the limits of each namespace, which its descriptors probably consist of.
fn keys_of_namespaces(limits: &[Limit]) -> BTreeMap<&str, BTreeSet<String>> {
    let mut keys: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for limit in limits {
        let terms = limit.conditions.iter().filter_map(|it| condition::terms(it).ok()).flatten();
        let variables = limit.variables.iter().filter_map(|it| condition::variable(it).ok());
        let found = terms.map(|it| it.entry.key).chain(variables.map(|it| it.key));
        keys.entry(limit.namespace.as_str()).or_default().extend(found);
    }
    keys
}

fn translate(limit: &Limit, keys: Option<&BTreeSet<String>>) -> LimitDraft {
    let mut pattern = Pattern::default();
    for condition in &limit.conditions {
        match condition::terms(condition) {
            Ok(terms) => terms.into_iter().for_each(|term| pattern.term(term)),
            Err(why) => pattern.hindrances.push(why),
        }
    }
    let mut by = Vec::new();
    for variable in &limit.variables {
        match condition::variable(variable) {
            Ok(entry) => {
                by.push(format!("descriptor:{}", entry.key));
                pattern.entry(entry, None);
            }
            Err(why) => pattern.hindrances.push(why),
        }
    }
    by.dedup();
    let mut draft = LimitDraft::new(&limit.name.clone().unwrap_or_else(|| pattern.name(&limit.namespace)));
    draft.comment(format!("Line {}: namespace {}", limit.line, quoted(&limit.namespace)));
    if let [one] = &pattern.descriptors.iter().flatten().collect::<Vec<_>>()[..]
        && **one > 0
    {
        draft.comment(format!(
            "Limitador reads descriptors[{one}] of a request; this limit applies to each of its descriptors."
        ));
    }
    if pattern.descriptors.len() > 1 {
        pattern.hindrances.push("it refers to several descriptors of one request".to_owned());
    }
    if pattern.entries.is_empty() && pattern.hindrances.is_empty() {
        pattern.hindrances.push(
            "it is for every descriptor of its namespace, whatever its entries; write one limit for each \
             kind of descriptor that Envoy sends"
                .to_owned(),
        );
        pattern.entries = keys.into_iter().flatten().map(|it| (it.clone(), None)).collect();
    }
    pattern.others(keys).inspect(|others| {
        let all: Vec<_> = pattern.written().into_iter().chain(others.iter().cloned()).collect();
        let text = format!(
            "Other limits of this namespace use {}: if Envoy sends them in the same descriptor, write {}.",
            others.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(", "),
            quoted(&format!("descriptor: [{}]", all.join(", "))),
        );
        draft.comment(text);
    });
    draft.word("domain", &limit.namespace);
    draft.always_list("descriptor", &pattern.written());
    if by.is_empty() {
        by.push("global".to_owned());
    }
    draft.list("by", &by);
    draft.plain("algorithm", "fixed-window").plain("align", "first-request");
    if limit.max_value == 0 {
        draft.hindered("a limit of 0 refuses every request: refuse such requests in Envoy's routes instead");
    }
    draft.plain("rate", format!("{}/{}", limit.max_value, span(limit.seconds)));
    for why in pattern.hindrances {
        draft.hindered(why);
    }
    draft
}

/// The entries that a limit requires of a descriptor.
#[derive(Default)]
struct Pattern {
    /// Keys, with the required value or pattern.
    entries: Vec<(String, Option<String>)>,
    descriptors: BTreeSet<Option<u64>>,
    hindrances: Vec<String>,
}

impl Pattern {
    fn term(&mut self, term: Term) {
        self.entry(term.entry, Some(term.pattern));
    }

    fn entry(&mut self, Entry { key, descriptor }: Entry, value: Option<String>) {
        self.descriptors.insert(descriptor);
        let Some((_, known)) = self.entries.iter_mut().find(|(known, _)| *known == key) else {
            self.entries.push((key, value));
            return;
        };
        match (known.as_ref(), value) {
            (None, value) => *known = value,
            (Some(_), None) => {}
            (Some(one), Some(other)) if *one == other => {}
            (Some(_), Some(_)) => {
                self.hindrances.push(format!("several conditions refer to the entry {}", quoted(&key)));
            }
        }
    }

    /// Formats the entries for `descriptor:`.
    fn written(&self) -> Vec<String> {
        let text = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        };
        self.entries.iter().map(text).collect()
    }

    /// Derives a name for a limit without one.
    fn name(&self, namespace: &str) -> String {
        std::iter::once(namespace.to_owned()).chain(self.written()).collect::<Vec<_>>().join(".")
    }

    /// Returns the keys of the namespace that the pattern does not mention.
    fn others(&self, keys: Option<&BTreeSet<String>>) -> Option<Vec<String>> {
        let known = |key: &&String| self.entries.iter().all(|(own, _)| own != *key);
        let others: Vec<_> = keys?.iter().filter(known).cloned().collect();
        (!others.is_empty() && !self.entries.is_empty()).then_some(others)
    }
}

/// Formats a length of time as part of a rate.
fn span(seconds: u64) -> String {
    match seconds {
        1 => "second".to_owned(),
        60 => "minute".to_owned(),
        3_600 => "hour".to_owned(),
        86_400 => "day".to_owned(),
        _ => format!("{seconds}s"),
    }
}
