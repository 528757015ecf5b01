//! The places of a waiting room: bounded in number, by priority class.
//!
//! A request that finds all places taken takes that of the newest request of the least important class, if that class
//! is less important than its own. So a request is turned away only if all places are taken by requests that are at
//! least as important. The displaced request is woken and answered; those that have waited longest keep their places.
//!
//! One lock guards the places of all workers. Only requests that wait take it: once when they enter and leave, and
//! each time they are polled.
//!
//! Invariant: at most `max` places are taken, and dropping a [`RoomPlace`] at any moment frees its place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The places, and counters. The counters publish no other data, so relaxed ordering is sufficient.
pub(crate) struct RoomPlaces {
    pub(crate) max: usize,
    state: Mutex<RoomState>,
    held: AtomicU64,
    turned_away: AtomicU64,
    displaced: AtomicU64,
}

#[derive(Default)]
struct RoomState {
    /// The requests by the rank of their class, then by their arrival. No class is empty.
    by_rank: BTreeMap<u8, BTreeMap<u64, Option<Waker>>>,
    len: usize,
    next_number: u64,
}

impl RoomState {
    /// Removes the newest request of the least important class, if that is less important than `rank`. Returns its
    /// waker.
    #[allow(clippy::option_option, reason = "a displaced request that was not polled yet has no waker")]
    fn displace(&mut self, rank: u8) -> Option<Option<Waker>> {
        let mut last = self.by_rank.last_entry().filter(|class| *class.key() > rank)?;
        let (_, waker) = last.get_mut().pop_last()?;
        if last.get().is_empty() {
            last.remove();
        }
        self.len -= 1;
        Some(waker)
    }

    fn insert(&mut self, rank: u8) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.len += 1;
        self.by_rank.entry(rank).or_default().insert(number, None);
        number
    }

    /// Removes a request, and returns its waker. A request that was displaced is not there any more.
    fn remove(&mut self, rank: u8, number: u64) -> Option<Waker> {
        let class = self.by_rank.get_mut(&rank)?;
        let waker = class.remove(&number);
        if waker.is_some() {
            self.len -= 1;
        }
        if class.is_empty() {
            self.by_rank.remove(&rank);
        }
        waker.flatten()
    }
}

impl RoomPlaces {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::default(),
            held: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, RoomState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of places that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.lock().len
    }

    /// The number of places taken so far, including those that are taken now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The number of requests that found no place.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// The number of requests that lost their place to a more important one.
    pub(crate) fn displaced(&self) -> u64 {
        self.displaced.load(Ordering::Relaxed)
    }

    /// Takes a place for a request of this rank: 0 is the most important. `None` if all places are taken by requests
    /// that are at least as important.
    pub(crate) fn enter(self: &Arc<Self>, rank: u8) -> Option<RoomPlace> {
        let mut state = self.lock();
        let mut displaced = None;
        if state.len >= self.max {
            displaced = state.displace(rank);
            if displaced.is_none() {
                drop(state);
                self.turned_away.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
        let number = state.insert(rank);
        drop(state);
        self.held.fetch_add(1, Ordering::Relaxed);
        if let Some(waker) = displaced {
            self.displaced.fetch_add(1, Ordering::Relaxed);
            waker.into_iter().for_each(Waker::wake);
        }
        Some(RoomPlace { places: Arc::clone(self), rank, number })
    }
}

impl fmt::Debug for RoomPlaces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RoomPlaces")
            .field("max", &self.max)
            .field("taken", &self.taken())
            .finish_non_exhaustive()
    }
}

/// The place of a request. Dropping it frees the place.
pub(crate) struct RoomPlace {
    places: Arc<RoomPlaces>,
    rank: u8,
    number: u64,
}

