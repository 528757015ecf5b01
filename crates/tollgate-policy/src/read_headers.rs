//! The headers that a policy reads: in keys, conditions, costs, lists and plans.
//!
//! A gateway needs them because servers that follow CGI treat `X_Api_Key` as
//! `X-Api-Key`. The policy does not read such a header, and the gateway must not forward it.

use crate::cost::Cost;
use crate::identify::{Credential, Identify};
use crate::policy::Policy;
use crate::priority::PriorityClass;
use crate::source::KeySource;

/// Returns the names of all headers that a policy reads, in lower case.
pub(crate) fn all(policy: &Policy) -> Vec<Box<str>> {
    let by = policy.limits.iter().flat_map(|limit| &limit.by);
    let lists = policy.allow.sources().chain(policy.deny.sources());
    let classes = policy.priorities.iter().flat_map(PriorityClass::sources);
    let conditions = policy.limits.iter().flat_map(|limit| &limit.headers);
    let costs = policy.limits.iter().filter_map(|limit| match &limit.cost {
        Cost::Header(name) => Some(name.clone()),
        Cost::Fixed(_) | Cost::Body(_) => None,
    });
    let queues = policy.limits.iter().filter_map(|limit| limit.slot_queue.as_deref());
    let mut names: Vec<Box<str>> = by
        .chain(queues.flat_map(|queue| &queue.fair_by))
        .chain(lists)
        .chain(classes)
        .chain(&policy.plan_from)
        .flat_map(|source| of_source(source, &policy.identify))
        .chain(conditions.map(|condition| condition.name.clone()))
        .chain(costs)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn of_source(source: &KeySource, identify: &Identify) -> Vec<Box<str>> {
    let places = match source {
        KeySource::User => &identify.user,
        KeySource::ApiKey => &identify.api_key,
        KeySource::Tenant => &identify.tenant,
        KeySource::Header(name) => return vec![name.clone()],
        KeySource::Cookie(_) => return vec!["cookie".into()],
        _ => return Vec::new(),
    };
    let of_place = |place: &Credential| match place {
        Credential::Bearer => vec!["authorization".into()],
        Credential::Named(source) => of_source(source, identify),
    };
    places.iter().flat_map(of_place).collect()
}

/// Whether two names differ only in characters that are no letters and no digits: servers that keep headers
/// in variables (`HTTP_X_API_KEY`) write all of that as `_`.
pub fn are_lookalikes(one: &str, other: &str) -> bool {
    let folded = |byte: u8| if byte.is_ascii_alphanumeric() { byte } else { b'-' };
    one.len() == other.len() && one != other && one.bytes().map(folded).eq(other.bytes().map(folded))
}

#[cfg(test)]
mod tests {
    use crate::Policy;

    #[test]
    fn every_header_that_matters_is_known() {
        let policy = Policy::parse(
            r#"
identify: {user: "header:x-who", tenant: "cookie:t", api_key: bearer}
plans: {from: "header:x-plan"}
allow: [{"header:x-allow": a}]
deny: [{"header:x-deny": a, ip: 192.0.2.1}]
priorities: [{name: rest}, {name: bulk, headers: {x-bulk: "*"}}]
limits: [{by: [user, tenant, api_key, "header:x-key"], headers: {x-kind: heavy}, cost: "header:x-cost", bucket: 10/s}, {name: db, by: global, slots: 5, queue: {length: 5}, fair_by: "header:x-fair"}]
"#,
        )
        .unwrap();
        assert_eq!(
            policy.read_headers.iter().map(|name| &**name).collect::<Vec<_>>(),
            [
                "authorization",
                "cookie",
                "x-allow",
                "x-bulk",
                "x-cost",
                "x-deny",
                "x-fair",
                "x-key",
                "x-kind",
                "x-plan",
                "x-who"
            ]
        );
    }

    #[test]
    fn a_lookalike_differs_in_punctuation_alone() {
        let policy = Policy::parse("limits: [{by: 'header:api_key', bucket: 1/s}]").unwrap();
        assert!(policy.reads_lookalike_of("api-key") && policy.reads_lookalike_of("api.key"));
        for other in ["api_key", "apikey", "apixkey", "x_user_id"] {
            assert!(!policy.reads_lookalike_of(other), "{other}");
        }
    }
}
