//! A YAML file as a tree in which every node knows its place.
//!
//! Scalars keep their text: the reader of a place decides whether `off`, `1e3` and `12:30` are
//! booleans, numbers or dates. The types of YAML 1.1 are not applied.
//!
//! The reader omits some features of YAML on purpose: aliases, anchors, merge keys and tags (so
//! that a file has no cross references, a mistake has one place, and ten
//! lines cannot expand into a billion), several documents, tabs as indentation, and
//! duplicate keys. [`Document::parse_expanded`] reads other formats that have aliases and merge
//! keys, and expands them within bounds (`references`).
//!
//! Readers of a format interpret its sections with the methods of [`Node`].

mod node;
#[cfg(feature = "yaml")]
mod overlay;
#[cfg(feature = "yaml")]
mod reader;
#[cfg(feature = "yaml")]
mod references;
#[cfg(feature = "yaml")]
mod syntax;

pub use node::{Fields, Synonyms, Words, byte_count, short, synonym, whole_number};
#[cfg(feature = "yaml")]
pub use overlay::Setting;
#[cfg(feature = "yaml")]
use references::References;

#[cfg(feature = "yaml")]
use crate::diagnostic::{Diagnostics, Problems};
use crate::diagnostic::{Located, Place, Sources};

/// A YAML file as a tree with places.
///
/// ```
/// # use tollgate_document::Document;
/// let doc = Document::parse("listen:\n  api: off\n")?;
/// let api = doc.root().get("listen").and_then(|listen| listen.get("api")).unwrap();
/// assert_eq!((api.text(), api.place.line, api.place.column), (Some("off"), 2, 8));
/// assert!(Document::parse("a: 1\na: 2\n").is_err());
/// # Ok::<(), tollgate_document::Diagnostics>(())
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    root: Node,
    sources: Sources,
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The place where it begins.
    pub place: Place,
    /// The content.
    pub kind: Kind,
}

/// The content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An empty value, `~` or `null`.
    Null,
    /// A word, a number or a sentence.
    Scalar {
        /// The text without quotes, with escapes resolved.
        text: String,
        /// Whether the text was quoted.
        quoted: bool,
    },
    /// The items of a list, in order.
    List(Vec<Node>),
    /// The entries of a map, in order; names are unique.
    Map(Vec<Entry>),
}

/// An entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, left of the colon.
    pub name: Located<String>,
    /// The value, right of the colon.
    pub value: Node,
}

impl Node {
    /// Converts the name of an entry into a node, for functions that read nodes.
    pub fn scalar(name: &Located<String>) -> Self {
        let quoted = name.value.chars().count() != name.place.width as usize;
        Self { place: name.place, kind: Kind::Scalar { text: name.value.clone(), quoted } }
    }
}

#[cfg(feature = "yaml")]
impl Document {
    /// Parses YAML, or returns all syntax errors.
    pub fn parse(text: &str) -> Result<Self, Diagnostics> {
        Self::parse_with(text, References::Refused)
    }

    /// Parses YAML of a format that has anchors, aliases and merge keys, and expands them
    /// within bounds.
    ///
    /// ```
    /// # use tollgate_document::Document;
    /// let text = "a: &few {unit: day, count: 5}\nb: {<<: *few, count: 6}\n";
    /// let doc = Document::parse_expanded(text)?;
    /// let b = doc.root().get("b").unwrap();
    /// assert_eq!(b.get("unit").and_then(|it| it.text()), Some("day"));
    /// assert_eq!(b.get("count").and_then(|it| it.text()), Some("6"));
    /// assert!(Document::parse(text).is_err());
    /// # Ok::<(), tollgate_document::Diagnostics>(())
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

    /// Parses YAML and returns the document with the problems after which reading can continue,
    /// such as a name that is written twice. The caller adds its own problems and reports all of them
    /// together. Returns an error if no tree can be built.
    pub fn parse_partial(text: &str) -> Result<(Self, Problems), Diagnostics> {
        let (root, problems, sources) = Self::read(text, References::Refused);
        match root {
            Some(root) => Ok((Self { root, sources }, problems)),
            None => Err(problems.about(&sources)),
        }
    }

    /// Reads a tree, and the problems after which reading can continue.
    fn read(text: &str, references: References) -> (Option<Node>, Problems, Sources) {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut problems = Problems::default();
        let root = reader::read(text, references, &mut problems);
        // A file that is too large to parse is not kept for its first line.
        let kept = if root.is_none() && text.len() > reader::MAX_FILE_BYTES { "" } else { text };
        (root, problems, Sources::file(kept))
    }
}

impl Document {
    /// Returns the root node, which is a map in most files.
    pub const fn root(&self) -> &Node {
        &self.root
    }

    /// Returns the texts that the document was read from.
    pub(crate) const fn sources(&self) -> &Sources {
        &self.sources
    }
}
