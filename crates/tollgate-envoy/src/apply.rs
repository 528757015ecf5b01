//! Applies the files to a policy: their limits become limits of the policy.
//!
//! Requests are not matched against these limits by path. A descriptor finds them by its
//! domain and entries ([`Domains`]). Refused hits are counted in full, as in
//! envoyproxy/ratelimit.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use tollgate::Policy;

use crate::compile::{ApplyError, CompiledDomains};
use crate::config::{Domain, EnvoyConfig};
use crate::domains::Domains;

/// The maximum number of threads that compile domains.
const MAX_THREADS: usize = 8;
/// A thread is started for at least this many domains.
const MIN_DOMAINS_OF_THREAD: usize = 16;

/// The compiled domains of the last configuration that was applied.
///
/// A domain that is the same `Arc` in the next configuration is not compiled again.
#[derive(Debug, Default)]
pub struct DomainCache {
    /// By the address of the first domain, which the entry keeps alive.
    entries: HashMap<usize, Vec<Arc<CompiledDomains>>>,
    compiled: u64,
}

impl DomainCache {
    /// Returns the number of domains that have been compiled since the start.
    pub const fn compiled(&self) -> u64 {
        self.compiled
    }

    /// Returns compiled domains, from this cache or compiled now.
    fn get(
        &mut self,
        domains: &[Arc<Domain>],
        taken: Vec<Box<str>>,
    ) -> Result<Arc<CompiledDomains>, ApplyError> {
        if let Some(found) = self.find(domains, &taken) {
            return Ok(Arc::clone(found));
        }
        self.compiled += domains.len() as u64;
        let compiled = Arc::new(CompiledDomains::new(domains.to_vec(), taken)?);
        self.add(&compiled);
        Ok(compiled)
    }

    fn find(&self, domains: &[Arc<Domain>], taken: &[Box<str>]) -> Option<&Arc<CompiledDomains>> {
        let known = self.entries.get(&address(domains)).into_iter().flatten();
        known.into_iter().find(|it| it.is_of(domains, taken))
    }

    /// Compiles domains that are not in the cache, each by itself, on several threads if there are many.
    fn compile(&mut self, domains: &[Arc<Domain>]) -> Result<(), ApplyError> {
        let is_missing = |it: &&Arc<Domain>| self.find(std::slice::from_ref(*it), &[]).is_none();
        let missing: Vec<_> = domains.iter().filter(is_missing).collect();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let part = missing.len().div_ceil(threads).max(MIN_DOMAINS_OF_THREAD);
        let compile_part = |part: &[&Arc<Domain>]| -> Result<Vec<_>, ApplyError> {
            let compile = |domain: &&Arc<Domain>| CompiledDomains::new(vec![Arc::clone(domain)], Vec::new());
            part.iter().map(compile).collect()
        };
        let compiled: Vec<Result<Vec<_>, ApplyError>> = thread::scope(|scope| {
            let (first, others) = missing.split_at(part.min(missing.len()));
            let start = |part| thread::Builder::new().spawn_scoped(scope, move || compile_part(part)).ok();
            let others: Vec<_> = others.chunks(part).map(|part| (part, start(part))).collect();
            let mut all = vec![compile_part(first)];
            // This thread does the work of one that could not be started.
            let finish = |(part, thread): (_, Option<thread::ScopedJoinHandle<'_, _>>)| {
                thread.and_then(|it| it.join().ok()).unwrap_or_else(|| compile_part(part))
            };
            all.extend(others.into_iter().map(finish));
            all
        });
        for compiled in compiled {
            for compiled in compiled? {
                self.compiled += 1;
                self.add(&Arc::new(compiled));
            }
        }
        Ok(())
    }

    fn add(&mut self, compiled: &Arc<CompiledDomains>) {
        let same = self.entries.entry(address(&compiled.domains)).or_default();
        same.push(Arc::clone(compiled));
    }

