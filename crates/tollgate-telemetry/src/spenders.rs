//! Remembers the callers that spent from an allowance recently.
//!
//! If a caller is refused on its first request, another caller behind the same address or key usually
//! spent the allowance. For the allowances that were used last, this table stores the last few callers,
//! each identified by address, method and path.
//!
//! Sums cover the current period and the one before. A period is as long as the limit's window, at most
//! an hour. A cost that is settled later replaces the reserved cost.
//!
//! The table has a fixed size, is set-associative, and replaces the oldest entry. An update that finds
//! its lock taken is dropped, so the sums are lower bounds. Updates allocate nothing; texts are
//! truncated.
//!
//! The units of callers that spend repeatedly are pending for up to a second (`pending_spends`). Every reader adds them
//! first.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError, TryLockError};

use tollgate::store::prefetch;
use tollgate::{Span, Timestamp};

use crate::address::number_of;
use crate::describe::fit;
use crate::key_hash::HashKey;
use crate::pending_spends::{OwnPlaces, PendingSpends};
use crate::stripes::Stripe;
use crate::text::Text;

/// 64 locks, each for 32 sets of four allowances with four callers each.
const STRIPES: usize = 64;
const SETS: usize = 32;
const ALLOWANCES: usize = 4;
const CALLERS: usize = 4;
/// The bytes that are kept of a path and of a method.
const MAX_PATH_BYTES: usize = 48;
const MAX_METHOD_BYTES: usize = 10;
/// The shortest and the longest period over which spending is summed.
const MIN_SPAN: Span = Span::from_secs(1);
const MAX_SPAN: Span = Span::from_secs(3_600);

/// A caller that spent from an allowance recently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spender {
    /// The client's address, as `privacy` shows it.
    pub client: Option<Box<str>>,
    /// The method; empty if the check named a limit and a key instead of a request.
    pub method: Box<str>,
    /// The path, truncated. The text comes from the caller: escape it for display.
    pub path: Box<str>,
    /// The units spent in the current period and the one before, a lower bound. A refusal that was
    /// charged counts its requested cost, which is an upper bound of its charge. A settled request
    /// counts its final cost.
    pub units: u64,
    /// The time of the last request.
    pub last: Timestamp,
}

/// A caller: address, method and redacted path.
pub(crate) struct Asker<'a> {
    pub(crate) client: Option<IpAddr>,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
}

/// The recent callers of the most recently used allowances.
pub(crate) struct Spenders {
    /// The sets of a stripe are allocated when it is first spent from: together they take four megabytes, which a
    /// service without traffic does not need.
    stripes: Box<[Mutex<Box<[Set]>>]>,
    pending: PendingSpends,
    hash_key: HashKey,
}

/// Four allowances and their callers.
///
/// A table with many keys is larger than the nearest caches, and every admitted request writes to it. So numbers are
/// apart from texts, and what is known of an allowance, besides its callers, takes one cache line for all four: a request
/// touches two lines of a set, also if it replaces an allowance. It loads the second line of all four, because the right
/// one is known only once the first line has arrived. A new caller takes one or two more, unless it is the one that the
/// place had last: callers without an address are often the same for all allowances.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Set {
    /// Zero while the place is free.
    key_hashes: [u64; ALLOWANCES],
    /// The number of the period, counted from 1970.
    stretches: [u32; ALLOWANCES],
    /// The threads whose units may be pending, one bit for each.
    pending: [u16; ALLOWANCES],
    /// The number of known callers.
    counts: [u8; ALLOWANCES],
    /// The places, the last used one first.
    recency: [u8; ALLOWANCES],
    spending: [[Spending; CALLERS]; ALLOWANCES],
    identities: [[Identity; CALLERS]; ALLOWANCES],
}

const _: () = assert!(std::mem::offset_of!(Set, spending) == 64, "one cache line");

