//! The pieces of the page: escaped text, and numbers with their path in the JSON. All functions return markup.

use std::fmt;

use tollgate::Span;

use crate::plot::number;
use crate::sanitize::{markup, shown};

/// The most characters of a name from outside, in the text.
const MAX_SHOWN_CHARS: usize = 64;
const MAX_TITLE_CHARS: usize = 400;

/// A number, and its path in the JSON.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    path: String,
    value: u64,
}

impl Figure {
    pub(super) fn new(path: impl Into<String>, value: u64) -> Self {
        Self { path: path.into(), value }
    }

    /// Returns the number with its noun.
    pub(super) fn plural(&self, one: &str, many: &str) -> String {
        format!("{self} {}", markup(if self.value == 1 { one } else { many }))
    }

    /// Returns a time in seconds in words: `30 min`, `1 h 30 min`.
    pub(super) fn seconds(&self) -> String {
        let (path, text) = (markup(&self.path), Span::from_secs(self.value).human_exact());
        format!("<data data-path=\"{path}\" data-unit=\"seconds\">{text}</data>")
    }

    /// Returns a cell with the number.
    pub(super) fn cell(&self) -> String {
        format!("<td class=\"number\">{self}</td>")
    }

    /// Returns a cell with the number as a percentage of `whole`, and a cell with its bar.
    pub(super) fn share_cells(&self, whole: &Self) -> String {
        let (share, meter) = (share(&[self], whole), meter(self.value, whole.value));
        format!("<td class=\"number\">{share}</td><td class=\"c-meter\">{meter}</td>")
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, value, text) = (markup(&self.path), self.value, number::count(self.value));
        write!(f, "<data data-path=\"{path}\" value=\"{value}\">{text}</data>")
    }
}

/// Returns a name from outside: truncated, escaped, and isolated from the direction of the text around it.
pub(super) fn foreign(text: &str) -> String {
    let short = shown(text, MAX_SHOWN_CHARS);
    let title = if short == text {
        String::new()
    } else {
        format!(" title=\"{}\"", markup(&shown(text, MAX_TITLE_CHARS)))
    };
    format!("<bdi class=\"foreign\"{title}>{}</bdi>", markup(if short.is_empty() { "–" } else { &short }))
}

/// Returns a sum of parts as a percentage of `whole`.
pub(super) fn share(parts: &[&Figure], whole: &Figure) -> String {
    let sum = parts.iter().fold(0_u64, |sum, it| sum.saturating_add(it.value));
    let paths: Vec<_> = parts.iter().map(|it| markup(&it.path)).collect();
    let (paths, of, text) = (paths.join(" "), markup(&whole.path), number::share(sum, whole.value));
    format!("<data class=\"share\" data-path=\"{paths}\" data-of=\"{of}\">{}</data>", markup(&text))
}

/// Returns an RFC 3339 time in a readable form.
pub(super) fn time(text: &str) -> String {
    let time = text.parse::<jiff::Timestamp>();
    let short = time.map_or_else(|_| shown(text, 40), |it| it.strftime("%-d %b %Y %H:%M:%S").to_string());
    format!("<time datetime=\"{}\">{}</time>", markup(&shown(text, 40)), markup(&short))
}

/// Returns a ratio.
pub(super) fn factor(path: &str, value: f64) -> String {
    let text = number::short(value, value * 0.1);
    format!("× <data data-path=\"{}\" data-about>{text}</data>", markup(path))
}

/// Returns a bar for `part` of `whole`. The number is written beside it.
#[allow(clippy::cast_precision_loss, reason = "a bar of a few hundred pixels")]
pub(super) fn meter(part: u64, whole: u64) -> String {
    let full = if whole == 0 { 0.0 } else { (part as f64 / whole as f64).clamp(0.0, 1.0) * 100.0 };
    format!(
        "<span class=\"meter\" aria-hidden=\"true\"><span style=\"inline-size:{full:.2}%\"></span></span>"
    )
}

/// Returns a table of these rows. A column that starts with `#` holds numbers; an empty name is a column of bars.
pub(super) fn table(class: &str, caption: &str, columns: &[&str], rows: &str) -> String {
    let column = |column: &&str| match column.strip_prefix('#') {
        Some(name) => format!("<th scope=\"col\" class=\"number\">{}</th>", markup(name)),
        None if column.is_empty() => "<td class=\"c-meter\"></td>".to_owned(),
        None => format!("<th scope=\"col\">{}</th>", markup(column)),
    };
    let (caption, head) = (markup(caption), columns.iter().map(column).collect::<String>());
    format!(
        "<table class=\"{class}\"><caption class=\"unseen\">{caption}</caption><thead><tr>{head}</tr></thead><tbody>\n\
         {rows}</tbody></table>\n"
    )
}
