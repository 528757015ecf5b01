//! Renders one limit of a report.

use tollgate_sim::Waits;
use tollgate_sim::distance::Disagreement;
use tollgate_sim::replay::{Curve, CurvePoint, Exactness, LimitReport, Proposal, Suggestion};

use super::numbers::{bar, counted, number, share};
use super::{Style, folded, when, who};

/// The width of the longest bar.
const BAR_WIDTH: u64 = 24;
/// The indentation of text.
const INDENT: &str = "         ";

/// Renders one limit: refusals, keys, times, other rates, exactness and suggestion.
pub(super) fn limit(limit: &LimitReport, style: Style) -> String {
    let mode = if limit.mode == "enforce" { String::new() } else { format!(", {}", limit.mode) };
    let LimitReport { amount, by, algorithm, curve, .. } = limit;
    let head = format!("\n{}  {amount} by {by}, {algorithm}{mode}\n", style.strong(&limit.name));
    if limit.checked == 0 {
        let why = if limit.mode == "off" { "switched off" } else { "asked about no request" };
        return format!("{head}{INDENT}{}\n", style.faint(why));
    }
    let mut out = head + &verdict(limit, style);
    if limit.refused > 0 {
        out += &who(&limit.top, style);
        out += &when(&limit.heat, style);
    }
    out.extend(limit.waits.iter().map(|it| waited(it, limit.checked - limit.refused)));
    out.extend(curve.iter().map(|it| curves(it, style)));
    out.extend(limit.exactness.iter().filter_map(|it| exact(it, algorithm)));
    out.extend(limit.suggestion.iter().map(|it| suggested(it, curve.as_ref(), style)));
    out
}

/// Renders the waits of admitted requests in the queue of the limit.
fn waited(waits: &Waits, admitted: u64) -> String {
    let Waits { delayed, p50_ms, p90_ms, p99_ms, max_ms } = *waits;
    let of = counted(admitted, "admitted request");
    if delayed == 0 {
        return format!("  waits  none of {of} had to wait\n");
    }
    let [p50, p90, p99, longest] = [p50_ms, p90_ms, p99_ms, max_ms].map(millis);
    let (number, share) = (number(delayed), share(delayed, admitted));
    format!("  waits  {number} of {of} ({share}): p50 {p50}, p90 {p90}, p99 {p99}, longest {longest}\n")
}

/// Renders milliseconds, in seconds from ten seconds on.
fn millis(millis: u64) -> String {
    if millis < 10_000 {
        format!("{} ms", number(millis))
    } else {
        format!("{} s", number(millis.div_ceil(1_000)))
    }
}

fn verdict(limit: &LimitReport, style: Style) -> String {
    let would = if limit.mode == "shadow" { "would have refused" } else { "refused" };
    let requests = counted(limit.checked, "request");
    let about = if limit.keys.estimated { "about " } else { "" };
    let keys = counted(limit.keys.seen, "key");
    if limit.refused == 0 {
        return format!("{INDENT}{would} none of {requests}, from {about}{keys}\n");
    }
    let counts =
        format!("{would} {} of {requests} ({})", number(limit.refused), share(limit.refused, limit.checked));
    let others = limit.refused.saturating_sub(limit.decided);
    let others = if limit.mode == "enforce" && others > 0 {
        format!("; others refused {} of them for longer", number(others))
    } else {
        String::new()
    };
    let blocked = match limit.blocked {
        0 => String::new(),
        blocked => format!("; {} without counting", number(blocked)),
    };
    let (counts, hurt) = (style.refused(&counts), number(limit.keys.refused));
    format!("{INDENT}{counts}, {about}{hurt} of {keys}{others}{blocked}\n")
}

