//! Renders one limit of a report.

use std::fmt::Write as _;

use tollgate_sim::distance::Disagreement;
use tollgate_sim::replay::{Curve, CurvePoint, Exactness, LimitReport, Suggestion};

use super::numbers::{bar, counted, number, share};
use super::{Style, folded, when, who};

/// The width of the longest bar.
const BAR_WIDTH: u64 = 24;
/// The indentation of text.
const INDENT: &str = "         ";

/// Renders one limit: refusals, keys, times, other rates, exactness and suggestion.
pub(super) fn limit(limit: &LimitReport, style: Style, out: &mut String) {
    let mode = if limit.mode == "enforce" { String::new() } else { format!(", {}", limit.mode) };
    let _never = writeln!(
        out,
        "\n{}  {} by {}, {}{mode}",
        style.strong(&limit.name),
        limit.amount,
        limit.by,
        limit.algorithm
    );
    if limit.checked == 0 {
        let why = if limit.mode == "off" { "switched off" } else { "asked about no request" };
        let _never = writeln!(out, "{INDENT}{}", style.faint(why));
        return;
    }
    verdict(limit, style, out);
    if limit.refused > 0 {
        who(&limit.top, style, out);
        when(&limit.heat, style, out);
    }
    if let Some(curve) = &limit.curve {
        curves(curve, style, out);
    }
    if let Some(exactness) = &limit.exactness {
        exact(exactness, &limit.algorithm, out);
    }
    if let Some(suggestion) = &limit.suggestion {
        suggested(suggestion, limit.curve.as_ref(), style, out);
    }
}

fn verdict(limit: &LimitReport, style: Style, out: &mut String) {
    let would = if limit.mode == "shadow" { "would have refused" } else { "refused" };
    let requests = counted(limit.checked, "request");
    let about = if limit.keys.estimated { "about " } else { "" };
    let keys = counted(limit.keys.seen, "key");
    if limit.refused == 0 {
        let _never = writeln!(out, "{INDENT}{would} none of {requests}, from {about}{keys}");
        return;
    }
    let counts =
        format!("{would} {} of {requests} ({})", number(limit.refused), share(limit.refused, limit.checked));
    let mut rest = format!(", {about}{} of {keys}", number(limit.keys.refused));
    if limit.mode == "enforce" && limit.decided < limit.refused {
        let _never =
            write!(rest, "; others refused {} of them for longer", number(limit.refused - limit.decided));
    }
    if limit.blocked > 0 {
        let _never = write!(rest, "; {} without counting", number(limit.blocked));
    }
    let _never = writeln!(out, "{INDENT}{}{rest}", style.refused(&counts));
}

fn curves(curve: &Curve, style: Style, out: &mut String) {
    let longest = curve.rates.iter().chain(&curve.bursts).map(|point| point.refused).max().unwrap_or(0);
    if longest == 0 {
        let least = curve.rates.first().map_or("", |point| point.amount.as_str());
        let _never = writeln!(out, "  what   alone, not even {least} would have refused anything");
        return;
    }
    let about = if curve.estimated { ", about" } else { "" };
    points(
        "what",
        &format!("alone, other rates would have refused{about}"),
        &curve.rates,
        curve,
        longest,
        style,
        out,
    );
    if curve.bursts.len() > 1 {
        points("", &format!("and other bursts{about}"), &curve.bursts, curve, longest, style, out);
    }
}

fn points(
    label: &str,
    title: &str,
    points: &[CurvePoint],
    curve: &Curve,
    longest: u64,
    style: Style,
    out: &mut String,
) {
    let _never = writeln!(out, "  {label:<6} {}", style.faint(&format!("{title}:")));
    let widest = points.iter().map(|point| point.amount.chars().count()).max().unwrap_or(0);
    let mut none_before = false;
    for point in points {
        let is_own = (point.factor - 1.0).abs() < f64::EPSILON;
        // After the first rate that refuses nothing, further ones add no information.
        let is_told = point.refused > 0 || !none_before || is_own;
        none_before |= point.refused == 0;
        if !is_told {
            continue;
        }
        let mark = if is_own { ">" } else { " " };
        let padding = " ".repeat(widest - point.amount.chars().count());
        let row = format!(
            "{mark} {}{padding} {:>11} {:>8}  {:>7} {}  {}",
            point.amount,
            number(point.refused),
            share(point.refused, curve.requests),
            number(point.keys_refused),
            if point.keys_refused == 1 { "key " } else { "keys" },
            bar(point.refused, longest, BAR_WIDTH),
        );
        let row = row.trim_end();
        let _never = writeln!(out, "       {}", if is_own { style.strong(row) } else { row.to_owned() });
    }
}

fn exact(exactness: &Exactness, algorithm: &str, out: &mut String) {
    let Exactness { closed, open, sampled } = exactness;
    let differing = |it: &Disagreement| it.too_lax + it.too_strict;
    let of = if *sampled { " of a sample" } else { "" };
    let words = match (differing(closed), algorithm) {
        (_, "sliding-log") => return,
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
        format!(
            "; shown every request, {} ({})",
            number(differing(open)),
            share(differing(open), open.requests)
        )
    });
    let _never = writeln!(out, "  exact  {}", folded(&format!("{words}{open}"), 90, INDENT));
}

fn suggested(suggestion: &Suggestion, curve: Option<&Curve>, style: Style, out: &mut String) {
    let about = if suggestion.estimated { "about " } else { "" };
    if suggestion.proposals.is_empty() {
        let words = format!("nothing up to 64 times its numbers would have refused {}", suggestion.asked);
        let _never = writeln!(out, "  write  {words}");
        return;
    }
    for (place, proposal) in suggestion.proposals.iter().enumerate() {
        let (label, asked) = match place {
            0 => ("write", format!(", for {}", suggestion.asked)),
            _ => ("or", String::new()),
        };
        let of =
            curve.map_or_else(String::new, |curve| format!(" ({})", share(proposal.refused, curve.requests)));
        let refused = counted(proposal.refused, "request");
        let keys = counted(proposal.keys_refused, "key");
        let words = format!("{}{asked}: alone, refuses {about}{refused}{of} of {keys}", proposal.amount);
        let words = folded(&words, 90, INDENT);
        let _never = writeln!(
            out,
            "  {label:<6} {}",
            words.replacen(&proposal.amount, &style.strong(&proposal.amount), 1)
        );
    }
}
