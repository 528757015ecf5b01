//! Which limit the headers with room for one limit describe: `X-RateLimit-*`, the fields of
//! draft 6 and the dialects.
//!
//! | answer | limit |
//! |---|---|
//! | refused | the limit that refused, of several the one with the longest wait |
//! | admitted | the first of the policy's `headers.describe` that applied, else the rate closest to refusing |
//!
//! Slots are not described on an admitted answer unless `describe` names them: "4 of 5 left" says
//! nothing about how many requests may still come today. `RateLimit` lists them.
//!
//! A caller counts requests and tokens separately, so dialects ask for the limit of one kind
//! ([`of_kind`]).

use tollgate::policy::{Cost, HeaderSettings, Limit};
use tollgate::{Decision, Fate, LimitOutcome, Quota};

use super::limiting;

/// What the units of a limit are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each request is one unit.
    Requests,
    /// A request costs what it says, what its body is long or what its answer turns out to cost.
    Cost,
    /// Requests at the same time.
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

/// The limit that the headers describe.
pub(super) fn described<'d>(
    decision: &'d Decision<'_>,
    settings: &HeaderSettings,
) -> Option<LimitOutcome<'d>> {
    if decision.fate() == Fate::Refused {
        return limiting(decision);
    }
    named(decision, settings).or_else(|| decision.closest_among(|it| Kind::of(it) != Kind::Slots))
}

/// The first limit of `headers.describe` that applied.
fn named<'d>(decision: &'d Decision<'_>, settings: &HeaderSettings) -> Option<LimitOutcome<'d>> {
    let mut names = settings.describe.iter();
    names.find_map(|name| decision.closest_among(|it| *it.limit().name() == **name))
}

/// Whether a refusal is of the caller's main quota, and that quota is used up: `primary` in the
/// words of GitHub, where slots and shorter rates beside it are `secondary`.
///
/// The main quota is the limit that the policy names, else the rate with the longest window.
pub(crate) fn is_primary(decision: &Decision<'_>, settings: &HeaderSettings) -> bool {
    let (Some(refusing), Some(at)) = (limiting(decision), decision.wall_at()) else { return false };
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

/// The limit of one kind to describe beside the described one. Slots that refused are requests
/// too many, for dialects that know no slots.
pub(super) fn of_kind<'d>(
    kind: Kind,
    decision: &'d Decision<'_>,
    described: LimitOutcome<'d>,
) -> Option<LimitOutcome<'d>> {
    let own = Kind::of(&described);
    if own == kind || (own == Kind::Slots && kind == Kind::Requests) {
        return Some(described);
    }
    decision.closest_among(|it| Kind::of(it) == kind)
}
