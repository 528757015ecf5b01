//! Runs blocking work on a separate thread.
//!
//! A worker serves many connections, which must not wait while a mode change is written to disk. Such
//! work is rare, so each call starts a thread; the number of concurrent threads is bounded.
//!
//! The future does not depend on a runtime.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::thread;

use parking_lot::Mutex;

use crate::problem::Problem;

/// The maximum number of concurrent threads.
const MAX_OFFLOADED: usize = 16;

/// The number of running threads.
#[derive(Clone, Default)]
pub(crate) struct Offload(Arc<AtomicUsize>);

/// The shared state between the thread and the waiting future.
struct Slot<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    /// The thread is running; holds the waker of the future.
    Working(Option<Waker>),
    /// The thread has ended; `None` if it panicked.
    Done(Option<T>),
}

/// Completes the slot when dropped, even on a panic.
struct CompletionGuard<T> {
    slot: Arc<Slot<T>>,
    result: Option<T>,
    running: Arc<AtomicUsize>,
}

impl<T> CompletionGuard<T> {
    fn with(mut self, result: T) {
        self.result = Some(result);
    }
}

impl<T> Drop for CompletionGuard<T> {
    fn drop(&mut self) {
        // Relaxed, because the number orders no other memory access.
        self.running.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.slot.state.lock();
        let before = std::mem::replace(&mut *state, State::Done(self.result.take()));
        drop(state);
        if let State::Working(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Offload {
    /// Runs `work` on a new thread, and awaits its result without blocking.
    pub(crate) async fn run<T, F>(&self, work: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        if self.0.fetch_add(1, Ordering::Relaxed) >= MAX_OFFLOADED {
            self.0.fetch_sub(1, Ordering::Relaxed);
            return Err(Problem::busy());
        }
        let slot = Arc::new(Slot { state: Mutex::new(State::Working(None)) });
        let ending = CompletionGuard { slot: Arc::clone(&slot), result: None, running: Arc::clone(&self.0) };
        // If no thread can be started, dropping the guard completes the slot.
        let started = thread::Builder::new().name("switch".into()).spawn(move || ending.with(work()));
        drop(started);
        let result = poll_fn(|context| {
            let mut state = slot.state.lock();
            match &mut *state {
                State::Done(result) => Poll::Ready(result.take()),
                State::Working(waker) => {
                    *waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        result.await.ok_or_else(Problem::busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn the_future_returns_the_result_of_the_thread() {
        let here = thread::current().id();
        let there = pollster::block_on(Offload::default().run(|| thread::current().id()));
        assert!(there.is_ok_and(|there| there != here));
    }

    #[test]
    fn a_panic_is_reported_and_releases_its_slot() {
        let offload = Offload::default();
        for _ in 0..2 * MAX_OFFLOADED {
            assert!(pollster::block_on(offload.run(|| assert!(is_so_many_as_none()))).is_err());
        }
        assert!(pollster::block_on(offload.run(|| ())).is_ok());
    }

    fn is_so_many_as_none() -> bool {
        MAX_OFFLOADED == 0
    }

    #[test]
    fn the_number_of_threads_is_bounded() {
        let (offload, (go, wait)) = (Offload::default(), mpsc::channel::<()>());
        let wait = Arc::new(Mutex::new(wait));
        let waiting: Vec<_> = (0..MAX_OFFLOADED)
            .map(|_| {
                let (offload, wait) = (offload.clone(), Arc::clone(&wait));
                thread::spawn(move || pollster::block_on(offload.run(move || wait.lock().recv().is_err())))
            })
            .collect();
        while offload.0.load(Ordering::Relaxed) < MAX_OFFLOADED {
            thread::yield_now();
        }
        assert!(pollster::block_on(offload.run(|| ())).is_err());
        drop(go);
        assert!(waiting.into_iter().all(|thread| thread.join().unwrap().is_ok()));
    }
}
