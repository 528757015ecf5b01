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

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError, TryLockError};

use tollgate::{Span, Timestamp};

use crate::describe::fit;
use crate::key_hash::hash_parts;
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
    hasher: foldhash::fast::RandomState,
}

/// Four allowances and their callers.
///
/// A table with many keys is larger than the nearest caches, and every admitted request writes to it. So numbers are
/// apart from texts, and the numbers by which an allowance is found are together: a request touches three or four
/// cache lines of a set, also if it replaces an allowance.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Set {
    key_hashes: [u64; ALLOWANCES],
    /// The time of the last request; zero while the place is free.
    lasts: [Timestamp; ALLOWANCES],
    /// The number of the period, counted from 1970.
    stretches: [u64; ALLOWANCES],
    /// The number of known callers.
    counts: [u8; ALLOWANCES],
    spending: [[Spending; CALLERS]; ALLOWANCES],
    identities: [[Identity; CALLERS]; ALLOWANCES],
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
    /// Whether the other fields are those of the present caller: a caller without an identity does not write them.
    is_known: bool,
}

impl Identity {
    /// Takes the place of another caller.
    fn replace(&mut self, asker: &Asker<'_>) {
        let Asker { client, method, path } = *asker;
        if client.is_none() && method.is_empty() && path.is_empty() {
            self.is_known = false;
            return;
        }
        let (method, path) = (Text::new(method), Text::new(path));
        *self = Self { client, method, path, is_known: true };
    }

    fn known(&self) -> Self {
        if self.is_known { *self } else { Self::default() }
    }
}

impl Set {
    fn find(&self, key_hash: u64) -> Option<usize> {
        self.key_hashes.iter().position(|it| *it == key_hash)
    }

    /// Returns the place of an allowance, which takes that of the oldest one if it has none.
    fn place_of(&mut self, key_hash: u64) -> usize {
        if let Some(known) = self.find(key_hash) {
            return known;
        }
        let oldest = (0..ALLOWANCES).min_by_key(|at| self.lasts[*at]).unwrap_or(0);
        (self.key_hashes[oldest], self.stretches[oldest], self.counts[oldest]) = (key_hash, 0, 0);
        oldest
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
        let start = self.stretches[at].saturating_mul(period);
        if time.checked_sub(start).is_none_or(|since| since >= period) {
            self.change_period(at, time / period);
        }
    }

    fn change_period(&mut self, at: usize, stretch: u64) {
        // A clock that is slightly behind stays in the current period.
        if stretch <= self.stretches[at] {
            return;
        }
        let is_next = stretch == self.stretches[at] + 1;
        self.stretches[at] = stretch;
        for caller in self.callers(at) {
            caller.before = if is_next { caller.units } else { 0 };
            caller.units = 0;
        }
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
        self.identities[at][place].replace(asker);
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
        Self { stripes, hasher: foldhash::fast::RandomState::default() }
    }

    /// Returns the index of the lock and of the set behind it.
    fn place(key_hash: u64) -> (usize, usize) {
        let bits =
            |shift: u32, count: usize| usize::try_from((key_hash >> shift) % count as u64).unwrap_or(0);
        (bits(0, STRIPES), bits(32, SETS))
    }

    /// Returns the hash of a caller.
    #[inline]
    pub(crate) fn caller(&self, asker: &Asker<'_>) -> u64 {
        let client = asker.client.map_or(0, |client| match client {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        });
        // A path that is cut differs from one that ends there.
        let (path, is_cut) = fit(asker.path, MAX_PATH_BYTES);
        let end: &[u8] = if is_cut { b"..." } else { b"" };
        hash_parts(&self.hasher, client, [asker.method.as_bytes(), path.as_bytes(), end])
    }

