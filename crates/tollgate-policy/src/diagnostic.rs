//! What is wrong with a file, where, and what was probably meant.
//!
//! A diagnostic is data until somebody shows it: an editor wants line and
//! column, a terminal wants the line with a caret under it (`excerpt`), and a
//! log wants one line that quotes nothing secret (`brief`).
//!
//! Not here: finding mistakes. Whoever reads a [`Document`](crate::Document)
//! collects them in [`Problems`] and goes on, so that one run names them all.

mod brief;
mod excerpt;
mod passwords;
mod sources;
mod store;
mod view;

use std::collections::HashSet;
use std::fmt;

pub(crate) use excerpt::source_line;
pub use passwords::redacted;
pub(crate) use sources::{Source, Sources};
pub use view::DiagnosticView;

use crate::lint::Lint;

/// The most that one run reports. Past this the file is probably not a policy.
const MAX_REPORTED: usize = 100;
/// The most that are kept until they are sorted: a file of a million mistakes
/// must not become gigabytes of complaints.
const MAX_COLLECTED: usize = 10_000;

/// Where something stands in a file, within one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which text: 0 is the file, others were joined to its tree or set in it.
    pub source: u32,
    /// Counted from one.
    pub line: u32,
    /// In characters, counted from one.
    pub column: u32,
    /// In characters. What goes on over several lines is as wide as its first.
    pub width: u32,
}

impl Place {
    /// A place in the file itself.
    pub(crate) const fn new(line: u32, column: u32, width: u32) -> Self {
        Self { source: 0, line, column, width }
    }

    /// The same place, where the text has become part of a longer one: behind
    /// so many characters of its first line.
    #[must_use]
    pub(crate) const fn moved(self, source: u32, behind: u32) -> Self {
        let column = if self.line == 1 { self.column.saturating_add(behind) } else { self.column };
        Self { source, column, ..self }
    }
}

/// A value and where it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// What was written.
    pub value: T,
    /// Where.
    pub place: Place,
}

impl<T> Located<T> {
    /// `value`, which was written at `place`.
    pub const fn new(value: T, place: Place) -> Self {
        Self { value, place }
    }

    /// Another value at the same place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Located<U> {
        Located::new(change(self.value), self.place)
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, and probably does not do what its author wanted.
    Warning,
}

/// One thing that is wrong, or looks wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Which kind of warning it is; every warning has a code, and no error.
    pub code: Option<Lint>,
    /// What is wrong, in one line.
    pub message: String,
    /// Where.
    pub place: Place,
    /// What stands beside the caret; may be empty.
    pub label: String,
    /// Other places that matter, each with a label.
    pub related: Vec<Located<String>>,
    /// What to do about it.
    pub help: Vec<String>,
    /// Where else it is, if many alike are told of once.
    pub others: Vec<Place>,
}

impl Diagnostic {
    /// A diagnostic without label or help.
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

    /// `error`, or `warning[CODE]`.
    pub(crate) fn kind(&self) -> String {
        match (self.severity, self.code) {
            (Severity::Error, _) => "error".to_owned(),
            (Severity::Warning, None) => "warning".to_owned(),
            (Severity::Warning, Some(code)) => format!("warning[{code}]"),
        }
    }

    /// Says this beside the caret.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = label.into();
        self
    }

    /// Points to a second place.
    pub fn related(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.related.push(Located::new(label.into(), place));
        self
    }

    /// Adds a line on what to do.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help.push(help.into());
        self
    }
}

/// Collects diagnostics while a file is read.
///
/// ```
/// # use tollgate_policy::{Document, Problems};
/// let doc = Document::parse("listen: 8080\n")?;
/// let mut problems = Problems::default();
/// problems.error(doc.root().place, "no limits").help("add a `limits` section");
/// assert_eq!(problems.into_diagnostics(&doc).len(), 1);
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Debug, Default)]
pub struct Problems {
    found: Vec<Diagnostic>,
    /// Errors and warnings past the most that are kept.
    left_out: (usize, usize),
    /// Takes label and help of those.
    spare: Option<Diagnostic>,
}

impl Problems {
    /// Adds an error; the result takes label and help.
    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic::new(Severity::Error, place, message))
    }

    /// Adds a warning; the result takes label and help.
    pub fn warning(&mut self, code: Lint, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.push(Diagnostic { code: Some(code), ..Diagnostic::new(Severity::Warning, place, message) })
    }

    /// Adds a diagnostic made elsewhere.
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

    /// Whether anything found so far makes the file unusable.
    pub fn has_errors(&self) -> bool {
        self.left_out.0 > 0 || self.found.iter().any(|it| it.severity == Severity::Error)
    }

    /// The warnings found so far, to be gone through as a whole.
    pub(crate) fn take_warnings(&mut self) -> Vec<Diagnostic> {
        let (warnings, others) =
            std::mem::take(&mut self.found).into_iter().partition(|it| it.severity == Severity::Warning);
        self.found = others;
        warnings
    }

    /// The errors alone: what else was noticed can wait until they are gone.
    pub(crate) fn errors(mut self) -> Self {
        self.found.retain(|it| it.severity == Severity::Error);
        self.left_out.1 = 0;
        self
    }

    /// All of them in file order, with the text they speak about.
    pub fn into_diagnostics(self, document: &crate::Document) -> Diagnostics {
        self.about(document.sources())
    }

    /// The same for a text that is no [`Document`](crate::Document): a file in another language.
    pub fn about_text(self, text: &str) -> Diagnostics {
        self.about(&Sources::file(text))
    }

    /// The same problems, where the text has become part of a longer one.
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
        // What an alias stands for is read again for each alias.
        let mut said = HashSet::new();
        self.found.retain(|it| said.insert((it.place, it.message.clone())));
        let left_out = self.left_out.0 + self.left_out.1 + self.found.len().saturating_sub(MAX_REPORTED);
        self.found.truncate(MAX_REPORTED);
        Diagnostics { items: self.found, left_out, sources: sources.clone() }
    }
}

/// Everything found in one file, in file order, ready to be shown.
///
/// ```
/// # use tollgate_policy::Policy;
/// let wrong = Policy::parse("limits:\n  - by: ip\n    bucket: 10/minuet\n").unwrap_err();
/// assert_eq!((wrong[0].place.line, wrong[0].place.column), (3, 16));
/// assert!(wrong.render("policy.yaml").contains("did you mean `minute`?"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    items: Vec<Diagnostic>,
    left_out: usize,
    sources: Sources,
}

impl Diagnostics {
    /// The same, reworded: for files of another format that are read with the same tools.
    #[must_use]
    pub fn reworded(mut self, reword: impl FnMut(&mut Diagnostic)) -> Self {
        self.items.iter_mut().for_each(reword);
        self
    }

    /// The same, without warnings that somebody has said to expect.
    #[must_use]
    pub fn without(mut self, expected: impl Fn(Lint) -> bool) -> Self {
        self.items.retain(|it| !it.code.is_some_and(&expected));
        self
    }

    /// Each in words that may be shown, for whoever does not want text.
    pub fn views(&self, file: &str) -> Vec<DiagnosticView> {
        self.items.iter().map(|item| DiagnosticView::new(item, &self.sources, file)).collect()
    }

    /// How many more were found than are kept.
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// As text for a terminal, in the manner of `rustc`. `file` is how the file is called there.
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

    /// One line for each, without the lines of the file, and with what is quoted from them
    /// cut short: for readers who may know that something is wrong, and not what is in the file.
    pub fn brief(&self, file: &str) -> String {
        let (brief, mut out) = (brief::Brief::new(&self.sources), String::new());
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
