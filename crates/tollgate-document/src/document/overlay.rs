//! Values from outside the file: a second file, the command
//! line, the environment.
//!
//! They are grafted onto the tree before it is read, so every reader of a
//! section reads them too, and reports their mistakes in the same words. Each
//! keeps its text; a message shows that text instead of a line of the file.

use super::{Document, Entry, Kind, Node, References, short};
use crate::diagnostic::{Diagnostics, Located, Place, Problems, Source};

/// The maximum depth of a path. Paths are typed by hand and never this deep.
const MAX_DEPTH: usize = 16;

/// A value from outside the file.
///
/// ```
/// # use tollgate_document::{Document, Setting};
/// let mut document = Document::parse("listen: {api: 127.0.0.1:7070}\n")?;
/// document.set(&Setting {
///     origin: "on the command line",
///     typed: "--set listen.api=",
///     path: "listen.api",
///     value: "off",
/// })?;
/// let api = document.root().get("listen").and_then(|listen| listen.get("api"));
/// assert_eq!(api.and_then(|it| it.text()), Some("off"));
/// # Ok::<(), tollgate_document::Diagnostics>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// The origin of the value, for messages: `on the command line`.
    pub origin: &'s str,
    /// The text that was typed before the value: `--set listen.api=`.
    pub typed: &'s str,
    /// The path of the value: names with dots between them. An item of a list is addressed
    /// by its `name`, or by its index from 0.
    pub path: &'s str,
    /// The value, in YAML.
    pub value: &'s str,
}

impl Document {
    /// Sets one value and replaces the value of the file.
    ///
    /// The document is unchanged on error.
    pub fn set(&mut self, setting: &Setting<'_>) -> Result<(), Diagnostics> {
        let mut sources = self.sources.clone();
        let text = format!("{}{}", setting.typed, setting.value);
        let source = Source { name: Some(setting.origin.into()), text: text.into(), is_file: false };
        let source = sources.add(source);

        let (value, problems, _) = Self::read(setting.value, References::Refused);
        let behind = small(setting.typed.chars().count());
        let mut problems = problems.moved(source, behind);
        let path = segments(setting, source, &mut problems);
        if let (Some(mut value), false) = (value, problems.has_errors()) {
            move_to(&mut value, source, behind);
            let mut root = self.root.clone();
            graft(&mut root, &path, value, &mut problems);
            if !problems.has_errors() {
                (self.root, self.sources) = (root, sources);
                return Ok(());
            }
        }
        Err(problems.about(&sources))
    }

    /// Adds the sections of another file, called `name`. No section may be in both.
    ///
    /// The document is unchanged on error.
    pub fn join(&mut self, other: &Self, name: &str) -> Result<(), Diagnostics> {
        let mut sources = self.sources.clone();
        let source = sources.add(Source { name: Some(name.into()), ..other.sources.first().clone() });
        let (mut root, mut theirs) = (self.root.clone(), other.root.clone());
        move_to(&mut theirs, source, 0);
        let mut problems = Problems::default();
        match (&mut root.kind, theirs.kind) {
            (_, Kind::Null) => {}
            (Kind::Null, kind) => root = Node { place: theirs.place, kind },
            (Kind::Map(ours), Kind::Map(theirs)) => {
                for entry in theirs {
                    match ours.iter().find(|known| known.name.value == entry.name.value) {
                        Some(known) => {
                            let message = format!("`{}` is in both files", short(&entry.name.value));
                            problems
                                .error(entry.name.place, message)
                                .label("again here")
                                .related(known.name.place, "and here")
                                .help("keep it in one of them");
                        }
                        None => ours.push(entry),
                    }
                }
            }
            (Kind::Map(_), _) => {
                problems.error(theirs.place, "this file is not a map of `name: value` lines");
            }
            // Readers of the first file report its wrong type.
            _ => {}
        }
        if problems.has_errors() {
            return Err(problems.about(&sources));
        }
        (self.root, self.sources) = (root, sources);
        Ok(())
    }

