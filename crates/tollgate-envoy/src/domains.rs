//! Finds the limit of a descriptor.
//!
//! The search proceeds entry by entry, from left to right: the descriptor with exactly this
//! value, else the first in file order whose pattern fits, else the one with the key alone. The
//! limit is that of the last entry. A descriptor that is longer than the tree, or that ends
//! before a limit, has no limit.
//!
//! Key and value are looked up separately, so `a_b` with `c` is never confused with `a` and
//! `b_c`, as happens when they are joined by `_`. The search allocates nothing.

use std::ops::Deref;
use std::sync::Arc;

use foldhash::HashMap;
use tollgate::{Limit, Policy};

use crate::compile::CompiledDomains;
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
    /// The part and the root of each domain.
    roots: HashMap<Box<str>, (usize, usize)>,
    parts: Vec<Part>,
}

/// Domains that were compiled together.
#[derive(Clone, Debug)]
struct Part {
    compiled: Arc<CompiledDomains>,
    /// The place of the first limit in the policy.
    first: usize,
}

/// A leaf, with the place of its limit in a policy.
#[derive(Clone, Copy, Debug)]
pub struct PlacedLeaf<'p> {
    leaf: &'p Leaf,
    first: usize,
}

impl<'p> PlacedLeaf<'p> {
    /// Returns the leaf, which several policies may share.
    pub const fn leaf(self) -> &'p Leaf {
        self.leaf
    }

    /// Returns the index in the limits of the policy; `None` if unlimited.
    pub fn place(self) -> Option<usize> {
        self.leaf.index().map(|index| self.first + index)
    }

    /// Returns the limit of the policy that the leaf was found in; `None` if unlimited.
    pub fn limit(self, policy: &Policy) -> Option<&Limit> {
        policy.limits().get(self.place()?)
    }
}

impl Deref for PlacedLeaf<'_> {
    type Target = Leaf;

    fn deref(&self) -> &Leaf {
        self.leaf
    }
}

/// The result of looking up a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorMatch<'p> {
    /// No file defines this domain.
    UnknownDomain,
    /// The domain has no limit for the descriptor.
    NoLimit,
    /// The descriptor passes without being counted.
    Unlimited(PlacedLeaf<'p>),
    /// The limit that applies.
    Limited(PlacedLeaf<'p>),
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
    pub fn leaves(&self) -> impl Iterator<Item = PlacedLeaf<'_>> {
        self.parts
            .iter()
            .flat_map(|part| part.compiled.tree.leaves().map(|leaf| PlacedLeaf { leaf, first: part.first }))
    }

    /// Looks up a descriptor. Entries are keys with their values, in the order in which they arrived.
    pub fn find<'p>(&'p self, domain: &str, entries: &[(&str, &str)]) -> DescriptorMatch<'p> {
        let Some(&(part, root)) = self.roots.get(domain) else { return DescriptorMatch::UnknownDomain };
        let Part { compiled, first } = &self.parts[part];
        match compiled.tree.find(root, entries) {
            None => DescriptorMatch::NoLimit,
            Some(leaf) => {
                let placed = PlacedLeaf { leaf, first: *first };
                if leaf.unit().is_none() {
                    DescriptorMatch::Unlimited(placed)
                } else {
                    DescriptorMatch::Limited(placed)
                }
            }
        }
    }

    /// Adds domains whose limits are in the policy from the place `first` on.
    pub(crate) fn add(&mut self, compiled: &Arc<CompiledDomains>, first: usize) {
        let part = self.parts.len();
        let roots = compiled.domains.iter().zip(&compiled.roots);
        self.roots.extend(roots.map(|(domain, &root)| (domain.name.as_str().into(), (part, root))));
        self.parts.push(Part { compiled: Arc::clone(compiled), first });
    }
}
