//! The top of the page: requests and refusals, in total and over time.

use super::picture;
use super::sheet::{Figure, Sheet};
use crate::replay::{PolicyReport, Report};

/// Writes the page header.
pub(super) fn bar(sheet: &mut Sheet, report: &Report) {
    sheet.raw(
        "<header class=\"bar\"><div class=\"bar-row\"><h1 class=\"brand\"><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\">\
         <rect width=\"16\" height=\"16\" rx=\"4\"/><path d=\"M4 12V4M4 5.5l8 2.5\"/></svg>Tollgate replay</h1>\
         <p class=\"facts\"><span>",
    );
    sheet.foreign(&report.policy.policy);
    sheet.raw("</span>");
    if let (Some(from), Some(to)) = (&report.from, &report.to) {
        sheet.raw("<span>");
        sheet.time(from);
        sheet.raw(" to ");
        sheet.time(to);
        sheet.raw("</span>");
    }
    sheet.raw("</p></div></header>\n");
}

/// Writes the first panel.
pub(super) fn panel(sheet: &mut Sheet, report: &Report) {
    let first = &report.policy;
    sheet.raw("<section class=\"panel\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"verdict\">");
    verdict(sheet, first, "");
    sheet.raw("</h2>\n<dl class=\"numbers\">\n");
    let always = [("requests", first.requests), ("refused", first.refused)];
    let clients = [("clients.seen", first.clients.seen), ("clients.refused", first.clients.refused)];
    let seldom = [
        ("without_limit", first.without_limit),
        ("allow_listed", first.allow_listed),
        ("deny_listed", first.deny_listed),
        ("ambiguous_paths", first.ambiguous_paths),
        ("late_lines", report.late_lines),
    ];
    let skipped = [("skipped_lines", report.skipped_lines)];
    let some = seldom.into_iter().filter(|it| it.1 > 0);
    for (path, value) in always.into_iter().chain(clients).chain(some).chain(skipped) {
        let (word, class) = match path {
            "requests" => ("requests", ""),
            "refused" => ("refused", " class=\"is-bad\""),
            "clients.seen" => ("clients", ""),
            "clients.refused" => ("clients refused at least once", " class=\"is-bad\""),
            "without_limit" => ("met no limit and no list", ""),
            "allow_listed" => ("let through by the allow list", ""),
            "deny_listed" => ("refused by the deny list", ""),
            "ambiguous_paths" => ("refused for an ambiguous path", ""),
            "late_lines" => ("came late in the log", ""),
            _ => ("lines skipped: no request", ""),
        };
        let class = if value == 0 { "" } else { class };
        sheet.raw("<div><dt>");
        sheet.text(word);
        sheet.raw("</dt><dd");
        sheet.raw(class);
        sheet.raw(">");
        sheet.number(&Figure::new(path, value));
        sheet.raw("</dd></div>\n");
    }
    sheet.raw("</dl>\n");
    picture::traffic(sheet, &first.heat, "heat");
    sheet.raw("</section>\n");
    notes(sheet, report);
}

/// Writes a one-sentence summary.
pub(super) fn verdict(sheet: &mut Sheet, policy: &PolicyReport, prefix: &str) {
    let requests = Figure::new(format!("{prefix}requests"), policy.requests);
    let refused = Figure::new(format!("{prefix}refused"), policy.refused);
    if policy.requests == 0 {
        sheet.raw("No request in the log: nothing was decided.");
        return;
    }
    if policy.refused == 0 {
        sheet.raw("Nobody would have been refused: all ");
        sheet.plural(&requests, "request passes.", "requests pass.");
        return;
    }
    sheet.raw("Would have refused ");
    sheet.number(&refused);
    sheet.raw(" of ");
    sheet.plural(&requests, "request", "requests");
    sheet.raw(" (");
    sheet.share(&[&refused], &requests);
    sheet.raw(")");
    if policy.clients.seen > 0 {
        let seen = Figure::new(format!("{prefix}clients.seen"), policy.clients.seen);
        let hurt = Figure::new(format!("{prefix}clients.refused"), policy.clients.refused);
        sheet.raw(if policy.clients.estimated { ", from about " } else { ", from " });
        sheet.number(&hurt);
        sheet.raw(" of ");
        sheet.plural(&seen, "client.", "clients.");
    } else {
        sheet.raw(".");
    }
}

fn notes(sheet: &mut Sheet, report: &Report) {
    if report.notes.is_empty() {
        return;
    }
    sheet.raw("<section class=\"notices\" aria-label=\"Before you believe the numbers\">\n");
    for note in &report.notes {
        sheet.raw("<p class=\"notice warn\">");
        sheet.text(&crate::sanitize::shown(note, 1000));
        sheet.raw("</p>\n");
    }
    sheet.raw("</section>\n");
}

/// Writes a table of the clients with the most refusals.
pub(super) fn clients(sheet: &mut Sheet, policy: &PolicyReport, prefix: &str) {
    if policy.top_clients.is_empty() {
        return;
    }
    sheet.raw("<section class=\"panel\"><h2>Clients with the most refusals</h2>\n");
    super::limit::keys(sheet, &policy.top_clients, &format!("{prefix}top_clients"), "Client");
    sheet.raw("</section>\n");
}
