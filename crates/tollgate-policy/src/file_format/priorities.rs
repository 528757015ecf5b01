//! The section `priorities`: classes of requests, the most important first.

use tollgate_document::{Entry, Kind, Located, Node, Place, Problems, Words};

use super::limit::{headers, method, name, parsed, patterns};
use super::lists;
use crate::limit::HeaderMatch;
use crate::lists::Condition;
use crate::pattern::{HostPattern, PathPattern};
use crate::source::KeySource;

/// The maximum number of classes. Each is a label in metrics and a level of shedding.
pub(crate) const MAX_CLASSES: usize = 8;

const EXAMPLE: &str = "a class looks like `- {name: critical, endpoint: /payments/**}`";

pub(crate) const WORDS: Words = Words {
    section: "a priority class",
    known: &[
        "name",
        "endpoint",
        "except",
        "method",
        "host",
        "headers",
        "plan",
        "ip",
        "user",
        "api_key",
        "tenant",
        "trust_headers",
    ],
    synonyms: &[
        ("name", &["class", "priority"]),
        ("endpoint", &["path", "paths", "route", "url", "uri"]),
        ("except", &["exclude", "excluding", "unless", "skip", "ignore"]),
        ("method", &["verb"]),
        ("headers", &["header"]),
        ("plan", &["plans"]),
        ("api_key", &["key", "keys"]),
        ("trust_headers", &["trusted", "trust"]),
    ],
};

/// Words of a class whose values are read as the conditions of a list are.
const PROPERTIES: [&str; 4] = ["ip", "user", "api_key", "tenant"];

/// A priority class as written.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) place: Place,
    /// Whether a condition is written, valid or not.
    pub(crate) has_conditions: bool,
    pub(crate) name: Located<String>,
    pub(crate) endpoint: Vec<Located<PathPattern>>,
    pub(crate) except: Vec<Located<PathPattern>>,
    pub(crate) method: Vec<Located<String>>,
    pub(crate) host: Vec<Located<HostPattern>>,
    pub(crate) plan: Vec<Located<String>>,
    /// The conditions on properties, including headers.
    pub(crate) properties: Vec<Condition>,
    pub(crate) trust_headers: Option<Located<bool>>,
}

impl Class {
    /// Returns every path pattern of the class.
    pub(crate) fn patterns_mut(&mut self) -> impl Iterator<Item = &mut PathPattern> {
        self.endpoint.iter_mut().chain(&mut self.except).map(|it| &mut it.value)
    }
}

pub(super) fn read(node: &Node, problems: &mut Problems) -> Vec<Class> {
    let Kind::List(items) = &node.kind else {
        problems
            .error(node.place, format!("`priorities` is a list, not {}", node.describe()))
            .label("begin each class with `- `, the most important first")
            .help(EXAMPLE);
        return Vec::new();
    };
    if items.is_empty() || items.len() > MAX_CLASSES {
        problems
            .error(node.place, format!("`priorities` holds one to {MAX_CLASSES} classes"))
            .label(format!("this holds {}", items.len()))
            .help("requests of one class are treated alike, so few classes are enough");
    }
    // The rank of a class fits a byte.
    items.iter().take(MAX_CLASSES).filter_map(|item| class(item, problems)).collect()
}

fn class(node: &Node, problems: &mut Problems) -> Option<Class> {
    let entries = node.entries(WORDS.section, problems)?;
    // Names such as `header:X-Priority` are conditions, all other names are words.
    let (named, fixed): (Vec<Entry>, Vec<Entry>) =
        entries.iter().cloned().partition(|entry| entry.name.value.contains(':'));
    let fixed = Node { kind: Kind::Map(fixed), ..node.clone() };
    let fields = fixed.fields(&WORDS, problems)?;
    for word in ["endpoint", "except", "method", "host", "plan"] {
        if let Some(node) =
            fields.get(word).filter(|node| matches!(&node.kind, Kind::List(items) if items.is_empty()))
        {
            problems
                .error(node.place, format!("`{word}` is an empty list"))
                .label("matches nothing")
                .help("remove the line to match everything");
        }
    }
    let items = |word: &str| fields.get(word).map_or(&[][..], Node::items);
    let endpoint = patterns(items("endpoint"), "`endpoint`", problems);
    let except = patterns(items("except"), "`except`", problems);
    let method = items("method").iter().filter_map(|it| method(it, problems)).collect();
    let host =
        items("host").iter().filter_map(|it| parsed(it, "`host`", HostPattern::parse, problems)).collect();
    let plan = items("plan").iter();
    let plan = plan.filter_map(|it| Some(it.word("the name of a plan", problems)?.map(str::to_owned)));
    let plan = plan.collect();
    let mut properties: Vec<Condition> = Vec::new();
    if let Some(node) = fields.get("headers") {
        properties.extend(headers(node, "`headers` of a class", problems).into_iter().map(header));
    }
    let fixed = PROPERTIES.iter().filter_map(|word| fields.entry(word));
    for Entry { name, value } in fixed.chain(&named) {
        properties.extend(lists::condition(&Node::scalar(name), value, problems));
    }
    let trust_headers = fields.get("trust_headers").and_then(|it| it.boolean("`trust_headers`", problems));
    let Some(name_node) = fields.get("name") else {
        if !fields.mentions("name") {
            problems.error(fields.place(), "this class has no name").label("`name` is missing").help(EXAMPLE);
        }
        return None;
    };
    let name = name(name_node, problems)?;
    let place = node.place;
    let has_conditions = entries.iter().any(|it| !matches!(&*it.name.value, "name" | "trust_headers"));
    Some(Class {
        place,
        has_conditions,
        name,
        endpoint,
        except,
        method,
        host,
        plan,
        properties,
        trust_headers,
    })
}

fn header(it: HeaderMatch) -> Condition {
    let source = KeySource::Header(it.name);
    match it.value {
        None => Condition::Present(source),
        Some(value) => Condition::Value(source, vec![value.into_boxed_bytes()]),
    }
}
