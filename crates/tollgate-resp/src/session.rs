//! The state of one connection, and the execution of a command: name, arity, authentication, reply.
//!
//! Commands that need no store, or a store that answers immediately, are answered into one buffer.
//! Other commands wait together (`pending`).
//!
//! Not here: the socket (`connection`).

use std::net::SocketAddr;
use std::sync::Arc;

use tollgate::policy::Key;
use tollgate::throttle::{ThrottleReply, ThrottleRules};
use tollgate::{Limiter, Rule, Store};

use crate::command::Command;
use crate::exchange::Exchange;
use crate::frame::{FrameError, Frames, Step, Words};
use crate::metrics::{CloseReason, CommandResult, Tally};
use crate::pending::PendingReplies;
use crate::reply::{self, Protocol};
use crate::server::Inner;
use crate::throttle::{Dialect, ThrottleAction, ThrottleRequest};
use crate::transaction::Transaction;

/// The number of reply bytes after which replies are sent.
pub(crate) const MAX_REPLY_BYTES: usize = 64 * 1024;
/// The same before authentication.
const MAX_UNAUTHENTICATED_REPLY_BYTES: usize = 4 * 1024;
/// The number of consecutive wrong passwords after which a connection is closed.
const MAX_WRONG_PASSWORDS: u32 = 10;
/// The maximum number of bytes of a key whose state is loaded ahead: the digest of a long key costs more than that saves.
const MAX_PREFETCHED_KEY_BYTES: usize = 64;
/// The maximum number of bytes of an argument that an error repeats.
const MAX_ECHOED_BYTES: usize = 128;

/// The state of one connection.
pub(crate) struct Session<S> {
    pub(crate) inner: Arc<Inner<S>>,
    pub(crate) frames: Frames,
    pub(crate) throttles: ThrottleRules,
    pub(crate) tally: Tally,
    pub(crate) protocol: Protocol,
    /// Whether the client still has to authenticate.
    pub(crate) is_unauthenticated: bool,
    /// Whether the client has authenticated as a peer.
    pub(crate) is_peer: bool,
    /// The number of wrong passwords since the last correct one.
    pub(crate) wrong_passwords: u32,
    /// The selected database.
    pub(crate) database: u8,
    /// The commands queued since `MULTI`, or running since `EXEC`.
    pub(crate) transaction: Option<Box<Transaction>>,
    pub(crate) running: Option<Box<Transaction>>,
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) name: Box<str>,
    pub(crate) library: [Box<str>; 2],
}

/// The action after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continue with the next command.
    On,
    /// Close the connection after the reply.
    Close,
    /// The command was not started: pending commands come first.
    NotYet,
    /// The command waits alone; later commands wait for it.
    Alone,
}

/// The result of running the available bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All complete commands were started.
    Done,
    /// More commands follow after the replies have been sent.
    More,
    /// Close the connection after the reply.
    Close,
    /// A protocol error; the reply contains it.
    Malformed,
}

impl<S: Store> Session<S> {
    pub(crate) fn new(inner: Arc<Inner<S>>, peer: SocketAddr) -> Self {
        let (id, is_unauthenticated) = (inner.counters.open(), inner.settings.password.is_some());
        Self {
            inner,
            frames: Frames::default(),
            throttles: ThrottleRules::default(),
            tally: Tally::default(),
            protocol: Protocol::default(),
            is_unauthenticated,
            is_peer: false,
            wrong_passwords: 0,
            database: 0,
            transaction: None,
            running: None,
            id,
            peer,
            name: Box::default(),
            library: [Box::default(), Box::default()],
        }
    }

