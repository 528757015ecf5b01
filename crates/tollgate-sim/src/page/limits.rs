//! A table of all limits of a policy, and a panel for each limit that was checked.

use super::limit;
use super::sheet::{Figure, Sheet};
use crate::replay::{LimitReport, PolicyReport};

/// The most limits with a panel. Beyond it, the limits with the most refusals have one.
const MAX_PANELS: usize = 60;

/// Returns the anchor of a limit.
fn anchor(prefix: &str, index: usize) -> String {
    format!("limit-{}{index}", prefix.replace('.', "-"))
}

/// Writes a table of all limits.
pub(super) fn table(sheet: &mut Sheet, policy: &PolicyReport, prefix: &str) {
    sheet.raw("<section class=\"panel\"><h2>Limits</h2>\n");
    if policy.limits.is_empty() {
        sheet.raw("<p class=\"nothing\">The policy has no limits.</p></section>\n");
        return;
    }
    let chosen = chosen(&policy.limits);
    sheet.table("limits", "Limits of the policy", &["Limit", "Counts", "#Asked", "#Refused", "#Share", ""]);
    for (index, it) in policy.limits.iter().enumerate() {
        let path = format!("{prefix}limits.{index}.");
        sheet.raw("<tr><th scope=\"row\">");
        let is_linked = chosen.contains(&index);
        if is_linked {
            sheet.raw(&format!("<a href=\"#{}\">", anchor(prefix, index)));
        }
        sheet.foreign(&it.name);
        sheet.raw(if is_linked { "</a>" } else { "" });
        mode(sheet, it);
        sheet.raw("</th><td class=\"c-what\">");
        what(sheet, it);
        sheet.raw("</td>");
        let (checked, refused) = (
            Figure::new(format!("{path}checked"), it.checked),
            Figure::new(format!("{path}refused"), it.refused),
        );
        sheet.number_cell(&checked);
        sheet.number_cell(&refused);
        sheet.share_cells(&refused, &checked);
        sheet.raw("</tr>\n");
    }
    sheet.end_table();
    let checked_limits = policy.limits.iter().filter(|it| it.checked > 0).count();
    if checked_limits > chosen.len() {
        sheet.raw(&format!(
            "<p class=\"nothing\">The {} that refused most are shown one by one below.</p>",
            chosen.len()
        ));
    }
    sheet.raw("</section>\n");
}

/// Writes a panel for each limit that was checked.
pub(super) fn panels(sheet: &mut Sheet, policy: &PolicyReport, prefix: &str) {
    for index in chosen(&policy.limits) {
        let it = &policy.limits[index];
        let anchor = anchor(prefix, index);
        sheet.raw(&format!(
            "<section class=\"panel limit\" id=\"{anchor}\" aria-labelledby=\"{anchor}-name\">\n"
        ));
        sheet.raw(&format!("<div class=\"panel-head\"><h2 id=\"{anchor}-name\">"));
        sheet.foreign(&it.name);
        sheet.raw("</h2>");
        mode(sheet, it);
        sheet.raw("<p class=\"muted\">");
        what(sheet, it);
        sheet.raw("</p></div>\n");
        limit::body(sheet, it, &format!("{prefix}limits.{index}"));
        sheet.raw("</section>\n");
    }
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

fn mode(sheet: &mut Sheet, limit: &LimitReport) {
    if limit.mode != "enforce" && !limit.mode.is_empty() {
        sheet.raw(" <span class=\"mode\" data-mode=\"");
        let word = crate::sanitize::shown(&limit.mode, 20);
        sheet.text(&word);
        sheet.raw("\">");
        sheet.text(&word);
        sheet.raw("</span>");
    }
}

fn what(sheet: &mut Sheet, limit: &LimitReport) {
    for (index, part) in [&limit.amount, &limit.algorithm].into_iter().filter(|it| !it.is_empty()).enumerate()
    {
        sheet.raw(if index > 0 { " · " } else { "" });
        sheet.foreign(part);
    }
    if !limit.by.is_empty() {
        sheet.raw(" · by ");
        sheet.foreign(&limit.by);
    }
}
