//! A table of all limits of a policy, and a panel for each limit that was checked.

use super::limit;
use super::sheet::{self, Figure, foreign};
use crate::replay::{LimitReport, PolicyReport};
use crate::sanitize::{markup, shown};

/// The most limits with a panel. Beyond it, the limits with the most refusals have one.
const MAX_PANELS: usize = 60;

/// Returns the anchor of a limit.
fn anchor(prefix: &str, index: usize) -> String {
    format!("limit-{}{index}", prefix.replace('.', "-"))
}

/// Returns a table of all limits.
pub(super) fn table(policy: &PolicyReport, prefix: &str) -> String {
    if policy.limits.is_empty() {
        return "<section class=\"panel\"><h2>Limits</h2>\n\
                <p class=\"nothing\">The policy has no limits.</p></section>\n"
            .to_owned();
    }
    let chosen = chosen(&policy.limits);
    let row = |(index, it): (usize, &LimitReport)| {
        let figure = |name: &str, value| Figure::new(format!("{prefix}limits.{index}.{name}"), value);
        let (checked, refused) = (figure("checked", it.checked), figure("refused", it.refused));
        let mut name = foreign(&it.name);
        if chosen.contains(&index) {
            name = format!("<a href=\"#{}\">{name}</a>", anchor(prefix, index));
        }
        format!(
            "<tr><th scope=\"row\">{name}{}</th><td class=\"c-what\">{}</td>{}{}{}</tr>\n",
            mode(it),
            what(it),
            checked.cell(),
            refused.cell(),
            refused.share_cells(&checked),
        )
    };
    let rows: String = policy.limits.iter().enumerate().map(row).collect();
    let columns = ["Limit", "Counts", "#Asked", "#Refused", "#Share", ""];
    let table = sheet::table("limits", "Limits of the policy", &columns, &rows);
    let shown = chosen.len();
    let more = if policy.limits.iter().filter(|it| it.checked > 0).count() > shown {
        format!("<p class=\"nothing\">The {shown} that refused most are shown one by one below.</p>")
    } else {
        String::new()
    };
    format!("<section class=\"panel\"><h2>Limits</h2>\n{table}{more}</section>\n")
}

/// Returns a panel for each limit that was checked.
pub(super) fn panels(policy: &PolicyReport, prefix: &str) -> String {
    let panel = |index: usize| {
        let (it, anchor) = (&policy.limits[index], anchor(prefix, index));
        let (name, mode, what) = (foreign(&it.name), mode(it), what(it));
        let body = limit::body(it, &format!("{prefix}limits.{index}"));
        format!(
            "<section class=\"panel limit\" id=\"{anchor}\" aria-labelledby=\"{anchor}-name\">\n\
             <div class=\"panel-head\"><h2 id=\"{anchor}-name\">{name}</h2>{mode}<p class=\"muted\">{what}</p></div>\n\
             {body}</section>\n"
        )
    };
    chosen(&policy.limits).into_iter().map(panel).collect()
}

/// Returns the indices of the limits with a panel, in the order of the policy.
fn chosen(limits: &[LimitReport]) -> Vec<usize> {
    let mut checked_limits: Vec<_> = (0..limits.len()).filter(|it| limits[*it].checked > 0).collect();
    if checked_limits.len() > MAX_PANELS {
        checked_limits.sort_by_key(|it| std::cmp::Reverse(limits[*it].refused));
        checked_limits.truncate(MAX_PANELS);
        checked_limits.sort_unstable();
    }
    checked_limits
}

fn mode(limit: &LimitReport) -> String {
    if limit.mode == "enforce" || limit.mode.is_empty() {
        return String::new();
    }
    let word = markup(&shown(&limit.mode, 20));
    format!(" <span class=\"mode\" data-mode=\"{word}\">{word}</span>")
}

fn what(limit: &LimitReport) -> String {
    let parts = [&limit.amount, &limit.algorithm].into_iter().filter(|it| !it.is_empty());
    let what = parts.map(|it| foreign(it)).collect::<Vec<_>>().join(" · ");
    if limit.by.is_empty() { what } else { format!("{what} · by {}", foreign(&limit.by)) }
}
