//! Parses test files and reports their mistakes.
//!
//! - `step`: a step of a test, and the clock.
//! - `caller`: the request and its caller.
//! - `expect`: the expected outcome.
//!
//! Not here: whether the named limits exist, which needs the policy (`Suite::check`).

mod caller;
pub(crate) mod expect;
pub(crate) mod step;

use std::collections::HashMap;

use jiff::Timestamp as Instant;
use jiff::fmt::temporal::Pieces;
use tollgate::Timestamp;
use tollgate_document::{Diagnostics, Kind, Located, Node, Place, Problems, Words};

use self::caller::Caller;
use crate::suite::Test;
use crate::timeline::{START, Timeline};

pub(crate) const FILE: Words = Words {
    section: "a file of tests",
    known: &["policy", "defaults", "tests"],
    synonyms: &[("policy", &["config"]), ("tests", &["cases", "suite", "test"])],
};

pub(crate) const TEST: Words = Words {
    section: "a test",
    known: &["name", "at", "defaults", "steps"],
    synonyms: &[
        ("name", &["title", "description"]),
        ("at", &["start", "now", "time"]),
        ("steps", &["requests"]),
        ("defaults", &["given"]),
    ],
};

pub(crate) const DEFAULTS: Words =
    Words { section: "`defaults`", known: &caller::WORDS, synonyms: caller::SYNONYMS };

/// Example for an empty file.
const EXAMPLE: &str =
    "tests: [{name: ten logins a minute, steps: [{request: POST /login, times: 10, expect: allowed}]}]";

/// The most bytes of a test name.
const MAX_NAME_BYTES: usize = 200;

/// Parses a whole file: the policy that it names, and the tests.
pub(crate) fn file(root: &Node, problems: &mut Problems) -> (Option<String>, Vec<Test>) {
    let nothing = (None, Vec::new());
    if root.kind == Kind::Null {
        problems.error(root.place, "the file is empty").help(format!("for example: {EXAMPLE}"));
        return nothing;
    }
    let Some(fields) = root.fields(&FILE, problems) else { return nothing };
    let policy = fields.get("policy").and_then(|it| it.word("`policy`", problems));
    let policy = policy.map(|it| it.value.to_owned());
    let defaults = defaults(fields.get("defaults"), &Caller::default(), problems);
    let tests = fields.get("tests").map_or_else(Vec::new, |it| tests(it, &defaults, problems));
    if !fields.mentions("tests") {
        problems.error(fields.place(), "the file has no `tests`").help(format!("for example: {EXAMPLE}"));
    }
    (policy, tests)
}

/// Parses the section `tests` of a policy.
pub(crate) fn section(node: &Node, problems: &mut Problems) -> (Option<String>, Vec<Test>) {
    (None, tests(node, &Caller::default(), problems))
}

fn defaults(node: Option<&Node>, outer: &Caller, problems: &mut Problems) -> Caller {
    let fields = node.and_then(|it| it.fields(&DEFAULTS, problems));
    match fields {
        Some(fields) => Caller::read(&fields, problems).over(outer),
        None => outer.clone(),
    }
}

fn tests(node: &Node, defaults: &Caller, problems: &mut Problems) -> Vec<Test> {
    let Kind::List(items) = &node.kind else {
        problems
            .error(node.place, "`tests` is a list")
            .label(format!("this is {}", node.describe()))
            .help(format!("for example: {EXAMPLE}"));
        return Vec::new();
    };
    if items.is_empty() {
        problems.error(node.place, "`tests` is empty").help(format!("for example: {EXAMPLE}"));
    }
    let mut names: HashMap<String, Place> = HashMap::new();
    let mut tests = Vec::with_capacity(items.len());
    for item in items {
        let Some(test) = test(item, defaults, problems) else { continue };
        if let Some(first) = names.insert(test.name.value.clone(), test.name.place) {
            problems
                .error(test.name.place, "two tests have this name")
                .label("again here")
                .related(first, "first here")
                .help("reports know tests by their names: give each its own");
        }
        tests.push(test);
    }
    tests
}

fn test(node: &Node, outer: &Caller, problems: &mut Problems) -> Option<Test> {
    let fields = node.fields(&TEST, problems)?;
    let name = fields.get("name").and_then(|it| name(it, problems));
    if !fields.mentions("name") {
        problems.error(fields.place(), "this test has no `name`").help("say in a sentence what must hold");
    }
    let start = fields.get("at").and_then(|it| instant(it, problems)).unwrap_or(START);
    let defaults = defaults(fields.get("defaults"), outer, problems);
    let mut timeline = Timeline::from(start);
    let mut steps = Vec::new();
    match fields.get("steps").map(|it| (it, &it.kind)) {
        Some((_, Kind::List(items))) => {
            for item in items {
                steps.extend(step::read(item, &defaults, &mut timeline, problems));
            }
            if !problems.has_errors() && steps.iter().all(|step| step.expectation.is_none()) {
                problems
                    .error(fields.place(), "this test expects nothing: it would pass whatever happens")
                    .help("give one of its steps an `expect`: allowed, refused, or a map");
            }
        }
        Some((steps, _)) => {
            problems.error(steps.place, "`steps` is a list").label(format!("this is {}", steps.describe()));
        }
        None if fields.mentions("steps") => {}
        None => {
            problems
                .error(fields.place(), "this test has no `steps`")
                .help("for example: steps: [{request: GET /, expect: allowed}]");
        }
    }
    Some(Test { name: name?, steps })
}

fn name(node: &Node, problems: &mut Problems) -> Option<Located<String>> {
    let word = node.word("`name`", problems)?;
    let is_long = word.value.chars().count() > MAX_NAME_BYTES;
    if is_long || word.value.chars().any(char::is_control) {
        problems
            .error(node.place, format!("a name is one line of at most {MAX_NAME_BYTES} characters"))
            .label(if is_long { "this is longer" } else { "this has other characters in it" });
        return None;
    }
    Some(word.map(str::to_owned))
}

/// Parses a date and time.
fn instant(node: &Node, problems: &mut Problems) -> Option<Timestamp> {
    let word = node.word("`at`", problems)?;
    let micros = word.value.parse::<Instant>().ok().and_then(|it| u64::try_from(it.as_microsecond()).ok());
    if micros.is_none() && is_written_as_time(word.value) {
        problems
            .error(node.place, format!("{} is out of range", node.describe()))
            .label("a clock of tests goes from 1970-01-01 to 9999-12-30");
    } else if micros.is_none() {
        problems.error(node.place, format!("{} is not a time", node.describe())).help(
            "for example: 2026-01-01T00:00:00Z; within `steps` also `+5m`, since the start of the test",
        );
    }
    micros.map(Timestamp::from_micros)
}

/// Whether a text has the form of a date, a time and an offset, in range or not.
fn is_written_as_time(text: &str) -> bool {
    Pieces::parse(text).is_ok_and(|it| it.time().is_some() && it.offset().is_some())
}

/// Adapts messages of the YAML reader that are about policies.
pub(crate) fn reworded(diagnostics: Diagnostics) -> Diagnostics {
    diagnostics.reworded(|it| {
        if it.label == "one file holds one policy" {
            it.label("one file holds one list of tests");
        }
        it.help.retain(|help| !help.contains("`endpoint`"));
    })
}
