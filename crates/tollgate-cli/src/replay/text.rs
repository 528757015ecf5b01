//! The report of a replay for terminals, at most 100 columns wide.
//!
//! - `limit`: one limit. `comparison`: one policy compared with the first.
//! - `numbers`: numbers, bars and strips.
//!
//! The data is in `tollgate_sim::replay::Report`, the HTML page in `tollgate_sim::page`.

mod comparison;
mod limit;
mod numbers;

use tollgate_document::sanitize::printable;
use tollgate_sim::replay::{PolicyReport, Report, TopKey};

use self::numbers::{cells_in_a_block, counted, number, share, stretch, strip};

/// The maximum width of a strip.
const MAX_STRIP_WIDTH: usize = 72;
/// The maximum length of a key or a path.
const MAX_KEY_CHARS: usize = 48;

/// The style of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    /// Whether to use colors.
    pub(crate) colours: bool,
}

impl Style {
    fn wrapped(self, text: &str, code: &str) -> String {
        if self.colours { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// Styles the most important text.
    fn strong(self, text: &str) -> String {
        self.wrapped(text, "1")
    }

    /// Styles refusals.
    fn refused(self, text: &str) -> String {
        self.wrapped(text, "31")
    }

    /// Styles less important text.
    fn faint(self, text: &str) -> String {
        self.wrapped(text, "2")
    }
}

/// Renders the whole report.
pub(crate) fn report(report: &Report, style: Style) -> String {
    let policy = &report.policy;
    let note =
        |note: &String| style.faint(&folded(&format!("note: {}", printable(note)), 98, "      ")) + "\n";
    let limits = policy.limits.iter().map(|it| limit::limit(it, style));
    let compared = report.compared.iter().map(|it| comparison::comparison(it, &policy.policy, style));
    let mut out = headline(policy, style) + &period(report, style);
    out.extend(report.notes.iter().map(note));
    out.push_str(&all_limits(policy, style));
    out.extend(limits.chain(compared));
    out
}

/// Renders the headline.
fn headline(policy: &PolicyReport, style: Style) -> String {
    let (refused, requests) = (policy.refused, policy.requests);
    let verdict = match (requests, refused) {
        (0, _) => "the log has no requests".to_owned(),
        (_, 0) => format!("refused none of {}", counted(requests, "request")),
        _ => format!(
            "refused {} of {} ({})",
            number(refused),
            counted(requests, "request"),
            share(refused, requests)
        ),
    };
    let clients = &policy.clients;
    let about = if clients.estimated { "about " } else { "" };
    let whom = match (clients.seen, refused) {
        (0, _) => String::new(),
        (seen, 0) => format!(", from {about}{}", counted(seen, "client")),
        (seen, _) => format!(", {about}{} of {}", number(clients.refused), counted(seen, "client")),
    };
    let verdict = if refused > 0 { style.refused(&verdict) } else { verdict };
    format!("{}: {verdict}{whom}\n", style.strong(&printable(&policy.policy)))
}

fn period(report: &Report, style: Style) -> String {
    let (Some(from), Some(to)) = (&report.from, &report.to) else { return String::new() };
    let mut facts = vec![format!("{from} to {to}")];
    if report.skipped_lines > 0 {
        facts.push(format!("{} skipped", counted(report.skipped_lines, "line")));
    }
    if report.late_lines > 0 {
        facts.push(format!("{} too late to be put in order", counted(report.late_lines, "line")));
    }
    let policy = &report.policy;
    for (count, what) in [
        (policy.allow_listed, "on the allow list"),
        (policy.deny_listed, "on the deny list"),
        (policy.ambiguous_paths, "with an ambiguous path"),
        (policy.without_limit, "covered by no limit"),
    ] {
        if count > 0 {
            facts.push(format!("{} {what}", number(count)));
        }
    }
    style.faint(&folded(&facts.join("; "), 98, "")) + "\n"
}

/// Renders times and clients of all limits together. Omitted for a single limit, which shows them
/// itself.
fn all_limits(policy: &PolicyReport, style: Style) -> String {
    if policy.refused == 0 || policy.limits.len() == 1 {
        return String::new();
    }
    let whom = policy.top_clients.iter().take(3).map(|top| cut(&printable(&top.key), MAX_KEY_CHARS));
    let whom: Vec<_> = whom.collect();
    let whom = if whom.is_empty() { String::new() } else { format!("  who    mostly {}\n", whom.join(", ")) };
    format!("\n{}{whom}", when(&policy.heat, style))
}

/// Renders a strip with the length of each block.
fn when(heat: &tollgate_sim::replay::Heat, style: Style) -> String {
    let each = heat.step * cells_in_a_block(heat.requests.len(), MAX_STRIP_WIDTH);
    let row = style.refused(&strip(&heat.requests, &heat.refused, MAX_STRIP_WIDTH));
    format!("  when   {row}  {}\n", style.faint(&format!("{} each", stretch(each))))
}

/// Lists keys, each with the share of its own traffic that was refused.
fn who(top: &[TopKey], style: Style) -> String {
    let shown: Vec<_> = top.iter().map(|it| (cut(&printable(&it.key), MAX_KEY_CHARS), it)).collect();
    let widest = shown.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let row = |(place, (key, it)): (usize, &(String, &TopKey))| {
        let label = if place == 0 { "who" } else { "" };
        let of = match it.requests {
            0 => "at least".to_owned(),
            requests => {
                format!("of {} of its own ({})", counted(requests, "request"), share(it.refused, requests))
            }
        };
        let refused = style.refused(&format!("{:>9}", number(it.refused)));
        format!("  {label:<6} {key:<widest$} {refused} {of}\n")
    };
    shown.iter().enumerate().map(row).collect()
}

/// Truncates a text.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Wraps a text, with indented continuation lines.
fn folded(text: &str, widest: usize, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > widest {
            lines.push(format!("{indent}{word}"));
        } else if let Some(last) = lines.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n")
}
