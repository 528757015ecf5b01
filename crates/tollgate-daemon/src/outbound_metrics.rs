//! Metrics of the outbound gateway, by service.

use std::sync::Arc;

use tollgate_outbound::{Outbound, OutboundCounts};
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

/// The services of the outbound gateway.
pub(crate) type OutboundServices = Arc<[Outbound]>;

/// Reads one number of a service.
type Read = fn(&OutboundCounts) -> u64;

const COUNTERS: [(&str, &str, Read); 7] = [
    ("tollgate_outbound_attempts_total", "Attempts that were sent to the service.", |it| it.sent),
    ("tollgate_outbound_refused_total", "Attempts that a limit of the service refused.", |it| it.refused),
    ("tollgate_outbound_failed_total", "Attempts that failed.", |it| it.failed),
    ("tollgate_outbound_retries_total", "Retries of calls.", |it| it.retries),
    (
        "tollgate_outbound_retries_over_budget_total",
        "Retries that were not made because the retry budget was used up.",
        |it| it.over_budget,
    ),
    ("tollgate_outbound_waited_total", "Calls that were held for units of the service.", |it| it.waited),
    ("tollgate_outbound_gave_up_total", "Calls that were given up before they were sent.", |it| it.gave_up),
];

/// Writes the metrics of all services.
pub(crate) fn write(services: &[Outbound], to: &mut Exposition<'_>) {
    if services.is_empty() {
        return;
    }
    let counts: Vec<_> = services.iter().map(|it| (&*it.settings().name, it.client().counts())).collect();
    for (metric, help, read) in COUNTERS {
        let mut family = to.family(metric, Counter, help);
        for (name, counts) in &counts {
            family.value(&[("service", name)], read(counts));
        }
    }
    let mut gauge = |metric, help, read: fn(&Outbound) -> usize| {
        let mut family = to.family(metric, Gauge, help);
        for service in services {
            family.value(&[("service", &service.settings().name)], read(service) as u64);
        }
    };
    gauge("tollgate_outbound_waiting", "Calls that are held now.", |it| it.client().waiting());
    gauge("tollgate_outbound_buckets", "Buckets of the service that are known.", |it| it.client().buckets());
}
