//! Random arrivals, releases, departures and attempts against a model of the line.
//!
//! An attempt has three steps, as on a store that is awaited: the request takes its turn, the store
//! decides, and the request learns the result. Other steps happen in between.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use tollgate_core::{RuleId, Span, Timestamp};
use tollgate_policy::{Key, Policy};

use super::{LineFull, LineKey, LinePlace, Lines, Ticket, Turn};

const SLOTS: usize = 3;
const LENGTH: usize = 12;

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A request that waits.
struct Waiter {
    ticket: Ticket,
    place: LinePlace,
    woken: Arc<Flag>,
    attempt: Attempt,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    None,
    /// The store has not decided.
    Sent,
    /// The store has decided.
    Decided(bool),
}

/// The rotation of the keys that a model remembers: rank, `fair_by` key. The first is the next.
type Rotation = Vec<(u8, u64)>;

struct World {
    lines: Arc<Lines>,
    key: LineKey,
    rng: fastrand::Rng,
    free: usize,
    running: usize,
    waiters: Vec<Waiter>,
    rotation: Rotation,
    now: Timestamp,
    served: usize,
    displaced: usize,
    refused: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            lines: Arc::default(),
            key: (RuleId(7), Key::named(b"key")),
            rng: fastrand::Rng::with_seed(seed),
            free: SLOTS,
            running: 0,
            waiters: Vec::new(),
            rotation: Vec::new(),
            now: Timestamp::from_secs(1_000),
            served: 0,
            displaced: 0,
            refused: 0,
        }
    }

    fn arrive(&mut self) {
        let (rank, fair) = (self.rng.u8(0..3), self.rng.u64(0..4));
        let is_behind = self.lines.is_behind(|| self.key.clone(), rank);
        let expected = self.waiters.iter().any(|it| it.ticket.rank <= rank);
        assert_eq!(is_behind, expected, "a newcomer waits behind its own and more important classes");
        if !is_behind && self.free > 0 {
            self.free -= 1;
            self.running += 1;
            return;
        }
        let ticket = Ticket { rank, fair, number: self.lines.number() };
        let is_full = self.waiters.len() >= LENGTH;
        let displaced = self.displaced_by(ticket);
        match self.lines.join(self.key.clone(), ticket, LENGTH) {
            Err(LineFull) => {
                assert!(is_full && displaced.is_none(), "a place was free");
                self.refused += 1;
            }
            Ok(place) => {
                if is_full {
                    self.displace(displaced.expect("only a request that yields is displaced"));
                }
                let woken = Arc::new(Flag(AtomicBool::new(true)));
                self.waiters.push(Waiter { ticket, place, woken, attempt: Attempt::None });
                if !self.rotation.contains(&(rank, fair)) {
                    self.rotation.push((rank, fair));
                }
            }
        }
    }

    /// The numbers of requests that wait, by `fair_by` key of a class.
    fn sizes(&self, rank: u8) -> HashMap<u64, usize> {
        let mut sizes = HashMap::new();
        for it in self.waiters.iter().filter(|it| it.ticket.rank == rank) {
            *sizes.entry(it.ticket.fair).or_default() += 1;
        }
        sizes
    }

    /// The request that yields its place to a newcomer: the newest one of the largest key that does not
    /// ask the store.
    fn displaced_by(&self, newcomer: Ticket) -> Option<u64> {
        let last = self.waiters.iter().map(|it| it.ticket.rank).max()?;
        let sizes = self.sizes(last);
        let own = sizes.get(&newcomer.fair).copied().unwrap_or(0);
        if last < newcomer.rank || last == newcomer.rank && *sizes.values().max()? < own + 2 {
            return None;
        }
        let can = |it: &&Waiter| it.ticket.rank == last && it.attempt == Attempt::None;
        let newest = |fair: u64| {
            let of_key = self.waiters.iter().filter(can).filter(|it| it.ticket.fair == fair);
            of_key.map(|it| it.ticket.number).max()
        };
        let able = sizes.iter().filter_map(|(fair, size)| Some((*size, *fair, newest(*fair)?)));
        able.max().map(|(.., number)| number)
    }

    fn displace(&mut self, number: u64) {
        let at = self.waiters.iter().position(|it| it.ticket.number == number).unwrap();
        let gone = self.waiters.swap_remove(at);
        assert!(gone.woken.0.load(Ordering::SeqCst), "it has to learn of it");
        assert_eq!(gone.place.poll(Waker::noop()), Turn::Displaced);
        self.displaced += 1;
        drop(gone);
        self.forget();
    }

    fn release(&mut self) {
        if self.running > 0 {
            self.running -= 1;
            self.free += 1;
            self.lines.released(self.key.0, &self.key.1);
        }
    }

    fn leave(&mut self) {
        if !self.waiters.is_empty() {
            let gone = self.waiters.swap_remove(self.rng.usize(..self.waiters.len()));
            // The store takes back the slot of an attempt without a receiver.
            self.free += usize::from(gone.attempt == Attempt::Decided(true));
            drop(gone);
            self.forget();
        }
    }

    /// Removes keys without requests from the rotation.
    fn forget(&mut self) {
        let waiters = &self.waiters;
        self.rotation.retain(|key| waiters.iter().any(|it| (it.ticket.rank, it.ticket.fair) == *key));
    }

    /// The number of the request that goes first, by the rule.
    fn expected(&self) -> u64 {
        let rank = self.waiters.iter().map(|it| it.ticket.rank).min().unwrap();
        let key = self.rotation.iter().find(|(of, _)| *of == rank).unwrap();
        let of_key = self.waiters.iter().filter(|it| (it.ticket.rank, it.ticket.fair) == *key);
        of_key.map(|it| it.ticket.number).min().unwrap()
    }

    /// Polls one woken request, or lets one attempt proceed. Returns whether there was one.
    fn proceed(&mut self) -> bool {
        let can = |it: &Waiter| it.attempt != Attempt::None || it.woken.0.load(Ordering::SeqCst);
        let able: Vec<usize> = (0..self.waiters.len()).filter(|at| can(&self.waiters[*at])).collect();
        if able.is_empty() {
            return false;
        }
        let at = able[self.rng.usize(..able.len())];
        let waiter = &mut self.waiters[at];
        match waiter.attempt {
            Attempt::Sent => {
                let admitted = self.free > 0;
                self.free -= usize::from(admitted);
                waiter.attempt = Attempt::Decided(admitted);
            }
            Attempt::Decided(false) => {
                waiter.attempt = Attempt::None;
                waiter.place.refused();
                // It continues to its next poll.
                waiter.woken.0.store(true, Ordering::SeqCst);
            }
            Attempt::Decided(true) => {
                let waiter = self.waiters.swap_remove(at);
                self.now = self.now + Span::from_millis(10);
                waiter.place.served(self.now);
                self.running += 1;
                self.served += 1;
                let key = (waiter.ticket.rank, waiter.ticket.fair);
                self.rotation.retain(|it| *it != key);
                self.rotation.push(key);
                self.forget();
            }
            Attempt::None => {
                waiter.woken.0.store(false, Ordering::SeqCst);
                let waker = Waker::from(Arc::clone(&waiter.woken));
                let (number, turn) = (waiter.ticket.number, waiter.place.poll(&waker));
                match turn {
                    Turn::Attempt => {
                        assert_eq!(number, self.expected(), "the order of the line");
                        assert!(self.waiters.iter().all(|it| it.attempt == Attempt::None), "one at a time");
                        self.waiters[at].attempt = Attempt::Sent;
                    }
                    Turn::First | Turn::Behind => {}
                    Turn::Displaced | Turn::Freed => panic!("{turn:?}"),
                }
            }
        }
        true
    }

    fn check(&self) {
        assert!(self.running <= SLOTS);
        assert_eq!(self.free + self.running + self.taken(), SLOTS);
    }

    fn taken(&self) -> usize {
        self.waiters.iter().filter(|it| it.attempt == Attempt::Decided(true)).count()
    }
}