impl Default for Set {
    fn default() -> Self {
        Self {
            key_hashes: [0; ALLOWANCES],
            stretches: [0; ALLOWANCES],
            pending: [0; ALLOWANCES],
            counts: [0; ALLOWANCES],
            recency: [0, 1, 2, 3],
            spending: Default::default(),
            identities: Default::default(),
        }
    }
}

/// The spending of a caller.
#[derive(Clone, Copy, Default)]
struct Spending {
    /// The hash of the caller.
    tag: u64,
    last: Timestamp,
    /// The units of the current period; `before` has those of the previous one.
    units: u64,
    before: u64,
}

/// Who a caller is.
#[derive(Clone, Copy, Default)]
struct Identity {
    client: Option<IpAddr>,
    method: Text<MAX_METHOD_BYTES>,
    path: Text<MAX_PATH_BYTES>,
}

impl From<&Asker<'_>> for Identity {
    fn from(asker: &Asker<'_>) -> Self {
        Self { client: asker.client, method: Text::new(asker.method), path: Text::new(asker.path) }
    }
}

impl Set {
    fn find(&self, key_hash: u64) -> Option<usize> {
        self.key_hashes.iter().position(|it| *it == key_hash)
    }

    /// Returns the place of an allowance, which takes that of the oldest one if it has none.
    fn place_of(&mut self, key_hash: u64, pending: &PendingSpends) -> usize {
        if let Some(known) = self.find(key_hash) {
            self.add_pending(known, pending);
            self.use_now(known);
            return known;
        }
        (0..ALLOWANCES).for_each(|at| self.add_pending(at, pending));
        let oldest = usize::from(self.recency[ALLOWANCES - 1]) % ALLOWANCES;
        if self.pending[oldest] != 0 {
            pending.free(self.key_hashes[oldest], std::mem::take(&mut self.pending[oldest]));
        }
        (self.key_hashes[oldest], self.stretches[oldest], self.counts[oldest]) = (key_hash, 0, 0);
        self.use_now(oldest);
        oldest
    }

    /// Makes an allowance the last used one.
    #[inline]
    fn use_now(&mut self, at: usize) {
        if let Some(rank @ 1..) = self.recency.iter().position(|it| usize::from(*it) == at) {
            self.recency[..=rank].rotate_right(1);
        }
    }

    /// Adds the units that are pending for an allowance.
    #[inline]
    fn add_pending(&mut self, at: usize, pending: &PendingSpends) {
        if self.pending[at] != 0 {
            self.take_pending(at, pending);
        }
    }

    fn take_pending(&mut self, at: usize, pending: &PendingSpends) {
        pending.take(self.key_hashes[at], self.pending[at], |spend| {
            if spend.units > 0 {
                self.use_now(at);
            }
            if let Some(caller) = self.callers(at).iter_mut().find(|it| it.tag == spend.caller) {
                caller.last = caller.last.max(spend.last);
                caller.units = caller.units.saturating_add(spend.units);
            }
        });
    }

    /// Returns the callers of an allowance.
    fn callers(&mut self, at: usize) -> &mut [Spending] {
        let known = usize::from(self.counts[at]).min(CALLERS);
        &mut self.spending[at][..known]
    }

    /// Moves an allowance to the period of a time, and drops the units of periods before the previous one.
    #[inline]
    fn move_to(&mut self, at: usize, time: Timestamp, period: Span) {
        let (time, period) = (time.as_micros(), period.clamp(MIN_SPAN, MAX_SPAN).as_micros());
        // Nearly every request is in the period of the one before, and a product takes less than a division.
        let start = u64::from(self.stretches[at]).saturating_mul(period);
        if time.checked_sub(start).is_none_or(|since| since >= period) {
            self.change_period(at, u32::try_from(time / period).unwrap_or(u32::MAX));
        }
    }

    fn change_period(&mut self, at: usize, stretch: u32) {
        // A clock that is slightly behind stays in the current period.
        if stretch <= self.stretches[at] {
            return;
        }
        let is_next = stretch - self.stretches[at] == 1;
        self.stretches[at] = stretch;
        for caller in self.callers(at) {
            caller.before = if is_next { caller.units } else { 0 };
            caller.units = 0;
        }
    }

