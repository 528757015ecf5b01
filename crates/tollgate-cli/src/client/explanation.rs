//! Renders an explanation as text: the decision and its arithmetic.
//!
//! The result is a list of lines, which a terminal prints and the live screen wraps.

use std::fmt::Write;

use serde_json::Value;
use tollgate_document::sanitize::printable;

use super::report::{self, in_words, named, tagged, text};

/// Whether the response has the shape of an explanation.
pub(crate) fn is_explanation(read: &Value) -> bool {
    read["allowed"].is_boolean()
        && read["limits"].is_array()
        && read["summary"].is_string()
        && read["request"].is_object()
}

/// Returns the lines, without terminal control characters.
pub(crate) fn words(answer: &Value) -> Vec<String> {
    let mut out = vec![text(answer, "summary")];
    if answer["hypothetical"] == true {
        out.push("Nothing was spent: this is what would happen now.".to_owned());
    }
    out.push(String::new());
    out.extend(facts(answer).into_iter().map(|(name, fact)| format!("  {name:<9} {fact}")));
    for limit in list(&answer["limits"]) {
        out.push(String::new());
        out.extend(one(limit));
    }
    out
}

fn facts(answer: &Value) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let at = text(answer, "at");
    match answer["id"].as_str() {
        Some(id) => facts.push(("decision", format!("{} at {at}", printable(id)))),
        None => facts.push(("at", at)),
    }
    let request = &answer["request"];
    let mut asked = format!("{} {}", text(request, "method"), text(request, "path"));
    for (word, field) in [("on", "host"), ("from", "client")] {
        match text(request, field) {
            value if value.is_empty() => {}
            value => {
                let _ = write!(asked, " {word} {value}");
            }
        }
    }
    facts.push(("request", asked.trim().to_owned()));
    if let Some(reason) = answer["reason"].as_str() {
        facts.push(("reason", printable(reason)));
    }
    if let Some(version) = answer["policy_version"].as_u64() {
        let since = if answer["policy_is_current"] == false { ", replaced since" } else { ", in force" };
        facts.push(("policy", format!("version {version}{since}")));
    }
    if answer["degraded"] == true {
        facts.push(("store", "did not answer: decided without it".to_owned()));
    }
    if let Some(trace) = answer["trace_id"].as_str() {
        facts.push(("trace", printable(trace)));
    }
    if let Some(took) = answer["took_us"].as_u64() {
        facts.push(("took", format!("{took} µs to decide")));
    }
    facts
}

/// Renders one limit: its quota, outcome and arithmetic.
fn one(limit: &Value) -> Vec<String> {
    let member = |name: &str| limit[name].as_str().unwrap_or_default();
    let mut head = named(member("name"), member("window"));
    match tagged(&printable(member("key")), member("tag")) {
        key if key.is_empty() => {}
        key => {
            let _ = write!(head, " for {key}");
        }
    }
    let _ = write!(head, ": {}", verdict(limit));
    let mut out = vec![head];
    let kind: Vec<_> =
        [text(limit, "algorithm"), text(limit, "quota")].into_iter().filter(|it| !it.is_empty()).collect();
    if !kind.is_empty() {
        out.push(format!("    {}", kind.join(", ")));
    }
    let arithmetic = list(&limit["arithmetic"]);
    out.extend(arithmetic.iter().filter_map(Value::as_str).map(|it| format!("    - {}", printable(it))));
    if let (Some(left), Some(most)) = (limit["remaining"].as_u64(), limit["limit"].as_u64()) {
        let mut standing = format!("    {left} of {most} left afterwards");
        match limit["reset_after_ms"].as_u64() {
            None | Some(0) => {}
            Some(reset) => {
                let _ = write!(standing, ", all again in {}", in_words(reset));
            }
        }
        out.push(standing);
    }
    let spenders = list(&limit["spenders"]);
    if !spenders.is_empty() {
        out.push("    spent from it lately:".to_owned());
        let rows = report::rows(spenders, |it| {
            let asked = format!("{} {}", text(it, "method"), text(it, "path"));
            let units = it["units"].as_u64().unwrap_or_default();
            [
                text(it, "client"),
                asked.trim().to_owned(),
                format!("{units}"),
                format!("last at {}", text(it, "last_at")),
            ]
        });
        out.extend(rows.lines().map(|line| format!("    {line}")));
    }
    out
}

