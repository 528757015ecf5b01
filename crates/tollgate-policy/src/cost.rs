//! The cost of a request: the amount reserved on arrival, and the final amount.
//!
//! The syntax is in `file_format::limit::cost`; `tollgate_http` reads the final cost from
//! responses.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use tollgate_core::Span;

use crate::lookup::members;
use crate::request::Request;

/// The cost that is charged when a request arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A fixed number of units.
    Fixed(u64),
    /// The number in this request header. A request without a valid number costs one, and no
    /// request costs less, so omitting or garbling the header is never cheaper. Of several
    /// numbers the largest counts.
    Header(Box<str>),
    /// One unit per started block of this many bytes of the body. A request that does not state
    /// the length of its body costs one.
    Body(NonZeroU64),
}

impl Cost {
    /// Returns the cost where there is no request: a cost that depends on the request is one.
    pub(crate) const fn without_request(&self) -> u64 {
        if let Self::Fixed(cost) = self { *cost } else { 1 }
    }

    #[inline(always)]
    pub(crate) fn of<R: Request + ?Sized>(&self, request: &R) -> u64 {
        if let Self::Fixed(cost) = self { *cost } else { self.read(request) }
    }

    /// Reads a cost that depends on the request.
    #[inline(never)]
    fn read<R: Request + ?Sized>(&self, request: &R) -> u64 {
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

/// Formats the cost in the syntax of the policy file.
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

/// The source of the final cost of a request, which replaces the cost charged on arrival.
///
/// The upstream service reports the final cost, or Tollgate measures it. No part of it comes from
/// the client.
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
    /// A header or trailer of the response that holds a whole number.
    Response(Arc<str>),
    /// A number in the JSON body of the response, by the names of the members that lead to it.
    Json(Arc<[Box<str>]>),
    /// One unit per started interval of this length, until the last byte of the response.
    Time(Span),
}

/// Formats the source in the syntax of the policy file.
impl fmt::Display for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(name) => write!(f, "response:{name}"),
            Self::Json(path) => write!(f, "json:{}", path.join(".")),
            Self::Time(each) => write!(f, "time:{each}"),
        }
    }
}

/// Parses a number that consists of digits only. Larger numbers saturate at `u64::MAX`.
pub fn whole_units(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: u64, digit: &u8| sum.saturating_mul(10).saturating_add(u64::from(digit - b'0'));
    Some(digits.iter().fold(0, add))
}
