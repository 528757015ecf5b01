//! Explains a decision: the result of each limit, in words.

use tollgate::{Decision, Fate, LimitOutcome, Mode, Span, Verdict};
use tollgate_http::{Rejection, RetryAfter, promise};

use crate::answer::Answer;

/// Describes the decision in a few words.
pub(crate) fn fate<S>(answer: &Answer<'_, '_, S>) -> String {
    let wait = answer.wait().map_or_else(String::new, |it| format!(", wait {it}"));
    match answer.decision.fate() {
        Fate::Admitted if answer.decision.limits().len() == 0 => "allowed: no limit was asked".to_owned(),
        Fate::Admitted => "allowed".to_owned(),
        Fate::AllowListed(entry) => format!("allowed: on the allow list, `{entry}`"),
        Fate::DenyListed(entry) => format!("refused: on the deny list, `{entry}`"),
        Fate::Blocked(_) | Fate::AmbiguousPath => format!("refused: {}", blocked(answer)),
        Fate::Shed(shed) => format!("refused by `{}`{wait}", shed.name()),
        _ => match answer.limiting() {
            Some((_, window)) => format!("refused by `{window}`{wait}"),
            None => format!("refused{wait}"),
        },
    }
}

/// Returns a line for each checked limit, or for the reason that decided instead.
pub(crate) fn lines<S>(answer: &Answer<'_, '_, S>) -> Vec<String> {
    let decision = answer.decision;
    let mut lines: Vec<String> = match decision.fate() {
        Fate::AllowListed(entry) => {
            vec![format!("`allow` has {entry} (line {} of the policy): no limit was asked", entry.line())]
        }
        Fate::DenyListed(entry) => {
            vec![format!("`deny` has {entry} (line {} of the policy): no limit was asked", entry.line())]
        }
        Fate::Blocked(_) | Fate::AmbiguousPath | Fate::Shed(_) => vec![blocked(answer)],
        _ => each(decision),
    };
    for block in decision.shadowed() {
        lines.push(format!("{}: would refuse without counting (shadow)", block.limit.name()));
    }
    if lines.is_empty() {
        lines.push("no limit covers this request".to_owned());
    }
    lines
}

fn blocked<S>(answer: &Answer<'_, '_, S>) -> String {
    let id = answer.limiter.id_of(answer.decision);
    Rejection::of(answer.decision, id, None).map_or_else(String::new, |it| it.detail().to_owned())
}

fn each(decision: &Decision<'_>) -> Vec<String> {
    let limiting = decision.limiting().map(|it| it.rule().id);
    let is_refusal = !decision.is_allowed();
    decision.limits().map(|it| one(&it, is_refusal && limiting == Some(it.rule().id))).collect()
}

/// Formats one limit: `login for 203.0.113.9: refused; 10 per minute, 0 of 10 left, wait 5100ms`.
fn one(limit: &LimitOutcome<'_>, decided: bool) -> String {
    let outcome = limit.outcome();
    let verdict = match (outcome.verdict, limit.limit().mode()) {
        (Verdict::Admitted { .. }, Mode::Shadow) => "admits (shadow)",
        (Verdict::Admitted { .. }, _) => "admits",
        (_, Mode::Shadow) => "would refuse (shadow)",
        (Verdict::Never, _) => "refuses, and waiting does not help",
        (_, _) => "refuses",
    };
    let cost = if limit.cost() == 1 { String::new() } else { format!(", {} asked for", limit.cost()) };
    let wait = RetryAfter::of_limit(limit).map(|it| Span::from_millis(it.millis()));
    let wait = wait.map_or_else(String::new, |it| format!(", wait {it}"));
    let queued = Some(outcome.wait()).filter(|it| !it.is_zero());
    let queued = queued.map_or_else(String::new, |it| format!(", waits {it} in the queue"));
    format!(
        "{} for {}: {verdict}; {}{cost}, {} of {} left{wait}{queued}{}",
        limit.name(),
        limit.key().display(),
        promise(&limit.rule().quota),
        outcome.remaining,
        outcome.limit,
        if decided { " <- decided" } else { "" },
    )
}
