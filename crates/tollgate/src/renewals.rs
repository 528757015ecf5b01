//! Slots that are renewed while they are held.
//!
//! A lease ends after the `ttl` of its limit, so that a crash frees its slots. A request that runs for
//! longer would lose its slot, and more requests would run than the limit allows. A [`SlotRenewal`]
//! therefore renews the slots of a request after each third of their shortest `ttl`, for as long as it
//! exists.
//!
//! A store that answers without waiting is asked by the timer thread of this process (`timer`). Another
//! store is asked by [`Limiter::reconcile`], which a program on such a store calls every second: a `ttl`
//! of less than about three seconds is not kept alive there.
//!
//! The renewal itself is in `limiter::renew`.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_store::{Clock as _, MemoryStore, Store, SystemClock};

use crate::limiter::Limiter;
use crate::receipt::Receipt;
use crate::timer::{SleepFuture, Sleeper};

/// A lease is renewed after this part of it.
const LEASE_DIVISOR: u32 = 3;

/// The shortest time between two renewals of a slot.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// The number of renewals that a store is asked for at a time.
const MAX_CONCURRENT: usize = 64;

/// The requests whose slots are renewed.
pub(crate) struct Renewals<S> {
    clock: SystemClock,
    schedule: Mutex<Schedule<S>>,
}

struct Schedule<S> {
    held: HashMap<u64, HeldSlots<S>>,
    /// The times of the next renewals, with the numbers of the requests.
    times: BTreeSet<(Timestamp, u64)>,
    next_number: u64,
    /// The sleep until the first renewal, and its end.
    alarm: Option<(Timestamp, SleepFuture)>,
    /// Whether the store has to be awaited, so that the timer thread cannot renew.
    is_awaited: bool,
}

/// A request that holds slots: its limiter and its charges.
type HeldRequest<S> = Arc<(Limiter<S>, Receipt)>;

struct HeldSlots<S> {
    request: HeldRequest<S>,
    due: Timestamp,
    interval: Duration,
}

/// Renews the slots of a request until it is dropped. It does not release them.
///
/// ```
/// # use tollgate::{Call, Limiter};
/// let limiter = Limiter::from_policy("limits: [{by: user, slots: 1, ttl: 30s}]")?;
/// let receipt = limiter.check(&Call::new("POST", "/report").user("ann")).receipt();
/// let receipt = receipt.expect("a slot");
/// let renewal = limiter.keep_slots(&receipt);      // every ten seconds
/// // The work may take minutes.
/// drop(renewal);
/// assert!(limiter.try_release_receipt(&receipt));
/// # Ok::<(), tollgate::PolicyError>(())
/// ```
#[must_use = "slots are not renewed after this is dropped"]
pub struct SlotRenewal<S: Store = MemoryStore> {
    renewals: Arc<Renewals<S>>,
    number: u64,
}

impl<S> Default for Renewals<S> {
    fn default() -> Self {
        let schedule = Schedule {
            held: HashMap::new(),
            times: BTreeSet::new(),
            next_number: 0,
            alarm: None,
            is_awaited: false,
        };
        Self { clock: SystemClock::new(), schedule: Mutex::new(schedule) }
    }
}

impl<S> Renewals<S> {
    fn lock(&self) -> MutexGuard<'_, Schedule<S>> {
        // No code panics while it holds the lock.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, number: u64) {
        let mut schedule = self.lock();
        if let Some(held) = schedule.held.remove(&number) {
            schedule.times.remove(&(held.due, number));
            drop(schedule);
            // The limiter of a request may be the last one.
            drop(held);
        }
    }

    /// Returns the requests whose slots are due, and schedules their next renewals.
    fn take_due(&self) -> Vec<(u64, HeldRequest<S>)> {
        let now = self.clock.now();
        let mut schedule = self.lock();
        let mut due = Vec::new();
        while let Some(&(time, number)) = schedule.times.first().filter(|(time, _)| *time <= now) {
            schedule.times.remove(&(time, number));
            let Some(held) = schedule.held.get_mut(&number) else { continue };
            held.due = now + held.interval.into();
            let next = (held.due, number);
            due.push((number, Arc::clone(&held.request)));
            schedule.times.insert(next);
        }
        due
    }
}

