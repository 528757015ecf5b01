//! `GET /v1/stats` and `GET /v1/top`: counts of each limit, the keys refused most and the routes
//! requested most, in the last five minutes.
//!
//! The response covers all limits, because an operator looks for outliers. It includes the series of a
//! limit only if the limit is requested by name.

use std::collections::HashSet;

use http::request::Parts;
use serde::Serialize;
use tollgate::{Limit, Policy, Store, Timestamp};
use tollgate_telemetry::{LimitCounts, LimitSeries, Watcher};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::Modes;
use crate::problem::Problem;
use crate::query::Query;
use crate::reply::{Reply, json_of};
use crate::status::{date, tag};

/// The length of a step in seconds.
const STEP_SECS: u64 = 5;
/// The number of steps in a series.
const SERIES_STEPS: u64 = 60;
/// The maximum number of limits with a series.
pub(crate) const MAX_SERIES_LIMITS: usize = 100;
/// The default number of keys and routes.
const DEFAULT_TOP: u64 = 20;
/// The maximum number of keys and routes.
pub(crate) const MAX_TOP: u64 = 500;

#[derive(Serialize)]
struct StatsResponse<'p> {
    window_s: u64,
    from: u64,
    step_s: u64,
    until: u64,
    limits: Vec<LimitStatsView<'p>>,
}

#[derive(Serialize)]
struct LimitStatsView<'p> {
    name: &'p str,
    mode: &'static str,
    policy_mode: &'static str,
    candidate_of: Option<&'p str>,
    /// Whether the limit is counted separately; the fields below are null otherwise.
    counted: bool,
    allowed: Option<u64>,
    limited: Option<u64>,
    shadow_limited: Option<u64>,
    blocked: Option<u64>,
    exhausted: Option<u64>,
    soft: Option<u64>,
    degraded: Option<u64>,
    /// The smallest share that any key had left.
    remaining_min: Option<f64>,
    total: Option<TotalsView>,
    agreement: Option<AgreementView>,
    series: Option<SeriesView>,
}

#[derive(Serialize)]
struct TotalsView {
    allowed: u64,
    limited: u64,
    shadow_limited: u64,
}

#[derive(Serialize)]
struct AgreementView {
    /// The time since which both limits have their current rules and decide; null before the first
    /// decision.
    since: Option<String>,
    both_allow: u64,
    only_candidate_allows: u64,
    only_live_allows: u64,
    both_refuse: u64,
}

#[derive(Serialize)]
struct SeriesView {
    allowed: Vec<u32>,
    limited: Vec<u32>,
    remaining: Vec<Option<f64>>,
}

impl AgreementView {
    fn of(counts: &LimitCounts, since: Option<Timestamp>) -> Self {
        let [both_allow, only_candidate_allows, only_live_allows, both_refuse] = counts.agreement;
        let since = since.and_then(date);
        Self { since, both_allow, only_candidate_allows, only_live_allows, both_refuse }
    }
}

impl From<LimitSeries> for SeriesView {
    fn from(series: LimitSeries) -> Self {
        let remaining = series.remaining.into_iter().map(|it| it.map(share)).collect();
        Self { allowed: series.allowed, limited: series.limited, remaining }
    }
}

fn share(per_mille: u16) -> f64 {
    f64::from(per_mille) / 1000.0
}

