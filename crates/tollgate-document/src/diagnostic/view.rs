//! Redacted diagnostics in parts, for JSON and other layouts.

use super::excerpt::printable;
use super::store::said;
use super::{Diagnostic, Severity, Source, Sources};

/// A diagnostic without passwords and control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticView {
    /// The severity.
    pub severity: Severity,
    /// The stable code of a warning.
    pub code: Option<&'static str>,
    /// The file, or the name of the argument.
    pub file: String,
    /// Line and column, counted from one; `None` outside of files.
    pub at: Option<(u32, u32)>,
    /// The message.
    pub message: String,
    /// The text beside the place; may be empty.
    pub label: String,
    /// Suggestions for a fix.
    pub help: Vec<String>,
    /// The other places of a warning that merges many similar ones: file, line and column.
    pub others: Vec<(String, u32, u32)>,
}

impl DiagnosticView {
    pub(super) fn new(it: &Diagnostic, sources: &Sources, file: &str) -> Self {
        let shown = |text: &str| printable(&said(it, sources, text));
        let source = sources.get(it.place.source);
        let name = |source: &Source| printable(source.name.as_deref().unwrap_or(file));
        let others = it.others.iter().map(|place| (sources.get(place.source), place));
        let others = others.filter(|(source, _)| source.is_file);
        Self {
            severity: it.severity,
            code: it.code,
            file: name(source),
            at: source.is_file.then_some((it.place.line, it.place.column)),
            message: shown(&it.message),
            label: shown(&it.label),
            help: it.help.iter().map(|help| printable(help)).collect(),
            others: others.map(|(source, it)| (name(source), it.line, it.column)).collect(),
        }
    }
}
