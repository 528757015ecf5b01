//! Hits by limit for domains of envoyproxy/ratelimit's files, as it counts them for its statistics.
//!
//! A limit counts under the name that its file gives it; where the file says `detailed_metric` or
//! `value_to_metric`, values of callers are part of that name. So names are bounded: in number, in
//! length, and in what they hold. A limit whose name depends on no value has its counter by its
//! place in the policy, found once for each policy; others are looked up under a short lock.
//!
//! Not here: decisions limit by limit, which the limiter's observer counts.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::ArcSwap;
use tollgate::{Limiter, Policy};
use tollgate_envoy::{Domains, Leaf};

use crate::request_descriptor;

/// How many statistics there are; all further ones are one.
const MAX_STATISTICS: usize = 1_000;
/// The longest name with values of callers in it, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Names what has no statistic of its own.
const OTHER_NAME: &str = "_other";

const RESULTS: [&str; 4] = ["within", "near", "over", "shadow"];

/// One statistic.
#[derive(Debug, Default)]
pub(crate) struct Hits([AtomicU64; RESULTS.len()]);

/// How a limit stood after so many hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HitState {
    pub(crate) hits: u64,
    pub(crate) limit: u64,
    /// `None`: the limit was exceeded.
    pub(crate) remaining: Option<u64>,
    /// Whether an exceeded limit refuses anybody.
    pub(crate) binding: bool,
}

impl Hits {
    /// Counts as envoyproxy/ratelimit does: what is near is within, too. Of a call that exceeds
    /// the limit nobody tells how much would have had room, so all of it is over.
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

/// What is found once for each policy.
struct Table<S> {
    /// Weak, so that no policy is kept; yet none that comes later has its address.
    limiter: Weak<Limiter<S>>,
    /// By place in the policy; none where the name depends on values.
    by_place: Box<[Option<Arc<Hits>>]>,
    /// The domains of the policy's limits; `None`: some limit covers all there are.
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
    /// The statistic with this name, which is made when it is new; none when there are too many.
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

    /// Drops those of domains that are gone.
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

    fn named(&self) -> MutexGuard<'_, NamedStatistics> {
        // Whoever panicked left counters behind, and those are whole.
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds what there is to find for the policy in force, if it is new.
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
        let mut by_place = Vec::new();
        let mut named = self.named();
        named.keep(envoys);
        for leaf in envoys.iter().flat_map(|domains| domains.leaves()).filter(|leaf| !leaf.stat_varies()) {
            let Some(place) = leaf.place() else { continue };
            if by_place.len() <= place {
                by_place.resize(place + 1, None);
            }
            let hits = named.hits(leaf.domain(), leaf.stat());
            by_place[place] = Some(hits.unwrap_or_else(|| Arc::clone(&self.other)));
        }
        drop(named);
        self.table.store(Arc::new(Table {
            limiter: Arc::downgrade(limiter),
            by_place: by_place.into(),
            domains: covered(policy),
        }));
    }

    /// Counts the hits of a descriptor that led to this limit.
    #[inline]
    pub(crate) fn count(&self, limiter: &Limiter<S>, leaf: &Leaf, entries: &[(&str, &str)], stood: HitState) {
        let table = self.table.load();
        let found = leaf.place().filter(|_| table.is_of(limiter)).and_then(|place| table.by_place.get(place));
        match found {
            Some(Some(hits)) => hits.count(stood),
            _ => self.count_by_name(leaf, entries, stood),
        }
    }

    fn count_by_name(&self, leaf: &Leaf, entries: &[(&str, &str)], stood: HitState) {
        let name = leaf.stat_of(entries);
        let is_fit = !leaf.stat_varies() || name.len() <= MAX_NAME_BYTES;
        let hits = if is_fit { self.named().hits(leaf.domain(), &name) } else { None };
        hits.as_ref().unwrap_or(&self.other).count(stood);
    }

    /// Whether a limit of the policy may be about this domain.
    pub(crate) fn is_covered(&self, limiter: &Limiter<S>, domain: &str) -> bool {
        let table = self.table.load();
        let is_named = |names: &HashSet<Box<str>>| names.contains(domain);
        domain == request_descriptor::DOMAIN
            || !table.is_of(limiter)
            || table.domains.as_ref().is_none_or(is_named)
    }

    /// Counts a question in a domain that no file of Envoy's is about, if no limit of the policy is either.
    pub(crate) fn count_domain(&self, limiter: &Limiter<S>, domain: &str) {
        if !self.is_covered(limiter, domain) {
            self.domain_not_found.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn write(&self, out: &mut String) {
        out.push_str("# HELP tollgate_rls_limit_hits_total Hits on limits of Envoy's files.\n");
        out.push_str("# TYPE tollgate_rls_limit_hits_total counter\n");
        let named = self.named();
        for (domain, names) in &named.all {
            for (name, hits) in names {
                write_hits(domain, name, hits, out);
            }
        }
        drop(named);
        if self.other.0.iter().any(|count| count.load(Ordering::Relaxed) > 0) {
            write_hits(OTHER_NAME, OTHER_NAME, &self.other, out);
        }
        out.push_str(
            "# HELP tollgate_rls_domain_not_found_total Questions in a domain that nothing is about.\n",
        );
        out.push_str("# TYPE tollgate_rls_domain_not_found_total counter\n");
        let count = self.domain_not_found.load(Ordering::Relaxed);
        let _never_fails = writeln!(out, "tollgate_rls_domain_not_found_total {count}");
    }
}

/// The domains of a policy's limits on descriptors.
fn covered(policy: &Policy) -> Option<HashSet<Box<str>>> {
    let mut domains = HashSet::new();
    for limit in policy.limits().iter().filter(|limit| limit.descriptor().is_some()) {
        limit.domains().next()?;
        domains.extend(limit.domains().map(Into::into));
    }
    Some(domains)
}

fn write_hits(domain: &str, name: &str, hits: &Hits, out: &mut String) {
    for (result, count) in RESULTS.iter().zip(&hits.0) {
        out.push_str("tollgate_rls_limit_hits_total{domain=\"");
        escape(domain, out);
        out.push_str("\",limit=\"");
        escape(name, out);
        let count = count.load(Ordering::Relaxed);
        let _never_fails = writeln!(out, "\",result=\"{result}\"}} {count}");
    }
}

/// Nothing ends a label or a line, or moves the cursor of whoever looks at it.
fn escape(text: &str, out: &mut String) {
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            _ if char.is_control() => out.push('\u{fffd}'),
            _ => out.push(char),
        }
    }
}
