//! The ids of adjustments that were applied, so that a repetition changes nothing.
//!
//! Ids are kept for at least [`ADJUSTMENT_ID_LIFETIME`], unless there are more than
//! [`MAX_IDS`] of them: then the older half is forgotten early.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use tollgate_core::Timestamp;
use tollgate_store::{ADJUSTMENT_ID_LIFETIME, AdjustmentId};

/// The maximum number of ids in each of the two sets.
const MAX_IDS: usize = 100_000;

/// The ids of adjustments.
#[derive(Default)]
pub(crate) struct AppliedIds(Mutex<Ids>);

#[derive(Default)]
struct Ids {
    recent: HashSet<u128>,
    earlier: HashSet<u128>,
    /// When `recent` was begun.
    since: Timestamp,
}

impl AppliedIds {
    /// Records an id. Returns whether it is new.
    pub(crate) fn is_new(&self, AdjustmentId(id): AdjustmentId, now: Timestamp) -> bool {
        // No code panics while it holds the lock.
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now.since(ids.since) > ADJUSTMENT_ID_LIFETIME || ids.recent.len() >= MAX_IDS {
            ids.earlier = std::mem::take(&mut ids.recent);
            ids.since = now;
        }
        !ids.earlier.contains(&id) && ids.recent.insert(id)
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Span;

    use super::*;

    #[test]
    fn an_id_is_recognized_for_its_lifetime() {
        let (ids, start) = (AppliedIds::default(), Timestamp::from_secs(1_000_000));
        assert!(ids.is_new(AdjustmentId(1), start));
        assert!(!ids.is_new(AdjustmentId(1), start));
        let later = start + ADJUSTMENT_ID_LIFETIME;
        assert!(!ids.is_new(AdjustmentId(1), later));
        assert!(ids.is_new(AdjustmentId(2), later + Span::from_micros(1)));
        assert!(!ids.is_new(AdjustmentId(1), later + Span::from_micros(1)));
        assert!(ids.is_new(AdjustmentId(1), later + ADJUSTMENT_ID_LIFETIME + Span::from_secs(1)));
    }

    #[test]
    fn ids_are_bounded() {
        let (ids, now) = (AppliedIds::default(), Timestamp::from_secs(1_000_000));
        for id in 0..3 * MAX_IDS as u128 {
            assert!(ids.is_new(AdjustmentId(id), now));
        }
        let ids = ids.0.lock().unwrap();
        assert!(ids.recent.len() <= MAX_IDS && ids.earlier.len() <= MAX_IDS);
    }
}
