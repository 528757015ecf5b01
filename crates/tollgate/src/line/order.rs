//! The order of the requests that wait for the slots of one key.
//!
//! - **Priority**: a request of a more important class goes first, also if it came later.
//! - **Fairness**: within a class, the `fair_by` keys are served in turn. A key whose first request joins,
//!   and a key that was served, go to the end of the rotation. So a caller that sends many keys delays a
//!   waiting key by at most one request of each key that was before it in the rotation.
//! - **First come, first served** among the requests of one key.
//!
//! A newcomer does not pass requests of its own or a more important class, also if a slot is free. If the
//! line is full, the newest request of the key with the most requests is displaced, in the least important
//! class: by a newcomer of a more important class, or of the same class if its key has at least two
//! requests fewer. Otherwise the newcomer is refused. So a key that fills the line keeps no other key out.
//!
//! No clock, no lock and no store: the tests run it step by step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::task::Waker;
use std::time::Duration;

use tollgate_core::Timestamp;

use super::Turn;

/// The bounds of the wait that a refused request is told.
const MIN_RETRY: Duration = Duration::from_secs(1);
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The identity of a request in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The rank of its priority class: 0 is the most important.
    pub(crate) rank: u8,
    /// The number of its `fair_by` key.
    pub(crate) fair: u64,
    /// Increases with the arrival. It is kept if the request moves to another line.
    pub(crate) number: u64,
}

/// The line has no place for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineFull;

/// A request that has lost its place to a newcomer.
#[derive(Debug)]
pub(super) struct Displaced {
    pub(super) waker: Option<Waker>,
}

/// The result of leaving a line.
#[derive(Debug)]
pub(super) struct Departure {
    /// The waker of the request that is next, if it has to try.
    pub(super) next: Option<Waker>,
}

/// The requests that wait for the slots of one key.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// By rank. No class is empty.
    classes: BTreeMap<u8, Class>,
    len: usize,
    /// The number of the request that asks the store.
    attempting: Option<u64>,
    /// Whether a slot may be free since the last attempt began.
    is_due: bool,
    pace: Pace,
}

/// The requests of one priority class.
#[derive(Debug, Default)]
struct Class {
    /// By arrival.
    waiters: BTreeMap<u64, Waiter>,
    /// The keys with requests that wait.
    keys: HashMap<u64, FairKey>,
    /// The rotation of the keys: the turn of each, and its number.
    rotation: BTreeMap<u64, u64>,
    /// The keys by their number of requests.
    sizes: BTreeSet<(usize, u64)>,
    /// The next turn at the end of the rotation.
    next_turn: u64,
}

#[derive(Debug)]
struct Waiter {
    fair: u64,
    waker: Option<Waker>,
}

/// The requests of one `fair_by` key.
#[derive(Debug)]
struct FairKey {
    numbers: BTreeSet<u64>,
    turn: u64,
}

impl Class {
    fn insert(&mut self, fair: u64, number: u64) {
        self.change(fair, |numbers| numbers.insert(number));
        self.waiters.insert(number, Waiter { fair, waker: None });
    }

    /// Removes a request; `is_served`: it got a slot, so its key goes to the end of the rotation.
    fn remove(&mut self, number: u64, is_served: bool) -> Option<Waiter> {
        let waiter = self.waiters.remove(&number)?;
        self.change(waiter.fair, |numbers| numbers.remove(&number));
        if is_served && let Some(key) = self.keys.get_mut(&waiter.fair) {
            self.rotation.remove(&key.turn);
            key.turn = self.next_turn;
            self.rotation.insert(key.turn, waiter.fair);
            self.next_turn += 1;
        }
        Some(waiter)
    }

    /// Changes the requests of a key. A key with its first request joins the rotation, and a key without
    /// requests leaves it.
    fn change(&mut self, fair: u64, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let key = self.keys.entry(fair).or_insert_with(|| {
            let turn = self.next_turn;
            self.next_turn += 1;
            self.rotation.insert(turn, fair);
            FairKey { numbers: BTreeSet::new(), turn }
        });
        self.sizes.remove(&(key.numbers.len(), fair));
        change(&mut key.numbers);
        if key.numbers.is_empty() {
            self.rotation.remove(&key.turn);
            self.keys.remove(&fair);
        } else {
            self.sizes.insert((key.numbers.len(), fair));
        }
    }

    fn first(&self) -> Option<u64> {
        let (_, fair) = self.rotation.first_key_value()?;
        self.keys.get(fair)?.numbers.first().copied()
    }

    /// Returns the newest request of the key with the most requests, except the one that asks the store.
    fn displaceable(&self, attempting: Option<u64>) -> Option<u64> {
        let keys = self.sizes.iter().rev().filter_map(|(_, fair)| self.keys.get(fair));
        let newest = |key: &FairKey| key.numbers.iter().rev().find(|it| Some(**it) != attempting).copied();
        keys.into_iter().find_map(newest)
    }

    /// Returns whether the largest key of the class has at least two requests more than this one.
    fn exceeds_share(&self, fair: u64) -> bool {
        let own = self.keys.get(&fair).map_or(0, |key| key.numbers.len());
        self.sizes.last().is_some_and(|(most, _)| *most >= own + 2)
    }
}

