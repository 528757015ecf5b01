//! Caches the constant parts of the IETF headers: quoted limit names and the value of
//! `RateLimit-Policy`.
//!
//! Quoting and validating them for each response would cost more than counting. Each thread keeps
//! the texts of recently used sets of limits in a small table. A replaced policy evicts the old
//! entries.

use std::cell::RefCell;
use std::ops::Range;

use http::HeaderValue;
use smallvec::SmallVec;
use tollgate::{LimitOutcome, MAX_UNITS, Quota, Timestamp};

use super::advertised;

/// The number of sets of limits that a thread caches: a power of two.
const CACHE_SLOTS: usize = 64;

/// The constant header text of a set of limits.
pub(super) struct CachedHeader {
    /// The limits of the set, to detect collisions in the table.
    rules: SmallVec<[(u64, Quota, Box<str>); 4]>,
    /// The period in which the numbers are valid: calendar windows differ in length.
    valid: Range<Timestamp>,
    policy: HeaderValue,
    members: SmallVec<[Member; 4]>,
}

/// The text of a limit before its remaining units, `"name";r=`, after a separator for all limits but the
/// first, and the `q` that the units must not exceed.
pub(super) type Member = (Box<[u8]>, u64);

thread_local! {
    static CACHE: RefCell<[Option<CachedHeader>; CACHE_SLOTS]> = const { RefCell::new([const { None }; CACHE_SLOTS]) };
}

/// Calls `then` with the cached text for the listed limits of a decision.
pub(super) fn with_words<T>(
    listed: &[LimitOutcome<'_>],
    at: Timestamp,
    then: impl FnOnce(&CachedHeader) -> T,
) -> T {
    let mixed = listed.iter().fold(0u64, |mixed, limit| mixed.rotate_left(5) ^ limit.rule().id.0);
    // The high bits depend on all low bits.
    let place = (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % CACHE_SLOTS;
    CACHE.with_borrow_mut(|table| {
        let slot = &mut table[place];
        match slot {
            Some(words) if words.are_about(listed, at) => then(words),
            _ => then(slot.insert(CachedHeader::about(listed, at))),
        }
    })
}

impl CachedHeader {
    fn are_about(&self, listed: &[LimitOutcome<'_>], at: Timestamp) -> bool {
        self.valid.contains(&at)
            && self.rules.len() == listed.len()
            && self.rules.iter().zip(listed).all(|((id, quota, name), limit)| {
                let rule = limit.rule();
                // Rules with the same ID can have different quotas (`tollgate_core::Rule`).
                *id == rule.id.0 && *quota == rule.quota && **name == *limit.name()
            })
    }

    fn about(listed: &[LimitOutcome<'_>], at: Timestamp) -> Self {
        let mut valid = Timestamp::EPOCH..Timestamp::from_micros(u64::MAX);
        let mut policy = Vec::new();
        let mut members = SmallVec::new();
        for limit in listed {
            let separator: &[u8] = if policy.is_empty() { b"" } else { b", " };
            policy.extend_from_slice(separator);
            quote(&mut policy, limit.name());
            policy.extend_from_slice(b";q=");
            let quota = if let Some(rate) = advertised(limit, at) {
                number(&mut policy, rate.units);
                policy.extend_from_slice(b";w=");
                number(&mut policy, rate.seconds);
                valid = valid.start.max(rate.valid.start)..valid.end.min(rate.valid.end);
                rate.units
            } else {
                number(&mut policy, limit.outcome().limit);
                policy.extend_from_slice(b";qu=\"concurrent-requests\"");
                limit.outcome().limit
            };
            members.push((member(separator, limit), quota.min(MAX_UNITS)));
        }
        Self {
            rules: listed
                .iter()
                .map(|limit| (limit.rule().id.0, limit.rule().quota.clone(), limit.name().into()))
                .collect(),
            valid,
            // Quoted names are printable, so the conversion succeeds.
            policy: HeaderValue::try_from(policy).unwrap_or_else(|_| HeaderValue::from_static("")),
            members,
        }
    }

    pub(super) const fn policy(&self) -> &HeaderValue {
        &self.policy
    }

    /// Returns the texts of the listed limits, in their order.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }
}

fn member(separator: &[u8], limit: &LimitOutcome<'_>) -> Box<[u8]> {
    let mut member = separator.to_vec();
    quote(&mut member, limit.name());
    member.extend_from_slice(b";r=");
    member.into()
}

/// Appends a string of a structured field (RFC 9651, 3.3.3). Policies restrict names to safe
/// characters; rules that are built in code may have any name.
fn quote(line: &mut Vec<u8>, text: &str) {
    line.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', byte]),
            b' '..=b'~' => line.push(byte),
            _ => line.push(b'?'),
        }
    }
    line.push(b'"');
}

fn number(line: &mut Vec<u8>, number: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(number.min(MAX_UNITS)).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_inside_their_quotes() {
        let mut line = Vec::new();
        quote(&mut line, "a\"b\\c\r\nSet-Cookie: x=1\u{e9}\u{7f}");
        line.extend_from_slice(b";q=");
        number(&mut line, u64::MAX);
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text, r#""a\"b\\c??Set-Cookie: x=1???";q=999999999999999"#);
        assert_eq!(sfv::Parser::new(&text).parse::<sfv::List>().unwrap().len(), 1);
    }
}
