//! Applies the files to a policy: their limits become limits of the policy.
//!
//! Requests are not matched against these limits by path. A descriptor finds them by its
//! domain and entries ([`Domains`]). Refused hits are counted in full, as in
//! envoyproxy/ratelimit.

use std::collections::HashSet;

use tollgate::{BuildError, FixedWindow, KeySource, LimitBuilder, Mode, Policy, Quota, QuotaError, Window};

use crate::config::EnvoyConfig;
use crate::domains::Domains;
use crate::file_format::{Allowance, Descriptor};
use crate::leaf::{Leaf, Step};
use crate::name::{self, NameCandidate};
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

/// A limit without a name.
struct UnnamedLimit {
    wish: NameCandidate,
    quota: Quota,
    mode: Mode,
    domain: String,
    path: Vec<Step>,
}

impl EnvoyConfig {
    /// Appends the limits of these files to the policy, and attaches the [`Domains`]
    /// that find them. Counts are stored by domain, path and unit, so they survive a
    /// change of `requests_per_unit`.
    pub fn apply(&self, policy: Policy) -> Result<Policy, ApplyError> {
        let mut compiler = Compiler { place: policy.limits().len(), ..Compiler::default() };
        for domain in self.domains() {
            let root = compiler.domains.root(&domain.name);
            compiler.level(&domain.name, root, &domain.descriptors, &mut Vec::new())?;
        }
        let Compiler { domains, limits, .. } = compiler;
        let taken: HashSet<&str> = policy.limits().iter().map(tollgate::Limit::name).collect();
        let names = name::all(limits.iter().map(|limit| &limit.wish), &taken);
        let build = |(name, limit): (String, UnnamedLimit)| {
            let entries = limit.path.iter().map(|step| (&*step.key, step.value.as_deref()));
            LimitBuilder::new(name)
                .envoy_match(&limit.domain, entries)
                .count_denied()
                .by(KeySource::Descriptor)
                .mode(limit.mode)
                .quota(limit.quota)
        };
        let limits: Vec<_> = names.into_iter().zip(limits).map(build).collect();
        Ok(policy.extended(limits)?.with_extension(domains))
    }
}

#[derive(Default)]
struct Compiler {
    domains: Domains,
    limits: Vec<UnnamedLimit>,
    /// The index of the first limit in the policy.
    place: usize,
}

impl Compiler {
    /// Adds one level of a tree and the levels below it. The depth of the file bounds the recursion.
    fn level(
        &mut self,
        domain: &str,
        from: usize,
        descriptors: &[Descriptor],
        path: &mut Vec<Step>,
    ) -> Result<(), ApplyError> {
        for descriptor in descriptors {
            path.push(Step::of(descriptor));
            let place = self.limit(domain, path, descriptor)?;
            let leaf = Leaf::new(domain, path, descriptor, place);
            let node = self.domains.add(from, &descriptor.key.value, descriptor.value.as_deref(), leaf);
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
        let place = self.place + self.limits.len();
        self.limits.push(UnnamedLimit {
            wish: NameCandidate::new(domain, path),
            quota: quota(per_unit, unit)?,
            mode,
            domain: domain.to_owned(),
            path: path.to_vec(),
        });
        Ok(Some(place))
    }
}

/// Returns a quota of `per_unit` requests that continues to count when it is exhausted.
fn quota(per_unit: u32, unit: Unit) -> Result<Quota, QuotaError> {
    Ok(FixedWindow::tally(u64::from(per_unit), Window::Epoch(unit.length()))?.into())
}