    /// Returns the time until the period of an allowance ends.
    fn left(&self, at: usize, time: Timestamp, period: Span) -> Span {
        let period = period.clamp(MIN_SPAN, MAX_SPAN).as_micros();
        let end = (u64::from(self.stretches[at]) + 1).saturating_mul(period);
        Span::from_micros(end.saturating_sub(time.as_micros()).min(period))
    }

    /// Returns the spending of a caller, which takes the place of the oldest one if it has none.
    fn caller(&mut self, at: usize, tag: u64, asker: &Asker<'_>) -> &mut Spending {
        let callers = self.callers(at);
        if let Some(known) = callers.iter().position(|it| it.tag == tag) {
            return &mut self.spending[at][known];
        }
        let count = callers.len();
        let oldest = (0..count).min_by_key(|place| callers[*place].last).unwrap_or(0);
        let place = if count < CALLERS { count } else { oldest };
        self.counts[at] = u8::try_from(count.max(place + 1)).unwrap_or(0);
        // The place may be of the same caller at another allowance.
        if self.spending[at][place].tag != tag {
            self.identities[at][place] = asker.into();
        }
        self.spending[at][place] = Spending { tag, ..Spending::default() };
        &mut self.spending[at][place]
    }
}

/// Returns the sets of one stripe.
#[cold]
fn new_sets() -> Box<[Set]> {
    vec![Set::default(); SETS].into_boxed_slice()
}

