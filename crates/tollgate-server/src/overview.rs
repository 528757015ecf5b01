//! `GET /v1/overview`: the health of the server in one response.

use http::request::Parts;
use tollgate::policy::KeyPrivacy;
use tollgate::{BreakerState, Limit, Limiter, Span, Store, Timestamp};
use tollgate_api::{
    Alert, Latency, LimitQueue, MAX_QUEUES, Outage, Overview, PolicyInForce, RecordLog, RefusalLog, Series,
    StoreInFull, Tarpit, Totals, Window,
};
use tollgate_telemetry::{self as telemetry, Counts, ExhaustedKey, Watcher, WindowCounts};

use crate::access::Role;
use crate::api::Inner;
use crate::decision_view::mode;
use crate::decisions::millis;
use crate::gauges::Gauges;
use crate::learned_limits::learned_limits;
use crate::lease_view::leases;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::shed_view;
use crate::status::{date, tag};

fn totals(counts: Counts) -> Totals {
    let Counts { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded, shed } = counts;
    Totals { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded, shed }
}

fn window(series: &telemetry::Series) -> Window {
    let WindowCounts { from, allowed, refused, shadow_limited, degraded } = series.window;
    Window { from, until: series.until, allowed, refused, shadow_limited, degraded }
}

fn seconds(series: telemetry::Series) -> Series {
    let telemetry::Series { until, allowed, refused, shadow_limited, degraded, .. } = series;
    let [allowed, refused, shadow_limited, degraded] =
        [allowed, refused, shadow_limited, degraded].map(widened);
    Series { step_s: 1, until, allowed, refused, shadow_limited, degraded }
}

/// Returns the counts of steps as numbers of the API.
pub(crate) fn widened(counts: Vec<u32>) -> Vec<u64> {
    counts.into_iter().map(u64::from).collect()
}

fn alert(alert: &ExhaustedKey, now: Timestamp) -> Alert {
    Alert {
        limit: alert.limit.to_string(),
        key: alert.key.to_string(),
        tag: tag(alert.tag),
        since: date(alert.since),
        for_s: now.since(alert.since).as_micros() / 1_000_000,
        refused: alert.refused,
    }
}

fn record_log(records: &tollgate_records::RecordLog) -> RecordLog {
    let (status, settings) = (records.status(), records.settings());
    RecordLog {
        since: status.oldest.map(date),
        counted_since: records.history_since().map(date),
        decisions: status.records,
        bytes: status.bytes,
        max_bytes: settings.max_bytes,
        keep_s: settings.keep.as_secs_ceil(),
        dropped: status.dropped,
        error: status.failure,
    }
}

pub(crate) const fn privacy(privacy: KeyPrivacy) -> &'static str {
    match privacy {
        KeyPrivacy::Plain => "plain",
        KeyPrivacy::Hashed => "hashed",
        KeyPrivacy::Truncated => "truncated",
    }
}

/// Returns the limits with a queue, those with the most requests that wait first.
fn queues<S>(limiter: &Limiter<S>, watcher: Option<&Watcher>, now: Timestamp) -> Vec<LimitQueue> {
    let view = |limit: &Limit| watcher?.queue(limit.name(), now);
    let queue = |limit: &Limit, waiting, waits: Option<[Span; 2]>| LimitQueue {
        limit: limit.name().to_owned(),
        waiting,
        wait_p50_ms: waits.map(|[median, _]| millis(median)),
        wait_p99_ms: waits.map(|[_, high]| millis(high)),
    };
    let of_rate = |limit: &Limit| {
        let of_rate = view(limit).filter(|_| limit.slot_queue().is_none())?;
        Some(queue(limit, of_rate.waiting, of_rate.waits))
    };
    let mut queues: Vec<_> = limiter.policy().limits().iter().filter_map(of_rate).collect();
    // The number of requests in line is known without telemetry.
    let of_slots =
        |(limit, waiting): (&Limit, usize)| queue(limit, waiting as u64, view(limit).and_then(|it| it.waits));
    queues.extend(limiter.slot_queues().map(of_slots));
    queues.sort_by_key(|it| std::cmp::Reverse(it.waiting));
    queues.truncate(MAX_QUEUES);
    queues
}

impl<S: Store> Inner<S> {
    pub(crate) fn overview(&self, parts: &Parts, role: Role) -> Result<Reply, Problem> {
        Query::none(parts.uri.query())?;
        let (now, limiter, watcher) = (self.now(), self.limiter.load(), self.watcher.get());
        let (health, gauges, modes) = (limiter.health(), self.gauges(), self.mode_overrides().modes());
        self.outages.notice(&health, now);
        let (loaded_at, reload_error) = self.status.loading();
        let Gauges {
            store,
            keys,
            evictions,
            tarpit_waiting,
            tarpit_most,
            log_suppressed,
            throttled_upstreams,
        } = gauges;
        let nothing =
            telemetry::Series { until: now.as_micros() / 1_000_000, ..telemetry::Series::default() };
        if let Some(watcher) = watcher {
            watcher.tick(now);
        }
        let series = watcher.map_or(nothing, Watcher::series);
        let outages = self.outages.list().into_iter();
        let overview = Overview {
            now: date(now),
            started_at: date(self.since()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role.word().to_owned(),
            observing: watcher.is_some(),
            policy: PolicyInForce {
                version: limiter.version(),
                loaded_at,
                reload_error,
                limits: limiter.policy().limits().len() as u64,
                switched: modes.switched().count() as u64,
                privacy: privacy(limiter.policy().privacy()).to_owned(),
            },
            mode: mode(modes.everything()).to_owned(),
            store: StoreInFull {
                kind: store.to_owned(),
                breaker: match health.breaker {
                    BreakerState::Closed => "closed",
                    BreakerState::HalfOpen => "half-open",
                    _ => "open",
                }
                .to_owned(),
                health: self.status.store(&health),
                nodes: limiter.nodes() as u64,
                keys,
                evictions,
                outages: outages.map(|it| Outage { from: date(it.from), to: it.to.map(date) }).collect(),
            },
            totals: totals(watcher.map(Watcher::totals).unwrap_or_default()),
            window: Some(window(&series)),
            series: seconds(series),
            latency_us: watcher.and_then(Watcher::latency).map(|spans| {
                let [p50, p90, p99] = spans.map(tollgate::Span::as_micros);
                Latency { p50, p90, p99 }
            }),
            alerts: watcher
                .map(|it| it.alerts(now).iter().map(|it| alert(it, now)).collect())
                .unwrap_or_default(),
            at_zero_for_s: watcher.map(|it| it.at_zero_for().as_micros() / 1_000_000),
            shed: shed_view::shedders(&limiter, &modes, watcher, throttled_upstreams),
            adaptive: learned_limits(&limiter, &modes),
            tarpit: Tarpit { waiting: tarpit_waiting, most: tarpit_most },
            queues: queues(&limiter, watcher, now),
            leases: leases(&limiter, self.secret()),
            log: RefusalLog { suppressed: log_suppressed },
            records: self.records.get().map(record_log),
        };
        Ok(json_of(&overview))
    }
}
