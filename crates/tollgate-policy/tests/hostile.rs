//! Hostile files and requests never break the reader.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use tollgate_document::Document;
use tollgate_policy::{Call, Checks, Policy};

use crate::seeded::seeded;

const SEED: u64 = 0x0070_6f6c_6963_7903;
const GOOD: [&str; 3] = [
    include_str!("../good/everything.yaml"),
    include_str!("../good/first.yaml"),
    include_str!("../good/tenants.yaml"),
];

/// Reads a text and prints the result, valid or not.
fn read(text: &str) {
    match Policy::parse(text) {
        Ok(policy) => drop(policy.warnings().render("p.yaml")),
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "a refusal says why");
            let shown = mistakes.render("p.yaml");
            assert!(!shown.chars().any(|it| it.is_control() && it != '\n'), "{shown:?}");
        }
    }
}

proptest! {
    #![proptest_config(seeded(SEED, 3_000))]

    #[test]
    fn random_text_is_answered(text in any::<String>()) {
        read(&text);
    }

    #[test]
    fn random_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_yaml_is_answered(text in "([-:?,\\[\\]{}#&*!|>'\"%@`~ \n\r\ta1\\\\.<=]|: |- |\n  ){0,60}") {
        read(&text);
    }

    #[test]
    fn mutated_policies_are_answered(
        file in 0..GOOD.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0..4_usize, "[-:\\[\\]{}\"'#/,* \n\ta0é\u{202e}]{0,4}"), 1..6),
    ) {
        let mut text: Vec<char> = GOOD[file].chars().collect();
        for (at, removed, added) in changes {
            let at = at.index(text.len());
            let end = (at + removed).min(text.len());
            text.splice(at..end, added.chars());
        }
        read(&text.into_iter().collect::<String>());
    }

    #[test]
    fn random_values_in_every_place_of_a_limit_are_answered(value in "\\PC{0,12}", word in 0..22_usize) {
        let words = [
            "name", "endpoint", "method", "host", "headers", "by", "missing", "bucket", "rate", "windows", "slots", "ttl",
            "algorithm", "align", "timezone", "parts", "strict", "count_denied", "cost", "mode", "plans", "overrides", "on_outage", "dialects",
        ];
        let value = value.replace('\'', "''");
        read(&format!("limits:\n  - by: ip\n    bucket: 1/s\n    {}: '{value}'\n", words[word]));
        read(&format!("limits:\n  - {}: {value}\n", words[word]));
    }

    #[test]
    fn random_requests_are_answered(
        method in "\\PC{0,4}", path in any::<String>(), host in any::<String>(), query in any::<String>(),
        header in any::<Vec<u8>>(), name in prop::sample::select(vec!["cookie", "authorization", "x-cost", "x-plan", "x-device"]),
    ) {
        let policy = Policy::parse(GOOD[0]).unwrap();
        let target = format!("{path}?{query}");
        let call = Call::new(&method, &target).host(&host).header(name, &header).header("x-client", "1").header("x-version", "2");
        let mut checks = Checks::new();
        policy.match_request(&call, &mut checks);
        checks.iter().for_each(|check| drop(check.key.display().to_string()));
    }
}

#[test]
fn files_that_would_grow_without_bound_are_refused() {
    for text in [
        "[".repeat(100_000),
        "- ".repeat(100_000),
        "{a: ".repeat(50_000),
        format!("limits: [{}]", "1,".repeat(1_100_000)),
        "#".repeat((8 << 20) + 1),
        format!("a: \"{}", "x".repeat(1 << 20)),
    ] {
        let mistakes = Policy::parse(&text).unwrap_err();
        assert!(mistakes.render("p.yaml").len() < 2_000, "{mistakes}");
    }
}

#[test]
fn thousands_of_mistakes_are_reported_up_to_a_hundred() {
    let text = format!("limits:\n{}", "  - {by: ip, bucket: 10/minuet}\n".repeat(5_000));
    let mistakes = Policy::parse(&text).unwrap_err();
    assert_eq!(mistakes.len(), 100);
    assert!(mistakes.render("p.yaml").ends_with("and 4900 more\n"));
}

#[test]
fn a_section_of_the_server_is_left_to_the_server() {
    let text = "listen: {api: off, nonsense: [1, 2]}\nstore: {redis: x}\nlimits: [{by: ip, bucket: 1/s}]\n";
    let document = Document::parse(text).unwrap();
    assert!(Policy::from_document(&document).is_ok());
    assert_eq!(
        document.root().get("listen").and_then(|it| it.get("api")).and_then(|it| it.text()),
        Some("off")
    );
}

/// A request with the same header in several lines.
struct Repeated<'a>(&'a [&'a str]);

impl tollgate_policy::Request for Repeated<'_> {
    fn method(&self) -> &'static str {
        "GET"
    }

    fn path(&self) -> &'static str {
        "/"
    }

    fn client(&self) -> Option<std::net::IpAddr> {
        Some([203, 0, 113, 9].into())
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.header_line(name, 0)
    }

    fn header_line(&self, name: &str, index: usize) -> Option<&[u8]> {
        (name == "x-api-key").then(|| self.0.get(index).map(|line| line.as_bytes()))?
    }
}

#[test]
fn a_caller_who_names_two_keys_is_counted_as_one_who_names_none() {
    let policy = tollgate_policy::Policy::parse("limits: [{by: api_key, bucket: 1/minute}]").unwrap();
    let key = |lines: &[&str]| {
        let mut checks = tollgate_policy::Checks::new();
        policy.match_request(&Repeated(lines), &mut checks);
        checks[0].key.clone()
    };
    assert_eq!(key(&["a", "b"]), key(&[]));
    assert_eq!(key(&["b", "a", "a"]), key(&[]));
    assert_eq!(key(&["a", "a"]), key(&["a"]));
    assert_ne!(key(&["a"]), key(&[]));
}
