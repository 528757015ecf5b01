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

use sheet::Sheet;

use crate::plot::{ink, number};
use crate::replay::Report;
use crate::sanitize::shown;

const STYLE: &str = include_str!("page/style.css");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' \
                    height='16' rx='4' fill='%232f6fdb'/%3E%3Cpath d='M4 12V4M4 5.5l8 2.5' stroke='%23fff' \
                    stroke-width='2' stroke-linecap='round'/%3E%3C/svg%3E";

/// Renders a report as one HTML file.
pub fn html(report: &Report) -> String {
    let mut sheet = Sheet::new();
    let first = &report.policy;
    sheet.raw(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
    );
    let refused = number::share(first.refused, first.requests);
    sheet.text(&format!("{refused} refused: {}", shown(&first.policy, 60)));
    sheet.raw("</title>\n<link rel=\"icon\" href=\"");
    sheet.raw(ICON);
    sheet.raw("\">\n<style>\n");
    sheet.raw(STYLE);
    sheet.raw(&ink::rules_within());
    sheet.raw("\n</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the findings</a>\n");
    headline::bar(&mut sheet, report);
    sheet.raw("<main id=\"main\">\n");
    headline::panel(&mut sheet, report);
    comparison::table(&mut sheet, report);
    limits::table(&mut sheet, first, "");
    headline::clients(&mut sheet, first, "");
    limits::panels(&mut sheet, first, "");
    for (index, compared) in report.compared.iter().enumerate() {
        comparison::panel(&mut sheet, compared, first, &format!("compared.{index}."));
    }
    sheet.raw(
        "</main>\n<footer class=\"foot\"><p>Made by <code>tollgate replay</code>, which put the log to the policy in virtual time, \
         through the engine that serves. Times are in UTC. The numbers are in this file as JSON too, in \
         <code>script#report</code>: what <code>tollgate replay --json</code> prints.</p></footer>\n\
         <script type=\"application/json\" id=\"report\">",
    );
    sheet.raw(&embedded(report));
    sheet.raw("</script>\n</body>\n</html>\n");
    sheet.finish()
}

/// Returns the JSON with `<` escaped, so that it cannot close its `script` element.
fn embedded(report: &Report) -> String {
    let json = serde_json::to_string(report).unwrap_or_else(|_| "null".to_owned());
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
