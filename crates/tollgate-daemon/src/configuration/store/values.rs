//! The scalar values of the `store` section: durations, shares, prefixes.
//!
//! `store` checks that they are consistent.

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::Span;
use tollgate_document::{Node, Problems};

/// The maximum length of the prefix, which is part of every key.
const MAX_PREFIX_BYTES: usize = 32;

/// Parses a duration, or `off`.
pub(in crate::configuration) fn or_off(
    node: &Node,
    what: &str,
    range: RangeInclusive<Span>,
    problems: &mut Problems,
) -> Option<Duration> {
    let is_none = |text: &str| {
        let text = text.to_ascii_lowercase();
        matches!(text.as_str(), "false" | "no" | "none" | "never" | "disabled") || is_zero(&text)
    };
    match node.text() {
        Some("off") => return Some(Duration::ZERO),
        Some(text) if is_none(text) => {
            let (least, most) = (range.start(), range.end());
            problems
                .error(node.place, format!("{what} is `off`, or between {least} and {most}"))
                .label("did you mean `off`?");
            return None;
        }
        _ => {}
    }
    time(node, what, range, problems)
}

/// Whether the text is zero in any unit.
fn is_zero(text: &str) -> bool {
    text.trim_end_matches(|it: char| it.is_ascii_alphabetic() || it == ' ') == "0"
}

/// Parses a duration that is usually below a second.
pub(super) fn deadline(
    node: &Node,
    range: RangeInclusive<Span>,
    problems: &mut Problems,
) -> Option<Duration> {
    let bare = node.text().and_then(|text| text.parse::<u64>().ok()).map(Span::from_millis);
    if let Some(meant) = bare.filter(|it| range.contains(it)) {
        problems
            .error(node.place, format!("{} is not a length of time", node.describe()))
            .label(format!("did you mean `{meant}`?"))
            .help("write a number and a unit: 50ms");
        return None;
    }
    time(node, "`deadline`", range, problems)
}

fn time(node: &Node, what: &str, range: RangeInclusive<Span>, problems: &mut Problems) -> Option<Duration> {
    // The parser of rates rejects zero; here it is a value out of range.
    if node.text().is_some_and(is_zero) {
        problems
            .error(node.place, format!("{what} is between {} and {}", range.start(), range.end()))
            .label(format!("{} is not", node.describe()));
        return None;
    }
    let span = node.span(what, range, problems)?.value;
    Some(Duration::from_micros(span.as_micros()))
}

pub(super) fn prefix(node: &Node, problems: &mut Problems) -> Option<String> {
    let text = node.word("`prefix`", problems)?.value;
    let fits = |char: char| char.is_ascii_alphanumeric() || "_.:-".contains(char);
    if text.len() > MAX_PREFIX_BYTES {
        problems
            .error(node.place, format!("`prefix` has at most {MAX_PREFIX_BYTES} characters"))
            .label(format!("this has {}", text.chars().count()))
            .help("it is in every key");
        return None;
    }
    if let Some((at, wrong)) = text.chars().enumerate().find(|(_, char)| !fits(*char)) {
        problems
            .error(node.part(at..at + 1), format!("`prefix` cannot hold `{wrong}`"))
            .help("letters, digits, `_`, `.`, `:` and `-`: such as `shop-staging`");
        return None;
    }
    Some(text.to_owned())
}

/// Parses a share such as `20%`.
pub(super) fn share(node: &Node, problems: &mut Problems) -> Option<u8> {
    let text = node.word("`share`", problems)?.value;
    let number = text.strip_suffix('%').unwrap_or(text).trim_end();
    let digits = number.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(share) = number.parse().ok().filter(|share| digits && (1..=100).contains(share)) {
        return Some(share);
    }
    // Shifts two digits instead of multiplying, which would round.
    let hundredths = text.strip_prefix("0.").filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    let meant = hundredths.map(|it| format!("{it:0<2}")).and_then(|it| it[..2].parse::<u8>().ok());
    let problem = problems.error(node.place, format!("`share` is 1% to 100%, not {}", node.describe()));
    if let Some(meant) = meant.filter(|it| *it > 0) {
        problem.label(format!("did you mean `{meant}%`?"));
    }
    if digits && number.parse() == Ok(0) {
        problem.help("a limit that is to refuse everything meanwhile says `on_outage: deny`");
    } else {
        problem
            .help("the share of a limit that all nodes together grant while the store does not answer: 20%");
    }
    None
}
