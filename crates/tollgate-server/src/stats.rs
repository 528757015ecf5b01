//! `GET /v1/stats` and `GET /v1/top`: counts of each limit, the keys refused most and the routes
//! requested most, in the last five minutes.
//!
//! The response covers all limits, because an operator looks for outliers. It includes the series of a
//! limit only if the limit is requested by name.

use std::borrow::Cow;
use std::collections::HashSet;

use http::request::Parts;
use tollgate::{Limit, Policy, Store, Timestamp};
use tollgate_api::{Agreement, HotRoute, LimitSeries, LimitStats, LimitTotals, Stats, Top, TopKey};
use tollgate_telemetry::{self as telemetry, LimitCounts, Watcher};

use crate::api::Inner;
use crate::decision_view::mode;
use crate::mode_overrides::Modes;
use crate::overview::widened;
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

fn agreement<'p>(counts: &LimitCounts, since: Option<Timestamp>) -> Agreement<Cow<'p, str>> {
    let [both_allow, only_candidate_allows, only_live_allows, both_refuse] = counts.agreement;
    let since = since.map(|since| date(since).into());
    Agreement { since, both_allow, only_candidate_allows, only_live_allows, both_refuse }
}

fn steps(series: telemetry::LimitSeries) -> LimitSeries {
    let telemetry::LimitSeries { allowed, limited, remaining, .. } = series;
    let remaining = remaining.into_iter().map(|it| it.map(share)).collect();
    LimitSeries { allowed: widened(allowed), limited: widened(limited), remaining }
}

fn share(per_mille: u16) -> f64 {
    f64::from(per_mille) / 1000.0
}

fn limit_stats<'p>(
    limit: &'p Limit,
    policy: &'p Policy,
    modes: &Modes,
    watcher: &Watcher,
    in_steps: bool,
) -> LimitStats<Cow<'p, str>> {
    let name = limit.name();
    let (window, total) = (watcher.limit_window(name), watcher.limit_totals(name));
    let (window, total) = (window.as_ref(), total.as_ref());
    let counts = window.map(|window| &window.counts);
    let candidate_of = live_beside(limit, policy);
    LimitStats {
        name: name.into(),
        mode: mode(limit.mode()).into(),
        policy_mode: mode(modes.policy_mode(name).unwrap_or(limit.mode())).into(),
        candidate_of: candidate_of.map(Cow::Borrowed),
        counted: counts.is_some(),
        allowed: counts.map(|it| it.allowed),
        limited: counts.map(|it| it.limited),
        shadow_limited: counts.map(|it| it.shadow_limited),
        blocked: counts.map(|it| it.blocked),
        exhausted: counts.map(|it| it.exhausted),
        soft: counts.map(|it| it.soft),
        degraded: counts.map(|it| it.degraded),
        remaining_min: window.and_then(|it| it.remaining_min).map(share),
        total: total.map(|it| LimitTotals {
            allowed: it.allowed,
            limited: it.limited,
            shadow_limited: it.shadow_limited,
        }),
        agreement: candidate_of.and(total).map(|counts| agreement(counts, watcher.agreement_since(name))),
        series: if in_steps { watcher.limit_series(name).map(steps) } else { None },
    }
}

/// Returns the name of the live limit of a candidate.
pub(crate) fn live_beside<'p>(limit: &Limit, policy: &'p Policy) -> Option<&'p str> {
    policy.limits().get(limit.candidate_of()?).map(Limit::name)
}

impl<S: Store> Inner<S> {
    pub(crate) fn stats(&self, parts: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(parts.uri.query(), &["limit"])?;
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
        Ok(json_of(&Stats {
            window_s: STEP_SECS * SERIES_STEPS,
            from: series.window.from,
            step_s: STEP_SECS,
            until: series.until,
            limits: policy
                .limits()
                .iter()
                .map(|limit| limit_stats(limit, policy, &modes, watcher, in_steps.contains(limit.name())))
                .collect(),
        }))
    }

    #[allow(clippy::cast_precision_loss, reason = "a share of counts, for people")]
    pub(crate) fn top(&self, parts: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(parts.uri.query(), &["most"])?;
        let most = query.number("most", 1, MAX_TOP)?.unwrap_or(DEFAULT_TOP);
        let top = self.watching()?.top(self.now(), usize::try_from(most).unwrap_or(usize::MAX));
        let all = top.refused.max(1) as f64;
        let keys = top.keys.iter().map(|key| TopKey {
            limit: key.limit.to_string(),
            key: key.key.to_string(),
            tag: tag(key.tag),
            refused: key.refused,
            refused_at_least: key.refused_at_least,
            share: (key.refused as f64 / all * 10_000.0).round() / 10_000.0,
        });
        let routes = top.routes.iter().map(|route| HotRoute {
            method: route.method.to_string(),
            path: route.path.to_string(),
            requests: route.requests,
            requests_at_least: Some(route.requests_at_least),
            refused: route.refused,
        });
        Ok(json_of(&Top {
            window_s: top.window.as_micros() / 1_000_000,
            from: top.from,
            keys: keys.collect(),
            routes: routes.collect(),
            error_at_most: top.error_at_most,
            routes_error_at_most: top.routes_error_at_most,
        }))
    }
}