    /// Starts all complete commands in these bytes, and returns the number of bytes consumed.
    pub(crate) fn run<'l>(
        &mut self,
        limiter: &'l Arc<Limiter<S>>,
        bytes: &[u8],
        out: &mut Vec<u8>,
        waiting: &mut PendingReplies<'l, S>,
    ) -> (usize, Progress) {
        let exchange = &mut Exchange { limiter, out, waiting };
        let mut frames = std::mem::take(&mut self.frames);
        let mut at = 0;
        let progress = loop {
            let rest = &bytes[at..];
            let (length, flow) = if self.running.is_some() {
                (0, self.run_on(exchange))
            } else {
                match frames.next(rest, self.is_unauthenticated) {
                    Ok(Step::Incomplete) => break Progress::Done,
                    Ok(Step::Nothing(length)) => {
                        at += length;
                        continue;
                    }
                    Ok(Step::Command(length)) => {
                        let words = frames.words(rest);
                        if at == 0 {
                            self.prefetch(limiter, words.get(1));
                        }
                        if let Some(key) = words.key_of_next(length) {
                            self.prefetch(limiter, key);
                        }
                        let flow = self.execute(words, exchange);
                        let repeated = match flow {
                            Flow::On => self.repeat(words, (rest, length), exchange),
                            _ => 0,
                        };
                        (length + repeated, flow)
                    }
                    Err(malformed) => {
                        refuse(malformed, exchange.end());
                        break Progress::Malformed;
                    }
                }
            };
            match flow {
                Flow::On => at += length,
                Flow::NotYet => break Progress::More,
                Flow::Alone => {
                    at += length;
                    break Progress::More;
                }
                Flow::Close => {
                    at += length;
                    break Progress::Close;
                }
            }
            let most =
                if self.is_unauthenticated { MAX_UNAUTHENTICATED_REPLY_BYTES } else { MAX_REPLY_BYTES };
            if exchange.out.len() + exchange.waiting.bytes() >= most || exchange.waiting.is_full() {
                break Progress::More;
            }
        };
        self.frames = frames;
        (at, progress)
    }

    /// Starts to load the state of a key that a throttle command names, if this connection has sent such commands.
    #[inline]
    pub(crate) fn prefetch(&self, limiter: &Limiter<S>, name: &[u8]) {
        if let Some(rule) = self.throttles.last().filter(|_| name.len() <= MAX_PREFETCHED_KEY_BYTES) {
            limiter.prefetch_rule(rule, &key_in(self.database, name));
        }
    }

    #[inline]
    fn execute(&mut self, words: Words<'_>, exchange: &mut Exchange<'_, '_, S>) -> Flow {
        let command = Command::named(words.get(0));
        if self.transaction.is_some()
            && let Some(flow) = self.enqueue(command, words, exchange.end())
        {
            return flow;
        }
        self.answer(command, words, exchange)
    }

    #[inline]
    pub(crate) fn answer(
        &mut self,
        command: Command,
        words: Words<'_>,
        exchange: &mut Exchange<'_, '_, S>,
    ) -> Flow {
        let result = if self.is_unauthenticated && !command.is_allowed_unauthenticated() {
            exchange.error(b"NOAUTH Authentication required.")
        } else if !command.takes(words.len()) {
            exchange.error(&wrong_arity(words.get(0)))
        } else {
            let answered = match (Dialect::of(command), command) {
                (Some(dialect), _) => self.throttle(command, dialect, words, exchange),
                (
                    _,
                    Command::Check
                    | Command::Peek
                    | Command::Acquire
                    | Command::Release
                    | Command::Renew
                    | Command::Refund,
                ) => self.named(command, words, exchange),
                (_, Command::Call) => self.call(words, exchange),
                _ => {
                    let (result, flow) = self.introspect(command, words, exchange.end());
                    self.tally.count(command, result);
                    return flow;
                }
            };
            match answered {
                Ok(result) => result,
                Err(flow) => return flow,
            }
        };
        self.tally.count(command, result);
        Flow::On
    }

    /// Executes commands that need no limiter.
    fn introspect(&mut self, command: Command, words: Words<'_>, out: &mut Vec<u8>) -> (CommandResult, Flow) {
        let result = match command {
            Command::Ping if words.len() > 2 => wrong(out, &wrong_arity(b"ping")),
            Command::Ping if words.len() == 2 => bulk(out, words.get(1)),
            Command::Ping => simple(out, "PONG"),
            Command::Echo => bulk(out, words.get(1)),
            Command::Quit => return (simple(out, "OK"), Flow::Close),
            Command::Hello => self.hello(words, out),
            Command::Auth => self.auth(words, out),
            Command::Reset => self.reset(out),
            Command::Select => self.select(words, out),
            Command::Multi => self.multi(out),
            Command::Exec => self.exec(out),
            Command::Discard => self.discard(out),
            Command::Watch => self.watch(out),
            Command::Unwatch => simple(out, "OK"),
            Command::Client => self.client(words, out),
            Command::Commands => self.command(words, out),
            Command::Info => self.info(words, out),
            Command::Config => self.config(words, out),
            Command::Time => self.time(out),
            _ if is_http(words.get(0)) => return (CommandResult::Error, Flow::Close),
            _ => wrong(out, &unknown(words)),
        };
        if self.wrong_passwords < MAX_WRONG_PASSWORDS {
            return (result, Flow::On);
        }
        self.inner.counters.close(CloseReason::Unauthenticated);
        (result, Flow::Close)
    }

    #[inline]
    fn throttle(
        &mut self,
        command: Command,
        dialect: Dialect,
        words: Words<'_>,
        exchange: &mut Exchange<'_, '_, S>,
    ) -> Result<CommandResult, Flow> {
        let ThrottleRequest { throttle, wanted } = match dialect.read(words) {
            Ok(request) => request,
            Err(mistake) => return Ok(exchange.error(&mistake)),
        };
        let (database, name) = (self.database, words.get(1));
        let rule = match self.throttles.rule(throttle) {
            Ok(rule) => rule,
            Err(error) => return Ok(exchange.error(&dialect.refuse(&error.to_string()))),
        };
        let units = match wanted {
            ThrottleAction::Units(units) => units,
            ThrottleAction::Back(_) if self.inner.settings.refuse_refunds => {
                return Ok(exchange.error(&dialect.refuse(NO_REFUNDS)));
            }
            ThrottleAction::Back(units) => {
                let (limiter, rule) = (Arc::clone(exchange.limiter), Arc::clone(rule));
                let key = key_in(database, name);
                let answer = async move {
                    let mut out = Vec::with_capacity(64);
                    let result = match limiter.throttle_refund(&rule, &key, units).await {
                        Ok(Some(throttled)) => {
                            dialect.write(&throttled, &mut out);
                            CommandResult::Allowed
                        }
                        Ok(None) => wrong(&mut out, DEFERRED),
                        Err(_) => wrong(&mut out, NO_STORE),
                    };
                    (out, result)
                };
                return Err(exchange.defer_alone(command, answer));
            }
        };
        spend((command, dialect), rule, (key_in(database, name), units), exchange)
    }

    /// Releases memory that only a busy connection needs.
    pub(crate) fn rest(&mut self) {
        self.frames.rest();
        self.throttles = ThrottleRules::default();
    }
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.inner.counters.add(&mut self.tally);
        self.inner.counters.end();
    }
}

