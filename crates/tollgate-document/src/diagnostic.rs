//! Diagnostics: mistakes in a file, with their place and a suggestion.
//!
//! A diagnostic is data until it is rendered: an editor needs line and
//! column, a terminal shows the line with a caret under it (`excerpt`), and a
//! log shows one line without secrets (`brief`).
//!
//! Readers of a [`Document`](crate::Document) collect mistakes in [`Problems`] and continue, so
//! that one run reports all of them.

mod brief;
mod excerpt;
mod passwords;
mod sources;
mod store;
mod view;

use std::collections::HashSet;
use std::fmt;

#[cfg(feature = "yaml")]
pub(crate) use excerpt::source_line;
pub use passwords::redacted;
pub(crate) use sources::{Source, Sources};
pub use view::DiagnosticView;

/// The maximum number of reported diagnostics. A file with more is probably of another format.
const MAX_REPORTED: usize = 100;
/// The maximum number of diagnostics kept before sorting: a file of a million mistakes
/// must not use gigabytes of memory.
const MAX_COLLECTED: usize = 10_000;

/// A range of characters in one line of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The index of the text: 0 is the file, others were joined to its tree or set in it.
    pub source: u32,
    /// The line, counted from one.
    pub line: u32,
    /// The column in characters, counted from one.
    pub column: u32,
    /// The width in characters. For a range of several lines, the width of its first line.
    pub width: u32,
}

impl Place {
    /// Creates a place in the file itself.
    pub(crate) const fn new(line: u32, column: u32, width: u32) -> Self {
        Self { source: 0, line, column, width }
    }

    /// Moves the place into a longer text of which this text is a part, behind `behind` characters of
    /// its first line.
    #[must_use]
    pub(crate) const fn moved(self, source: u32, behind: u32) -> Self {
        let column = if self.line == 1 { self.column.saturating_add(behind) } else { self.column };
        Self { source, column, ..self }
    }
}

/// A value and its place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The place.
    pub place: Place,
}

impl<T> Located<T> {
    /// Creates a value with a place.
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }

    /// Converts the value and keeps the place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        Located::new(change(self.value), self.place)
    }
}

/// The severity of a diagnostic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but probably does not have the effect that its author wanted.
    Warning,
}

/// A mistake or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// The stable code of a warning, such as `never-fires`. Errors have none.
    pub code: Option<&'static str>,
    /// The message, in one line.
    pub message: String,
    /// The place of the mistake.
    pub place: Place,
    /// The text beside the caret; may be empty.
    pub label: String,
    /// Related places, each with a label.
    pub related: Vec<Located<String>>,
    /// Suggestions for a fix.
    pub help: Vec<String>,
    /// The other places of a warning that merges many similar ones.
    pub others: Vec<Place>,
}

impl Diagnostic {
    /// Creates a diagnostic without label or help.
    pub fn new(severity: Severity, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity,
            code: None,
            message: message.into(),
            place,
            label: String::new(),
            related: Vec::new(),
            help: Vec::new(),
            others: Vec::new(),
        }
    }

    /// Returns `error`, or `warning[CODE]`.
    pub(crate) fn kind(&self) -> String {
        match (self.severity, self.code) {
            (Severity::Error, _) => "error".to_owned(),
            (Severity::Warning, None) => "warning".to_owned(),
            (Severity::Warning, Some(code)) => format!("warning[{code}]"),
        }
    }

    /// Sets the text beside the caret.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Adds a related place.
    pub fn related(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.related.push(Located::new(label.into(), place));
        self
    }

    /// Adds a suggestion for a fix.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help.push(help.into());
        self
    }
}

/// Collects diagnostics while a file is read.
///
/// ```
/// # use tollgate_document::{Document, Problems};
/// let doc = Document::parse("listen: 8080\n")?;
/// let mut problems = Problems::default();
/// problems.error(doc.root().place, "no limits").help("add a `limits` section");
/// assert_eq!(problems.into_diagnostics(&doc).len(), 1);
/// # Ok::<(), tollgate_document::Diagnostics>(())
/// ```
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Diagnostic>,
    /// The number of errors and warnings beyond the maximum.
    left_out: (usize, usize),
    /// Receives the label and help of dropped diagnostics.
    spare: Option<Diagnostic>,
}