#[test]
fn no_wake_is_lost_and_the_order_holds_under_random_steps() {
    let (mut served, mut displaced, mut refused) = (0, 0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        for step in 0..600 {
            match world.rng.u8(0..10) {
                0..3 => world.arrive(),
                3..5 => world.release(),
                5 => world.leave(),
                _ => drop(world.proceed()),
            }
            world.check();
            // At times, everything that can happen without a new event happens.
            if step % 23 == 0 {
                while world.proceed() {
                    world.check();
                }
                assert!(
                    world.free == 0 || world.waiters.is_empty(),
                    "seed {seed}, step {step}: a slot is free and a request waits"
                );
                assert_eq!(world.lines.len(), world.waiters.len(), "seed {seed}");
            }
        }
        while world.running > 0 || !world.waiters.is_empty() {
            world.release();
            while world.proceed() {}
            world.check();
        }
        assert_eq!((world.free, world.lines.len()), (SLOTS, 0), "seed {seed}");
        (served, displaced, refused) =
            (served + world.served, displaced + world.displaced, refused + world.refused);
    }
    assert!(served > 5_000 && displaced > 50 && refused > 50, "{served} {displaced} {refused}");
}

/// Serves one request after the other, and returns their tickets.
fn serve_all(lines: &Arc<Lines>, key: &LineKey, mut places: Vec<(Ticket, LinePlace)>) -> Vec<Ticket> {
    let mut order = Vec::new();
    while !places.is_empty() {
        lines.released(key.0, &key.1);
        let turns = |(_, place): &(Ticket, LinePlace)| place.poll(Waker::noop()) == Turn::Attempt;
        let at = places.iter().position(turns).expect("the first request of the line");
        let (ticket, place) = places.remove(at);
        place.served(Timestamp::EPOCH);
        order.push(ticket);
    }
    order
}

