//! A bounded number of places for requests that wait, each with a timer.
//!
//! A place takes memory but no thread. The bound keeps a flood of waiting requests from growing
//! memory. A request that finds no place passes without the delay of the tarpit (`tarpit`). The places of the
//! waiting room, which refuses such a request, are in `room_places`.
//!
//! Invariant: dropping a [`TimedPlace`] at any moment frees its place.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The places, and counters. They publish no other data, so relaxed ordering is sufficient.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) max: usize,
    taken: AtomicUsize,
    held: AtomicU64,
    turned_away: AtomicU64,
}

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            taken: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
        })
    }

    /// The number of places that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// The number of places taken so far, including those that are taken now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// The number of requests that found no place.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Takes a place with a timer; `None` if no place is free. The timer is created only if there is
    /// a place.
    pub(crate) fn enter<T>(self: &Arc<Self>, timer: impl FnOnce() -> Timer<T>) -> Option<TimedPlace<T>> {
        let one_more = |taken: usize| (taken < self.max).then_some(taken + 1);
        if self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        let place = Place(Arc::clone(self));
        Some(TimedPlace { timer: timer(), place })
    }
}

/// A sleep, and how it ended.
pub(crate) type Timer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A place and its timer. Dropping it frees the place.
pub(crate) struct TimedPlace<T> {
    timer: Timer<T>,
    place: Place,
}

impl<T> TimedPlace<T> {
    /// Waits for the timer, and frees the place.
    pub(crate) async fn wait(self) -> T {
        let Self { timer, place } = self;
        let end = timer.await;
        drop(place);
        end
    }
}

struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
