//! Compares other policies with the first one: the requests that are decided differently.

use super::sheet::{self, Figure, foreign, time};
use super::{headline, limits, picture};
use crate::replay::{ChangedRequests, Comparison, Example, PolicyReport, Report};
use crate::sanitize::{markup, shown};

/// Returns a table of all policies, if there are several.
pub(super) fn table(report: &Report) -> String {
    if report.compared.is_empty() {
        return String::new();
    }
    let columns =
        ["Policy", "#Refused", "#Share", "", "#Clients refused", "#Newly refused", "#Newly admitted"];
    let others = report.compared.iter().enumerate();
    let others = others.map(|(index, it)| row(&it.policy, &format!("compared.{index}."), Some(it)));
    let rows: String = std::iter::once(row(&report.policy, "", None)).chain(others).collect();
    let table = sheet::table("policies", "Policies side by side", &columns, &rows);
    format!("<section class=\"panel\"><h2>Policies side by side</h2>\n{table}</section>\n")
}

fn row(policy: &PolicyReport, prefix: &str, beside: Option<&Comparison>) -> String {
    let figure = |name: &str, value| Figure::new(format!("{prefix}{name}"), value);
    let (refused, requests) = (figure("refused", policy.refused), figure("requests", policy.requests));
    let changes = match beside {
        Some(it) => {
            figure("newly_refused", it.newly_refused).cell()
                + &figure("newly_admitted", it.newly_admitted).cell()
        }
        None => "<td class=\"number muted\">–</td><td class=\"number muted\">–</td>".to_owned(),
    };
    format!(
        "<tr><th scope=\"row\">{}</th>{}{}{}{changes}</tr>\n",
        foreign(&policy.policy),
        refused.cell(),
        refused.share_cells(&requests),
        figure("clients.refused", policy.clients.refused).cell(),
    )
}

/// Returns the comparison of one policy with the first.
pub(super) fn panel(it: &Comparison, first: &PolicyReport, prefix: &str) -> String {
    let figure = |name: &str, value| Figure::new(format!("{prefix}{name}"), value);
    let refused = figure("newly_refused", it.newly_refused).plural("request is", "requests are");
    let admitted = figure("newly_admitted", it.newly_admitted).plural("passes", "pass");
    let was = if it.newly_admitted == 1 { "was" } else { "were" };
    let (policy, beside) = (foreign(&it.policy.policy), foreign(&first.policy));
    let (verdict, examples) = (headline::verdict(&it.policy, prefix), examples(&it.examples));
    let traffic = picture::traffic(&it.policy.heat, &format!("{prefix}heat"));
    let changes = if it.newly_refused == 0 && it.newly_admitted == 0 {
        "<p class=\"nothing\">No request changes its fate.</p>\n".to_owned()
    } else {
        let lists: String = [
            (&it.limits_moved, "limits_moved", "By limit", "Limit"),
            (&it.clients_moved, "clients_moved", "By client", "Client"),
            (&it.endpoints_moved, "endpoints_moved", "By endpoint", "Endpoint"),
        ]
        .into_iter()
        .map(|(list, name, title, column)| moved(list, &format!("{prefix}{name}"), (title, column)))
        .collect();
        format!("<div class=\"columns\">\n{lists}</div>\n")
    };
    format!(
        "<section class=\"panel\"><div class=\"panel-head\"><h2>{policy}</h2><p class=\"muted\">beside {beside}</p></div>\n\
         <p class=\"lead\">{verdict} Beside the first policy, {refused} refused that passed, and {admitted} that {was} refused.</p>\n\
         {traffic}{changes}{examples}</section>\n{}{}{}",
        limits::table(&it.policy, prefix),
        headline::clients(&it.policy, prefix),
        limits::panels(&it.policy, prefix),
    )
}

fn moved(list: &[ChangedRequests], path: &str, (title, column): (&str, &str)) -> String {
    if list.is_empty() {
        return String::new();
    }
    let row = |(index, it): (usize, &ChangedRequests)| {
        let cell = |name: &str, value| Figure::new(format!("{path}.{index}.{name}"), value).cell();
        format!(
            "<tr><th scope=\"row\">{}{}</th>{}{}</tr>\n",
            foreign(&it.name),
            if it.estimated { " <span class=\"badge\">at most</span>" } else { "" },
            cell("newly_refused", it.newly_refused),
            cell("newly_admitted", it.newly_admitted),
        )
    };
    let rows: String = list.iter().enumerate().map(row).collect();
    let table = sheet::table("moved", title, &[column, "#Newly refused", "#Newly admitted"], &rows);
    format!("<div><h3>{title}</h3>\n{table}</div>\n")
}

fn examples(examples: &[Example]) -> String {
    if examples.is_empty() {
        return String::new();
    }
    let fate = |fate: &String| {
        let class = if fate == "admitted" { "is-ok" } else { "is-bad" };
        format!("<td class=\"{class}\">{}</td>", foreign(fate))
    };
    let row = |it: &Example| {
        let (at, client, path) = (time(&it.at), foreign(&it.client), foreign(&it.path));
        let (method, before, after) = (markup(&shown(&it.method, 12)), fate(&it.before), fate(&it.after));
        format!(
            "<tr><th scope=\"row\">{at}</th><td>{client}</td>\
             <td><span class=\"method\">{method}</span> {path}</td>{before}{after}</tr>\n"
        )
    };
    let columns = ["When", "Client", "Request", "Before", "After"];
    let rows: String = examples.iter().map(row).collect();
    format!(
        "<h3>For example</h3>\n{}",
        sheet::table("examples", "Requests that change fate", &columns, &rows)
    )
}
