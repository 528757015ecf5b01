//! Puts the files in force: their limits become limits of a policy.
//!
//! They stand apart: no request finds them by its path, only a descriptor by its
//! domain and entries ([`Domains`]). Refused hits are counted in full, as
//! envoyproxy/ratelimit counts them.

use std::collections::HashSet;

use tollgate::{BuildError, FixedWindow, KeySource, LimitBuilder, Mode, Policy, Quota, QuotaError, Window};

use crate::config::EnvoyConfig;
use crate::domains::Domains;
use crate::file_format::{Allowance, Descriptor};
use crate::leaf::{Leaf, Step};
use crate::name::{self, NameCandidate};
use crate::unit::Unit;

/// Why files that were understood cannot be put in force. None that can be written does this.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The policy does not take a limit.
    #[error(transparent)]
    Limit(#[from] BuildError),
    /// Nothing can count so much, or so long.
    #[error(transparent)]
    Quota(#[from] QuotaError),
}

/// A limit that has no name yet.
struct UnnamedLimit {
    wish: NameCandidate,
    quota: Quota,
    mode: Mode,
    domain: String,
    path: Vec<Step>,
}

impl EnvoyConfig {
    /// The policy with the limits of these files behind its own, and with [`Domains`]
    /// that find them. Counts are kept by domain, path and unit, so they outlive a
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
    /// Where the first of the limits will stand in the policy.
    place: usize,
}

impl Compiler {
    /// One level of a tree, and what is below it: as deep as the file, which is bounded.
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

    /// Makes the limit of a descriptor, and says its place, unless it has none that counts.
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

/// What counts so many requests in each unit, and goes on counting when they are spent.
fn quota(per_unit: u32, unit: Unit) -> Result<Quota, QuotaError> {
    Ok(FixedWindow::tally(u64::from(per_unit), Window::Epoch(unit.length()))?.into())
}
