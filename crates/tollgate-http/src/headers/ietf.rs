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
use smallvec::SmallVec;
use tollgate::{AdvertisedRate, Decision, LimitOutcome, MAX_UNITS, Outcome, Quota, Timestamp};

use super::{HeaderWriter, until_change};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

pub(super) fn write_draft_11(writer: &mut HeaderWriter, decision: &Decision<'_>, at: Timestamp) {
    let listed = listed(decision);
    cache::with_words(&listed, at, |words| {
        writer.ready_for(&RATELIMIT_POLICY, words.policy());
        for (limit, (member, quota)) in listed.iter().zip(words.members()) {
            writer.bytes(member);
            writer.number(limit.outcome().remaining.min(*quota));
            if !has_slots(limit) {
                writer.raw(";t=");
                writer.number(until_change(limit).as_secs_ceil().min(MAX_UNITS));
            }
        }
        writer.end(&RATELIMIT);
    });
}

/// The limits that a response lists.
type Listed<'d> = SmallVec<[LimitOutcome<'d>; 8]>;

/// Returns the listed limits, without limits in shadow mode and shedders. If a name was counted several
/// times, the outcome closest to refusing represents it.
fn listed<'d>(decision: &'d Decision<'_>) -> Listed<'d> {
    let mut listed = Listed::new();
    for limit in decision.limits() {
        if limit.is_binding() && !limit.limit().is_shed() {
            listed.push(limit);
        }
    }
    if decision.repeats_limits() {
        remove_repeated(&mut listed);
    }
    listed
}

/// Keeps the outcome closest to refusing of each name.
#[cold]
fn remove_repeated(listed: &mut Listed<'_>) {
    let all = listed.clone();
    let order = |at: usize, limit: &LimitOutcome<'_>| {
        let Outcome { remaining, .. } = *limit.outcome();
        (limit.outcome().is_admitted(), remaining, Reverse(until_change(limit)), at)
    };
    let mut index = 0..;
    listed.retain(|limit| {
        let own = order(index.next().unwrap_or(usize::MAX), limit);
        let mut others = all.iter().enumerate().filter(|(_, other)| other.name() == limit.name());
        !others.any(|(at, other)| order(at, other) < own)
    });
}

/// Whether the limit counts slots. Slots have no window and no known reset time.
fn has_slots(limit: &LimitOutcome<'_>) -> bool {
    matches!(limit.rule().quota, Quota::Concurrency(_))
}

/// Writes the policy of drafts 4 to 6. It requires a window and unique quotas: of several limits
/// with the same quota, the first is listed.
pub(super) fn write_draft_6_policy(writer: &mut HeaderWriter, decision: &Decision<'_>, at: Timestamp) {
    let listed = listed(decision);
    let rates = || listed.iter().filter_map(|limit| advertised(limit, at));
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
