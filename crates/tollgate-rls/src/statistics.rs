//! Hits by limit for domains of envoyproxy/ratelimit files, counted like its statistics.
//!
//! A limit counts under the name in its file. With `detailed_metric` or `value_to_metric`, values
//! of callers are part of that name. Names are therefore bounded in number, length and characters.
//! A limit whose name does not depend on values has its counter by its index in the policy,
//! resolved once for each policy; other counters are looked up under a short lock.
//!
//! Not here: decisions by limit, which the observer of the limiter counts.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tollgate::{Limiter, Policy};
use tollgate_document::sanitize::is_unprintable;
use tollgate_envoy::{Domains, Leaf, PlacedLeaf};
use tollgate_telemetry::MetricKind::Counter;
use tollgate_telemetry::{Exposition, Family};

use crate::request_descriptor;

/// The maximum number of statistics; further ones share one.
const MAX_STATISTICS: usize = 1_000;
/// The maximum length of a name that contains values of callers, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The name of the shared statistic.
const OTHER_NAME: &str = "_other";

const RESULTS: [&str; 4] = ["within", "near", "over", "shadow"];

/// One statistic.
#[derive(Debug, Default)]
pub(crate) struct Hits([AtomicU64; RESULTS.len()]);

/// The state of a limit after a number of hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HitState {
    pub(crate) hits: u64,
    pub(crate) limit: u64,
    /// `None`: the limit was exceeded.
    pub(crate) remaining: Option<u64>,
    /// Whether exceeding the limit refuses requests.
    pub(crate) binding: bool,
}

impl Hits {
    /// Counts hits like envoyproxy/ratelimit: hits near the limit are also within it. If a call
    /// exceeds the limit, all of its hits are over, because it is unknown how many would have fit.
    pub(crate) fn count(&self, stood: HitState) {
        let [within, near, over, shadow] = &self.0;
        let add = |counter: &AtomicU64, hits| counter.fetch_add(hits, Ordering::Relaxed);
        let Some(remaining) = stood.remaining else {
            add(over, stood.hits);
            if !stood.binding {
                add(shadow, stood.hits);
            }
            return;
        };
        add(within, stood.hits);
        let threshold = stood.limit / 5 * 4 + stood.limit % 5 * 4 / 5;
        let beyond = stood.limit.saturating_sub(remaining).saturating_sub(threshold);
        if beyond > 0 {
            add(near, beyond.min(stood.hits));
        }
    }
}

/// All statistics.
pub(crate) struct Statistics<S> {
    table: ArcSwap<Table<S>>,
    named: Mutex<NamedStatistics>,
    other: Arc<Hits>,
    domain_not_found: AtomicU64,
}

/// The lookup table of one policy.
struct Table<S> {
    /// Weak, so that the policy is not kept alive, while its address is not reused.
    limiter: Weak<Limiter<S>>,
    /// Counters by index in the policy, resolved at first use; empty if the name depends on values.
    by_place: Box<[OnceLock<Arc<Hits>>]>,
    /// The domains of the policy's limits; `None`: a limit covers all domains.
    domains: Option<HashSet<Box<str>>>,
}

impl<S> Table<S> {
    fn is_of(&self, limiter: &Limiter<S>) -> bool {
        std::ptr::eq(self.limiter.as_ptr(), limiter)
    }
}

/// Statistics by domain and name.
#[derive(Default)]
struct NamedStatistics {
    all: BTreeMap<Box<str>, BTreeMap<Box<str>, Arc<Hits>>>,
    count: usize,
}

impl NamedStatistics {
    /// Returns the statistic with this name and creates it if it is new; `None` if there are too
    /// many.
    fn hits(&mut self, domain: &str, name: &str) -> Option<Arc<Hits>> {
        if let Some(hits) = self.all.get(domain).and_then(|names| names.get(name)) {
            return Some(Arc::clone(hits));
        }
        if self.count >= MAX_STATISTICS {
            return None;
        }
        self.count += 1;
        let names = self.all.entry(domain.into()).or_default();
        Some(Arc::clone(names.entry(name.into()).or_default()))
    }

