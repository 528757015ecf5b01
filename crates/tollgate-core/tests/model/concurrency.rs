//! A model of concurrency: drop ended leases; allow iff the rest and one more are at most `L`.

use std::collections::BTreeMap;

use tollgate_core::{Concurrency, Outcome, Timestamp, Verdict};

use super::{admitted, first_tick, span, ticks, whole};

/// One key under a concurrency limit.
pub(crate) struct Slots {
    most: usize,
    ttl: i128,
    /// The end of the lease of each owner.
    ends: BTreeMap<u128, i128>,
}

impl Slots {
    pub(crate) fn new(quota: &Concurrency) -> Self {
        Self { most: quota.slots() as usize, ttl: quota.ttl().as_micros().into(), ends: BTreeMap::new() }
    }

    pub(crate) fn acquire(&mut self, owner: u128, now: Timestamp) -> Outcome {
        let now = ticks(now);
        self.ends = self.seen_from(now);
        let holds = self.ends.get(&owner).is_some_and(|end| now < *end);
        if !holds && self.held(now) >= self.most {
            let free = first_tick(now, |at| self.held(at) < self.most);
            return self.answer(Verdict::Refused { retry_after: span(free - now) }, now);
        }
        self.ends.retain(|_, end| now < *end);
        self.ends.insert(owner, now + self.ttl);
        self.answer(admitted(1), now)
    }

    pub(crate) fn release(&mut self, owner: u128) {
        self.ends.remove(&owner);
    }

    pub(crate) fn renew(&mut self, owner: u128, now: Timestamp) -> bool {
        let now = ticks(now);
        self.ends = self.seen_from(now);
        let end = self.ends.get_mut(&owner).filter(|end| now < **end);
        end.map(|end| *end = now + self.ttl).is_some()
    }

    pub(crate) fn peek(&self, now: Timestamp) -> Outcome {
        let now = ticks(now);
        let seen = Self { ends: self.seen_from(now), ..*self };
        seen.answer(admitted(0), now)
    }

    /// Returns the leases at `now`. A lease that ends more than two TTLs ahead comes from a clock
    /// that stepped back: it counts as taken now.
    fn seen_from(&self, now: i128) -> BTreeMap<u128, i128> {
        let seen = |end| if end - now > 2 * self.ttl { now + self.ttl } else { end };
        self.ends.iter().map(|(&owner, &end)| (owner, seen(end))).collect()
    }

    fn held(&self, at: i128) -> usize {
        self.ends.values().filter(|end| at < **end).count()
    }

    fn answer(&self, verdict: Verdict, now: i128) -> Outcome {
        Outcome {
            verdict,
            limit: self.most as u64,
            remaining: whole(i128::try_from(self.most.saturating_sub(self.held(now))).unwrap_or(0)),
            reset_after: span(first_tick(now, |at| self.held(at) == 0) - now),
        }
    }
}