impl<S: Store> Renewals<S> {
    fn add(self: &Arc<Self>, limiter: Limiter<S>, receipt: Receipt, ttl: Duration) -> u64 {
        let interval = (ttl / LEASE_DIVISOR).max(MIN_INTERVAL);
        let due = self.clock.now() + interval.into();
        let mut schedule = self.lock();
        schedule.next_number += 1;
        let number = schedule.next_number;
        let request = Arc::new((limiter, receipt));
        schedule.held.insert(number, HeldSlots { request, due, interval });
        schedule.times.insert((due, number));
        self.set_alarm(&mut schedule);
        number
    }

    /// Sleeps until the first renewal, on the timer thread.
    fn set_alarm(self: &Arc<Self>, schedule: &mut Schedule<S>) {
        let Some(&(first, _)) = schedule.times.first() else {
            schedule.alarm = None;
            return;
        };
        if schedule.is_awaited || schedule.alarm.as_ref().is_some_and(|(end, _)| *end <= first) {
            return;
        }
        let wait = Duration::from(first.since(self.clock.now())).max(MIN_INTERVAL);
        let mut sleep = Sleeper::default().sleep(wait);
        let waker = Waker::from(Arc::clone(self));
        // It was created now, so it is pending, and wakes this value.
        let _pending = sleep.as_mut().poll(&mut Context::from_waker(&waker));
        schedule.alarm = Some((first, sleep));
    }

    /// Renews all slots that are due, if the store answers without waiting.
    fn run_now(self: &Arc<Self>) {
        let mut is_awaited = false;
        for (number, request) in self.take_due() {
            let (limiter, receipt) = &*request;
            match limiter.try_renew_receipt(receipt) {
                // The lease has ended, for example because the process was suspended.
                Some(0) => self.remove(number),
                Some(_) => {}
                None => is_awaited = true,
            }
        }
        let mut schedule = self.lock();
        let fired = schedule.alarm.take();
        if is_awaited {
            // The renewals that were missed are due for the next call of `reconcile`.
            schedule.is_awaited = true;
            schedule.make_all_due();
        }
        self.set_alarm(&mut schedule);
        drop(schedule);
        drop(fired);
    }

    /// Renews all slots that are due, and waits for the store. A slot that the store does not confirm is
    /// renewed at its next time.
    pub(crate) async fn run(&self) {
        let due = self.take_due();
        for some in due.chunks(MAX_CONCURRENT) {
            let renew = |(number, request): &(u64, HeldRequest<S>)| {
                let (number, request) = (*number, Arc::clone(request));
                Box::pin(async move {
                    if let Ok(0) = request.0.renew_receipt(&request.1).await {
                        self.remove(number);
                    }
                })
            };
            join_all(some.iter().map(renew).collect()).await;
        }
    }
}

impl<S> Schedule<S> {
    fn make_all_due(&mut self) {
        self.times.clear();
        for (number, held) in &mut self.held {
            held.due = Timestamp::EPOCH;
            self.times.insert((held.due, *number));
        }
    }
}

/// Polls all futures until each has completed.
async fn join_all<F: Future<Output = ()>>(mut futures: Vec<Pin<Box<F>>>) {
    poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// The timer thread wakes it when a renewal is due.
impl<S: Store> Wake for Renewals<S> {
    fn wake(self: Arc<Self>) {
        self.run_now();
    }
}

impl<S: Store> Limiter<S> {
    /// Renews the slots of a receipt until the returned value is dropped. Returns `None` if the receipt
    /// holds no slots.
    ///
    /// A store in memory is asked by a thread of this process. On a store that waits, slots are renewed by
    /// [`reconcile`](Self::reconcile).
    pub fn keep_slots(&self, receipt: &Receipt) -> Option<SlotRenewal<S>> {
        if receipt.slots() == 0 {
            return None;
        }
        let ttl = receipt.shortest_lease(self.policy())?;
        let renewals = Arc::clone(&self.renewals);
        let number = renewals.add(self.clone(), receipt.clone(), ttl);
        Some(SlotRenewal { renewals, number })
    }
}

impl<S: Store> Drop for SlotRenewal<S> {
    fn drop(&mut self) {
        self.renewals.remove(self.number);
    }
}

impl<S: Store> fmt::Debug for SlotRenewal<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotRenewal").finish_non_exhaustive()
    }
}
