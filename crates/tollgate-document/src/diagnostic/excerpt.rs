//! Renders a diagnostic with the lines it refers to, in the style of `rustc`.
//!
//! The lines come from a file that may be hostile: control characters and
//! bidirectional marks are shown as escapes, and long
//! lines are cut around the caret. The output is printable for every file
//! and contains no passwords (`passwords`, `store`).

use std::ops::Range;

use super::passwords::secrets;
use super::store::{hidden, said};
use super::{Diagnostic, Located, Place, Sources};
use crate::sanitize::is_unprintable;

/// The maximum number of terminal cells of a line that are shown.
const MAX_EXCERPT_CELLS: usize = 120;
/// The number of cells before the caret in a line that is cut.
const CONTEXT_CELLS: usize = 40;
/// The distance from the caret within which passwords are searched, in characters.
const PASSWORD_SEARCH_CHARS: usize = 4096;
/// The maximum number of carets.
const MAX_CARETS: usize = 60;

pub(super) fn render(it: &Diagnostic, sources: &Sources, file: &str, out: &mut String) {
    let mut places = vec![(it.place, it.label.as_str(), '^')];
    places.extend(it.related.iter().map(|Located { value, place }| (*place, value.as_str(), '-')));
    places.sort_by_key(|(place, ..)| *place);
    let numbered = |place: &Place| sources.get(place.source).is_file;
    let numbers = places.iter().map(|(place, ..)| place).filter(|place| numbered(place));
    let gutter = numbers.map(|place| place.line.to_string().len()).max().unwrap_or(1);

    line_of(out, &format!("{}: {}", it.kind(), printable(&said(it, sources, &it.message))));
    // The mistake comes first, even if a related place is in an earlier text.
    places.sort_by_key(|(place, ..)| place.source != it.place.source);
    let mut last: Option<Place> = None;
    for (place, label, mark) in places {
        let same_text = last.is_some_and(|last| last.source == place.source);
        if !same_text {
            let (arrow, at) = if last.is_none() { ("-->", it.place) } else { (":::", place) };
            line_of(out, &format!(" {:gutter$}{arrow} {}", "", whereabouts(at, sources, file)));
            line_of(out, &format!(" {:gutter$} |", ""));
        } else if last.is_some_and(|last| last.line + 1 < place.line) {
            line_of(out, " ...");
        }
        let source = sources.get(place.source);
        let text = source_line(&source.text, place.line);
        let (shown, indent, marks) = window(text, place, hidden(source, place.line));
        if !same_text || last.is_some_and(|last| last.line != place.line) {
            let number = if source.is_file { place.line.to_string() } else { String::new() };
            line_of(out, &format!(" {number:>gutter$} | {shown}"));
        }
        let marks = mark.to_string().repeat(marks);
        line_of(
            out,
            &format!(" {:gutter$} | {:indent$}{marks} {}", "", "", printable(&said(it, sources, label))),
        );
        last = Some(place);
    }
    if !it.help.is_empty() {
        line_of(out, &format!(" {:gutter$} |", ""));
    }
    for help in &it.help {
        line_of(out, &format!(" {:gutter$} = help: {}", "", printable(help)));
    }
}

/// Describes a place: line and column in a file, or the name of an argument.
pub(super) fn whereabouts(place: Place, sources: &Sources, file: &str) -> String {
    let source = sources.get(place.source);
    let name = printable(source.name.as_deref().unwrap_or(file));
    if source.is_file { format!("{name}:{}:{}", place.line, place.column) } else { name }
}

fn line_of(out: &mut String, text: &str) {
    out.push_str(text.trim_end());
    out.push('\n');
}

/// Returns the line with this number, split as YAML splits lines.
pub(crate) fn source_line(source: &str, number: u32) -> &str {
    let mut rest = source;
    for _ in 1..number {
        match rest.find(['\n', '\r']) {
            Some(at) => {
                let width = if rest[at..].starts_with("\r\n") { 2 } else { 1 };
                rest = &rest[at + width..];
            }
            None => return "",
        }
    }
    rest.split(['\n', '\r']).next().unwrap_or("")
}