impl Line {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether a newcomer of this rank has to wait behind others.
    pub(super) fn is_behind(&self, rank: u8) -> bool {
        self.classes.first_key_value().is_some_and(|(first, _)| *first <= rank)
    }

    /// Returns the number of the first request, and its class.
    fn first(&self) -> Option<u64> {
        self.classes.first_key_value().and_then(|(_, class)| class.first())
    }

    /// Returns the waker of the first request, unless one asks the store.
    fn first_waker(&self) -> Option<Waker> {
        if self.attempting.is_some() {
            return None;
        }
        let class = self.classes.first_key_value()?.1;
        class.waiters.get(&class.first()?)?.waker.clone()
    }

    /// Adds a request. If the line is full, it takes the place of another one, which is returned.
    pub(super) fn join(&mut self, ticket: Ticket, length: usize) -> Result<Option<Displaced>, LineFull> {
        let mut displaced = None;
        if self.len >= length {
            displaced = Some(self.displace(&ticket).ok_or(LineFull)?);
        } else {
            self.len += 1;
        }
        self.classes.entry(ticket.rank).or_default().insert(ticket.fair, ticket.number);
        if self.first() == Some(ticket.number) {
            // A slot that was released before it joined has woken no request.
            self.is_due = true;
        }
        Ok(displaced)
    }

    /// Removes a request of the least important class that yields its place to a newcomer.
    fn displace(&mut self, newcomer: &Ticket) -> Option<Displaced> {
        let (&last, class) = self.classes.last_key_value()?;
        let yields = last > newcomer.rank || last == newcomer.rank && class.exceeds_share(newcomer.fair);
        let number = class.displaceable(self.attempting).filter(|_| yields)?;
        let waiter = self.remove(last, number, false)?;
        Some(Displaced { waker: waiter.waker })
    }

    fn remove(&mut self, rank: u8, number: u64, is_served: bool) -> Option<Waiter> {
        let class = self.classes.get_mut(&rank)?;
        let waiter = class.remove(number, is_served)?;
        if class.waiters.is_empty() {
            self.classes.remove(&rank);
        }
        Some(waiter)
    }

    /// Returns the state of a request, and registers its waker. `None`: it is not in the line.
    pub(super) fn poll(&mut self, ticket: &Ticket, waker: &Waker) -> Option<Turn> {
        let is_first = self.first() == Some(ticket.number);
        let waiter = self.classes.get_mut(&ticket.rank)?.waiters.get_mut(&ticket.number)?;
        match &mut waiter.waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        Some(match (is_first, self.attempting) {
            (true, None) if self.is_due => {
                self.is_due = false;
                self.attempting = Some(ticket.number);
                Turn::Attempt
            }
            (true, None) => Turn::First,
            _ => Turn::Behind,
        })
    }

    /// Makes an attempt due. Returns the waker of the request that makes it.
    pub(super) fn signal(&mut self) -> Option<Waker> {
        self.is_due = true;
        self.first_waker()
    }

    /// Ends an attempt that found no slot.
    pub(super) fn refused(&mut self, ticket: &Ticket) -> Option<Waker> {
        if self.attempting == Some(ticket.number) {
            self.attempting = None;
        }
        // Another request may have become the first, and has to know.
        let is_first = self.first() == Some(ticket.number);
        if self.is_due || !is_first { self.first_waker() } else { None }
    }

    /// Removes a request that leaves, `served` at a time or not. `None`: it is not in the line.
    pub(super) fn leave(&mut self, ticket: &Ticket, served: Option<Timestamp>) -> Option<Departure> {
        let was_first = self.first() == Some(ticket.number);
        self.remove(ticket.rank, ticket.number, served.is_some())?;
        self.len -= 1;
        if let Some(at) = served {
            self.pace.record(at);
        }
        if self.attempting == Some(ticket.number) {
            self.attempting = None;
            // There may be more slots; or the slot that it was woken for is left.
            self.is_due = true;
        }
        Some(Departure { next: if self.is_due || was_first { self.first_waker() } else { None } })
    }

    /// Returns the numbers and wakers of all requests.
    pub(super) fn into_waiters(self) -> impl Iterator<Item = (u64, Option<Waker>)> {
        let waiters = self.classes.into_values().flat_map(|class| class.waiters);
        waiters.map(|(number, waiter)| (number, waiter.waker))
    }

    /// Returns the time until the present requests are served, from the pace of the line.
    pub(super) fn expected_wait(&self) -> Option<Duration> {
        let requests = u32::try_from(self.len).unwrap_or(u32::MAX);
        Some(self.pace.interval?.saturating_mul(requests).clamp(MIN_RETRY, MAX_RETRY))
    }
}

/// How fast requests of a line get slots.
#[derive(Debug, Default)]
struct Pace {
    last: Option<Timestamp>,
    /// The moving average of the time between two requests.
    interval: Option<Duration>,
}

impl Pace {
    fn record(&mut self, at: Timestamp) {
        if let Some(last) = self.last.replace(at) {
            let between = Duration::from(at.since(last));
            self.interval = Some(self.interval.map_or(between, |known| (known * 7 + between) / 8));
        }
    }
}
