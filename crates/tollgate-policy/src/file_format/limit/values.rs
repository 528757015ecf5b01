//! The values of a limit, each read from its node.

use tollgate_document::{
    Entry, Fields, Kind, Located, Mistake, Node, Problems, RateText, short, whole_number,
};

use super::super::sections::source;
use super::words::{ALGORITHMS, METHODS};
use super::{Algorithm, AllowanceText};
use crate::limit::{HeaderMatch, MAX_NAME_BYTES, is_in_limit_name, is_limit_name};
use crate::lint::Lint;
use crate::pattern::PathPattern;
use crate::source::{KeySource, header_name, is_token};

/// Reads one word with `parse`, and reports its mistake at its place.
pub(in super::super) fn parsed<T>(
    node: &Node,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, Mistake>,
    problems: &mut Problems,
) -> Option<Located<T>> {
    let word = node.word(what, problems)?;
    match parse(word.value) {
        Ok(value) => Some(Located::new(value, word.place)),
        Err(mistake) => {
            mistake.report(node, problems);
            None
        }
    }
}

/// Reads path patterns, of `endpoint` and `except`.
pub(in super::super) fn patterns(
    items: &[Node],
    what: &str,
    problems: &mut Problems,
) -> Vec<Located<PathPattern>> {
    items.iter().filter_map(|it| parsed(it, what, PathPattern::parse, problems)).collect()
}

/// Reads a rate, and finds the place of its burst.
pub(in super::super) fn rate(node: &Node, what: &str, problems: &mut Problems) -> Option<Located<RateText>> {
    if let Kind::List(_) = node.kind {
        problems
            .error(node.place, format!("{what} is one rate, not a list"))
            .label("did you mean `windows`?")
            .help("several rates look like windows: [10/second, 1000/hour]");
        return None;
    }
    let mut rate = parsed(node, what, RateText::parse, problems)?;
    let characters =
        |upto: usize| node.text().and_then(|it| it.get(..upto)).map_or(0, |it| it.chars().count());
    let at = rate.value.burst_at.clone();
    rate.value.burst_place = node.part(characters(at.start)..characters(at.end));
    Some(rate)
}

pub(super) fn windows(node: &Node, problems: &mut Problems) -> Option<Located<Vec<Located<RateText>>>> {
    let Kind::List(items) = &node.kind else {
        problems
            .error(node.place, format!("`windows` is a list of rates, not {}", node.describe()))
            .label("did you mean `bucket`?")
            .help("several rates look like windows: [10/second, 1000/hour]");
        return None;
    };
    if items.is_empty() || items.len() > 8 {
        problems
            .error(node.place, "`windows` holds one to eight rates")
            .label(format!("this holds {}", items.len()));
        return None;
    }
    let rates: Vec<_> = items.iter().filter_map(|it| rate(it, "a rate of `windows`", problems)).collect();
    (rates.len() == items.len()).then(|| Located::new(rates, node.place))
}

pub(in super::super) fn name(node: &Node, problems: &mut Problems) -> Option<Located<String>> {
    let word = node.word("`name`", problems)?;
    if is_limit_name(word.value) {
        return Some(word.map(str::to_owned));
    }
    let fitting = |char| if is_in_limit_name(char) { char } else { '-' };
    let mut meant: String = word.value.chars().map(fitting).collect();
    meant.truncate(MAX_NAME_BYTES);
    let problem = problems.error(word.place, format!("`{}` cannot be a name", short(word.value)));
    let meant = meant.trim_matches('-');
    if !meant.is_empty() {
        problem.label(format!("did you mean `{meant}`?"));
    }
    problem.help("a name goes into headers: 1 to 64 letters, digits, `.`, `_` and `-`");
    None
}

