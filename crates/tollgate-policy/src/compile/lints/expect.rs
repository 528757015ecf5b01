//! Warnings that the file says to expect: `expect` of a limit, or of the file.
//!
//! Whoever has thought about a lint and keeps it says so where it is, in the file that is
//! reviewed; and is told when it is gone, so that no list outlives its reasons.

use std::collections::HashSet;

use crate::diagnostic::{Diagnostic, Located, Severity};
use crate::file_format::File;
use crate::file_format::limit::Limit;
use crate::lint::{Lint, LintScope};

/// What remains of the warnings, and one for each word that nothing was expected by.
/// `is_unknown`: of what it could not be told here whether it is there.
pub(super) fn unexpected(
    file: &File,
    warnings: Vec<Diagnostic>,
    is_unknown: impl Fn(Lint) -> bool,
) -> Vec<Diagnostic> {
    // The limit that a place is in is the last one that begins before it.
    let mut limits: Vec<&Limit> = file.limits.iter().collect();
    limits.sort_by_key(|limit| limit.place);
    let mut met = HashSet::new();
    let mut left: Vec<Diagnostic> = Vec::with_capacity(warnings.len());
    for warning in warnings {
        let before = limits.partition_point(|limit| limit.place <= warning.place);
        let limit = before.checked_sub(1).map(|at| limits[at]);
        let words = warning.code.map(|code| expected(file, limit, code)).unwrap_or_default();
        if words.is_empty() {
            left.push(warning);
        }
        met.extend(words.iter().map(|word| word.place));
    }
    let of_limits = file.limits.iter().flat_map(|limit| &limit.expect);
    // Of what others read it is not known here whether it comes.
    let of_file =
        file.expect.iter().filter(|word| matches!(word.value.of(), LintScope::Limit | LintScope::Policy));
    let words = of_limits.chain(of_file).filter(|word| !is_unknown(word.value));
    for word in words.filter(|word| !met.contains(&word.place)) {
        let message = format!("`{}` is expected and is not there", word.value);
        let mut unused = Diagnostic::new(Severity::Warning, word.place, message);
        unused.code = Some(Lint::UnusedExpect);
        unused.label("nothing here has it any more").help("remove the word");
        left.push(unused);
    }
    left
}

/// The words that expect a warning: of its limit and of the file.
fn expected<'f>(file: &'f File, limit: Option<&'f Limit>, code: Lint) -> Vec<&'f Located<Lint>> {
    let limit = limit.filter(|_| code.of() == LintScope::Limit);
    let words = limit.iter().flat_map(|limit| &limit.expect).chain(&file.expect);
    words.filter(|word| word.value == code).collect()
}
