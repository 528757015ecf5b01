//! Tasks on virtual time: they run until all sleep, and then the clock moves to the first timer.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::task::Context;
use std::time::Duration;

use tollgate::{Clock as _, ManualClock, Timestamp};

use crate::executor::{ReadyQueue, Receiver, Sender, TaskFuture, TaskId, lock, oneshot};

const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// Tasks, their timers and the clock.
pub(super) struct World {
    timers: Timers,
    tasks: HashMap<TaskId, TaskFuture>,
    ready: ReadyQueue,
    next_task: TaskId,
}

/// The clock and the timers. Clones share them.
#[derive(Clone)]
pub(super) struct Timers {
    clock: ManualClock,
    sleeping: Arc<Mutex<Sleeping>>,
}

#[derive(Default)]
struct Sleeping {
    wakes: BTreeMap<(Timestamp, u64), Sender<()>>,
    next_number: u64,
}

impl World {
    pub(super) fn new() -> Self {
        let timers = Timers { clock: ManualClock::at(START), sleeping: Arc::default() };
        Self { timers, tasks: HashMap::new(), ready: ReadyQueue::default(), next_task: 0 }
    }

    pub(super) fn timers(&self) -> Timers {
        self.timers.clone()
    }

    pub(super) fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        let id = self.next_task;
        self.next_task += 1;
        self.tasks.insert(id, Box::pin(task));
        self.poll(id);
    }

    /// Runs until no task can go on.
    pub(super) fn run(&mut self) {
        loop {
            while let Some(id) = self.ready.pop() {
                self.poll(id);
            }
            let Some(((at, _), wake)) = lock(&self.timers.sleeping).wakes.pop_first() else { return };
            self.timers.clock.set(at);
            wake.send(());
        }
    }

    fn poll(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let waker = self.ready.waker(id);
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
        }
    }
}

impl Timers {
    pub(super) fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a future that is ready after a time.
    pub(super) fn sleep(&self, time: Duration) -> Receiver<()> {
        let (wake, receiver) = oneshot();
        let mut sleeping = lock(&self.sleeping);
        sleeping.next_number += 1;
        let key = (self.clock.now() + time.into(), sleeping.next_number);
        sleeping.wakes.insert(key, wake);
        receiver
    }
}