fn curves(curve: &Curve, style: Style) -> String {
    let longest = curve.rates.iter().chain(&curve.bursts).map(|point| point.refused).max().unwrap_or(0);
    if longest == 0 {
        let least = curve.rates.first().map_or("", |point| point.amount.as_str());
        return format!("  what   alone, not even {least} would have refused anything\n");
    }
    let about = if curve.estimated { ", about" } else { "" };
    let points = |label: &str, title: &str, points: &[CurvePoint]| {
        let title = style.faint(&format!("{title}{about}:"));
        format!("  {label:<6} {title}\n{}", rows(points, curve, longest, style))
    };
    let bursts =
        if curve.bursts.len() > 1 { points("", "and other bursts", &curve.bursts) } else { String::new() };
    points("what", "alone, other rates would have refused", &curve.rates) + &bursts
}

fn rows(points: &[CurvePoint], curve: &Curve, longest: u64, style: Style) -> String {
    let widest = points.iter().map(|point| point.amount.chars().count()).max().unwrap_or(0);
    let is_own = |point: &CurvePoint| (point.factor - 1.0).abs() < f64::EPSILON;
    let row = |point: &CurvePoint| {
        let row = format!(
            "{} {:<widest$} {:>11} {:>8}  {:>7} {}  {}",
            if is_own(point) { ">" } else { " " },
            point.amount,
            number(point.refused),
            share(point.refused, curve.requests),
            number(point.keys_refused),
            if point.keys_refused == 1 { "key " } else { "keys" },
            bar(point.refused, longest, BAR_WIDTH),
        );
        let row = row.trim_end();
        format!("       {}\n", if is_own(point) { style.strong(row) } else { row.to_owned() })
    };
    // After the first rate that refuses nothing, further ones add no information.
    let mut none_before = false;
    let is_shown = |point: &&CurvePoint| {
        let is_new = point.refused > 0 || !none_before;
        none_before |= point.refused == 0;
        is_new || is_own(point)
    };
    points.iter().filter(is_shown).map(row).collect()
}

fn exact(exactness: &Exactness, algorithm: &str) -> Option<String> {
    let Exactness { closed, open, sampled } = exactness;
    let differing = |it: &Disagreement| it.too_lax + it.too_strict;
    let of = if *sampled { " of a sample" } else { "" };
    let words = match (differing(closed), algorithm) {
        (_, "sliding-log") => return None,
        (0, _) => format!("decides all {}{of} as an exact log would", counted(closed.requests, "request")),
        (differing, _) => format!(
            "decides {} of {}{of} ({}) otherwise than an exact log: {} too lax, {} too strict; \
             it refused {}, the log {}",
            number(differing),
            counted(closed.requests, "request"),
            share(differing, closed.requests),
            number(closed.too_lax),
            number(closed.too_strict),
            number(closed.refused()),
            number(closed.refused_by_log),
        ),
    };
    let open = open.as_ref().map_or_else(String::new, |open| {
        let (differing, requests) = (differing(open), open.requests);
        format!("; shown every request, {} ({})", number(differing), share(differing, requests))
    });
    Some(format!("  exact  {}\n", folded(&format!("{words}{open}"), 90, INDENT)))
}

fn suggested(suggestion: &Suggestion, curve: Option<&Curve>, style: Style) -> String {
    let Suggestion { target, proposals, estimated } = suggestion;
    let about = if *estimated { "about " } else { "" };
    if proposals.is_empty() {
        return format!("  write  nothing up to 64 times its numbers would have refused {target}\n");
    }
    let proposal = |(place, it): (usize, &Proposal)| {
        let (label, target) = match place {
            0 => ("write", format!(", for {target}")),
            _ => ("or", String::new()),
        };
        let of = curve.map_or_else(String::new, |curve| format!(" ({})", share(it.refused, curve.requests)));
        let (refused, keys) = (counted(it.refused, "request"), counted(it.keys_refused, "key"));
        let words = format!("{}{target}: alone, refuses {about}{refused}{of} of {keys}", it.amount);
        let words = folded(&words, 90, INDENT).replacen(&it.amount, &style.strong(&it.amount), 1);
        format!("  {label:<6} {words}\n")
    };
    proposals.iter().enumerate().map(proposal).collect()
}
