//! Work that may wait for a disk, done beside the thread that serves.
//!
//! A worker serves many connections, and none of them should wait because somebody's switch
//! is being written down. Such work is rare, so each gets a thread of its own; few at once,
//! so that nobody can ask for many.
//!
//! Not here: a runtime. Whoever awaits it may be run by any.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::thread;

use crate::problem::Problem;

/// How many may be under way at once.
const MAX_OFFLOADED: usize = 16;

/// How many are under way, and may be.
#[derive(Clone, Default)]
pub(crate) struct Offload(Arc<AtomicUsize>);

/// What the thread leaves behind for the one who waits.
struct Slot<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    /// The thread works; this is who waits.
    Working(Option<Waker>),
    /// It is done; `None` where it broke off.
    Done(Option<T>),
}

/// Says that the thread is done, however it ends.
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
        // Only a number: nothing hangs on its order.
        self.running.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *state, State::Done(self.result.take()));
        drop(state);
        if let State::Working(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Offload {
    /// Does it on a thread of its own, and waits for it without holding up this one.
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
        // Where no thread can be had, the ending is dropped, and that is the answer.
        let started = thread::Builder::new().name("switch".into()).spawn(move || ending.with(work()));
        drop(started);
        let result = poll_fn(|context| {
            let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn whoever_waits_gets_what_was_done_elsewhere() {
        let here = thread::current().id();
        let there = pollster::block_on(Offload::default().run(|| thread::current().id()));
        assert!(there.is_ok_and(|there| there != here));
    }

    #[test]
    fn work_that_breaks_off_is_told_and_leaves_its_place() {
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
    fn there_are_never_too_many_at_once() {
        let (offload, (go, wait)) = (Offload::default(), mpsc::channel::<()>());
        let wait = Arc::new(Mutex::new(wait));
        let waiting: Vec<_> = (0..MAX_OFFLOADED)
            .map(|_| {
                let (offload, wait) = (offload.clone(), Arc::clone(&wait));
                thread::spawn(move || {
                    pollster::block_on(offload.run(move || wait.lock().unwrap().recv().is_err()))
                })
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
