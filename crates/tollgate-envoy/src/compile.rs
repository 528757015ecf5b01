//! Compiles domains: the tree that finds the limit of a descriptor, and the limits for a policy.
//!
//! Domains are compiled apart, so that a change of one domain leaves the others as they are. The name of a
//! limit must be unique in its policy, and two domains may want the same name (`a` with `b.c`, `a.b` with `c`):
//! such domains are compiled together.

use std::collections::HashSet;
use std::sync::Arc;

use tollgate::policy::{EnvoyMatch, LimitGroup};
use tollgate::{BuildError, FixedWindow, KeySource, LimitBuilder, Mode, Quota, QuotaError, Window};

use crate::config::Domain;
use crate::file_format::{Allowance, Descriptor};
use crate::leaf::{Leaf, Step};
use crate::name::{self, NameCandidate};
use crate::tree::DescriptorTree;
use crate::unit::Unit;

/// An error that prevents valid files from being applied. No file that can be written causes one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The policy rejects a limit.
    #[error(transparent)]
    Limit(#[from] BuildError),
    /// The quota exceeds the range of the counters or of the clock.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

/// Domains that were compiled together.
#[derive(Debug)]
pub(crate) struct CompiledDomains {
    pub(crate) domains: Vec<Arc<Domain>>,
    /// The names that other limits have.
    pub(crate) taken: Vec<Box<str>>,
    pub(crate) tree: DescriptorTree,
    /// The roots of the domains, in their order.
    pub(crate) roots: Vec<usize>,
    pub(crate) limits: LimitGroup,
}

impl CompiledDomains {
    /// Compiles domains. The names of their limits are unique, and none of them is in `taken`.
    pub(crate) fn new(domains: Vec<Arc<Domain>>, taken: Vec<Box<str>>) -> Result<Self, ApplyError> {
        let (mut compiler, mut roots) = (Compiler::default(), Vec::with_capacity(domains.len()));
        for domain in &domains {
            let root = compiler.tree.add_root();
            roots.push(root);
            compiler.shown_domain = EnvoyMatch::shown_domain(&domain.name);
            compiler.level(&domain.name.as_str().into(), root, &domain.descriptors, &mut Vec::new())?;
        }
        let Compiler { tree, limits, .. } = compiler;
        let is_taken: HashSet<&str> = taken.iter().map(|name| &**name).collect();
        let names = name::all(limits.iter().map(|limit| &limit.wish), &is_taken);
        let prefix = common_prefix(&names).to_owned();
        let limits = names.into_iter().zip(limits).map(|(name, limit)| limit.named(name));
        let limits = LimitGroup::build(&prefix, limits)?;
        Ok(Self { domains, taken, tree, roots, limits })
    }

    /// Whether these are exactly the domains that were compiled, with the same names taken.
    pub(crate) fn is_of(&self, domains: &[Arc<Domain>], taken: &[Box<str>]) -> bool {
        let is_same = |(one, other): (&Arc<Domain>, &Arc<Domain>)| Arc::ptr_eq(one, other);
        self.domains.len() == domains.len()
            && self.domains.iter().zip(domains).all(is_same)
            && self.taken == taken
    }
}

/// Returns the beginning that all names share.
fn common_prefix(names: &[String]) -> &str {
    let Some(first) = names.first() else { return "" };
    let shared =
        |name: &String| first.bytes().zip(name.bytes()).take_while(|(one, other)| one == other).count();
    // Names are ASCII, so every position is a character boundary.
    names.iter().map(shared).min().and_then(|length| first.get(..length)).unwrap_or("")
}

/// A limit without a name.
struct UnnamedLimit {
    wish: NameCandidate,
    quota: Quota,
    mode: Mode,
    envoy_match: EnvoyMatch,
}

impl UnnamedLimit {
    fn named(self, name: String) -> LimitBuilder {
        LimitBuilder::new(name)
            .matched_by(self.envoy_match)
            .count_denied()
            .by(KeySource::Descriptor)
            .mode(self.mode)
            .quota(self.quota)
    }
}

#[derive(Default)]
struct Compiler {
    tree: DescriptorTree,
    limits: Vec<UnnamedLimit>,
    /// The name of the current domain, for operators.
    shown_domain: Arc<str>,
}

impl Compiler {
    /// Adds one level of a tree and the levels below it. The depth of the file bounds the recursion.
    fn level(
        &mut self,
        domain: &Arc<str>,
        from: usize,
        descriptors: &[Descriptor],
        path: &mut Vec<Step>,
    ) -> Result<(), ApplyError> {
        for descriptor in descriptors {
            let step = Step::of(descriptor);
            path.push(step.clone());
            let place = self.limit(domain, path, descriptor)?;
            let leaf = Leaf::new(domain, path, descriptor, place);
            let node = self.tree.add(from, &step.key, step.value.as_ref(), leaf);
            self.level(domain, node, &descriptor.descriptors, path)?;
            path.pop();
        }
        Ok(())
    }

    /// Creates the limit of a descriptor and returns its index, unless the descriptor counts nothing.
    fn limit(
        &mut self,
        domain: &str,
        path: &[Step],
        descriptor: &Descriptor,
    ) -> Result<Option<usize>, ApplyError> {
        let Some(limit) = &descriptor.rate_limit else { return Ok(None) };
        let Allowance::Requests { per_unit, unit } = limit.allowed else { return Ok(None) };
        let mode = if descriptor.shadow_mode { Mode::Shadow } else { Mode::Enforce };
        let place = self.limits.len();
        self.limits.push(UnnamedLimit {
            wish: NameCandidate::new(domain, path),
            quota: quota(per_unit, unit)?,
            mode,
            envoy_match: EnvoyMatch::of_entries(&self.shown_domain, path.iter().map(|it| it.shown.clone())),
        });
        Ok(Some(place))
    }
}

/// Returns a quota of `per_unit` requests that continues to count when it is exhausted.
fn quota(per_unit: u32, unit: Unit) -> Result<Quota, QuotaError> {
    Ok(FixedWindow::tally(u64::from(per_unit), Window::Epoch(unit.length()))?.into())
}
