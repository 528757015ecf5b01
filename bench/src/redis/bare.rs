//! The client without a store: one `EVALSHA` per decision.
//!
//! There are two scripts: the shortest one that limits, and Tollgate's own with a single decision per call. They
//! separate the cost of the script from the cost of the client. Tollgate's script is not copied here: `MONITOR` shows
//! the call that the store sends.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Script, cmd};
use tollgate_store::{Check, Store as _};

use super::caller::Caller;
use super::instance::{CALL_TIMEOUT, Instance};
use super::keys::Keys;
use super::{io_error, ours};

/// A token bucket in as few commands as possible. Arguments: the cost of a unit and the value of a full bucket, in
/// microseconds.
pub const MINIMAL: &str = "
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or 0)
if tat < now then tat = now end
local new = tat + ARGV[1]
if new - now > tonumber(ARGV[2]) then return {0, tat - now} end
redis.call('SET', KEYS[1], new, 'PX', math.ceil((new - now) / 1000))
return {1, new - now}
";

/// One call per decision; all of them are admitted.
pub struct Bare {
    connection: MultiplexedConnection,
    hash: String,
    /// Prefix of the keys.
    prefix: Vec<u8>,
    keys: Keys,
    arguments: Vec<Vec<u8>>,
    /// Index of the verdict in the answer.
    verdict: usize,
}

impl Bare {
    /// Uses the shortest script, with the limit of [`ours::everyday`].
    pub async fn minimal(redis: &Instance, keys: Keys) -> io::Result<Self> {
        let period = ours::EVERYDAY.period.as_micros();
        let arguments = [period / ours::EVERYDAY.count, period].map(|it| it.to_string().into_bytes()).into();
        redis.ask::<String>(cmd("SCRIPT").arg("LOAD").arg(MINIMAL)).await?;
        Ok(Self {
            connection: redis.connect().await?,
            hash: Script::new(MINIMAL).get_hash().to_owned(),
            prefix: Vec::new(),
            keys,
            arguments,
            verdict: 0,
        })
    }

    /// Uses Tollgate's script, called as the store calls it for one decision under [`ours::everyday`].
    pub async fn own_script(redis: &Instance, keys: Keys) -> io::Result<Self> {
        let (store, rule) = (ours::store(redis).await?, ours::everyday()?);
        let key = keys.pick(0, 0).as_bytes();
        // The first call loads the script, the second one calls it by hash.
        for _ in 0..2 {
            store.decide(&[Check::new(&rule, key, 1)]).await.map_err(|error| io_error(&error))?;
        }
        let mut overheard = listen(redis.address())?;
        store.decide(&[Check::new(&rule, key, 1)]).await.map_err(|error| io_error(&error))?;
        let words = next_call(&mut overheard)?;
        let surprise =
            || io::Error::other(format!("the store asks in a way that is not known here: {words:?}"));
        let [_, hash, count, name, arguments @ ..] = &*words else { return Err(surprise()) };
        let prefix = name.strip_suffix(key).filter(|_| count == b"1").ok_or_else(surprise)?;
        Ok(Self {
            connection: redis.connect().await?,
            hash: String::from_utf8_lossy(hash).into_owned(),
            prefix: prefix.to_vec(),
            keys,
            arguments: arguments.to_vec(),
            verdict: 3,
        })
    }
}

impl Caller for Bare {
    async fn ask(&self, task: usize, turn: u64) -> io::Result<()> {
        let mut command = cmd("EVALSHA");
        command.arg(&*self.hash).arg(1);
        let key = self.keys.pick(task, turn);
        if self.prefix.is_empty() {
            command.arg(key);
        } else {
            command.arg([&*self.prefix, key.as_bytes()].concat());
        }
        for argument in &self.arguments {
            command.arg(&**argument);
        }
        let answer = command.query_async::<Vec<i64>>(&mut self.connection.clone()).await;
        let answer = answer.map_err(|error| io_error(&error))?;
        if answer.get(self.verdict) == Some(&1) {
            return Ok(());
        }
        Err(io::Error::other(format!("a script did not admit: {answer:?}")))
    }
}

/// Starts `MONITOR` on a server.
fn listen(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    stream.write_all(b"MONITOR\r\n")?;
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut String::new())?;
    Ok(stream)
}

/// Returns the arguments of the next `EVALSHA` call.
fn next_call(overheard: &mut impl io::BufRead) -> io::Result<Vec<Vec<u8>>> {
    loop {
        let mut line = String::new();
        if overheard.read_line(&mut line)? == 0 {
            return Err(io::Error::other("the server did not call a script"));
        }
        let words = words(&line);
        if words.first().is_some_and(|word| word.eq_ignore_ascii_case(b"EVALSHA")) {
            return Ok(words);
        }
    }
}

/// Parses the quoted arguments of a line.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut bytes = line.bytes();
    while bytes.any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                b'\\' => word.extend(escaped(&mut bytes)),
                _ => word.push(byte),
            }
        }
        words.push(word);
    }
    words
}

fn escaped(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(match rest.next()? {
        b'x' => digit(rest.next()?)? << 4 | digit(rest.next()?)?,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        itself => itself,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitored_calls_are_parsed_byte_for_byte() {
        let heard = concat!(
            "+1.5 [0 lua] \"GET\" \"x\"\r\n",
            "+1.5 [0 127.0.0.1:1] \"EVALSHA\" \"ab\" \"1\" \"a\\\"\\\\b\" \"\\x00\\xff\\n\\r\\t\\a\\b\"\r\n",
        );
        let call = next_call(&mut heard.as_bytes()).unwrap();
        let expected: [&[u8]; 5] = [b"EVALSHA", b"ab", b"1", b"a\"\\b", b"\x00\xff\n\r\t\x07\x08"];
        assert_eq!(call, expected);
        assert!(next_call(&mut &b"+1.5 [0 lua] \"GET\" \"x\"\r\n"[..]).is_err());
    }
}