impl Spenders {
    pub(crate) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { stripes, pending: PendingSpends::new(), hash_key: HashKey::random() }
    }

    /// Returns the index of the lock and of the set behind it.
    fn place(key_hash: u64) -> (usize, usize) {
        let bits =
            |shift: u32, count: usize| usize::try_from((key_hash >> shift) % count as u64).unwrap_or(0);
        (bits(0, STRIPES), bits(32, SETS))
    }

    /// Returns the hash of a caller.
    #[inline(always)]
    pub(crate) fn caller(&self, asker: &Asker<'_>) -> u64 {
        let client = number_of(asker.client);
        let (path, is_cut) = fit(asker.path, MAX_PATH_BYTES);
        let hash = self.hash_key.hash(client, [asker.method.as_bytes(), path.as_bytes()]);
        // A path that is cut differs from one that ends there.
        hash ^ u64::from(is_cut)
    }

    /// Returns the places of pending units of the thread of a stripe; `None` if it owns none.
    #[inline]
    pub(crate) fn own_places(&self, stripe: Stripe) -> Option<OwnPlaces<'_>> {
        self.pending.at(stripe)
    }

    /// Adds units that a caller spent. `tag` is [`caller`](Self::caller) of the asker.
    #[cfg(test)]
    pub(crate) fn spent(
        &self,
        key_hash: u64,
        (tag, asker): (u64, &Asker<'_>),
        units: u64,
        at: Timestamp,
        period: Span,
    ) {
        let own = self.pending.own();
        if own.is_none_or(|it| !it.try_add(key_hash, tag, units, at)) {
            self.add_spent(own, key_hash, (tag, asker), units, at, period);
        }
    }

    /// Adds units of a caller that has no valid place among `own`, the places of this thread.
    pub(crate) fn add_spent(
        &self,
        own: Option<OwnPlaces<'_>>,
        key_hash: u64,
        (tag, asker): (u64, &Asker<'_>),
        units: u64,
        at: Timestamp,
        period: Span,
    ) {
        // A caller that asks again gets one of the places.
        let candidate = own.filter(|it| it.is_candidate(key_hash, tag));
        // Before the lock of this allowance, because each of them may have the same.
        if let Some(own) = candidate
            && let Some(occupant) = own.occupant(key_hash)
        {
            self.free_place(occupant, 1 << own.stripe);
        }
        let (stripe, set) = Self::place(key_hash);
        let Some(stripe) = self.stripes.get(stripe) else { return };
        let mut sets = match stripe.try_lock() {
            Ok(sets) => sets,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if sets.is_empty() {
            *sets = new_sets();
        }
        let Some(set) = sets.get_mut(set) else { return };
        // Which of these is needed is known once the first line has been loaded.
        set.spending.iter().for_each(|[first, ..]| prefetch(first));
        let place = set.place_of(key_hash, &self.pending);
        set.move_to(place, at, period);
        let caller = set.caller(place, tag, asker);
        caller.last = at;
        caller.units = caller.units.saturating_add(units);
        if let Some(own) = candidate {
            own.occupy(key_hash, tag, at, set.left(place, at, period));
            set.pending[place] |= 1 << own.stripe;
        }
    }

    /// Adds what is pending for an allowance, and frees its place at one stripe, given as its bit.
    #[cold]
    fn free_place(&self, key_hash: u64, stripe_bit: u16) {
        let (stripe, set) = Self::place(key_hash);
        let Some(stripe) = self.stripes.get(stripe) else { return };
        let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, set)) = sets.get_mut(set).and_then(|set| Some((set.find(key_hash)?, set))) {
            set.add_pending(at, &self.pending);
            set.pending[at] &= !stripe_bit;
        }
        self.pending.free(key_hash, stripe_bit);
    }

    /// Replaces the reserved cost of a charge by its final cost. Waits for the lock, because a dropped
    /// correction would leave the sum wrong until it expires.
    pub(crate) fn settle(&self, key_hash: u64, caller: u64, reserved: u64, cost: u64) {
        let (stripe, set) = Self::place(key_hash);
        let Some(stripe) = self.stripes.get(stripe) else { return };
        let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = sets.get_mut(set) else { return };
        let Some(at) = set.find(key_hash) else { return };
        set.add_pending(at, &self.pending);
        let Some(caller) = set.callers(at).iter_mut().find(|it| it.tag == caller) else { return };
        caller.units = caller.units.saturating_add(cost.saturating_sub(reserved));
        let back = reserved.saturating_sub(cost);
        let now = back.min(caller.units);
        caller.units -= now;
        // The remainder was reserved in the previous period, if it is still remembered.
        caller.before = caller.before.saturating_sub(back - now);
    }

    /// Removes all callers.
    pub(crate) fn clear(&self) {
        for stripe in &self.stripes {
            let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            for set in &*sets {
                set.key_hashes
                    .iter()
                    .zip(set.pending)
                    .for_each(|(it, stripes)| self.pending.free(*it, stripes));
            }
            *sets = Box::default();
        }
    }

    /// Returns the callers of an allowance, the largest spender first. `show` formats an address.
    pub(crate) fn of(&self, key_hash: u64, show: &dyn Fn(IpAddr) -> String) -> Vec<Spender> {
        let (stripe, set) = Self::place(key_hash);
        let Some(stripe) = self.stripes.get(stripe) else { return Vec::new() };
        let mut found = [(Spending::default(), Identity::default()); CALLERS];
        {
            let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(set) = sets.get_mut(set) else { return Vec::new() };
            let Some(at) = set.find(key_hash).filter(|at| set.counts[*at] > 0) else {
                return Vec::new();
            };
            set.add_pending(at, &self.pending);
            let identities = set.identities[at];
            let callers = set.callers(at).iter().zip(identities);
            for (place, (spending, identity)) in found.iter_mut().zip(callers) {
                *place = (*spending, identity);
            }
        }
        let callers = found.into_iter().filter(|(spending, _)| spending.last != Timestamp::EPOCH);
        let mut spenders: Vec<_> = callers
            .map(|(spending, identity)| Spender {
                client: identity.client.map(|client| show(client).into()),
                method: identity.method.as_str().into(),
                path: identity.path.as_str().into(),
                units: spending.units.saturating_add(spending.before),
                last: spending.last,
            })
            .collect();
        spenders.retain(|it| it.units > 0);
        spenders.sort_by_key(|it| std::cmp::Reverse((it.units, it.last)));
        spenders
    }
}
