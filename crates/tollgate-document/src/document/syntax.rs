//! Explains YAML syntax errors.
//!
//! The scanner reports the place where it stopped, which is often a line after the mistake.
//! The surrounding lines reveal more: a missing colon, a colon without a blank
//! behind it, inconsistent columns, a bracket that is never closed.

use saphyr_parser::ScanError;

use super::reader::place;
use crate::diagnostic::{Place, Problems, source_line};
use crate::document::short;

pub(super) fn explain(error: &ScanError, text: &str, problems: &mut Problems) {
    let here = place(saphyr_parser::Span::empty(*error.marker()));
    let info = error.info();
    if info.contains("unknown anchor") || info.contains("anchor or alias") {
        problems
            .error(here, "a value that begins with `*` or `&` needs quotes")
            .label("to YAML this is a reference")
            .help("write it between quotes: \"*.example.com\"");
    } else if info.contains("quoted scalar") {
        problems
            .error(here, "these quotes cannot be read")
            .label("are they closed, on the same line, by the same kind of quote?")
            .help("inside double quotes a backslash is written twice");
    } else if let Some((bracket, at)) = open_bracket(text, error.marker().index()) {
        brackets(bracket, at, here, text, problems);
    } else if !lines_disagree(here, text, problems) {
        problems
            .error(here, format!("this is not YAML: {}", info.trim_end_matches('.')))
            .label("reading stops here")
            .help("lines of one map begin in the same column; values with `: `, ` #`, brackets or quotes need quotes");
    }
}

fn brackets(bracket: char, at: Place, here: Place, text: &str, problems: &mut Problems) {
    let line = source_line(text, here.line);
    let found = line.chars().nth(here.column.saturating_sub(1) as usize);
    let message = match found {
        Some(found @ ('{' | '[' | '}' | ']')) => problems
            .error(here, format!("a value between brackets that holds `{found}` needs quotes"))
            .label("here"),
        _ => problems
            .error(at, format!("this `{bracket}` is not closed, or something in it needs quotes"))
            .label("begins here")
            .related(here, "reading stops here"),
    };
    message.help("write [\"/users/{id}\", /login], or a line that begins with `- ` for each item");
}

/// Returns the innermost bracket that is open at a position; approximate, for messages.
fn open_bracket(text: &str, upto: usize) -> Option<(char, Place)> {
    let mut open = Vec::new();
    let (mut line, mut column, mut quote, mut last) = (1, 0, None, '\n');
    for char in text.chars().take(upto) {
        column += 1;
        match (quote, char) {
            // A comment ends with its line, a quoted text at the same quote.
            (Some(end), _) => quote = if char == end { None } else { quote },
            (None, '"' | '\'') if !last.is_alphanumeric() => quote = Some(char),
            (None, '#') if last.is_whitespace() => quote = Some('\n'),
            // A bracket opens a collection only where a value begins; elsewhere it is text.
            (None, '[' | '{') if last.is_whitespace() || matches!(last, '[' | '{' | ',') => {
                open.push((char, Place::new(line, column, 1)));
            }
            (None, ']' | '}') => drop(open.pop()),
            _ => {}
        }
        if char == '\n' {
            (line, column) = (line + 1, 0);
        }
        last = char;
    }
    open.pop()
}

/// Looks for common mistakes in the line where reading stopped and in the line above it.
fn lines_disagree(here: Place, text: &str, problems: &mut Problems) -> bool {
    let line = source_line(text, here.line);
    let content = content(line);
    let before: String = line.chars().take(here.column.saturating_sub(1) as usize).collect();
    if let Some(at) = before.find(": ") {
        let value = before[at + 2..].trim();
        let problem = problems.error(here, "a value with `: ` in it needs quotes");
        if matches!(value, "header" | "cookie" | "query" | "path" | "claim") {
            let rest: String = line.chars().skip(here.column as usize).collect();
            problem.label(format!("did you mean `{value}:{}`?", short(rest.trim())));
        } else {
            problem.label("the second colon of this line");
        }
        return true;
    }
    let above = (1..here.line).rev().map(|number| (number, source_line(text, number)));
    // Only the surroundings: a file may contain millions of blank lines.
    let mut above = above.take(20).filter(|(_, line)| !content_is_empty(line));
    let Some((number, previous)) = above.next() else { return false };
    let said = self::content(previous);
    let columns = |line: &str, content: &str| {
        u32::try_from(line.chars().count() - content.chars().count()).unwrap_or(0) + 1
    };
    let width = u32::try_from(said.chars().count()).unwrap_or(1);
    let place = Place::new(number, columns(previous.trim_end(), said), width);
    if !said.contains(": ") && !said.ends_with(':') {
        let problem = problems.error(place, "this line is not a `name: value`");
        problem.label(if said.contains(':') {
            "a blank is missing behind the colon"
        } else {
            "a colon and a blank are missing behind the name"
        });
        return true;
    }
    let (this, that) = (columns(line.trim_end(), content), place.column);
    if this == that {
        return false;
    }
    problems
        .error(Place::new(here.line, this, 1), "this line does not line up with the one above")
        .label(format!("begins in column {this}"))
        .related(Place { width: 1, ..place }, format!("begins in column {that}"))
        .help("lines of one limit begin in the same column");
    true
}

/// Returns a line without its indentation, the dashes of list items, and trailing blanks.
fn content(line: &str) -> &str {
    let mut rest = line.trim();
    while let Some(item) = rest.strip_prefix("- ") {
        rest = item.trim_start();
    }
    rest
}

fn content_is_empty(line: &str) -> bool {
    content(line).is_empty() || content(line).starts_with('#')
}