impl<'p> LimitStatsView<'p> {
    fn of(limit: &'p Limit, policy: &'p Policy, modes: &Modes, watcher: &Watcher, in_steps: bool) -> Self {
        let name = limit.name();
        let (window, total) = (watcher.limit_window(name), watcher.limit_totals(name));
        let (window, total) = (window.as_ref(), total.as_ref());
        let counts = window.map(|window| &window.counts);
        let candidate_of = live_beside(limit, policy);
        Self {
            name,
            mode: mode(limit.mode()),
            policy_mode: mode(modes.policy_mode(name).unwrap_or(limit.mode())),
            candidate_of,
            counted: counts.is_some(),
            allowed: counts.map(|it| it.allowed),
            limited: counts.map(|it| it.limited),
            shadow_limited: counts.map(|it| it.shadow_limited),
            blocked: counts.map(|it| it.blocked),
            exhausted: counts.map(|it| it.exhausted),
            soft: counts.map(|it| it.soft),
            degraded: counts.map(|it| it.degraded),
            remaining_min: window.and_then(|it| it.remaining_min).map(share),
            total: total.map(|it| TotalsView {
                allowed: it.allowed,
                limited: it.limited,
                shadow_limited: it.shadow_limited,
            }),
            agreement: candidate_of
                .and(total)
                .map(|counts| AgreementView::of(counts, watcher.agreement_since(name))),
            series: if in_steps { watcher.limit_series(name).map(SeriesView::from) } else { None },
        }
    }
}

/// Returns the name of the live limit of a candidate.
pub(crate) fn live_beside<'p>(limit: &Limit, policy: &'p Policy) -> Option<&'p str> {
    policy.limits().get(limit.candidate_of()?).map(Limit::name)
}

#[derive(Serialize)]
struct TopResponse {
    window_s: u64,
    from: u64,
    keys: Vec<KeyView>,
    routes: Vec<RouteView>,
    error_at_most: u64,
    routes_error_at_most: u64,
}

#[derive(Serialize)]
struct KeyView {
    limit: String,
    key: String,
    tag: String,
    refused: u64,
    refused_at_least: u64,
    /// The share of all refusals by limits in the window.
    share: f64,
}

#[derive(Serialize)]
struct RouteView {
    method: String,
    path: String,
    requests: u64,
    requests_at_least: u64,
    refused: u64,
}

impl<S: Store> Inner<S> {
    pub(crate) fn stats(&self, asked: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(asked.uri.query(), &["limit"])?;
        let (watcher, limiter) = (self.watching()?, self.limiter.load());
        let (policy, modes) = (limiter.policy(), self.mode_overrides().modes());
        let named = query.all("limit").count();
        if named > MAX_SERIES_LIMITS {
            return Err(Problem::senseless(format!(
                "`limit` may be given at most {MAX_SERIES_LIMITS} times, and these are {named}"
            )));
        }
        let in_steps: HashSet<&str> = query.all("limit").collect();
        watcher.tick(self.now());
        let series = watcher.series();
        // An unknown name is omitted, because the limit may have just been removed.
        let told = StatsResponse {
            window_s: STEP_SECS * SERIES_STEPS,
            from: series.window.from,
            step_s: STEP_SECS,
            until: series.until,
            limits: policy
                .limits()
                .iter()
                .map(|limit| {
                    LimitStatsView::of(limit, policy, &modes, watcher, in_steps.contains(limit.name()))
                })
                .collect(),
        };
        Ok(json_of(&told))
    }

    #[allow(clippy::cast_precision_loss, reason = "a share of counts, for people")]
    pub(crate) fn top(&self, asked: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(asked.uri.query(), &["most"])?;
        let most = query.number("most", 1, MAX_TOP)?.unwrap_or(DEFAULT_TOP);
        let top = self.watching()?.top(self.now(), usize::try_from(most).unwrap_or(usize::MAX));
        let all = top.refused.max(1) as f64;
        let keys = top.keys.iter().map(|key| KeyView {
            limit: key.limit.to_string(),
            key: key.key.to_string(),
            tag: tag(key.tag),
            refused: key.refused,
            refused_at_least: key.refused_at_least,
            share: (key.refused as f64 / all * 10_000.0).round() / 10_000.0,
        });
        let routes = top.routes.iter().map(|route| RouteView {
            method: route.method.to_string(),
            path: route.path.to_string(),
            requests: route.requests,
            requests_at_least: route.requests_at_least,
            refused: route.refused,
        });
        Ok(json_of(&TopResponse {
            window_s: top.window.as_micros() / 1_000_000,
            from: top.from,
            keys: keys.collect(),
            routes: routes.collect(),
            error_at_most: top.error_at_most,
            routes_error_at_most: top.routes_error_at_most,
        }))
    }
}
