//! `GET /v1/history`: counts of the last hours and days, from the decision log.

use http::request::Parts;
use tollgate::{Span, Store};
use tollgate_api::{History, MAX_HISTORY_STEPS};
use tollgate_records::MinuteCounts;

use crate::api::Inner;
use crate::problem::Problem;
use crate::query::{Query, point_in_time};
use crate::reply::{Reply, json_of};

/// The default stretch.
const DEFAULT_SPAN: Span = Span::from_hours(24);
/// The default number of steps.
const DEFAULT_STEPS: u64 = 180;

impl<S: Store> Inner<S> {
    pub(crate) fn history(&self, parts: &Parts) -> Result<Reply, Problem> {
        let query = Query::of(parts.uri.query(), &["since", "steps"])?;
        let now = self.now();
        let since = point_in_time(&query, "since", now)?.unwrap_or_else(|| now.before(DEFAULT_SPAN));
        let steps = query.number("steps", 1, MAX_HISTORY_STEPS)?.unwrap_or(DEFAULT_STEPS);
        let Some(records) = self.records.get() else {
            return Err(Problem::conflict(
                "there is no history of hours and days: it is kept with `records: {dir: …}` in the policy file",
            ));
        };
        // Records are not kept for longer.
        let since = since.max(now.before(records.settings().keep)).min(now);
        let history = records.history(since..=now, usize::try_from(steps).unwrap_or(1));
        let of = |count: fn(&MinuteCounts) -> u64| history.steps.iter().map(count).collect();
        Ok(json_of(&History {
            from: history.from.as_micros() / 1_000_000,
            until: now.as_micros() / 1_000_000,
            step_s: history.step.as_secs_ceil(),
            allowed: of(|it| it.allowed),
            refused: of(|it| it.refused),
            shadow_limited: of(|it| it.shadow_limited),
            degraded: of(|it| it.degraded),
        }))
    }
}
