//! Finds the limit of a descriptor.
//!
//! The search proceeds entry by entry, from left to right: the descriptor with exactly this
//! value, else the first in file order whose pattern fits, else the one with the key alone. The
//! limit is that of the last entry. A descriptor that is longer than the tree, or that ends
//! before a limit, has no limit.
//!
//! Key and value are looked up separately, so `a_b` with `c` is never confused with `a` and
//! `b_c`, as happens when they are joined by `_`. The search allocates nothing.

use foldhash::{HashMap, HashMapExt as _};
use tollgate::Policy;
use tollgate::policy::Glob;

use crate::leaf::Leaf;

/// The domains of Envoy's files, attached to the policy that contains their limits.
///
/// ```
/// # use tollgate::Policy;
/// # use tollgate_envoy::{Domains, EnvoyConfig, EnvoyFile, DescriptorMatch};
/// let text = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 9}}]";
/// let file = EnvoyFile { name: "shop.yaml".into(), text: text.into() };
/// let policy = EnvoyConfig::read(&[file], false).unwrap().apply(Policy::default())?;
/// let domains = Domains::of(&policy).unwrap();
/// let DescriptorMatch::Limited(leaf) = domains.find("shop", &[("user", "ann")]) else { panic!() };
/// assert_eq!(leaf.limit(&policy).unwrap().name(), "shop.user");
/// assert_eq!(leaf.key(&[("user", "ann")]).display().to_string(), "user=ann");
/// assert!(matches!(domains.find("shop", &[("plan", "gold")]), DescriptorMatch::NoLimit));
/// assert!(matches!(domains.find("house", &[("user", "ann")]), DescriptorMatch::UnknownDomain));
/// # Ok::<(), tollgate_envoy::ApplyError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Domains {
    roots: HashMap<Box<str>, usize>,
    nodes: Vec<Node>,
}

/// The result of looking up a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorMatch<'p> {
    /// No file defines this domain.
    UnknownDomain,
    /// The domain has no limit for the descriptor.
    NoLimit,
    /// The descriptor passes without being counted.
    Unlimited(&'p Leaf),
    /// The limit that applies.
    Limited(&'p Leaf),
}

/// A node of the tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// The values by the key of the next entry.
    words: HashMap<Box<str>, Values>,
    leaf: Option<Leaf>,
}

/// The children by the value of one key.
#[derive(Clone, Debug, Default)]
struct Values {
    /// Exact values. Patterns are included, because a proxy may send a pattern literally.
    exact: HashMap<Box<str>, usize>,
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

    fn add(&mut self, value: Option<&str>, node: usize) {
        let Some(value) = value else {
            self.any = Some(node);
            return;
        };
        self.exact.insert(value.into(), node);
        if let Some(pattern) = Glob::parse(value) {
            let begins = pattern.prefix();
            if !self.lengths.contains(&begins.len()) {
                self.lengths.push(begins.len());
            }
            self.patterns.entry(begins.into()).or_default().push((pattern, node));
        }
    }
}

impl Domains {
    /// Returns the domains that were applied to a policy.
    pub fn of(policy: &Policy) -> Option<&Self> {
        policy.extension()
    }

    /// Whether a file defines this domain.
    pub fn knows(&self, domain: &str) -> bool {
        self.roots.contains_key(domain)
    }

    /// Returns the names of the domains in unspecified order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.roots.keys().map(|name| &**name)
    }

    /// Returns all limits in file order.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.nodes.iter().filter_map(|node| node.leaf.as_ref())
    }

    /// Looks up a descriptor. Entries are keys with their values, in the order in which they arrived.
    pub fn find<'p>(&'p self, domain: &str, entries: &[(&str, &str)]) -> DescriptorMatch<'p> {
        let Some(&root) = self.roots.get(domain) else { return DescriptorMatch::UnknownDomain };
        let mut node = &self.nodes[root];
        for (key, value) in entries {
            match node.words.get(*key).and_then(|values| values.find(value)) {
                Some(next) => node = &self.nodes[next],
                None => return DescriptorMatch::NoLimit,
            }
        }
        match &node.leaf {
            None => DescriptorMatch::NoLimit,
            Some(leaf) if leaf.unit().is_none() => DescriptorMatch::Unlimited(leaf),
            Some(leaf) => DescriptorMatch::Limited(leaf),
        }
    }

    /// Returns the root of a domain, which is created if it is new.
    pub(crate) fn root(&mut self, domain: &str) -> usize {
        if let Some(&root) = self.roots.get(domain) {
            return root;
        }
        let root = self.push(None);
        self.roots.insert(domain.into(), root);
        root
    }

    /// Adds a child for entries with this key, and with this value if one is given.
    pub(crate) fn add(&mut self, from: usize, key: &str, value: Option<&str>, leaf: Option<Leaf>) -> usize {
        let node = self.push(leaf);
        self.nodes[from].words.entry(key.into()).or_default().add(value, node);
        node
    }

    fn push(&mut self, leaf: Option<Leaf>) -> usize {
        self.nodes.push(Node { words: HashMap::new(), leaf });
        self.nodes.len() - 1
    }
}
