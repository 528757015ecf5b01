//! Writes the counters as Prometheus metrics.
//!
//! `docs/metrics.md` describes each metric; a test compares the two.
//!
//! Invariant: labels are names of limits and constants of this module. `tests/metrics.rs` checks this.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counts::{Counters, OTHER};
use crate::exhausted::ExhaustedKey;
use crate::exposition::{Exposition, MetricKind};
use crate::histogram::{LATENCY, SHARE, WAIT};
use crate::limit_counter::{LimitCounter, LimitCounts};

/// Writes all counters and the number of exhausted keys.
pub(crate) fn write(counters: &Counters, alerts: &[ExhaustedKey], out: &mut String) {
    let mut to = Exposition::new(out);
    write_all(&mut to, counters);
    let mut limits = counters.limits();
    limits.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut limits: Vec<_> = limits.iter().map(|limit| (limit, limit.counts())).collect();
    // `_other` is listed only if it has counts.
    limits.retain(|(limit, counts)| &*limit.name != OTHER || *counts != LimitCounts::default());
    write_limits(&mut to, &limits);
    write_candidates(&mut to, &limits);
    write_exhausted(&mut to, &limits, alerts);
}

fn write_all(to: &mut Exposition<'_>, counters: &Counters) {
    let total = counters.total();
    to.family("tollgate_decisions_total", MetricKind::Counter, "Decisions by outcome.")
        .value(&[("outcome", "allowed")], total.allowed)
        .value(&[("outcome", "unlimited")], total.unlimited)
        .value(&[("outcome", "limited")], total.limited)
        .value(&[("outcome", "blocked")], total.blocked)
        .value(&[("outcome", "uncountable")], total.uncountable);
    to.one(
        "tollgate_shadow_limited_decisions_total",
        MetricKind::Counter,
        "Admissions that a limit in shadow mode would have refused.",
        total.shadow_limited,
    );
    to.histogram("tollgate_decision_seconds", "Decision latency, including the store.").spread(
        &[],
        &LATENCY,
        &counters.latency(),
    );
    to.histogram("tollgate_retry_after_seconds", "Waits returned to refused callers, before jitter.").spread(
        &[],
        &WAIT,
        &counters.wait(),
    );
    let mut store = to.histogram("tollgate_store_seconds", "Latency of a remote store.");
    for (answered, label) in [(true, "true"), (false, "false")] {
        store.spread(&[("answered", label)], &LATENCY, &counters.store(answered));
    }
}

/// Reads one count of a limit.
type Read = fn(&LimitCounts) -> u64;

/// A limit and its counts.
type LimitCount<'c> = (&'c Arc<LimitCounter>, LimitCounts);

fn write_limits(to: &mut Exposition<'_>, limits: &[LimitCount<'_>]) {
    let mut family = to.family(
        "tollgate_limit_decisions_total",
        MetricKind::Counter,
        "Decisions of each limit by outcome.",
    );
    for (limit, counts) in limits {
        for (outcome, count) in [
            ("allowed", counts.allowed),
            ("limited", counts.limited),
            ("shadow_limited", counts.shadow_limited),
            ("blocked", counts.blocked),
        ] {
            family.value(&[("limit", &limit.name), ("outcome", outcome)], count);
        }
    }
    let plain: [(_, _, Read); 3] = [
        ("tollgate_limit_exhausted_total", "Decisions that spent the last unit of a key.", |it| it.exhausted),
        ("tollgate_limit_soft_total", "Admitted requests beyond a limit's soft threshold.", |it| it.soft),
        ("tollgate_limit_degraded_total", "Decisions of a limit that were made without the store.", |it| {
            it.degraded
        }),
    ];
    for (name, help, read) in plain {
        let mut family = to.family(name, MetricKind::Counter, help);
        for (limit, counts) in limits {
            family.value(&[("limit", &limit.name)], read(counts));
        }
    }
    let mut family = to.histogram(
        "tollgate_limit_remaining_ratio",
        "The remaining share of a key's allowance after a decision.",
    );
    for (limit, _) in limits {
        family.spread(&[("limit", &limit.name)], &SHARE, &limit.remaining());
    }
}

fn write_candidates(to: &mut Exposition<'_>, limits: &[LimitCount<'_>]) {
    let mut family = to.family(
        "tollgate_candidate_decisions_total",
        MetricKind::Counter,
        "Decisions of a candidate and its live limit, by both outcomes.",
    );
    for (limit, counts) in limits.iter().filter(|(limit, _)| limit.has_agreement()) {
        for ((live, candidate), count) in
            [("allowed", "allowed"), ("limited", "allowed"), ("allowed", "limited"), ("limited", "limited")]
                .into_iter()
                .zip(counts.agreement)
        {
            family.value(&[("limit", &limit.name), ("live", live), ("candidate", candidate)], count);
        }
    }
}

fn write_exhausted(to: &mut Exposition<'_>, limits: &[LimitCount<'_>], alerts: &[ExhaustedKey]) {
    let mut family = to.family(
        "tollgate_keys_at_zero",
        MetricKind::Gauge,
        "Keys that have had nothing left for at least alerts.at_zero_for.",
    );
    let mut keys: HashMap<&str, u64> = HashMap::new();
    for alert in alerts {
        *keys.entry(&*alert.limit).or_default() += 1;
    }
    for (limit, _) in limits {
        family.value(&[("limit", &limit.name)], keys.get(&*limit.name).copied().unwrap_or_default());
    }
}
