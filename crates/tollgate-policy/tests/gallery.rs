//! One bad file for each mistake, with the exact message beside it.
//!
//! `TOLLGATE_BLESS=1 cargo test -p tollgate-policy --test integration gallery` rewrites the
//! messages; read them before you commit them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use tollgate_document::Document;
use tollgate_policy::Policy;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|it| it == "yaml"));
    files.sort();
    files
}

#[allow(clippy::disallowed_methods, reason = "a switch for test runs, not for the product")]
fn blessing() -> bool {
    std::env::var("TOLLGATE_BLESS").is_ok()
}

#[test]
fn every_bad_file_says_what_to_change() {
    let files = files("gallery");
    assert!(files.len() >= 45, "the gallery has {} files", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let message = match Policy::parse(&text) {
            Ok(_) => String::from("no mistake found\n"),
            Err(mistakes) => mistakes.render(name),
        };
        assert!(!message.contains("no mistake found"), "{name} is a good file");
        let control = message.chars().find(|char| char.is_control() && *char != '\n');
        assert_eq!(control, None, "{name}: the message can be printed");
        let expected = file.with_extension("txt");
        if blessing() {
            fs::write(&expected, &message).unwrap();
        } else if fs::read_to_string(&expected).ok().as_deref() != Some(&message) {
            wrong.push(format!("{name} now says:\n{message}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_good_file_is_understood() {
    for file in files("good") {
        let text = fs::read_to_string(&file).unwrap();
        let policy = Policy::parse(&text).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        assert!(policy.warnings().is_empty(), "{}: {}", file.display(), policy.warnings());
        assert!(Policy::from_document(&Document::parse(&text).unwrap()).is_ok());
    }
}

#[test]
fn probable_mistakes_are_warnings() {
    for (text, message) in [
        (
            "limits: [{by: ip, rate: 10/minute, algorithm: fixed-window}]",
            "a fixed window admits up to twice its rate around its border",
        ),
        (
            "limits: [{name: a, by: ip, bucket: 1/s}, {name: b, by: ip, bucket: 9/m}]",
            "this limit counts the same requests by the same key as another",
        ),
        (
            "limits: [{by: ip, bucket: 1/s, headers: {x: a}}, {by: ip, bucket: 9/m, headers: {x: b}}]",
            "two limits would be called `everything-by-ip`",
        ),
        ("plans: {default: free}\nlimits: [{by: ip, bucket: 1/s}]", "no limit has a plan `free`"),
        ("limits: [{by: ip, bucket: 1/s, method: PSOT}]", "`PSOT` is not a common method"),
        ("limits: [{by: global, bucket: 1/s, missing: refuse}]", "`missing` has no effect here"),
        ("allow: [{ip: 0.0.0.0/0}]\nlimits: [{by: ip, bucket: 1/s}]", "this entry admits every request"),
        (
            "client: {trusted_proxies: 0.0.0.0/0}\nlimits: [{by: ip, bucket: 1/s}]",
            "every caller is trusted to state its own address",
        ),
        (
            "limits: [{descriptor: [a], bucket: 1/s, quota: 5}]",
            "a quota is charged when it is granted, used or not",
        ),
        (
            // Once for any number of them.
            "limits: [{endpoint: /a, by: ip, rate: 1/s, algorithm: fixed-window}, {endpoint: /b, by: ip, rate: 2/s, algorithm: fixed-window}]",
            "a fixed window admits up to twice its rate around its border",
        ),
        ("client: {ipv6_prefix: 128}\nlimits: [{by: ip, bucket: 1/s}]", "one customer owns at least a /64"),
    ] {
        let policy = Policy::parse(text).unwrap();
        let found: Vec<&str> = policy.warnings().iter().map(|it| it.message.as_str()).collect();
        assert_eq!(found, [message], "{text}");
    }
}

#[test]
fn a_warning_of_many_limits_says_how_many_and_where() {
    let limit = |at: usize| {
        format!("  - {{name: l{at}, endpoint: /{at}, by: ip, rate: 1/s, algorithm: fixed-window}}\n")
    };
    let said = |count: usize| {
        let limits: String = (0..count).map(limit).collect();
        let policy = Policy::parse(&format!("limits:\n{limits}")).unwrap();
        assert_eq!(policy.warnings().len(), 1);
        policy.warnings()[0].help.concat()
    };
    assert!(!said(1).contains("more "));
    assert!(said(2).ends_with("one more is like this: line 3"));
    assert!(said(3).ends_with("2 more are like this: lines 3, 4"));
    assert!(said(500).ends_with("499 more are like this: lines 3, 4, 5, 6, 7, ..."));
}
