//! The line of calls that wait for the same units of a shared budget.
//!
//! A store has no queue: a caller that it refuses sleeps and tries again. If all waiting calls of a process did so, each
//! unit would be tried for by all of them, and the late ones would never know their turn. Only the first calls of a line
//! try; the others follow in order.
//!
//! Invariant: a line exists only while calls are in it, so their number bounds the memory.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The calls of a line that try at the same time: more than one, so that the way to the store does not bound the rate.
const MAX_TRYING: usize = 8;

/// The lines of a budget, by the limits and keys that their calls need.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<HashMap<u64, Line>>>);

#[derive(Debug, Default)]
struct Line {
    trying: usize,
    waiting: VecDeque<u64>,
    /// The wakers of the waiting calls. A call whose turn it is has none.
    wakers: HashMap<u64, Waker>,
    next: u64,
}

impl Lines {
    /// Waits for the turn of a call.
    pub(crate) fn enter(&self, key: u64) -> Enter<'_> {
        Enter { lines: self, key, place: Place::New }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the turn of a call, and wakes the next.
    fn leave(&self, key: u64) {
        let mut lines = self.lock();
        let Some(line) = lines.get_mut(&key) else { return };
        line.trying = line.trying.saturating_sub(1);
        let next = line.waiting.pop_front().and_then(|id| {
            line.trying += 1;
            line.wakers.remove(&id)
        });
        if line.trying == 0 {
            lines.remove(&key);
        }
        drop(lines);
        next.into_iter().for_each(Waker::wake);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.lock().len()
    }
}

/// A call that waits for its turn.
#[derive(Debug)]
pub(crate) struct Enter<'l> {
    lines: &'l Lines,
    key: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    New,
    Waiting(u64),
    Done,
}

impl<'l> Future for Enter<'l> {
    type Output = Turn<'l>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<'l>> {
        let (lines, key) = (self.lines, self.key);
        let mut table = lines.lock();
        let line = table.entry(key).or_default();
        match self.place {
            Place::New if line.trying < MAX_TRYING && line.waiting.is_empty() => line.trying += 1,
            Place::New => {
                let id = line.next;
                line.next += 1;
                line.waiting.push_back(id);
                line.wakers.insert(id, context.waker().clone());
                self.place = Place::Waiting(id);
                return Poll::Pending;
            }
            Place::Waiting(id) => {
                if let Some(waker) = line.wakers.get_mut(&id) {
                    waker.clone_from(context.waker());
                    return Poll::Pending;
                }
            }
            Place::Done => return Poll::Pending,
        }
        self.place = Place::Done;
        Poll::Ready(Turn { lines, key })
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        let Place::Waiting(id) = self.place else { return };
        let mut table = self.lines.lock();
        let Some(line) = table.get_mut(&self.key) else { return };
        if line.wakers.remove(&id).is_some() {
            line.waiting.retain(|other| *other != id);
        } else {
            // The turn had come, and passes on.
            drop(table);
            self.lines.leave(self.key);
        }
    }
}

/// The turn of a call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'l> {
    lines: &'l Lines,
    key: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lines.leave(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll<'l>(enter: &mut Pin<Box<Enter<'l>>>) -> Option<Turn<'l>> {
        match enter.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    #[test]
    fn calls_take_turns_in_order_and_nothing_is_left_behind() {
        let lines = Lines::default();
        let enter = || Box::pin(lines.enter(7));
        let mut trying: Vec<_> = (0..MAX_TRYING).map(|_| poll(&mut enter()).unwrap()).collect();
        let (mut first, mut second, mut third) = (enter(), enter(), enter());
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none() && poll(&mut third).is_none());
        // Another line is not concerned.
        assert!(poll(&mut Box::pin(lines.enter(8))).is_some());
        trying.pop();
        assert!(poll(&mut second).is_none());
        // The turn of the first call, which is dropped, passes to the second.
        drop(first);
        let turn = poll(&mut second).unwrap();
        drop(third);
        drop(turn);
        drop(trying);
        drop(second);
        assert_eq!(lines.len(), 0);
    }
}
