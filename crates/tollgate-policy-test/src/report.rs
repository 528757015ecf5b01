//! What came of the tests, of one file or of many.
//!
//! - `text`: for people.
//! - `junit`: for CI servers.
//!
//! JSON is this very structure. Not here: writing any of it anywhere.

mod junit;
mod text;

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::Span;

pub use self::text::Detail;
use crate::{Coverage, Verdict};

/// What came of the tests.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Of each file.
    pub files: Vec<FileReport>,
    /// Of each policy, by the name of its file. Empty where only some of the tests were run.
    pub coverage: Vec<(String, Coverage)>,
    /// How much of each policy has to be covered, in per cent, if that was asked for.
    pub least: Option<u8>,
}

/// What came of the tests of one file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The file of the tests.
    pub file: String,
    /// The file of their policy.
    pub policy: String,
    /// Its tests.
    pub tests: Vec<TestResult>,
}

/// A test, and how long it took to run.
#[derive(Clone, Debug, Serialize)]
pub struct TestResult {
    /// What came of it.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took; not the time that passes within the test.
    #[serde(skip)]
    pub took: Span,
}

impl Report {
    /// All tests.
    pub fn tests(&self) -> impl Iterator<Item = &TestResult> {
        self.files.iter().flat_map(|file| &file.tests)
    }

    /// How many tests passed.
    pub fn passed(&self) -> usize {
        self.tests().filter(|test| test.verdict.has_passed()).count()
    }

    /// How many did not.
    pub fn failed(&self) -> usize {
        self.tests().count() - self.passed()
    }

    /// Of which policies less is covered than was asked for: their names, and how it is said.
    pub fn uncovered(&self) -> impl Iterator<Item = (&str, String)> {
        let lacking = |coverage: &Coverage| self.least.filter(|least| coverage.percent() < *least);
        self.coverage.iter().filter_map(move |(policy, coverage)| {
            let (percent, least) = (coverage.percent(), lacking(coverage)?);
            let told = format!("{percent} % of {policy} is covered, and `--min-coverage` asks for {least} %");
            Some((policy.as_str(), told))
        })
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let coverage = self.coverage.iter().map(|(policy, coverage)| {
            let (met, all) = coverage.points();
            let percent = coverage.percent();
            json!({
                "policy": policy,
                "percent": percent,
                "least": self.least,
                "enough": self.least.is_none_or(|least| percent >= least),
                "met": met,
                "all": all,
                "limits": coverage.limits(),
            })
        });
        json!({
            "passed": self.passed(),
            "failed": self.failed(),
            "files": self.files,
            "coverage": coverage.collect::<Vec<_>>(),
        })
    }
}

/// A text that moves no cursor and breaks no line, whoever wrote it.
fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\'' | '\\' => out.push(char),
            _ => out.extend(char.escape_debug()),
        }
    }
    out
}

/// Seconds, to the microsecond.
fn seconds(span: Span) -> String {
    let micros = span.as_micros();
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
