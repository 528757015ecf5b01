//! How long a node may hold units of each rule.
//!
//! The store leaves the refill of two leases out of a burst, so a lease is short compared with the
//! time to fill: a fortieth by default, at most a tenth by hand.

use tollgate_core::{Quota, Span};
use tollgate_document::{Located, Problems};

use crate::file_format::lease::{LeaseText, MIN_TTL};
use crate::file_format::limit::Limit;

/// The longest lease that `auto` chooses.
const MAX_AUTO_TTL: Span = Span::from_secs(1);

/// The part of the time to fill that `auto` chooses.
pub(super) const AUTO_PART: u64 = 40;

/// The smallest part of the time to fill that may be written.
const MIN_PART: u64 = 10;

/// Returns the lease of a quota, if its units can be leased for long enough.
pub(super) fn ttl(written: LeaseText, quota: &Quota) -> Option<Span> {
    if !quota.is_leasable() {
        return None;
    }
    let part = |part: u64| Span::from_micros(quota.period().as_micros() / part);
    match written {
        LeaseText::Off => None,
        LeaseText::For(ttl) if ttl <= part(MIN_PART) => Some(ttl),
        // A plan or an override with smaller numbers than the limit.
        LeaseText::For(_) | LeaseText::Auto => {
            Some(part(AUTO_PART).min(MAX_AUTO_TTL)).filter(|&ttl| ttl >= MIN_TTL)
        }
    }
}

/// Returns the units that come back in two leases, rounded up: a burst lacks them while the key is
/// leased.
pub(super) fn held_back(quota: &Quota, ttl: Span) -> u64 {
    let units = 2 * u128::from(ttl.as_micros()) * u128::from(quota.capacity());
    u64::try_from(units.div_ceil(u128::from(quota.period().as_micros().max(1)))).unwrap_or(u64::MAX)
}

/// Reports a `lease` that the limit cannot have.
pub(super) fn fits(limit: &Limit, base: &[Quota], problems: &mut Problems) {
    let Some(Located { value, place }) = limit.lease.filter(|it| it.value != LeaseText::Off) else { return };
    if let Some(why) = not_leasable(limit, base) {
        problems
            .error(place, "units of this limit cannot be leased")
            .label(why)
            .help("remove `lease`: the store decides each request exactly");
        return;
    }
    let LeaseText::For(ttl) = value else { return };
    let Some(quota) = base.iter().min_by_key(|it| it.period()) else { return };
    let longest = Span::from_micros(quota.period().as_micros() / MIN_PART);
    if ttl > longest {
        problems
            .error(place, format!("a lease of {ttl} is too long for a limit of {}", quota.period().human()))
            .label(format!("at most {}, a tenth", longest.human_exact()))
            .help(format!(
                "a burst would lack {} of {} units while the key is leased; `auto` chooses a fortieth",
                held_back(quota, ttl).min(quota.capacity()),
                quota.capacity()
            ));
    }
}

/// Returns why the units of a limit cannot be leased, if they cannot.
pub(super) fn not_leasable(limit: &Limit, base: &[Quota]) -> Option<&'static str> {
    if limit.adaptive.is_some() || limit.slots.is_some() {
        return Some("slots are held, not spent");
    }
    if limit.count_denied.is_some_and(|it| it.value) {
        return Some("refusals count, and only the store sees all of them");
    }
    base.iter().find_map(|quota| match quota {
        Quota::SlidingLog(_) => Some("a log has the time of each request"),
        Quota::SlidingParts(_) => Some("a window in parts has the times of its requests"),
        Quota::Bucket(it) if it.queue().is_some() => Some("a queue has a place for each request"),
        quota if !quota.is_leasable() => Some("the store counts each request"),
        _ => None,
    })
}
