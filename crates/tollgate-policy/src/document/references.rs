//! Anchors and aliases (`&name`, `*name`), for files of formats that have them.
//!
//! An alias becomes a copy of what it stands for. The copy begins where the alias
//! stands, and what is inside keeps the places of the text that was copied: a mistake in
//! it is shown where it can be put right.
//!
//! Invariant: ten lines do not unfold into a billion. Copies have a bound on their values,
//! on their text and on how deep they nest, and what is kept for an anchor counts as one.
//! Held by `tests/aliases.rs`.

use std::collections::HashMap;

use super::{Entry, Kind, Node};
use crate::diagnostic::{Place, Problems};

/// What all copies together may have: a file that is written out by hand has less.
const MAX_COPIED_NODES: usize = 1_000_000;
const MAX_COPIED_BYTES: usize = 32 << 20;

/// Whether a file may refer to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum References {
    /// Then each mistake has one place.
    Refused,
    /// And `<<` in a map stands for the lines of another.
    Expanded,
}

/// What stands behind the anchors of a file.
#[derive(Debug)]
pub(super) struct Anchors {
    known: HashMap<usize, (Node, Size)>,
    copied: Size,
}

/// How large a tree is.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    levels: usize,
}

impl Size {
    /// As deep as the tree, which is bounded.
    fn of(node: &Node) -> Self {
        let mut size = Self { nodes: 1, bytes: 0, levels: 0 };
        match &node.kind {
            Kind::Null => {}
            Kind::Scalar { text, .. } => size.bytes = text.len(),
            Kind::List(items) => items.iter().for_each(|it| size.add_below(Self::of(it))),
            Kind::Map(entries) => entries.iter().for_each(|Entry { name, value }| {
                size.nodes += 1;
                size.bytes += name.value.len();
                size.add_below(Self::of(value));
            }),
        }
        size.levels += usize::from(matches!(node.kind, Kind::List(_) | Kind::Map(_)));
        size
    }

    fn add_below(&mut self, other: Self) {
        self.nodes += other.nodes;
        self.bytes += other.bytes;
        self.levels = self.levels.max(other.levels);
    }
}

impl Anchors {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), copied: Size::default() }
    }

    /// Keeps what stands behind an anchor; `None` when it is too much.
    pub(super) fn keep(&mut self, anchor: usize, node: &Node, problems: &mut Problems) -> Option<()> {
        let size = Size::of(node);
        self.count(size, node.place, problems)?;
        self.known.insert(anchor, (node.clone(), size));
        Some(())
    }

    /// A copy for an alias at `place`, which may have so many levels.
    pub(super) fn copy(
        &mut self,
        anchor: usize,
        place: Place,
        levels: usize,
        problems: &mut Problems,
    ) -> Option<Node> {
        let Some((_, size)) = self.known.get(&anchor) else {
            problems
                .error(place, "this alias stands inside of what it stands for")
                .label("it would never end")
                .help("a value that begins with `*` or `&` needs quotes: \"*\"");
            return None;
        };
        let size = *size;
        if size.levels > levels {
            problems.error(place, "with this alias, lists and maps are nested too deep").label("too deep");
            return None;
        }
        self.count(size, place, problems)?;
        let (node, _) = self.known.get(&anchor)?;
        Some(Node { place, kind: node.kind.clone() })
    }

    fn count(&mut self, size: Size, place: Place, problems: &mut Problems) -> Option<()> {
        self.copied.nodes += size.nodes;
        self.copied.bytes += size.bytes;
        if self.copied.nodes > MAX_COPIED_NODES || self.copied.bytes > MAX_COPIED_BYTES {
            problems
                .error(
                    place,
                    format!(
                        "written out, the aliases of this file are more than {MAX_COPIED_NODES} values or {} MiB",
                        MAX_COPIED_BYTES >> 20
                    ),
                )
                .label("from here on it is too much")
                .help("aliases of aliases multiply: write out the innermost, or split the file");
            return None;
        }
        Some(())
    }
}

/// What a map takes over with `<<`: the lines of one map, or of several.
pub(super) fn merged(node: Node, problems: &mut Problems) -> Option<Vec<Entry>> {
    let maps = match node.kind {
        Kind::List(items) => items,
        kind => vec![Node { place: node.place, kind }],
    };
    let mut all = Vec::new();
    for map in maps {
        let Kind::Map(entries) = map.kind else {
            problems
                .error(map.place, format!("`<<` takes over a map, not {}", map.describe()))
                .label("an alias of a map, or a list of such")
                .help("as a name, `<<` needs quotes");
            return None;
        };
        all.extend(entries);
    }
    Some(all)
}
