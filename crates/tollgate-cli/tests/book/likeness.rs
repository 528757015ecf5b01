//! Whether an output is what a page shows: text by lines, JSON by members.

use serde_json::Value;

/// Replaces ids, and the numbers that depend on the time.
pub(crate) fn masked(line: &str) -> String {
    let separators = [' ', ';', '"', ':', ','];
    let mut out = String::new();
    let mut words = line.trim_end().split_inclusive(separators).peekable();
    while let Some(word) = words.next() {
        let bare = word.trim_end_matches(separators);
        let is_id = bare.len() == 16 && bare.bytes().all(|it| it.is_ascii_hexdigit());
        let is_time = !bare.is_empty()
            && bare.bytes().all(|it| it.is_ascii_digit() || it == b'.')
            && words.peek().is_some_and(|next| next.starts_with("ms") || next.starts_with("µs"));
        out.push_str(if is_id {
            "ID"
        } else if is_time {
            "0"
        } else {
            bare
        });
        out.push_str(&word[bare.len()..]);
    }
    let depends_on_time = ["retry-after", "t=", " min", " s.", " s,", "left", "reset", "took"];
    if depends_on_time.iter().any(|it| out.contains(it)) {
        out = out.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
        while out.contains("00") {
            out = out.replace("00", "0");
        }
        out = out.replace("0.0", "0");
    }
    out
}

/// Removes the comment that explains a line to readers.
pub(crate) fn without_comment(line: &str) -> &str {
    line.split("  # ").next().unwrap_or(line).trim_end()
}

/// Whether lines are as expected; a line `…` stands for any number of lines.
pub(crate) fn is_like(printed: &[String], expected: &[String]) -> bool {
    match (printed, expected) {
        (_, [any]) if any == "…" => true,
        ([], []) => true,
        (_, [any, rest @ ..]) if any == "…" => (0..=printed.len()).any(|at| is_like(&printed[at..], rest)),
        ([first, printed @ ..], [wanted, expected @ ..]) => {
            has_parts(first, wanted) && is_like(printed, expected)
        }
        _ => false,
    }
}

/// Whether a line has the parts between `…`, in order.
fn has_parts(line: &str, wanted: &str) -> bool {
    let parts: Vec<_> = wanted.split('…').collect();
    if let [only] = parts.as_slice() {
        return line == *only;
    }
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    let mut rest = line;
    line.starts_with(first)
        && line.ends_with(last)
        && parts.iter().all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
}

/// Adds the places where JSON differs from that of a page: members that one of them lacks, and values of other types. With
/// `same_values`, other values, too. A list is compared by its first element, and not if one is empty.
pub(crate) fn differences(
    shown: &Value,
    printed: &Value,
    same_values: bool,
    at: &str,
    found: &mut Vec<String>,
) {
    match (shown, printed) {
        (Value::Object(shown), Value::Object(printed)) => {
            for (name, value) in shown {
                match printed.get(name) {
                    Some(other) => differences(value, other, same_values, &format!("{at}.{name}"), found),
                    None => found.push(format!("{at}.{name} is only on the page")),
                }
            }
            let missing = printed.keys().filter(|name| !shown.contains_key(*name));
            found.extend(missing.map(|name| format!("{at}.{name} is not on the page")));
        }
        (Value::Array(shown), Value::Array(printed)) => {
            if let (Some(shown), Some(printed)) = (shown.first(), printed.first()) {
                differences(shown, printed, same_values, &format!("{at}[0]"), found);
            }
        }
        (Value::Null, _) | (_, Value::Null) if !same_values => {}
        _ if same_values && shown != printed => found.push(format!("{at} is {printed}, not {shown}")),
        _ if std::mem::discriminant(shown) != std::mem::discriminant(printed) => {
            found.push(format!("{at} is {printed}, as {shown} is not"));
        }
        _ => {}
    }
}

#[test]
fn masks_hide_only_ids_and_times() {
    assert_eq!(masked("retry-after: 718"), masked("retry-after: 7"));
    assert_eq!(masked("1 passed (12 requests, 1 ms)"), masked("1 passed (12 requests, 0.4 ms)"));
    assert_ne!(masked("1 passed (12 requests, 1 ms)"), masked("1 passed (13 requests, 1 ms)"));
    assert_eq!(masked("tollgate-decision: e67e6fef1cc863b3"), masked("tollgate-decision: 0000000000000001"));
    assert_ne!(masked("HTTP/1.1 429 Too Many Requests"), masked("HTTP/1.1 503 Too Many Requests"));
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(is_like(&lines("a\nb\nc"), &lines("a\n…\nc")));
    assert!(!is_like(&lines("a\nb"), &lines("a\n…\nc")));
    assert!(has_parts("{\"a\":1,\"b\":2}", "{…\"b\":2}") && !has_parts("ab", "b…"));
}

#[test]
fn json_differs_in_its_members_and_types() {
    let found = |shown: &str, printed: &str, same_values| {
        let read = |text| serde_json::from_str(text).unwrap();
        let mut found = Vec::new();
        differences(&read(shown), &read(printed), same_values, "", &mut found);
        found.len()
    };
    let printed = r#"{"a": 1, "b": [{"c": "x"}, {}], "d": null}"#;
    assert_eq!(found(r#"{"a": 2, "b": [{"c": "y"}], "d": 3}"#, printed, false), 0);
    assert_eq!(found(r#"{"a": 2, "b": [{"c": "y"}], "d": null}"#, printed, true), 2);
    assert_eq!(found(r#"{"a": "1", "b": [{}], "e": 3}"#, printed, false), 4);
}
