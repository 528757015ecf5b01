//! `RateLimit` and `RateLimit-Policy`, as structured fields (RFC 9651).
//!
//! Draft 11 lists every limit that applied under its name: its quota `q` and
//! window `w` in the policy, what is left `r` and for how long that holds `t` in
//! the other. Draft 6 has three plain headers (`triple`) and a policy without
//! names. Limits in shadow mode decide nothing and are not spoken of. No name comes twice.
//!
//! Windows are whole seconds above zero, so short ones are rounded up: a client
//! that believes them sends less than it may, never more.
//!
//! Not here: `pk`, which would show who shares an allowance with whom.

mod remembered;

use http::HeaderName;
use tollgate::{Decision, LimitOutcome, Quota};

use super::{Sheet, until_change};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;

pub(super) fn write_draft_11(sheet: &mut Sheet, decision: &Decision<'_>) {
    remembered::with_words(decision, |words| {
        sheet.ready_for(&RATELIMIT_POLICY, words.policy());
        for (at, limit) in spoken_of(decision).enumerate() {
            if at > 0 {
                sheet.raw(", ");
            }
            sheet.bytes(words.member(at));
            sheet.number(limit.outcome().remaining.min(MOST));
            if !has_slots(&limit) {
                sheet.raw(";t=");
                sheet.number(until_change(&limit).as_secs_ceil().min(MOST));
            }
        }
        sheet.end(&RATELIMIT);
    });
}

/// Limits in shadow mode bind nobody. Where several requests were decided together, a name still
/// stands for one policy: whose state matters most speaks for it.
fn spoken_of<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = LimitOutcome<'d>> {
    let several = decision.limits().any(|limit| limit.part() > 0);
    let binding = || decision.limits().filter(LimitOutcome::is_binding);
    binding().enumerate().filter_map(move |(at, limit)| {
        let order = |at: usize, limit: &LimitOutcome<'_>| {
            (limit.outcome().is_admitted(), limit.outcome().remaining, at)
        };
        let own = order(at, &limit);
        let matters_less = several
            && binding()
                .enumerate()
                .any(|(at, other)| other.name() == limit.name() && order(at, &other) < own);
        (!matters_less).then_some(limit)
    })
}

/// Slots come back when requests end: there is no window, and no time to tell.
fn has_slots(limit: &LimitOutcome<'_>) -> bool {
    matches!(limit.rule().quota, Quota::Concurrency(_))
}

/// The policy of drafts 4 to 6. A window is required there, and no two may have
/// the same quota: the first stands for those that follow.
pub(super) fn write_draft_6_policy(sheet: &mut Sheet, decision: &Decision<'_>) {
    let windows = || spoken_of(decision).filter(|limit| !has_slots(limit));
    let mut list = List(sheet);
    for (index, limit) in windows().enumerate() {
        let quota = limit.outcome().limit;
        if windows().take(index).all(|earlier| earlier.outcome().limit != quota) {
            list.integer(quota);
            list.parameter(";w=", window(&limit));
        }
    }
    list.0.end(&RATELIMIT_POLICY);
}

fn window(limit: &LimitOutcome<'_>) -> u64 {
    limit.rule().quota.period().as_secs_ceil().max(1)
}

/// A list of a structured field, as it grows.
struct List<'s>(&'s mut Sheet);

impl List<'_> {
    /// A new member.
    fn integer(&mut self, value: u64) {
        if !self.0.is_blank() {
            self.0.raw(", ");
        }
        self.0.number(value.min(MOST));
    }

    /// A parameter of the last member.
    #[inline]
    fn parameter(&mut self, key: &str, value: u64) {
        self.0.raw(key);
        self.0.number(value.min(MOST));
    }
}
