//! `GET /metrics`: counts for whoever watches, in the text format of Prometheus.
//!
//! Here is what is known of the store's health and of modes; all else is appended by whoever knows it
//! ([`Api::with_metrics`](crate::Api::with_metrics)): counters, the store's own.
//!
//! Invariant: no label ever holds anything that a caller sent.

use tollgate::{BreakerState, Health, Mode, Policy, Store};
use tollgate_telemetry::MetricKind::{Counter, Gauge};
use tollgate_telemetry::{Exposition, MAX_NAMED_LIMITS};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::Modes;
use crate::reply::{Reply, metrics};

impl<S: Store> Inner<S> {
    pub(crate) fn measure(&self) -> Reply {
        let mut out = String::with_capacity(2048);
        let limiter = self.limiter.load();
        let mut to = Exposition::new(&mut out);
        write_store(&mut to, &limiter.health());
        write_modes(&mut to, limiter.policy(), &self.mode_overrides().modes());
        self.append_metrics(&mut out);
        metrics(out)
    }
}

fn write_store(to: &mut Exposition<'_>, health: &Health) {
    let is_open = health.breaker != BreakerState::Closed;
    let help = "Whether the store answered when last asked.";
    to.one("tollgate_store_up", Gauge, help, u8::from(health.answers));
    to.one("tollgate_store_breaker_open", Gauge, "Whether the store is left alone.", u8::from(is_open));
    let help = "Questions that the store gave no answer to.";
    to.one("tollgate_store_failures_total", Counter, help, health.failures);
    let help = "How often the store was given up for a while.";
    to.one("tollgate_breaker_opened_total", Counter, help, health.opened);
    let help = "Decisions without the store, by the on_outage rule that decided.";
    to.family("tollgate_degraded_decisions_total", Counter, help)
        .value(&[("rule", "local")], health.degraded.local)
        .value(&[("rule", "allow")], health.degraded.allow)
        .value(&[("rule", "deny")], health.degraded.deny);
    let help = "Keys to be charged to the store for what they spent in an outage.";
    to.one("tollgate_ledger_keys", Gauge, help, health.ledger_keys);
    let help = "Units charged to the store after an outage.";
    to.one("tollgate_replayed_units_total", Counter, help, health.replayed_units);
    let help = "Charges of an outage that the store may never have got.";
    to.one("tollgate_ledger_lost_total", Counter, help, health.lost_entries);
}

/// What is in force, and what was switched by hand. Limits beyond so many have no series of
/// their own, as in whatever is counted.
fn write_modes(to: &mut Exposition<'_>, policy: &Policy, modes: &Modes) {
    let limits = || policy.limits().iter().take(MAX_NAMED_LIMITS);
    let help =
        "What everything is switched to: 1 for that mode. At enforce, each limit is as it says itself.";
    let mut family = to.family("tollgate_mode", Gauge, help);
    for any in [Mode::Enforce, Mode::Shadow, Mode::Off] {
        family.value(&[("mode", mode(any))], u8::from(modes.everything() == any));
    }
    let mut family =
        to.family("tollgate_limit_mode", Gauge, "The mode in force of each limit: 1 for that mode.");
    for limit in limits() {
        family.value(&[("limit", limit.name()), ("mode", mode(limit.mode()))], 1);
    }
    let help = "Whether a limit was switched by hand, and not taken back.";
    let mut family = to.family("tollgate_limit_switched", Gauge, help);
    for limit in limits() {
        family.value(&[("limit", limit.name())], u8::from(modes.is_switched(limit.name())));
    }
}
