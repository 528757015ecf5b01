//! The priority classes: unique names, one class for everything else, and which of their conditions a
//! client can satisfy by text that it chooses.

use tollgate_document::{Problems, short};

use super::limit::covers_something;
use crate::file_format::priorities::Class;
use crate::identify::{Credential, Identify};
use crate::lists::{Condition, Conditions};
use crate::pattern::PathPattern;
use crate::priority::{ClassConditions, PriorityClass};
use crate::source::KeySource;

/// The places from which credentials and plans are read.
#[derive(Debug)]
pub(super) struct Origins<'f> {
    pub(super) identify: &'f Identify,
    pub(super) plan_from: Option<&'f KeySource>,
}

/// Where a condition gets its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin<'f> {
    /// Only from text that clients choose: this header, cookie, query parameter or bearer token.
    Claimed(&'f Credential),
    /// From such text, and from verified claims.
    Mixed,
    /// From values that clients do not choose.
    Verified,
}

impl<'f> Origins<'f> {
    /// Returns the origin of a property.
    pub(super) fn of(&self, source: &KeySource) -> Origin<'f> {
        let places = match source {
            KeySource::User => &self.identify.user,
            KeySource::ApiKey => &self.identify.api_key,
            KeySource::Tenant => &self.identify.tenant,
            _ => return Origin::Verified,
        };
        match (places.iter().find(|it| !it.is_verified()), places.iter().any(Credential::is_verified)) {
            (Some(place), false) => Origin::Claimed(place),
            (Some(_), true) => Origin::Mixed,
            (None, _) => Origin::Verified,
        }
    }

    /// Whether the class has a condition that a client may satisfy by text that it chooses.
    fn may_be_claimed(&self, class: &Class) -> bool {
        let may_be = |source: &KeySource| source.is_claim() || self.of(source) != Origin::Verified;
        !class.plan.is_empty() && self.plan_from.is_some_and(may_be)
            || class.properties.iter().filter_map(Condition::source).any(may_be)
    }
}

/// Builds the classes, and reports mistakes that involve more than one value.
pub(super) fn classes(
    written: &[Class],
    origins: &Origins<'_>,
    problems: &mut Problems,
) -> Vec<PriorityClass> {
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
            && !origins.may_be_claimed(class)
        {
            problems
                .error(trust.place, "`trust_headers` has no effect here")
                .label("no condition of this class reads a header")
                .help("conditions on headers are `headers: {x-priority: critical}`, `header:NAME`, and credentials and plans that are read from a header");
        }
        covers_something(&class.endpoint, &class.except, problems);
    }
    (0..).zip(written).map(|(rank, class)| compiled(rank, class)).collect()
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
