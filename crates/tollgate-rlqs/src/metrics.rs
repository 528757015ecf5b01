//! The metrics of the quota service.

use tollgate_api::Quota;
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

use crate::registry::Registry;
use crate::view::limits;

pub(crate) fn write(registry: &Registry, out: &mut String) {
    let mut to = Exposition::new(out);
    let counters = &registry.counters;
    for (name, help, value) in [
        ("tollgate_rlqs_streams", "Open streams of the quota service.", registry.streams.len() as u64),
        ("tollgate_rlqs_buckets", "Buckets that proxies report.", registry.buckets.len() as u64),
        (
            "tollgate_rlqs_degraded",
            "Whether the shared store gave no answer about shares.",
            u64::from(registry.shares.is_degraded),
        ),
    ] {
        to.family(name, Gauge, help).value(&[], value);
    }
    let mut family =
        to.family("tollgate_rlqs_events_total", Counter, "Events of the quota service, by kind.");
    for (event, count) in [
        ("report", counters.reports),
        ("assignment", counters.assignments),
        ("abandoned", counters.abandoned),
        ("unknown_bucket", counters.unknown),
        ("ignored_bucket", counters.ignored),
        ("refused_stream", counters.refused_streams),
    ] {
        family.value(&[("event", event)], count);
    }
    let limits = limits(registry);
    let mut family = to.family(
        "tollgate_rlqs_requests_total",
        Counter,
        "Requests as proxies reported them, by limit; overshoot is above the limit.",
    );
    for limit in limits.values() {
        for (result, count) in
            [("allowed", limit.allowed), ("denied", limit.denied), ("overshoot", limit.overshoot)]
        {
            family.value(&[("limit", &*limit.limit), ("result", result)], count);
        }
    }
    let mut family = to.family("tollgate_rlqs_proxies", Gauge, "Proxies in the buckets of a limit.");
    for limit in limits.values() {
        family.value(&[("limit", &*limit.limit)], limit.streams);
    }
    for (name, help, rate) in [
        (
            "tollgate_rlqs_assigned_rate",
            "Requests per second that are assigned to proxies.",
            (|it| it.assigned) as fn(&Quota) -> f64,
        ),
        ("tollgate_rlqs_demanded_rate", "Requests per second that proxies demand.", |it| it.demanded),
    ] {
        let mut family = to.family(name, Gauge, help);
        for limit in limits.values() {
            family.value(&[("limit", &*limit.limit)], rate(limit));
        }
    }
}
