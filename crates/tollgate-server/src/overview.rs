//! `GET /v1/overview`: the health of the server in one response.

use http::request::Parts;
use serde::Serialize;
use tollgate::policy::KeyPrivacy;
use tollgate::{BreakerState, Store, Timestamp};
use tollgate_telemetry::{Counts, ExhaustedKey, Series, Watcher, WindowCounts};

use crate::access::Role;
use crate::api::Inner;
use crate::decision_view::mode;
use crate::gauges::{Gauges, Outage};
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{StoreView, date, tag};

#[derive(Serialize)]
struct OverviewResponse {
    now: Option<String>,
    started_at: Option<String>,
    version: &'static str,
    role: Role,
    observing: bool,
    policy: PolicyView,
    mode: &'static str,
    store: StoreDetailView,
    totals: CountsView,
    window: WindowView,
    series: SeriesView,
    latency_us: Option<LatencyView>,
    alerts: Vec<AlertView>,
    /// The seconds after which an exhausted key becomes an alert.
    at_zero_for_s: Option<u64>,
    tarpit: TarpitView,
    log: LogView,
}

#[derive(Serialize)]
struct PolicyView {
    version: u64,
    loaded_at: Option<String>,
    reload_error: Option<String>,
    limits: usize,
    switched: usize,
    privacy: &'static str,
}

#[derive(Serialize)]
struct StoreDetailView {
    kind: &'static str,
    #[serde(flatten)]
    health: StoreView,
    breaker: &'static str,
    nodes: usize,
    keys: Option<u64>,
    evictions: Option<u64>,
    outages: Vec<OutageView>,
}

#[derive(Serialize)]
struct OutageView {
    from: Option<String>,
    to: Option<String>,
}

#[derive(Serialize)]
struct CountsView {
    allowed: u64,
    unlimited: u64,
    limited: u64,
    blocked: u64,
    uncountable: u64,
    shadow_limited: u64,
    degraded: u64,
}

/// The sums of the last five minutes, over the same window as in `/v1/stats` and `/v1/top`.
#[derive(Serialize)]
struct WindowView {
    from: u64,
    until: u64,
    allowed: u64,
    refused: u64,
    shadow_limited: u64,
    degraded: u64,
}

#[derive(Serialize)]
struct SeriesView {
    step_s: u32,
    until: u64,
    allowed: Vec<u32>,
    refused: Vec<u32>,
    shadow_limited: Vec<u32>,
    degraded: Vec<u32>,
}

#[derive(Serialize)]
struct LatencyView {
    p50: u64,
    p90: u64,
    p99: u64,
}

#[derive(Serialize)]
struct AlertView {
    limit: String,
    key: String,
    tag: String,
    since: Option<String>,
    for_s: u64,
    refused: u64,
}

#[derive(Serialize)]
struct TarpitView {
    waiting: u64,
    most: u64,
}

#[derive(Serialize)]
struct LogView {
    suppressed: u64,
}

impl From<Counts> for CountsView {
    fn from(counts: Counts) -> Self {
        let Counts { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded } = counts;
        Self { allowed, unlimited, limited, blocked, uncountable, shadow_limited, degraded }
    }
}

impl From<&Series> for WindowView {
    fn from(series: &Series) -> Self {
        let WindowCounts { from, allowed, refused, shadow_limited, degraded } = series.window;
        Self { from, until: series.until, allowed, refused, shadow_limited, degraded }
    }
}

impl From<Series> for SeriesView {
    fn from(series: Series) -> Self {
        let Series { until, allowed, refused, shadow_limited, degraded, .. } = series;
        Self { step_s: 1, until, allowed, refused, shadow_limited, degraded }
    }
}

impl AlertView {
    fn of(alert: &ExhaustedKey, now: Timestamp) -> Self {
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

impl From<Outage> for OutageView {
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
        let (health, gauges, modes) = (limiter.health(), self.gauges(), self.mode_overrides().modes());
        self.outages.notice(&health, now);
        let (loaded_at, reload_error) = self.status.loading();
        let Gauges { store, keys, evictions, tarpit_waiting, tarpit_most, log_suppressed } = gauges;
        let nothing = Series { until: now.as_micros() / 1_000_000, ..Series::default() };
        if let Some(watcher) = watcher {
            watcher.tick(now);
        }
        let series = watcher.map_or(nothing, Watcher::series);
        let told = OverviewResponse {
            now: date(now),
            started_at: date(self.since()),
            version: env!("CARGO_PKG_VERSION"),
            role,
            observing: watcher.is_some(),
            policy: PolicyView {
                version: limiter.version(),
                loaded_at,
                reload_error,
                limits: limiter.policy().limits().len(),
                switched: modes.switched().count(),
                privacy: privacy(limiter.policy().privacy()),
            },
            mode: mode(modes.everything()),
            store: StoreDetailView {
                kind: store,
                breaker: match health.breaker {
                    BreakerState::Closed => "closed",
                    BreakerState::HalfOpen => "half-open",
                    _ => "open",
                },
                health: self.status.store(&health),
                nodes: limiter.nodes(),
                keys,
                evictions,
                outages: self.outages.list().into_iter().map(OutageView::from).collect(),
            },
            totals: watcher.map(Watcher::totals).unwrap_or_default().into(),
            window: WindowView::from(&series),
            series: series.into(),
            latency_us: watcher.and_then(Watcher::latency).map(|spans| {
                let [p50, p90, p99] = spans.map(tollgate::Span::as_micros);
                LatencyView { p50, p90, p99 }
            }),
            alerts: watcher
                .map(|it| it.alerts(now).iter().map(|alert| AlertView::of(alert, now)).collect())
                .unwrap_or_default(),
            at_zero_for_s: watcher.map(|it| it.at_zero_for().as_micros() / 1_000_000),
            tarpit: TarpitView { waiting: tarpit_waiting, most: tarpit_most },
            log: LogView { suppressed: log_suppressed },
        };
        Ok(json_of(&told))
    }
}
