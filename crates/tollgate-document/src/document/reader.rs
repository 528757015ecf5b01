//! Builds the tree from YAML events.
//!
//! Invariant: the size of the tree is bounded by the size of the text. Only aliases copy nodes
//! ([`references`](super::references) bounds those), nothing
//! nests deeper than [`MAX_DEPTH`], and nothing here recurses. Tested by `tests/hostile.rs` of `tollgate-policy`.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span as Marks};

use super::references::{Anchors, References, merged};
use super::{Entry, Kind, Node};
use crate::diagnostic::{Located, Place, Problems};

pub(super) const MAX_FILE_BYTES: usize = 8 << 20;
const MAX_DEPTH: usize = 64;
/// The maximum number of nodes. A node takes about a hundred bytes: a file of brackets must not use
/// gigabytes of memory.
const MAX_NODES: usize = 1_000_000;

/// A list or map that is not complete.
struct OpenNode {
    place: Place,
    /// The id of the anchor; zero for none.
    anchor: usize,
    kind: CollectionKind,
}

enum CollectionKind {
    List(Vec<Node>),
    Map(Map),
}

/// A map that is not complete.
#[derive(Default)]
struct Map {
    entries: Vec<Entry>,
    names: HashMap<String, Place>,
    name: Option<Located<String>>,
    /// Whether `name` is `<<` and unquoted, which merges another map.
    merges: bool,
    /// Merged entries. They apply where the map has no entry of its own, the first one of a name wins.
    merged: Vec<Entry>,
}

impl Map {
    fn finish(mut self) -> Kind {
        for entry in self.merged {
            if !self.names.contains_key(&entry.name.value) {
                self.names.insert(entry.name.value.clone(), entry.name.place);
                self.entries.push(entry);
            }
        }
        Kind::Map(self.entries)
    }
}

/// Reads the tree. Returns `None` if the text cannot be parsed.
pub(super) fn read(text: &str, references: References, problems: &mut Problems) -> Option<Node> {
    if text.len() > MAX_FILE_BYTES {
        problems
            .error(START, format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20))
            .help("put addresses and keys that change often behind the API instead of into the file");
        return None;
    }
    if has_unreadable_characters(text, problems) {
        return None;
    }
    let anchors = (references == References::Expanded).then(Anchors::new);
    let mut builder = Builder { open: Vec::new(), root: None, nodes: 0, anchors, problems };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let done = match event {
            Ok((event, marks)) => builder.take(event, marks),
            Err(error) => {
                super::syntax::explain(&error, text, builder.problems);
                None
            }
        };
        done?;
    }
    Some(builder.root.unwrap_or(Node { place: START, kind: Kind::Null }))
}

const START: Place = Place::new(1, 1, 1);

struct Builder<'p> {
    open: Vec<OpenNode>,
    root: Option<Node>,
    nodes: usize,
    /// `None` if references are refused.
    anchors: Option<Anchors>,
    problems: &'p mut Problems,
}