    /// Removes a section, if it is present.
    pub fn remove(&mut self, section: &str) {
        if let Kind::Map(entries) = &mut self.root.kind {
            entries.retain(|entry| entry.name.value != section);
        }
    }
}

/// Returns the names of a path, each with its place in the typed text. If the path
/// was not typed as such (`TOLLGATE_LISTEN_API`), the place is the whole text.
fn segments(setting: &Setting<'_>, source: u32, problems: &mut Problems) -> Vec<Located<String>> {
    let Setting { typed, path, .. } = *setting;
    let found = typed.rfind(path).filter(|_| !path.is_empty());
    let start = small(found.map_or(0, |at| typed[..at].chars().count())) + 1;
    let whole = if found.is_some() { path } else { typed.trim_end_matches(['=', ' ']) };
    let whole = Place { source, ..Place::new(1, start, small(whole.chars().count()).max(1)) };
    let mut column = start;
    let segments: Vec<_> = path
        .split('.')
        .map(|name| {
            let width = small(name.chars().count());
            let place = Place { source, ..Place::new(1, column, width.max(1)) };
            column += width + 1;
            Located::new(name.to_owned(), if found.is_some() { place } else { whole })
        })
        .collect();
    if segments.iter().any(|it| it.value.is_empty()) || segments.len() > MAX_DEPTH {
        problems
            .error(whole, format!("`{}` is not a path to a value", short(path)))
            .label("names with dots between them")
            .help("such as listen.api, gateway.upstream or max_keys");
    }
    segments
}

/// Sets a value at the end of a path, and creates the maps on the way.
fn graft(node: &mut Node, path: &[Located<String>], value: Node, problems: &mut Problems) {
    let Some((name, rest)) = path.split_first() else {
        *node = value;
        return;
    };
    if node.kind == Kind::Null {
        *node = Node { place: name.place, kind: Kind::Map(Vec::new()) };
    }
    match &mut node.kind {
        Kind::Map(entries) => {
            let at = entries.iter().position(|entry| entry.name.value == name.value);
            let at = at.unwrap_or_else(|| {
                let value = Node { place: name.place, kind: Kind::Null };
                entries.push(Entry { name: name.clone(), value });
                entries.len() - 1
            });
            if rest.is_empty() {
                entries[at].name = name.clone();
            }
            graft(&mut entries[at].value, rest, value, problems);
        }
        Kind::List(items) => {
            let named = |item: &Node| item.get("name").and_then(Node::text) == Some(&name.value);
            let number = name.value.parse().ok().filter(|at| *at < items.len());
            match items.iter().position(named).or(number) {
                Some(at) => graft(&mut items[at], rest, value, problems),
                None => {
                    problems
                        .error(name.place, format!("the list has no item `{}`", short(&name.value)))
                        .related(node.place, "this is the list")
                        .help("an item is known by the `name` written in it, or by its number from 0");
                }
            }
        }
        Kind::Null | Kind::Scalar { .. } => {
            problems
                .error(name.place, format!("`{}` cannot be set here", short(&name.value)))
                .label(format!("{} contains no values", node.describe()))
                .related(node.place, "the value would be set in this");
        }
    }
}

/// Moves the places of a tree into a longer text. The reader bounds the depth of trees, so the
/// recursion is bounded.
fn move_to(node: &mut Node, source: u32, behind: u32) {
    node.place = node.place.moved(source, behind);
    match &mut node.kind {
        Kind::Null | Kind::Scalar { .. } => {}
        Kind::List(items) => items.iter_mut().for_each(|item| move_to(item, source, behind)),
        Kind::Map(entries) => {
            for Entry { name, value } in entries {
                name.place = name.place.moved(source, behind);
                move_to(value, source, behind);
            }
        }
    }
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
