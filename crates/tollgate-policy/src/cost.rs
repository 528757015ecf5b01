//! What a request costs: what is taken when it comes, and what it turns out to have cost.
//!
//! Not here: how the two are written (`file_format::limit::cost`), and finding what an answer
//! says (`tollgate_http`).

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_core::Span;

use crate::lookup::members;
use crate::request::Request;

/// What is taken when a request comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always this much.
    Fixed(u64),
    /// What this header says. Without a number in it the request costs one, and
    /// never less: saying nothing, or nonsense, must not be cheaper. Of several numbers the
    /// largest counts.
    Header(Box<str>),
    /// One for each so many bytes of its body that are begun. A request that does not say
    /// how long its body is costs one.
    Body(NonZeroU64),
}

impl Cost {
    pub(crate) fn of<R: Request + ?Sized>(&self, request: &R) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header(name) => {
                let mut cost = 1;
                let mut visit = |line: &[u8]| {
                    let numbers = members(line).chain([line.trim_ascii()]).filter_map(whole_units);
                    cost = numbers.fold(cost, u64::max);
                };
                request.visit_header(name, &mut visit);
                request.visit_lookalikes(name, &mut visit);
                cost
            }
            Self::Body(each) => request.body_length().map_or(1, |length| length.div_ceil(each.get()).max(1)),
        }
    }
}

/// As a file has it.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(cost) => write!(f, "{cost}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Body(each) => {
                let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
                let whole = units.iter().find(|(_, shift)| each.get().trailing_zeros() >= *shift);
                let (unit, shift) = whole.copied().unwrap_or(("", 0));
                write!(f, "body:{}{unit}", each.get() >> shift)
            }
        }
    }
}

/// Where it is found what a request cost in the end. It replaces what was taken when it came.
///
/// All of it is said by the service behind, or measured here. Nothing is said by the client.
///
/// ```
/// # use tollgate_policy::{Policy, Settle};
/// let policy = Policy::parse("
/// limits:
///   - by: user
///     bucket: 100_000/minute
///     cost: {reserve: 500, settle: json:usage.total_tokens}
/// ")?;
/// let limit = &policy.limits()[0];
/// assert_eq!(limit.settle().map(ToString::to_string).as_deref(), Some("json:usage.total_tokens"));
/// # Ok::<(), tollgate_policy::Diagnostics>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settle {
    /// A header of the answer, or a trailer: a whole number.
    Response(Arc<str>),
    /// A number in the answer's JSON, by the names of the members that lead to it.
    Json(Arc<[Box<str>]>),
    /// One for each so much time that is begun until the answer's last byte.
    Time(Span),
}

/// As a file has it.
impl fmt::Display for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(name) => write!(f, "response:{name}"),
            Self::Json(path) => write!(f, "json:{}", path.join(".")),
            Self::Time(each) => write!(f, "time:{each}"),
        }
    }
}

/// Digits, and nothing else. More than can be counted is the most that can.
pub fn whole_units(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}
