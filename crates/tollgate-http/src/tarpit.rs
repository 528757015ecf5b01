//! Holding requests back that have nearly spent an allowance.
//!
//! Who is slowed down a little spends slower and is refused later, or never. Waiting costs
//! a place and a timer and no thread: places are counted, and who finds none passes at
//! once, so that a flood of slow requests neither grows memory nor stops the service.
//!
//! A request that waits holds what it was admitted with: its slots of concurrency limits,
//! and the place in the service behind that it was found ready for. Whoever stops waiting,
//! such as a client that hangs up, gives up its place at once.
//!
//! Not here: a timer. This crate has no runtime, and is handed a way to sleep.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;
type Sleep = Arc<dyn Fn(Duration) -> SleepFuture + Send + Sync>;

/// Holds requests back for as long as their limits' `soft` says, so many at a time.
/// Clones are the same.
///
/// ```
/// # use tollgate::Limiter;
/// # use tollgate_http::{LimitLayer, Tarpit};
/// let limiter = Limiter::from_policy("
/// limits:
///   - {by: ip, bucket: 100/minute, soft: {at: 80%, tarpit: 250ms}}
/// ")?;
/// let tarpit = Tarpit::new(1_000, tokio::time::sleep);
/// let layer = LimitLayer::new(limiter).with_tarpit(tarpit.clone());
/// assert_eq!((tarpit.waiting(), tarpit.held(), tarpit.passed()), (0, 0, 0));
/// # let _: LimitLayer = layer;
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[derive(Clone)]
pub struct Tarpit {
    places: Arc<TarpitSlots>,
    sleep: Sleep,
}

/// Counts only: nothing is published through them, so no ordering is needed.
#[derive(Debug)]
struct TarpitSlots {
    most: usize,
    waiting: AtomicUsize,
    held: AtomicU64,
    passed: AtomicU64,
}

impl Tarpit {
    /// With so many places, and a way to wait for as long as one is told. None at all: then
    /// nobody waits, and requests are only marked.
    pub fn new<F>(most: usize, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let places = TarpitSlots {
            most,
            waiting: AtomicUsize::new(0),
            held: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        };
        Self { places: Arc::new(places), sleep: boxed(sleep) }
    }

    /// The same places with another way to wait, such as one that ends early.
    #[must_use]
    pub fn sleeping<F>(&self, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { places: Arc::clone(&self.places), sleep: boxed(sleep) }
    }

    /// The most requests that wait at a time.
    pub fn max_held(&self) -> usize {
        self.places.most
    }

    /// How many wait now.
    pub fn waiting(&self) -> usize {
        self.places.waiting.load(Ordering::Relaxed)
    }

    /// How many have been held back so far, those that wait now included.
    pub fn held(&self) -> u64 {
        self.places.held.load(Ordering::Relaxed)
    }

    /// How many were to be held back, found no place and passed at once.
    pub fn passed(&self) -> u64 {
        self.places.passed.load(Ordering::Relaxed)
    }

    /// A place to wait in, for so long; `None` if there is no need, or no place.
    pub(crate) fn enter(&self, time: Duration) -> Option<TarpitWait> {
        let places = &self.places;
        if time.is_zero() || places.most == 0 {
            return None;
        }
        let one_more = |waiting: usize| (waiting < places.most).then_some(waiting + 1);
        if places.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            places.passed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        places.held.fetch_add(1, Ordering::Relaxed);
        let place = TarpitSlot(Arc::clone(places));
        Some(TarpitWait { sleeping: (self.sleep)(time), place })
    }
}

fn boxed<F>(sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Sleep
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |time| Box::pin(sleep(time)))
}

impl std::fmt::Debug for Tarpit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tarpit").field(&self.places).finish()
    }
}

/// A place and what is left of its time. Dropped, the place is free.
pub(crate) struct TarpitWait {
    sleeping: SleepFuture,
    place: TarpitSlot,
}

impl TarpitWait {
    pub(crate) async fn over(self) {
        let Self { sleeping, place } = self;
        sleeping.await;
        drop(place);
    }
}

struct TarpitSlot(Arc<TarpitSlots>);

impl Drop for TarpitSlot {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
