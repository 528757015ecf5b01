//! Diagnostics in one line show no secrets of the file.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use tollgate_policy::{Policy, format_words};

fn brief(text: &str) -> String {
    Policy::parse(text).unwrap_err().brief("p.yaml", format_words())
}

#[test]
fn a_line_names_the_place_the_mistake_and_the_way_out() {
    let said = brief("limits:\n  - {by: ip, bucket: 10/minuet}\n");
    assert!(said.starts_with("p.yaml:2:25: ") && said.contains("did you mean `minute`?"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(brief("limits:\n- {by: ipp, bukcet: 1/s}\n").lines().count(), 2);
    assert!(brief("limits: [{by: ip, bucket: 1/s, missing: no}]").contains("`missing` cannot be `no`"));
}

#[test]
fn a_hint_is_shown_whole_also_where_the_file_has_the_word_elsewhere() {
    let said = brief("limits:\n  - {by: ip, bucket: 10/minuet}\n  - {by: user, bucket: 10/minute}\n");
    assert!(said.contains("`minuet`") && said.contains("did you mean `minute`?"), "{said}");
    let said = brief("limits:\n  - {by: ip, algorithm: sliding-windwo, rate: 1/s}\n");
    assert!(said.contains("`sliding-windwo`") && said.contains("`sliding-window`"), "{said}");
    let said = brief("limits:\n  - {by: ip, bukcet: 1/s, bucket: 10/minute}\n");
    assert!(said.contains("`bukcet`") && said.contains("`bucket`"), "{said}");
    let odd = "limits: [{by: ip, method: DELTE, bucket: 1/s}, {by: ip, method: DELETE, bucket: 1/s}]";
    let said = Policy::parse(odd).unwrap().warnings().brief("p.yaml", format_words());
    assert!(said.contains("`DELTE`") && said.contains("`DELETE`"), "{said}");
    let said = brief("limits: [{by: ip, bucket: 10/minute/5}, {by: user, bucket: 10/minute}]");
    assert!(said.contains("minute"), "{said}");
}

#[test]
fn a_hint_shows_no_value_that_only_stands_near_it() {
    for text in [
        "limits: [{by: ip, bucket: 1/s}]\nallow: [sk-live-51secret]",
        "limits: [{by: ip, bucket: 1/s}]\nallow: [4929123456789]",
        "limits: [{by: ip, bucket: 1/s}]\nallow: [hunter2hunter2]",
    ] {
        let said = brief(text);
        assert!(
            !said.contains("51secret") && !said.contains("3456789") && !said.contains("hunter2"),
            "{said}"
        );
    }
}

#[test]
fn no_mistake_shows_a_key_whole() {
    const KEY: &str = "sk-live-51secretsecret";
    let limit = "limits: [{by: api_key, bucket: 1/s}]";
    for text in [
        format!("{limit}\nallow: [{KEY}]"),
        format!("{limit}\nallow: [{{api_key: {KEY}, ipp: 1}}]"),
        format!("{limit}\nallow: [{{api-key: {KEY}}}]"),
        format!("{limit}\ndeny: [{{ip: {KEY}}}]"),
        format!("{limit}\nallow: {KEY}"),
        format!("{limit}\nallow: [{{{KEY}: 1}}]"),
        format!("{limit}\nallow: [{{api_key: {{{KEY}: 1}}}}]"),
        format!("{limit}\nallow:\n  - api_key:{KEY}\n"),
        format!("{limit}\nallow:\n  - api_key: {KEY}\n    {KEY}\n"),
        format!("{limit}\nallow:\n  - api_key: [{KEY}\n"),
        format!("{limit}\nallow: [{{api_key: `{KEY}}}]\n"),
        format!("{limit}\n{KEY}: 1\n"),
        format!("{limit}\n{KEY}\n"),
        format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: 1/fortnight}}}}]"),
        format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: nonsense}}}}]"),
        format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: [1]}}}}]"),
        format!("limits: [{{by: api_key, bucket: 1/s, overrides: {{{KEY}: 1/s, {KEY}: 2/s}}}}]"),
        format!(
            "limits: [{{by: api_key, bucket: 1/s, overrides: {{a: 1/s, \"{KEY} \": 2/s, '{KEY} ': 1}}}}]"
        ),
        format!("limits: [{{by: ip, bucket: 1/s, overrides: {{{KEY}: 1/s}}}}]"),
        format!("limits: [{{by: api_key, bucket: 1/s, {KEY}: 1/s}}]"),
        format!("limits: [{{by: {KEY}, bucket: {KEY}, name: '{KEY}!', method: {KEY}!, mode: {KEY}}}]"),
        format!("limits: [{{by: [{{header: {KEY}}}], cost: {KEY}, endpoint: {KEY}, host: {KEY}/}}]"),
    ] {
        let said = brief(&text);
        assert!(!said.to_lowercase().contains(&KEY[..8]), "{text}\n{said}");
        assert!(!said.contains(&format!("{}!", &KEY[5..])), "{text}\n{said}");
    }
    let long = KEY.repeat(9);
    assert!(!brief(&format!("{limit}\nallow: [{long}]")).contains("sk-live"));
}
