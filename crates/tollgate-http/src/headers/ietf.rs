//! `RateLimit` and `RateLimit-Policy` as structured fields (RFC 9651).
//!
//! Draft 11 lists every limit that applied by name: `RateLimit-Policy` has its quota `q` and window
//! `w`, `RateLimit` has the remaining units `r` and the time until they change `t`. Draft 6 has
//! three plain headers (`triple`) and a policy without names. Limits in shadow mode and shedders, which are
//! no quota of the caller, are not listed.
//! Each name is listed once.
//!
//! `q` over `w` is the sustained rate of the limit, in whole seconds (`Quota::advertised`). For a
//! calendar window, `w` is the length of the current window. `r` never exceeds `q`.
//!
//! Not here: `pk`, which would reveal which callers share an allowance.

mod cache;

use std::cmp::Reverse;

use http::HeaderName;
use tollgate::{AdvertisedRate, Decision, LimitOutcome, MAX_UNITS, Outcome, Quota, Timestamp};

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

/// Iterates over the listed limits, without limits in shadow mode and shedders. If a name was counted several
/// times, the outcome closest to refusing represents it.
fn spoken_of<'d>(decision: &'d Decision<'_>) -> impl Iterator<Item = LimitOutcome<'d>> {
    let repeats = decision.repeats_limits();
    let binding = || decision.limits().filter(|it| it.is_binding() && !it.limit().is_shed());
    binding().enumerate().filter_map(move |(at, limit)| {
        let order = |at: usize, limit: &LimitOutcome<'_>| {
            let Outcome { remaining, .. } = *limit.outcome();
            (limit.outcome().is_admitted(), remaining, Reverse(until_change(limit)), at)
        };
        let matters_less = repeats && {
            let own = order(at, &limit);
            let mut others = binding().enumerate().filter(|(_, other)| other.name() == limit.name());
            others.any(|(at, other)| order(at, &other) < own)
        };
        (!matters_less).then_some(limit)
    })
}

/// Whether the limit counts slots. Slots have no window and no known reset time.
fn has_slots(limit: &LimitOutcome<'_>) -> bool {
    matches!(limit.rule().quota, Quota::Concurrency(_))
}

/// Writes the policy of drafts 4 to 6. It requires a window and unique quotas: of several limits
/// with the same quota, the first is listed.
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

/// A list of a structured field under construction.
struct List<'s>(&'s mut HeaderWriter);

impl List<'_> {
    /// Adds a member.
    fn integer(&mut self, value: u64) {
        if !self.0.is_blank() {
            self.0.raw(", ");
        }
        self.0.number(value.min(MAX_UNITS));
    }

    /// Adds a parameter to the last member.
    #[inline]
    fn parameter(&mut self, key: &str, value: u64) {
        self.0.raw(key);
        self.0.number(value.min(MAX_UNITS));
    }
}
