//! Nodes with a listener on a thread of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tollgate::{Limiter, Policy, SharedLimiter};
use tollgate_core::Timestamp;
use tollgate_net::{Drain, Drainer, Sockets};
use tollgate_peers::{Address, PeerSettings, PeerStore, Served};
use tollgate_resp::{Password, PeerCalls, PeerReply, Resp, RespSettings};
use tollgate_store::{ManualClock, MemoryStore};

/// A deadline that a busy machine keeps.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const PASSWORD: &str = "between-peers";

/// The first byte of a call that decides a batch, and of one that claims partitions.
const DECIDE: u8 = 1;
const CLAIM: u8 = 6;

/// A store of one node, as the receiver of calls.
struct Calls {
    store: PeerStore<ManualClock>,
    /// Whether the replies to claims are lost.
    loses_claims: Arc<AtomicBool>,
    hold: Arc<Hold>,
}

/// Lets a node stand still when a batch arrives.
#[derive(Default)]
pub(crate) struct Hold {
    pub(crate) is_on: AtomicBool,
    /// Whether a batch has arrived.
    pub(crate) has_arrived: AtomicBool,
}

impl PeerCalls for Calls {
    fn call(&self, version: &[u8], payload: &[u8]) -> PeerReply {
        while payload.first() == Some(&DECIDE) && self.hold.is_on.load(Ordering::SeqCst) {
            self.hold.has_arrived.store(true, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(1));
        }
        let reply = self.store.serve(version, payload);
        if payload.first() == Some(&CLAIM) && self.loses_claims.load(Ordering::SeqCst) {
            return PeerReply::Now(Err("ERR lost".to_owned()));
        }
        match reply {
            Served::Now(reply) => PeerReply::Now(reply),
            Served::Later(reply) => PeerReply::Later(reply),
        }
    }
}

/// The listener of one node. It ends when it is dropped.
pub(crate) struct Server {
    drainer: Option<Drainer>,
    worker: Option<JoinHandle<()>>,
    pub(crate) loses_claims: Arc<AtomicBool>,
    pub(crate) hold: Arc<Hold>,
    /// Ends the exchange of holdings, and tells that it has ended.
    pause: Arc<Notify>,
    is_paused: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(sockets: Sockets, store: &PeerStore<ManualClock>) -> Self {
        let (loses_claims, is_paused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (pause, was_paused) = (Arc::new(Notify::new()), Arc::clone(&is_paused));
        let hold = Arc::<Hold>::default();
        let calls =
            Calls { store: store.clone(), loses_claims: Arc::clone(&loses_claims), hold: Arc::clone(&hold) };
        let policy = Policy::parse("limits: []").unwrap();
        let limiter = Limiter::with_store(policy, MemoryStore::new(10));
        let password = store.settings().password.as_deref().and_then(Password::new);
        let peers = tollgate_resp::PeerSettings { password, calls: Arc::new(calls) };
        let settings = RespSettings { peers: Some(peers), ..RespSettings::default() };
        let resp = Resp::new(SharedLimiter::from(limiter), settings);
        let (store, listener) = (store.clone(), sockets.into_listeners().into_iter().next().unwrap());
        let (drainer, drain) = Drain::new();
        let paused = Arc::clone(&pause);
        let worker = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    served = resp.serve(listener, None, drain) => served.unwrap(),
                    () = async {
                        tokio::select! {
                            () = store.tend() => {}
                            () = paused.notified() => {}
                        }
                        was_paused.store(true, Ordering::SeqCst);
                        std::future::pending::<()>().await;
                    } => {}
                }
            });
        });
        Self { drainer: Some(drainer), worker: Some(worker), loses_claims, hold, pause, is_paused }
    }

    /// Ends the exchange of holdings that this node begins. It answers the others.
    pub(crate) fn pause(&self) {
        self.pause.notify_one();
        while !self.is_paused.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(drainer) = self.drainer.take() {
            drainer.begin();
            drainer.close_idle();
        }
        if let Some(worker) = self.worker.take() {
            worker.join().unwrap();
        }
    }
}

/// Waits until each partition has one holder among the stores, and all of them know it.
pub(crate) fn settle(stores: &[&PeerStore<ManualClock>]) {
    let keys: Vec<_> = (0..2_000).map(|it| format!("key-{it}").into_bytes()).collect();
    let is_settled = || {
        let held: usize = stores.iter().map(|it| it.counters().held).sum();
        held == 256
            && stores.iter().all(|it| it.is_settled() && it.counters().known == 256)
            && keys.iter().all(|key| stores.iter().all(|it| it.owner(key) == stores[0].owner(key)))
    };
    let start = std::time::Instant::now();
    while !is_settled() {
        let counters: Vec<_> = stores.iter().map(|it| it.counters()).collect();
        assert!(start.elapsed() < DEADLINE * 3, "the nodes do not agree: {counters:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Nodes with one list.
pub(crate) struct Nodes {
    pub(crate) clock: ManualClock,
    pub(crate) stores: Vec<PeerStore<ManualClock>>,
    pub(crate) servers: Vec<Option<Server>>,
    listeners: Vec<Address>,
}

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self::start_with(count, |_, settings| settings)
    }

    /// Starts nodes whose settings are changed by their number.
    pub(crate) fn start_with(count: usize, change: impl Fn(usize, PeerSettings) -> PeerSettings) -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_772_366_412_345_678));
        let sockets: Vec<_> = (0..count).map(|_| Sockets::bind("127.0.0.1:0", 1).unwrap()).collect();
        let addresses: Vec<_> =
            sockets.iter().map(|it| Address::of(it.address().ip(), it.address().port())).collect();
        let list = addresses.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let store = |number: usize| {
            let mut settings = PeerSettings::parse(&[&format!("tollgate://{list}")]).unwrap();
            settings.deadline = DEADLINE;
            settings.password = Some(PASSWORD.to_owned());
            settings.advertise = Some(addresses[number].clone());
            let memory = MemoryStore::with_seed(100_000, clock.clone(), 7);
            PeerStore::new(change(number, settings), memory, None)
        };
        let stores: Vec<_> = (0..count).map(store).collect();
        let servers =
            sockets.into_iter().zip(&stores).map(|(it, store)| Some(Server::start(it, store))).collect();
        let nodes = Self { clock, stores, servers, listeners: addresses };
        nodes.settle();
        nodes
    }

    /// Waits until each partition has one holder, and all nodes know it.
    pub(crate) fn settle(&self) {
        settle(&self.stores.iter().collect::<Vec<_>>());
    }

    /// Changes the lists of all nodes to some of them.
    pub(crate) fn set_lists(&self, members: &[Address], addresses: &[Address]) {
        for (store, here) in self.stores.iter().zip(addresses) {
            store.set_members(members, Some(here));
        }
    }

    /// Returns the address that a node listens on, also if it is not a member.
    pub(crate) fn listener(&self, number: usize) -> Address {
        self.listeners[number].clone()
    }

    pub(crate) fn address(&self, number: usize) -> Address {
        self.stores[number].here().unwrap()
    }

    /// Returns a key that the node owns; each number gives another one.
    pub(crate) fn key_of(&self, node: usize, number: usize) -> Vec<u8> {
        let here = self.stores[node].here();
        let keys = (0..).map(|it| format!("key-{it}").into_bytes());
        keys.filter(|key| self.stores[node].owner(key) == here).nth(number).unwrap()
    }
}
