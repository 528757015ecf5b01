//! `MULTI` and `EXEC`: commands that are queued and answered as one array.
//!
//! Some clients send pipelines as transactions by default. The commands are decided in order, each
//! by itself; commands of other clients may run in between. Keys cannot be watched, so `EXEC` never
//! fails because of `WATCH`.
//!
//! Invariant: the queue is bounded, and a transaction with an invalid command spends nothing.

use tollgate::Store;

use crate::command::Command;
use crate::exchange::Exchange;
use crate::frame::Words;
use crate::metrics::CommandResult;
use crate::reply;
use crate::session::{Flow, Session, is_http, simple, unknown, wrong, wrong_arity};

/// The maximum number of commands of a transaction.
const MAX_COMMANDS: usize = 1024;
/// The maximum memory of the queue, in bytes.
const MAX_QUEUED_BYTES: usize = 128 * 1024;

/// The commands queued after `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    bytes: Vec<u8>,
    /// The start and length of each argument.
    places: Vec<(u32, u32)>,
    /// The end of each command in `places`.
    ends: Vec<usize>,
    /// The index of the next command to run, after `EXEC`.
    next: usize,
    /// Whether a command was invalid: `EXEC` runs none of them.
    is_broken: bool,
}

impl Transaction {
    /// Queues a command, if there is room.
    fn push(&mut self, words: Words<'_>) -> bool {
        let more: usize = words.from(0).map(<[u8]>::len).sum();
        let places = self.places.len() + words.len();
        let bytes = self.bytes.len() + more + places * size_of::<(u32, u32)>();
        if self.ends.len() >= MAX_COMMANDS || bytes > MAX_QUEUED_BYTES {
            return false;
        }
        if self.is_broken {
            return true;
        }
        for word in words.from(0) {
            self.places.push(Words::place(self.bytes.len(), word.len()));
            self.bytes.extend_from_slice(word);
        }
        self.ends.push(places);
        true
    }

    /// Marks the transaction as invalid.
    fn spoil(&mut self) {
        *self = Self { is_broken: true, ..Self::default() };
    }

    /// The arguments of the next command to run.
    fn words(&self) -> Words<'_> {
        let start = self.next.checked_sub(1).map_or(0, |before| self.ends[before]);
        let end = self.ends.get(self.next).copied().unwrap_or(start);
        Words::new(&self.places[start..end], &self.bytes)
    }
}

impl<S: Store> Session<S> {
    /// Queues a command of a transaction. Returns `None` for a command that is executed
    /// immediately.
    #[cold]
    pub(crate) fn enqueue(&mut self, command: Command, words: Words<'_>, out: &mut Vec<u8>) -> Option<Flow> {
        let transaction = self.transaction.as_mut()?;
        if command.is_never_queued() || is_http(words.get(0)) {
            return None;
        }
        let mistake = if command == Command::Unknown {
            unknown(words)
        } else if !command.takes(words.len()) {
            wrong_arity(words.get(0))
        } else if !transaction.push(words) {
            b"ERR too many commands in a transaction".to_vec()
        } else {
            reply::simple(out, "QUEUED");
            return Some(Flow::On);
        };
        transaction.spoil();
        self.tally.count(command, wrong(out, &mistake));
        Some(Flow::On)
    }

    pub(crate) fn multi(&mut self, out: &mut Vec<u8>) -> CommandResult {
        if self.transaction.is_some() {
            return wrong(out, b"ERR MULTI calls can not be nested");
        }
        self.transaction = Some(Box::default());
        simple(out, "OK")
    }

    pub(crate) fn discard(&mut self, out: &mut Vec<u8>) -> CommandResult {
        match self.transaction.take() {
            Some(_) => simple(out, "OK"),
            None => wrong(out, b"ERR DISCARD without MULTI"),
        }
    }

    pub(crate) fn watch(&self, out: &mut Vec<u8>) -> CommandResult {
        match self.transaction {
            Some(_) => wrong(out, b"ERR WATCH inside MULTI is not allowed"),
            None => simple(out, "OK"),
        }
    }

    /// Starts the array of replies. [`run_on`](Self::run_on) adds its elements.
    pub(crate) fn exec(&mut self, out: &mut Vec<u8>) -> CommandResult {
        let Some(transaction) = self.transaction.take() else {
            return wrong(out, b"ERR EXEC without MULTI");
        };
        if transaction.is_broken {
            return wrong(out, b"EXECABORT Transaction discarded because of previous errors.");
        }
        reply::array(out, transaction.ends.len());
        self.running = Some(transaction).filter(|it| !it.ends.is_empty());
        CommandResult::Ok
    }

    /// Runs the next command of the transaction.
    pub(crate) fn run_on(&mut self, exchange: &mut Exchange<'_, '_, S>) -> Flow {
        let Some(mut running) = self.running.take() else { return Flow::On };
        let words = running.words();
        let flow = self.answer(Command::named(words.get(0)), words, exchange);
        running.next += usize::from(flow != Flow::NotYet);
        if running.next < running.ends.len() {
            self.running = Some(running);
        }
        flow
    }
}
