//! `RateLimit` and `RateLimit-Policy`, as structured fields (RFC 9651).
//!
//! Draft 11 lists every limit that applied under its name: its quota `q` and
//! window `w` in the policy, what is left `r` and for how long that holds `t` in
//! the other. Draft 6 has three plain headers (`triple`) and a policy without
//! names. Limits in shadow mode decide nothing and are not spoken of. No name comes twice.
//!
//! `q` over `w` is the rate that the limit sustains, in whole seconds (`Quota::advertised`);
//! of a calendar window, `w` is the length of the present one. No `r` is above its `q`.
//!
//! Not here: `pk`, which would show who shares an allowance with whom.

mod cache;

use http::HeaderName;
use tollgate::{AdvertisedRate, Decision, LimitOutcome, MAX_UNITS, Quota, Timestamp};

use super::{HeaderWriter, until_change};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

pub(super) fn write_draft_11(writer: &mut HeaderWriter, decision: &Decision<'_>, at: Timestamp) {
    cache::with_words(decision, at, |words| {
        writer.ready_for(&RATELIMIT_POLICY, words.policy());
        for (index, limit) in spoken_of(decision).enumerate() {
            if index > 0 {
                writer.raw(", ");
            }
            let (member, quota) = words.member(index);
            writer.bytes(member);
            writer.number(limit.outcome().remaining.min(quota));
            if !has_slots(&limit) {
                writer.raw(";t=");
                writer.number(until_change(&limit).as_secs_ceil().min(MAX_UNITS));
            }
        }
        writer.end(&RATELIMIT);
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
pub(super) fn write_draft_6_policy(writer: &mut HeaderWriter, decision: &Decision<'_>, at: Timestamp) {
    let rates = || spoken_of(decision).filter_map(|limit| advertised(&limit, at));
    let mut list = List(writer);
    for (index, rate) in rates().enumerate() {
        if rates().take(index).all(|earlier| earlier.units != rate.units) {
            list.integer(rate.units);
            list.parameter(";w=", rate.seconds);
        }
    }
    list.0.end(&RATELIMIT_POLICY);
}

fn advertised(limit: &LimitOutcome<'_>, at: Timestamp) -> Option<AdvertisedRate> {
    limit.rule().quota.advertised(at)
}

/// A list of a structured field, as it grows.
struct List<'s>(&'s mut HeaderWriter);

impl List<'_> {
    /// A new member.
    fn integer(&mut self, value: u64) {
        if !self.0.is_blank() {
            self.0.raw(", ");
        }
        self.0.number(value.min(MAX_UNITS));
    }

    /// A parameter of the last member.
    #[inline]
    fn parameter(&mut self, key: &str, value: u64) {
        self.0.raw(key);
        self.0.number(value.min(MAX_UNITS));
    }
}