impl Problems {
    /// Adds an error. Label and help can be set on the result.
    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic::new(Severity::Error, place, message))
    }

    /// Adds a warning with a stable code. Label and help can be set on the result.
    pub fn warning(
        &mut self,
        code: impl Into<&'static str>,
        place: Place,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        self.push(Diagnostic {
            code: Some(code.into()),
            ..Diagnostic::new(Severity::Warning, place, message)
        })
    }

    /// Adds a diagnostic.
    pub fn push(&mut self, diagnostic: Diagnostic) -> &mut Diagnostic {
        if self.found.len() >= MAX_COLLECTED {
            match diagnostic.severity {
                Severity::Error => self.left_out.0 += 1,
                Severity::Warning => self.left_out.1 += 1,
            }
            return self.spare.insert(diagnostic);
        }
        self.found.push(diagnostic);
        let last = self.found.len() - 1;
        &mut self.found[last]
    }

    /// Whether an error was found.
    pub fn has_errors(&self) -> bool {
        self.left_out.0 > 0 || self.found.iter().any(|it| it.severity == Severity::Error)
    }

    /// Removes and returns the warnings found so far, to be filtered as a whole.
    pub fn take_warnings(&mut self) -> Vec<Diagnostic> {
        let (warnings, others) =
            std::mem::take(&mut self.found).into_iter().partition(|it| it.severity == Severity::Warning);
        self.found = others;
        warnings
    }

    /// Keeps the errors only: warnings are reported once the errors are fixed.
    #[must_use]
    pub fn errors(mut self) -> Self {
        self.found.retain(|it| it.severity == Severity::Error);
        self.left_out.1 = 0;
        self
    }

    /// Returns all diagnostics in file order, with the text they refer to.
    pub fn into_diagnostics(self, document: &crate::Document) -> Diagnostics {
        self.about(document.sources())
    }

    /// Returns all diagnostics for a text that is not a [`Document`](crate::Document), such as a file in
    /// another language.
    pub fn about_text(self, text: &str) -> Diagnostics {
        self.about(&Sources::file(text))
    }

    /// Moves all places into a longer text of which this text is a part.
    pub(crate) fn moved(mut self, source: u32, behind: u32) -> Self {
        for found in &mut self.found {
            found.place = found.place.moved(source, behind);
            found.related.iter_mut().for_each(|it| it.place = it.place.moved(source, behind));
            found.others.iter_mut().for_each(|it| *it = it.moved(source, behind));
        }
        self
    }

    pub(crate) fn about(mut self, sources: &Sources) -> Diagnostics {
        self.found.sort_by_key(|it| (it.place, it.severity));
        // The target of an alias is read again for each alias.
        let mut said = HashSet::new();
        self.found.retain(|it| said.insert((it.place, it.message.clone())));
        let left_out = self.left_out.0 + self.left_out.1 + self.found.len().saturating_sub(MAX_REPORTED);
        self.found.truncate(MAX_REPORTED);
        Diagnostics { items: self.found, left_out, sources: sources.clone() }
    }
}

/// All diagnostics of one file, in file order.
///
/// ```
/// # use tollgate_document::Document;
/// let wrong = Document::parse("limits:\n  - by: ip\n    by: user\n").unwrap_err();
/// assert_eq!((wrong[0].place.line, wrong[0].place.column), (3, 5));
/// assert!(wrong.render("policy.yaml").contains("`by` is written twice"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
    left_out: usize,
    sources: Sources,
}

impl Diagnostics {
    /// Rewords the diagnostics, for files of another format that are read with the same tools.
    #[must_use]
    pub fn reworded(mut self, reword: impl FnMut(&mut Diagnostic)) -> Self {
        self.items.iter_mut().for_each(reword);
        self
    }

    /// Removes the warnings with an expected code.
    #[must_use]
    pub fn without(mut self, expected: impl Fn(&str) -> bool) -> Self {
        self.items.retain(|it| !it.code.is_some_and(&expected));
        self
    }

    /// Returns redacted diagnostics in parts, for output other than text.
    pub fn views(&self, file: &str) -> Vec<DiagnosticView> {
        self.items.iter().map(|item| DiagnosticView::new(item, &self.sources, file)).collect()
    }

    /// Returns the number of diagnostics that were dropped.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Renders the diagnostics for a terminal, in the style of `rustc`. `file` is the displayed file name.
    pub fn render(&self, file: &str) -> String {
        let mut out = String::new();
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            excerpt::render(item, &self.sources, file, &mut out);
        }
        if self.left_out > 0 {
            out.extend(["\nand ", &self.left_out.to_string(), " more\n"]);
        }
        out
    }

    /// Renders one line per diagnostic, without lines of the file and with shortened quotes from
    /// it, for readers who may know that something is wrong but may not see the file.
    ///
    /// `words` are the words of the format, which are shown in full; any other text of the file may be
    /// a secret.
    pub fn brief(&self, file: &str, words: &HashSet<String>) -> String {
        let (brief, mut out) = (brief::Brief::new(&self.sources, words), String::new());
        self.items.iter().for_each(|item| brief.render(item, &self.sources, file, &mut out));
        if self.left_out > 0 {
            out.extend(["and ", &self.left_out.to_string(), " more\n"]);
        }
        out
    }
}

impl std::ops::Deref for Diagnostics {
    type Target = [Diagnostic];

    fn deref(&self) -> &[Diagnostic] {
        &self.items
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render("policy"))
    }
}

impl std::error::Error for Diagnostics {}
