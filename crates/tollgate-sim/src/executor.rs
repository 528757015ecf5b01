//! Tasks of a simulation: futures that it polls by hand, and values that are sent between them.
//!
//! There are no threads and no timers. A future that waits is woken by a [`Sender`], and the world polls it in the
//! order of the wake-ups.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A task.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The number of a task.
pub(crate) type TaskId = u64;

/// The tasks that were woken, in order.
#[derive(Clone, Default)]
pub(crate) struct ReadyQueue(Arc<Mutex<VecDeque<TaskId>>>);

impl ReadyQueue {
    pub(crate) fn push(&self, task: TaskId) {
        let mut queue = lock(&self.0);
        if !queue.contains(&task) {
            queue.push_back(task);
        }
    }

    pub(crate) fn pop(&self) -> Option<TaskId> {
        lock(&self.0).pop_front()
    }

    pub(crate) fn waker(&self, task: TaskId) -> Waker {
        Waker::from(Arc::new(TaskWaker { task, queue: self.clone() }))
    }
}

struct TaskWaker {
    task: TaskId,
    queue: ReadyQueue,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.queue.push(self.task);
    }
}

/// Locks a value of the world. Only one thread uses it.
pub(crate) fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Shared<T> {
    value: Option<T>,
    waker: Option<Waker>,
    is_receiver_gone: bool,
}

/// Sends one value.
pub(crate) struct Sender<T>(Arc<Mutex<Shared<T>>>);

/// Receives one value: a future.
pub(crate) struct Receiver<T>(Arc<Mutex<Shared<T>>>);

/// Creates a channel for one value.
pub(crate) fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Mutex::new(Shared { value: None, waker: None, is_receiver_gone: false }));
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends the value. Returns whether there is a receiver.
    pub(crate) fn send(self, value: T) -> bool {
        let mut shared = lock(&self.0);
        shared.value = Some(value);
        let (waker, is_received) = (shared.waker.take(), !shared.is_receiver_gone);
        drop(shared);
        if let Some(waker) = waker {
            waker.wake();
        }
        is_received
    }
}

impl<T> Future for Receiver<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut shared = lock(&self.0);
        if let Some(value) = shared.value.take() {
            return Poll::Ready(value);
        }
        shared.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        lock(&self.0).is_receiver_gone = true;
    }
}
