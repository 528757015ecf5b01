//! The limiter in front of the service, in virtual time.
//!
//! Calls take the path of the gateway: `try_decide_or_wait`, and a place in line if the slots of a limit have a queue.
//! Waiting calls are futures. They are polled when the limiter wakes them, and sleep on timers of virtual time.

use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::{
    Call, Clock as _, Decision, HoldEnd, InFlight, Limiter, ManualClock, MemoryStore, OutageSettings, Policy,
    Receipt, RequestOutcome, Sleeper, SlotWait, Timestamp,
};

/// The keys of a store: at most one for each route.
const MAX_KEYS: usize = 64;

/// The limiter of one protection.
pub(super) struct Admission {
    limiter: Limiter<MemoryStore<ManualClock>>,
    clock: ManualClock,
    timers: Arc<Timers>,
    woken: Arc<WokenCalls>,
    waiting: HashMap<usize, WaitFuture>,
}

/// The result of a decision.
#[allow(clippy::large_enum_variant, reason = "moved once, and a box for each call would cost more")]
pub(super) enum Verdict {
    Admitted(Admitted),
    Refused,
    /// The call waits in line.
    Waits,
}

/// An admitted call, to be released at its end.
pub(super) struct Admitted {
    receipt: Option<Receipt>,
    in_flight: Option<Arc<InFlight>>,
}

type WaitFuture = Pin<Box<dyn Future<Output = Option<Admitted>> + Send>>;

impl Admitted {
    /// Returns the admitted call of a decision, or `None` if it was refused.
    fn of(decision: &Decision<'_>) -> Option<Self> {
        let admitted = || Self { receipt: decision.receipt(), in_flight: decision.in_flight().cloned() };
        decision.is_allowed().then(admitted)
    }

    /// Records that the call is passed to the service.
    pub(super) fn start(&self) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.start();
        }
    }
}

impl Admission {
    pub(super) fn new(policy: Policy, seed: u64) -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(1));
        let (timers, woken) = (Arc::<Timers>::default(), Arc::<WokenCalls>::default());
        let sleeper = {
            let (clock, timers) = (clock.clone(), Arc::clone(&timers));
            Sleeper::new(move |time| VirtualSleep::new(&clock, &timers, time))
        };
        let settings = OutageSettings { keys: MAX_KEYS, ..OutageSettings::default() };
        let store = MemoryStore::with_seed(MAX_KEYS, clock.clone(), seed);
        let limiter = Limiter::with_store(policy, store)
            .with_outage_on(&settings, clock.clone())
            .with_latency_clock(clock.clone())
            .with_sleeper(sleeper);
        Self { limiter, clock, timers, woken, waiting: HashMap::new() }
    }

    /// Moves the clock, and wakes calls whose sleep is over.
    pub(super) fn set_time(&self, micros: u64) {
        let now = Timestamp::from_secs(1) + tollgate::Span::from_micros(micros);
        self.clock.set(now);
        self.timers.wake_until(now);
    }

    /// Returns the time of the next timer, in microseconds since the start.
    pub(super) fn next_timer(&self) -> Option<u64> {
        let first = self.timers.lock().first_key_value().map(|((at, _), _)| *at)?;
        Some(first.since(Timestamp::from_secs(1)).as_micros())
    }

    /// Decides about a call.
    pub(super) fn decide(&mut self, id: usize, path: &str) -> Verdict {
        let call = Call::new("GET", path);
        let pending = match self.limiter.try_decide_or_wait(&call, Admitted::of) {
            Ok(Some(admitted)) => return Verdict::Admitted(admitted),
            Ok(None) => return Verdict::Refused,
            Err(pending) => pending.detach(),
        };
        let (clock, timers) = (self.clock.clone(), Arc::clone(&self.timers));
        let hold = move |wait: SlotWait| {
            let sleep = VirtualSleep::new(&clock, &timers, wait.max_wait);
            Some(async move {
                sleep.await;
                Ok::<HoldEnd, Infallible>(HoldEnd::TimeOver)
            })
        };
        let wait = async move {
            match pending.finish_waiting(None, hold, Admitted::of).await {
                Ok(admitted) => admitted,
                Err(never) => match never {},
            }
        };
        self.waiting.insert(id, Box::pin(wait));
        match self.poll(id) {
            Poll::Ready(Some(admitted)) => Verdict::Admitted(admitted),
            Poll::Ready(None) => Verdict::Refused,
            Poll::Pending => Verdict::Waits,
        }
    }

    /// Returns the next call that has waited and is decided now; `None` in its second part if it is refused.
    pub(super) fn next_decided(&mut self) -> Option<(usize, Option<Admitted>)> {
        loop {
            let id = self.woken.lock().pop_front()?;
            if let Poll::Ready(decided) = self.poll(id) {
                return Some((id, decided));
            }
        }
    }

    fn poll(&mut self, id: usize) -> Poll<Option<Admitted>> {
        let Some(future) = self.waiting.get_mut(&id) else { return Poll::Pending };
        let waker = Waker::from(Arc::new(CallWaker { id, woken: Arc::clone(&self.woken) }));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            self.waiting.remove(&id);
        }
        polled
    }

    /// Removes a call from its line.
    pub(super) fn leave(&mut self, id: usize) {
        self.waiting.remove(&id);
    }

    /// Ends an admitted call.
    pub(super) fn release(&self, admitted: Admitted, outcome: RequestOutcome) {
        let Admitted { receipt, in_flight } = admitted;
        if let Some(in_flight) = in_flight {
            in_flight.complete(outcome);
        }
        if let Some(receipt) = receipt.filter(|it| it.slots() > 0) {
            // A store in memory releases without waiting.
            let _released = self.limiter.try_release_receipt(&receipt);
        }
    }
}

/// The ids of calls whose futures are to be polled.
#[derive(Default)]
struct WokenCalls(Mutex<VecDeque<usize>>);

impl WokenCalls {
    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CallWaker {
    id: usize,
    woken: Arc<WokenCalls>,
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.woken.lock().push_back(self.id);
    }
}

/// The sleeping futures, by the time and the number of their sleep.
#[derive(Default)]
struct Timers {
    wakers: Mutex<BTreeMap<(Timestamp, u64), Waker>>,
    next_number: AtomicU64,
}

impl Timers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Timestamp, u64), Waker>> {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_until(&self, now: Timestamp) {
        loop {
            let due = self.lock().first_entry().filter(|it| it.key().0 <= now).map(OccupiedEntry::remove);
            let Some(waker) = due else { return };
            waker.wake();
        }
    }
}

/// A sleep in virtual time. It starts at the first poll.
struct VirtualSleep {
    clock: ManualClock,
    timers: Arc<Timers>,
    time: Duration,
    entry: Option<(Timestamp, u64)>,
}

impl VirtualSleep {
    fn new(clock: &ManualClock, timers: &Arc<Timers>, time: Duration) -> Self {
        Self { clock: clock.clone(), timers: Arc::clone(timers), time, entry: None }
    }
}

impl Future for VirtualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.now();
        let (time, timers) = (self.time, Arc::clone(&self.timers));
        let entry = *self
            .entry
            .get_or_insert_with(|| (now + time.into(), timers.next_number.fetch_add(1, Ordering::Relaxed)));
        if entry.0 <= now {
            return Poll::Ready(());
        }
        timers.lock().insert(entry, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for VirtualSleep {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.timers.lock().remove(&entry);
        }
    }
}
