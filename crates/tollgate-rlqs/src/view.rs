//! The streams and buckets of a node, in the shapes of the API.

use std::collections::BTreeMap;

use tollgate::{Mode, Timestamp};
use tollgate_api::{MAX_QUOTA_BUCKETS, Quota, QuotaBucket, QuotaStream, Quotas};

use crate::bucket::{Bucket, Seat};
use crate::division::DemandRate;
use crate::registry::{BucketKey, Registry};
use crate::terms::Terms;

const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

const fn demanded(seat: &Seat) -> u64 {
    match seat.demand_rate {
        DemandRate::Known(demand_rate) => demand_rate,
        DemandRate::Unknown => 0,
    }
}

/// Returns the view of a node.
pub(crate) fn view(registry: &Registry, now: Timestamp) -> Quotas {
    let mut top: Vec<_> = registry.buckets.iter().map(|(key, it)| (demand_of(it), key, it)).collect();
    top.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    let shown = top.iter().take(MAX_QUOTA_BUCKETS);
    Quotas {
        streams: registry.streams.len() as u64,
        buckets: registry.buckets.len() as u64,
        place: registry.shares.place(),
        degraded: registry.shares.is_degraded,
        quotas: limits(registry).into_values().collect(),
        top: shown.map(|(_, key, bucket)| bucket_view(registry, key, bucket, now)).collect(),
    }
}

fn demand_of(bucket: &Bucket) -> u64 {
    bucket.seats.iter().map(demanded).fold(0, u64::saturating_add)
}

/// Returns the sums of each limit.
pub(crate) fn limits(registry: &Registry) -> BTreeMap<&str, Quota> {
    let mut found: BTreeMap<&str, Quota> = BTreeMap::new();
    for (limit, counts) in &registry.limits {
        let view = found.entry(limit).or_default();
        view.limit = limit.to_string();
        (view.allowed, view.denied, view.overshoot) = (counts.allowed, counts.denied, counts.overshoot);
    }
    for bucket in registry.buckets.values() {
        let Some(terms) = &bucket.terms else { continue };
        let view = found.entry(&terms.limit).or_default();
        view.limit = terms.limit.to_string();
        (view.mode, view.rate) = (mode_word(terms.mode).to_owned(), terms.per_second(terms.tokens));
        view.buckets += 1;
        view.streams += bucket.seats.len() as u64;
        view.assigned += terms.per_second(assigned_of(bucket));
        view.demanded += terms.per_second(demand_of(bucket));
    }
    found
}

fn assigned_of(bucket: &Bucket) -> u64 {
    bucket.seats.iter().map(|it| it.assigned).sum()
}

fn bucket_view(registry: &Registry, key: &BucketKey, bucket: &Bucket, now: Timestamp) -> QuotaBucket {
    let terms = bucket.terms.as_ref();
    let rate = |tokens: u64| terms.map_or(0.0, |terms: &Terms| terms.per_second(tokens));
    let stream = |seat: &Seat| QuotaStream {
        stream: seat.stream,
        age_seconds: registry
            .streams
            .get(&seat.stream)
            .map_or(0, |it| now.since(it.opened_at).as_micros() / 1_000_000),
        assigned: rate(seat.assigned),
        demanded: (seat.demand_rate != DemandRate::Unknown).then(|| rate(demanded(seat))),
        allowed: seat.allowed,
        denied: seat.denied,
    };
    QuotaBucket {
        limit: terms.map(|it| it.limit.to_string()),
        domain: key.domain.to_string(),
        bucket: key.id.to_string(),
        budget: rate(registry.shares.budget(bucket, now)),
        assigned: rate(assigned_of(bucket)),
        demanded: rate(demand_of(bucket)),
        streams: bucket.seats.iter().take(MAX_QUOTA_BUCKETS).map(stream).collect(),
    }
}
