//! The leased mode: real leases around a store that answers after a round trip.
//!
//! One thread and one queue of events, as in `faults`, without faults.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tollgate::store::{Answer, Check, Outcomes};
use tollgate::{Adjustment, Amount, ManualClock, MemoryStore, Outcome, Rule, Span, Store, StoreError};
use tollgate_lease::Leased;

use super::local::{KEY, START, store, time};
use super::scenario::{FleetArrival, FleetScenario};
use super::tally::Tally;
use crate::executor::{ReadyQueue, Receiver, Sender, TaskFuture, TaskId, lock, oneshot};

/// A check that outlives its caller.
type OwnedCheck = (Rule, Amount, bool);

/// A message to the engine.
enum Command {
    Decide(Vec<OwnedCheck>, Sender<Answer>),
    Adjust(Rule, Adjustment, Sender<Outcome>),
    Sleep(Span, Sender<()>),
    /// A request that waited was decided.
    Decided(Answer),
}

/// The store as a node sees it.
#[derive(Clone)]
struct Remote {
    commands: Arc<Mutex<Vec<Command>>>,
    nodes: usize,
}

impl Remote {
    fn push(&self, command: Command) {
        lock(&self.commands).push(command);
    }

    fn call<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Receiver<T> {
        let (reply, receiver) = oneshot();
        self.push(command(reply));
        receiver
    }
}

