//! The top of the page: requests and refusals, in total and over time.

use super::picture;
use super::sheet::{Figure, foreign, share, time};
use crate::replay::{PolicyReport, Report};
use crate::sanitize::{markup, shown};

/// Returns the page header.
pub(super) fn bar(report: &Report) -> String {
    let name = foreign(&report.policy.policy);
    let period = match (&report.from, &report.to) {
        (Some(from), Some(to)) => format!("<span>{} to {}</span>", time(from), time(to)),
        _ => String::new(),
    };
    format!(
        "<header class=\"bar\"><div class=\"bar-row\"><h1 class=\"brand\"><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\">\
         <rect width=\"16\" height=\"16\" rx=\"4\"/><path d=\"M4 12V4M4 5.5l8 2.5\"/></svg>Tollgate replay</h1>\
         <p class=\"facts\"><span>{name}</span>{period}</p></div></header>\n"
    )
}

/// Returns the first panel, and the notes.
pub(super) fn panel(report: &Report) -> String {
    let first = &report.policy;
    let is_above_zero = |it: &(&str, u64, &str)| it.1 > 0;
    let seldom = [
        ("without_limit", first.without_limit, "met no limit and no list"),
        ("allow_listed", first.allow_listed, "let through by the allow list"),
        ("deny_listed", first.deny_listed, "refused by the deny list"),
        ("ambiguous_paths", first.ambiguous_paths, "refused for an ambiguous path"),
        ("late_lines", report.late_lines, "came late in the log"),
    ];
    let always = [
        ("requests", first.requests, "requests"),
        ("refused", first.refused, "refused"),
        ("clients.seen", first.clients.seen, "clients"),
        ("clients.refused", first.clients.refused, "clients refused at least once"),
    ];
    let skipped = [("skipped_lines", report.skipped_lines, "lines skipped: no request")];
    let number = |(path, value, word): (&str, u64, &str)| {
        let is_bad = value > 0 && matches!(path, "refused" | "clients.refused");
        let class = if is_bad { " class=\"is-bad\"" } else { "" };
        format!("<div><dt>{word}</dt><dd{class}>{}</dd></div>\n", Figure::new(path, value))
    };
    let numbers = always.into_iter().chain(seldom.into_iter().filter(is_above_zero)).chain(skipped);
    let numbers: String = numbers.map(number).collect();
    let (verdict, traffic) = (verdict(first, ""), picture::traffic(&first.heat, "heat"));
    format!(
        "<section class=\"panel\" aria-labelledby=\"verdict\">\n<h2 id=\"verdict\" class=\"verdict\">{verdict}</h2>\n\
         <dl class=\"numbers\">\n{numbers}</dl>\n{traffic}</section>\n{}",
        notes(report)
    )
}

/// Returns a one-sentence summary.
pub(super) fn verdict(policy: &PolicyReport, prefix: &str) -> String {
    let figure = |name: &str, value| Figure::new(format!("{prefix}{name}"), value);
    let (requests, refused) = (figure("requests", policy.requests), figure("refused", policy.refused));
    if policy.requests == 0 {
        return "No request in the log: nothing was decided.".to_owned();
    }
    if policy.refused == 0 {
        let all = requests.plural("request passes.", "requests pass.");
        return format!("Nobody would have been refused: all {all}");
    }
    let clients = &policy.clients;
    let from = if clients.seen > 0 {
        let about = if clients.estimated { "about " } else { "" };
        let hurt = figure("clients.refused", clients.refused);
        let seen = figure("clients.seen", clients.seen).plural("client.", "clients.");
        format!(", from {about}{hurt} of {seen}")
    } else {
        ".".to_owned()
    };
    let (all, share) = (requests.plural("request", "requests"), share(&[&refused], &requests));
    format!("Would have refused {refused} of {all} ({share}){from}")
}

fn notes(report: &Report) -> String {
    if report.notes.is_empty() {
        return String::new();
    }
    let note = |note: &String| format!("<p class=\"notice warn\">{}</p>\n", markup(&shown(note, 1000)));
    let notes: String = report.notes.iter().map(note).collect();
    format!("<section class=\"notices\" aria-label=\"Before you believe the numbers\">\n{notes}</section>\n")
}

/// Returns a table of the clients with the most refusals.
pub(super) fn clients(policy: &PolicyReport, prefix: &str) -> String {
    if policy.top_clients.is_empty() {
        return String::new();
    }
    let keys = super::limit::keys(&policy.top_clients, &format!("{prefix}top_clients"), "Client");
    format!("<section class=\"panel\"><h2>Clients with the most refusals</h2>\n{keys}</section>\n")
}
