//! Finds the most units that one key was granted in any window.
//!
//! The result is exact: every admission is stored for the length of a window.

use std::collections::{HashMap, VecDeque};

use tollgate::{Span, Timestamp};

/// Admissions between two sweeps, which remove idle keys.
const ADMISSIONS_PER_SWEEP: u32 = 1 << 16;

/// Recent admissions by key.
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
    /// Removes admissions outside `(now - window, now]`.
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

    /// Adds an admission. Returns the units of the key in the window that ends now.
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

    /// Returns the most units of any key in the window that ends now. Iterates over all keys.
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

    /// Returns the most units of any key in any window, and the time of its last admission.
    pub(super) const fn most(&self) -> (u64, Option<Timestamp>) {
        (self.most, self.most_at)
    }
}
