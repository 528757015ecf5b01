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

use smallvec::SmallVec;
use tollgate::{AdvertisedRate, Decision, LimitOutcome, MAX_UNITS, Outcome, Quota, Timestamp};

use self::cache::CachedHeader;
use super::header_sink::{FieldName, HeaderSink};
use super::until_change;

static RATELIMIT: FieldName = FieldName::new("ratelimit: ");
static RATELIMIT_POLICY: FieldName = FieldName::new("ratelimit-policy: ");

/// The listed limits of a decision, with their constant texts.
pub(super) struct Draft11<'a, 'd> {
    listed: &'a [LimitOutcome<'d>],
    words: &'a CachedHeader,
}

impl Draft11<'_, '_> {
    /// Calls `then` with the listed limits.
    pub(super) fn with<T>(
        decision: &Decision<'_>,
        at: Timestamp,
        then: impl FnOnce(&Draft11<'_, '_>) -> T,
    ) -> T {
        let mut listed = Listed::new();
        list(decision, &mut listed);
        cache::with_words(&listed, at, |words| then(&Draft11 { listed: &listed, words }))
    }

    pub(super) fn write_policy(&self, sink: &mut impl HeaderSink) {
        sink.add(&RATELIMIT_POLICY, self.words.policy());
    }

    pub(super) fn write_limits(&self, sink: &mut impl HeaderSink) {
        sink.start(&RATELIMIT);
        for (limit, (member, quota)) in self.listed.iter().zip(self.words.members()) {
            sink.bytes(member);
            sink.number(limit.outcome().remaining.min(*quota));
            if !has_slots(limit) {
                sink.raw(";t=");
                sink.number(until_change(limit).as_secs_ceil().min(MAX_UNITS));
            }
        }
        sink.end();
    }
}

/// The limits that a response lists.
type Listed<'d> = SmallVec<[LimitOutcome<'d>; 8]>;

/// Adds the listed limits to a buffer, which is too large to be returned: all but limits in shadow mode and
/// shedders. If a name was counted several times, the outcome closest to refusing represents it.
fn list<'d>(decision: &'d Decision<'_>, listed: &mut Listed<'d>) {
    for limit in decision.limits() {
        if limit.is_binding() && !limit.limit().is_shed() {
            listed.push(limit);
        }
    }
    if decision.repeats_limits() {
        remove_repeated(listed);
    }
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
pub(super) fn write_draft_6_policy(sink: &mut impl HeaderSink, decision: &Decision<'_>, at: Timestamp) {
    let mut listed = Listed::new();
    list(decision, &mut listed);
    let rates = || listed.iter().filter_map(|limit| advertised(limit, at));
    sink.start(&RATELIMIT_POLICY);
    let mut list = List(sink);
    for (index, rate) in rates().enumerate() {
        if rates().take(index).all(|earlier| earlier.units != rate.units) {
            list.integer(rate.units);
            list.parameter(";w=", rate.seconds);
        }
    }
    list.0.end();
}

fn advertised(limit: &LimitOutcome<'_>, at: Timestamp) -> Option<AdvertisedRate> {
    limit.rule().quota.advertised(at)
}

/// A list of a structured field under construction.
struct List<'s, S>(&'s mut S);

impl<S: HeaderSink> List<'_, S> {
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