/// Spends units of a key. The error is the flow of a command that waits for the store.
#[inline]
pub(crate) fn spend<S: Store>(
    (command, dialect): (Command, Dialect),
    rule: &Arc<Rule>,
    (key, units): (Key, u64),
    exchange: &mut Exchange<'_, '_, S>,
) -> Result<CommandResult, Flow> {
    let pending = match exchange.limiter.try_throttle(rule, key, units) {
        Ok(throttled) => {
            dialect.write(&throttled, exchange.end());
            return Ok(decision_result(throttled.allowed));
        }
        Err(pending) => pending.detach(),
    };
    let rule = Arc::clone(rule);
    let answer = async move {
        let throttled = pending.finish(None, |decision| ThrottleReply::of(decision, &rule, units)).await;
        let mut out = Vec::with_capacity(64);
        dialect.write(&throttled, &mut out);
        (out, decision_result(throttled.allowed))
    };
    Err(exchange.defer(command, answer))
}

/// The key of a throttle command. Each database has its own keys.
#[inline]
pub(crate) fn key_in(database: u8, name: &[u8]) -> Key {
    if database == 0 { Key::named(name) } else { Key::named_in(database, name) }
}

/// The reason why a refund is refused.
pub(crate) const NO_REFUNDS: &str =
    "quota is not given back on this port: allow it with `resp.refunds: true`, or ask for a password";

