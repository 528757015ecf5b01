//! Files with aliases are expanded within bounds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tollgate_document::{Document, Kind, Node};

/// Formats a node in one line, for comparison.
fn shown(node: &Node) -> String {
    match &node.kind {
        Kind::Null => "~".into(),
        Kind::Scalar { text, .. } => text.clone(),
        Kind::List(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        Kind::Map(entries) => {
            let mut all: Vec<_> =
                entries.iter().map(|it| format!("{}: {}", it.name.value, shown(&it.value))).collect();
            all.sort();
            format!("{{{}}}", all.join(", "))
        }
    }
}

fn expanded(text: &str) -> String {
    shown(Document::parse_expanded(text).unwrap_or_else(|wrong| panic!("{wrong}")).root())
}

fn refused(text: &str) -> String {
    Document::parse_expanded(text).unwrap_err().render("f.yaml")
}

#[test]
fn aliases_and_merges_mean_what_they_stand_for() {
    for (text, expected) in [
        ("a: &x 1\nb: *x\n", "{a: 1, b: 1}"),
        ("a: &x {k: [1, 2]}\nb: [*x, *x]\n", "{a: {k: [1, 2]}, b: [{k: [1, 2]}, {k: [1, 2]}]}"),
        ("a: &x {k: &y 5}\nb: *y\nc: *x\n", "{a: {k: 5}, b: 5, c: {k: 5}}"),
        // An alias refers to the last anchor of its name.
        ("a: &x 1\nb: &x 2\nc: *x\n", "{a: 1, b: 2, c: 2}"),
        ("a: &x name\n*x : 1\n", "{a: name, name: 1}"),
        ("a: &x\nb: *x\n", "{a: ~, b: ~}"),
        // Entries of the map itself win, before and after; then the first of several merged maps.
        ("a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n", "{a: {k: 1, l: 2}, b: {k: 1, l: 3}}"),
        ("a: &x {k: 1, l: 2}\nb: {l: 3, <<: *x}\n", "{a: {k: 1, l: 2}, b: {k: 1, l: 3}}"),
        ("b: {<<: [{k: 1}, {k: 2, l: 3}]}\n", "{b: {k: 1, l: 3}}"),
        (
            "a: &x {k: 1}\nb: &y {<<: *x, l: 2}\nc: {<<: *y}\n",
            "{a: {k: 1}, b: {k: 1, l: 2}, c: {k: 1, l: 2}}",
        ),
        ("b: {'<<': 1}\n", "{b: {<<: 1}}"),
    ] {
        assert_eq!(expanded(text), expected, "{text}");
        if text.contains('&') {
            assert!(Document::parse(text).is_err(), "a policy has no references: {text}");
        }
    }
}

#[test]
fn a_copy_begins_at_its_alias_and_holds_the_places_of_what_was_copied() {
    let document = Document::parse_expanded("a: &x {k: 1}\nb: *x\n").unwrap();
    let copy = document.root().get("b").unwrap();
    assert_eq!((copy.place.line, copy.place.column, copy.place.width), (2, 4, 2));
    let inner = copy.get("k").unwrap().place;
    assert_eq!((inner.line, inner.column), (1, 11));
}

#[test]
fn endless_aliases_and_merges_of_other_values_are_reported() {
    for (text, expected) in [
        ("a: &x [*x]\n", "this alias is inside its own target"),
        ("a: &x {k: *x}\n", "this alias is inside its own target"),
        ("a: *nobody\n", "a value that begins with `*` or `&` needs quotes"),
        ("a: {<<: 1}\n", "`<<` merges a map, not `1`"),
        ("a: {<<: [{k: 1}, x]}\n", "`<<` merges a map, not `x`"),
        ("a: {<<: ~}\n", "`<<` merges a map, not nothing"),
    ] {
        let said = refused(text);
        assert!(said.contains(expected), "{text}: {said}");
    }
}

#[test]
fn ten_lines_do_not_become_a_billion() {
    let mut laughs = String::from("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n");
    for at in 1..12 {
        let before = vec![format!("*a{}", at - 1); 10].join(", ");
        writeln!(laughs, "a{at}: &a{at} [{before}]").unwrap();
    }
    let said = refused(&laughs);
    assert!(
        said.contains("the expanded aliases of this file are more than 1000000 values or 32 MiB"),
        "{said}"
    );

    // Few values with much text; merges; names.
    let long = "x".repeat(1 << 20);
    for text in [
        format!("a: &x {long}\nb: [{}]\n", vec!["*x"; 100].join(", ")),
        format!("a: &x {{{long}: 1}}\nb: [{}]\n", vec!["{<<: *x}"; 100].join(", ")),
    ] {
        assert!(refused(&text).contains("32 MiB"));
    }

    // Targets of anchors count, although no alias uses them.
    let many = vec!["1"; 50_000].join(",");
    let nested = (0..40).fold(many, |inner, at| format!("&n{at} [{inner}]"));
    assert!(refused(&format!("a: {nested}\n")).contains("more than 1000000 values"));

    // Each line nests the one before it, so an unbounded reader would overflow its stack.
    let mut chain = String::from("a0: &a0 [1]\n");
    for at in 1..10_000 {
        writeln!(chain, "a{at}: &a{at} [*a{}]", at - 1).unwrap();
    }
    assert!(refused(&chain).contains("nested too deep"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3_000,
        rng_seed: RngSeed::Fixed(0x0061_6c69_6173_0001),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_references_are_answered(text in "(&a |\\*a |&b |\\*b|<<: |a: |- |\\[|\\]|\\{|\\}|, |\n|\n  |1|'){0,40}") {
        if let Err(wrong) = Document::parse_expanded(&text) {
            prop_assert!(!wrong.is_empty());
        }
    }
}
