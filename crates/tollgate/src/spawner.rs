//! Running work in the background, without a runtime of this crate.
//!
//! A caller that leaves a queue has to be refunded, and `Drop` cannot wait for a store. A program with
//! a runtime passes a function that spawns a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// A future that runs in the background.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that runs a future in the background, such as `tokio::spawn`.
///
/// It may be called on any thread. Work that it cannot run, such as on a thread without a runtime, is
/// dropped, and the limiter defers it.
///
/// ```
/// # use tollgate::Spawner;
/// let spawner = Spawner::new(|work| drop(std::thread::spawn(|| pollster::block_on(work))));
/// # let _: Spawner = spawner;
/// ```
#[derive(Clone)]
pub struct Spawner(Arc<dyn Fn(Work) + Send + Sync>);

impl Spawner {
    /// Creates a spawner from a function.
    pub fn new(spawn: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(spawn))
    }

    /// Runs work in the background.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        (self.0)(Box::pin(work));
    }
}

impl fmt::Debug for Spawner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}