pub(in super::super) fn method(node: &Node, problems: &mut Problems) -> Option<Located<String>> {
    let word = node.word("`method`", problems)?;
    let upper = word.value.to_ascii_uppercase();
    if !upper.bytes().all(is_token) || matches!(&*upper, "*" | "ALL" | "ANY") {
        problems
            .error(node.place, format!("{} is not a method", node.describe()))
            .label("omit `method` for all methods")
            .help("several methods are a list: [GET, POST]");
        return None;
    }
    if !METHODS.contains(&&*upper) {
        let problem = problems.warning(
            Lint::OddMethod,
            node.place,
            format!("`{}` is not a common method", short(&upper)),
        );
        if let Some(meant) = tollgate_document::nearest(&upper, METHODS) {
            problem.label(format!("did you mean `{meant}`?"));
        }
    }
    Some(word.map(|_| upper))
}

/// Reads the headers that a limit or a class asks for. `what` is their name in messages.
pub(in super::super) fn headers(node: &Node, what: &str, problems: &mut Problems) -> Vec<HeaderMatch> {
    let mut found = Vec::new();
    for Entry { name, value } in node.entries(what, problems).unwrap_or_default() {
        let lower = match header_name(&name.value) {
            Ok(lower) => lower,
            Err(mistake) => {
                mistake.report(&Node::scalar(name), problems);
                continue;
            }
        };
        let Some(word) = value.word(&format!("the value of `{}`", short(&name.value)), problems) else {
            continue;
        };
        let value = (word.value != "*").then(|| word.value.trim().into());
        found.push(HeaderMatch { name: lower, value });
    }
    found
}

pub(super) fn by(fields: &Fields<'_>, problems: &mut Problems) -> Vec<Located<KeySource>> {
    let Some(node) = fields.get("by") else {
        if !fields.mentions("by") {
            problems
                .error(fields.place(), "this limit has no key")
                .label("`by` is missing")
                .help(format!("add `by:` with {}", crate::source::WORDS))
                .help("`by: global` counts all requests together");
        }
        return Vec::new();
    };
    let parts = parts(node, "`by`", problems);
    match parts.iter().find(|part| part.value == KeySource::Descriptor) {
        Some(part) if parts.len() > 1 => {
            problems
                .error(part.place, "`descriptor` includes all entries already")
                .label("remove it, or the other parts")
                .help("`descriptor:NAME` is one entry, and several make up one key");
        }
        _ => {}
    }
    match parts.iter().find(|part| part.value == KeySource::Global) {
        Some(part) if parts.len() > 1 => {
            problems
                .error(part.place, "`global` adds nothing to other parts of a key")
                .label("remove it")
                .help("`by: global` alone counts all requests together");
        }
        _ => {}
    }
    if node.items().is_empty() || parts.len() > 8 {
        problems
            .error(node.place, "`by` holds one to eight parts")
            .label(format!("this holds {}", parts.len()));
    }
    parts
}

/// Reads the parts of a key.
fn parts(node: &Node, what: &str, problems: &mut Problems) -> Vec<Located<KeySource>> {
    let mut parts: Vec<Located<KeySource>> = Vec::new();
    for item in node.items() {
        // YAML reads `header: X-Name` with a blank as a map.
        if let Kind::Map(entries) = &item.kind
            && let [Entry { name, value }] = &entries[..]
            && let Some(value) = value.text()
        {
            problems.error(name.place, "a key has no blank behind its colon").label(format!(
                "did you mean `{}:{}`?",
                short(&name.value),
                short(value)
            ));
            continue;
        }
        let Some(part) = source(item, what, problems) else { continue };
        if let Some(first) = parts.iter().find(|known| known.value == part.value) {
            problems
                .error(part.place, format!("`{}` is listed twice in one key", part.value))
                .label("again here")
                .related(first.place, "first here");
            continue;
        }
        parts.push(part);
    }
    parts
}

