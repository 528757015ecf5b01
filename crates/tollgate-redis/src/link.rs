//! The link to one server: one shared connection that is replaced when it breaks.
//!
//! Connecting happens in the background and delays no request beyond its deadline. A connection is
//! closed when it breaks, when the server turns out to be a replica or refuses service, and when it
//! has been silent for several deadlines in a row, because a peer that vanishes does not close its
//! connections. There is a pause between two attempts, so that a server that accepts connections
//! but refuses work is not flooded.
//!
//! If a connection ended while idle, the next request learns that it was not sent and may be
//! repeated ([`NotSent`]).
//!
//! Not here: the commands (`transport`), choosing the node of a cluster (`cluster`).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tollgate_core::{Span, Timestamp};
use tollgate_store::Clock as _;

use crate::connect::{Target, connect, longest_attempt};
use crate::failure::{Failure, classify, explain};
use crate::shared::Shared;

/// The minimum time between two attempts to connect.
const RECONNECT_INTERVAL: Span = Span::from_millis(50);

/// The number of consecutive deadlines without a reply after which a connection is closed.
const MAX_SILENT_DEADLINES: u32 = 2;

/// A connection, cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection(pub(crate) MultiplexedConnection);

/// The connection had ended before the command was sent.
pub(crate) struct NotSent(pub(crate) RedisError);

impl Connection {
    pub(crate) async fn query(&mut self, command: &Cmd) -> Result<RedisResult<Value>, NotSent> {
        let reply = sent_or_not(self.0.req_packed_command(command)).await?;
        Ok(reply.and_then(Value::extract_error))
    }

    /// Sends a command after `ASKING`, for keys of a slot that is migrating to this server.
    pub(crate) async fn query_asking(&mut self, command: Cmd) -> Result<RedisResult<Value>, NotSent> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command);
        let replies = sent_or_not(self.0.req_packed_commands(&both, 0, 2)).await?;
        Ok(replies.and_then(|replies| replies.into_iter().nth(1).unwrap_or(Value::Nil).extract_error()))
    }
}

/// Distinguishes a command that was never sent from a command that was sent and failed.
///
/// The client library returns the same error for both. It passes commands to a writer task, which
/// is gone once the connection has ended. A command that fails on the first poll was therefore not
/// written.
async fn sent_or_not<T>(query: impl Future<Output = RedisResult<T>>) -> Result<RedisResult<T>, NotSent> {
    let mut query = pin!(query);
    let first = poll_fn(|context| Poll::Ready(query.as_mut().poll(context))).await;
    match first {
        Poll::Ready(Err(error)) if error.is_connection_dropped() => Err(NotSent(error)),
        Poll::Ready(reply) => Ok(reply),
        Poll::Pending => Ok(query.await),
    }
}

/// The link to one server.
pub(crate) struct Link {
    shared: Arc<Shared>,
    target: Target,
    state: Mutex<State>,
    changed: Notify,
}

enum State {
    Down { why: Arc<str>, until: Timestamp },
    Connecting,
    Up { connection: Connection, number: u64, silent: u32 },
}

impl Link {
    pub(crate) fn new(shared: &Arc<Shared>, target: Target) -> Arc<Self> {
        let state = State::Down { why: "not connected yet".into(), until: Timestamp::EPOCH };
        Arc::new(Self {
            shared: Arc::clone(shared),
            target,
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    /// The host of a cluster node.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.target {
            Target::Node(address) => Some(&address.host),
            Target::Named => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every state is consistent by itself, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a connection and its number, and waits for it if necessary.
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
        let attempt = Attempt { link: Arc::clone(self), outcome: None };
        tokio::spawn(attempt.run());
    }

    fn down(&self, why: impl Into<Arc<str>>) -> State {
        State::Down { why: why.into(), until: self.shared.clock.now() + RECONNECT_INTERVAL }
    }

    /// Records a reply.
    pub(crate) fn answered(&self, number: u64) {
        if let State::Up { number: current, silent, .. } = &mut *self.state()
            && *current == number
        {
            *silent = 0;
        }
    }

    /// Records a deadline without a reply.
    pub(crate) fn silent(&self, number: u64) {
        let mut state = self.state();
        if let State::Up { number: current, silent, .. } = &mut *state
            && *current == number
        {
            *silent += 1;
            if *silent >= MAX_SILENT_DEADLINES {
                *state = self.down(format!("{} stopped answering", self.target.of(&self.shared.settings)));
            }
        }
    }

    /// Records that the connection had ended before. The next attempt to connect may start
    /// immediately, because the server has not refused a request.
    pub(crate) fn ended(&self, number: u64, unsent: &NotSent) -> Failure {
        let failure = Failure::refused(explain(&unsent.0));
        let mut state = self.state();
        if let State::Up { number: current, .. } = &*state
            && *current == number
        {
            *state = State::Down { why: failure.to_string().into(), until: Timestamp::EPOCH };
        }
        failure
    }

    /// Records an error and closes the connection if it is unusable.
    pub(crate) fn failed(&self, number: u64, error: &RedisError) -> Failure {
        let failure = classify(error);
        let mut state = self.state();
        if let State::Up { number: current, .. } = &*state
            && *current == number
            && is_over(error)
        {
            *state = self.down(failure.to_string());
        }
        failure
    }
}

/// An attempt to connect. If it is dropped with its runtime, it has failed.
struct Attempt {
    link: Arc<Link>,
    outcome: Option<State>,
}

impl Attempt {
    async fn run(mut self) {
        let (shared, target) = (&self.link.shared, &self.link.target);
        let within = longest_attempt(&shared.settings, target);
        let outcome = tokio::time::timeout(within, connect(&shared.settings, target)).await;
        self.outcome = Some(match outcome {
            Ok(Ok(connection)) => {
                let number = shared.counters.connected();
                State::Up { connection: Connection(connection), number, silent: 0 }
            }
            Ok(Err(why)) => self.link.down(why),
            Err(_) => {
                self.link.down(format!("no connection to {} within {within:?}", target.of(&shared.settings)))
            }
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        let state = self.outcome.take();
        *self.link.state() = state.unwrap_or_else(|| self.link.down("the attempt to connect was canceled"));
        self.link.changed.notify_waiters();
    }
}

/// Whether the connection is unusable after this error.
fn is_over(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
            ) | ErrorKind::AuthenticationFailed
        )
        || error.code() == Some("NOAUTH")
        // Before version 7, the error of a script contains the original error.
        || error.detail().is_some_and(|detail| detail.contains("-READONLY"))
}
