//! Priority classes that no request gets.

use tollgate_document::Problems;

use super::super::priorities::reads_claim;
use crate::file_format::priorities::Class;
use crate::lint::Lint;

pub(super) fn find_lints(classes: &[Class], problems: &mut Problems) {
    let everything_else = classes.iter().position(|class| !class.has_conditions);
    let others = everything_else.unwrap_or(classes.len().saturating_sub(1));
    for (at, class) in classes.iter().enumerate() {
        if let Some(first) = classes[..at].iter().find(|first| covers(first, class)) {
            problems
                .warning(Lint::UnreachableClass, class.place, unreachable(class))
                .label("an earlier class matches them all")
                .related(first.place, "the first match wins")
                .help("put the narrower class first, or exclude its paths: `except`");
        } else if at < others && !is_trusting(class) && class.properties.iter().any(reads_claim) {
            let problem = problems.warning(Lint::UnreachableClass, class.place, unreachable(class));
            problem.label("a header only lowers the class of a request");
            if let Some(rest) = everything_else.and_then(|at| classes.get(at)) {
                problem.related(rest.place, "the class of these requests without the header");
            }
            problem.help(
                "`trust_headers: true` if a proxy in front removes this header from the requests of clients",
            );
        }
    }
}

fn unreachable(class: &Class) -> String {
    format!("no request gets the class `{}`", class.name.value)
}

fn is_trusting(class: &Class) -> bool {
    class.trust_headers.is_some_and(|it| it.value)
}

/// Whether an earlier class has only endpoints as conditions, which cover all endpoints of a later
/// class.
fn covers(first: &Class, class: &Class) -> bool {
    let is_bare = first.except.is_empty()
        && first.method.is_empty()
        && first.host.is_empty()
        && first.plan.is_empty()
        && first.properties.is_empty();
    let endpoints = &class.endpoint;
    is_bare
        && !endpoints.is_empty()
        && endpoints.iter().all(|it| first.endpoint.iter().any(|wide| wide.value.covers_all_of(&it.value)))
}
