//! Expected warnings.

use tollgate_policy::{Lint, Policy, format_words};

use super::codes;

const FIXED: &str = "by: ip, rate: 10/minute, algorithm: fixed-window";

#[test]
fn expected_warnings_are_hidden_and_others_are_reported() {
    for (text, expected) in [
        (format!("limits: [{{{FIXED}}}]"), &["fixed-window-alone"][..]),
        (format!("limits: [{{{FIXED}, expect: fixed-window-alone}}]"), &[]),
        (format!("expect: [fixed-window-alone]\nlimits: [{{{FIXED}}}]"), &[]),
        // Expected by another limit.
        (
            format!(
                "limits:\n- {{endpoint: /a, {FIXED}, expect: fixed-window-alone}}\n- {{endpoint: /b, {FIXED}}}\n"
            ),
            &["fixed-window-alone"],
        ),
        // Declared in both places, which counts once.
        (format!("expect: fixed-window-alone\nlimits: [{{{FIXED}, expect: fixed-window-alone}}]"), &[]),
        // Reported while reading, before the limit was compiled.
        ("limits: [{by: ip, bucket: 1/s, method: PSOT, expect: odd-method}]".to_owned(), &[]),
        (
            "expect: trusts-everybody\nclient: {trusted_proxies: 0.0.0.0/0}\nlimits: [{by: ip, bucket: 1/s}]"
                .to_owned(),
            &[],
        ),
        ("limits: [{by: ip, bucket: 1/s, expect: odd-method}]".to_owned(), &["unused-expect"]),
        ("expect: trusts-everybody\nlimits: [{by: ip, bucket: 1/s}]".to_owned(), &["unused-expect"]),
        // Without a capacity, the presence of the lint is unknown.
        ("limits: [{by: ip, bucket: 1/s, expect: burst-above-upstream}]".to_owned(), &[]),
        ("expect: burst-above-upstream\nlimits: [{by: ip, bucket: 1/s}]".to_owned(), &[]),
        (
            "gateway: {capacity: 5/s}\nlimits: [{by: ip, bucket: 1/s, expect: burst-above-upstream}]"
                .to_owned(),
            &["unused-expect"],
        ),
        // Only the server knows whether this lint is present.
        ("expect: open-redis-protocol\nlimits: [{by: ip, bucket: 1/s}]".to_owned(), &[]),
    ] {
        assert_eq!(codes(&text), expected, "{text}");
    }
}

#[test]
fn only_codes_that_exist_can_be_expected() {
    for (expect, message, label) in [
        ("[fixed-window]", "no warning has the code `fixed-window`", ""),
        (
            "[fixed-windows-alone]",
            "no warning has the code `fixed-windows-alone`",
            "did you mean `fixed-window-alone`?",
        ),
        ("[unused-expect]", "`unused-expect` cannot be expected", "remove the unused code instead"),
        (
            "[trusts-everybody]",
            "`trusts-everybody` is not about one limit",
            "write `expect` at the top of the file instead",
        ),
        ("[odd-method, odd-method]", "`odd-method` is listed twice", "again here"),
    ] {
        let text = format!("limits: [{{by: ip, bucket: 1/s, method: PSOT, expect: {expect}}}]");
        let wrong = Policy::parse(&text).unwrap_err();
        assert_eq!((wrong.len(), &*wrong[0].message), (1, message), "{wrong}");
        assert!(label.is_empty() || wrong[0].label == label, "{wrong}");
    }
}

#[test]
fn a_policy_knows_the_lints_it_expects_from_other_crates() {
    let policy = Policy::parse("expect: open-redis-protocol\nlimits: [{by: ip, bucket: 1/s}]").unwrap();
    assert!(policy.expects(Lint::OpenRedisProtocol) && !policy.expects(Lint::FixedWindowAlone));
}

#[test]
fn a_warning_shows_its_code() {
    let policy = Policy::parse(&format!("limits: [{{{FIXED}}}]")).unwrap();
    let said = policy.warnings().render("p.yaml");
    assert!(said.starts_with("warning[fixed-window-alone]: a fixed window"), "{said}");
    let said = policy.warnings().brief("p.yaml", format_words());
    assert!(said.starts_with("p.yaml:1:47: warning[fixed-window-alone]: a fixed window"), "{said}");
    let [view] = &policy.warnings().views("p.yaml")[..] else { panic!("{said}") };
    assert_eq!((view.code, view.at), (Some(Lint::FixedWindowAlone.code()), Some((1, 47))));
    assert!(view.message.starts_with("a fixed window") && view.file == "p.yaml", "{view:?}");
}

#[test]
fn many_similar_warnings_are_merged() {
    let limit = |at: usize| format!("  - {{endpoint: /x{at}, by: 'header:X-{at}', bucket: 1/s}}\n");
    let said = |count: usize| {
        let limits: String = (0..count).map(limit).collect();
        let policy = Policy::parse(&format!("limits:\n{limits}")).unwrap();
        policy.warnings().iter().map(|it| it.help.last().unwrap().clone()).collect::<Vec<_>>()
    };
    assert_eq!(said(3).len(), 3);
    let many = said(400);
    assert_eq!(many.len(), 3);
    assert_eq!(many[0], "397 more are like this: lines 5, 6, 7, 8, 9, ...");
}
