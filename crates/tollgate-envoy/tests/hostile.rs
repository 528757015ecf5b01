//! Hostile files and descriptors.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate::Policy;
use tollgate_envoy::{DescriptorMatch, Domains, EnvoyConfig, EnvoyFile};

fn file(text: String) -> EnvoyFile {
    EnvoyFile { name: "hostile.yaml".into(), text }
}

#[test]
fn too_many_descriptors_are_refused_over_all_files() {
    let many = |name: &str| {
        let descriptors: Vec<_> = (0..60_000).map(|number| format!("- {{key: k{number}}}\n")).collect();
        file(format!("domain: {name}\ndescriptors:\n{}", descriptors.concat()))
    };
    let mistakes = EnvoyConfig::read(&[many("a"), many("b")], false).unwrap_err();
    assert_eq!(mistakes.len(), 1);
    assert_eq!(mistakes[0].1[0].message, "the files hold too many descriptors");
}

#[test]
fn a_descriptor_of_any_length_is_answered() {
    let text = "domain: d\ndescriptors:
  - {key: k, value: '*a*b*c*d*', rate_limit: {unit: day, requests_per_unit: 1}}
  - {key: k, descriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 2}}]}
";
    let config = EnvoyConfig::read(&[file(text.to_owned())], false).unwrap();
    let policy = config.apply(Policy::default()).unwrap();
    let domains = Domains::of(&policy).unwrap();
    let long = "a".repeat(1 << 20);
    assert!(matches!(domains.find("d", &[("k", &long)]), DescriptorMatch::NoLimit));
    assert!(matches!(domains.find("d", &vec![("k", "x"); 100_000]), DescriptorMatch::NoLimit));
    let DescriptorMatch::Limited(leaf) = domains.find("d", &[("k", "x"), ("k", &long)]) else { panic!() };
    let key = leaf.key(&[("k", "x"), ("k", &long)]);
    assert!(key.as_bytes().len() < 100, "a long value is kept as its digest");
}

#[test]
fn noise_is_refused_or_read_but_never_breaks_anything() {
    let words = [
        "domain",
        "descriptors",
        "key",
        "value",
        "rate_limit",
        "unit",
        "requests_per_unit",
        "unlimited",
        "name",
        "replaces",
        "shadow_mode",
        "share_threshold",
        "metadata",
        ": ",
        ": ",
        ": ",
        "\n",
        "\n  ",
        "\n  - ",
        "\n    ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "*",
        "minute",
        "5",
        "true",
        "'",
        "\"",
        "é",
        "~",
        "#",
        "&a ",
    ];
    // A small generator with a fixed seed yields the same texts on every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % below
    };
    let mut good = 0;
    for _ in 0..5_000 {
        let mut text =
            String::from(if next(2) == 0 { "domain: d\ndescriptors:\n  - key: k\n    " } else { "" });
        (0..next(30)).for_each(|_| text += words[next(words.len())]);
        match EnvoyConfig::read(&[file(text)], next(2) == 0) {
            Ok(config) => {
                config.apply(Policy::default()).unwrap();
                good += 1;
            }
            Err(mistakes) => {
                let said = mistakes[0].1.render("x");
                assert!(said.contains("error"), "{said}");
            }
        }
    }
    assert!(good > 30, "{good} files were good");
}
