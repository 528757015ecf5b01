//! Renders the comparison of a policy with the first one.

use tollgate_document::sanitize::printable;
use tollgate_sim::replay::{ChangedRequests, Comparison, Example};

use super::numbers::{counted, number};
use super::{MAX_KEY_CHARS, Style, cut, headline, limit};

/// Lists the requests whose decision differs from the first policy.
pub(super) fn comparison(it: &Comparison, first: &str, style: Style) -> String {
    let (more, fewer, first) = (it.newly_refused, it.newly_admitted, printable(first));
    let changes = if more + fewer == 0 {
        format!("  no request changes fate from {first}\n")
    } else {
        format!(
            "  from {first} to it, {} change fate: {} newly refused, {} newly admitted\n",
            counted(more + fewer, "request"),
            number(more),
            number(fewer),
        )
    };
    let tables =
        [("limits", &it.limits_moved), ("clients", &it.clients_moved), ("endpoints", &it.endpoints_moved)];
    let tables: String = tables.iter().map(|(title, moved)| table(title, moved, style)).collect();
    let mut out = format!("\n{}{changes}{tables}", headline(&it.policy, style));
    if !it.examples.is_empty() {
        out.extend(["  ", &style.faint("the first of them:"), "\n"]);
    }
    out.extend(it.examples.iter().map(example));
    out.extend(it.policy.limits.iter().map(|it| limit::limit(it, style)));
    out
}

fn example(it: &Example) -> String {
    let request = cut(&printable(&format!("{} {}", it.method, it.path)), MAX_KEY_CHARS);
    let client = cut(&printable(&it.client), MAX_KEY_CHARS);
    format!("  {}  {client}  {request}\n      {}, now {}\n", it.at, it.before, it.after)
}

fn table(title: &str, moved: &[ChangedRequests], style: Style) -> String {
    if moved.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = moved.iter().map(|it| (cut(&printable(&it.name), MAX_KEY_CHARS), it)).collect();
    let widest = shown.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(title.len());
    let heading = format!("{title:<widest$} {:>14} {:>14}", "newly refused", "newly admitted");
    let row = |(name, it): &(String, &ChangedRequests)| {
        let (refused, admitted) = (number(it.newly_refused), number(it.newly_admitted));
        format!("  {name:<widest$} {refused:>14} {admitted:>14}\n")
    };
    format!("  {}\n{}", style.faint(&heading), shown.iter().map(row).collect::<String>())
}
