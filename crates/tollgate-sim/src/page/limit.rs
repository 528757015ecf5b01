//! The section of one limit: counts, keys, times, the effect of other numbers, and exactness.

use super::picture;
use super::sheet::{self, Figure, factor, foreign, meter, share};
use crate::distance::Disagreement;
use crate::replay::{Curve, CurvePoint, Exactness, LimitReport, Proposal, Suggestion, TopKey};
use crate::sanitize::{markup, shown};
use crate::waits::Waits;

/// Returns the section below the name of the limit.
pub(super) fn body(limit: &LimitReport, path: &str) -> String {
    let when = picture::strip(&limit.heat, &format!("{path}.heat"));
    let waits = limit.waits.as_ref().map_or_else(String::new, |it| {
        format!("<h3>Waits in the queue</h3>\n{}", waited(it, &format!("{path}.waits")))
    });
    let exact = limit.exactness.as_ref().map_or_else(String::new, |it| {
        format!("<h3>How exact</h3>\n{}", exact(it, &format!("{path}.exactness")))
    });
    let who = if limit.top.is_empty() {
        "<p class=\"nothing\">Nobody was refused.</p>\n".to_owned()
    } else {
        keys(&limit.top, &format!("{path}.top"), "Key")
    };
    let suggestion = limit.suggestion.as_ref().map(|it| suggestion(it, limit.curve.as_ref(), path));
    let curve = limit.curve.as_ref().filter(|it| !it.rates.is_empty() || !it.bursts.is_empty());
    let others = curve.map_or_else(String::new, |curve| {
        let path = format!("{path}.curve");
        let rates = candidates((&curve.rates, "rates"), curve, &path);
        let bursts = candidates((&curve.bursts, "bursts"), curve, &path);
        format!("<h3>Other numbers, this limit alone</h3>\n<div class=\"columns\">\n{rates}{bursts}</div>\n")
    });
    format!(
        "{}<div class=\"columns\"><div>\n<h3>When</h3>\n{when}{waits}{exact}</div><div>\n<h3>Who</h3>\n{who}</div></div>\n{}{others}",
        amount(limit, path),
        suggestion.unwrap_or_default(),
    )
}

fn amount(limit: &LimitReport, path: &str) -> String {
    let figure = |name: &str, value| Figure::new(format!("{path}.{name}"), value);
    let (checked, refused) = (figure("checked", limit.checked), figure("refused", limit.refused));
    let (seen, hurt) = (figure("keys.seen", limit.keys.seen), figure("keys.refused", limit.keys.refused));
    let would = if limit.mode == "shadow" { "Would have refused" } else { "No room for" };
    let about = if limit.keys.estimated { "about " } else { "" };
    let (requests, share) = (checked.plural("request", "requests"), share(&[&refused], &checked));
    let (meter, keys) = (meter(limit.refused, limit.checked), seen.plural("key was", "keys were"));
    let more = [
        ("decided", limit.decided, "it decided: no other limit kept the caller waiting longer"),
        ("blocked", limit.blocked, "refused without counting: blocked, or without the key it asks for"),
        ("without_key", limit.without_key, "had no such key in the log, so that something stood in for it"),
    ];
    let item = |(name, value, words): (&str, u64, &str)| format!("<li>{} {words}</li>", figure(name, value));
    let more: String = more.into_iter().filter(|it| it.1 > 0).map(item).collect();
    let more = if more.is_empty() { more } else { format!("<ul class=\"plain\">{more}</ul>\n") };
    format!(
        "{meter}<p class=\"lead\">{would} {refused} of {requests} ({share}); {about}{hurt} of {keys} refused at least once.</p>\n\
         {more}"
    )
}

/// Returns a table of the keys with the most refusals.
pub(super) fn keys(keys: &[TopKey], path: &str, name: &str) -> String {
    let row = |(index, it): (usize, &TopKey)| {
        let figure = |name: &str, value| Figure::new(format!("{path}.{index}.{name}"), value);
        let (requests, refused) = (figure("requests", it.requests), figure("refused", it.refused));
        let (requests, share) = if it.requests == 0 {
            (
                "<td class=\"number muted\">not known</td>".to_owned(),
                "<td></td><td class=\"c-meter\"></td>".to_owned(),
            )
        } else {
            (requests.cell(), refused.share_cells(&requests))
        };
        let least = if it.estimated { "<span class=\"muted\">at least</span> " } else { "" };
        let key = foreign(&it.key);
        format!(
            "<tr><th scope=\"row\">{key}</th>{requests}<td class=\"number\">{least}{refused}</td>{share}</tr>\n"
        )
    };
    let rows: String = keys.iter().enumerate().map(row).collect();
    sheet::table("top", "The most refused", &[name, "#Requests", "#Refused", "#Of theirs", ""], &rows)
}

