//! Renders the report of a replay as one self-contained HTML file: no network access, no script, light and dark,
//! printable.
//!
//! Every number carries its path in the JSON (`data-path`), and the JSON is embedded (`#report`), so a program can
//! check the displayed numbers. Keys, paths and names come from outside: they are truncated, and escaped by
//! `sanitize`.
//!
//! Not here: computing the report (`replay`), drawing charts (`plot`).
//!
//! Invariant: displayed numbers equal the JSON. Tested by `tests/page/report.mjs` of `tollgate-cli`, in a real
//! browser.

mod comparison;
mod headline;
mod limit;
mod limits;
mod picture;
mod sheet;
#[cfg(test)]
mod tests;

use crate::plot::{ink, number};
use crate::replay::Report;
use crate::sanitize::{markup, shown};

const STYLE: &str = include_str!("page/style.css");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' \
                    height='16' rx='4' fill='%232f6fdb'/%3E%3Cpath d='M4 12V4M4 5.5l8 2.5' stroke='%23fff' \
                    stroke-width='2' stroke-linecap='round'/%3E%3C/svg%3E";

/// Renders a report as one HTML file.
pub fn html(report: &Report) -> String {
    let first = &report.policy;
    let refused = number::share(first.refused, first.requests);
    let title = markup(&format!("{refused} refused: {}", shown(&first.policy, 60)));
    let compared = report.compared.iter().enumerate();
    let compared = compared.map(|(index, it)| comparison::panel(it, first, &format!("compared.{index}.")));
    let main = [
        headline::panel(report),
        comparison::table(report),
        limits::table(first, ""),
        headline::clients(first, ""),
        limits::panels(first, ""),
        compared.collect(),
    ];
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<link rel=\"icon\" href=\"{ICON}\">\n<style>\n{STYLE}{rules}\n</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the findings</a>\n{bar}<main id=\"main\">\n{main}</main>\n\
         <footer class=\"foot\"><p>Made by <code>tollgate replay</code>, which put the log to the policy in virtual time, \
         through the engine that serves. Times are in UTC. The numbers are in this file as JSON too, in \
         <code>script#report</code>: what <code>tollgate replay --json</code> prints.</p></footer>\n\
         <script type=\"application/json\" id=\"report\">{json}</script>\n</body>\n</html>\n",
        rules = ink::rules_within(),
        bar = headline::bar(report),
        main = main.concat(),
        json = embedded(report),
    )
}

/// Returns the JSON with `<` escaped, so that it cannot close its `script` element.
fn embedded(report: &Report) -> String {
    let json = serde_json::to_string(report).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