/// Reads the key that shares the slots of a limit fairly.
pub(super) fn fair_by(node: &Node, problems: &mut Problems) -> Option<Located<Vec<KeySource>>> {
    let parts = parts(node, "`fair_by`", problems);
    for part in &parts {
        if part.value == KeySource::Global || part.value.is_of_descriptor() {
            problems
                .error(part.place, format!("`{}` does not tell requests apart", part.value))
                .label("a property of a request, such as `tenant`")
                .help("`fair_by` shares the slots between the callers that wait for them");
            return None;
        }
    }
    if parts.is_empty() || parts.len() > 8 {
        // A part that is present and invalid has been reported.
        if node.items().is_empty() || parts.len() > 8 {
            problems
                .error(node.place, "`fair_by` holds one to eight parts")
                .label(format!("this holds {}", parts.len()));
        }
        return None;
    }
    Some(Located::new(parts.into_iter().map(|part| part.value).collect(), node.place))
}

/// Reads the entry that names the owner of a slot.
pub(super) fn owner(node: &Node, problems: &mut Problems) -> Option<Located<KeySource>> {
    let mut parts = parts(node, "`owner`", problems);
    match (parts.pop(), parts.is_empty()) {
        (Some(part), true) if matches!(part.value, KeySource::Entry(_)) => Some(part),
        // A part that is invalid has been reported.
        (None, true) if !node.items().is_empty() => None,
        _ => {
            problems
                .error(node.place, "`owner` is one entry of the descriptor")
                .label("not one entry")
                .help("name the entry that tells requests apart: `owner: descriptor:request_id`");
            None
        }
    }
}

pub(super) fn algorithm(node: &Node, problems: &mut Problems) -> Option<Located<Algorithm>> {
    let word = node.word("`algorithm`", problems)?;
    if let Some((_, known)) = ALGORITHMS.iter().find(|(known, _)| *known == word.value) {
        return Some(word.map(|_| *known));
    }
    let names = || ALGORITHMS.iter().map(|(name, _)| *name);
    let help = format!("the algorithms are {}", names().collect::<Vec<_>>().join(", "));
    let meant = match word.value {
        "leaky-bucket" | "leaky_bucket" | "queue" => {
            problems
                .error(node.place, format!("unknown algorithm `{}`", word.value))
                .label("`leaky-queue` delays requests above the rate, `gcra` refuses them")
                .help(help);
            return None;
        }
        "bucket" | "token" => Some("token-bucket"),
        "fixed" => Some("fixed-window"),
        "sliding" => Some("sliding-window"),
        "log" => Some("sliding-log"),
        other => tollgate_document::nearest(other, names()),
    };
    let problem = problems.error(node.place, format!("unknown algorithm `{}`", short(word.value)));
    if let Some(meant) = meant {
        problem.label(format!("did you mean `{meant}`?"));
    }
    problem.help(help);
    None
}

pub(super) fn allowances(
    node: &Node,
    what: &str,
    problems: &mut Problems,
) -> Vec<(Located<String>, Located<AllowanceText>)> {
    let entries = node.entries(what, problems).unwrap_or_default();
    entries
        .iter()
        .filter_map(|Entry { name, value }| Some((name.clone(), allowance(value, &name.value, problems)?)))
        .collect()
}

pub(super) fn allowance(node: &Node, name: &str, problems: &mut Problems) -> Option<Located<AllowanceText>> {
    let what = format!("the value of `{}`", short(name));
    if let Kind::List(_) = &node.kind {
        return Some(windows(node, problems)?.map(AllowanceText::Rates));
    }
    let word = node.word(&what, problems)?;
    let text = match word.value {
        "unlimited" => AllowanceText::Unlimited,
        "blocked" => AllowanceText::Blocked,
        number if whole_number(number).is_some() => AllowanceText::Slots(whole_number(number)?),
        other if other.chars().all(|char| char.is_ascii_alphabetic()) => {
            let problem = problems.error(node.place, format!("{what} cannot be {}", node.describe()));
            if let Some(meant) = tollgate_document::nearest(other, ["unlimited", "blocked"]) {
                problem.label(format!("did you mean `{meant}`?"));
            }
            problem.help("it can be a rate such as 1000/minute, `unlimited` or `blocked`");
            return None;
        }
        _ => AllowanceText::Rates(vec![rate(node, &what, problems)?]),
    };
    Some(Located::new(text, word.place))
}
