//! Writes a report for people: a line per test, and details of failed ones.

use std::fmt::Write;

use tollgate::Span;

use super::{FileReport, Report, printable};
use crate::{Coverage, LimitCoverage, UnexpectedStep};

/// Level of detail of the coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Only points that are not covered.
    Missing,
    /// Every limit.
    Everything,
}

/// The most names in one line. Further names are only counted.
const MAX_LISTED_NAMES: usize = 20;

impl Report {
    /// Returns the report as text.
    pub fn text(&self, detail: Detail) -> String {
        let mut out = String::new();
        for file in &self.files {
            write_file(file, &mut out);
        }
        let requests: u64 = self.tests().map(|it| it.verdict.requests).sum();
        let took = Span::from_micros(self.tests().map(|it| it.took.as_micros()).sum());
        let failed = match self.failed() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let _ = writeln!(
            out,
            "{} passed{failed} ({}, {} ms)",
            self.passed(),
            counted(requests, "request"),
            took.as_millis_ceil()
        );
        for (policy, coverage) in &self.coverage {
            write_coverage(policy, coverage, detail, &mut out);
        }
        out
    }
}

fn write_file(file: &FileReport, out: &mut String) {
    let _ = writeln!(out, "{}", printable(&file.file));
    for test in &file.tests {
        let verdict = &test.verdict;
        let word = if verdict.has_passed() { "ok  " } else { "FAIL" };
        let _ = writeln!(out, "  {word}  {}", printable(&verdict.name));
        if let Some(surprise) = &verdict.surprise {
            for line in surprise.lines(&file.file) {
                let _ = writeln!(out, "        {line}");
            }
        }
    }
}

impl UnexpectedStep {
    /// Returns the details of a failed test, line by line, without control characters.
    pub(super) fn lines(&self, file: &str) -> Vec<String> {
        let which = match self.of {
            1 => String::new(),
            of => format!("number {} of {of}, ", self.number),
        };
        let mut lines =
            vec![format!("{file}:{}: {}, {which}{} after the start", self.line, self.request, self.after)];
        for mismatch in &self.mismatches {
            let line =
                if mismatch.line == self.line { String::new() } else { format!(" (line {})", mismatch.line) };
            lines.push(format!("  expected  {}{line}", mismatch.expected));
            lines.push(format!("  came      {}", mismatch.came));
        }
        let heads = std::iter::once("because").chain(std::iter::repeat(""));
        lines.extend(heads.zip(&self.why).map(|(head, why)| format!("  {head:<9} {why}")));
        lines.iter().map(|line| printable(line)).collect()
    }
}

fn write_coverage(policy: &str, coverage: &Coverage, detail: Detail, out: &mut String) {
    let limits = coverage.limits();
    let of = |met: usize| format!("{met} of {}", limits.len());
    let checked = limits.iter().filter(|it| it.checked).count();
    let refused = limits.iter().filter(|it| it.refused).count();
    let _ = write!(
        out,
        "coverage of {}: {} %; {} limits asked, {} seen refusing",
        printable(policy),
        coverage.percent(),
        of(checked),
        of(refused)
    );
    let exceptions = || limits.iter().flat_map(|it| it.plans.iter().chain(&it.overrides));
    match exceptions().count() {
        0 => out.push('\n'),
        all => {
            let met = exceptions().filter(|it| it.met).count();
            let _ = writeln!(out, ", {met} of {all} plans and overrides met");
        }
    }
    match detail {
        Detail::Missing => out.push_str(&missing(limits)),
        Detail::Everything => write_table(limits, out),
    }
}

/// Returns the points that are not covered, a line for each kind.
pub(super) fn missing(limits: &[LimitCoverage]) -> String {
    let mut out = String::new();
    let never =
        |is: fn(&LimitCoverage) -> bool| limits.iter().filter(move |it| is(it)).map(|it| it.name.clone());
    let unmet = limits.iter().flat_map(|limit| {
        let plans = limit.plans.iter().map(|it| ("plan", it));
        let all = plans.chain(limit.overrides.iter().map(|it| ("override", it)));
        all.filter(|(_, it)| !it.met).map(|(kind, it)| format!("{} {kind} {}", limit.name, it.name))
    });
    for (what, names) in [
        ("never asked", never(|it| !it.checked).collect::<Vec<_>>()),
        ("never refused", never(|it| it.checked && !it.refused).collect()),
        ("never met", unmet.collect()),
    ] {
        if names.is_empty() {
            continue;
        }
        let more = names.len().saturating_sub(MAX_LISTED_NAMES);
        let shown =
            names.iter().take(MAX_LISTED_NAMES).map(|it| printable(it)).collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more: see --coverage") } else { String::new() };
        let _ = writeln!(out, "  {what:<14} {shown}{more}");
    }
    out
}

fn write_table(limits: &[LimitCoverage], out: &mut String) {
    let width = limits.iter().map(|it| it.name.len()).max().unwrap_or(0);
    let word = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    for limit in limits {
        let checked = word(limit.checked, "asked", "NEVER ASKED");
        let refused = word(limit.refused, "refused", "NEVER REFUSED");
        let _ = writeln!(out, "  {:<width$}  {checked:<11}  {refused}", limit.name);
        let plans = limit.plans.iter().map(|it| ("plan", it));
        for (kind, it) in plans.chain(limit.overrides.iter().map(|it| ("override", it))) {
            let _ = writeln!(
                out,
                "  {:width$}  {kind} {}: {}",
                "",
                printable(&it.name),
                word(it.met, "met", "NEVER MET")
            );
        }
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
