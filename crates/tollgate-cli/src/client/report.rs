//! Renders a response of the API as text: one line for each limit, in columns.

use std::fmt::Write;

use tollgate::Span;
use tollgate_api::{Decision, LimitOutcome};
use tollgate_document::sanitize::printable;

use super::Operation;

/// Renders the output of `tollgate check`.
pub(super) fn decision(answer: &Decision) -> String {
    let mut out = headline(answer);
    if answer.degraded {
        out.push_str(" (decided without the store)");
    }
    out.push('\n');
    out.push_str(&rows(&answer.limits, |it| [name_of(it), key_of(it), verdict(it), rest(it)]));
    out
}

fn headline(answer: &Decision) -> String {
    let (limit, reason) = (answer.limit.as_deref().map(printable), answer.reason.as_deref().map(printable));
    match (answer.allowed, limit, reason) {
        (true, _, Some(reason)) if answer.wait_ms > 0 => {
            format!("allowed: {reason}; starts in {}", in_words(answer.wait_ms))
        }
        (true, _, Some(reason)) => format!("allowed: {reason}"),
        (true, _, None) if answer.limits.is_empty() => "allowed: no limit applies".to_owned(),
        (true, _, None) if answer.wait_ms > 0 => format!("allowed: starts in {}", in_words(answer.wait_ms)),
        (true, _, None) => "allowed".to_owned(),
        (false, Some(limit), Some(reason)) => format!("refused by {limit}: {reason}"),
        (false, Some(limit), None) => format!("refused by {limit}: {}", come_back(answer.retry_after_ms)),
        (false, None, Some(reason)) => format!("refused: {reason}"),
        (false, None, None) => "refused: this caller may not pass".to_owned(),
    }
}

/// Renders the output of `tollgate peek`, `grant`, `refund` and `reset`.
pub(super) fn key(operation: Operation, limit: &str, answer: &Decision) -> String {
    let done = match operation {
        Operation::Peek => "",
        Operation::Grant => "granted",
        Operation::Refund => "given back",
        Operation::Reset => "begins anew",
    };
    match (answer.limits.as_slice(), answer.reason.as_deref()) {
        // The limit does not count the key, so nothing was changed.
        ([], reason) => {
            format!("{}: {}\n", printable(limit), printable(reason.unwrap_or("no limit applies")))
        }
        ([only], _) if operation != Operation::Peek => format!("{done}: {}\n", left(only)),
        (several, _) => {
            let standing = rows(several, |it| [name_of(it), key_of(it), left(it)]);
            if done.is_empty() { standing } else { format!("{done}\n{standing}") }
        }
    }
}

fn key_of(limit: &LimitOutcome) -> String {
    tagged(&printable(&limit.key), limit.tag.as_deref().unwrap_or_default())
}

fn name_of(limit: &LimitOutcome) -> String {
    named(&limit.name, limit.window.as_deref().unwrap_or_default())
}

/// Returns a key with the first digits of its tag if the key is shortened: `sk_l… #9c1f0b7d`. The tag
/// is the same under every limit, so it identifies the customer.
pub(crate) fn tagged(key: &str, tag: &str) -> String {
    match tag.get(..TAG_DIGITS) {
        Some(digits) if key.contains('…') => format!("{key} #{}", printable(digits)),
        _ => key.to_owned(),
    }
}

/// The number of digits of a tag that are shown.
const TAG_DIGITS: usize = 8;

/// Returns the name of a limit and its window, which may be empty.
pub(super) fn named(name: &str, window: &str) -> String {
    let (name, window) = (printable(name), printable(window));
    if window.is_empty() { name } else { format!("{name} {window}") }
}

