//! Metrics of learned limits and of throttled upstreams.
//!
//! Keys are never labels. A limit with several keys shows sums over its keys, and the latencies of the key
//! with the most requests in flight.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{AdaptiveSummary, Exceeded};
use tollgate_gateway::ThrottleCounts;
use tollgate_server::ThrottledUpstream;
use tollgate_telemetry::Exposition;
use tollgate_telemetry::MetricKind::{Counter, Gauge};

/// Returns the counts of throttled upstreams.
pub(crate) type ThrottleSource = Arc<dyn Fn() -> Vec<ThrottleCounts> + Send + Sync>;

/// The label of requests without a priority class.
const NO_CLASS: &str = "none";

/// Writes the metrics of limits with a learned number of slots.
pub(crate) fn write_adaptive(limits: &[AdaptiveSummary<'_>], to: &mut Exposition<'_>) {
    if limits.is_empty() {
        return;
    }
    let mut gauge = |name: &'static str, help: &'static str, value: fn(&AdaptiveSummary<'_>) -> u64| {
        let mut family = to.family(name, Gauge, help);
        for limit in limits {
            family.value(&[("limit", limit.limit.name())], value(limit));
        }
    };
    gauge("tollgate_adaptive_slots", "The learned number of slots, over all keys of the limit.", |it| {
        it.slots
    });
    gauge("tollgate_adaptive_in_flight", "Requests in flight, over all keys of the limit.", |it| {
        it.in_flight
    });
    gauge("tollgate_adaptive_keys", "Keys with a learned number of slots.", |it| it.keys as u64);
    let mut seconds =
        |name: &'static str, help: &'static str, value: fn(&AdaptiveSummary<'_>) -> Option<Duration>| {
            let mut family = to.family(name, Gauge, help);
            for limit in limits {
                if let Some(time) = value(limit) {
                    family.value(&[("limit", limit.limit.name())], time.as_secs_f64());
                }
            }
        };
    let help =
        "The measured latency of the service without waiting, of the key with the most requests in flight.";
    seconds("tollgate_adaptive_baseline_seconds", help, |it| it.baseline);
    let help = "The mean latency in the last window, of the key with the most requests in flight.";
    seconds("tollgate_adaptive_latency_seconds", help, |it| it.latency);
    let help = "Requests beyond the learned number of slots: refused, or only counted in shadow mode.";
    let mut family = to.family("tollgate_adaptive_exceeded_total", Counter, help);
    for limit in limits {
        for Exceeded { priority, requests, .. } in &limit.exceeded {
            let class = priority.map_or(NO_CLASS, |it| it.name());
            family.value(&[("limit", limit.limit.name()), ("priority", class)], *requests);
        }
    }
}

/// Returns the throttling of an upstream, as the API shows it.
pub(crate) fn throttled_upstream(counts: ThrottleCounts) -> ThrottledUpstream {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share is 0 to 1")]
    let share_percent = (counts.share * 100.0) as u64;
    let ThrottleCounts { upstream, refused, shadow_refused, .. } = counts;
    ThrottledUpstream { upstream, share_percent, refused, shadow_refused }
}

/// Writes the metrics of throttled upstreams.
pub(crate) fn write_throttle(upstreams: &[ThrottleCounts], to: &mut Exposition<'_>) {
    if upstreams.is_empty() {
        return;
    }
    let help = "Requests that were not sent because the upstream rejects most requests, or would not have been in shadow mode.";
    let mut family = to.family("tollgate_upstream_throttled_total", Counter, help);
    for it in upstreams {
        family
            .value(&[("upstream", &it.upstream), ("mode", "enforce")], it.refused)
            .value(&[("upstream", &it.upstream), ("mode", "shadow")], it.shadow_refused);
    }
    let help = "The share of requests that are not sent because the upstream rejects most requests.";
    let mut family = to.family("tollgate_upstream_throttle_ratio", Gauge, help);
    for it in upstreams {
        family.value(&[("upstream", &it.upstream)], it.share);
    }
}
