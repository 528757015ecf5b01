//! A YAML file as a tree in which every node knows where it stands.
//!
//! Scalars keep their text: nothing is a number, a boolean or a date until
//! somebody asks for one. So `off`, `1e3` and `12:30` mean what the reader of
//! that place decides, and not what YAML 1.1 made of them.
//!
//! Left out of YAML on purpose: aliases, anchors, merge keys and tags (a file
//! that is read aloud has no cross references, a mistake has one place, and ten
//! lines cannot unfold into a billion), several documents, tabs as indentation,
//! duplicate keys. Files of another format that has aliases and merge keys are read with
//! [`Document::parse_expanded`], which writes them out within bounds (`references`).
//!
//! Not here: what the words mean. The policy's sections are read by `file_format`,
//! the server's by the server, both with [`Node`]'s questions.

mod node;
mod overlay;
mod reader;
mod references;
mod syntax;

pub use node::{Fields, Words};
pub(crate) use node::{byte_count, short, whole_number};
pub use overlay::Setting;
pub(crate) use references::References;

use crate::diagnostic::{Diagnostics, Located, Place, Problems, Sources};

/// A YAML file as a located tree.
///
/// ```
/// # use tollgate_policy::Document;
/// let doc = Document::parse("listen:\n  api: off\n")?;
/// let api = doc.root().get("listen").and_then(|listen| listen.get("api")).unwrap();
/// assert_eq!((api.text(), api.place.line, api.place.column), (Some("off"), 2, 8));
/// assert!(Document::parse("a: 1\na: 2\n").is_err());
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    root: Node,
    sources: Sources,
}

/// One node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub place: Place,
    /// What it is.
    pub kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// A word, a number, a sentence.
    Scalar {
        /// Without quotes, escapes resolved.
        text: String,
        /// Whether quotes stood around it.
        quoted: bool,
    },
    /// Items in order.
    List(Vec<Node>),
    /// Named values in order; no name twice.
    Map(Vec<Entry>),
}

/// One line of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Left of the colon.
    pub name: Located<String>,
    /// Right of it.
    pub value: Node,
}

impl Node {
    /// A name as a node, for readers that take nodes.
    pub(crate) fn scalar(name: &Located<String>) -> Self {
        let quoted = name.value.chars().count() != name.place.width as usize;
        Self { place: name.place, kind: Kind::Scalar { text: name.value.clone(), quoted } }
    }
}

impl Document {
    /// Reads YAML, or says everything that is wrong with it as YAML.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        Self::parse_with(text, References::Refused)
    }

    /// The same for a format that has anchors, aliases and merge keys: they are written out,
    /// unless that is more than anybody means.
    ///
    /// ```
    /// # use tollgate_policy::Document;
    /// let text = "a: &few {unit: day, count: 5}\nb: {<<: *few, count: 6}\n";
    /// let doc = Document::parse_expanded(text)?;
    /// let b = doc.root().get("b").unwrap();
    /// assert_eq!(b.get("unit").and_then(|it| it.text()), Some("day"));
    /// assert_eq!(b.get("count").and_then(|it| it.text()), Some("6"));
    /// assert!(Document::parse(text).is_err());
    /// # Ok::<(), tollgate_policy::Diagnostics>(())
    /// ```
    pub fn parse_expanded(text: &str) -> Result<Self, Diagnostics> {
        Self::parse_with(text, References::Expanded)
    }

    fn parse_with(text: &str, references: References) -> Result<Self, Diagnostics> {
        let (root, problems, sources) = Self::read(text, references);
        match root {
            Some(root) if !problems.has_errors() => Ok(Self { root, sources }),
            _ => Err(problems.about(&sources)),
        }
    }

    /// A tree may come with problems: those a reader can go on after, so that
    /// they are reported together with what the reader finds.
    pub(crate) fn read(text: &str, references: References) -> (Option<Node>, Problems, Sources) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut problems = Problems::default();
        let root = reader::read(text, references, &mut problems);
        // A file too large to read is not worth keeping for its first line.
        let kept = if root.is_none() && text.len() > reader::MAX_FILE_BYTES { "" } else { text };
        (root, problems, Sources::file(kept))
    }

    pub(crate) const fn new(root: Node, sources: Sources) -> Self {
        Self { root, sources }
    }

    /// The outermost node: a map in any useful file.
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// The texts it was read from.
    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }
}
