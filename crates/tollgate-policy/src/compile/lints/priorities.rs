//! Priority classes that no request gets, or that only a header would give.

use tollgate_document::Problems;

use super::super::priorities::{Origin, Origins};
use crate::file_format::File;
use crate::file_format::priorities::Class;
use crate::lint::Lint;
use crate::lists::Condition;
use crate::source::KeySource;

const TRUST: &str =
    "`trust_headers: true` if a proxy in front removes this header from the requests of clients";

pub(super) fn find_lints(file: &File, origins: &Origins<'_>, problems: &mut Problems) {
    let classes = &file.priorities;
    let everything_else = classes.iter().position(|class| !class.has_conditions);
    let others = everything_else.unwrap_or(classes.len().saturating_sub(1));
    let default_plan = file.plans.as_ref().and_then(|it| it.default.as_ref()).map(|it| it.value.as_str());
    for (at, class) in classes.iter().enumerate() {
        let is_raised = at < others && !is_trusting(class);
        if let Some(first) = classes[..at].iter().find(|first| covers(first, class)) {
            problems
                .warning(Lint::UnreachableClass, class.place, unreachable(class))
                .label("an earlier class matches them all")
                .related(first.place, "the first match wins")
                .help("put the narrower class first, or exclude its paths: `except`");
        } else if is_raised && sources(class).any(KeySource::is_claim) {
            let problem = problems.warning(Lint::UnreachableClass, class.place, unreachable(class));
            problem.label("a header only lowers the class of a request");
            if let Some(rest) = everything_else.and_then(|at| classes.get(at)) {
                problem.related(rest.place, "the class of these requests without the header");
            }
            problem.help(TRUST);
        } else if is_raised && let Some((property, place)) = claimed(class, origins, default_plan) {
            let name = &class.name.value;
            problems
                .warning(
                    Lint::UntrustedClass,
                    class.place,
                    format!("a request does not get the class `{name}` by a header"),
                )
                .label(format!("`{property}` is read from `{place}`, which every client can send"))
                .help(TRUST);
        }
    }
}

/// Returns a condition of a class that only text of clients satisfies, and the place of that text.
fn claimed(class: &Class, origins: &Origins<'_>, default_plan: Option<&str>) -> Option<(String, String)> {
    let is_default = class.plan.iter().any(|it| Some(it.value.as_str()) == default_plan);
    let plan = origins.plan_from.filter(|_| !class.plan.is_empty() && !is_default);
    let plan = plan.and_then(|from| match origins.of(from) {
        _ if from.is_claim() => Some(("plan".to_owned(), from.to_string())),
        Origin::Claimed(place) => Some(("plan".to_owned(), place.to_string())),
        Origin::Mixed | Origin::Verified => None,
    });
    let place = |source: &KeySource| match origins.of(source) {
        Origin::Claimed(place) => Some((source.to_string(), place.to_string())),
        Origin::Mixed | Origin::Verified => None,
    };
    plan.or_else(|| sources(class).find_map(place))
}

fn sources(class: &Class) -> impl Iterator<Item = &KeySource> {
    class.properties.iter().filter_map(Condition::source)
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
