//! An exact sliding log of one key: the reference for comparisons.
//!
//! It decides as `tollgate::SlidingLog` does. It is faster for millions of requests, because it keeps the sum of the
//! window instead of adding it up for each request, and it can count requests that it would refuse. `tests` compares
//! both.

use std::collections::VecDeque;

use tollgate::{Rate, Timestamp};

/// The units of one key in `(t - W, t]`.
#[derive(Clone, Debug, Default)]
pub(super) struct ExactLog {
    /// Times and units, oldest first.
    entries: VecDeque<(u64, u64)>,
    units: u64,
}

impl ExactLog {
    /// Whether `cost` more units fit into the limit.
    pub(super) fn has_room(&mut self, limit: Rate, cost: u64, now: Timestamp) -> bool {
        while let Some(&(at, units)) = self.entries.front()
            && at.saturating_add(limit.period.as_micros()) <= now.as_micros()
        {
            self.units -= units;
            self.entries.pop_front();
        }
        self.units.saturating_add(cost) <= limit.count
    }

    /// Adds units, whether they were admitted or not.
    pub(super) fn add(&mut self, limit: Rate, cost: u64, now: Timestamp) {
        // A sum above the limit refuses every request, so a larger sum need not be stored.
        let cost = cost.min(limit.count.saturating_add(1));
        match self.entries.back_mut() {
            Some((at, units)) if *at == now.as_micros() => *units += cost,
            _ => self.entries.push_back((now.as_micros(), cost)),
        }
        self.units += cost;
        // Entries older than the newest units that fill the limit do not matter: those units expire last.
        while let Some(&(_, units)) = self.entries.front()
            && self.units - units > limit.count
        {
            self.units -= units;
            self.entries.pop_front();
        }
    }

    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tollgate::{Algorithm as _, SlidingLog, Span};

    use super::*;

    proptest! {
        #[test]
        fn it_decides_as_the_log_that_is_served(
            count in 1_u64..12,
            steps in prop::collection::vec((0_u64..9, 1_u64..4), 1..200),
        ) {
            let limit = Rate::new(count, Span::from_secs(20));
            let served = SlidingLog::new(limit).unwrap();
            let (mut state, mut log, mut at) = (served.fresh(), ExactLog::default(), 1_000);
            for (wait, cost) in steps {
                at += wait;
                let now = Timestamp::from_secs(at);
                let admits = log.has_room(limit, cost, now);
                prop_assert_eq!(served.spend(&mut state, cost, now).is_admitted(), admits);
                if admits {
                    log.add(limit, cost, now);
                }
            }
        }

        #[test]
        fn shown_everything_it_knows_what_is_in_view_up_to_its_limit(
            count in 1_u64..12,
            steps in prop::collection::vec((0_u64..9, 1_u64..20), 1..200),
        ) {
            let limit = Rate::new(count, Span::from_secs(20));
            let (mut log, mut all, mut at) = (ExactLog::default(), Vec::new(), 1_000_u64);
            for (wait, cost) in steps {
                at += wait;
                let in_view: u64 = all.iter().filter(|&&(then, _)| then + 20 > at).map(|&(_, cost)| cost).sum();
                prop_assert_eq!(log.has_room(limit, cost, Timestamp::from_secs(at)), in_view + cost <= count);
                log.add(limit, cost, Timestamp::from_secs(at));
                all.push((at, cost));
                prop_assert!(log.len() as u64 <= count + 1);
            }
        }
    }
}
