//! Parses the expected outcome: one word, or a map.

use tollgate::Span;
use tollgate::policy::Glob;
use tollgate_document::{Fields, Kind, Located, Node, Problems, Synonyms, Words};

use crate::expectation::{Expectation, Fate, Header, Left, Value};
use crate::timeline::MAX_DURATION;

pub(crate) const WORDS: Words = Words {
    section: "`expect`",
    known: &[
        "decision",
        "allowed",
        "refused",
        "limit",
        "remaining",
        "retry_after",
        "status",
        "headers",
        "priority",
        "limits",
        "soft",
        "would_refuse",
    ],
    synonyms: &[
        ("decision", &["verdict", "result"]),
        ("allowed", &["admitted"]),
        ("refused", &["denied", "rejected"]),
        ("limit", &["by"]),
        ("remaining", &["left"]),
        ("retry_after", &["wait", "retry-after"]),
        ("status", &["code"]),
        ("priority", &["class"]),
        ("would_refuse", &["shadow"]),
    ],
};

const FATES: [(&str, Fate); 2] = [("allowed", Fate::Allowed), ("refused", Fate::Refused)];
const FATE_SYNONYMS: Synonyms = &[
    ("allowed", &["allow", "admitted", "pass", "ok", "200", "true"]),
    ("refused", &["deny", "denied", "rejected", "limited", "429", "false"]),
];

/// Parses an expectation. `times` is the number of requests of the step, and `is_request` whether they are HTTP
/// requests.
pub(super) fn read(
    node: &Node,
    times: u64,
    is_request: bool,
    problems: &mut Problems,
) -> Option<Expectation> {
    if !matches!(node.kind, Kind::Map(_)) {
        let fate = node.choice_with_synonyms("`expect`", &FATES, FATE_SYNONYMS, problems)?;
        return Some(Expectation { fate: Some(fate), ..Expectation::default() });
    }
    let fields = node.fields(&WORDS, problems)?;
    let fate = fields
        .get("decision")
        .and_then(|it| it.choice_with_synonyms("`decision`", &FATES, FATE_SYNONYMS, problems));
    let mut count = |word: &str| {
        let count = fields.get(word)?.whole(&format!("`{word}`"), 0..=times, problems)?;
        Some(count)
    };
    let (allowed, refused) = (count("allowed"), count("refused"));
    let names = |word: &str, problems: &mut Problems| names(fields.get(word)?, word, problems);
    let expectation = Expectation {
        fate,
        allowed: allowed.or_else(|| refused.map(|it| it.map(|refused| times - refused))),
        limit: fields
            .get("limit")
            .and_then(|it| it.word("`limit`", problems))
            .map(|it| it.map(str::to_owned)),
        left: fields.get("remaining").map_or_else(Vec::new, |it| left(it, problems)),
        wait: fields
            .get("retry_after")
            .and_then(|it| it.span("`retry_after`", Span::from_millis(1)..=MAX_DURATION, problems)),
        status: fields.get("status").and_then(|it| status(it, problems)),
        headers: fields.get("headers").map_or_else(Vec::new, |it| headers(it, problems)),
        priority: fields
            .get("priority")
            .and_then(|it| it.word("`priority`", problems))
            .map(|it| it.map(str::to_owned)),
        limits: names("limits", problems),
        soft: names("soft", problems),
        would_refuse: names("would_refuse", problems),
    };
    contradictions(&fields, &expectation, (allowed, refused), times, problems);
    if !is_request {
        for word in ["status", "headers"] {
            if let Some(entry) = fields.entry(word) {
                problems
                    .error(
                        entry.name.place,
                        format!("a proxy words its own answers: `{word}` is of a `request`"),
                    )
                    .help("of a descriptor, expect `decision`, `limit`, `remaining` and `retry_after`");
            }
        }
    }
    Some(expectation)
}

/// Reports expectations that contradict each other.
fn contradictions(
    fields: &Fields<'_>,
    expectation: &Expectation,
    (allowed, refused): (Option<Located<u64>>, Option<Located<u64>>),
    times: u64,
    problems: &mut Problems,
) {
    if let (Some(fate), Some(count)) = (&expectation.fate, allowed.or(refused)) {
        problems
            .error(count.place, "`decision` is of every request, and this counts them")
            .related(fate.place, "one of the two");
    }
    if let (Some(allowed), Some(refused)) = (allowed, refused)
        && allowed.value + refused.value != times
    {
        problems
            .error(refused.place, format!("{} and {} are not {times}", allowed.value, refused.value))
            .related(allowed.place, "one of the two is enough");
    }
    let is_allowed = expectation.fate.is_some_and(|it| it.value == Fate::Allowed);
    for word in ["retry_after", "status"] {
        if let (true, Some(entry)) = (is_allowed, fields.entry(word)) {
            problems
                .error(entry.name.place, format!("what is allowed has no `{word}` of ours"))
                .help("the service behind answers then; `headers` says what is added to its answer");
        }
    }
}

fn left(node: &Node, problems: &mut Problems) -> Vec<Left> {
    let number = |node: &Node, problems: &mut Problems| node.whole("`remaining`", 0..=u64::MAX, problems);
    let Kind::Map(entries) = &node.kind else {
        return number(node, problems).map(|count| Left { of: None, count }).into_iter().collect();
    };
    let each = entries.iter().filter_map(|entry| {
        let count = number(&entry.value, problems)?;
        Some(Left { of: Some(entry.name.clone()), count })
    });
    each.collect()
}

fn status(node: &Node, problems: &mut Problems) -> Option<Located<u16>> {
    let status = node.whole("`status`", 100..=599, problems)?;
    if status.value < 400 {
        problems
            .error(node.place, "`status` is of a refusal: 429, 403 or what a dialect says")
            .label("the service behind answers so, not we")
            .help("write `decision: allowed`");
        return None;
    }
    Some(status.map(|it| u16::try_from(it).unwrap_or(u16::MAX)))
}

fn headers(node: &Node, problems: &mut Problems) -> Vec<Header> {
    let entries = node.entries("`headers`", problems).unwrap_or_default();
    let header = |entry: &tollgate_document::Entry| {
        let Ok(name) = http::HeaderName::try_from(&entry.name.value) else {
            problems
                .error(entry.name.place, "no header can have this name")
                .label("letters, digits and !#$%&'*+-.^_`|~ only");
            return None;
        };
        let word = entry.value.word(&format!("the header `{name}`"), problems)?;
        let value = match word.value {
            "absent" => Value::Absent,
            text => Glob::parse(text).map_or_else(|| Value::Exactly(text.to_owned()), Value::Like),
        };
        Some(Header { name, shown: entry.name.value.clone(), value: word.map(|_| value) })
    };
    entries.iter().filter_map(header).collect()
}

fn names(node: &Node, what: &str, problems: &mut Problems) -> Option<Located<Vec<Located<String>>>> {
    let what = format!("`{what}`");
    let names = node.items().iter().map(|it| it.word(&what, problems).map(|it| it.map(str::to_owned)));
    let names: Option<Vec<_>> = names.collect();
    Some(Located::new(names?, node.place))
}