impl RoomPlace {
    /// Is ready once the request has lost its place to a more important one.
    pub(crate) fn poll_displaced(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.places.lock();
        let known = state.by_rank.get_mut(&self.rank).and_then(|class| class.get_mut(&self.number));
        let Some(known) = known else { return Poll::Ready(()) };
        let mut former = None;
        if !known.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            former = known.replace(context.waker().clone());
        }
        // A waker is dropped after the lock is released: it runs code of the runtime.
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl Drop for RoomPlace {
    fn drop(&mut self) {
        let waker = self.places.lock().remove(self.rank, self.number);
        // After the lock is released, as above.
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_displaced(place: &RoomPlace) -> bool {
        place.poll_displaced(&Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn a_request_is_turned_away_only_by_requests_that_are_at_least_as_important() {
        let room = RoomPlaces::new(3);
        let places = [room.enter(1), room.enter(2), room.enter(2)].map(Option::unwrap);
        assert!(room.enter(2).is_none(), "requests of one class do not displace each other");
        let critical = room.enter(0).unwrap();
        // The newest of the least important class.
        assert_eq!(places.each_ref().map(is_displaced), [false, false, true]);
        let normal = room.enter(1).unwrap();
        assert_eq!(places.each_ref().map(is_displaced), [false, true, true]);
        assert!(room.enter(1).is_none());
        let second = room.enter(0).unwrap();
        assert!(is_displaced(&normal), "the newest of its class");
        let third = room.enter(0).unwrap();
        assert_eq!(places.each_ref().map(is_displaced), [true, true, true]);
        assert!(room.enter(0).is_none());
        assert_eq!((room.taken(), room.held(), room.turned_away(), room.displaced()), (3, 7, 3, 4));
        drop((places, normal));
        assert_eq!(room.taken(), 3, "a displaced request frees no place");
        drop((critical, second, third));
        assert_eq!((room.taken(), room.lock().by_rank.len()), (0, 0));
    }

    #[test]
    fn a_room_without_places_turns_every_request_away() {
        let room = RoomPlaces::new(0);
        assert!(room.enter(0).is_none() && room.enter(9).is_none());
        assert_eq!((room.taken(), room.turned_away()), (0, 2));
    }

    #[test]
    fn a_hundred_thousand_requests_wait_and_are_displaced_and_leave() {
        const COUNT: usize = 100_000;
        let room = RoomPlaces::new(COUNT);
        let bulk: Vec<_> = (0..COUNT).map(|_| room.enter(2).unwrap()).collect();
        let critical: Vec<_> = (0..COUNT).map(|_| room.enter(0).unwrap()).collect();
        assert!(room.enter(0).is_none() && bulk.iter().all(is_displaced));
        drop(bulk);
        assert_eq!((room.taken(), room.displaced()), (COUNT, COUNT as u64));
        drop(critical);
        assert_eq!((room.taken(), room.lock().by_rank.len()), (0, 0));
    }

    /// Random arrivals and departures against a list: the room never has more requests than places, and never turns
    /// a request away or displaces one while a less important one keeps its place.
    #[test]
    fn random_arrivals_and_departures_leave_the_most_important_requests_in_the_room() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let room = RoomPlaces::new(rng.usize(1..8));
            let mut inside: Vec<RoomPlace> = Vec::new();
            for _ in 0..500 {
                if rng.u8(..3) == 0 && !inside.is_empty() {
                    drop(inside.swap_remove(rng.usize(..inside.len())));
                    continue;
                }
                let (rank, was_full) = (rng.u8(..4), inside.len() == room.max);
                let worst = inside.iter().map(|it| it.rank).max();
                let newest = inside.iter().filter(|it| Some(it.rank) == worst).map(|it| it.number).max();
                match room.enter(rank) {
                    Some(place) => {
                        let lost: Vec<u64> =
                            inside.iter().filter(|it| is_displaced(it)).map(|it| it.number).collect();
                        assert_eq!(lost, Vec::from_iter(newest.filter(|_| was_full)), "seed {seed}");
                        assert!(!was_full || worst > Some(rank), "seed {seed}");
                        inside.retain(|it| !is_displaced(it));
                        inside.push(place);
                    }
                    None => assert!(was_full && worst <= Some(rank), "seed {seed}"),
                }
                assert_eq!(room.taken(), inside.len(), "seed {seed}");
            }
        }
    }
}
