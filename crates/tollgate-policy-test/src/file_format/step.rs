//! Parses a step of a test: it moves the clock, then makes a request.

use tollgate::{Span, Timestamp};
use tollgate_document::{Fields, Kind, Node, Problems, Words};

use super::caller::{self, Caller};
use super::{expect, instant};
use crate::request::{RequestKind, TestRequest};
use crate::timeline::{MAX_DURATION, Settle, Step, Timeline};

pub(crate) const WORDS: Words = Words {
    section: "a step",
    known: &[
        "wait",
        "at",
        "request",
        "descriptor",
        "domain",
        "host",
        "ip",
        "peer",
        "user",
        "api_key",
        "tenant",
        "plan",
        "claims",
        "headers",
        "cost",
        "times",
        "every",
        "takes",
        "settle",
        "expect",
    ],
    synonyms: &[
        ("wait", &["sleep", "advance", "after"]),
        ("expect", &["then", "expected", "want"]),
        ("times", &["repeat", "count"]),
        ("every", &["interval"]),
        ("takes", &["duration"]),
        ("request", &["url", "path", "call"]),
        ("ip", &["remote_addr", "client", "client_ip"]),
        ("user", &["user_id"]),
        ("api_key", &["key"]),
        ("cost", &["hits_addend"]),
    ],
};

/// The most requests of a step.
const MAX_TIMES: u64 = 1_000_000;
/// The largest cost of a request.
pub(super) const MAX_COST: u64 = 1_000_000_000_000;

/// Words that need a request.
const REQUEST_WORDS: [&str; 14] = [
    "domain", "host", "ip", "peer", "user", "api_key", "tenant", "plan", "claims", "headers", "cost",
    "times", "every", "expect",
];

/// Words that descriptors do not have; they use entries instead.
const NON_DESCRIPTOR_WORDS: [&str; 10] =
    ["host", "ip", "peer", "user", "api_key", "tenant", "plan", "claims", "headers", "takes"];

/// Parses a step. `None` if it makes no request or is invalid.
pub(super) fn read(
    node: &Node,
    defaults: &Caller,
    timeline: &mut Timeline,
    problems: &mut Problems,
) -> Option<Step> {
    let fields = node.fields(&WORDS, problems)?;
    move_clock(&fields, timeline, problems);
    let request = request(&fields, defaults, problems);
    let times = fields.get("times").and_then(|it| it.whole("`times`", 1..=MAX_TIMES, problems));
    let times = times.map_or(1, |it| it.value);
    let every = fields.get("every").and_then(|it| it.span("`every`", Span::ZERO..=MAX_DURATION, problems));
    if let (Some(every), false) = (&every, fields.mentions("times")) {
        problems
            .error(every.place, "`every` is the time between several requests")
            .label("how many? say it with `times`");
    }
    let takes = fields.get("takes").and_then(|it| it.span("`takes`", Span::ZERO..=MAX_DURATION, problems));
    let settle = fields.get("settle").map(|it| settle(it, problems));
    let is_request = fields.get("request").is_some();
    let expectation = fields.get("expect").and_then(|it| expect::read(it, times, is_request, problems));
    let every = every.map_or(Span::ZERO, |it| it.value);
    let step = Step {
        line: fields.place().line,
        at: timeline.now,
        start: timeline.start,
        request: request?,
        times,
        every,
        takes: takes.map_or(Span::ZERO, |it| it.value),
        settle,
        expectation,
    };
    if !timeline.set(step.time_of(times - 1))
        && let Some(node) = fields.get("every")
    {
        too_long(node, problems);
    }
    Some(step)
}

/// Parses `settle`: a number, or a map of limits.
fn settle(node: &Node, problems: &mut Problems) -> Settle {
    let mut cost = |node: &Node| node.whole("`settle`", 0..=MAX_COST, problems).map_or(0, |it| it.value);
    match &node.kind {
        Kind::Map(entries) => {
            Settle::Limits(entries.iter().map(|it| (it.name.clone(), cost(&it.value))).collect())
        }
        _ => Settle::All(cost(node)),
    }
}

