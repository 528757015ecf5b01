//! Files of envoyproxy/ratelimit and their imported policies: the policies are valid, and decide
//! alike unless a comment states a difference.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-import --test integration envoy` rewrites the policies;
//! read them before you commit them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate::policy::Descriptor;
use tollgate::{Decision, Limiter, ManualClock, MemoryStore, Policy, Timestamp};
use tollgate_envoy::{DescriptorMatch, Domains, EnvoyConfig, EnvoyFile};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("gallery/envoy").join(name)
}

fn file(name: &str) -> EnvoyFile {
    EnvoyFile { name: name.into(), text: fs::read_to_string(path(name)).unwrap() }
}

#[allow(clippy::disallowed_methods, reason = "a switch for test runs, not for the product")]
fn blessing() -> bool {
    std::env::var("TOLLGATE_BLESS").is_ok()
}

#[test]
fn every_file_becomes_the_policy_beside_it_and_that_can_be_read() {
    for name in ["shop.yaml", "odd.yaml"] {
        let imported = tollgate_import::envoy(&[file(name)], false).unwrap();
        Policy::parse(&imported.policy).unwrap_or_else(|wrong| panic!("{wrong}\n{}", imported.policy));
        let control = imported.policy.chars().find(|it| it.is_control() && *it != '\n');
        assert_eq!(control, None, "{name}: it can be printed");
        let expected = path(name).with_extension("policy.yaml");
        if blessing() {
            fs::write(&expected, &imported.policy).unwrap();
        }
        assert_eq!(fs::read_to_string(expected).unwrap(), imported.policy, "{name}");
    }
}

fn limiter(policy: Policy) -> Limiter<MemoryStore<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    Limiter::with_store(policy, MemoryStore::with_clock(1_000, clock))
}

/// Decides by the files themselves, like the rate limit service.
fn by_files(limiter: &Limiter<MemoryStore<ManualClock>>, domain: &str, entries: &[(&str, &str)]) -> bool {
    match Domains::of(limiter.policy()).unwrap().find(domain, entries) {
        DescriptorMatch::Limited(leaf) => {
            let limit = leaf.limit(limiter.policy()).unwrap();
            let decide =
                limiter.try_decide_named(limit, leaf.key(entries), None, Some(1), Decision::is_allowed);
            decide.unwrap()
        }
        _ => true,
    }
}

#[test]
fn the_policy_decides_as_the_files_do() {
    let files = [file("shop.yaml")];
    let imported = tollgate_import::envoy(&files, false).unwrap();
    let native = limiter(Policy::parse(&imported.policy).unwrap());
    let config = EnvoyConfig::read(&files, false).unwrap();
    let served = limiter(config.apply(Policy::default()).unwrap());
    let (mut admitted, mut refused) = (0, 0);
    for entries in [
        &[("client", "warehouse")][..],
        &[("client", "auditor")],
        &[("client", "scraper")],
        &[("client", "ann")],
        &[("client", "tom")],
        &[("client", "ann"), ("more", "x")],
        &[("plan", "silver"), ("user", "ann")],
        &[("plan", "silver"), ("user", "tom")],
        &[("plan", "silver")],
        &[("file", "images/a")],
        &[("file", "images/b")],
        &[("file", "texts/b")],
        &[("path", "/v1/a/export")],
        &[("path", "/v1/b/export")],
        &[("path", "/v1/b")],
        &[("path", "/v2/b")],
        &[("campaign", "autumn")],
        &[("intranet", "wiki")],
        &[("unknown", "x")],
    ] {
        for round in 0..7 {
            let expected = by_files(&served, "shop", entries);
            let found = native.check(&Descriptor::new("shop", entries)).is_allowed();
            assert_eq!(found, expected, "{entries:?}, round {round}\n{}", imported.policy);
            if found { admitted += 1 } else { refused += 1 }
        }
    }
    assert!(admitted > 20 && refused > 20, "{admitted} and {refused}");
}

#[test]
fn mistakes_are_reported_as_for_served_files() {
    let file = EnvoyFile { name: "x.yaml".into(), text: "domain: x\ndescriptors: [{kye: a}]".into() };
    let wrong = tollgate_import::envoy(&[file], false).unwrap_err();
    assert!(wrong[0].1.render("x.yaml").contains("did you mean `key`?"));
}

#[test]
fn files_of_one_domain_are_merged_by_the_option_of_this_command() {
    let file = |name: &str| EnvoyFile { name: name.into(), text: "domain: x\n".into() };
    let files = [file("a.yaml"), file("b.yaml")];
    let said = tollgate_import::envoy(&files, false).unwrap_err()[0].1.render("b.yaml");
    assert!(said.contains("`--merge`") && !said.contains("merge_domains"), "{said}");
    assert!(tollgate_import::envoy(&files, true).is_ok());
}

#[test]
fn a_limit_of_zero_does_not_become_unlimited() {
    let text = "domain: d\ndescriptors:
  - {key: address, value: 10.*, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: bot, rate_limit: {unit: day, requests_per_unit: 0}}
  - {key: bot, value: good, rate_limit: {unlimited: true}}
";
    let files = [EnvoyFile { name: "d.yaml".into(), text: text.into() }];
    let imported = tollgate_import::envoy(&files, false).unwrap();
    assert_eq!(imported.notes.iter().filter(|it| it.contains("ALMOST")).count(), 2, "{:?}", imported.notes);
    let limiter = limiter(Policy::parse(&imported.policy).unwrap());
    let admitted = |entries: &[(&str, &str)]| {
        let descriptor = Descriptor::new("d", entries);
        (0..5).filter(|_| limiter.check(&descriptor).is_allowed()).count()
    };
    // One per year, as the comments say: for all addresses together, and for each bot.
    assert_eq!(admitted(&[("address", "10.1.1.1")]), 1);
    assert_eq!(admitted(&[("address", "10.1.1.2")]), 0);
    assert_eq!(admitted(&[("bot", "bad")]), 1);
    assert_eq!(admitted(&[("bot", "good")]), 5);
}

#[test]
fn a_refused_request_is_counted_by_all_its_descriptors_as_in_the_files() {
    let text = "domain: d\ndescriptors:
  - {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: b, rate_limit: {unit: day, requests_per_unit: 5}}
";
    let files = [EnvoyFile { name: "d.yaml".into(), text: text.into() }];
    let imported = tollgate_import::envoy(&files, false).unwrap();
    let limiter = limiter(Policy::parse(&imported.policy).unwrap());
    let both = [Descriptor::new("d", &[("a", "x")]), Descriptor::new("d", &[("b", "x")])];
    let passed = (0..3)
        .filter(|_| limiter.try_decide_batch(&both, |it: &Decision<'_>| it.is_allowed()).unwrap())
        .count();
    assert_eq!(passed, 1);
    let rest = (0..5).filter(|_| limiter.check(&both[1]).is_allowed()).count();
    assert_eq!(rest, 2, "five, less the three that were asked");
}
