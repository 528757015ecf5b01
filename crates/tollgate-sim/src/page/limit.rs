//! The section of one limit: counts, keys, times, the effect of other numbers, and exactness.

use super::picture;
use super::sheet::{Figure, Sheet};
use crate::distance::Disagreement;
use crate::replay::{Curve, CurvePoint, Exactness, LimitReport, Suggestion, TopKey};

/// Writes the section below the name of the limit.
pub(super) fn body(sheet: &mut Sheet, limit: &LimitReport, path: &str) {
    amount(sheet, limit, path);
    sheet.raw("<div class=\"columns\"><div>\n<h3>When</h3>\n");
    picture::strip(sheet, &limit.heat, &format!("{path}.heat"), &limit.name);
    if let Some(exactness) = &limit.exactness {
        sheet.raw("<h3>How exact</h3>\n");
        exact(sheet, exactness, &format!("{path}.exactness"));
    }
    sheet.raw("</div><div>\n<h3>Who</h3>\n");
    if limit.top.is_empty() {
        sheet.raw("<p class=\"nothing\">Nobody was refused.</p>\n");
    } else {
        keys(sheet, &limit.top, &format!("{path}.top"), "Key");
    }
    sheet.raw("</div></div>\n");
    if let Some(it) = &limit.suggestion {
        suggestion(sheet, it, limit.curve.as_ref(), path);
    }
    if let Some(curve) = limit.curve.as_ref().filter(|it| !it.rates.is_empty() || !it.bursts.is_empty()) {
        sheet.raw("<h3>Other numbers, this limit alone</h3>\n<div class=\"columns\">\n");
        let path = format!("{path}.curve");
        candidates(sheet, (&curve.rates, "rates"), curve, &path);
        candidates(sheet, (&curve.bursts, "bursts"), curve, &path);
        sheet.raw("</div>\n");
    }
}

fn amount(sheet: &mut Sheet, limit: &LimitReport, path: &str) {
    let figure = |name: &str, value| Figure::new(format!("{path}.{name}"), value);
    let (checked, refused) = (figure("checked", limit.checked), figure("refused", limit.refused));
    sheet.meter(limit.refused, limit.checked);
    sheet.raw("<p class=\"lead\">");
    sheet.raw(if limit.mode == "shadow" { "Would have refused " } else { "No room for " });
    sheet.number(&refused);
    sheet.raw(" of ");
    sheet.plural(&checked, "request", "requests");
    sheet.raw(" (");
    sheet.share(&[&refused], &checked);
    sheet.raw("); ");
    let (seen, hurt) = (figure("keys.seen", limit.keys.seen), figure("keys.refused", limit.keys.refused));
    sheet.raw(if limit.keys.estimated { "about " } else { "" });
    sheet.number(&hurt);
    sheet.raw(" of ");
    sheet.plural(&seen, "key was", "keys were");
    sheet.raw(" refused at least once.</p>\n");
    let more = [
        ("decided", limit.decided, "it decided: no other limit kept the caller waiting longer"),
        ("blocked", limit.blocked, "refused without counting: blocked, or without the key it asks for"),
        ("without_key", limit.without_key, "had no such key in the log, so that something stood in for it"),
    ];
    if more.iter().any(|it| it.1 > 0) {
        sheet.raw("<ul class=\"plain\">");
        for (name, value, words) in more.into_iter().filter(|it| it.1 > 0) {
            sheet.raw("<li>");
            sheet.number(&figure(name, value));
            sheet.raw(" ");
            sheet.text(words);
            sheet.raw("</li>");
        }
        sheet.raw("</ul>\n");
    }
}

/// Writes a table of the keys with the most refusals.
pub(super) fn keys(sheet: &mut Sheet, keys: &[TopKey], path: &str, name: &str) {
    sheet.table("top", "The most refused", &[name, "#Requests", "#Refused", "#Of theirs", ""]);
    for (index, it) in keys.iter().enumerate() {
        let figure = |name: &str, value| Figure::new(format!("{path}.{index}.{name}"), value);
        let (requests, refused) = (figure("requests", it.requests), figure("refused", it.refused));
        sheet.raw("<tr><th scope=\"row\">");
        sheet.foreign(&it.key);
        sheet.raw("</th>");
        if it.requests == 0 {
            sheet.raw("<td class=\"number muted\">not known</td>");
        } else {
            sheet.number_cell(&requests);
        }
        sheet.raw("<td class=\"number\">");
        sheet.raw(if it.estimated { "<span class=\"muted\">at least</span> " } else { "" });
        sheet.number(&refused);
        sheet.raw("</td>");
        if it.requests == 0 {
            sheet.raw("<td></td><td class=\"c-meter\"></td>");
        } else {
            sheet.share_cells(&refused, &requests);
        }
        sheet.raw("</tr>\n");
    }
    sheet.end_table();
}

