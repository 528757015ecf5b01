//! The results of tests, of one or several files.
//!
//! - `text`: for people.
//! - `junit`: for CI servers.
//!
//! JSON is the serialized structure. Not here: writing to files or the terminal.

mod junit;
mod text;

use serde::Serialize;
use serde_json::{Value, json};
use tollgate::Span;
use tollgate_document::sanitize::printable;

pub use self::text::Detail;
use crate::{Coverage, Verdict};

/// The results of tests.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Results of each file.
    pub files: Vec<FileReport>,
    /// Coverage of each policy, by file name. Empty if only some of the tests ran.
    pub coverage: Vec<(String, Coverage)>,
    /// Required coverage of each policy in percent, if any.
    pub least: Option<u8>,
}

/// The results of one file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The test file.
    pub file: String,
    /// The policy file.
    pub policy: String,
    /// Results of its tests.
    pub tests: Vec<TestResult>,
}

/// The result of a test, and its run time.
#[derive(Clone, Debug, Serialize)]
pub struct TestResult {
    /// The result.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Run time; not the virtual time of the test.
    #[serde(skip)]
    pub took: Span,
}

impl Report {
    /// Returns the results of all tests.
    pub fn tests(&self) -> impl Iterator<Item = &TestResult> {
        self.files.iter().flat_map(|file| &file.tests)
    }

    /// Returns the number of passed tests.
    pub fn passed(&self) -> usize {
        self.tests().filter(|test| test.verdict.has_passed()).count()
    }

    /// Returns the number of failed tests.
    pub fn failed(&self) -> usize {
        self.tests().count() - self.passed()
    }

    /// Returns the policies below the required coverage, with a message for each.
    pub fn uncovered(&self) -> impl Iterator<Item = (&str, String)> {
        let lacking = |coverage: &Coverage| self.least.filter(|least| coverage.percent() < *least);
        self.coverage.iter().filter_map(move |(policy, coverage)| {
            let (percent, least) = (coverage.percent(), lacking(coverage)?);
            let text = format!("{percent} % of {policy} is covered, and `--min-coverage` asks for {least} %");
            Some((policy.as_str(), text))
        })
    }

    /// Returns the report as JSON.
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

/// Formats seconds with microsecond resolution.
fn seconds(span: Span) -> String {
    let micros = span.as_micros();
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}