impl Store for Remote {
    async fn decide(&self, checks: &[Check<'_>]) -> Result<Answer, StoreError> {
        let owned = checks.iter().map(|it| (it.rule.clone(), it.amount, it.binding)).collect();
        Ok(self.call(|reply| Command::Decide(owned, reply)).await)
    }

    fn try_decide(&self, _: &[Check<'_>], _: &mut Outcomes) -> Option<(bool, tollgate::Timestamp)> {
        None
    }

    async fn adjust(&self, rule: &Rule, _: &[u8], adjustment: Adjustment) -> Result<Outcome, StoreError> {
        Ok(self.call(|reply| Command::Adjust(rule.clone(), adjustment, reply)).await)
    }

    fn nodes(&self) -> usize {
        self.nodes
    }
}

/// An event.
#[allow(clippy::large_enum_variant, reason = "few at a time")]
enum Event {
    Execute(Command),
    Reply(Box<dyn FnOnce() + Send>),
}

type Node = Arc<Leased<Remote, ManualClock>>;

struct Engine {
    now: u64,
    clock: ManualClock,
    remote: Remote,
    store: MemoryStore<ManualClock>,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    ready: ReadyQueue,
    tasks: HashMap<TaskId, TaskFuture>,
    next_task: TaskId,
    delay: u64,
    tally: Tally,
}

/// Runs all requests.
pub(super) fn run(scenario: &FleetScenario, arrivals: &[FleetArrival]) -> Tally {
    let clock = ManualClock::at(START);
    let nodes = scenario.nodes as usize;
    let mut engine = Engine {
        now: 0,
        store: store(&clock),
        remote: Remote { commands: Arc::default(), nodes },
        clock,
        events: BTreeMap::new(),
        next_event: 0,
        ready: ReadyQueue::default(),
        tasks: HashMap::new(),
        next_task: 0,
        delay: scenario.round_trip.as_micros() / 2,
        tally: Tally { offered: arrivals.len() as u64, ..Tally::default() },
    };
    let rule = Arc::new(scenario.rule().leased_for(Some(scenario.lease_ttl())));
    let fleet: Vec<Node> = (0..nodes as u64)
        .map(|node| Arc::new(Leased::with_clock(engine.remote.clone(), engine.clock.clone(), node)))
        .collect();
    for node in &fleet {
        engine.spawn(Box::pin(tend(Arc::clone(node))));
    }
    engine.run_ready();
    for arrival in arrivals {
        engine.run_until(arrival.at);
        if let Some(node) = fleet.get(arrival.node) {
            engine.request(node, &rule);
        }
    }
    engine.run_until(engine.now + 4 * engine.delay);
    engine.tally
}

/// Renews and returns leases, as `tollgate-daemon` does.
async fn tend(node: Node) {
    loop {
        let next = node.tend().await;
        let mut due = pin!(node.due());
        let mut slept = next.map(|span| node.inner().call(|done| Command::Sleep(span, done)));
        poll_fn(|context| {
            let is_due = due.as_mut().poll(context).is_ready();
            let is_over = slept.as_mut().is_some_and(|it| pin!(it).poll(context).is_ready());
            if is_due || is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Engine {
    fn spawn(&mut self, task: TaskFuture) {
        self.next_task += 1;
        self.tasks.insert(self.next_task, task);
        self.ready.push(self.next_task);
    }

    fn schedule(&mut self, after: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + after, self.next_event), event);
    }

    fn set_time(&mut self, now: u64) {
        self.now = now;
        self.clock.set(time(now));
    }

    /// Handles the events until a time.
    fn run_until(&mut self, until: u64) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > until {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.set_time(at);
            match event {
                Event::Execute(command) => self.execute(command),
                Event::Reply(send) => send(),
            }
            self.run_ready();
        }
        self.set_time(until);
    }

    fn execute(&mut self, command: Command) {
        let reply: Box<dyn FnOnce() + Send> = match command {
            Command::Decide(owned, reply) => {
                let check = |(rule, amount, binding): &OwnedCheck| (rule.clone(), *amount, *binding);
                let owned: Vec<_> = owned.iter().map(check).collect();
                let checks: Vec<_> = owned
                    .iter()
                    .map(|(rule, amount, binding)| Check {
                        amount: *amount,
                        binding: *binding,
                        ..Check::new(rule, KEY, 0)
                    })
                    .collect();
                let answer = self.store.decide_now(&checks);
                Box::new(move || _ = reply.send(answer))
            }
            Command::Adjust(rule, adjustment, reply) => {
                let outcome = self.store.adjust_now(&rule, KEY, adjustment);
                Box::new(move || _ = reply.send(outcome))
            }
            Command::Sleep(_, done) => Box::new(move || _ = done.send(())),
            Command::Decided(_) => return,
        };
        self.schedule(self.delay, Event::Reply(reply));
    }

    /// Polls the tasks that were woken, until none is.
    fn run_ready(&mut self) {
        loop {
            let commands = std::mem::take(&mut *lock(&self.remote.commands));
            for command in commands {
                match command {
                    Command::Sleep(span, done) => {
                        self.schedule(span.as_micros(), Event::Reply(Box::new(move || _ = done.send(()))));
                    }
                    Command::Decided(answer) => {
                        if answer.admitted {
                            self.tally.admitted.push(answer.at.since(START).as_micros());
                        }
                    }
                    call => {
                        self.tally.calls.push(self.now);
                        self.schedule(self.delay, Event::Execute(call));
                    }
                }
            }
            let Some(task) = self.ready.pop() else { return };
            let waker = self.ready.waker(task);
            let Some(future) = self.tasks.get_mut(&task) else { continue };
            if future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.tasks.remove(&task);
            }
        }
    }

    fn request(&mut self, node: &Node, rule: &Arc<Rule>) {
        let decided = node.try_decide(&[Check::new(rule, KEY, 1)], &mut Outcomes::new());
        if let Some((is_admitted, _)) = decided {
            if is_admitted {
                self.tally.admitted.push(self.now);
            }
        } else {
            self.tally.waited += 1;
            let (node, rule) = (Arc::clone(node), Arc::clone(rule));
            let deciding = async move {
                if let Ok(answer) = node.decide_uncached(&[Check::new(&rule, KEY, 1)]).await {
                    node.inner().push(Command::Decided(answer));
                }
            };
            self.spawn(Box::pin(deciding));
        }
        self.run_ready();
    }
}
