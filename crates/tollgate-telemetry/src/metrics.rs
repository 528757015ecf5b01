//! What is counted, as metrics.
//!
//! `docs/metrics.md` says what each means; a test holds the two together.
//!
//! Invariant: labels are names of limits and words from here. Held by `tests/metrics.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use crate::counts::{Counters, OTHER};
use crate::exhausted::ExhaustedKey;
use crate::exposition::{Exposition, MetricKind};
use crate::histogram::{LATENCY, SHARE, WAIT};
use crate::limit_counter::{LimitCounter, LimitCounts};

/// Everything that is counted, and how many keys have had nothing left for long.
pub(crate) fn write(counters: &Counters, alerts: &[ExhaustedKey], out: &mut String) {
    let mut to = Exposition::new(out);
    write_all(&mut to, counters);
    let mut limits = counters.limits();
    limits.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut limits: Vec<_> = limits.iter().map(|limit| (limit, limit.counts())).collect();
    // The others only where there are some.
    limits.retain(|(limit, counts)| &*limit.name != OTHER || *counts != LimitCounts::default());
    write_limits(&mut to, &limits);
    write_candidates(&mut to, &limits);
    write_exhausted(&mut to, &limits, alerts);
}

fn write_all(to: &mut Exposition<'_>, counters: &Counters) {
    let total = counters.total();
    to.family("tollgate_decisions_total", MetricKind::Counter, "Decisions, by what came of them.")
        .value(&[("outcome", "allowed")], total.allowed)
        .value(&[("outcome", "unlimited")], total.unlimited)
        .value(&[("outcome", "limited")], total.limited)
        .value(&[("outcome", "blocked")], total.blocked)
        .value(&[("outcome", "uncountable")], total.uncountable);
    to.one(
        "tollgate_shadow_limited_decisions_total",
        MetricKind::Counter,
        "Decisions that admitted what a limit in shadow mode would have refused.",
        total.shadow_limited,
    );
    to.histogram("tollgate_decision_seconds", "How long deciding took, the store included.").spread(
        &[],
        &LATENCY,
        &counters.latency(),
    );
    to.histogram(
        "tollgate_retry_after_seconds",
        "How long refused requests were told to wait, before jitter.",
    )
    .spread(&[], &WAIT, &counters.wait());
    let mut store =
        to.histogram("tollgate_store_seconds", "How long a store was waited for that is asked over a wire.");
    for (answered, label) in [(true, "true"), (false, "false")] {
        store.spread(&[("answered", label)], &LATENCY, &counters.store(answered));
    }
}

/// One number of a limit.
type Read = fn(&LimitCounts) -> u64;

/// A limit and how many.
type LimitCount<'c> = (&'c Arc<LimitCounter>, LimitCounts);

fn write_limits(to: &mut Exposition<'_>, limits: &[LimitCount<'_>]) {
    let mut family = to.family(
        "tollgate_limit_decisions_total",
        MetricKind::Counter,
        "Decisions that a limit took part in, by what it said.",
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
        ("tollgate_limit_exhausted_total", "How often a key spent the last unit it had.", |it| it.exhausted),
        ("tollgate_limit_soft_total", "Admitted requests beyond a limit's soft threshold.", |it| it.soft),
        ("tollgate_limit_degraded_total", "Decisions of a limit without the store.", |it| it.degraded),
    ];
    for (name, help, read) in plain {
        let mut family = to.family(name, MetricKind::Counter, help);
        for (limit, counts) in limits {
            family.value(&[("limit", &limit.name)], read(counts));
        }
    }
    let mut family = to.histogram(
        "tollgate_limit_remaining_ratio",
        "What share of its allowance a key had left after a decision.",
    );
    for (limit, _) in limits {
        family.spread(&[("limit", &limit.name)], &SHARE, &limit.remaining());
    }
}

fn write_candidates(to: &mut Exposition<'_>, limits: &[LimitCount<'_>]) {
    let mut family = to.family(
        "tollgate_candidate_decisions_total",
        MetricKind::Counter,
        "Decisions of a limit that is tried beside a live one, by what both said.",
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
        "Keys that have had nothing left for as long as alerts.at_zero_for says.",
    );
    let mut keys: HashMap<&str, u64> = HashMap::new();
    for alert in alerts {
        *keys.entry(&*alert.limit).or_default() += 1;
    }
    for (limit, _) in limits {
        family.value(&[("limit", &limit.name)], keys.get(&*limit.name).copied().unwrap_or_default());
    }
}