    /// Keeps only these entries.
    fn keep(&mut self, used: &[Arc<CompiledDomains>]) {
        self.entries.clear();
        for compiled in used {
            self.add(compiled);
        }
    }
}

fn address(domains: &[Arc<Domain>]) -> usize {
    domains.first().map_or(0, |domain| Arc::as_ptr(domain).addr())
}

impl EnvoyConfig {
    /// Adds the limits of these files to the policy, instead of those of other files, and attaches the
    /// [`Domains`] that find them. Counts are stored by domain, path and unit, so they survive a
    /// change of `requests_per_unit`.
    pub fn apply(&self, policy: Policy) -> Result<Policy, ApplyError> {
        self.apply_cached(policy, &mut DomainCache::default())
    }

    /// The same as [`apply`](Self::apply), without compiling the domains again that `cache` has. The result
    /// does not depend on the cache.
    pub fn apply_cached(&self, policy: Policy, cache: &mut DomainCache) -> Result<Policy, ApplyError> {
        cache.compile(self.domains())?;
        let mut singles = Vec::with_capacity(self.domains().len());
        for domain in self.domains() {
            singles.push(cache.get(std::slice::from_ref(domain), Vec::new())?);
        }
        let mut used = singles.clone();
        let mut combined = Vec::with_capacity(singles.len());
        for Cluster { members, taken, .. } in clusters(&singles, &policy) {
            let compiled = match *members {
                [only] if taken.is_empty() => Arc::clone(&singles[only]),
                _ => {
                    let domains: Vec<_> = members.iter().map(|&at| Arc::clone(&self.domains()[at])).collect();
                    let compiled = cache.get(&domains, taken)?;
                    used.push(Arc::clone(&compiled));
                    compiled
                }
            };
            combined.push((members, compiled));
        }
        cache.keep(&used);
        // In the order of the files.
        combined.sort_by_key(|(members, _)| members.first().copied());
        let mut domains = Domains::default();
        let mut place = policy.matched_limits().len();
        let mut groups = Vec::with_capacity(combined.len());
        for (_, compiled) in combined {
            domains.add(&compiled, place);
            place += compiled.limits.len();
            if !compiled.limits.is_empty() {
                groups.push(compiled.limits.clone());
            }
        }
        Ok(policy.with_groups(groups)?.with_extension(domains))
    }
}

/// Domains that may want the same names.
struct Cluster<'c> {
    prefix: &'c str,
    /// Their places in the configuration, in order.
    members: Vec<usize>,
    /// The names of other limits that they may want.
    taken: Vec<Box<str>>,
}

/// Divides domains so that the prefix of a cluster with limits is not the beginning of another one.
fn clusters<'c>(singles: &'c [Arc<CompiledDomains>], policy: &Policy) -> Vec<Cluster<'c>> {
    let cluster = |prefix, at| Cluster { prefix, members: vec![at], taken: Vec::new() };
    let (empty, mut sorted): (Vec<_>, Vec<_>) =
        (0..singles.len()).partition(|&at| singles[at].limits.is_empty());
    sorted.sort_by_key(|&at| singles[at].limits.prefix());
    let mut clusters: Vec<Cluster<'c>> = Vec::with_capacity(singles.len());
    for at in sorted {
        let prefix = singles[at].limits.prefix();
        match clusters.last_mut() {
            Some(last) if prefix.starts_with(last.prefix) => last.members.push(at),
            _ => clusters.push(cluster(prefix, at)),
        }
    }
    for cluster in &mut clusters {
        cluster.members.sort_unstable();
    }
    for name in policy.matched_limits().iter().map(tollgate::Limit::name) {
        let after = clusters.partition_point(|it| it.prefix <= name);
        let found = after.checked_sub(1).and_then(|at| clusters.get_mut(at));
        if let Some(found) = found.filter(|it| name.starts_with(it.prefix)) {
            found.taken.push(name.into());
        }
    }
    clusters.extend(empty.into_iter().map(|at| cluster("", at)));
    clusters
}
