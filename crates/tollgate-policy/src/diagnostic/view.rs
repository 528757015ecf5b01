//! A diagnostic in words that may be shown, in parts: for JSON, and whoever else lays out text.

use super::excerpt::printable;
use super::store::said;
use super::{Diagnostic, Severity, Source, Sources};
use crate::lint::Lint;

/// One diagnostic, without passwords and control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiagnosticView {
    /// How bad it is.
    pub severity: Severity,
    /// Which kind of warning it is.
    pub code: Option<Lint>,
    /// In which file, or what was typed instead.
    pub file: String,
    /// In which line and column, counted from one; none where there is no file.
    pub at: Option<(u32, u32)>,
    /// What is wrong.
    pub message: String,
    /// What stands beside the place; may be empty.
    pub label: String,
    /// What to do about it.
    pub help: Vec<String>,
    /// Where else it is, if many alike are told of once: file, line and column.
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
