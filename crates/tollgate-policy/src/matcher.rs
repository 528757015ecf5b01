//! Finds the routes that cover a request among many thousands.
//!
//! The matcher has one tree of path segments per host pattern. A tree node has one parent,
//! so a walk visits each node at most once for any path, and goes no deeper than the
//! patterns: a path of ten thousand segments costs no more than one of sixty, and matches
//! every `/**` on its way.
//!
//! A path that equals a pattern without parameters is not walked: its routes are known when the policy is compiled
//! (`exact_paths`).
//!
//! `match_request` checks methods and headers of the few limits that remain.
//!
//! Invariant: the matcher finds the same routes as trying each pattern in turn. Tested by
//! `tests/matching.rs::the_tree_agrees_with_trying_each_pattern`.

mod exact_paths;

use foldhash::HashMap;
use smallvec::SmallVec;

use self::exact_paths::ExactPaths;
use crate::path;
use crate::pattern::{HostPattern, PathPattern, Segment, without_port};

/// The number of a limit's pattern, in file order.
pub(crate) type RouteId = u32;

/// A buffer with room for the routes of ordinary requests.
pub(crate) type RouteIds = SmallVec<[RouteId; 16]>;

/// The maximum number of labels in a host name (RFC 1035).
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

    /// Prepares the lookup of exact paths. Called once, after the last route was added.
    pub(crate) fn index_exact_paths(&mut self) {
        let hosts = self.exact.values_mut().chain(self.below.values_mut());
        for tree in std::iter::once(&mut self.any_host).chain(hosts) {
            tree.exact_paths = ExactPaths::of(tree);
        }
    }

    /// Whether any route covers specific hosts only.
    pub(crate) fn asks_for_hosts(&self) -> bool {
        !(self.exact.is_empty() && self.below.is_empty())
    }

    /// Finds all routes for any host that cover a path, in file order. Returns the number of visited
    /// nodes.
    #[inline]
    pub(crate) fn find(&self, normal: &str, found: &mut RouteIds) -> usize {
        self.any_host.find_sorted(normal, found)
    }

    /// Finds all routes that cover a host and a path, in file order. Returns the number of visited nodes.
    #[inline(never)]
    pub(crate) fn find_with_host(&self, host: Option<&str>, normal: &str, found: &mut RouteIds) -> usize {
        let mut visited = self.any_host.find(normal, found);
        if let Some(host) = host {
            visited += self.find_by_host(host, normal, found);
        }
        sort(found);
        visited
    }

    fn find_by_host(&self, host: &str, normal: &str, found: &mut RouteIds) -> usize {
        let host = without_port(host.trim()).trim_end_matches('.');
        let lower: SmallVec<[u8; 64]> = host.bytes().map(|byte| byte.to_ascii_lowercase()).collect();
        // Lower-casing ASCII keeps UTF-8 valid.
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

#[inline]
fn sort(found: &mut RouteIds) {
    if found.len() > 1 {
        found.sort_unstable();
        found.dedup();
    }
}

#[derive(Clone, Debug)]
struct Tree {
    nodes: Vec<TreeNode>,
    exact_paths: ExactPaths,
}

#[derive(Clone, Debug, Default)]
struct TreeNode {
    literals: Literals,
    one: Option<u32>,
    /// Routes that end at this node.
    ends: Vec<RouteId>,
    /// Routes that cover every path from this node on.
    tails: Vec<RouteId>,
}

/// Children by their text. Most nodes have at most one, and comparing a text is
/// much faster than hashing it.
#[derive(Clone, Debug, Default)]
enum Literals {
    #[default]
    None,
    One(Box<[u8]>, u32),
    Many(HashMap<Box<[u8]>, u32>),
}

impl Literals {
    #[inline]
    fn get(&self, text: &[u8]) -> Option<u32> {
        match self {
            Self::None => None,
            Self::One(known, child) => (**known == *text).then_some(*child),
            Self::Many(known) => known.get(text).copied(),
        }
    }

    fn get_or_insert(&mut self, text: &[u8], child: u32) -> u32 {
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
        Self { nodes: vec![TreeNode::default()], exact_paths: ExactPaths::default() }
    }
}

impl Tree {
    fn add(&mut self, pattern: &PathPattern, route: RouteId) {
        let mut at = 0;
        for segment in &pattern.segments {
            let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            let node = &mut self.nodes[at];
            let child = match segment {
                Segment::Literal(text) => node.literals.get_or_insert(text.as_bytes(), next),
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

    /// Finds all routes that cover a path, in file order, into an empty buffer.
    #[inline]
    fn find_sorted(&self, normal: &str, found: &mut RouteIds) -> usize {
        if let Some(routes) = self.exact_paths.get(normal) {
            for &route in routes {
                found.push(route);
            }
            return 1;
        }
        let visited = self.find_by_walking(normal, found);
        sort(found);
        visited
    }

    /// Adds all routes that cover a path.
    fn find(&self, normal: &str, found: &mut RouteIds) -> usize {
        if let Some(routes) = self.exact_paths.get(normal) {
            found.extend_from_slice(routes);
            return 1;
        }
        self.find_by_walking(normal, found)
    }

    fn find_by_walking(&self, normal: &str, found: &mut RouteIds) -> usize {
        let rest = normal.strip_prefix('/').unwrap_or(normal);
        // Bytes, because slicing a text would test each end for a character boundary.
        self.walk(0, (!rest.is_empty()).then_some(rest.as_bytes()), found)
    }

    /// Walks the tree. `rest` is the remaining path, `None` at its end. Iterates
    /// while one child matches and recurses where two match, so the recursion is as deep as
    /// the patterns.
    fn walk(&self, mut at: u32, mut rest: Option<&[u8]>, found: &mut RouteIds) -> usize {
        let mut visited = 0;
        while let Some(node) = self.nodes.get(at as usize) {
            visited += 1;
            // Pushed one by one: the list is nearly always empty, and a bulk copy has setup costs.
            node.tails.iter().for_each(|&route| found.push(route));
            let Some(path) = rest else {
                node.ends.iter().for_each(|&route| found.push(route));
                break;
            };
            // Most nodes have one child: its text is compared with the path, without a search for the end of the segment.
            match (&node.literals, node.one) {
                (Literals::None, None) => break,
                (Literals::One(text, child), None) => {
                    let Some(next) = after_segment(path, text) else { break };
                    (at, rest) = (*child, next.get(1..));
                    continue;
                }
                _ => {}
            }
            // Segments are short: a plain loop beats a search that is optimized for long texts.
            let (segment, next) = match path.iter().position(|&byte| byte == b'/') {
                Some(at) => (&path[..at], path.get(at + 1..)),
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

/// Returns the path after its first segment, if that segment is `text`: nothing, or a slash and the next segments.
#[inline]
fn after_segment<'p>(path: &'p [u8], text: &[u8]) -> Option<&'p [u8]> {
    let (segment, next) = path.split_at_checked(text.len())?;
    // Segments are short: a plain loop beats a call that is optimized for long texts.
    let is_equal = segment.iter().zip(text).all(|(one, other)| one == other);
    (is_equal && matches!(next, [] | [b'/', ..])).then_some(next)
}

/// Returns the text of segment number `index`.
pub(crate) fn segment(normal: &str, index: usize) -> Option<&str> {
    path::segments(normal).nth(index)
}