    /// Drops statistics of removed domains.
    fn keep(&mut self, domains: Option<&Domains>) {
        self.all.retain(|domain, _| domains.is_some_and(|domains| domains.knows(domain)));
        self.count = self.all.values().map(BTreeMap::len).sum();
    }
}

impl<S> Statistics<S> {
    pub(crate) fn new() -> Self {
        let table = Table { limiter: Weak::new(), by_place: Box::default(), domains: None };
        Self {
            table: ArcSwap::from_pointee(table),
            named: Mutex::default(),
            other: Arc::default(),
            domain_not_found: AtomicU64::new(0),
        }
    }

    /// Resolves the counters of the current policy if it is new.
    #[inline]
    pub(crate) fn prepare(&self, limiter: &Arc<Limiter<S>>) {
        if !self.table.load().is_of(limiter) {
            self.find(limiter);
        }
    }

    #[cold]
    fn find(&self, limiter: &Arc<Limiter<S>>) {
        let policy = limiter.policy();
        let envoys = Domains::of(policy);
        let mut named = self.named.lock();
        if self.table.load().is_of(limiter) {
            return;
        }
        named.keep(envoys);
        let places = if envoys.is_some() { policy.limits().len() } else { 0 };
        let by_place: Box<[OnceLock<Arc<Hits>>]> =
            std::iter::repeat_with(OnceLock::new).take(places).collect();
        // Counters that have counted nothing are shown, too.
        let leaves = envoys.iter().flat_map(|domains| domains.leaves()).filter(|leaf| !leaf.stat_varies());
        for leaf in leaves.take(MAX_STATISTICS) {
            let Some(cell) = leaf.place().and_then(|place| by_place.get(place)) else { continue };
            if let Some(hits) = named.hits(leaf.domain(), leaf.stat()) {
                let _first = cell.set(hits);
            }
        }
        let table = Table { limiter: Arc::downgrade(limiter), by_place, domains: covered(policy) };
        self.table.store(Arc::new(table));
    }

    /// Counts the hits of a descriptor that matched this limit.
    #[inline]
    pub(crate) fn count(
        &self,
        limiter: &Limiter<S>,
        leaf: PlacedLeaf<'_>,
        entries: &[(&str, &str)],
        stood: HitState,
    ) {
        let table = self.table.load();
        let found = leaf.place().filter(|_| table.is_of(limiter)).and_then(|place| table.by_place.get(place));
        match found {
            Some(cell) if !leaf.stat_varies() => {
                let resolve = || self.named.lock().hits(leaf.domain(), leaf.stat());
                cell.get_or_init(|| resolve().unwrap_or_else(|| Arc::clone(&self.other))).count(stood);
            }
            _ => self.count_by_name(&leaf, entries, stood),
        }
    }

    fn count_by_name(&self, leaf: &Leaf, entries: &[(&str, &str)], stood: HitState) {
        let name = leaf.stat_of(entries);
        let is_fit = !leaf.stat_varies() || name.len() <= MAX_NAME_BYTES;
        let hits = if is_fit { self.named.lock().hits(leaf.domain(), &name) } else { None };
        hits.as_ref().unwrap_or(&self.other).count(stood);
    }

    /// Whether a limit of the policy may match this domain.
    pub(crate) fn is_covered(&self, limiter: &Limiter<S>, domain: &str) -> bool {
        let table = self.table.load();
        let is_named = |names: &HashSet<Box<str>>| names.contains(domain);
        domain == request_descriptor::DOMAIN
            || !table.is_of(limiter)
            || table.domains.as_ref().is_none_or(is_named)
    }