fn join_all(tickets: &[(u8, u64)]) -> (Arc<Lines>, LineKey, Vec<(Ticket, LinePlace)>) {
    let (lines, key) = (Arc::<Lines>::default(), (RuleId(1), Key::named(b"key")));
    let mut places = Vec::new();
    for &(rank, fair) in tickets {
        let ticket = Ticket { rank, fair, number: lines.number() };
        places.push((ticket, lines.join(key.clone(), ticket, 1_000_000).unwrap()));
    }
    (lines, key, places)
}

#[test]
fn the_order_is_by_priority_then_in_turn_by_fair_key_then_first_come() {
    // A tenant with three requests, one with one, and an important request that comes last.
    let (lines, key, places) = join_all(&[(1, 10), (1, 10), (1, 10), (1, 20), (0, 10)]);
    let order: Vec<_> = serve_all(&lines, &key, places).iter().map(|it| it.number).collect();
    assert_eq!(order, [4, 0, 3, 1, 2]);
    assert_eq!(lines.len(), 0);
}

#[test]
fn fresh_keys_do_not_keep_a_key_that_waits_from_its_turn() {
    // A tenant with many requests, and a caller that sends each request under another key.
    let (lines, key, mut places) = join_all(&[(0, 1); 100]);
    let mut served = [0, 0];
    for fresh in 0..100 {
        let ticket = Ticket { rank: 0, fair: 1_000 + fresh, number: lines.number() };
        places.push((ticket, lines.join(key.clone(), ticket, 1_000).unwrap()));
        lines.released(key.0, &key.1);
        let turns = |(_, place): &(Ticket, LinePlace)| place.poll(Waker::noop()) == Turn::Attempt;
        let (ticket, place) = places.remove(places.iter().position(turns).unwrap());
        place.served(Timestamp::EPOCH);
        served[usize::from(ticket.fair != 1)] += 1;
    }
    assert!(served[0] >= 10, "{served:?}: the tenant waits in vain");
}

#[test]
fn a_key_that_fills_the_line_keeps_no_other_key_out() {
    const LENGTH: usize = 10;
    let (lines, key, mut places) = join_all(&[(1, 1); LENGTH]);
    let mut join = |rank, fair| {
        let ticket = Ticket { rank, fair, number: lines.number() };
        let joined = lines.join(key.clone(), ticket, LENGTH).is_ok_and(|place| {
            places.push((ticket, place));
            true
        });
        let is_gone = |(_, place): &(Ticket, LinePlace)| place.poll(Waker::noop()) == Turn::Displaced;
        let gone: Vec<_> = places.extract_if(.., |it| is_gone(it)).map(|(it, _)| it.number).collect();
        (joined, gone)
    };
    assert_eq!(join(1, 1), (false, vec![]), "its own key has the most requests");
    assert_eq!(join(1, 2), (true, vec![9]), "the newest of the largest key");
    for displaced in (5..9).rev() {
        assert_eq!(join(1, 2), (true, vec![displaced]));
    }
    // Five requests each.
    assert_eq!((join(1, 1), join(1, 2)), ((false, vec![]), (false, vec![])));
    assert_eq!(join(2, 3), (false, vec![]), "a less important request displaces none");
    let (joined, gone) = join(0, 1);
    assert!(joined && gone.len() == 1, "a more important one displaces one of the largest keys");
    drop(places);
    assert_eq!(lines.len(), 0);
}

#[test]
fn a_removed_limit_frees_the_requests_that_wait_for_it() {
    let (lines, _, places) = join_all(&[(0, 0), (0, 0)]);
    lines.follow(1, &Arc::new(Policy::parse("limits: []").unwrap()), |_| false);
    assert!(places.iter().all(|(_, place)| place.poll(Waker::noop()) == Turn::Freed));
    drop(places);
    assert_eq!(lines.len(), 0);
    assert!(lines.lock().freed.is_empty() && lines.lock().by_key.is_empty());
}

#[test]
fn a_hundred_thousand_requests_join_are_served_and_leave_and_nothing_is_left() {
    let tickets: Vec<_> = (0..100_000).map(|number| ((number % 3) as u8, number % 1_000)).collect();
    let (lines, key, mut places) = join_all(&tickets);
    assert_eq!(lines.len(), 100_000);
    // Every second one leaves, from anywhere in the line.
    let mut number = 0;
    places.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    assert_eq!(lines.len(), 50_000);
    for _ in 0..2_000 {
        lines.released(key.0, &key.1);
        let first = places.iter().position(|(_, place)| place.poll(Waker::noop()) == Turn::Attempt);
        places.swap_remove(first.unwrap()).1.served(Timestamp::EPOCH);
    }
    drop(places);
    assert_eq!(lines.len(), 0);
    assert!(lines.lock().by_key.is_empty());
}
