//! The tree of descriptors of one or several domains.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt as _};
use tollgate::policy::Glob;

use crate::leaf::Leaf;

/// The nodes of a tree. Nodes are numbered in file order.
#[derive(Clone, Debug, Default)]
pub(crate) struct DescriptorTree {
    nodes: Vec<Node>,
}

/// A node of the tree.
#[derive(Clone, Debug, Default)]
struct Node {
    /// The values by the key of the next entry.
    words: HashMap<Arc<str>, Values>,
    leaf: Option<Leaf>,
}

/// The children by the value of one key.
#[derive(Clone, Debug, Default)]
struct Values {
    /// Exact values. Patterns are included, because a proxy may send a pattern literally.
    exact: HashMap<Arc<str>, usize>,
    /// Patterns by their literal prefix, so that a key with thousands of them is searched fast.
    patterns: HashMap<Box<str>, Vec<(Glob, usize)>>,
    /// The distinct lengths of those prefixes, in bytes.
    lengths: Vec<usize>,
    any: Option<usize>,
}

impl Values {
    fn find(&self, value: &str) -> Option<usize> {
        self.exact.get(value).copied().or_else(|| self.first_pattern(value)).or(self.any)
    }

    /// Returns the first pattern that fits. Nodes are numbered in file order, so it has the lowest number.
    fn first_pattern(&self, value: &str) -> Option<usize> {
        let first = |length: &usize| {
            let alike = self.patterns.get(value.get(..*length)?)?;
            alike.iter().find(|(pattern, _)| pattern.fits(value)).map(|(_, node)| *node)
        };
        self.lengths.iter().filter_map(first).min()
    }

    fn add(&mut self, value: Option<&Arc<str>>, node: usize) {
        let Some(value) = value else {
            self.any = Some(node);
            return;
        };
        self.exact.insert(Arc::clone(value), node);
        if let Some(pattern) = Glob::parse(value) {
            let begins = pattern.prefix();
            if !self.lengths.contains(&begins.len()) {
                self.lengths.push(begins.len());
            }
            self.patterns.entry(begins.into()).or_default().push((pattern, node));
        }
    }
}

impl DescriptorTree {
    /// Adds the root of a domain.
    pub(crate) fn add_root(&mut self) -> usize {
        self.push(None)
    }

    /// Adds a child for entries with this key, and with this value if one is given.
    pub(crate) fn add(
        &mut self,
        from: usize,
        key: &Arc<str>,
        value: Option<&Arc<str>>,
        leaf: Option<Leaf>,
    ) -> usize {
        let node = self.push(leaf);
        self.nodes[from].words.entry(Arc::clone(key)).or_default().add(value, node);
        node
    }

    fn push(&mut self, leaf: Option<Leaf>) -> usize {
        self.nodes.push(Node { words: HashMap::new(), leaf });
        self.nodes.len() - 1
    }

    /// Returns the leaf at the end of a path from a root. `None` if there is no such path, or no limit there.
    pub(crate) fn find(&self, root: usize, entries: &[(&str, &str)]) -> Option<&Leaf> {
        let mut node = &self.nodes[root];
        for (key, value) in entries {
            let next = node.words.get(*key).and_then(|values| values.find(value))?;
            node = &self.nodes[next];
        }
        node.leaf.as_ref()
    }

    /// Returns all limits in file order.
    pub(crate) fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.nodes.iter().filter_map(|node| node.leaf.as_ref())
    }
}
