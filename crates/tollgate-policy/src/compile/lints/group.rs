//! Merges warnings of one kind when there are many.
//!
//! An imported policy may have hundreds of similar limits.

use tollgate_document::Diagnostic;

/// The maximum number of different warnings of one kind that are reported separately.
const MAX_SEPARATE: usize = 3;
/// The maximum number of lines that a merged warning lists.
const MAX_LISTED_LINES: usize = 5;

pub(super) fn grouped(mut warnings: Vec<Diagnostic>) -> Vec<Diagnostic> {
    warnings.sort_by_key(|it| it.place);
    let mut out: Vec<Diagnostic> = Vec::new();
    for warning in warnings {
        let alike = out.iter().filter(|it| it.code == warning.code).count();
        let first = out
            .iter_mut()
            .find(|it| it.code == warning.code && (alike >= MAX_SEPARATE || have_same_words(it, &warning)));
        match first {
            Some(first) if warning.code.is_some() => first.others.push(warning.place),
            _ => out.push(warning),
        }
    }
    for warning in &mut out {
        let others = &warning.others;
        match &others[..] {
            [] => {}
            [other] => {
                let help = format!("one more is like this: line {}", other.line);
                warning.help(help);
            }
            _ => {
                let lines: Vec<_> =
                    others.iter().take(MAX_LISTED_LINES).map(|it| it.line.to_string()).collect();
                let more = if others.len() > lines.len() { ", ..." } else { "" };
                let help = format!("{} more are like this: lines {}{more}", others.len(), lines.join(", "));
                warning.help(help);
            }
        }
    }
    out
}

/// Whether two warnings have the same text.
fn have_same_words(one: &Diagnostic, other: &Diagnostic) -> bool {
    (&one.message, &one.label, &one.help) == (&other.message, &other.label, &other.help)
        && one.related.is_empty()
        && other.related.is_empty()
}
