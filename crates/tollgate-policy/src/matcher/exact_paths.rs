//! The routes of paths that equal a pattern without parameters.
//!
//! Most endpoints of a policy are such patterns. A lookup of the whole path takes one hash and one comparison, whatever
//! the number of its segments; a walk reads a node for each of them, and a large tree has its nodes all over memory.
//!
//! Invariant: the routes of a path are those that a walk of the tree finds, with those of wildcards. They are found by
//! such a walk when the policy is compiled. Tested by `tests/matching.rs::the_tree_agrees_with_trying_each_pattern`.

use foldhash::HashMap;
use smallvec::SmallVec;

use super::{Literals, RouteId, RouteIds, Tree, sort};

/// The maximum number of routes that are kept for a path. A path with more is walked, so that wildcards and exact paths do
/// not multiply.
const MAX_ROUTES: usize = 16;

/// The routes of exact paths, in file order.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactPaths(HashMap<Box<[u8]>, SmallVec<[RouteId; 4]>>);

impl ExactPaths {
    /// Finds the routes of every path that equals a pattern of the tree.
    pub(super) fn of(tree: &Tree) -> Self {
        let mut exact = Self::default();
        // The nodes that are left to visit, with their paths. A stack, because a tree is as deep as its patterns.
        let mut left = vec![(0, Vec::new())];
        while let Some((at, path)) = left.pop() {
            let Some(node) = tree.nodes.get(at as usize) else { continue };
            let mut visit = |text: &[u8], child| left.push((child, [&path, &b"/"[..], text].concat()));
            match &node.literals {
                Literals::None => {}
                Literals::One(text, child) => visit(text, *child),
                Literals::Many(children) => children.iter().for_each(|(text, child)| visit(text, *child)),
            }
            if !node.ends.is_empty() {
                exact.add(tree, if path.is_empty() { vec![b'/'] } else { path });
            }
        }
        exact
    }

    fn add(&mut self, tree: &Tree, path: Vec<u8>) {
        let Ok(normal) = std::str::from_utf8(&path) else { return };
        let mut found = RouteIds::new();
        tree.find_by_walking(normal, &mut found);
        sort(&mut found);
        if found.len() <= MAX_ROUTES {
            self.0.insert(path.into(), SmallVec::from_slice(&found));
        }
    }

    /// Returns the routes that cover a path, if it equals a pattern.
    #[inline]
    pub(super) fn get(&self, normal: &str) -> Option<&[RouteId]> {
        self.0.get(normal.as_bytes()).map(|routes| &routes[..])
    }
}