/// Returns the distribution of the waits of admitted requests.
fn waited(waits: &Waits, path: &str) -> String {
    let figure = |name: &str, value| Figure::new(format!("{path}.{name}"), value);
    let delayed = figure("delayed", waits.delayed).plural("request", "requests");
    if waits.delayed == 0 {
        return format!("<p>{delayed} had to wait.</p>\n");
    }
    let (p50, p90) = (figure("p50_ms", waits.p50_ms), figure("p90_ms", waits.p90_ms));
    let (p99, max) = (figure("p99_ms", waits.p99_ms), figure("max_ms", waits.max_ms));
    format!(
        "<p>{delayed} had to wait: half of them for at most {p50} ms, 90 % for at most {p90} ms, 99 % for at \
         most {p99} ms, and the longest wait was {max} ms.</p>\n"
    )
}

fn exact(exactness: &Exactness, path: &str) -> String {
    let words = "of its decisions differ from an exact log";
    let closed = differs(&exactness.closed, &format!("{path}.closed"), words);
    let open = exactness.open.as_ref().map_or_else(String::new, |open| {
        let open = differs(open, &format!("{path}.open"), "differ");
        format!(" <span class=\"muted\">Both shown every request, admitted or not: {open}</span>")
    });
    let sample = " <span class=\"muted\">A sample of the keys was compared.</span>";
    format!("<p>{closed}{open}{}</p>\n", if exactness.sampled { sample } else { "" })
}

fn differs(it: &Disagreement, path: &str, words: &str) -> String {
    let figure = |name: &str, value| Figure::new(format!("{path}.{name}"), value);
    let (lax, strict) = (figure("too_lax", it.too_lax), figure("too_strict", it.too_strict));
    let share = share(&[&lax, &strict], &figure("requests", it.requests));
    format!("{share} {words}: {lax} too lax, {strict} too strict.")
}

fn suggestion(it: &Suggestion, curve: Option<&Curve>, limit: &str) -> String {
    let target = markup(&shown(&it.target, 200));
    let proposal = |(index, it): (usize, &Proposal)| {
        let path = format!("{limit}.suggestion.proposals.{index}");
        let refused = Figure::new(format!("{path}.refused"), it.refused);
        let keys = Figure::new(format!("{path}.keys_refused"), it.keys_refused).plural("key", "keys");
        let of = curve.map_or_else(String::new, |curve| {
            let whole = Figure::new(format!("{limit}.curve.requests"), curve.requests);
            format!(" of {} ({})", whole.plural("request", "requests"), share(&[&refused], &whole))
        });
        let amount = foreign(&it.amount);
        format!(
            "<li><strong>{amount}</strong> would have refused {refused}{of} and {keys} at least once</li>"
        )
    };
    let words = if it.proposals.is_empty() {
        ": nothing that was tried does it.</p>".to_owned()
    } else {
        let proposals: String = it.proposals.iter().enumerate().map(proposal).collect();
        format!("{}:</p><ul>{proposals}</ul>", if it.estimated { " (estimated)" } else { "" })
    };
    format!("<h3>Suggested</h3>\n<div class=\"notice ok\"><p>For {target}{words}</div>\n")
}

fn candidates((points, name): (&[CurvePoint], &str), curve: &Curve, path: &str) -> String {
    if points.is_empty() {
        return String::new();
    }
    let caption = if name == "rates" { "By rate" } else { "By burst, at its own rate" };
    let estimated = if curve.estimated { " (estimated)" } else { "" };
    let whole = Figure::new(format!("{path}.requests"), curve.requests);
    let row = |(index, it): (usize, &CurvePoint)| {
        let path = |field: &str| format!("{path}.{name}.{index}.{field}");
        let refused = Figure::new(path("refused"), it.refused);
        let is_own = (it.factor - 1.0).abs() < 1e-9;
        let (class, badge) =
            if is_own { (" class=\"own\"", " <span class=\"badge\">now</span>") } else { ("", "") };
        format!(
            "<tr{class}><th scope=\"row\">{}{badge}</th><td class=\"number\">{}</td>{}<td class=\"number\">{}</td>{}</tr>\n",
            foreign(&it.amount),
            factor(&path("factor"), it.factor),
            refused.cell(),
            share(&[&refused], &whole),
            Figure::new(path("keys_refused"), it.keys_refused).cell(),
        )
    };
    let rows: String = points.iter().enumerate().map(row).collect();
    let columns = ["Written", "#Factor", "#Refused", "#Share", "#Keys refused"];
    let table = sheet::table("candidates", caption, &columns, &rows);
    let chart = picture::curve(points, curve, name);
    format!(
        "<figure class=\"curve\"><figcaption>{caption}{estimated}</figcaption>\n{chart}\
         <details><summary>As a table</summary>\n{table}</details></figure>\n"
    )
}
