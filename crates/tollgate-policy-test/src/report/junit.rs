//! Writes a report as `JUnit` XML, for CI servers.
//!
//! If a coverage is required, the coverage of each policy is a test case too, so that a failure is visible.
//!
//! Only elements and attributes of the Jenkins schema are used; other readers (GitLab, GitHub Actions, Azure) accept
//! the same or less.
//!
//! Invariant: the XML is well-formed for all names and values. Characters that XML cannot represent are escaped.

use std::fmt::Write;

use tollgate::Span;

use super::text::missing;
use super::{FileReport, Report, printable, seconds};

impl Report {
    /// Returns the report as `JUnit` XML.
    pub fn junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let took = self.tests().map(|it| it.took.as_micros()).sum();
        let coverages = if self.least.is_some() { self.coverage.len() } else { 0 };
        let _ = writeln!(
            out,
            "<testsuites name=\"tollgate test\" tests=\"{}\" failures=\"{}\" errors=\"0\" time=\"{}\">",
            self.tests().count() + coverages,
            self.failed() + self.uncovered().count(),
            seconds(Span::from_micros(took)),
        );
        for file in &self.files {
            write_file(file, &mut out);
        }
        if coverages > 0 {
            write_coverage(self, &mut out);
        }
        out.push_str("</testsuites>\n");
        out
    }
}

fn write_file(file: &FileReport, out: &mut String) {
    let failed = file.tests.iter().filter(|it| !it.verdict.has_passed()).count();
    let took = file.tests.iter().map(|it| it.took.as_micros()).sum();
    let name = xml(&file.file);
    let _ = writeln!(
        out,
        "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\" time=\"{}\">",
        file.tests.len(),
        seconds(Span::from_micros(took)),
    );
    for test in &file.tests {
        let verdict = &test.verdict;
        let _ = write!(
            out,
            "    <testcase name=\"{}\" classname=\"{name}\" time=\"{}\"",
            xml(&verdict.name),
            seconds(test.took)
        );
        let Some(surprise) = &verdict.surprise else {
            out.push_str("/>\n");
            continue;
        };
        let first = surprise.mismatches.first();
        let message =
            first.map_or_else(String::new, |it| format!("expected {}, came {}", it.expected, it.came));
        let _ = write!(out, ">\n      <failure message=\"{}\" type=\"mismatch\">", xml(&message));
        let lines: Vec<_> = surprise.lines(&file.file).iter().map(|line| xml(line)).collect();
        let _ = writeln!(out, "{}</failure>\n    </testcase>", lines.join("\n"));
    }
    out.push_str("  </testsuite>\n");
}

fn write_coverage(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "  <testsuite name=\"coverage\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"0\" time=\"0.000000\">",
        report.coverage.len(),
        report.uncovered().count(),
    );
    for (policy, coverage) in &report.coverage {
        let policy_name = xml(policy);
        let _ = write!(
            out,
            "    <testcase name=\"coverage of {policy_name}\" classname=\"{policy_name}\" time=\"0.000000\""
        );
        let Some((_, message)) = report.uncovered().find(|(uncovered, _)| uncovered == policy) else {
            out.push_str("/>\n");
            continue;
        };
        let _ = write!(out, ">\n      <failure message=\"{}\" type=\"coverage\">", xml(&message));
        let lines: Vec<_> = missing(coverage.limits()).lines().map(xml).collect();
        let _ = writeln!(out, "{}</failure>\n    </testcase>", lines.join("\n"));
    }
    out.push_str("  </testsuite>\n");
}

/// Escapes text for an attribute or an element.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in printable(text).chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_xml_cannot_represent_are_escaped() {
        assert_eq!(
            xml("a<b & \"c\"'\u{1b}[31m\u{0}\n\u{fffe}"),
            "a&lt;b &amp; &quot;c&quot;&apos;\\u{1b}[31m\\0\\n\\u{fffe}"
        );
    }
}
