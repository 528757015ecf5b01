//! How much a node asks for, and how much it leases.
//!
//! The numbers here are estimates. A wrong estimate costs calls or leaves units unspent; it never
//! admits more than the limit.

use tollgate_core::{Quota, Span, Timestamp};

use crate::lot::MAX_LOT_UNITS;

/// The smallest lease, and the number of units per `ttl` from which a key is hot. The last units of
/// a key are therefore decided by the store, one request at a time.
pub const MIN_LEASE_UNITS: u32 = 8;

/// The requested units of a node, as an exponential average.
#[derive(Debug)]
pub(crate) struct UsageRate {
    /// The units since `since`.
    units: u64,
    since: Timestamp,
    /// Units per microsecond.
    rate: f64,
}

impl UsageRate {
    pub(crate) const fn new(now: Timestamp) -> Self {
        Self { units: 0, since: now, rate: 0.0 }
    }

    pub(crate) fn add(&mut self, units: u64) {
        self.units = self.units.saturating_add(units);
    }

    /// Returns the expected units in a span of `ttl`.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(crate) fn per_ttl(&mut self, ttl: Span, now: Timestamp) -> u64 {
        let (ttl, elapsed) = (ttl.as_micros() as f64, now.since(self.since).as_micros() as f64);
        if elapsed >= ttl / 4.0 {
            let latest = self.units as f64 / elapsed;
            self.rate += (latest - self.rate) * (2.0 * elapsed / ttl).min(1.0);
            (self.units, self.since) = (0, now);
        }
        // A burst counts at once. The more units it has, the more is known about its rate: 8 units count
        // as if they had taken a quarter of the `ttl`, and 128 or more a 64th.
        let known = (self.units as f64 / f64::from(MIN_LEASE_UNITS)).clamp(1.0, 16.0);
        let latest = self.units as f64 / elapsed.max(ttl / (4.0 * known));
        // A hot key has a known rate. More units than that by chance do not raise it.
        let expected = self.rate * elapsed;
        let is_hot = self.rate * ttl >= f64::from(MIN_LEASE_UNITS);
        let is_chance = is_hot && self.units as f64 <= expected + 3.0 * expected.sqrt() + 4.0;
        let rate = if is_chance { self.rate } else { self.rate.max(latest) };
        (rate * ttl).ceil() as u64
    }
}

/// Returns the number of held units below which a lease is renewed: enough for half a `ttl` of
/// silence, and a sixteenth for the call.
pub(crate) const fn renewal_threshold(usage: u64) -> u64 {
    usage - usage / 16 * 7
}

/// Returns the number of units that are held after a renewal. Units are spent in the order of their ends: with
/// the whole usage of one `ttl`, any delay would leave the last ones unspent.
const fn target(usage: u64) -> u64 {
    usage - usage / 16
}

/// The data that a node uses to choose the size of a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Situation {
    /// The expected usage of this node in one `ttl`.
    pub(crate) usage: u64,
    /// The units that this node holds.
    pub(crate) held: u64,
    /// The units that the store had left.
    pub(crate) left: u64,
    /// The number of nodes.
    pub(crate) nodes: u64,
}

/// Returns the units that come back in one `ttl`, rounded down.
pub(crate) fn refilled(quota: &Quota, ttl: Span) -> u64 {
    let period = u128::from(quota.period().as_micros().max(1));
    u64::try_from(u128::from(quota.capacity()) * u128::from(ttl.as_micros()) / period).unwrap_or(u64::MAX)
}

/// Returns the units to lease, if any: the usage of this node in one `ttl`, but at most half of the rest over
/// all nodes, or the share of this node in the refill of one `ttl`.
pub(crate) fn lease_size(quota: &Quota, ttl: Span, now: Situation) -> Option<u32> {
    if now.usage < MIN_LEASE_UNITS.into() {
        return None;
    }
    let nodes = now.nodes.max(1);
    let share = (now.left / (2 * nodes)).max(refilled(quota, ttl) / nodes);
    let units = target(now.usage).saturating_sub(now.held).min(share).min(MAX_LOT_UNITS.into());
    u32::try_from(units).ok().filter(|&units| units >= MIN_LEASE_UNITS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tollgate_core::{Bucket, Rate};

    use super::*;

    #[test]
    fn the_estimate_follows_the_requests() {
        let (start, ttl) = (Timestamp::from_secs(1_000), Span::from_millis(100));
        let mut usage = UsageRate::new(start);
        let mut now = start;
        for _ in 0..20 {
            usage.add(250);
            now = now + Span::from_millis(25);
            usage.per_ttl(ttl, now);
        }
        assert!((990..=1_010).contains(&usage.per_ttl(ttl, now)), "{usage:?}");
        for _ in 0..8 {
            now = now + Span::from_millis(25);
            usage.per_ttl(ttl, now);
        }
        assert!(usage.per_ttl(ttl, now) < 10, "{usage:?}");
    }

    #[test]
    fn leases_shrink_as_the_key_runs_short() {
        let quota = Quota::from(Bucket::new(Rate::per_hour(100)).unwrap());
        let size = |usage, held, left, nodes| {
            lease_size(&quota, Span::from_secs(1), Situation { usage, held, left, nodes })
        };
        assert_eq!(size(600, 0, 100, 1), Some(50));
        assert_eq!(size(600, 0, 100, 4), Some(12));
        assert_eq!(size(20, 5, 100, 1), Some(14));
        assert_eq!(size(600, 0, 15, 1), None, "the last units are exact");
        assert_eq!(size(7, 0, 100, 1), None, "a cold key");
        assert_eq!(size(20, 15, 100, 1), None);
    }
}
