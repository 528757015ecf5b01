//! Domains that have not changed are not compiled again, and the result is the same.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::sync::Arc;

use tollgate::{Limit, Policy};
use tollgate_envoy::{DescriptorMatch, Domain, DomainCache, Domains, EnvoyConfig, EnvoyFile};

/// Returns a domain with one limit for each key.
fn domain(name: &str, keys: &[&str], requests: u32) -> Arc<Domain> {
    let limit = |key: &&str| {
        format!("  - {{key: '{key}', rate_limit: {{unit: day, requests_per_unit: {requests}}}}}\n")
    };
    let text: String = keys.iter().map(limit).collect();
    let file = EnvoyFile { name: name.into(), text: format!("domain: '{name}'\ndescriptors:\n{text}") };
    Arc::clone(&EnvoyConfig::read(&[file], false).unwrap().domains()[0])
}

fn config(domains: &[Arc<Domain>]) -> EnvoyConfig {
    EnvoyConfig::of_domains(domains.iter().cloned(), false).unwrap()
}

fn names(policy: &Policy) -> Vec<&str> {
    policy.limits().iter().map(Limit::name).collect()
}

/// Applies domains, and checks that the cache makes no difference.
#[track_caller]
fn apply(domains: &[Arc<Domain>], base: &Policy, cache: &mut DomainCache) -> Policy {
    let cached = config(domains).apply_cached(base.clone(), cache).unwrap();
    let fresh = config(domains).apply(base.clone()).unwrap();
    assert_eq!(names(&cached), names(&fresh));
    for leaf in Domains::of(&cached).unwrap().leaves() {
        let limit = leaf.limit(&cached).unwrap();
        assert_eq!(cached.limit(limit.name()).map(Limit::place), leaf.place());
        assert_eq!(limit.envoy_match().unwrap().domain(), leaf.domain());
    }
    cached
}

fn requests(policy: &Policy, domain: &str, key: &str) -> Option<u32> {
    match Domains::of(policy).unwrap().find(domain, &[(key, "x")]) {
        DescriptorMatch::Limited(leaf) => leaf.requests_per_unit(),
        _ => None,
    }
}

#[test]
fn an_unchanged_domain_is_not_compiled_again() {
    let base = Policy::parse("limits: [{name: native, by: ip, bucket: 1/s}]").unwrap();
    let mut cache = DomainCache::default();
    let mut domains: Vec<_> = (0..20).map(|at| domain(&format!("d{at}/http"), &["a", "b"], 1)).collect();
    apply(&domains, &base, &mut cache);
    assert_eq!(cache.compiled(), 20);
    // One domain has another number, another one has one more limit, and one is gone.
    domains[3] = domain("d3/http", &["a", "b"], 7);
    let policy = apply(&domains, &base, &mut cache);
    assert_eq!((cache.compiled(), requests(&policy, "d3/http", "b")), (21, Some(7)));
    domains[0] = domain("d0/http", &["a", "new", "b"], 1);
    domains.remove(7);
    let policy = apply(&domains, &base, &mut cache);
    assert_eq!((cache.compiled(), policy.limits().len()), (22, 1 + 39));
    assert_eq!(requests(&policy, "d0/http", "new"), Some(1));
    assert_eq!(requests(&policy, "d7/http", "a"), None);
    // Neither another order nor another policy of the file compiles a domain.
    domains.reverse();
    apply(&domains, &Policy::default(), &mut cache);
    assert_eq!(cache.compiled(), 22);
}

#[test]
fn domains_that_want_the_same_name_are_compiled_together() {
    let base = Policy::parse("limits: [{name: shop.user, by: ip, bucket: 1/s}]").unwrap();
    let mut cache = DomainCache::default();
    // `a` with `b.c` and `a.b` with `c` have the same readable name, and `shop.user` is taken.
    let domains = [
        domain("a", &["b.c", "x"], 1),
        domain("other", &["k"], 1),
        domain("a.b", &["c"], 2),
        domain("shop", &["user"], 3),
        domain("empty", &[], 0),
    ];
    let policy = apply(&domains, &base, &mut cache);
    let mut unique = names(&policy);
    assert_eq!((unique[0], unique.len()), ("shop.user", 6));
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 6);
    for (domain, key, expected) in [("a", "b.c", 1), ("a", "x", 1), ("a.b", "c", 2), ("shop", "user", 3)] {
        assert_eq!(requests(&policy, domain, key), Some(expected), "{domain} {key}");
    }
    let compiled = cache.compiled();
    let again = apply(&domains, &base, &mut cache);
    assert_eq!((cache.compiled(), names(&again)), (compiled, names(&policy)));
}
