//! The charges of the last decisions, until they are settled.
//!
//! Clients send only the id of a decision, so its receipt is kept here. Clients may never settle, so
//! the number of receipts is bounded. Receipts with slots have a bound of their own: a request that holds a
//! slot renews and releases it by its id for as long as it runs, regardless of the number of other
//! decisions in the meantime. Of these, a receipt that was renewed is not the first to be evicted.
//!
//! Invariant: a decision is settled once, at its first cost. It is marked before the store is called,
//! so only one of two concurrent calls proceeds. If the settlement is incomplete, it may be repeated at
//! the same cost for [`REPEAT_TIME`]: limits that are settled already may not be settled at another, and
//! the store forgets after a while that it settled them.

mod ring;

use parking_lot::Mutex;
use tollgate::store::ADJUSTMENT_ID_LIFETIME;
use tollgate::{DecisionId, PackedReceipt, Receipt, Span, Timestamp};

use self::ring::Ring;

/// The number of decisions that can be settled: the last ones that charged something, and as many that took
/// a slot.
pub const MAX_RECEIPTS: usize = 65_536;

/// How long an incomplete settlement may be repeated.
const REPEAT_TIME: Span = Span::from_micros(ADJUSTMENT_ID_LIFETIME.as_micros() / 2);

pub(crate) struct Receipts(Mutex<ReceiptTable>);

impl Default for Receipts {
    fn default() -> Self {
        Self(Mutex::new(ReceiptTable {
            without_slots: Ring::new(MAX_RECEIPTS),
            with_slots: Ring::new(MAX_RECEIPTS),
        }))
    }
}

/// The receipts by id. An id is in one of the two.
struct ReceiptTable {
    without_slots: Ring<Entry>,
    with_slots: Ring<Entry>,
}

impl ReceiptTable {
    fn get_mut(&mut self, id: DecisionId) -> Option<&mut Entry> {
        self.without_slots.get_mut(id).or_else(|| self.with_slots.get_mut(id))
    }
}

/// A receipt. Most are never looked at again, so one takes 128 bytes, with the id.
struct Entry {
    receipt: PackedReceipt,
    /// The settlements and renewals of the charge, if there are any.
    progress: Option<Box<Progress>>,
}

const _: () = assert!(size_of::<(DecisionId, Entry)>() <= 128);

/// The settlements and renewals of a charge.
#[derive(Default)]
struct Progress {
    /// When the request has waited in the queues of its limits, by the clock of this node. The epoch
    /// if it did not wait.
    starts_at: Timestamp,
    /// Whether the caller left before that, and releases its places.
    leaves: bool,
    /// The final cost, once it is known.
    settled: Option<u64>,
    /// Until when the settlement may be repeated, because it is incomplete.
    repeat_until: Timestamp,
    /// The end of the time in which it may be repeated after its first attempt.
    last_repeat: Option<Timestamp>,
    /// Whether its slots were renewed since it became the newest receipt.
    is_renewed: bool,
}

impl Entry {
    fn progress(&mut self) -> &mut Progress {
        self.progress.get_or_insert_default()
    }
}

/// Whether a decision can be settled.
pub(crate) enum SettleState {
    /// It can, for the first time or again, and is now marked as settled.
    Open {
        receipt: Box<Receipt>,
        /// Whether the request leaves the queues of its limits: it costs nothing and has not started.
        leaves: bool,
    },
    /// It was settled at this cost.
    Already(u64),
    /// The id is unknown.
    Unknown,
}

impl Receipts {
    /// Stores a receipt. `starts_at`: when the request has waited in the queues of its limits.
    pub(crate) fn keep(&self, id: DecisionId, receipt: PackedReceipt, starts_at: Timestamp) {
        let has_slots = receipt.has_slots();
        let progress =
            (starts_at > Timestamp::EPOCH).then(|| Box::new(Progress { starts_at, ..Progress::default() }));
        let entry = Entry { receipt, progress };
        let mut kept = self.0.lock();
        let ring = if has_slots { &mut kept.with_slots } else { &mut kept.without_slots };
        // A receipt that was renewed since it became the oldest counts as new.
        ring.insert(id, entry, |oldest| {
            oldest.progress.as_mut().is_some_and(|it| std::mem::take(&mut it.is_renewed))
        });
    }

    /// Marks a decision as settled, unless it is already.
    pub(crate) fn settle(&self, id: DecisionId, cost: u64, now: Timestamp) -> SettleState {
        let mut kept = self.0.lock();
        let Some(entry) = kept.get_mut(id) else { return SettleState::Unknown };
        let progress = entry.progress();
        if let Some(settled) = progress.settled
            && (settled != cost || now >= progress.repeat_until)
        {
            return SettleState::Already(settled);
        }
        (progress.settled, progress.repeat_until) = (Some(cost), Timestamp::EPOCH);
        // A repetition of the first attempt may be later than the start.
        progress.leaves |= cost == 0 && now < progress.starts_at;
        let leaves = progress.leaves;
        match entry.receipt.unpack(id) {
            Some(receipt) => SettleState::Open { receipt: Box::new(receipt), leaves },
            None => SettleState::Unknown,
        }
    }

