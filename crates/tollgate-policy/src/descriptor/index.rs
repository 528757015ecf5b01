//! Finds the limits that cover a descriptor among many thousands.
//!
//! The index has one tree per domain, with one level per entry. From a node, the key of the next
//! entry leads to the values that patterns name: exact values, any value, and values with
//! wildcards, which are indexed by their literal prefix. A node has one parent, so a walk visits
//! each node at most once and goes no deeper than the patterns: a descriptor of ten thousand
//! entries costs no more than one of sixteen.
//!
//! Invariant: the index finds the same limits as trying each pattern in turn. Tested by
//! `tests/descriptors.rs::the_index_agrees_with_trying_each_pattern`.

use foldhash::HashMap;
use smallvec::SmallVec;

use super::glob::Glob;
use super::{Descriptor, DescriptorPattern, ValuePattern};

/// Indices of limits, in file order.
pub(crate) type LimitIndices = SmallVec<[u32; 8]>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    any_domain: Tree,
    domains: HashMap<Box<str>, Tree>,
}

impl Index {
    pub(crate) fn add(&mut self, domains: &[Box<str>], pattern: &DescriptorPattern, limit: u32) {
        if domains.is_empty() {
            self.any_domain.add(pattern, limit);
        }
        for domain in domains {
            self.domains.entry(domain.clone()).or_default().add(pattern, limit);
        }
    }

    /// Returns the limits that cover a descriptor, in file order.
    pub(crate) fn find(&self, descriptor: &Descriptor<'_>) -> LimitIndices {
        let mut found = LimitIndices::new();
        self.any_domain.walk(0, descriptor.entries, &mut found);
        if let Some(tree) = self.domains.get(descriptor.domain) {
            tree.walk(0, descriptor.entries, &mut found);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[derive(Clone, Debug)]
struct Tree {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug, Default)]
struct Node {
    /// The limits whose patterns end at this node.
    ends: Vec<u32>,
    /// The children by the key of the next entry.
    next: HashMap<Box<str>, Values>,
}

/// The children by the value of an entry.
#[derive(Clone, Debug, Default)]
struct Values {
    any: Option<u32>,
    exact: HashMap<Box<str>, u32>,
    /// Wildcard children by their literal prefix.
    like: HashMap<Box<str>, HashMap<Glob, u32>>,
    /// The distinct lengths of those prefixes, in bytes.
    lengths: Vec<usize>,
}

impl Values {
    fn get_or_insert(&mut self, value: &ValuePattern, next: u32) -> u32 {
        match value {
            ValuePattern::Any => *self.any.get_or_insert(next),
            ValuePattern::Exact(value) => *self.exact.entry(value.clone()).or_insert(next),
            ValuePattern::Like(glob) => {
                let prefix = glob.prefix();
                if !self.lengths.contains(&prefix.len()) {
                    self.lengths.push(prefix.len());
                }
                *self.like.entry(prefix.into()).or_default().entry(glob.clone()).or_insert(next)
            }
        }
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl Tree {
    fn add(&mut self, pattern: &DescriptorPattern, limit: u32) {
        let mut at = 0;
        for entry in pattern.entries() {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let values = self.nodes[at].next.entry(entry.key.clone()).or_default();
            let child = values.get_or_insert(&entry.value, next);
            if child == next {
                self.nodes.push(Node::default());
            }
            at = child as usize;
        }
        self.nodes[at].ends.push(limit);
    }

    /// Recurses as deep as patterns have entries.
    fn walk(&self, at: u32, rest: &[(&str, &str)], found: &mut LimitIndices) {
        let Some(node) = self.nodes.get(at as usize) else { return };
        let Some(((key, value), rest)) = rest.split_first() else {
            found.extend_from_slice(&node.ends);
            return;
        };
        let Some(values) = node.next.get(*key) else { return };
        if let Some(any) = values.any {
            self.walk(any, rest, found);
        }
        if let Some(exact) = values.exact.get(*value) {
            self.walk(*exact, rest, found);
        }
        for &length in &values.lengths {
            let known = value.get(..length).and_then(|prefix| values.like.get(prefix));
            for (_, next) in known.into_iter().flatten().filter(|(glob, _)| glob.fits(value)) {
                self.walk(*next, rest, found);
            }
        }
    }
}