/// The error if the store does not answer and a refund is deferred.
pub(crate) const DEFERRED: &[u8] =
    b"ERR the store gave no answer; the refund is kept and applied when it does, so do not repeat it";

/// The error if the store does not answer and no decision was made.
pub(crate) const NO_STORE: &[u8] = b"ERR the store gave no answer; nothing is known to have changed";

#[inline]
pub(crate) const fn decision_result(allowed: bool) -> CommandResult {
    if allowed { CommandResult::Allowed } else { CommandResult::Limited }
}

pub(crate) fn wrong(out: &mut Vec<u8>, text: &[u8]) -> CommandResult {
    reply::error(out, text);
    CommandResult::Error
}

pub(crate) fn simple(out: &mut Vec<u8>, text: &str) -> CommandResult {
    reply::simple(out, text);
    CommandResult::Ok
}

pub(crate) fn bulk(out: &mut Vec<u8>, bytes: &[u8]) -> CommandResult {
    reply::bulk(out, bytes);
    CommandResult::Ok
}

fn refuse(malformed: FrameError, out: &mut Vec<u8>) {
    reply::error(out, format!("ERR Protocol error: {malformed}").as_bytes());
}

/// The error of Redis for a wrong number of arguments.
pub(crate) fn wrong_arity(name: &[u8]) -> Vec<u8> {
    let name = name.to_ascii_lowercase();
    [b"ERR wrong number of arguments for '", cut(&name), b"' command"].concat()
}

/// The error of Redis for an unknown subcommand.
pub(crate) fn unknown_subcommand(words: Words<'_>) -> Vec<u8> {
    let name = words.get(0).to_ascii_uppercase();
    [b"ERR unknown subcommand '", cut(words.get(1)), b"'. Try ", cut(&name), b" HELP."].concat()
}

/// The error of Redis for an unknown command.
pub(crate) fn unknown(words: Words<'_>) -> Vec<u8> {
    let mut arguments = Vec::new();
    for word in words.from(1) {
        if arguments.len() >= MAX_ECHOED_BYTES {
            break;
        }
        let word = &word[..word.len().min(MAX_ECHOED_BYTES - arguments.len())];
        arguments.extend_from_slice(&[b"'", word, b"' "].concat());
    }
    let name = cut(words.get(0));
    [b"ERR unknown command '", name, b"', with args beginning with: ", &arguments[..]].concat()
}

pub(crate) fn cut(word: &[u8]) -> &[u8] {
    &word[..word.len().min(MAX_ECHOED_BYTES)]
}

/// Whether the command is the start of an HTTP request, which may come from a cross-protocol attack
/// through a browser: the connection is closed.
pub(crate) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests {
    use tollgate::{Limiter, Policy, SharedLimiter};
    use tollgate_redis::{RedisSettings, RedisStore};

    use super::*;
    use crate::settings::RespSettings;

    #[test]
    fn replies_after_a_pending_command_are_bounded() {
        // Never polled, so the commands stay pending.
        let store = RedisStore::new(RedisSettings::parse(&["redis://127.0.0.1:1"]).unwrap());
        let limiter = SharedLimiter::from(Limiter::with_store(Policy::default(), store));
        let inner = Inner::new(limiter, RespSettings::default());
        let mut session = Session::new(Arc::new(inner), ([127, 0, 0, 1], 1).into());
        let bytes = [&b"CL.THROTTLE k 1 1 60\r\n"[..], &b"COMMAND DOCS\r\n".repeat(1_200)].concat();
        let limiter = session.inner.limiter.load();
        let (mut out, mut waiting) = (Vec::new(), PendingReplies::new(&limiter));
        let (used, progress) = session.run(&limiter, &bytes, &mut out, &mut waiting);
        assert_eq!(progress, Progress::More);
        assert!(!waiting.is_empty() && out.is_empty());
        assert!((MAX_REPLY_BYTES..MAX_REPLY_BYTES + 8_192).contains(&waiting.bytes()), "{}", waiting.bytes());
        assert!(used < bytes.len() / 10, "{used} bytes were answered");
    }
}