fn exact(sheet: &mut Sheet, exactness: &Exactness, path: &str) {
    sheet.raw("<p>");
    differs(sheet, &exactness.closed, &format!("{path}.closed"), "of its decisions differ from an exact log");
    if let Some(open) = &exactness.open {
        sheet.raw(" <span class=\"muted\">Both shown every request, admitted or not: ");
        differs(sheet, open, &format!("{path}.open"), "differ");
        sheet.raw("</span>");
    }
    if exactness.sampled {
        sheet.raw(" <span class=\"muted\">A sample of the keys was compared.</span>");
    }
    sheet.raw("</p>\n");
}

fn differs(sheet: &mut Sheet, it: &Disagreement, path: &str, words: &str) {
    let figure = |name: &str, value| Figure::new(format!("{path}.{name}"), value);
    let (lax, strict) = (figure("too_lax", it.too_lax), figure("too_strict", it.too_strict));
    sheet.share(&[&lax, &strict], &figure("requests", it.requests));
    sheet.raw(" ");
    sheet.text(words);
    sheet.raw(": ");
    sheet.number(&lax);
    sheet.raw(" too lax, ");
    sheet.number(&strict);
    sheet.raw(" too strict.");
}

fn suggestion(sheet: &mut Sheet, it: &Suggestion, curve: Option<&Curve>, limit: &str) {
    let path = format!("{limit}.suggestion");
    sheet.raw("<h3>Suggested</h3>\n<div class=\"notice ok\"><p>For ");
    sheet.text(&crate::sanitize::shown(&it.asked, 200));
    if it.proposals.is_empty() {
        sheet.raw(": nothing that was tried does it.</p></div>\n");
        return;
    }
    sheet.raw(if it.estimated { " (estimated):</p><ul>" } else { ":</p><ul>" });
    for (index, proposal) in it.proposals.iter().enumerate() {
        let figure = |name: &str, value| Figure::new(format!("{path}.proposals.{index}.{name}"), value);
        let (refused, hurt) =
            (figure("refused", proposal.refused), figure("keys_refused", proposal.keys_refused));
        sheet.raw("<li><strong>");
        sheet.foreign(&proposal.amount);
        sheet.raw("</strong> would have refused ");
        sheet.number(&refused);
        if let Some(curve) = curve {
            let whole = Figure::new(format!("{limit}.curve.requests"), curve.requests);
            sheet.raw(" of ");
            sheet.plural(&whole, "request", "requests");
            sheet.raw(" (");
            sheet.share(&[&refused], &whole);
            sheet.raw(")");
        }
        sheet.raw(" and ");
        sheet.plural(&hurt, "key", "keys");
        sheet.raw(" at least once</li>");
    }
    sheet.raw("</ul></div>\n");
}

fn candidates(sheet: &mut Sheet, (points, name): (&[CurvePoint], &str), curve: &Curve, path: &str) {
    if points.is_empty() {
        return;
    }
    let caption = if name == "rates" { "By rate" } else { "By burst, at its own rate" };
    sheet.raw("<figure class=\"curve\"><figcaption>");
    sheet.text(caption);
    sheet.raw(if curve.estimated { " (estimated)" } else { "" });
    sheet.raw("</figcaption>\n");
    picture::curve(sheet, points, curve, name);
    sheet.raw("<details><summary>As a table</summary>\n");
    sheet.table("candidates", caption, &["Written", "#Factor", "#Refused", "#Share", "#Keys refused"]);
    let whole = Figure::new(format!("{path}.requests"), curve.requests);
    for (index, it) in points.iter().enumerate() {
        let path = |field: &str| format!("{path}.{name}.{index}.{field}");
        let refused = Figure::new(path("refused"), it.refused);
        let is_own = (it.factor - 1.0).abs() < 1e-9;
        sheet.raw(if is_own { "<tr class=\"own\"><th scope=\"row\">" } else { "<tr><th scope=\"row\">" });
        sheet.foreign(&it.amount);
        sheet.raw(if is_own { " <span class=\"badge\">now</span></th>" } else { "</th>" });
        sheet.raw("<td class=\"number\">");
        sheet.factor(&path("factor"), it.factor);
        sheet.raw("</td>");
        sheet.number_cell(&refused);
        sheet.raw("<td class=\"number\">");
        sheet.share(&[&refused], &whole);
        sheet.raw("</td>");
        sheet.number_cell(&Figure::new(path("keys_refused"), it.keys_refused));
        sheet.raw("</tr>\n");
    }
    sheet.end_table();
    sheet.raw("</details></figure>\n");
}
