//! Commands about the connection: authentication, protocol version, client name.

use std::fmt::Write as _;

use tollgate::Store;

use crate::frame::{Words, integer};
use crate::info::REDIS_VERSION;
use crate::metrics::CommandResult;
use crate::peer_call::PEER_USER;
use crate::reply::{self, Protocol};
use crate::session::{Session, bulk, cut, simple, unknown_subcommand, wrong, wrong_arity};

/// The maximum length of a client name or library name, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// The number of databases. Each has its own keys.
const DATABASES: u8 = 16;

const WRONG_PASSWORD: &[u8] = b"WRONGPASS invalid username-password pair or user is disabled.";

impl<S: Store> Session<S> {
    pub(crate) fn hello(&mut self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let protocol = match words.len() {
            1 => Some(self.protocol),
            _ => match integer(words.get(1)) {
                None => return wrong(out, b"ERR Protocol version is not an integer or out of range"),
                Some(2) => Some(Protocol::Two),
                Some(3) => Some(Protocol::Three),
                Some(_) => None,
            },
        };
        let Some(protocol) = protocol else { return wrong(out, b"NOPROTO unsupported protocol version") };
        let (mut login, mut name, mut at) = (None, None, 2);
        while at < words.len() {
            if words.is(at, "auth") && at + 2 < words.len() {
                login = Some((words.get(at + 1), words.get(at + 2)));
                at += 3;
            } else if words.is(at, "setname") && at + 1 < words.len() {
                name = Some(words.get(at + 1));
                at += 2;
            } else {
                let option = cut(words.get(at));
                return wrong(out, &[b"ERR Syntax error in HELLO option '", option, b"'"].concat());
            }
        }
        if let Some((user, password)) = login
            && !self.log_in(Some(user), password)
        {
            return wrong(out, WRONG_PASSWORD);
        }
        if self.is_unauthenticated {
            return wrong(
                out,
                b"NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
                  AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol \
                  version at the same time",
            );
        }
        if let Some(name) = name {
            match fit_name(name) {
                Some(name) => self.name = name,
                None => return wrong(out, BAD_NAME),
            }
        }
        self.protocol = protocol;
        reply::map(out, protocol, 7);
        for (field, value) in [("server", "tollgate"), ("version", REDIS_VERSION)] {
            reply::bulk(out, field.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        reply::bulk(out, b"proto");
        reply::integer(out, protocol as i64);
        reply::bulk(out, b"id");
        reply::count(out, self.id);
        for (field, value) in [("mode", "standalone"), ("role", "master")] {
            reply::bulk(out, field.as_bytes());
            reply::bulk(out, value.as_bytes());
        }
        reply::bulk(out, b"modules");
        reply::array(out, 0);
        CommandResult::Ok
    }

    pub(crate) fn auth(&mut self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let (user, password) = match words.len() {
            2 => (None, words.get(1)),
            3 => (Some(words.get(1)), words.get(2)),
            _ => return wrong(out, b"ERR syntax error"),
        };
        if user.is_none() && self.inner.settings.password.is_none() {
            return wrong(
                out,
                b"ERR AUTH <password> called without any password configured for the default user. Are you sure \
                  your configuration is correct?",
            );
        }
        if self.log_in(user, password) { simple(out, "OK") } else { wrong(out, WRONG_PASSWORD) }
    }

    /// Authenticates with a password. The users are `default`, and that of peers.
    fn log_in(&mut self, user: Option<&[u8]>, password: &[u8]) -> bool {
        if let (Some(peers), Some(PEER_USER)) = (&self.inner.settings.peers, user)
            && peers.password.as_ref().is_some_and(|right| right.is(password))
        {
            (self.is_peer, self.is_unauthenticated, self.wrong_passwords) = (true, false, 0);
            return true;
        }
        let is_user = user.is_none_or(|user| user == b"default");
        let is_password = self.inner.settings.password.as_ref().is_none_or(|right| right.is(password));
        if is_user && is_password {
            (self.is_unauthenticated, self.wrong_passwords) = (false, 0);
        } else {
            self.wrong_passwords += 1;
            self.inner.wrong_password(self.peer);
        }
        is_user && is_password
    }

    pub(crate) fn reset(&mut self, out: &mut Vec<u8>) -> CommandResult {
        self.protocol = Protocol::default();
        self.is_unauthenticated = self.inner.settings.password.is_some();
        self.is_peer = false;
        (self.name, self.database, self.transaction) = (Box::default(), 0, None);
        simple(out, "RESET")
    }

    pub(crate) fn select(&mut self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let Some(number) = integer(words.get(1)) else {
            return wrong(out, b"ERR value is not an integer or out of range");
        };
        match u8::try_from(number) {
            Ok(number @ 0..DATABASES) => {
                self.database = number;
                simple(out, "OK")
            }
            _ => wrong(out, b"ERR DB index is out of range"),
        }
    }

    pub(crate) fn client(&mut self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let subcommand = words.get(1).to_ascii_lowercase();
        match (&subcommand[..], words.len()) {
            (b"setinfo", 4) => self.set_info(words, out),
            (b"setname", 3) => match fit_name(words.get(2)) {
                Some(name) => {
                    self.name = name;
                    simple(out, "OK")
                }
                None => wrong(out, BAD_NAME),
            },
            (b"getname", 2) if self.name.is_empty() => {
                reply::null(out, self.protocol);
                CommandResult::Ok
            }
            (b"getname", 2) => bulk(out, self.name.as_bytes()),
            (b"id", 2) => {
                reply::count(out, self.id);
                CommandResult::Ok
            }
            (b"no-evict" | b"no-touch", 3) if words.is(2, "on") || words.is(2, "off") => simple(out, "OK"),
            (b"no-evict" | b"no-touch", 3) => wrong(out, b"ERR syntax error"),
            // The list contains only this connection, not those of other clients.
            (b"info", 2) | (b"list", _) => bulk(out, self.described().as_bytes()),
            (b"setinfo" | b"setname" | b"getname" | b"id" | b"no-evict" | b"no-touch" | b"info", _) => {
                wrong(out, &wrong_arity(&[b"client|", &subcommand[..]].concat()))
            }
            _ => wrong(out, &unknown_subcommand(words)),
        }
    }

    fn set_info(&mut self, words: Words<'_>, out: &mut Vec<u8>) -> CommandResult {
        let (at, field) = if words.is(2, "lib-name") {
            (0, "lib-name")
        } else if words.is(2, "lib-ver") {
            (1, "lib-ver")
        } else {
            let option = cut(words.get(2));
            return wrong(out, &[b"ERR Unrecognized option '", option, b"'"].concat());
        };
        let Some(value) = fit_name(words.get(3)) else {
            let said = format!("ERR {field} cannot contain spaces, newlines or special characters.");
            return wrong(out, said.as_bytes());
        };
        self.library[at] = value;
        simple(out, "OK")
    }

    /// Describes this connection in the format of `CLIENT LIST`.
    fn described(&self) -> String {
        let mut line = format!("id={} addr={} name={} db={}", self.id, self.peer, self.name, self.database);
        let [name, version] = &self.library;
        let user = if self.is_unauthenticated { "(none)" } else { "default" };
        let _infallible =
            writeln!(line, " user={user} resp={} lib-name={name} lib-ver={version}", self.protocol as u8);
        line
    }
}

const BAD_NAME: &[u8] = b"ERR Client names cannot contain spaces, newlines or special characters.";

/// Validates a client name.
fn fit_name(name: &[u8]) -> Option<Box<str>> {
    let fits = name.len() <= MAX_NAME_BYTES && name.iter().all(u8::is_ascii_graphic);
    if fits { std::str::from_utf8(name).ok().map(Into::into) } else { None }
}
