//! Renders an explanation as text: the decision and its arithmetic.
//!
//! The result is a list of lines, which a terminal prints and the live screen wraps.

use std::fmt::Write;

use tollgate_api::{ExplainedLimit, Explanation};
use tollgate_document::sanitize::printable;

use super::report::{self, in_words, named, tagged};

/// Returns the lines, without terminal control characters.
pub(crate) fn words(answer: &Explanation) -> Vec<String> {
    let mut out = vec![printable(&answer.summary)];
    if answer.hypothetical {
        out.push("Nothing was spent: this is what would happen now.".to_owned());
    }
    out.push(String::new());
    out.extend(facts(answer).into_iter().map(|(name, fact)| format!("  {name:<9} {fact}")));
    for limit in &answer.limits {
        out.push(String::new());
        out.extend(one(limit));
    }
    out
}

fn facts(answer: &Explanation) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let at = printable(&answer.at);
    match &answer.id {
        Some(id) => facts.push(("decision", format!("{} at {at}", printable(id)))),
        None => facts.push(("at", at)),
    }
    let request = &answer.request;
    let mut target = format!("{} {}", printable(&request.method), printable(&request.path));
    for (word, value) in [("on", &request.host), ("from", &request.client)] {
        if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
            let _ = write!(target, " {word} {}", printable(value));
        }
    }
    facts.push(("request", target.trim().to_owned()));
    if let Some(reason) = &answer.reason {
        facts.push(("reason", printable(reason)));
    }
    if let Some(class) = &answer.priority {
        facts.push(("priority", printable(class)));
    }
    let since = if answer.policy_is_current { "in force" } else { "replaced since" };
    facts.push(("policy", format!("version {}, {since}", answer.policy_version)));
    if let Some(node) = &answer.node {
        facts.push(("node", printable(node)));
    }
    if answer.degraded {
        facts.push(("store", "did not answer: decided without it".to_owned()));
    }
    if let Some(trace) = &answer.trace_id {
        facts.push(("trace", printable(trace)));
    }
    facts.push(("took", format!("{} µs to decide", answer.took_us)));
    facts
}

/// Renders one limit: its quota, outcome and arithmetic.
fn one(limit: &ExplainedLimit) -> Vec<String> {
    let mut head = named(&limit.name, limit.window.as_deref().unwrap_or_default());
    match tagged(&printable(&limit.key), limit.tag.as_deref().unwrap_or_default()) {
        key if key.is_empty() => {}
        key => {
            let _ = write!(head, " for {key}");
        }
    }
    let _ = write!(head, ": {}", verdict(limit));
    let mut out = vec![head];
    out.push(format!("    {}, {}", printable(&limit.algorithm), printable(&limit.quota)));
    out.extend(limit.arithmetic.iter().map(|it| format!("    - {}", printable(it))));
    let mut standing = format!("    {} of {} left afterwards", limit.remaining, limit.limit);
    if limit.reset_after_ms > 0 {
        let _ = write!(standing, ", all again in {}", in_words(limit.reset_after_ms));
    }
    out.push(standing);
    if !limit.spenders.is_empty() {
        out.push("    spent from it lately:".to_owned());
        let rows = report::rows(&limit.spenders, |it| {
            let target = format!("{} {}", printable(&it.method), printable(&it.path));
            [
                it.client.as_deref().map(printable).unwrap_or_default(),
                target.trim().to_owned(),
                it.units.to_string(),
                format!("last at {}", printable(&it.last_at)),
            ]
        });
        out.extend(rows.lines().map(|line| format!("    {line}")));
    }
    out
}

fn verdict(limit: &ExplainedLimit) -> String {
    let word = match (limit.allowed, limit.mode == "shadow", limit.decided) {
        (false, true, _) => "would refuse (shadow)",
        (false, false, true) => "refused, and decided it",
        (false, false, false) => "refused",
        (true, true, _) => "would allow (shadow)",
        (true, false, _) => "allowed",
    };
    let candidate = if limit.candidate { ", a candidate: tried and never enforced" } else { "" };
    let wait = match limit.retry_after_ms {
        Some(wait) if !limit.allowed => format!("; passes in {}", in_words(wait)),
        _ => String::new(),
    };
    format!("{word}{candidate}{wait}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn explained(answer: Value) -> Vec<String> {
        words(&serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn an_explanation_has_the_arithmetic_and_the_spenders_of_each_limit() {
        let answer = json!({
            "id": "00c0ffee00c0ffee", "hypothetical": false, "at": "2026-11-15T12:00:03.2Z", "allowed": false,
            "summary": "Refused by `search`: 0.4 of 10 tokens were left and 1 was asked for; it passes in 3.6 s.",
            "limit": "search", "retry_after_ms": 3600, "policy_version": 3, "policy_is_current": false,
            "degraded": true, "took_us": 3, "reason": null, "trace_id": null, "node": "web-2:\u{7}4711",
            "request": {"method": "GET", "path": "/search\u{1b}[2J", "host": null, "client": "203.0.113.9"},
            "limits": [{
                "name": "search", "window": null, "key": "203.0.113.9", "algorithm": "token-bucket",
                "quota": "10 a minute, at most 10 at once", "mode": "enforce", "candidate": false, "decided": true,
                "allowed": false, "cost": 1, "limit": 10, "remaining": 0, "retry_after_ms": 3600, "reset_after_ms": 57_600,
                "arithmetic": ["0.4 tokens at 12:00:03.2", "1 asked for: 0.6 short"],
                "spenders": [{"client": "203.0.113.9", "method": "GET", "path": "/search", "units": 9,
                    "last_at": "2026-11-15T12:00:01Z"}],
            }, {"name": "search.candidate", "key": "203.0.113.9", "algorithm": "token-bucket", "quota": "20 a minute",
                "mode": "shadow", "candidate": true, "allowed": true, "limit": 20, "remaining": 9, "reset_after_ms": 0,
                "arithmetic": [], "spenders": []}],
        });
        assert_eq!(
            explained(answer).join("\n"),
            "Refused by `search`: 0.4 of 10 tokens were left and 1 was asked for; it passes in 3.6 s.

  decision  00c0ffee00c0ffee at 2026-11-15T12:00:03.2Z
  request   GET /search\\u{1b}[2J from 203.0.113.9
  policy    version 3, replaced since
  node      web-2:\\u{7}4711
  store     did not answer: decided without it
  took      3 µs to decide

search for 203.0.113.9: refused, and decided it; passes in 3.6 s
    token-bucket, 10 a minute, at most 10 at once
    - 0.4 tokens at 12:00:03.2
    - 1 asked for: 0.6 short
    0 of 10 left afterwards, all again in 57.6 s
    spent from it lately:
      203.0.113.9  GET /search  9  last at 2026-11-15T12:00:01Z

search.candidate for 203.0.113.9: would allow (shadow), a candidate: tried and never enforced
    token-bucket, 20 a minute
    9 of 20 left afterwards"
        );
    }

    #[test]
    fn a_hypothetical_explanation_says_that_nothing_was_spent() {
        let answer = json!({"id": null, "hypothetical": true, "at": "now", "allowed": true, "summary": "Allowed.",
            "policy_version": 2, "policy_is_current": true, "took_us": 4,
            "request": {"method": "GET", "path": "/"}, "limits": []});
        assert_eq!(
            explained(answer),
            [
                "Allowed.",
                "Nothing was spent: this is what would happen now.",
                "",
                "  at        now",
                "  request   GET /",
                "  policy    version 2, in force",
                "  took      4 µs to decide"
            ]
        );
    }
}
