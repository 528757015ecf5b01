//! The priority classes: unique names, one class for everything else.

use tollgate_document::{Problems, short};

use super::limit::covers_something;
use crate::file_format::priorities::Class;
use crate::lists::{Condition, Conditions};
use crate::pattern::PathPattern;
use crate::priority::{ClassConditions, PriorityClass, is_claim};

/// Builds the classes, and reports mistakes that involve more than one value.
pub(super) fn classes(written: &[Class], problems: &mut Problems) -> Vec<PriorityClass> {
    for (at, class) in written.iter().enumerate() {
        let earlier = &written[..at];
        if let Some(first) = earlier.iter().find(|it| it.name.value == class.name.value) {
            problems
                .error(class.name.place, format!("two classes are called `{}`", short(&class.name.value)))
                .label("again here")
                .related(first.name.place, "first here");
        }
        if let Some(first) = earlier.iter().find(|it| !it.has_conditions)
            && !class.has_conditions
        {
            problems
                .error(class.place, "two classes have no conditions")
                .label("no request would get this class")
                .related(first.place, "this class is everything else already")
                .help("a class without conditions matches all requests that no other class matches");
        }
        if let Some(trust) = class.trust_headers.filter(|it| it.value)
            && !class.properties.iter().any(reads_claim)
        {
            problems
                .error(trust.place, "`trust_headers` has no effect here")
                .label("no condition of this class reads a header")
                .help("conditions on headers are `headers: {x-priority: critical}` and `header:NAME`");
        }
        covers_something(&class.endpoint, &class.except, problems);
    }
    (0..).zip(written).map(|(rank, class)| compiled(rank, class)).collect()
}

/// Whether a condition reads text that every client can choose.
pub(super) fn reads_claim(condition: &Condition) -> bool {
    match condition {
        Condition::Value(source, _) | Condition::Present(source) => is_claim(source),
        Condition::Address(_) | Condition::Endpoint(_) => false,
    }
}

fn compiled(rank: u8, class: &Class) -> PriorityClass {
    let except: Vec<_> = class.except.iter().map(|it| it.value.clone()).collect();
    let mut endpoints: Vec<_> = class.endpoint.iter().map(|it| it.value.clone()).collect();
    if endpoints.is_empty() && !except.is_empty() {
        endpoints.push(PathPattern::everything());
    }
    let conditions = ClassConditions {
        endpoints,
        except,
        methods: class.method.iter().map(|it| it.value.as_str().into()).collect(),
        hosts: class.host.iter().map(|it| it.value.clone()).collect(),
        plans: class.plan.iter().map(|it| it.value.as_str().into()).collect(),
        properties: Conditions::new(class.properties.iter().cloned()),
    };
    PriorityClass {
        name: class.name.value.as_str().into(),
        rank,
        conditions: class.has_conditions.then_some(conditions),
        trusts_headers: class.trust_headers.is_some_and(|it| it.value),
    }
}
