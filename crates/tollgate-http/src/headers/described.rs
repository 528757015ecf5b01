//! Selects the limit for headers with room for one limit: `X-RateLimit-*`, the fields of draft 6
//! and the dialects.
//!
//! | response | limit |
//! |---|---|
//! | refused | the limit that refused; among several, the limit with the longest wait |
//! | shed | as for an admitted response: shedders are no quota of the caller |
//! | admitted | the first limit of the policy's `headers.describe` that applied, else the rate closest to refusing |
//!
//! An admitted response describes slots only if `describe` names them: "4 of 5 left" does not tell
//! how many requests may still come today. `RateLimit` lists slots in either case.
//!
//! Callers budget requests and tokens separately, so dialects ask for the limit of one kind
//! ([`of_kind`]).

use tollgate::policy::{Cost, HeaderSettings, Limit};
use tollgate::{Decision, Fate, LimitOutcome, Quota};

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each request costs one unit.
    Requests,
    /// Requests have a cost: a stated cost, the body length, or a cost settled by the response.
    Cost,
    /// Concurrent requests.
    Slots,
}

impl Kind {
    pub(crate) fn of(limit: &LimitOutcome<'_>) -> Self {
        if matches!(limit.rule().quota, Quota::Concurrency(_)) {
            Self::Slots
        } else if counts_requests(limit.limit()) {
            Self::Requests
        } else {
            Self::Cost
        }
    }
}

fn counts_requests(limit: &Limit) -> bool {
    matches!(limit.cost(), Cost::Fixed(1)) && limit.settle().is_none()
}

/// Returns the limit that the headers describe.
pub(super) fn described<'d>(
    decision: &'d Decision<'_>,
    settings: &HeaderSettings,
) -> Option<LimitOutcome<'d>> {
    if matches!(decision.fate(), Fate::Refused)
        && let Some(limiting) = decision.limiting().filter(|it| !it.limit().is_shed())
    {
        return Some(limiting);
    }
    let is_rate = |it: &LimitOutcome<'_>| Kind::of(it) != Kind::Slots && !it.limit().is_shed();
    named(decision, settings).or_else(|| decision.closest_among(is_rate))
}

/// Returns the first limit of `headers.describe` that applied.
fn named<'d>(decision: &'d Decision<'_>, settings: &HeaderSettings) -> Option<LimitOutcome<'d>> {
    let mut names = settings.describe.iter();
    names.find_map(|name| decision.closest_among(|it| *it.limit().name() == **name))
}

/// Whether the main quota of the caller refused and is used up: `primary` in GitHub's terms. GitHub
/// calls slots and shorter rates `secondary`.
///
/// The main quota is the limit that the policy names, else the rate with the longest window.
pub(crate) fn is_primary(decision: &Decision<'_>, settings: &HeaderSettings) -> bool {
    let (Some(refusing), Some(at)) = (decision.limiting(), decision.wall_at()) else { return false };
    if Kind::of(&refusing) == Kind::Slots || refusing.outcome().remaining > 0 {
        return false;
    }
    if let Some(main) = named(decision, settings) {
        return main.limit().name() == refusing.limit().name();
    }
    let seconds = |it: &LimitOutcome<'_>| it.rule().quota.advertised(at).map(|rate| rate.seconds);
    let longest = decision.limits().filter(LimitOutcome::is_binding).filter_map(|it| seconds(&it)).max();
    seconds(&refusing) >= longest
}

/// Returns the limit of one kind to describe in addition to the described limit. Dialects without
/// slots report a refusal by slots as too many requests.
pub(super) fn of_kind<'d>(
    kind: Kind,
    decision: &'d Decision<'_>,
    described: LimitOutcome<'d>,
) -> Option<LimitOutcome<'d>> {
    let own = Kind::of(&described);
    if own == kind || (own == Kind::Slots && kind == Kind::Requests) {
        return Some(described);
    }
    decision.closest_among(|it| Kind::of(it) == kind && !it.limit().is_shed())
}
