//! Sleeping without a runtime.
//!
//! Waiting for a limit needs a timer, and an async runtime has one. This crate depends on no
//! runtime, so that a program with another runtime, or with none, does not build one. The default
//! [`Sleeper`] is a thread of this process that wakes tasks. It is started by the first sleep, and
//! ends when no task has slept for a while. A program on tokio passes `tokio::time::sleep`, which
//! uses the timer of the runtime and follows its paused time in tests.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_store::{Clock as _, SystemClock};

/// A future that completes after a sleep.
pub type SleepFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A function that sleeps asynchronously. The default uses a thread of this process, and works on
/// every runtime.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::Sleeper;
/// pollster::block_on(Sleeper::default().sleep(Duration::from_millis(1)));
/// ```
#[derive(Clone)]
pub struct Sleeper(Arc<dyn Fn(Duration) -> SleepFuture + Send + Sync>);

impl Sleeper {
    /// Creates a sleeper from a function such as `tokio::time::sleep`.
    pub fn new<F>(sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |duration| Box::pin(sleep(duration))))
    }

    /// Returns a future that completes after `duration`.
    pub fn sleep(&self, duration: Duration) -> SleepFuture {
        (self.0)(duration)
    }
}

impl Default for Sleeper {
    fn default() -> Self {
        Self::new(|duration| ThreadSleep { duration, entry: None })
    }
}

impl fmt::Debug for Sleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleeper").finish_non_exhaustive()
    }
}

/// The time after which the thread ends if no task sleeps.
const MAX_IDLE: Duration = Duration::from_secs(10);

/// The timer of this process.
struct Timer {
    clock: SystemClock,
    sleepers: Mutex<Sleepers>,
    /// Notified when a task sleeps that wakes before all others.
    changed: Condvar,
}

#[derive(Default)]
struct Sleepers {
    /// The tasks to wake, by time and the number of the sleep.
    wakers: BTreeMap<Entry, Waker>,
    next_number: u64,
    has_thread: bool,
}

type Entry = (Timestamp, u64);

impl Timer {
    fn get() -> &'static Self {
        static TIMER: OnceLock<Timer> = OnceLock::new();
        TIMER.get_or_init(|| Self {
            clock: SystemClock::new(),
            sleepers: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        // No code panics while it holds the lock.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waker under an entry. Returns whether a thread will wake it.
    fn register(&'static self, entry: Entry, waker: &Waker) -> bool {
        let mut sleepers = self.lock();
        let is_first = sleepers.wakers.first_key_value().is_none_or(|(first, _)| entry < *first);
        sleepers.wakers.entry(entry).and_modify(|old| old.clone_from(waker)).or_insert_with(|| waker.clone());
        if !sleepers.has_thread {
            let thread = thread::Builder::new().name("tollgate-timer".to_owned());
            sleepers.has_thread = thread.spawn(|| self.run()).is_ok();
        } else if is_first {
            self.changed.notify_one();
        }
        sleepers.has_thread
    }

    /// Wakes tasks until none has slept for a while.
    fn run(&self) {
        let mut sleepers = self.lock();
        loop {
            let now = self.clock.now();
            let mut due = Vec::new();
            while let Some(first) = sleepers.wakers.first_entry().filter(|first| first.key().0 <= now) {
                due.push(first.remove());
            }
            if !due.is_empty() {
                drop(sleepers);
                for waker in due {
                    // A panic of one task must not end the sleep of all others.
                    let _panicked = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                }
                sleepers = self.lock();
                continue;
            }
            let next = sleepers.wakers.first_key_value().map(|((until, _), _)| until.since(now).into());
            let waited = self.changed.wait_timeout(sleepers, next.unwrap_or(MAX_IDLE));
            let (after, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            sleepers = after;
            if next.is_none() && timeout.timed_out() && sleepers.wakers.is_empty() {
                sleepers.has_thread = false;
                return;
            }
        }
    }
}

/// A sleep on the thread of this process. It starts at the first poll.
struct ThreadSleep {
    duration: Duration,
    entry: Option<Entry>,
}

impl Future for ThreadSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let timer = Timer::get();
        let now = timer.clock.now();
        let duration = self.duration;
        let entry = *self.entry.get_or_insert_with(|| {
            let mut sleepers = timer.lock();
            sleepers.next_number += 1;
            (now + duration.into(), sleepers.next_number)
        });
        if entry.0 <= now {
            return Poll::Ready(());
        }
        if !timer.register(entry, context.waker()) {
            // The system has no thread left. The task polls until the time has come.
            thread::yield_now();
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for ThreadSleep {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            Timer::get().lock().wakers.remove(&entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Wakes a thread and counts.
    struct Counter(thread::Thread, AtomicUsize);

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.unpark();
        }
    }

    #[test]
    fn a_sleep_ends_after_its_time_and_not_before() {
        let clock = SystemClock::new();
        for millis in [0, 1, 20] {
            let begun = clock.now();
            pollster::block_on(Sleeper::default().sleep(Duration::from_millis(millis)));
            assert!(Duration::from(clock.now().since(begun)) >= Duration::from_millis(millis));
        }
    }

    #[test]
    fn a_shorter_sleep_ends_before_a_longer_one_that_began_earlier() {
        let ended = Arc::new(Mutex::new(Vec::new()));
        let threads = [300, 5].map(|millis| {
            let ended = Arc::clone(&ended);
            thread::spawn(move || {
                pollster::block_on(Sleeper::default().sleep(Duration::from_millis(millis)));
                ended.lock().unwrap().push(millis);
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(*ended.lock().unwrap(), [5, 300]);
    }

    #[test]
    fn a_dropped_sleep_leaves_no_waker() {
        let counter = Arc::new(Counter(thread::current(), AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&counter));
        let mut long = Sleeper::default().sleep(Duration::from_secs(3_600));
        assert!(long.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(Arc::strong_count(&counter), 3, "the timer has a waker");
        drop(long);
        assert_eq!(Arc::strong_count(&counter), 2);
        assert_eq!(counter.1.load(Ordering::SeqCst), 0);
    }
}
