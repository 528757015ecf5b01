//! The limits with a learned number of slots, as the API shows them.

use std::time::Duration;

use tollgate::{AdaptiveSummary, Limiter};
use tollgate_api::{ExceededBy, LearnedLimit, MAX_LEARNED_LIMITS};

use crate::decision_view::mode;
use crate::mode_overrides::Modes;

/// Returns the limits with a learned number of slots, those with the most requests in flight first.
pub(crate) fn learned_limits<S>(limiter: &Limiter<S>, modes: &Modes) -> Vec<LearnedLimit> {
    let mut limits: Vec<_> = limiter.adaptive_summaries().iter().map(|it| learned_limit(it, modes)).collect();
    limits.sort_by_key(|it| std::cmp::Reverse(it.in_flight));
    limits.truncate(MAX_LEARNED_LIMITS);
    limits
}

fn learned_limit(summary: &AdaptiveSummary<'_>, modes: &Modes) -> LearnedLimit {
    let micros = |it: Duration| u64::try_from(it.as_micros()).unwrap_or(u64::MAX);
    LearnedLimit {
        limit: summary.limit.name().to_owned(),
        mode: mode(summary.limit.mode()).to_owned(),
        switch: modes.switch_of(summary.limit.name()).word().to_owned(),
        keys: summary.keys as u64,
        slots: summary.slots,
        in_flight: summary.in_flight,
        latency_us: summary.latency.map(micros),
        baseline_us: summary.baseline.map(micros),
        exceeded: summary
            .exceeded
            .iter()
            .map(|it| ExceededBy {
                priority: it.priority.map(|class| class.name().to_owned()),
                requests: it.requests,
            })
            .collect(),
    }
}