/// Formats rows in aligned columns; the last column is not padded.
pub(crate) fn rows<T, const COLUMNS: usize>(limits: &[T], cells: impl Fn(&T) -> [String; COLUMNS]) -> String {
    let cells: Vec<_> = limits.iter().map(cells).collect();
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..COLUMNS).map(width).collect();
    let mut out = String::new();
    for row in &cells {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(out, "  {cell:width$}");
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

fn verdict(limit: &LimitOutcome) -> String {
    match (limit.allowed, limit.mode == "shadow") {
        (false, true) => "would refuse (shadow)",
        (false, false) => "refuses",
        (true, true) => "allows (shadow)",
        (true, false) => "allows",
    }
    .to_owned()
}

/// Describes the remaining units, and when the key is full again.
fn left(limit: &LimitOutcome) -> String {
    let mut left = format!("{} of {} left", limit.remaining, limit.limit);
    if let Some(held) = limit.held.filter(|held| *held > 0) {
        let _ = write!(left, ", {held} of them leased by the node");
    }
    match limit.reset_after_ms {
        0 => left,
        reset => format!("{left}, all again in {}", in_words(reset)),
    }
}

/// Like `left`, after a request: a refusal shows when to retry.
fn rest(limit: &LimitOutcome) -> String {
    if limit.allowed {
        return left(limit);
    }
    format!("{} of {} left, {}", limit.remaining, limit.limit, come_back(limit.retry_after_ms))
}

fn come_back(retry_after_ms: Option<u64>) -> String {
    match retry_after_ms {
        Some(wait) => format!("come back in {}", in_words(wait)),
        None => "coming back does not help".to_owned(),
    }
}

/// Formats a duration in milliseconds, with the same wording as everywhere.
pub(crate) fn in_words(millis: u64) -> String {
    Span::from_millis(millis).human().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a decision with these members instead of the usual ones.
    fn answer(members: &Value) -> Decision {
        let mut answer = json!({"allowed": true, "limit": null, "retry_after_ms": null, "degraded": false, "soft": [], "limits": []});
        merge(&mut answer, members);
        for limit in answer["limits"].as_array_mut().unwrap() {
            let mut whole = json!({"window": null, "key": "", "algorithm": "token-bucket", "allowed": true, "mode": "enforce",
                "retry_after_ms": null, "reset_after_ms": 0});
            merge(&mut whole, limit);
            *limit = whole;
        }
        serde_json::from_value(answer).unwrap()
    }

    fn merge(into: &mut Value, members: &Value) {
        into.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    }

    #[test]
    fn a_refusal_names_the_limit_and_the_wait() {
        let limits = json!([
            {"name": "api", "key": "k\u{1b}1", "allowed": true, "mode": "enforce", "limit": 200, "remaining": 199,
             "retry_after_ms": 0, "reset_after_ms": 60},
            {"name": "demo-search", "key": "127.0.0.1", "allowed": false, "mode": "enforce", "limit": 5,
             "remaining": 0, "retry_after_ms": 11_200, "reset_after_ms": 60_000},
            {"name": "trial", "key": "", "allowed": false, "mode": "shadow", "limit": 1, "remaining": 0,
             "retry_after_ms": null},
        ]);
        let refused =
            json!({"allowed": false, "limit": "demo-search", "retry_after_ms": 11_200, "limits": limits});
        assert_eq!(
            decision(&answer(&refused)),
            "refused by demo-search: come back in 11.2 s
  api          k\\u{1b}1   allows                 199 of 200 left, all again in 60 ms
  demo-search  127.0.0.1  refuses                0 of 5 left, come back in 11.2 s
  trial                   would refuse (shadow)  0 of 1 left, coming back does not help
"
        );
    }

    #[test]
    fn an_admitted_request_that_waits_has_its_start() {
        let limits =
            json!([{"name": "reports", "key": "ann", "limit": 51, "remaining": 48, "reset_after_ms": 300}]);
        let waiting = json!({"limit": "reports", "wait_ms": 200, "limits": limits});
        assert_eq!(
            decision(&answer(&waiting)),
            "allowed: starts in 200 ms\n  reports  ann  allows  48 of 51 left, all again in 300 ms\n"
        );
        let degraded = json!({"wait_ms": 200, "degraded": true, "reason": "the store gives no answer"});
        assert_eq!(
            decision(&answer(&degraded)),
            "allowed: the store gives no answer; starts in 200 ms (decided without the store)\n"
        );
    }

    #[test]
    fn a_shortened_key_is_shown_with_its_tag() {
        assert_eq!(tagged("sk-l…", "9c1f0b7d52e86a34"), "sk-l… #9c1f0b7d");
        assert_eq!(tagged("203.0.113.9", "9c1f0b7d52e86a34"), "203.0.113.9");
        assert_eq!(tagged("sk-l…", ""), "sk-l…");
        let limits =
            json!([{"name": "api", "key": "sk-l…", "tag": "9c1f0b7d52e86a34", "remaining": 1, "limit": 2}]);
        let answer = answer(&json!({"limits": limits}));
        assert_eq!(key(Operation::Peek, "api", &answer), "  api  sk-l… #9c1f0b7d  1 of 2 left\n");
        assert!(decision(&answer).contains("sk-l… #9c1f0b7d"));
    }

    #[test]
    fn a_response_without_limits_is_explained() {
        assert_eq!(decision(&answer(&json!({}))), "allowed: no limit applies\n");
        assert_eq!(decision(&answer(&json!({"allowed": false}))), "refused: this caller may not pass\n");
    }

    #[test]
    fn a_reason_is_printed() {
        let blocked = json!({"allowed": false, "limit": "api", "reason": "blocked: closed", "limits": []});
        assert_eq!(decision(&answer(&blocked)), "refused by api: blocked: closed\n");
        let listed = json!({"allowed": true, "limit": null, "reason": "allow-listed", "limits": []});
        assert_eq!(decision(&answer(&listed)), "allowed: allow-listed\n");
    }

    #[test]
    fn the_result_of_a_key_operation_is_printed() {
        let limits = json!([{"name": "api", "key": "ann", "allowed": false, "limit": 5, "remaining": 0,
            "retry_after_ms": null, "reset_after_ms": 24_000}]);
        let empty = answer(&json!({"allowed": false, "limits": limits}));
        assert_eq!(key(Operation::Peek, "api", &empty), "  api  ann  0 of 5 left, all again in 24 s\n");
        assert_eq!(key(Operation::Grant, "api", &empty), "granted: 0 of 5 left, all again in 24 s\n");
        let unlimited = answer(&json!({"reason": "unlimited"}));
        for operation in [Operation::Peek, Operation::Grant] {
            assert_eq!(key(operation, "api", &unlimited), "api: unlimited\n");
        }
        let window = |window: &str, left: u64| json!({"name": "w", "window": window, "key": "k", "remaining": left, "limit": 9});
        let two = answer(&json!({"limits": [window("1s", 2), window("1h", 7)]}));
        assert_eq!(
            key(Operation::Refund, "w", &two),
            "given back\n  w 1s  k  2 of 9 left\n  w 1h  k  7 of 9 left\n"
        );
    }
}