fn verdict(limit: &Value) -> String {
    let counted = limit["mode"] == "shadow";
    let word = match (limit["allowed"].as_bool(), counted, limit["decided"] == true) {
        (Some(false), true, _) => "would refuse (shadow)",
        (Some(false), false, true) => "refused, and decided it",
        (Some(false), false, false) => "refused",
        (Some(true), true, _) => "would allow (shadow)",
        (Some(true), false, _) => "allowed",
        (None, _, _) => "did not say",
    };
    let candidate = if limit["candidate"] == true { ", a candidate: tried and never enforced" } else { "" };
    let wait = match limit["retry_after_ms"].as_u64() {
        Some(wait) if limit["allowed"] == false => format!("; passes in {}", in_words(wait)),
        _ => String::new(),
    };
    format!("{word}{candidate}{wait}")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_explanation_has_the_arithmetic_and_the_spenders_of_each_limit() {
        let answer = json!({
            "id": "00c0ffee00c0ffee", "hypothetical": false, "at": "2026-11-15T12:00:03.2Z", "allowed": false,
            "summary": "Refused by `search`: 0.4 of 10 tokens were left and 1 was asked for; it passes in 3.6 s.",
            "limit": "search", "retry_after_ms": 3600, "policy_version": 3, "policy_is_current": false,
            "degraded": true, "took_us": 3, "reason": null, "trace_id": null,
            "request": {"method": "GET", "path": "/search\u{1b}[2J", "host": null, "client": "203.0.113.9"},
            "limits": [{
                "name": "search", "window": null, "key": "203.0.113.9", "algorithm": "token-bucket",
                "quota": "10 a minute, at most 10 at once", "mode": "enforce", "candidate": false, "decided": true,
                "allowed": false, "cost": 1, "limit": 10, "remaining": 0, "retry_after_ms": 3600, "reset_after_ms": 57_600,
                "arithmetic": ["0.4 tokens at 12:00:03.2", "1 asked for: 0.6 short"],
                "spenders": [{"client": "203.0.113.9", "method": "GET", "path": "/search", "units": 9,
                    "last_at": "2026-11-15T12:00:01Z"}],
            }, {"name": "search.candidate", "key": "203.0.113.9", "mode": "shadow", "candidate": true, "allowed": true,
                "arithmetic": [], "spenders": []}],
        });
        assert!(is_explanation(&answer));
        assert_eq!(
            words(&answer).join("\n"),
            "Refused by `search`: 0.4 of 10 tokens were left and 1 was asked for; it passes in 3.6 s.

  decision  00c0ffee00c0ffee at 2026-11-15T12:00:03.2Z
  request   GET /search\\u{1b}[2J from 203.0.113.9
  policy    version 3, replaced since
  store     did not answer: decided without it
  took      3 µs to decide

search for 203.0.113.9: refused, and decided it; passes in 3.6 s
    token-bucket, 10 a minute, at most 10 at once
    - 0.4 tokens at 12:00:03.2
    - 1 asked for: 0.6 short
    0 of 10 left afterwards, all again in 57.6 s
    spent from it lately:
      203.0.113.9  GET /search  9  last at 2026-11-15T12:00:01Z

search.candidate for 203.0.113.9: would allow (shadow), a candidate: tried and never enforced"
        );
    }

    #[test]
    fn a_hypothetical_explanation_says_that_nothing_was_spent() {
        let answer = json!({"id": null, "hypothetical": true, "at": "now", "allowed": true, "summary": "Allowed.",
            "request": {"method": "GET", "path": "/"}, "limits": []});
        assert_eq!(
            words(&answer),
            [
                "Allowed.",
                "Nothing was spent: this is what would happen now.",
                "",
                "  at        now",
                "  request   GET /"
            ]
        );
    }
}
