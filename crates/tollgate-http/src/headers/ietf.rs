//! `RateLimit` and `RateLimit-Policy`, as structured fields (RFC 9651).
//!
//! Draft 11 lists every limit that applied under its name: its quota `q` and
//! window `w` in the policy, what is left `r` and for how long that holds `t` in
//! the other. Draft 6 has three plain headers (`triple`) and a policy without
//! names. Limits in shadow mode decide nothing and are not spoken of.
//!
//! Windows are whole seconds above zero, so short ones are rounded up: a client
//! that believes them sends less than it may, never more.
//!
//! Not here: `pk`, which would show who shares an allowance with whom.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::{Decision, LimitOutcome, Quota};

use super::{put, until_change};

static RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
static RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The largest integer of a structured field.
const MOST: u64 = 999_999_999_999_999;

/// Room for one limit beside its name: two numbers of 15 digits and their keys.
const ROOM: usize = 48;

pub(super) fn write_draft_11(headers: &mut HeaderMap, decision: &Decision<'_>) {
    let spoken_of = || decision.limits().filter(LimitOutcome::is_binding);
    let room = spoken_of().map(|limit| limit.name().len() + ROOM).sum();
    let (mut policy, mut state) = (List::with_capacity(room), List::with_capacity(room));
    for limit in spoken_of() {
        policy.string(limit.name());
        policy.parameter("q", limit.outcome().limit);
        state.string(limit.name());
        state.parameter("r", limit.outcome().remaining);
        if matches!(limit.rule().quota, Quota::Concurrency(_)) {
            // Slots come back when requests end: there is no window, and no time to tell.
            policy.raw(";qu=\"concurrent-requests\"");
        } else {
            policy.parameter("w", window(&limit));
            state.parameter("t", until_change(&limit).as_secs_ceil());
        }
    }
    policy.write(headers, &RATELIMIT_POLICY);
    state.write(headers, &RATELIMIT);
}

/// The policy of drafts 4 to 6. A window is required there, and no two may have
/// the same quota: the first stands for those that follow.
pub(super) fn write_draft_6_policy(headers: &mut HeaderMap, decision: &Decision<'_>) {
    let windows = || {
        let has_window = |it: &LimitOutcome<'_>| !matches!(it.rule().quota, Quota::Concurrency(_));
        decision.limits().filter(move |limit| limit.is_binding() && has_window(limit))
    };
    let mut policy = List::with_capacity(windows().count() * ROOM);
    for (index, limit) in windows().enumerate() {
        let quota = limit.outcome().limit;
        if windows().take(index).all(|earlier| earlier.outcome().limit != quota) {
            policy.integer(quota);
            policy.parameter("w", window(&limit));
        }
    }
    policy.write(headers, &RATELIMIT_POLICY);
}

fn window(limit: &LimitOutcome<'_>) -> u64 {
    limit.rule().quota.period().as_secs_ceil().max(1)
}

/// A list of a structured field, as it grows.
struct List(Vec<u8>);

impl List {
    fn with_capacity(room: usize) -> Self {
        Self(Vec::with_capacity(room))
    }

    fn member(&mut self) {
        if !self.0.is_empty() {
            self.raw(", ");
        }
    }

    /// A new member. Policies allow only names that need no care; rules made by
    /// hand may be called anything.
    fn string(&mut self, text: &str) {
        self.member();
        self.raw("\"");
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => self.0.extend([b'\\', byte]),
                b' '..=b'~' => self.0.push(byte),
                _ => self.0.push(b'?'),
            }
        }
        self.raw("\"");
    }

    /// A new member.
    fn integer(&mut self, value: u64) {
        self.member();
        self.number(value);
    }

    /// A parameter of the last member.
    fn parameter(&mut self, key: &str, value: u64) {
        self.raw(";");
        self.raw(key);
        self.raw("=");
        self.number(value);
    }

    fn number(&mut self, value: u64) {
        self.raw(itoa::Buffer::new().format(value.min(MOST)));
    }

    fn raw(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// An empty list is no header (RFC 9651, 3.1).
    fn write(self, headers: &mut HeaderMap, name: &'static HeaderName) {
        if !self.0.is_empty()
            && let Ok(value) = HeaderValue::try_from(self.0)
        {
            put(headers, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_breaks_out_of_its_quotes() {
        let mut list = List::with_capacity(0);
        list.string("a\"b\\c\r\nSet-Cookie: x=1\u{e9}\u{7f}");
        list.parameter("q", u64::MAX);
        let text = String::from_utf8(list.0).unwrap();
        assert_eq!(text, r#""a\"b\\c??Set-Cookie: x=1???";q=999999999999999"#);
        let parsed = sfv::Parser::new(&text).parse::<sfv::List>().unwrap();
        assert_eq!(parsed.len(), 1);
    }
}