impl Builder<'_> {
    /// Processes an event. Returns `None` to stop reading.
    fn take(&mut self, event: Event<'_>, marks: Marks) -> Option<()> {
        let place = place(marks);
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_references(place, anchor, tag.is_some())?;
                let quoted = style != ScalarStyle::Plain;
                let null = !quoted && matches!(&*text, "" | "~" | "null");
                let kind = if null { Kind::Null } else { Kind::Scalar { text: text.into_owned(), quoted } };
                self.finish(Node { place, kind }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                self.refuse_references(place, anchor, tag.is_some())?;
                self.begin(place, anchor, CollectionKind::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.refuse_references(place, anchor, tag.is_some())?;
                self.begin(place, anchor, CollectionKind::Map(Map::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(OpenNode { place, anchor, kind }) = self.open.pop() else { return Some(()) };
                let kind = match kind {
                    CollectionKind::List(items) => Kind::List(items),
                    CollectionKind::Map(map) => map.finish(),
                };
                self.finish(Node { place, kind }, anchor)
            }
            Event::Alias(anchor) => {
                self.refuse_references(place, anchor, false)?;
                let levels = MAX_DEPTH.saturating_sub(self.open.len());
                let copy = self.anchors.as_mut()?.copy(anchor, place, levels, self.problems)?;
                self.finish(copy, 0)
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                self.problems
                    .error(place, "a second document begins here")
                    .label("one file holds one policy")
                    .help("remove the `---` and the text after it");
                None
            }
            _ => Some(()),
        }
    }

    fn refuse_references(&mut self, place: Place, anchor: usize, tagged: bool) -> Option<()> {
        if anchor > 0 && self.anchors.is_none() {
            self.problems
                .error(place, "anchors and aliases (`&name`, `*name`) are not part of the format")
                .label("write the value out here")
                .help("`endpoint`, `method`, `by` and `windows` take lists, so one limit can cover several cases")
                .help("a value that begins with `*` or `&` needs quotes: \"*\"");
            return None;
        }
        if tagged {
            self.problems
                .error(place, "tags (`!name`) are not part of the format")
                .label("remove the tag")
                .help("a value that begins with `!` needs quotes");
            return None;
        }
        Some(())
    }

    fn begin(&mut self, place: Place, anchor: usize, kind: CollectionKind) -> Option<()> {
        if self.open.len() >= MAX_DEPTH {
            self.problems
                .error(place, format!("lists and maps are nested more than {MAX_DEPTH} deep"))
                .label("too deep");
            return None;
        }
        self.open.push(OpenNode { place, anchor, kind });
        Some(())
    }

    /// Adds a complete node to its parent.
    fn finish(&mut self, node: Node, anchor: usize) -> Option<()> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.problems
                .error(node.place, format!("the file holds more than {MAX_NODES} values"))
                .label("the maximum is exceeded here");
            return None;
        }
        let expands = self.anchors.is_some();
        if let Some(anchors) = self.anchors.as_mut().filter(|_| anchor > 0) {
            anchors.keep(anchor, &node, self.problems)?;
        }
        let Some(OpenNode { kind, .. }) = self.open.last_mut() else {
            self.root = Some(node);
            return Some(());
        };
        match kind {
            CollectionKind::List(items) => items.push(node),
            CollectionKind::Map(map) => match map.name.take() {
                Some(_) if map.merges => {
                    map.merges = false;
                    map.merged.extend(merged(node, self.problems)?);
                }
                Some(name) => {
                    // The first of two duplicates stays, so that reading can continue.
                    if let Some(first) = map.names.get(&name.value) {
                        self.problems
                            .error(
                                name.place,
                                format!("`{}` is written twice", super::node::short(&name.value)),
                            )
                            .label("again here")
                            .related(*first, "first here")
                            .help("keep one of them");
                    } else {
                        map.names.insert(name.value.clone(), name.place);
                        map.entries.push(Entry { name, value: node });
                    }
                }
                None => match node.kind {
                    Kind::Scalar { text, quoted } => {
                        map.merges = expands && !quoted && text == "<<";
                        map.name = Some(Located::new(text, node.place));
                    }
                    Kind::Null => map.name = Some(Located::new("null".into(), node.place)),
                    Kind::List(_) | Kind::Map(_) => {
                        self.problems
                            .error(node.place, format!("{} cannot be a name", node.describe()))
                            .label("a name is a single word")
                            .help("a value that begins with `{` or `[` needs quotes");
                        return None;
                    }
                },
            },
        }
        Some(())
    }
}

pub(super) fn place(marks: Marks) -> Place {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (start, end) = (marks.start, marks.end);
    let one_line = start.line() == end.line() && end.col() > start.col();
    let width = if one_line { small(end.col() - start.col()) } else { 1 };
    Place::new(small(start.line().max(1)), small(start.col()).saturating_add(1), width)
}

/// Reports tabs in indentation, and characters that YAML does not allow. The scanner treats
/// a NUL as the end of the file, which would silently drop all limits after it.
fn has_unreadable_characters(text: &str, problems: &mut Problems) -> bool {
    let mut found = 0;
    let (mut line, mut column, mut indenting) = (1, 1, true);
    let mut last = ' ';
    for char in text.chars() {
        let crlf = last == '\r' && char == '\n';
        last = char;
        let place = Place::new(line, column, 1);
        match char {
            '\n' | '\r' => {
                line += u32::from(!crlf);
                (column, indenting) = (1, true);
                continue;
            }
            '\t' if indenting => {
                found += 1;
                indenting = false;
                if found <= 3 {
                    problems
                        .error(place, "a tab cannot indent")
                        .label("this is a tab")
                        .help("indent with spaces: two for each level");
                }
            }
            ' ' => {}
            _ if char.is_control() && char != '\t' && char != '\u{85}' => {
                found += 1;
                indenting = false;
                if found <= 3 {
                    problems
                        .error(place, format!("the control character U+{:04X} is not text", u32::from(char)))
                        .label("remove it")
                        .help("inside double quotes it can be written as an escape, such as \"\\x07\"");
                }
            }
            _ => indenting = false,
        }
        column = column.saturating_add(1);
    }
    found > 0
}
