//! `scope: global`: the rules of the regions that share a limit.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use tollgate_core::{Rule, Span};
use tollgate_policy::Policy;

const STORES: &str = "stores: {eu: redis://eu, us: redis://us, ap: redis://ap}";

/// Returns the only limit's rule in a region.
fn rule(here: &str, stores: &str, limit: &str) -> Rule {
    rules(here, stores, limit).remove(0)
}

fn rules(here: &str, stores: &str, limit: &str) -> Vec<Rule> {
    let text = format!(
        "regions: {{here: {here}, shares: {{eu: 50%, us: 30%, ap: 20%}}, {stores}}}\n\
         limits: [{{name: plan, by: tenant, {limit}}}]"
    );
    let policy = Policy::parse(&text).unwrap_or_else(|problems| panic!("{problems}"));
    policy.limits()[0].rules().to_vec()
}

#[test]
fn every_region_has_its_share_and_names_the_rules_of_the_others() {
    for limit in [
        "bucket: 1000/minute, scope: global",
        "bucket: 1003/minute, scope: global",
        "windows: [101/minute, 7001/day], scope: global",
        "rate: 999/day, algorithm: fixed-window, align: calendar, scope: global",
        "rate: 77/hour, algorithm: sliding-window, scope: global",
    ] {
        let of = |here| rules(here, STORES, limit);
        let whole = rules("eu", "", &limit.replace(", scope: global", ""));
        let regions = ["eu", "us", "ap"].map(of);
        for (at, whole) in whole.iter().enumerate() {
            let units: u64 = regions.iter().map(|rules| rules[at].quota.capacity()).sum();
            assert!(
                units <= whole.quota.capacity() && units + 3 > whole.quota.capacity(),
                "{limit}: {units}"
            );
            for (here, rules) in ["eu", "us", "ap"].iter().zip(&regions) {
                for far in rules[at].far.as_ref().unwrap().iter() {
                    let there = ["eu", "us", "ap"].iter().position(|it| *it == &*far.region).unwrap();
                    let known = &regions[there][at];
                    assert_ne!(*here, &*far.region);
                    assert_eq!((&far.rule.id, &far.rule.quota), (&known.id, &known.quota), "{limit}");
                }
                assert_ne!(rules[at].id, whole.id);
            }
        }
    }
}

#[test]
fn without_stores_nothing_is_borrowed_and_without_scope_nothing_is_split() {
    assert_eq!(rule("eu", "", "bucket: 1000/minute, scope: global").far, None);
    let own = rule("us", STORES, "bucket: 1000/minute");
    assert_eq!((own.quota.capacity(), own.far.is_none()), (1_000, true));
    assert_eq!(own.id, rule("eu", "", "bucket: 1000/minute, scope: region").id);
}

#[test]
fn all_leases_of_a_key_have_one_ttl() {
    let millis = |it| Some(Span::from_millis(it));
    for (limit, near, far) in [
        ("bucket: 1000/minute", None, millis(1_500)),
        ("bucket: 1000/hour", None, millis(10_000)),
        ("bucket: 1000/minute, lease: auto", millis(1_000), millis(1_000)),
        ("bucket: 1000/minute, lease: 2s", millis(2_000), millis(2_000)),
        ("bucket: 1000/second", None, millis(25)),
        ("bucket: '1000/second, burst 300'", None, None),
    ] {
        for here in ["eu", "us", "ap"] {
            let rule = rule(here, STORES, &format!("{limit}, scope: global"));
            let ttls: Vec<_> = rule.far.iter().flat_map(|it| it.iter()).map(|it| it.rule.lease).collect();
            assert_eq!(rule.lease, near, "{limit}");
            assert_eq!(ttls, far.map_or(Vec::new(), |it| vec![Some(it); 2]), "{limit}");
        }
    }
}

#[test]
fn plans_and_overrides_are_split_too_and_a_candidate_borrows_nothing() {
    let text = format!(
        "regions: {{here: ap, shares: {{eu: 50%, us: 30%, ap: 20%}}, {STORES}}}\n\
         limits: [{{name: plan, by: tenant, bucket: 1000/hour, scope: global, plans: {{pro: 5000/hour}}, candidate: {{bucket: 100/hour}}}}]"
    );
    let policy = Policy::parse(&text).unwrap();
    let [live, candidate] = policy.limits() else { panic!("a limit and its candidate") };
    let (_, pro) = live.plans().next().unwrap();
    let tollgate_policy::Allowance::Rules(pro) = pro else { panic!("{pro:?}") };
    assert_eq!((pro[0].quota.capacity(), pro[0].far.as_ref().unwrap().len()), (1_000, 2));
    assert_eq!((candidate.rules()[0].quota.capacity(), &candidate.rules()[0].far), (20, &None));
    let share = live.region_share().unwrap();
    assert_eq!((&*share.region, share.percent), ("ap", 20));
}

#[test]
fn a_change_of_numbers_carries_usage_over_in_every_region() {
    let policy = |limit: &str| {
        let text = format!(
            "regions: {{here: eu, shares: {{eu: 50%, us: 50%}}, stores: {{us: redis://us}}}}\n\
             limits: [{{name: plan, by: tenant, {limit}}}]"
        );
        Policy::parse(&text).unwrap()
    };
    let old = policy("bucket: 1000/hour, scope: global");
    let new = policy("bucket: 2000/hour, scope: global").carry_over_from(&old);
    let (old, new) = (&old.limits()[0].rules()[0], &new.limits()[0].rules()[0]);
    assert_eq!(new.predecessors().map(|it| it.id).collect::<Vec<_>>(), [old.id]);
    let far = |rule: &Rule| rule.far.as_ref().unwrap()[0].rule.clone();
    assert_eq!(far(new).predecessors().map(|it| it.id).collect::<Vec<_>>(), [far(old).id]);
    // A limit that was not shared had the same rule in every region.
    let own = policy("bucket: 1000/hour");
    let shared = policy("bucket: 2000/hour, scope: global").carry_over_from(&own);
    let (own, shared) = (&own.limits()[0].rules()[0], &shared.limits()[0].rules()[0]);
    assert_eq!(far(shared).predecessors().map(|it| it.id).collect::<Vec<_>>(), [own.id]);
}
