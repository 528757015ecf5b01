//! Slots that an admitted request holds, given back when it is over.
//!
//! A request is over when its answer has been sent, or when somebody stopped
//! waiting for it: so the slots travel with the answer's body, and dropping them
//! gives them back. Dropping cannot wait. A store in this process is done at
//! once; what a remote one has not finished goes to the hook given to
//! [`LimitLayer::with_spawn`](crate::LimitLayer::with_spawn), and without a hook
//! the slot ends with its lease.
//!
//! Not here: taking slots (`tollgate`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tollgate::{Decision, Limiter, Receipt, Store};

/// Work that outlives the request it belongs to.
pub(crate) type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs work in the background.
pub(crate) type Spawn = Arc<dyn Fn(Background) + Send + Sync>;

/// Slots of any store, given back when dropped.
pub(crate) struct HeldSlots {
    release: Option<Background>,
    spawn: Option<Spawn>,
}

impl HeldSlots {
    /// The slots that a decision took, if it took any. Nearly none does, so what
    /// is copied here costs the others nothing.
    pub(crate) fn of<S: Store>(
        limiter: &Arc<Limiter<S>>,
        decision: &Decision<'_>,
        spawn: Option<&Spawn>,
    ) -> Option<Self> {
        decision.owner()?;
        let receipt = decision.receipt().filter(|receipt| receipt.slots() > 0)?;
        let release = release(Arc::clone(limiter), receipt);
        Some(Self { release: Some(Box::pin(release)), spawn: spawn.cloned() })
    }
}

/// Work that goes on after its answer, such as a tunnel, and holds the slots of
/// its request until it ends.
///
/// A service puts one clone into the extensions of its answer and keeps another;
/// the slots are given back with the last clone.
#[derive(Clone, Default)]
pub struct Outliving(Arc<Mutex<Vec<HeldSlots>>>);

impl Outliving {
    pub(crate) fn keep(&self, slots: HeldSlots) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slots);
    }
}

async fn release<S: Store>(limiter: Arc<Limiter<S>>, receipt: Receipt) {
    // A store that fails now forgets the slot when its lease ends.
    let _outage = limiter.release_receipt(&receipt).await;
}

impl Drop for HeldSlots {
    fn drop(&mut self) {
        let Some(mut release) = self.release.take() else { return };
        let done = release.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        if let (false, Some(spawn)) = (done, &self.spawn) {
            spawn(release);
        }
    }
}
