//! Anchors and aliases (`&name`, `*name`), for files of formats that have them.
//!
//! An alias becomes a copy of its target. The copy begins at the place of the alias, and its
//! content keeps the places of the original text, so that a mistake is shown where it can be
//! fixed.
//!
//! Invariant: ten lines do not expand into a billion. The nodes, the text and the depth of all
//! copies are bounded, and a node that is kept for an anchor counts as one.
//! Tested by `tests/aliases.rs`.

use std::collections::HashMap;

use super::{Entry, Kind, Node};
use crate::diagnostic::{Place, Problems};

/// The maximum number of nodes in all copies together. Files written by hand have fewer.
const MAX_COPIED_NODES: usize = 1_000_000;
const MAX_COPIED_BYTES: usize = 32 << 20;

/// Whether a file may contain aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum References {
    /// Aliases are refused, so that each mistake has one place.
    Refused,
    /// Aliases are expanded, and `<<` in a map merges the entries of another map.
    Expanded,
}

/// The targets of the anchors of a file.
#[derive(Debug)]
pub(super) struct Anchors {
    known: HashMap<usize, (Node, Size)>,
    copied: Size,
}

/// The size of a tree.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    levels: usize,
}

impl Size {
    /// Recurses as deep as the tree, whose depth is bounded.
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

    /// Keeps the target of an anchor. Returns `None` if it is too large.
    pub(super) fn keep(&mut self, anchor: usize, node: &Node, problems: &mut Problems) -> Option<()> {
        let size = Size::of(node);
        self.count(size, node.place, problems)?;
        self.known.insert(anchor, (node.clone(), size));
        Some(())
    }

    /// Returns a copy for an alias at `place`, with a bound on its depth.
    pub(super) fn copy(
        &mut self,
        anchor: usize,
        place: Place,
        levels: usize,
        problems: &mut Problems,
    ) -> Option<Node> {
        let Some((_, size)) = self.known.get(&anchor) else {
            problems
                .error(place, "this alias is inside its own target")
                .label("its expansion would never end")
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
                        "the expanded aliases of this file are more than {MAX_COPIED_NODES} values or {} MiB",
                        MAX_COPIED_BYTES >> 20
                    ),
                )
                .label("the maximum is exceeded here")
                .help("aliases of aliases multiply: write out the innermost, or split the file");
            return None;
        }
        Some(())
    }
}

/// Returns the entries that a map merges with `<<`, from one map or several.
pub(super) fn merged(node: Node, problems: &mut Problems) -> Option<Vec<Entry>> {
    let maps = match node.kind {
        Kind::List(items) => items,
        kind => vec![Node { place: node.place, kind }],
    };
    let mut all = Vec::new();
    for map in maps {
        let Kind::Map(entries) = map.kind else {
            problems
                .error(map.place, format!("`<<` merges a map, not {}", map.describe()))
                .label("an alias of a map, or a list of such aliases")
                .help("as a name, `<<` needs quotes");
            return None;
        };
        all.extend(entries);
    }
    Some(all)
}
