//! The way to one server: one connection that many share, made anew when it breaks.
//!
//! Connecting happens in the background and delays nobody beyond their deadline. A
//! connection is given up when it breaks, when the server turns out to be a replica or
//! not to serve, and when it has stayed silent for several deadlines in a row: a peer
//! that is gone without a word never says so. Between two attempts there is a rest, so
//! that a server which takes connections and refuses work is not stormed.
//!
//! A connection whose end was noticed while nobody used it takes nothing more: whoever
//! asks then learns that nothing was sent, and may ask again ([`NotSent`]).
//!
//! Not here: what is sent (`dispatcher`), which server of a cluster (`cluster`).

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
use crate::failure::{Failure, explain};
use crate::shared::Shared;

/// Between two attempts to connect.
const RECONNECT_INTERVAL: Span = Span::from_millis(50);

/// Silent for so many deadlines in a row: given up.
const MAX_SILENT_DEADLINES: u32 = 2;

/// A connection, cheap to clone.
#[derive(Clone)]
pub(crate) struct Connection(pub(crate) MultiplexedConnection);

/// The connection had ended before anything was sent.
pub(crate) struct NotSent(pub(crate) RedisError);

impl Connection {
    pub(crate) async fn query(&mut self, command: &Cmd) -> Result<RedisResult<Value>, NotSent> {
        let answer = sent_or_not(self.0.req_packed_command(command)).await?;
        Ok(answer.and_then(Value::extract_error))
    }

    /// Asks a server about keys that are on their way to it.
    pub(crate) async fn query_asking(&mut self, command: Cmd) -> Result<RedisResult<Value>, NotSent> {
        let mut both = Pipeline::with_capacity(2);
        both.cmd("ASKING").add_command(command);
        let answers = sent_or_not(self.0.req_packed_commands(&both, 0, 2)).await?;
        Ok(answers.and_then(|them| them.into_iter().nth(1).unwrap_or(Value::Nil).extract_error()))
    }
}

/// Tells a question that was never sent from one that was and brought an error.
///
/// The library gives both the same error. But a question is handed to the task that writes,
/// and that is gone once the connection has ended: so the first look at such a question
/// finds it over, before anybody could have written a byte of it.
async fn sent_or_not<T>(question: impl Future<Output = RedisResult<T>>) -> Result<RedisResult<T>, NotSent> {
    let mut question = pin!(question);
    let first = poll_fn(|context| Poll::Ready(question.as_mut().poll(context))).await;
    match first {
        Poll::Ready(Err(error)) if error.is_connection_dropped() => Err(NotSent(error)),
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => Ok(question.await),
    }
}

/// The way to one server.
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

    /// The host of a node, as we know it.
    pub(crate) fn host(&self) -> Option<&str> {
        match &self.target {
            Target::Node(address) => Some(&address.host),
            Target::Named => None,
        }
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
        let attempt = Attempt { link: Arc::clone(self), outcome: None };
        tokio::spawn(attempt.run());
    }

    fn down(&self, why: impl Into<Arc<str>>) -> State {
        State::Down { why: why.into(), until: self.shared.clock.now() + RECONNECT_INTERVAL }
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
    pub(crate) fn silent(&self, number: u64) {
        let mut state = self.state();
        if let State::Up { number: current, silent, .. } = &mut *state
            && *current == number
        {
            *silent += 1;
            if *silent >= MAX_SILENT_DEADLINES {
                *state = self.down(format!("{} has been silent", self.target.of(&self.shared.settings)));
            }
        }
    }

    /// The connection had ended before. A new one may be made at once: nobody has asked for
    /// anything that was refused.
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

    /// An error came. Gives the connection up if it is good for nothing more.
    pub(crate) fn failed(&self, number: u64, error: &RedisError) -> Failure {
        let failure = Failure::of(error);
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

/// An attempt to connect. One that is dropped with its runtime has failed.
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
        *self.link.state() = state.unwrap_or_else(|| self.link.down("connecting was broken off"));
        self.link.changed.notify_waiters();
    }
}

/// Whether nothing more is to be had from a connection after this.
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
        // Before version 7 a script's error is told in the words of another.
        || error.detail().is_some_and(|detail| detail.contains("-READONLY"))
}
