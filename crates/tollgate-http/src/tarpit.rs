//! Delays requests that have reached a soft threshold.
//!
//! A delayed caller spends more slowly and is refused later or never. The number of places is
//! bounded (`places`), and a request that finds no place passes immediately, so that a flood of
//! delayed requests neither grows memory nor stops the service.
//!
//! A delayed request holds the slots that it acquired. A
//! request that is canceled, for example because the client disconnects, frees its place
//! immediately.
//!
//! Not here: a timer. This crate has no runtime; the caller provides the sleep function.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate::Sleeper;

use crate::places::{Places, TimedPlace};

/// Delays requests for the time that the `soft` of their limits asks for, up to a number at a time.
///
/// Clones share the same places.
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
    places: Arc<Places>,
    sleeper: Sleeper,
}

impl Tarpit {
    /// Creates a tarpit with `most` places and a sleep function. With zero places requests are only
    /// marked.
    pub fn new<F>(most: usize, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { places: Places::new(most), sleeper: Sleeper::new(sleep) }
    }

    /// Returns a tarpit that shares the places but sleeps differently, for example a sleep that can
    /// end early.
    #[must_use]
    pub fn sleeping<F>(&self, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { places: Arc::clone(&self.places), sleeper: Sleeper::new(sleep) }
    }

    /// The maximum number of requests that are delayed at a time.
    pub fn max_held(&self) -> usize {
        self.places.max
    }

    /// The number of requests that are delayed now.
    pub fn waiting(&self) -> usize {
        self.places.taken()
    }

    /// The number of requests delayed so far, including those that are delayed now.
    pub fn held(&self) -> u64 {
        self.places.held()
    }

    /// The number of requests that found no place and passed without delay.
    pub fn passed(&self) -> u64 {
        self.places.turned_away()
    }

    /// Takes a place for the given time; `None` if the time is zero or no place is free.
    pub(crate) fn enter(&self, time: Duration) -> Option<TimedPlace<()>> {
        if time.is_zero() || self.places.max == 0 {
            return None;
        }
        self.places.enter(|| self.sleeper.sleep(time))
    }
}

impl std::fmt::Debug for Tarpit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tarpit").field(&self.places).finish()
    }
}
