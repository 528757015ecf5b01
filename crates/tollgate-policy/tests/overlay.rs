//! Values from outside the file: a second file, the command line, the environment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_document::{Diagnostics, Document, Setting};
use tollgate_policy::Policy;

fn on_the_command_line(document: &mut Document, path: &str, value: &str) -> Result<(), Diagnostics> {
    let typed = format!("--set {path}=");
    document.set(&Setting { origin: "on the command line", typed: &typed, path, value })
}

const POLICY: &str = "limits:\n  - name: api\n    by: ip\n    bucket: 5/minute\n";

#[test]
fn a_value_is_set_wherever_its_path_leads() {
    for (path, value, expected) in [
        ("limits", "[{by: ip, bucket: 7/minute}]", "token-bucket 7/minute"),
        ("limits.api.bucket", "8/minute", "token-bucket 8/minute"),
        ("limits.0.bucket", "9/minute, burst 2", "token-bucket 9/minute, burst 2"),
        ("limits.api.algorithm", "gcra", "token-bucket 5/minute, burst 1"),
    ] {
        let mut document = Document::parse(POLICY).unwrap();
        on_the_command_line(&mut document, path, value).unwrap();
        let policy = Policy::from_document(&document).unwrap();
        assert_eq!(policy.limits()[0].rules()[0].quota.to_string(), expected, "{path}={value}");
    }
    let mut empty = Document::parse("").unwrap();
    on_the_command_line(&mut empty, "a.b.c", "x").unwrap();
    assert_eq!(empty.root().get("a").unwrap().get("b").unwrap().get("c").unwrap().text(), Some("x"));
}

#[test]
fn a_later_value_wins() {
    let mut document = Document::parse(POLICY).unwrap();
    for value in ["1", "2", "3"] {
        on_the_command_line(&mut document, "max_keys", value).unwrap();
    }
    assert_eq!(Policy::from_document(&document).unwrap().max_keys(), 3);
}

#[test]
fn a_mistake_is_shown_where_it_was_typed() {
    let mut document = Document::parse(POLICY).unwrap();
    on_the_command_line(&mut document, "limits.api.bucket", "10/minuet").unwrap();
    let wrong = Policy::from_document(&document).unwrap_err().render("policy.yaml");
    assert_eq!(
        wrong,
        "error: `minuet` is not a unit of time\n  --> on the command line\n   |\n   | --set limits.api.bucket=10/minuet\n   |                            ^^^^^^ did you mean `minute`?\n   |\n   = help: the units are ms, second, minute, hour, day, week and month; s, m, h, d and w for short\n"
    );
}

#[test]
fn an_unknown_word_of_a_path_is_shown_in_the_path() {
    let mut document = Document::parse(POLICY).unwrap();
    on_the_command_line(&mut document, "limits.api.missng", "skip").unwrap();
    let wrong = Policy::from_document(&document).unwrap_err();
    assert_eq!(
        (wrong[0].place.column, wrong[0].place.width, &*wrong[0].label),
        (18, 6, "did you mean `missing`?")
    );
}

#[test]
fn a_failed_set_changes_nothing() {
    for (path, value) in [
        ("", "x"),
        ("a..b", "x"),
        ("limits.nobody.bucket", "1/s"),
        ("limits.7", "1/s"),
        ("limits.api.by.x", "1"),
        ("max_keys", "[1"),
        ("max_keys", "&a 1"),
        (&"a.".repeat(40), "1"),
    ] {
        let mut document = Document::parse(POLICY).unwrap();
        let before = document.root().clone();
        let wrong = on_the_command_line(&mut document, path, value).unwrap_err().render("policy.yaml");
        assert!(wrong.contains("--> on the command line"), "{path}={value}: {wrong}");
        assert_eq!(*document.root(), before, "{path}={value}");
    }
}

#[test]
fn a_variable_is_one_place_whatever_its_path() {
    let mut document = Document::parse(POLICY).unwrap();
    let setting = Setting {
        origin: "in the environment",
        typed: "TOLLGATE_MAX_KEYS=",
        path: "max_keys",
        value: "many",
    };
    document.set(&setting).unwrap();
    let wrong = Policy::from_document(&document).unwrap_err().render("policy.yaml");
    assert!(wrong.contains("| TOLLGATE_MAX_KEYS=many\n   |                   ^^^^ "), "{wrong}");
}

#[test]
fn two_files_are_one_document_and_share_no_section() {
    let mut document = Document::parse(&format!("{POLICY}listen: {{api: off}}\n")).unwrap();
    let other = Document::parse("log: {level: info}\n\nlisten: {api: off}\n").unwrap();
    let wrong = document.join(&other, "settings.yaml").unwrap_err().render("policy.yaml");
    assert_eq!(
        wrong,
        "error: `listen` is in both files\n  --> settings.yaml:3:1\n   |\n 3 | listen: {api: off}\n   | ^^^^^^ again here\n  ::: policy.yaml:5:1\n   |\n 5 | listen: {api: off}\n   | ------ and here\n   |\n   = help: keep it in one of them\n"
    );
    document.remove("listen");
    document.join(&other, "settings.yaml").unwrap();
    assert_eq!(document.root().get("listen").unwrap().place.line, 3);
}