/// Applies `wait` and `at`, which take effect before the request of the same step.
fn move_clock(fields: &Fields<'_>, timeline: &mut Timeline, problems: &mut Problems) {
    match (fields.get("wait"), fields.get("at")) {
        (Some(wait), Some(at)) => {
            problems
                .error(at.place, "a step has `wait` or `at`, not both")
                .related(wait.place, "the other is here")
                .help("`wait` counts from the step before, `at` from the start of the test");
        }
        (Some(node), None) => {
            let span = node.span("`wait`", Span::ZERO..=MAX_DURATION, problems);
            if span.is_some_and(|it| !timeline.wait(it.value)) {
                too_long(node, problems);
            }
        }
        (None, Some(node)) => {
            let Some(to) = moment(node, timeline.start, problems) else { return };
            if to < timeline.now {
                let passed = timeline.now.since(timeline.start);
                problems
                    .error(node.place, "the clock of a test does not go back")
                    .label(format!("{passed} have passed by now"))
                    .help("`at: +5m` counts from the start of the test; `wait: 5m` from the step before");
            } else if !timeline.set(to) {
                too_long(node, problems);
            }
        }
        (None, None) => {}
    }
}

fn too_long(node: &Node, problems: &mut Problems) {
    problems.error(node.place, format!("a test lasts for {MAX_DURATION} at most")).label("this is beyond it");
}

/// Parses a time: `+5m` since the start, or a date and time.
fn moment(node: &Node, start: Timestamp, problems: &mut Problems) -> Option<Timestamp> {
    let Some(after) = node.text().and_then(|it| it.strip_prefix('+')) else { return instant(node, problems) };
    let length = after.chars().count();
    let kind = Kind::Scalar { text: after.trim().to_owned(), quoted: false };
    let after = Node { place: node.part(1..length + 1), kind };
    Some(start + after.span("`at`", Span::ZERO..=MAX_DURATION, problems)?.value)
}

/// Parses the request; `None` if there is none or it is invalid.
fn request(fields: &Fields<'_>, defaults: &Caller, problems: &mut Problems) -> Option<TestRequest> {
    match (fields.get("request"), fields.get("descriptor")) {
        (Some(request), Some(descriptor)) => {
            problems
                .error(descriptor.place, "a step has a `request` or a `descriptor`, not both")
                .related(request.place, "the other is here");
            None
        }
        (Some(request), None) => {
            if let Some(domain) = fields.entry("domain") {
                problems
                    .error(domain.name.place, "`domain` belongs to a `descriptor`")
                    .help("the host that a request asks for is `host`");
            }
            let line = caller::request_line(request, problems);
            let who = Caller::read(fields, problems).over(defaults);
            let line = line?;
            Some(who.asking(|headers| RequestKind::Request(Box::new(caller::head(line, headers)))))
        }
        (None, Some(descriptor)) => {
            for word in NON_DESCRIPTOR_WORDS {
                if let Some(entry) = fields.entry(word) {
                    problems.error(entry.name.place, format!("`{word}` belongs to a `request`")).help(
                        "a descriptor says everything in its entries: [user=ann, remote_address=203.0.113.9]",
                    );
                }
            }
            let entries = caller::entries(descriptor, problems);
            let domain = fields.get("domain").and_then(|it| caller::domain(it, problems)).unwrap_or_default();
            // Of the words of a caller, only `cost` remains.
            let who = Caller::read(fields, problems);
            let what = RequestKind::Descriptor { domain, entries: entries? };
            Some(who.asking(|_| what))
        }
        (None, None) => {
            without_request(fields, problems);
            None
        }
    }
}

/// Checks a step without a request, which must move the clock.
fn without_request(fields: &Fields<'_>, problems: &mut Problems) {
    if fields.mentions("request") || fields.mentions("descriptor") {
        return;
    }
    let stray = REQUEST_WORDS.iter().chain(&["takes", "settle"]).find_map(|word| fields.entry(word));
    if let Some(entry) = stray {
        problems
            .error(
                entry.name.place,
                format!("`{}` says something of a request, and there is none", entry.name.value),
            )
            .help("add one: request: GET /api/v1/search");
    } else if !fields.mentions("wait") && !fields.mentions("at") {
        problems
            .error(fields.place(), "nothing happens in this step")
            .help("a step has a `request`, a `descriptor`, a `wait` or an `at`");
    }
}
