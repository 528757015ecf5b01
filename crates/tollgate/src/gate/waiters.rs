//! The tasks that wait for a key, in the order of their arrival.
//!
//! Only the first task of a key tries to acquire, and only it has a timer for the limit. The other
//! tasks wake when they become the first. Units that come back therefore wake one task per key,
//! however many wait, and tasks pass in the order in which they arrived.
//!
//! Invariant: a queue has an entry for each task that waits, and no others. The map is therefore
//! bounded by the tasks of the caller.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The tasks that wait, by key.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    queues: Mutex<Queues>,
    /// The number of tasks, so that a key without waiters is left without the lock.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queues {
    by_key: HashMap<Box<[u8]>, VecDeque<Waiter>>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiter {
    /// Increases within a queue.
    number: u64,
    /// The waker of the last poll.
    waker: Option<Waker>,
}

/// A place in the queue of a key. Dropping it leaves the queue.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) key: Box<[u8]>,
    number: u64,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No code panics while it holds the lock.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a task to the queue of a key. The caller must pass the place to
    /// [`leave`](Self::leave).
    pub(super) fn join(&self, key: &[u8]) -> Place {
        let mut queues = self.lock();
        queues.next_number += 1;
        let number = queues.next_number;
        let waiter = Waiter { number, waker: None };
        queues.by_key.entry(key.into()).or_default().push_back(waiter);
        // Before the task tries to acquire: a slot that is released later finds the task.
        self.count.fetch_add(1, Ordering::SeqCst);
        Place { key: key.into(), number }
    }

    /// Registers the waker of a task. Returns whether it is the first of its key.
    pub(super) fn is_first(&self, place: &Place, waker: &Waker) -> bool {
        let mut queues = self.lock();
        let Some(queue) = queues.by_key.get_mut(&place.key) else { return true };
        let Ok(index) = queue.binary_search_by_key(&place.number, |it| it.number) else { return true };
        match &mut queue[index].waker {
            Some(known) => known.clone_from(waker),
            unknown => *unknown = Some(waker.clone()),
        }
        index == 0
    }

    /// Removes a task from its queue, and wakes the next one if it was the first.
    pub(super) fn leave(&self, place: &Place) {
        let mut queues = self.lock();
        let Some(queue) = queues.by_key.get_mut(&place.key) else { return };
        let Ok(index) = queue.binary_search_by_key(&place.number, |it| it.number) else { return };
        queue.remove(index);
        self.count.fetch_sub(1, Ordering::SeqCst);
        let next = if index == 0 { queue.front().and_then(|it| it.waker.clone()) } else { None };
        if queue.is_empty() {
            queues.by_key.remove(&place.key);
        }
        drop(queues);
        if let Some(waker) = next {
            waker.wake();
        }
    }

    /// Wakes the first task of a key, after units came back or a slot was released.
    pub(super) fn wake_first(&self, key: &[u8]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let first = self.lock().by_key.get(key).and_then(|queue| queue.front()?.waker.clone());
        if let Some(waker) = first {
            waker.wake();
        }
    }

    /// Returns the number of tasks that wait.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}
