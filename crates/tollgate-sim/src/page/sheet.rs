//! A writer of the page. It escapes text and marks numbers with their path in the JSON.

use std::fmt::Write;

use tollgate::Span;

use crate::plot::number;
use crate::sanitize::{markup, shown};

/// The most characters of a name from outside, in the text.
const MAX_SHOWN_CHARS: usize = 64;
const MAX_TITLE_CHARS: usize = 400;

/// A number, and its path in the JSON.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    pub(super) path: String,
    pub(super) value: u64,
}

impl Figure {
    pub(super) fn new(path: impl Into<String>, value: u64) -> Self {
        Self { path: path.into(), value }
    }
}

/// A writer of the page.
#[derive(Debug, Default)]
pub(super) struct Sheet {
    out: String,
}

impl Sheet {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// Writes trusted markup.
    pub(super) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Writes escaped text.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push_str(&markup(text));
    }

    /// Writes a name from outside: truncated, escaped, and isolated from the direction of the text around it.
    pub(super) fn foreign(&mut self, text: &str) {
        let short = shown(text, MAX_SHOWN_CHARS);
        let _ = write!(self.out, "<bdi class=\"foreign\"");
        if short != text {
            let _ = write!(self.out, " title=\"{}\"", markup(&shown(text, MAX_TITLE_CHARS)));
        }
        let _ = write!(self.out, ">{}</bdi>", markup(if short.is_empty() { "–" } else { &short }));
    }

    /// Writes a number.
    pub(super) fn number(&mut self, it: &Figure) {
        let (path, text) = (markup(&it.path), number::count(it.value));
        let _ = write!(self.out, "<data data-path=\"{path}\" value=\"{}\">{text}</data>", it.value);
    }

    /// Writes a number with its noun.
    pub(super) fn plural(&mut self, it: &Figure, one: &str, many: &str) {
        self.number(it);
        self.raw(" ");
        self.text(if it.value == 1 { one } else { many });
    }

    /// Writes a sum of parts as a percentage of `whole`.
    pub(super) fn share(&mut self, parts: &[&Figure], whole: &Figure) {
        let sum = parts.iter().fold(0_u64, |sum, it| sum.saturating_add(it.value));
        let paths: Vec<_> = parts.iter().map(|it| markup(&it.path)).collect();
        let (paths, of, text) = (paths.join(" "), markup(&whole.path), number::share(sum, whole.value));
        let _ = write!(
            self.out,
            "<data class=\"share\" data-path=\"{paths}\" data-of=\"{of}\">{}</data>",
            markup(&text)
        );
    }

    /// Writes a time in seconds in words: `30 min`, `1 h 30 min`.
    pub(super) fn seconds(&mut self, it: &Figure) {
        let (path, text) = (markup(&it.path), Span::from_secs(it.value).human_exact());
        let _ = write!(self.out, "<data data-path=\"{path}\" data-unit=\"seconds\">{text}</data>");
    }

    /// Writes an RFC 3339 time in a readable form.
    pub(super) fn time(&mut self, text: &str) {
        let time = text.parse::<jiff::Timestamp>();
        let short = time.map_or_else(|_| shown(text, 40), |it| it.strftime("%-d %b %Y %H:%M:%S").to_string());
        let _ = write!(self.out, "<time datetime=\"{}\">{}</time>", markup(&shown(text, 40)), markup(&short));
    }

    /// Writes a ratio.
    pub(super) fn factor(&mut self, path: &str, value: f64) {
        let text = number::short(value, value * 0.1);
        let _ = write!(self.out, "× <data data-path=\"{}\" data-about>{text}</data>", markup(path));
    }

    /// Writes a bar for `part` of `whole`. The number is written beside it.
    #[allow(clippy::cast_precision_loss, reason = "a bar of a few hundred pixels")]
    pub(super) fn meter(&mut self, part: u64, whole: u64) {
        let full = if whole == 0 { 0.0 } else { (part as f64 / whole as f64).clamp(0.0, 1.0) * 100.0 };
        let _ = write!(
            self.out,
            "<span class=\"meter\" aria-hidden=\"true\"><span style=\"inline-size:{full:.2}%\"></span></span>"
        );
    }

    /// Writes the head of a table. A column that starts with `#` holds numbers; an empty name is a column of bars.
    pub(super) fn table(&mut self, class: &str, caption: &str, columns: &[&str]) {
        let _ = write!(
            self.out,
            "<table class=\"{class}\"><caption class=\"unseen\">{}</caption><thead><tr>",
            markup(caption)
        );
        for column in columns {
            let _ = match column.strip_prefix('#') {
                Some(name) => write!(self.out, "<th scope=\"col\" class=\"number\">{}</th>", markup(name)),
                None if column.is_empty() => write!(self.out, "<td class=\"c-meter\"></td>"),
                None => write!(self.out, "<th scope=\"col\">{}</th>", markup(column)),
            };
        }
        self.raw("</tr></thead><tbody>\n");
    }

    pub(super) fn end_table(&mut self) {
        self.raw("</tbody></table>\n");
    }

    /// Writes a cell with a number.
    pub(super) fn number_cell(&mut self, it: &Figure) {
        self.raw("<td class=\"number\">");
        self.number(it);
        self.raw("</td>");
    }

    /// Writes a cell with a percentage, and a cell with its bar.
    pub(super) fn share_cells(&mut self, part: &Figure, whole: &Figure) {
        self.raw("<td class=\"number\">");
        self.share(&[part], whole);
        self.raw("</td><td class=\"c-meter\">");
        self.meter(part.value, whole.value);
        self.raw("</td>");
    }
}
