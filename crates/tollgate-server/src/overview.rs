//! `GET /v1/overview`: is everything all right? All that one look should tell.

use http::request::Parts;
use serde::Serialize;
use tollgate::policy::KeyPrivacy;
use tollgate::{BreakerState, Store, Timestamp};
use tollgate_watch::{AtZero, Counts, Series, Watcher, WindowCounts};

use crate::access::Role;
use crate::api::Inner;
use crate::gauges::{Gauges, Outage};
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{ToldStore, date, tag};
use crate::told::mode;

#[derive(Serialize)]
struct Told {
    now: Option<String>,
    started_at: Option<String>,
    version: &'static str,
    role: Role,
    observing: bool,
    policy: ToldPolicy,
    mode: &'static str,
    store: ToldStoreInFull,
    totals: ToldCounts,
    window: ToldWindow,
    series: ToldSeries,
    latency_us: Option<ToldLatency>,
    alerts: Vec<ToldAlert>,
    /// After how long a key that has nothing left is among them.
    at_zero_for_s: Option<u64>,
    tarpit: ToldTarpit,
    log: ToldLog,
}

#[derive(Serialize)]
struct ToldPolicy {
    version: u64,
    loaded_at: Option<String>,
    reload_error: Option<String>,
    limits: usize,
    switched: usize,
    privacy: &'static str,
}

#[derive(Serialize)]
struct ToldStoreInFull {
    kind: &'static str,
    #[serde(flatten)]
    health: ToldStore,
    breaker: &'static str,
    nodes: usize,
    keys: Option<u64>,
    evictions: Option<u64>,
    outages: Vec<ToldOutage>,
}

#[derive(Serialize)]
struct ToldOutage {
    from: Option<String>,
    to: Option<String>,
}

#[derive(Serialize)]
struct ToldCounts {
    allowed: u64,
    unlimited: u64,
    limited: u64,
    blocked: u64,
    uncountable: u64,
    shadow_limited: u64,
    degraded: u64,
}

/// The sums of the last five minutes, as `/v1/stats` and `/v1/top` count them.
#[derive(Serialize)]
struct ToldWindow {
    from: u64,
    until: u64,
    allowed: u64,
    refused: u64,
    shadow_limited: u64,
    degraded: u64,
}

#[derive(Serialize)]
struct ToldSeries {
    step_s: u32,
    until: u64,
    allowed: Vec<u32>,
    refused: Vec<u32>,
    shadow_limited: Vec<u32>,
    degraded: Vec<u32>,
}

#[derive(Serialize)]
struct ToldLatency {
    p50: u64,
    p90: u64,
    p99: u64,
}

#[derive(Serialize)]
struct ToldAlert {
    limit: String,
    key: String,
    tag: String,
    since: Option<String>,
    for_s: u64,
    refused: u64,
}

#[derive(Serialize)]
struct ToldTarpit {
    waiting: u64,
    most: u64,
}

#[derive(Serialize)]
struct ToldLog {
    suppressed: u64,
}

impl From<Counts> for ToldCounts {
    fn from(counts: Counts) -> Self {
        let Counts { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded } = counts;
        Self { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded }
    }
}

impl From<&Series> for ToldWindow {
    fn from(series: &Series) -> Self {
        let WindowCounts { from, allowed, refused, shadow_limited, degraded } = series.window;
        Self { from, until: series.until, allowed, refused, shadow_limited, degraded }
    }
}

impl From<Series> for ToldSeries {
    fn from(series: Series) -> Self {
        let Series { until, allowed, refused, shadow_limited, degraded, .. } = series;
        Self { step_s: 1, until, allowed, refused, shadow_limited, degraded }
    }
}

impl ToldAlert {
    fn of(alert: &AtZero, now: Timestamp) -> Self {
        Self {
            limit: alert.limit.to_string(),
            key: alert.key.to_string(),
            tag: tag(alert.tag),
            since: date(alert.since),
            for_s: now.since(alert.since).as_micros() / 1_000_000,
            refused: alert.refused,
        }
    }
}

impl From<Outage> for ToldOutage {
    fn from(outage: Outage) -> Self {
        Self { from: date(outage.from), to: outage.to.and_then(date) }
    }
}

pub(crate) const fn privacy(privacy: KeyPrivacy) -> &'static str {
    match privacy {
        KeyPrivacy::Plain => "plain",
        KeyPrivacy::Hashed => "hashed",
        KeyPrivacy::Truncated => "truncated",
    }
}

impl<S: Store> Inner<S> {
    pub(crate) fn overview(&self, asked: &Parts, role: Role) -> Result<Reply, Problem> {
        Query::none(asked.uri.query())?;
        let (now, limiter, watcher) = (self.now(), self.limiter.load(), self.watcher.get());
        let (health, gauges, modes) = (limiter.health(), self.gauges(), self.switchboard().modes());
        self.outages.notice(&health, now);
        let (loaded_at, reload_error) = self.status.loading();
        let Gauges { store, keys, evictions, tarpit_waiting, tarpit_most, log_suppressed } = gauges;
        let nothing = Series { until: now.as_micros() / 1_000_000, ..Series::default() };
        if let Some(watcher) = watcher {
            watcher.tick(now);
        }
        let series = watcher.map_or(nothing, Watcher::series);
        let told = Told {
            now: date(now),
            started_at: date(self.since()),
            version: env!("CARGO_PKG_VERSION"),
            role,
            observing: watcher.is_some(),
            policy: ToldPolicy {
                version: limiter.version(),
                loaded_at,
                reload_error,
                limits: limiter.policy().limits().len(),
                switched: modes.switched().count(),
                privacy: privacy(limiter.policy().privacy()),
            },
            mode: mode(modes.everything()),
            store: ToldStoreInFull {
                kind: store,
                breaker: match health.breaker {
                    BreakerState::Closed => "closed",
                    BreakerState::Open => "open",
                    BreakerState::HalfOpen => "half-open",
                },
                health: self.status.store(&health),
                nodes: limiter.store().nodes(),
                keys,
                evictions,
                outages: self.outages.list().into_iter().map(ToldOutage::from).collect(),
            },
            totals: watcher.map(Watcher::totals).unwrap_or_default().into(),
            window: ToldWindow::from(&series),
            series: series.into(),
            latency_us: watcher.and_then(Watcher::latency).map(|spans| {
                let [p50, p90, p99] = spans.map(tollgate::Span::as_micros);
                ToldLatency { p50, p90, p99 }
            }),
            alerts: watcher
                .map(|it| it.alerts(now).iter().map(|alert| ToldAlert::of(alert, now)).collect())
                .unwrap_or_default(),
            at_zero_for_s: watcher.map(|it| it.at_zero_for().as_micros() / 1_000_000),
            tarpit: ToldTarpit { waiting: tarpit_waiting, most: tarpit_most },
            log: ToldLog { suppressed: log_suppressed },
        };
        Ok(json_of(&told))
    }
}