    /// Adds units that a caller spent. `tag` is [`caller`](Self::caller) of the asker.
    #[inline]
    pub(crate) fn spent(
        &self,
        key_hash: u64,
        (tag, asker): (u64, &Asker<'_>),
        units: u64,
        at: Timestamp,
        period: Span,
    ) {
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
        let place = set.place_of(key_hash);
        set.lasts[place] = at;
        set.move_to(place, at, period);
        let caller = set.caller(place, tag, asker);
        caller.last = at;
        caller.units = caller.units.saturating_add(units);
    }

    /// Replaces the reserved cost of a charge by its final cost. Waits for the lock, because a dropped
    /// correction would leave the sum wrong until it expires.
    pub(crate) fn settle(&self, key_hash: u64, caller: u64, reserved: u64, cost: u64) {
        let (stripe, set) = Self::place(key_hash);
        let Some(stripe) = self.stripes.get(stripe) else { return };
        let mut sets = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(set) = sets.get_mut(set) else { return };
        let Some(at) = set.find(key_hash) else { return };
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
            *stripe.lock().unwrap_or_else(PoisonError::into_inner) = Box::default();
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
            let Some(at) = set.find(key_hash).filter(|at| set.lasts[*at] != Timestamp::EPOCH) else {
                return Vec::new();
            };
            let identities = set.identities[at];
            let callers = set.callers(at).iter().zip(identities);
            for (place, (spending, identity)) in found.iter_mut().zip(callers) {
                *place = (*spending, identity.known());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + second)
    }

    fn spend(
        spenders: &Spenders,
        key_hash: u64,
        client: Option<IpAddr>,
        method: &str,
        path: &str,
        units: u64,
        at: Timestamp,
    ) {
        let asker = Asker { client, method, path };
        let caller = spenders.caller(&asker);
        spenders.spent(key_hash, (caller, &asker), units, at, Span::from_secs(600));
    }

    fn shown(spenders: &Spenders, key_hash: u64) -> Vec<(String, u64)> {
        let shown_keys = spenders.of(key_hash, &|client| client.to_string());
        let word = |it: Spender| format!("{} {} {}", it.client.unwrap_or_default(), it.method, it.path);
        shown_keys.into_iter().map(|it| (it.units, it)).map(|(units, it)| (word(it), units)).collect()
    }

    #[test]
    fn spenders_are_sorted_by_units() {
        let spenders = Spenders::new();
        let (ann, bob) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        spend(&spenders, 7, Some(ann), "GET", "/a", 1, at(0));
        spend(&spenders, 7, Some(bob), "POST", "/b", 5, at(1));
        spend(&spenders, 7, Some(ann), "GET", "/a", 1, at(2));
        spend(&spenders, 8, None, "GET", "/c", 1, at(3));
        let expected = [("192.0.2.2 POST /b".to_owned(), 5), ("192.0.2.1 GET /a".to_owned(), 2)];
        assert_eq!(shown(&spenders, 7), expected);
        assert_eq!(shown(&spenders, 8), [(" GET /c".to_owned(), 1)]);
        assert_eq!(shown(&spenders, 9), []);
    }

    #[test]
    fn the_least_recent_callers_are_replaced() {
        let spenders = Spenders::new();
        for caller in 0..6 {
            spend(&spenders, 7, None, "GET", &format!("/{caller}"), caller, at(caller));
        }
        let paths: Vec<_> = shown(&spenders, 7).into_iter().map(|(words, _)| words).collect();
        assert_eq!(paths, [" GET /5", " GET /4", " GET /3", " GET /2"]);
    }

    #[test]
    fn the_least_recent_allowances_are_replaced() {
        let spenders = Spenders::new();
        // All of these fall into one set.
        for key_hash in 0..6 {
            spend(&spenders, 1 + (key_hash << 40), None, "GET", "/", 1, at(key_hash));
        }
        let shown_keys = (0..6).filter(|key_hash| !shown(&spenders, 1 + (key_hash << 40)).is_empty());
        assert_eq!(shown_keys.collect::<Vec<_>>(), [2, 3, 4, 5]);
    }

    #[test]
    fn spending_before_the_previous_period_is_dropped() {
        let spenders = Spenders::new();
        // Periods of ten minutes; one starts at 1,200 s.
        for (second, units) in [(190, 100), (200, 5), (700, 5), (800, 1)] {
            spend(&spenders, 7, None, "GET", "/a", units, at(second));
        }
        assert_eq!(shown(&spenders, 7), [(" GET /a".to_owned(), 11)]);
        spend(&spenders, 7, None, "GET", "/b", 2, at(1_400));
        let expected = [(" GET /b".to_owned(), 2), (" GET /a".to_owned(), 1)];
        assert_eq!(shown(&spenders, 7), expected);
        spend(&spenders, 7, None, "", "", 2, at(9_000));
        assert_eq!(shown(&spenders, 7), [("  ".to_owned(), 2)]);
        spenders.clear();
        assert_eq!(shown(&spenders, 7), []);
    }

    #[test]
    fn a_settled_cost_replaces_the_reserved_cost() {
        let spenders = Spenders::new();
        spend(&spenders, 7, None, "POST", "/chat", 1_000, at(190));
        spend(&spenders, 7, None, "POST", "/chat", 50, at(210));
        let caller = spenders.caller(&Asker { client: None, method: "POST", path: "/chat" });
        spenders.settle(7, caller, 50, 80);
        assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 1_080)]);
        spenders.settle(7, caller, 1_000, 37);
        assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 117)]);
        spenders.settle(7, caller + 1, 100, 0);
        spenders.settle(8, caller, 100, 0);
        assert_eq!(shown(&spenders, 7), [(" POST /chat".to_owned(), 117)]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let spenders = Spenders::new();
        spend(&spenders, 7, None, "PROPFIND-AND-MORE", &format!("/{}", "é".repeat(40)), 1, at(0));
        let expected = format!(" PROPFIN… /{}…", "é".repeat(22));
        assert_eq!(shown(&spenders, 7), [(expected, 1)]);
    }
}
