//! Nodes with a listener on a thread of their own.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tollgate::{Limiter, Policy, SharedLimiter};
use tollgate_core::Timestamp;
use tollgate_net::{Drain, Drainer, Sockets};
use tollgate_peers::{Address, PeerSettings, PeerStore};
use tollgate_resp::{Password, PeerCalls, Resp, RespSettings};
use tollgate_store::{ManualClock, MemoryStore};

/// A deadline that a busy machine keeps.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const PASSWORD: &str = "between-peers";

/// A store of one node, as the receiver of calls.
struct Calls(PeerStore<ManualClock>);

impl PeerCalls for Calls {
    fn call(&self, version: &[u8], payload: &[u8]) -> Result<Vec<u8>, String> {
        self.0.serve(version, payload)
    }
}

/// The listener of one node. It ends when it is dropped.
pub(crate) struct Server {
    drainer: Option<Drainer>,
    worker: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(sockets: Sockets, store: &PeerStore<ManualClock>) -> Self {
        let policy = Policy::parse("limits: []").unwrap();
        let limiter = Limiter::with_store(policy, MemoryStore::new(10));
        let password = store.settings().password.as_deref().and_then(Password::new);
        let peers = tollgate_resp::PeerSettings { password, calls: Arc::new(Calls(store.clone())) };
        let settings = RespSettings { peers: Some(peers), ..RespSettings::default() };
        let resp = Resp::new(SharedLimiter::from(limiter), settings);
        let listener = sockets.into_listeners().into_iter().next().unwrap();
        let (drainer, drain) = Drain::new();
        let worker = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(resp.serve(listener, None, drain)).unwrap();
        });
        Self { drainer: Some(drainer), worker: Some(worker) }
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

/// Nodes with one list.
pub(crate) struct Nodes {
    pub(crate) clock: ManualClock,
    pub(crate) stores: Vec<PeerStore<ManualClock>>,
    pub(crate) servers: Vec<Option<Server>>,
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
        Self { clock, stores, servers }
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