/// Returns the visible part of a line, the cell at which the marks begin, and their number.
/// `hidden` replaces the search for secrets near the caret.
fn window(text: &str, place: Place, hidden: Option<Vec<Range<usize>>>) -> (String, usize, usize) {
    let start = place.column.saturating_sub(1) as usize;
    let end = start + place.width as usize;
    // Only the surroundings of the caret are scanned: a line may be megabytes long.
    let skipped = if start > MAX_EXCERPT_CELLS { start - CONTEXT_CELLS } else { 0 };
    let mut shown = String::from(if skipped > 0 { "..." } else { "" });
    let (mut cells, mut from, mut to) = (shown.len(), None, 0);
    let (near, from_byte) = surroundings(text, start);
    let (secrets, from_byte) = hidden.map_or_else(|| (secrets(near), from_byte), |all| (all, 0));
    let mut hidden = false;
    for (index, (at, char)) in text.char_indices().enumerate().skip(skipped) {
        if cells >= MAX_EXCERPT_CELLS {
            shown.push_str("...");
            break;
        }
        if index >= start {
            from.get_or_insert(cells);
        }
        let is_secret = at.checked_sub(from_byte).is_some_and(|at| secrets.iter().any(|it| it.contains(&at)));
        cells += match (is_secret, hidden) {
            (false, _) => show(char, &mut shown),
            (true, false) => {
                shown.push_str("***");
                3
            }
            (true, true) => 0,
        };
        hidden = is_secret;
        if index < end {
            to = cells;
        }
    }
    let from = from.unwrap_or(cells);
    (shown, from, to.saturating_sub(from).clamp(1, MAX_CARETS))
}

/// Returns the part of a line that can affect its visible part, and where it begins.
fn surroundings(text: &str, start: usize) -> (&str, usize) {
    let byte_at = |char: usize| text.char_indices().nth(char).map_or(text.len(), |(at, _)| at);
    let from = byte_at(start.saturating_sub(PASSWORD_SEARCH_CHARS));
    (&text[from..byte_at(start + PASSWORD_SEARCH_CHARS)], from)
}

/// Escapes text so that it cannot move the cursor, change colors or reverse the direction.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        show(char, &mut out);
    }
    out
}

/// Appends one character and returns its number of cells.
fn show(char: char, out: &mut String) -> usize {
    match char {
        '\t' => {
            out.push_str("    ");
            4
        }
        _ if is_unprintable(char) || is_zero_width(char) => {
            let escape = char.escape_unicode();
            let cells = escape.len();
            out.extend(escape);
            cells
        }
        _ => {
            out.push(char);
            if wide(char) { 2 } else { 1 }
        }
    }
}

/// Whether a character takes no cell of its own, which would move the caret.
fn is_zero_width(char: char) -> bool {
    matches!(char, '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// Whether a character takes two cells, approximately: the large blocks of UAX #11. A caret
/// that is off by a cell for a rare character is acceptable.
fn wide(char: char) -> bool {
    matches!(char, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}' | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32, column: u32, width: u32) -> Place {
        Place::new(line, column, width)
    }

    #[test]
    fn a_caret_behind_a_password_stands_under_its_character() {
        let text = "store: redis://ann:s3cretive@h:x";
        assert_eq!(window(text, at(1, 30, 1), None), ("store: redis://ann:***@h:x".into(), 23, 1));
        assert_eq!(window(text, at(1, 8, 25), None).1, 7);
        assert_eq!(window(text, at(1, 8, 25), None).2, 19);
    }

    #[test]
    fn lines_are_split_where_yaml_splits_them() {
        for (number, line) in [(1, "a"), (2, "b"), (3, ""), (4, "c"), (5, ""), (9, "")] {
            assert_eq!(source_line("a\nb\r\n\rc", number), line);
        }
    }

    #[test]
    fn a_caret_stands_under_its_character_even_behind_wide_ones() {
        assert_eq!(window("漢字: x", at(1, 5, 1), None), ("漢字: x".into(), 6, 1));
    }

    #[test]
    fn nothing_in_a_line_can_move_the_cursor() {
        let (shown, from, marks) = window("a\u{1b}[2Jb\u{202e}c", at(1, 8, 1), None);
        assert_eq!(shown, "a\\u{1b}[2Jb\\u{202e}c");
        assert_eq!((from, marks), (19, 1));
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = "x".repeat(5_000);
        for column in [1, 60, 121, 2_500, 5_000, 5_001, 9_000] {
            let (shown, from, _) = window(&text, at(1, column, 4_000), None);
            assert!(
                shown.len() <= MAX_EXCERPT_CELLS + 6 && from <= shown.len(),
                "{column}: {from} in {}",
                shown.len()
            );
        }
    }
}