    /// Permits a repetition at the same cost, because the settlement is incomplete.
    pub(crate) fn reopen(&self, id: DecisionId, now: Timestamp) {
        if let Some(entry) = self.0.lock().get_mut(id) {
            let progress = entry.progress();
            // From the first attempt on: its marks in the store are the oldest.
            progress.repeat_until = *progress.last_repeat.get_or_insert(now + REPEAT_TIME);
        }
    }

    pub(crate) fn find(&self, id: DecisionId) -> Option<Receipt> {
        self.0.lock().get_mut(id)?.receipt.unpack(id)
    }

    /// Returns a receipt whose slots are renewed, and keeps it for longer.
    pub(crate) fn renew(&self, id: DecisionId) -> Option<Receipt> {
        let mut kept = self.0.lock();
        let entry = kept.get_mut(id)?;
        entry.progress().is_renewed = true;
        entry.receipt.unpack(id)
    }
}

#[cfg(test)]
mod tests {
    use tollgate::{Call, Limiter};

    use super::*;

    fn known(receipts: &Receipts) -> usize {
        let mut kept = receipts.0.lock();
        kept.with_slots.known() + kept.without_slots.known()
    }

    #[test]
    fn an_incomplete_settlement_may_be_repeated_until_the_store_forgets_it() {
        let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 5/minute}]").unwrap();
        let decision = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9]));
        let (id, receipts) = (limiter.id_of(&decision), Receipts::default());
        receipts.keep(id, decision.packed_receipt().unwrap(), Timestamp::EPOCH);
        let at = |seconds: u64| Timestamp::from_secs(1_800_000_000 + seconds);
        assert!(matches!(receipts.settle(id, 2, at(0)), SettleState::Open { leaves: false, .. }));
        assert!(matches!(receipts.settle(id, 2, at(0)), SettleState::Already(2)));
        receipts.reopen(id, at(0));
        assert!(matches!(receipts.settle(id, 3, at(1)), SettleState::Already(2)));
        assert!(matches!(receipts.settle(id, 2, at(299)), SettleState::Open { leaves: false, .. }));
        // The first attempt counts: the store forgets that first.
        receipts.reopen(id, at(299));
        assert!(matches!(receipts.settle(id, 2, at(300)), SettleState::Already(2)));
    }

    #[test]
    fn a_slot_that_is_renewed_keeps_its_receipt_and_one_that_is_not_makes_room() {
        let limiter = Limiter::from_policy("limits: [{by: ip, slots: 3}]").unwrap();
        let receipt = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9])).packed_receipt().unwrap();
        let receipts = Receipts::default();
        let keep = |ids: std::ops::Range<usize>| {
            ids.for_each(|id| receipts.keep(DecisionId(id as u64), receipt.clone(), Timestamp::EPOCH));
        };
        keep(0..MAX_RECEIPTS);
        let (renewed, silent) = (DecisionId(0), DecisionId(1));
        let some = MAX_RECEIPTS / 2;
        for round in 2..8 {
            assert!(receipts.renew(renewed).is_some(), "round {round}");
            keep(round * some..(round + 1) * some);
            assert!(receipts.find(silent).is_none());
            assert_eq!(known(&receipts), MAX_RECEIPTS);
        }
        keep(8 * some..12 * some);
        assert!(receipts.renew(renewed).is_none(), "it was not renewed in time");
    }

    #[test]
    fn the_last_receipts_are_found_and_no_others() {
        let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 5/minute}]").unwrap();
        let receipt = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9])).packed_receipt().unwrap();
        let receipts = Receipts::default();
        let keep = |id| receipts.keep(DecisionId(id), receipt.clone(), Timestamp::EPOCH);
        (0..MAX_RECEIPTS as u64 + 10).for_each(keep);
        let is_known = |id| receipts.find(DecisionId(id)).is_some();
        assert!((0..10).all(|id| !is_known(id)));
        assert!((10..MAX_RECEIPTS as u64 + 10).all(is_known));
        // Kept twice: its first place is evicted without it.
        keep(50);
        assert!(is_known(50) && !is_known(10) && is_known(11));
        assert_eq!(known(&receipts), MAX_RECEIPTS - 1);
        (1_000_000..1_000_040).for_each(keep);
        assert!(is_known(50) && !is_known(49) && is_known(51));
        assert_eq!(known(&receipts), MAX_RECEIPTS);
    }

    #[test]
    fn a_caller_that_leaves_before_its_start_still_leaves_in_a_repetition() {
        let limiter = Limiter::from_policy("limits: [{by: ip, bucket: 5/minute}]").unwrap();
        let receipt = limiter.check(&Call::new("GET", "/").ip([203, 0, 113, 9])).packed_receipt().unwrap();
        let at = |seconds: u64| Timestamp::from_secs(1_800_000_000 + seconds);
        let settle = |cost, now| {
            let (id, receipts) = (DecisionId(7), Receipts::default());
            receipts.keep(id, receipt.clone(), at(10));
            let first = receipts.settle(id, cost, now);
            receipts.reopen(id, now);
            [first, receipts.settle(id, cost, at(20))]
                .map(|state| matches!(state, SettleState::Open { leaves: true, .. }))
        };
        assert_eq!(settle(0, at(9)), [true, true]);
        assert_eq!(settle(0, at(10)), [false, false], "it has started");
        assert_eq!(settle(1, at(9)), [false, false], "it costs something");
    }
}
