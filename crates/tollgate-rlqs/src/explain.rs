//! Explains a bucket: why each proxy has its part of the limit.

use tollgate::{Mode, Timestamp};
use tollgate_api::ExplainedBucket;

use crate::bucket::{Bucket, SLACK_PARTS, Seat};
use crate::division::{self, DemandRate};
use crate::registry::{BucketKey, Registry};
use crate::view::{bucket_view, demanded, envoys, mode_word, shown};
use crate::wire::BucketId;

/// The maximum number of proxies and of other buckets that an explanation names.
const MAX_NAMED: usize = 20;

/// Finds a bucket by its entries as they are shown (`name=search, tenant=acme`, in any order), in one domain or in the
/// only one that has it. An error says what to do.
pub(crate) fn explain(
    registry: &Registry,
    domain: Option<&str>,
    entries: &str,
    now: Timestamp,
) -> Result<ExplainedBucket, String> {
    let id = BucketId::new(entries.split(',').map(str::trim).filter_map(|it| it.split_once('=')));
    let is_meant = |key: &BucketKey| key.id == id || key.id.to_string() == entries;
    let is_in_domain = |key: &BucketKey| domain.is_none_or(|domain| *key.domain == *domain);
    let mut found: Vec<_> =
        registry.buckets.iter().filter(|(key, _)| is_meant(key) && is_in_domain(key)).collect();
    found.sort_by_key(|(key, _)| *key);
    match found[..] {
        [(key, bucket)] => Ok(explained(registry, key, bucket, now)),
        [] => Err(unknown(registry)),
        _ => {
            let domains: Vec<_> =
                found.iter().take(MAX_NAMED).map(|(key, _)| format!("`{}`", key.domain)).collect();
            Err(format!("several domains have this bucket; give the `domain`: {}", domains.join(", ")))
        }
    }
}

fn unknown(registry: &Registry) -> String {
    let mut known: Vec<_> = registry.buckets.keys().collect();
    known.sort();
    let names: Vec<_> = known.iter().take(3).map(|key| format!("`{}` in `{}`", key.id, key.domain)).collect();
    if names.is_empty() {
        "no proxy reports a bucket to this node".to_owned()
    } else {
        format!("no proxy reports this bucket to this node; some that are reported: {}", names.join(", "))
    }
}

fn explained(registry: &Registry, key: &BucketKey, bucket: &Bucket, now: Timestamp) -> ExplainedBucket {
    let view = bucket_view(registry, key, bucket, now);
    let sum = |of: fn(&Seat) -> u64| bucket.seats.iter().map(of).fold(0, u64::saturating_add);
    ExplainedBucket {
        summary: view.summary.clone(),
        bucket: view,
        mode: bucket.terms.as_ref().map(|it| mode_word(it.mode).to_owned()),
        rate: bucket.terms.as_ref().map_or(0.0, |it| it.per_second(it.tokens)),
        allowed: sum(|seat| seat.allowed),
        denied: sum(|seat| seat.denied),
        overshoot: bucket.overshoot,
        arithmetic: arithmetic(registry, bucket, now),
    }
}

fn arithmetic(registry: &Registry, bucket: &Bucket, now: Timestamp) -> Vec<String> {
    let Some(terms) = &bucket.terms else {
        return vec![
            "no limit has a `rlqs` with these entries, so Envoy is told to let all requests pass".to_owned(),
        ];
    };
    let rate = |tokens| shown(terms.per_second(tokens));
    let mut lines = vec![format!("limit `{}`: {} for this bucket", terms.limit, rate(terms.tokens))];
    if terms.mode != Mode::Enforce {
        let mode = mode_word(terms.mode);
        lines.push(format!("its mode is {mode}, so Envoy is told to let all requests pass"));
        return lines;
    }
    let budget = registry.shares.budget(bucket, now);
    if budget != terms.tokens {
        lines.push(match (registry.shares.place(), registry.shares.is_degraded) {
            (_, true) => format!(
                "this node may assign {}: the store gives no answer, and its last share holds",
                rate(budget)
            ),
            (Some(place), _) => {
                format!(
                    "this node may assign {}: its share by requested_rate among the nodes, at place {place}",
                    rate(budget)
                )
            }
            (None, _) => {
                format!("this node may assign {}: it has no place among the nodes yet", rate(budget))
            }
        });
    }
    let reserve = division::reserve(budget);
    let demands: Vec<_> = bucket.seats.iter().map(|it| it.demand_rate).collect();
    let requested_rate = bucket.seats.iter().map(demanded).fold(0, u64::saturating_add);
    let fits = requested_rate <= budget - reserve;
    lines.push(format!(
        "{} requested {}; {} is kept for newcomers, and the rest is {}",
        envoys(bucket.seats.len() as u64),
        rate(requested_rate),
        rate(reserve),
        if fits { "enough for all of them" } else { "divided max-min fair" }
    ));
    let targets = division::targets(budget, &demands, true);
    let slack = budget / SLACK_PARTS;
    for (seat, target) in bucket.seats.iter().zip(targets).take(MAX_NAMED) {
        lines.push(seat_line(seat, target.saturating_sub(slack), &rate, now));
    }
    if bucket.seats.len() > MAX_NAMED {
        lines.push(format!("and {} more", bucket.seats.len() - MAX_NAMED));
    }
    let (left, seconds) = bucket.left_behind(now);
    if left > 0 {
        lines.push(format!(
            "{} is held for Envoys whose streams have ended, for at most {seconds} s: they may still use it",
            rate(left)
        ));
    }
    lines
}

/// Explains the assignment of one proxy.
fn seat_line(seat: &Seat, target: u64, rate: &impl Fn(u64) -> String, now: Timestamp) -> String {
    let assigned = rate(seat.assigned);
    let why = match seat.demand_rate {
        DemandRate::Unknown => "its rate is not known yet, so it has the part of a newcomer".to_owned(),
        DemandRate::Known(requested_rate) if requested_rate <= seat.assigned => {
            format!("it asks for {}, and has room for more", rate(requested_rate))
        }
        DemandRate::Known(requested_rate) if seat.assigned < target => {
            format!(
                "it asks for {}, and is raised to about {} when others have given it up",
                rate(requested_rate),
                rate(target)
            )
        }
        DemandRate::Known(requested_rate) => {
            format!("it asks for {}, more than its fair share", rate(requested_rate))
        }
    };
    let lowered = match seat.may_still_use(now) {
        Some((old, seconds)) => {
            format!(
                "; it was lowered, and may use {} until it reports again, for at most {seconds} s",
                rate(old)
            )
        }
        None => String::new(),
    };
    let reported = format!("reported {} allowed and {} denied", seat.allowed, seat.denied);
    format!("Envoy {}: assigned {assigned}; {why}; {reported}{lowered}", seat.stream)
}
