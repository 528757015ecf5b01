//! The streams and buckets of a node, in the shapes of the API.

use std::collections::BTreeMap;

use tollgate::{Mode, Timestamp};
use tollgate_api::{MAX_QUOTA_BUCKETS, Quota, QuotaBucket, QuotaStream, Quotas};

use crate::bucket::{Bucket, Seat};
use crate::division::DemandRate;
use crate::registry::{BucketKey, Registry};
use crate::terms::Terms;

pub(crate) const fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
        Mode::Off => "off",
    }
}

pub(crate) const fn demanded(seat: &Seat) -> u64 {
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
    for view in found.values_mut() {
        view.summary = limit_summary(view);
    }
    found
}

/// A rate for a sentence: whole above 10 a second.
pub(crate) fn shown(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") }
}

pub(crate) fn envoys(count: u64) -> String {
    format!("{count} Envoy{}", if count == 1 { "" } else { "s" })
}

fn limit_summary(quota: &Quota) -> String {
    let (assigned, demanded) = (shown(quota.assigned), shown(quota.demanded));
    let Quota { buckets, allowed, denied, overshoot, .. } = quota;
    let each = if *buckets > 1 { format!(" in each of {buckets} buckets") } else { String::new() };
    format!(
        "assigned {assigned} of {}{each}, demanded {demanded}, by {}; reported {allowed} allowed and {denied} \
         denied, {overshoot} above the limit",
        shown(quota.rate),
        envoys(quota.streams)
    )
}

fn assigned_of(bucket: &Bucket) -> u64 {
    bucket.seats.iter().map(|it| it.assigned).sum()
}

pub(crate) fn bucket_view(
    registry: &Registry,
    key: &BucketKey,
    bucket: &Bucket,
    now: Timestamp,
) -> QuotaBucket {
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
        summary: bucket_summary(registry, bucket, now),
        streams: bucket.seats.iter().take(MAX_QUOTA_BUCKETS).map(stream).collect(),
    }
}

fn bucket_summary(registry: &Registry, bucket: &Bucket, now: Timestamp) -> String {
    let count = envoys(bucket.seats.len() as u64);
    let Some(terms) = &bucket.terms else {
        return format!("no limit covers it: {count} let all requests pass");
    };
    let rate = |tokens| shown(terms.per_second(tokens));
    let (limit, budget) = (rate(terms.tokens), rate(registry.shares.budget(bucket, now)));
    let here = if limit == budget { String::new() } else { format!(" ({budget} on this node)") };
    let (assigned, demanded) = (rate(assigned_of(bucket)), rate(demand_of(bucket)));
    format!("assigned {assigned} of {limit}{here}, demanded {demanded}, by {count}")
}
