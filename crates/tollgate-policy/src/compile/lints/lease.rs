//! Leases without an effect, and leases that keep much of a burst back.

use tollgate_core::{Rule, Span};
use tollgate_document::{Document, Located, Problems};

use super::super::lease::held_back;
use super::LintedLimit;
use crate::file_format::lease::{LeaseText, is_in_memory};
use crate::lint::Lint;

/// The smallest lease that a node takes (`tollgate_lease::MIN_LEASE_UNITS`).
const MIN_LEASE_UNITS: u64 = 8;

/// The smallest part of a burst that a warning is about.
const LARGE_PART: u64 = 10;

pub(super) fn find_lints(document: &Document, linted: &[LintedLimit<'_>], problems: &mut Problems) {
    for limit in linted.iter().filter(|it| it.is_on()) {
        let Some(lease) = limit.written.lease.filter(|it| it.value != LeaseText::Off) else { continue };
        if is_in_memory(document) {
            problems
                .warning(Lint::LeaseInMemory, lease.place, "a store in memory has no leases")
                .label("without an effect")
                .help("leases save calls to a shared store: `store: redis://HOST`");
            continue;
        }
        match limit.live.rules().iter().find(|rule| never_leased(rule)) {
            Some(rule) => never(rule, lease, problems),
            None => hides_burst(limit, lease, problems),
        }
    }
}

/// Whether no node ever leases units: half of the capacity, and the refill during a lease, are
/// less than the smallest lease.
fn never_leased(rule: &Rule) -> bool {
    let quota = &rule.quota;
    rule.lease.is_none_or(|ttl| {
        quota.capacity() / 2 < MIN_LEASE_UNITS && held_back(quota, ttl) / 2 < MIN_LEASE_UNITS
    })
}

fn never(rule: &Rule, lease: Located<LeaseText>, problems: &mut Problems) {
    let why = match rule.lease {
        None => format!("full again in {}", rule.quota.period().human()),
        Some(_) => format!("{} units", rule.quota.capacity()),
    };
    problems
        .warning(Lint::LeaseNever, lease.place, "no units of this limit are ever leased")
        .label(why)
        .help("a node leases at least 8 units, at most half of what is left, for at least 10ms");
}

fn hides_burst(limit: &LintedLimit<'_>, lease: Located<LeaseText>, problems: &mut Problems) {
    let held = |rule: &Rule| {
        let tollgate_core::Quota::Bucket(_) = &rule.quota else { return None };
        let ttl: Span = rule.lease?;
        Some((held_back(&rule.quota, ttl), rule.quota.capacity()))
            .filter(|(held, capacity)| held * LARGE_PART > *capacity)
    };
    if let Some((held, capacity)) = limit.live.rules().iter().find_map(held) {
        problems
            .warning(Lint::LeaseHidesBurst, lease.place, "a leased key lacks much of its burst")
            .label(format!("{held} of {capacity} units"))
            .related(limit.amount(), "the burst")
            .help("a shorter lease, or `auto`, keeps less back");
    }
}
