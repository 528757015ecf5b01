//! Renders the comparison of a policy with the first one.

use std::fmt::Write as _;

use tollgate_document::sanitize::printable;
use tollgate_sim::replay::{ChangedRequests, Comparison};

use super::numbers::{counted, number};
use super::{MAX_KEY_CHARS, Style, cut, headline, limit};

/// Lists the requests whose decision differs from the first policy.
pub(super) fn comparison(it: &Comparison, first: &str, style: Style, out: &mut String) {
    let _never = writeln!(out);
    headline(&it.policy, style, out);
    let (more, fewer) = (it.newly_refused, it.newly_admitted);
    if more + fewer == 0 {
        let _never = writeln!(out, "  no request changes fate from {}", printable(first));
    } else {
        let _never = writeln!(
            out,
            "  from {} to it, {} change fate: {} newly refused, {} newly admitted",
            printable(first),
            counted(more + fewer, "request"),
            number(more),
            number(fewer),
        );
    }
    for (title, moved) in
        [("limits", &it.limits_moved), ("clients", &it.clients_moved), ("endpoints", &it.endpoints_moved)]
    {
        table(title, moved, style, out);
    }
    if !it.examples.is_empty() {
        let _never = writeln!(out, "  {}", style.faint("the first of them:"));
    }
    for example in &it.examples {
        let request = cut(&printable(&format!("{} {}", example.method, example.path)), MAX_KEY_CHARS);
        let client = cut(&printable(&example.client), MAX_KEY_CHARS);
        let _never = writeln!(out, "  {}  {client}  {request}", example.at);
        let _never = writeln!(out, "      {}, now {}", example.before, example.after);
    }
    for limit in &it.policy.limits {
        limit::limit(limit, style, out);
    }
}

fn table(title: &str, moved: &[ChangedRequests], style: Style, out: &mut String) {
    if moved.is_empty() {
        return;
    }
    let shown: Vec<_> = moved.iter().map(|it| (cut(&printable(&it.name), MAX_KEY_CHARS), it)).collect();
    let widest = shown.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(title.len());
    let heading = format!("{title:<widest$} {:>14} {:>14}", "newly refused", "newly admitted");
    let _never = writeln!(out, "  {}", style.faint(&heading));
    for (name, it) in &shown {
        let padding = " ".repeat(widest - name.chars().count());
        let (refused, admitted) = (number(it.newly_refused), number(it.newly_admitted));
        let _never = writeln!(out, "  {name}{padding} {refused:>14} {admitted:>14}");
    }
}