    /// Counts a request in a domain that neither an Envoy file nor a limit of the policy covers.
    pub(crate) fn count_domain(&self, limiter: &Limiter<S>, domain: &str) {
        if !self.is_covered(limiter, domain) {
            self.domain_not_found.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends the metrics under the names of envoyproxy/ratelimit.
    pub(crate) fn write_upstream(&self, out: &mut String) {
        let named = self.named.lock();
        for (family, help, counters) in UPSTREAM_FAMILIES {
            let mut to = Exposition::new(out);
            let mut family = to.family(family, Counter, help);
            let mut write = |domain: &str, name: &str, hits: &Hits| {
                let (key1, key2) = upstream_keys(domain, name);
                let (domain, key1, key2) = (label(domain), label(key1), label(key2));
                let count: u64 = counters.iter().map(|at| hits.0[*at].load(Ordering::Relaxed)).sum();
                let labels = [("domain", &*domain), ("key1", &*key1), ("key2", &*key2)];
                let labels = if key2.is_empty() { &labels[..2] } else { &labels[..] };
                family.value(labels, count);
            };
            for (domain, names) in &named.all {
                for (name, hits) in names {
                    write(domain, name, hits);
                }
            }
            if self.other.0.iter().any(|count| count.load(Ordering::Relaxed) > 0) {
                write(OTHER_NAME, OTHER_NAME, &self.other);
            }
        }
    }

    pub(crate) fn write(&self, out: &mut String) {
        let mut to = Exposition::new(out);
        let help = "Hits on limits of envoyproxy/ratelimit files.";
        let mut family = to.family("tollgate_rls_limit_hits_total", Counter, help);
        let named = self.named.lock();
        for (domain, names) in &named.all {
            for (name, hits) in names {
                write_hits(domain, name, hits, &mut family);
            }
        }
        drop(named);
        if self.other.0.iter().any(|count| count.load(Ordering::Relaxed) > 0) {
            write_hits(OTHER_NAME, OTHER_NAME, &self.other, &mut family);
        }
        let count = self.domain_not_found.load(Ordering::Relaxed);
        let help = "Requests in an unknown domain.";
        to.one("tollgate_rls_domain_not_found_total", Counter, help, count);
    }
}

/// The metrics of envoyproxy/ratelimit for one limit, with the counters that they add up.
const UPSTREAM_FAMILIES: [(&str, &str, &[usize]); 5] = [
    ("ratelimit_service_rate_limit_total_hits", "Hits on a limit.", &[0, 2]),
    ("ratelimit_service_rate_limit_within_limit", "Hits within a limit.", &[0]),
    ("ratelimit_service_rate_limit_near_limit", "Hits above 80 % of a limit.", &[1]),
    ("ratelimit_service_rate_limit_over_limit", "Hits over a limit.", &[2]),
    ("ratelimit_service_rate_limit_shadow_mode", "Hits over a limit in shadow mode.", &[3]),
];

/// Splits the name of a statistic into the labels `key1` and `key2` of envoyproxy/ratelimit.
fn upstream_keys<'n>(domain: &str, name: &'n str) -> (&'n str, &'n str) {
    let path = name.strip_prefix(domain).and_then(|it| it.strip_prefix('.')).unwrap_or(name);
    path.split_once('.').unwrap_or((path, ""))
}

/// The domains of a policy's limits on descriptors.
fn covered(policy: &Policy) -> Option<HashSet<Box<str>>> {
    let mut domains = HashSet::new();
    for limit in policy.matched_limits().iter().filter(|limit| limit.descriptor().is_some()) {
        limit.domains().next()?;
        domains.extend(limit.domains().map(Into::into));
    }
    Some(domains)
}

fn write_hits(domain: &str, name: &str, hits: &Hits, family: &mut Family<'_>) {
    let (domain, name) = (label(domain), label(name));
    for (result, count) in RESULTS.iter().zip(&hits.0) {
        let labels = [("domain", &*domain), ("limit", &*name), ("result", result)];
        family.value(&labels, count.load(Ordering::Relaxed));
    }
}

/// Replaces characters that a label should not contain.
fn label(text: &str) -> String {
    text.chars().map(|char| if is_unprintable(char) { '\u{fffd}' } else { char }).collect()
}
