//! Writes the counters as Prometheus metrics.
//!
//! `docs/metrics.md` describes each metric; a test compares the two.
//!
//! Invariant: labels are names of limits, names of priority classes and constants of this module. `tests/metrics.rs` checks this.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate::Timestamp;

use crate::counts::{Counters, OTHER};
use crate::exhausted::ExhaustedKey;
use crate::exposition::{Exposition, MetricKind};
use crate::histogram::{LATENCY, QUEUE_WAIT, SHARE, WAIT};
use crate::limit_counter::{LimitCounter, LimitCounts};

/// Writes all counters, the number of exhausted keys and the classes that are shed.
pub(crate) fn write(
    counters: &Counters,
    (alerts, shed_alerts): (&[ExhaustedKey], &[ExhaustedKey]),
    now: Timestamp,
    out: &mut String,
) {
    let mut to = Exposition::new(out);
    write_all(&mut to, counters);
    let mut limits = counters.limits();
    limits.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut limits: Vec<_> = limits.iter().map(|limit| (limit, limit.counts())).collect();
    // `_other` is listed only if it has counts.
    limits.retain(|(limit, counts)| &*limit.name != OTHER || *counts != LimitCounts::default());
    write_limits(&mut to, &limits);
    write_queues(&mut to, &limits, now);
    write_candidates(&mut to, &limits);
    write_exhausted(&mut to, &limits, alerts);
    write_shed_classes(&mut to, shed_alerts);
}

fn write_all(to: &mut Exposition<'_>, counters: &Counters) {
    let total = counters.total();
    to.family("tollgate_decisions_total", MetricKind::Counter, "Decisions by outcome.")
        .value(&[("outcome", "allowed")], total.allowed)
        .value(&[("outcome", "unlimited")], total.unlimited)
        .value(&[("outcome", "limited")], total.limited)
        .value(&[("outcome", "blocked")], total.blocked)
        .value(&[("outcome", "uncountable")], total.uncountable)
        .value(&[("outcome", "shed")], total.shed);
    let mut family = to.family(
        "tollgate_priority_decisions_total",
        MetricKind::Counter,
        "Decisions by priority class and outcome.",
    );
    for class in counters.classes() {
        for (outcome, count) in [("allowed", class.allowed), ("refused", class.refused), ("shed", class.shed)]
        {
            family.value(&[("priority", &class.name), ("outcome", outcome)], count);
        }
    }
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

fn write_queues(to: &mut Exposition<'_>, limits: &[LimitCount<'_>], now: Timestamp) {
    let queues = || limits.iter().filter_map(|(limit, _)| Some((limit, limit.queue()?)));
    let help = "Requests that wait in the queues of a limit.";
    let mut family = to.family("tollgate_limit_waiting", MetricKind::Gauge, help);
    for (limit, queue) in queues() {
        family.value(&[("limit", &limit.name)], queue.view(now).waiting);
    }
    let help = "Waits of admitted requests in the queues of a limit, without those that start immediately.";
    let mut family = to.histogram("tollgate_limit_wait_seconds", help);
    for (limit, queue) in queues() {
        family.spread(&[("limit", &limit.name)], &QUEUE_WAIT, &queue.spread());
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

/// Writes the classes that are shed although they are not the least important one.
fn write_shed_classes(to: &mut Exposition<'_>, shed_alerts: &[ExhaustedKey]) {
    let mut family = to.family(
        "tollgate_important_class_shed",
        MetricKind::Gauge,
        "Priority classes, except the least important one, of which a shedder refused requests in the last minute.",
    );
    for alert in shed_alerts {
        family.value(&[("shedder", &alert.limit), ("priority", &alert.key)], 1);
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
