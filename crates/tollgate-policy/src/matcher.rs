//! Finds the routes that cover a request among many thousands.
//!
//! One tree of path segments for each host pattern. A tree node has one parent,
//! so a walk visits each node at most once whatever the path looks like, and it
//! goes no deeper than the patterns do: a path of ten thousand segments costs no
//! more than one of sixty, and meets every `/**` on its way.
//!
//! Not here: methods and headers, which `match_request` looks at for the few limits left.
//!
//! Invariant: finds what trying each pattern in turn would find. Held by
//! `tests/matching.rs::the_tree_agrees_with_trying_each_pattern`.

use foldhash::HashMap;
use smallvec::SmallVec;

use crate::path;
use crate::pattern::{HostPattern, PathPattern, Segment, without_port};

/// A pattern of a limit, numbered in file order.
pub(crate) type RouteId = u32;

/// Room for what ordinary requests match.
pub(crate) type RouteIds = SmallVec<[RouteId; 16]>;

/// More labels than any name has that resolves (RFC 1035 allows 127 at most).
const MAX_LABELS: usize = 127;

#[derive(Clone, Debug, Default)]
pub(crate) struct Matcher {
    any_host: Tree,
    exact: HashMap<Box<str>, Tree>,
    below: HashMap<Box<str>, Tree>,
}

impl Matcher {
    pub(crate) fn add(&mut self, host: Option<&HostPattern>, pattern: &PathPattern, route: RouteId) {
        let tree = match host {
            None => &mut self.any_host,
            Some(HostPattern::Exact(host)) => self.exact.entry(host.clone()).or_default(),
            Some(HostPattern::Below(host)) => self.below.entry(host.clone()).or_default(),
        };
        tree.add(pattern, route);
    }

    /// Whether it matters which host a request asks for.
    pub(crate) fn asks_for_hosts(&self) -> bool {
        !(self.exact.is_empty() && self.below.is_empty())
    }

    /// All routes that cover this, in file order. Says how many nodes it looked at.
    pub(crate) fn find(&self, host: Option<&str>, normal: &str, found: &mut RouteIds) -> usize {
        let mut visited = self.any_host.find(normal, found);
        if let Some(host) = host
            && self.asks_for_hosts()
        {
            visited += self.find_by_host(host, normal, found);
        }
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        visited
    }

    fn find_by_host(&self, host: &str, normal: &str, found: &mut RouteIds) -> usize {
        let host = without_port(host.trim()).trim_end_matches('.');
        let lower: SmallVec<[u8; 64]> = host.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
        // Lower-casing ASCII keeps UTF-8 whole.
        let Ok(host) = std::str::from_utf8(&lower) else { return 0 };
        let mut visited = self.exact.get(host).map_or(0, |tree| tree.find(normal, found));
        if !self.below.is_empty() {
            let mut rest = host;
            for _ in 0..MAX_LABELS {
                let Some((_, parent)) = rest.split_once('.') else { break };
                visited += self.below.get(parent).map_or(0, |tree| tree.find(normal, found));
                rest = parent;
            }
        }
        visited
    }

    pub(crate) fn nodes(&self) -> usize {
        let hosts = self.exact.values().chain(self.below.values());
        self.any_host.nodes.len() + hosts.map(|tree| tree.nodes.len()).sum::<usize>()
    }
}

#[derive(Clone, Debug)]
struct Tree {
    nodes: Vec<TreeNode>,
}

#[derive(Clone, Debug, Default)]
struct TreeNode {
    literals: Literals,
    one: Option<u32>,
    /// Routes that end here.
    ends: Vec<RouteId>,
    /// Routes that cover everything from here on.
    tails: Vec<RouteId>,
}

/// Children by their text. Most nodes have one or none, and comparing a text is
/// a fraction of hashing it.
#[derive(Clone, Debug, Default)]
enum Literals {
    #[default]
    None,
    One(Box<str>, u32),
    Many(HashMap<Box<str>, u32>),
}

impl Literals {
    #[inline]
    fn get(&self, text: &str) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(known, child) => (**known == *text).then_some(*child),
            Self::Many(known) => known.get(text).copied(),
        }
    }

    fn get_or_insert(&mut self, text: &str, child: u32) -> u32 {
        if let Some(known) = self.get(text) {
            return known;
        }
        *self = match std::mem::take(self) {
            Self::None => Self::One(text.into(), child),
            Self::One(known, other) => {
                Self::Many([(known, other), (text.into(), child)].into_iter().collect())
            }
            Self::Many(mut known) => {
                known.insert(text.into(), child);
                Self::Many(known)
            }
        };
        child
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![TreeNode::default()] }
    }
}

impl Tree {
    fn add(&mut self, pattern: &PathPattern, route: RouteId) {
        let mut at = 0;
        for segment in &pattern.segments {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let node = &mut self.nodes[at];
            let child = match segment {
                Segment::Literal(text) => node.literals.get_or_insert(text, next),
                Segment::One(_) => *node.one.get_or_insert(next),
            };
            if child == next {
                self.nodes.push(TreeNode::default());
            }
            at = child as usize;
        }
        let node = &mut self.nodes[at];
        if pattern.tail { node.tails.push(route) } else { node.ends.push(route) }
    }

    fn find(&self, normal: &str, found: &mut RouteIds) -> usize {
        let rest = normal.strip_prefix('/').unwrap_or(normal);
        self.walk(0, (!rest.is_empty()).then_some(rest), found)
    }

    /// `rest` is what follows of the path, `None` at its end. Goes on by itself
    /// while there is one way to go, and recurses where there are two: as deep as
    /// patterns are.
    fn walk(&self, mut at: u32, mut rest: Option<&str>, found: &mut RouteIds) -> usize {
        let mut visited = 0;
        while let Some(node) = self.nodes.get(at as usize) {
            visited += 1;
            // One by one: they are nearly always none, and a bulk copy is set up for many.
            node.tails.iter().for_each(|&route| found.push(route));
            let Some(path) = rest else {
                node.ends.iter().for_each(|&route| found.push(route));
                break;
            };
            if matches!(node.literals, Literals::None) && node.one.is_none() {
                break;
            }
            // Segments are short: a plain loop beats a search that is set up for long texts.
            let (segment, next) = match path.bytes().position(|byte| byte == b'/') {
                Some(at) => (&path[..at], Some(&path[at + 1..])),
                None => (path, None),
            };
            at = match (node.literals.get(segment), node.one) {
                (None, None) => break,
                (Some(only), None) | (None, Some(only)) => only,
                (Some(literal), Some(one)) => {
                    visited += self.walk(literal, next, found);
                    one
                }
            };
            rest = next;
        }
        visited
    }
}

/// The text of segment number `index`.
pub(crate) fn segment(normal: &str, index: usize) -> Option<&str> {
    path::segments(normal).nth(index)
}
