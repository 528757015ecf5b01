//! The most that one key was let through in any window: what a limit is about.
//!
//! Exact: what is admitted is remembered for the length of a window.

use std::collections::{HashMap, VecDeque};

use tollgate::{Span, Timestamp};

/// Keys that have rested are forgotten after so many admissions.
const ADMISSIONS_PER_SWEEP: u32 = 1 << 16;

/// What keys were let through lately.
pub(super) struct Busiest {
    window: Span,
    keys: HashMap<u64, RecentUse>,
    most: u64,
    most_at: Option<Timestamp>,
    until_sweep: u32,
}

#[derive(Default)]
struct RecentUse {
    admitted: VecDeque<(Timestamp, u64)>,
    sum: u64,
}

impl RecentUse {
    /// Forgets what is not in `(now - window, now]`.
    fn forget(&mut self, now: Timestamp, window: Span) {
        while let Some(&(at, units)) = self.admitted.front()
            && at + window <= now
        {
            self.admitted.pop_front();
            self.sum -= units;
        }
    }
}

impl Busiest {
    pub(super) fn new(window: Span) -> Self {
        Self { window, keys: HashMap::new(), most: 0, most_at: None, until_sweep: ADMISSIONS_PER_SWEEP }
    }

    /// A key was let through. Says how much it was let through in the window that ends now.
    pub(super) fn admit(&mut self, key: u64, units: u64, at: Timestamp) -> u64 {
        self.until_sweep -= 1;
        if self.until_sweep == 0 {
            self.standing(at);
        }
        let lately = self.keys.entry(key).or_default();
        lately.forget(at, self.window);
        lately.sum += units;
        match lately.admitted.back_mut() {
            Some((last, sum)) if *last == at => *sum += units,
            _ => lately.admitted.push_back((at, units)),
        }
        if lately.sum > self.most {
            (self.most, self.most_at) = (lately.sum, Some(at));
        }
        lately.sum
    }

    /// The most that any key was let through in the window that ends now. Walks over all keys.
    pub(super) fn standing(&mut self, now: Timestamp) -> u64 {
        self.until_sweep = ADMISSIONS_PER_SWEEP;
        let mut most = 0;
        self.keys.retain(|_, lately| {
            lately.forget(now, self.window);
            most = most.max(lately.sum);
            lately.sum > 0
        });
        most
    }

    /// The most that any key was let through in any window, and when the last of that came.
    pub(super) const fn most(&self) -> (u64, Option<Timestamp>) {
        (self.most, self.most_at)
    }
}
