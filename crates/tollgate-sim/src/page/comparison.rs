//! Compares other policies with the first one: the requests that are decided differently.

use super::sheet::{Figure, Sheet};
use super::{headline, limits, picture};
use crate::replay::{ChangedRequests, Comparison, PolicyReport, Report};
use crate::sanitize::shown;

/// Writes a table of all policies, if there are several.
pub(super) fn table(sheet: &mut Sheet, report: &Report) {
    if report.compared.is_empty() {
        return;
    }
    sheet.raw("<section class=\"panel\"><h2>Policies side by side</h2>\n");
    let columns =
        ["Policy", "#Refused", "#Share", "", "#Clients refused", "#Newly refused", "#Newly admitted"];
    sheet.table("policies", "Policies side by side", &columns);
    row(sheet, &report.policy, "", None);
    for (index, it) in report.compared.iter().enumerate() {
        row(sheet, &it.policy, &format!("compared.{index}."), Some(it));
    }
    sheet.end_table();
    sheet.raw("</section>\n");
}

fn row(sheet: &mut Sheet, policy: &PolicyReport, prefix: &str, beside: Option<&Comparison>) {
    let figure = |name: &str, value| Figure::new(format!("{prefix}{name}"), value);
    let (refused, requests) = (figure("refused", policy.refused), figure("requests", policy.requests));
    sheet.raw("<tr><th scope=\"row\">");
    sheet.foreign(&policy.policy);
    sheet.raw("</th>");
    sheet.number_cell(&refused);
    sheet.share_cells(&refused, &requests);
    sheet.number_cell(&figure("clients.refused", policy.clients.refused));
    match beside {
        Some(it) => {
            sheet.number_cell(&figure("newly_refused", it.newly_refused));
            sheet.number_cell(&figure("newly_admitted", it.newly_admitted));
        }
        None => sheet.raw("<td class=\"number muted\">–</td><td class=\"number muted\">–</td>"),
    }
    sheet.raw("</tr>\n");
}

/// Writes the comparison of one policy with the first.
pub(super) fn panel(sheet: &mut Sheet, it: &Comparison, first: &PolicyReport, prefix: &str) {
    sheet.raw("<section class=\"panel\"><div class=\"panel-head\"><h2>");
    sheet.foreign(&it.policy.policy);
    sheet.raw("</h2><p class=\"muted\">beside ");
    sheet.foreign(&first.policy);
    sheet.raw("</p></div>\n<p class=\"lead\">");
    headline::verdict(sheet, &it.policy, prefix);
    sheet.raw(" Beside the first policy, ");
    sheet.plural(
        &Figure::new(format!("{prefix}newly_refused"), it.newly_refused),
        "request is",
        "requests are",
    );
    sheet.raw(" refused that passed, and ");
    sheet.plural(&Figure::new(format!("{prefix}newly_admitted"), it.newly_admitted), "passes", "pass");
    sheet.raw(if it.newly_admitted == 1 { " that was refused.</p>\n" } else { " that were refused.</p>\n" });
    picture::traffic(sheet, &it.policy.heat, &format!("{prefix}heat"));
    if it.newly_refused == 0 && it.newly_admitted == 0 {
        sheet.raw("<p class=\"nothing\">No request changes its fate.</p>\n");
    } else {
        sheet.raw("<div class=\"columns\">\n");
        for (list, name, title, column) in [
            (&it.limits_moved, "limits_moved", "By limit", "Limit"),
            (&it.clients_moved, "clients_moved", "By client", "Client"),
            (&it.endpoints_moved, "endpoints_moved", "By endpoint", "Endpoint"),
        ] {
            moved(sheet, list, &format!("{prefix}{name}"), (title, column));
        }
        sheet.raw("</div>\n");
    }
    examples(sheet, it);
    sheet.raw("</section>\n");
    limits::table(sheet, &it.policy, prefix);
    headline::clients(sheet, &it.policy, prefix);
    limits::panels(sheet, &it.policy, prefix);
}

fn moved(sheet: &mut Sheet, list: &[ChangedRequests], path: &str, (title, column): (&str, &str)) {
    if list.is_empty() {
        return;
    }
    sheet.raw("<div><h3>");
    sheet.text(title);
    sheet.raw("</h3>\n");
    sheet.table("moved", title, &[column, "#Newly refused", "#Newly admitted"]);
    for (index, it) in list.iter().enumerate() {
        sheet.raw("<tr><th scope=\"row\">");
        sheet.foreign(&it.name);
        sheet.raw(if it.estimated { " <span class=\"badge\">at most</span></th>" } else { "</th>" });
        sheet.number_cell(&Figure::new(format!("{path}.{index}.newly_refused"), it.newly_refused));
        sheet.number_cell(&Figure::new(format!("{path}.{index}.newly_admitted"), it.newly_admitted));
        sheet.raw("</tr>\n");
    }
    sheet.end_table();
    sheet.raw("</div>\n");
}

fn examples(sheet: &mut Sheet, it: &Comparison) {
    if it.examples.is_empty() {
        return;
    }
    sheet.raw("<h3>For example</h3>\n");
    sheet.table("examples", "Requests that change fate", &["When", "Client", "Request", "Before", "After"]);
    for example in &it.examples {
        sheet.raw("<tr><th scope=\"row\">");
        sheet.time(&example.at);
        sheet.raw("</th><td>");
        sheet.foreign(&example.client);
        sheet.raw("</td><td><span class=\"method\">");
        sheet.text(&shown(&example.method, 12));
        sheet.raw("</span> ");
        sheet.foreign(&example.path);
        for fate in [&example.before, &example.after] {
            sheet.raw(if fate == "admitted" {
                "</td><td class=\"is-ok\">"
            } else {
                "</td><td class=\"is-bad\">"
            });
            sheet.foreign(fate);
        }
        sheet.raw("</td></tr>\n");
    }
    sheet.end_table();
}
