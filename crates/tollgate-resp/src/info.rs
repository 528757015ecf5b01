//! Introspection commands: `COMMAND`, `INFO`, `CONFIG GET`, `TIME`.

use std::fmt::Write as _;

use tollgate::{Clock as _, Store};

use crate::command::{COMMANDS, CommandInfo, about_named};
use crate::frame::Words;
use crate::metrics::CommandResult;
use crate::reply::{self, Protocol};
use crate::session::{Session, bulk, unknown_subcommand, wrong, wrong_arity};

/// The emulated Redis version, for clients that check it.
pub(crate) const REDIS_VERSION: &str = "7.2.0";

/// The settings that tools read: no persistence.
const CONFIG: [(&str, &str); 4] =
    [("save", ""), ("appendonly", "no"), ("maxmemory", "0"), ("databases", "16")];

impl<S: Store> Session<S> {
    pub(crate) fn command(&self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let subcommand = words.get(1).to_ascii_lowercase();
        match (&subcommand[..], words.len()) {
            (_, 1) | (b"info", 2) => {
                reply::array(out, COMMANDS.len());
                for about in &COMMANDS {
                    describe(about, out);
                }
            }
            (b"count", 2) => reply::integer(out, i64::try_from(COMMANDS.len()).unwrap_or(0)),
            (b"list", _) => {
                reply::array(out, COMMANDS.len());
                for about in &COMMANDS {
                    reply::bulk(out, about.name.as_bytes());
                }
            }
            (b"info", _) => {
                reply::array(out, words.len() - 2);
                for name in words.from(2) {
                    match about_named(name) {
                        Some(about) => describe(about, out),
                        None => null_array(out, self.protocol),
                    }
                }
            }
            (b"docs", 2) => self.document(COMMANDS.iter(), out),
            (b"docs", _) => self.document(words.from(2).filter_map(about_named), out),
            (b"getkeys", 3..) => return key_of(words, out),
            (b"count" | b"getkeys", _) => {
                return wrong(out, &wrong_arity(&[b"command|", &subcommand[..]].concat()));
            }
            _ => return wrong(out, &unknown_subcommand(words)),
        }
        CommandResult::Ok
    }

    fn document(&self, commands: impl Iterator<Item = &'static CommandInfo>, out: &mut Vec<u8>) {
        let commands: Vec<_> = commands.collect();
        reply::map(out, self.protocol, commands.len());
        for about in commands {
            reply::bulk(out, about.name.as_bytes());
            reply::map(out, self.protocol, 3);
            for (field, value) in [("summary", about.summary), ("since", "0.1.0"), ("group", "generic")] {
                reply::bulk(out, field.as_bytes());
                reply::bulk(out, value.as_bytes());
            }
        }
    }

    pub(crate) fn info(&self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let wants = |section: &str| {
            let is_requested = |word: &[u8]| {
                [section, "all", "default", "everything"]
                    .iter()
                    .any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
            };
            words.len() == 1 || words.from(1).any(is_requested)
        };
        let counters = &self.inner.counters;
        let (now, ever) = counters.connections();
        let mut text = String::new();
        if wants("server") {
            let uptime = self.inner.clock.now().since(self.inner.started_at).as_micros() / 1_000_000;
            let _infallible = write!(
                text,
                "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:tollgate\r\ntollgate_version:{}\r\n\
                 redis_mode:standalone\r\nuptime_in_seconds:{uptime}\r\n\r\n",
                env!("CARGO_PKG_VERSION"),
            );
        }
        if wants("clients") {
            let _infallible = write!(text, "# Clients\r\nconnected_clients:{now}\r\n\r\n");
        }
        if wants("persistence") {
            text.push_str("# Persistence\r\nloading:0\r\n\r\n");
        }
        if wants("stats") {
            let _infallible = write!(
                text,
                "# Stats\r\ntotal_connections_received:{ever}\r\ntotal_commands_processed:{}\r\n\r\n",
                counters.answered(),
            );
        }
        if wants("replication") {
            text.push_str("# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n");
        }
        bulk(out, text.as_bytes())
    }

    pub(crate) fn config(&self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        if !words.is(1, "get") {
            return wrong(out, &unknown_subcommand(words));
        }
        if words.len() < 3 {
            return wrong(out, &wrong_arity(b"config|get"));
        }
        let is_requested = |name: &&(&str, &str)| {
            words.from(2).any(|word| word == b"*" || word.eq_ignore_ascii_case(name.0.as_bytes()))
        };
        let found: Vec<_> = CONFIG.iter().filter(is_requested).collect();
        reply::map(out, self.protocol, found.len());
        for (name, value) in found {
            reply::bulk(out, name.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        CommandResult::Ok
    }

    pub(crate) fn time(&self, out: &mut Vec<u8>) -> CommandResult {
        let micros = self.inner.clock.now().as_micros();
        reply::array(out, 2);
        reply::bulk(out, (micros / 1_000_000).to_string().as_bytes());
        reply::bulk(out, (micros % 1_000_000).to_string().as_bytes());
        CommandResult::Ok
    }
}

/// Writes a command in the format of `COMMAND`.
fn describe(about: &CommandInfo, out: &mut Vec<u8>) {
    let key = i64::from(about.key);
    reply::array(out, 10);
    reply::bulk(out, about.name.as_bytes());
    reply::integer(out, i64::from(about.arity));
    reply::array(out, 1);
    reply::simple(out, if key > 0 { "write" } else { "fast" });
    // First key, last key, step.
    for number in [key, key, i64::from(key > 0)] {
        reply::integer(out, number);
    }
    // Categories, tips, key specifications, subcommands.
    for _ in 0..4 {
        reply::array(out, 0);
    }
}

fn null_array(out: &mut Vec<u8>, protocol: Protocol) {
    match protocol {
        Protocol::Two => out.extend_from_slice(b"*-1\r\n"),
        Protocol::Three => reply::null(out, protocol),
    }
}

/// Writes the key of a command, for proxies.
fn key_of(words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
    match about_named(words.get(2)) {
        None => wrong(out, b"ERR Invalid command specified"),
        Some(about) if about.key == 0 => wrong(out, b"ERR The command has no key arguments"),
        Some(about) => {
            let at = 2 + usize::from(about.key);
            if at >= words.len() {
                return wrong(out, b"ERR Invalid number of arguments specified for command");
            }
            reply::array(out, 1);
            bulk(out, words.get(at))
        }
    }
}
