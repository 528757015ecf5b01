//! The way to Redis: one connection that many share, made anew when it breaks.
//!
//! Connecting happens in the background and delays nobody beyond their deadline. A
//! connection is given up when it breaks, when the server turns out to be a replica,
//! and when it has stayed silent for several deadlines in a row: a peer that is gone
//! without a word never says so.
//!
//! Not here: what is sent (`lane`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tollgate_core::{Span, Timestamp};
use tollgate_store::Clock as _;

use crate::connect::{connect, longest_attempt};
use crate::failure::{Failure, explain};
use crate::shared::Shared;

/// Between two attempts to connect.
const REST: Span = Span::from_millis(50);

/// Silent for so many deadlines in a row: given up.
const SILENT: u32 = 2;

/// A connection, cheap to clone.
#[derive(Clone)]
pub(crate) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(crate) async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::One(it) => it.req_packed_command(command).await,
            Self::Cluster(it) => it.req_packed_command(command).await,
        }?
        .extract_error()
    }
}

/// The way to Redis.
pub(crate) struct Link {
    shared: Arc<Shared>,
    state: Mutex<State>,
    changed: Notify,
}

enum State {
    Down { why: Arc<str>, until: Timestamp },
    Connecting,
    Up { connection: Connection, number: u64, silent: u32 },
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let state = State::Down { why: "not connected yet".into(), until: Timestamp::EPOCH };
        Self { shared, state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each state is whole by itself, whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection and its number, as soon as there is one.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<(Connection, u64), Failure> {
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                match &*state {
                    State::Up { connection, number, .. } => return Ok((connection.clone(), *number)),
                    State::Down { why, until } if self.shared.clock.now() < *until => {
                        return Err(Failure::Refused(Arc::clone(why)));
                    }
                    State::Down { .. } => {
                        *state = State::Connecting;
                        drop(state);
                        self.begin();
                    }
                    State::Connecting => {}
                }
            }
            changed.await;
        }
    }

    fn begin(self: &Arc<Self>) {
        let link = Arc::clone(self);
        tokio::spawn(async move {
            let settings = &link.shared.settings;
            let within = longest_attempt(settings);
            let outcome = tokio::time::timeout(within, connect(settings)).await;
            let state = match outcome {
                Ok(Ok(connection)) => {
                    let number = link.shared.counters.connected();
                    State::Up { connection, number, silent: 0 }
                }
                Ok(Err(why)) => link.down(why),
                Err(_) => link.down(format!("connecting took more than {within:?}")),
            };
            *link.state() = state;
            link.changed.notify_waiters();
        });
    }

    fn down(&self, why: String) -> State {
        State::Down { why: why.into(), until: self.shared.clock.now() + REST }
    }

    /// An answer came.
    pub(crate) fn answered(&self, number: u64) {
        if let State::Up { number: current, silent, .. } = &mut *self.state()
            && *current == number
        {
            *silent = 0;
        }
    }

    /// No answer came in time.
    pub(crate) fn silent(self: &Arc<Self>, number: u64) {
        let mut state = self.state();
        if let State::Up { number: current, silent, .. } = &mut *state
            && *current == number
        {
            *silent += 1;
            if *silent >= SILENT {
                *state = State::Connecting;
                drop(state);
                self.begin();
            }
        }
    }

    /// An error came. Gives the connection up if it is good for nothing more.
    pub(crate) fn failed(self: &Arc<Self>, number: u64, error: &RedisError) -> Failure {
        let mut state = self.state();
        if let State::Up { number: current, connection, .. } = &*state
            && *current == number
            && is_over(error, connection)
        {
            *state = State::Connecting;
            drop(state);
            self.begin();
        }
        Failure::of(error)
    }
}

fn is_over(error: &RedisError, connection: &Connection) -> bool {
    // The cluster's client looks after its connections itself.
    if matches!(connection, Connection::Cluster(_)) {
        return matches!(error.kind(), ErrorKind::ClusterConnectionNotFound);
    }
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::BusyLoading
                    | ServerErrorKind::Moved
            ) | ErrorKind::AuthenticationFailed
        )
        || error.code() == Some("NOAUTH")
}

/// Why connecting failed, for people.
pub(crate) fn reason(error: &RedisError) -> String {
    explain(error)
}
