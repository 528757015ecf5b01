//! Warnings that the file says to expect: `expect` of a limit, or of the file.
//!
//! An expected warning is declared where it occurs, in the file under review. A declaration
//! without a matching warning is itself reported, so declarations do not outlive their reasons.

use std::collections::HashSet;

use tollgate_document::{Diagnostic, Located, Severity};

use crate::file_format::File;
use crate::file_format::limit::Limit;
use crate::lint::{Lint, LintScope};

/// Removes expected warnings, and adds one warning for each declaration without a match.
/// `is_unknown` tells whether the presence of a lint cannot be determined here.
pub(super) fn unexpected(
    file: &File,
    warnings: Vec<Diagnostic>,
    is_unknown: impl Fn(Lint) -> bool,
) -> Vec<Diagnostic> {
    // A place belongs to the last limit that begins before it.
    let mut limits: Vec<&Limit> = file.limits.iter().collect();
    limits.sort_by_key(|limit| limit.place);
    let mut met = HashSet::new();
    let mut left: Vec<Diagnostic> = Vec::with_capacity(warnings.len());
    for warning in warnings {
        let before = limits.partition_point(|limit| limit.place <= warning.place);
        let limit = before.checked_sub(1).map(|at| limits[at]);
        let words =
            warning.code.and_then(Lint::find).map(|lint| expected(file, limit, lint)).unwrap_or_default();
        if words.is_empty() {
            left.push(warning);
        }
        met.extend(words.iter().map(|word| word.place));
    }
    let of_limits = file.limits.iter().flat_map(|limit| &limit.expect);
    // Lints that other crates report are not known here.
    let of_file =
        file.expect.iter().filter(|word| matches!(word.value.of(), LintScope::Limit | LintScope::Policy));
    let words = of_limits.chain(of_file).filter(|word| !is_unknown(word.value));
    for word in words.filter(|word| !met.contains(&word.place)) {
        let message = format!("`{}` is expected, but there is no such warning", word.value);
        let mut unused = Diagnostic::new(Severity::Warning, word.place, message);
        unused.code = Some(Lint::UnusedExpect.code());
        unused.label("no warning matches it").help("remove the word");
        left.push(unused);
    }
    left
}

/// Returns the declarations that match a warning: those of its limit and those of the file.
fn expected<'f>(file: &'f File, limit: Option<&'f Limit>, code: Lint) -> Vec<&'f Located<Lint>> {
    let limit = limit.filter(|_| code.of() == LintScope::Limit);
    let words = limit.iter().flat_map(|limit| &limit.expect).chain(&file.expect);
    words.filter(|word| word.value == code).collect()
}
