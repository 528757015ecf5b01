//! Every input yields a valid policy or a list of mistakes.
//!
//! The noise is seeded: a failure prints the case that caused it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate::Policy;
use tollgate_document::Diagnostics;
use tollgate_import::{ImportedPolicy, limitador, nginx};

const SEED: u64 = 0x0069_6d70_6f72_7401;
const CASES: usize = 4_000;

const NGINX: [&str; 7] = [
    include_str!("../gallery/nginx/keys.conf"),
    include_str!("../gallery/nginx/inheritance.conf"),
    include_str!("../gallery/nginx/exceptions.conf"),
    include_str!("../gallery/nginx/locations.conf"),
    include_str!("../gallery/nginx/dump.conf"),
    include_str!("../gallery/nginx/hostile.conf"),
    include_str!("../gallery/nginx/delays.conf"),
];
const LIMITADOR: [&str; 4] = [
    include_str!("../gallery/limitador/cel.yaml"),
    include_str!("../gallery/limitador/sandbox.yaml"),
    include_str!("../gallery/limitador/server.yaml"),
    include_str!("../gallery/limitador/hostile.yaml"),
];
/// Texts that tend to break readers and writers of such files.
const NASTY: [&str; 28] = [
    "\"",
    "'",
    "\\",
    "{",
    "}",
    ";",
    "#",
    "\n",
    "\r",
    "\u{85}",
    "\u{2028}",
    "\0",
    "$",
    "${",
    "*",
    "**",
    "[",
    "]",
    "(",
    "|",
    ": ",
    "- ",
    "&&",
    "==",
    "99999999999999999999",
    "é",
    "%",
    "~",
];

fn check(what: Result<ImportedPolicy, Diagnostics>, text: &str) {
    match what {
        Ok(imported) => {
            let policy = Policy::parse(&imported.policy);
            assert!(policy.is_ok(), "{}\nmade of {text:?}:\n{}", policy.unwrap_err(), imported.policy);
            let odd = |it: char| it.is_control() && it != '\n';
            assert!(!imported.policy.contains(odd), "{:?} of {text:?}", imported.policy);
            assert!(!imported.notes.iter().any(|it| it.contains(char::is_control)), "{:?}", imported.notes);
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "{text:?}");
            let shown = mistakes.render("x");
            assert!(!shown.contains(|it: char| it.is_control() && it != '\n'), "{shown:?}");
        }
    }
}

/// Removes, duplicates or replaces some parts of a text.
fn spoiled(text: &str, random: &mut fastrand::Rng) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    for _ in 0..random.usize(1..6) {
        let at = random.usize(0..=chars.len());
        let end = (at + random.usize(0..20)).min(chars.len());
        match random.u8(0..3) {
            0 => drop(chars.drain(at..end)),
            1 => {
                let part: Vec<_> = chars[at..end].to_vec();
                let to = random.usize(0..=chars.len());
                chars.splice(to..to, part);
            }
            _ => {
                let nasty = NASTY[random.usize(0..NASTY.len())];
                chars.splice(at..at, nasty.chars());
            }
        }
    }
    chars.into_iter().collect()
}

#[test]
fn spoiled_files_of_nginx_become_a_policy_or_mistakes() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for case in 0..CASES {
        let text = spoiled(NGINX[case % NGINX.len()], &mut random);
        check(nginx("x", &text), &text);
    }
}

#[test]
fn spoiled_files_of_limitador_become_a_policy_or_mistakes() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for case in 0..CASES {
        let text = spoiled(LIMITADOR[case % LIMITADOR.len()], &mut random);
        check(limitador("x", &text), &text);
    }
}

#[test]
fn names_and_values_of_any_kind_stay_names_and_values() {
    let mut random = fastrand::Rng::with_seed(SEED);
    for _ in 0..CASES {
        let word: String = (0..random.usize(1..12)).map(|_| NASTY[random.usize(0..NASTY.len())]).collect();
        let quoted = word.replace('\\', "\\\\").replace('"', "\\\"");
        let text = format!(
            "limit_req_zone \"$http_a{quoted}\" \"zone={quoted}:1m\" rate=5r/s;\n\
             server {{ server_name \"{quoted}\"; location \"/{quoted}\" {{ limit_req \"zone={quoted}\" burst=5; }} }}"
        );
        check(nginx(&word, &text), &text);
        let escaped: Vec<_> = word.chars().map(|it| format!("\\U{:08X}", u32::from(it))).collect();
        let escaped = escaped.concat();
        let text = format!(
            "- namespace: \"{escaped}\"\n  name: \"{escaped}\"\n  max_value: 5\n  seconds: 60\n  \
             conditions: [\"descriptors[0]['a{escaped}'] == 'b{escaped}'\"]\n  variables: [\"{escaped}\", \"x\"]\n"
        );
        check(limitador(&word, &text), &text);
    }
}

#[test]
fn deep_and_large_files_are_refused_and_not_followed() {
    for text in [
        "a {".repeat(100_000),
        "a;".repeat(300_000),
        "a ".repeat(1_000_000),
        "}".repeat(100_000),
        "x".repeat(9 << 20),
        format!(
            "# configuration file /a:\ninclude /b;\n# configuration file /b:\n{}",
            "include /b;".repeat(50)
        ),
        "limit_req zone=a;".repeat(20_000),
        format!("limit_req zone=a;server {{ {} }}", "location /a {}".repeat(50_000)),
        format!("limit_req zone=a;{}", "server { server_name a; location ~ b$ {} }".repeat(10_000)),
    ] {
        let started = text.chars().take(20).collect::<String>();
        check(nginx("x", &text), &started);
    }
    check(limitador("x", &"[".repeat(100_000)), "[");
    let many = "- {namespace: a, max_value: 1, seconds: 1}\n".repeat(20_000);
    assert!(limitador("x", &many).is_err());
}
