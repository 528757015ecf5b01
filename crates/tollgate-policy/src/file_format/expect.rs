//! `expect`: the codes of expected warnings.

use tollgate_document::{Located, Node, Problems, short};

use crate::lint::{Lint, LintScope};

/// Reads `expect` of the file, which accepts every lint.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Vec<Located<Lint>> {
    codes(node, problems)
}

/// Reads `expect` of a limit. Lints that are not about a limit belong into `expect` of the file.
pub(super) fn of_limit(node: &Node, problems: &mut Problems) -> Vec<Located<Lint>> {
    let mut codes = codes(node, problems);
    codes.retain(|code| {
        let fits = code.value.of() == LintScope::Limit;
        if !fits {
            problems
                .error(code.place, format!("`{}` is not about one limit", code.value))
                .label("write `expect` at the top of the file instead");
        }
        fits
    });
    codes
}

fn codes(node: &Node, problems: &mut Problems) -> Vec<Located<Lint>> {
    let mut found: Vec<Located<Lint>> = Vec::new();
    for item in node.items() {
        let Some(word) = item.word("`expect`", problems) else { continue };
        match Lint::find(word.value) {
            Some(Lint::UnusedExpect) => {
                problems
                    .error(item.place, "`unused-expect` cannot be expected")
                    .label("remove the unused code instead");
            }
            Some(code) if found.iter().any(|it| it.value == code) => {
                problems.error(item.place, format!("`{code}` is listed twice")).label("again here");
            }
            Some(code) => found.push(word.map(|_| code)),
            None => {
                let problem =
                    problems.error(item.place, format!("no warning has the code `{}`", short(word.value)));
                if let Some(meant) = Lint::nearest(word.value) {
                    problem.label(format!("did you mean `{meant}`?"));
                }
                problem.help(
                    "a warning says its code in brackets; `tollgate validate --explain` lists them all",
                );
            }
        }
    }
    found
}
