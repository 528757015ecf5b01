//! The usage of a store in memory, saved in the state directory.
//!
//! A snapshot is written every few seconds and when the process ends. It replaces the one before
//! atomically, so a crash leaves the last whole one: usage that was charged after it is forgotten. A
//! snapshot that cannot be used is reported and ignored. One that cannot be written is reported, and the
//! process continues to serve.
//!
//! ```text
//! TGUSAGE1 | boot id, uptime | rule sets | states (`MemoryStore::write_snapshot`) | SHA-256 of all before
//! ```
//!
//! The rule sets are those that have counted the states. Limits whose numbers changed carry the usage
//! over, as after a reload.
//!
//! *Time.* States are counted on a monotonic clock that ends with the process. Between two processes of one
//! boot, the uptime of the machine tells how much time has passed. After a reboot or on another machine, only
//! the wall clock does; one that was set back counts as if no time had passed.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use tollgate::policy::RuleSet;
use tollgate::store::memory::SnapshotError;
use tollgate::{Clock, MemoryStore, Policy, Span, SystemClock, Timestamp};

use super::{State, private, why};
use crate::configuration::shown;
use crate::store::in_full;

const USAGE_FILE: &str = "usage";
const NEW_USAGE_FILE: &str = "usage.new";

/// The start of a file; the last byte is the version.
const MAGIC: [u8; 8] = *b"TGUSAGE1";
/// The maximum size of a file: some twelve million keys.
const MAX_BYTES: u64 = 256 << 20;
const DIGEST_BYTES: u64 = 32;
/// The maximum number of rule sets in a file: the states of older ones have nearly always expired.
const MAX_RULE_SETS: usize = 16;
const MAX_BOOT_ID_BYTES: u64 = 64;
/// The resolution of the uptime.
const UPTIME_RESOLUTION: Span = Span::from_millis(10);

/// Usage that was read from a file.
pub(crate) struct SavedUsage {
    /// The store with the states.
    pub(crate) store: MemoryStore,
    /// The rules that counted them, the oldest first.
    pub(crate) rules: Vec<RuleSet>,
    /// How much time has passed since it was written.
    pub(crate) age: Span,
}

/// The moment at which a snapshot was written.
struct SnapshotTime {
    /// The boot of the machine; empty if it is unknown.
    boot: String,
    /// The time since then, on a clock that shows zero at the boot.
    uptime: Timestamp,
    wall: Timestamp,
}

/// The reason why saved usage is not used.
enum Unusable {
    Io(io::Error),
    Reason(&'static str),
    Snapshot(SnapshotError),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Reason("it is damaged"),
            _ => Self::Io(error),
        }
    }
}

impl State {
    /// Reads the saved usage for a policy. Returns a warning if there is some that cannot be used.
    pub(crate) fn read_usage(&self, policy: &Policy) -> Result<Option<SavedUsage>, String> {
        let path = self.folder.join(USAGE_FILE);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ignored(&path, &why(&error))),
        };
        let keys = usize::try_from(policy.max_keys()).unwrap_or(usize::MAX);
        read(&file, keys, &SnapshotTime::now()).map(Some).map_err(|unusable| {
            let reason = match unusable {
                Unusable::Io(error) => crate::io_error::reason(&error, crate::io_error::Attempt::Read),
                Unusable::Reason(reason) => reason.to_owned(),
                Unusable::Snapshot(SnapshotError::OtherSize) => "`max_keys` was another number".to_owned(),
                Unusable::Snapshot(error) => in_full(&error),
            };
            ignored(&path, &reason)
        })
    }

    /// Saves the usage of a store, with the rules that counted it. Returns the number of states.
    pub(crate) fn write_usage<C: Clock>(
        &self,
        store: &MemoryStore<C>,
        rules: &[RuleSet],
    ) -> Result<u64, String> {
        let (path, beside) = (self.folder.join(USAGE_FILE), self.folder.join(NEW_USAGE_FILE));
        let write = || -> io::Result<u64> {
            let file = private().create(true).truncate(true).open(&beside)?;
            // In this order: the time in between counts as not passed.
            let (at, moment) = (store.now(), SnapshotTime::now());
            let states = write(&file, (store, at), rules, &moment)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            // Makes the rename durable too.
            File::open(&self.folder)?.sync_all()?;
            Ok(states)
        };
        write().map_err(|error| {
            // A part of a snapshot would only take room.
            let _gone = fs::remove_file(&beside);
            format!("cannot write to {}: {}", shown(&self.folder), why(&error))
        })
    }
}

fn ignored(path: &Path, reason: &str) -> String {
    format!(
        "warning: the usage saved in {} is not used: {reason}\n  \
         = help: all keys begin with their full allowance; the file is replaced by the next snapshot\n",
        shown(path)
    )
}

impl SnapshotTime {
    fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let boot = text("/proc/sys/kernel/random/boot_id").trim().to_owned();
        let uptime = parse_uptime(&text("/proc/uptime")).unwrap_or(Timestamp::EPOCH);
        Self { boot, uptime, wall: SystemClock::new().now() }
    }

    /// Returns the time that has passed since another moment, rounded down: time that has not passed must
    /// not refill a bucket.
    fn since(&self, before: &Self) -> Span {
        let is_same_boot = !self.boot.is_empty() && self.boot == before.boot;
        if is_same_boot && self.uptime >= before.uptime {
            return self.uptime.since(before.uptime + UPTIME_RESOLUTION);
        }
        self.wall.since(before.wall)
    }
}

/// Parses `/proc/uptime`: seconds with two decimals, which count while the machine sleeps.
fn parse_uptime(text: &str) -> Option<Timestamp> {
    let (seconds, rest) = text.split_once('.')?;
    let hundredths = rest.get(..2)?.parse::<u64>().ok()?;
    let micros = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?;
    Some(Timestamp::from_micros(micros.checked_add(hundredths * 10_000)?))
}

fn write<C: Clock>(
    file: &File,
    (store, at): (&MemoryStore<C>, Timestamp),
    rules: &[RuleSet],
    now: &SnapshotTime,
) -> io::Result<u64> {
    let mut out =
        HashingWriter { inner: BufWriter::new(file), digest: Sha256::new(), left: MAX_BYTES - DIGEST_BYTES };
    out.write_all(&MAGIC)?;
    put(&mut out, now.boot.as_bytes())?;
    out.write_all(&now.uptime.as_micros().to_le_bytes())?;
    out.write_all(&now.wall.as_micros().to_le_bytes())?;
    out.write_all(&(rules.len() as u64).to_le_bytes())?;
    for set in rules {
        put(&mut out, &set.encode())?;
    }
    let states = store.write_snapshot(at, &mut out)?;
    let HashingWriter { mut inner, digest, .. } = out;
    inner.write_all(&digest.finalize())?;
    inner.flush()?;
    Ok(states)
}

fn put(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u64).to_le_bytes())?;
    out.write_all(bytes)
}

/// A writer with a checksum of everything written, and with a maximum.
struct HashingWriter<W> {
    inner: W,
    digest: Sha256,
    left: u64,
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(bytes.len() as u64) else {
            return Err(io::Error::other(format!("the usage takes more than {MAX_BYTES} bytes")));
        };
        let written = self.inner.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.left = left;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn read(file: &File, keys: usize, now: &SnapshotTime) -> Result<SavedUsage, Unusable> {
    let size = file.metadata()?.len();
    let Some(length) = size.checked_sub(DIGEST_BYTES).filter(|_| size <= MAX_BYTES) else {
        return Err(Unusable::Reason("it is damaged"));
    };
    let mut input = BufReader::new(file);
    let magic = array::<8>(&mut input)?;
    if magic[..7] != MAGIC[..7] {
        return Err(Unusable::Reason("it was not written by Tollgate"));
    }
    if magic != MAGIC {
        return Err(Unusable::Reason("another version of Tollgate has written it"));
    }
    input.rewind()?;
    verify(&mut input, length)?;
    input.rewind()?;
    let mut input = input.take(length);
    array::<8>(&mut input)?;
    let boot = String::from_utf8_lossy(&bytes(&mut input, MAX_BOOT_ID_BYTES)?).into_owned();
    let uptime = Timestamp::from_micros(number(&mut input)?);
    let wall = Timestamp::from_micros(number(&mut input)?);
    let mut rules = Vec::new();
    for _ in 0..number(&mut input)?.min(MAX_RULE_SETS as u64) {
        let set = RuleSet::decode(&bytes(&mut input, MAX_BYTES)?);
        rules.push(set.map_err(|_| Unusable::Reason("another version of Tollgate has written it"))?);
    }
    let age = now.since(&SnapshotTime { boot, uptime, wall });
    let clock = |at: Timestamp| SystemClock::starting_at(at + age);
    let store = MemoryStore::from_snapshot(keys, &mut input, clock).map_err(Unusable::Snapshot)?;
    Ok(SavedUsage { store, rules, age })
}

/// Compares the checksum at the end of a file with that of everything before.
fn verify(input: &mut impl Read, length: u64) -> Result<(), Unusable> {
    let mut digest = Sha256::new();
    let mut left = length;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let count = input.read(&mut buffer[..most])?;
        if count == 0 {
            return Err(Unusable::Reason("it is damaged"));
        }
        digest.update(&buffer[..count]);
        left -= count as u64;
    }
    if array::<32>(input)? == *digest.finalize() { Ok(()) } else { Err(Unusable::Reason("it is damaged")) }
}

fn array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], Unusable> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(input: &mut impl Read) -> Result<u64, Unusable> {
    array(input).map(u64::from_le_bytes)
}

fn bytes(input: &mut impl Read, most: u64) -> Result<Vec<u8>, Unusable> {
    let length = number(input)?;
    let mut bytes = Vec::new();
    input.take(length.min(most)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(Unusable::Reason("it is damaged")) }
}

/// The rules that have counted the states of a store, for its snapshots.
#[derive(Default)]
pub(crate) struct RuleHistory(Vec<RuleSet>);

impl RuleHistory {
    pub(crate) const fn new(rules: Vec<RuleSet>) -> Self {
        Self(rules)
    }

    /// Adds the rules of the policy in force as the latest, and returns all.
    pub(crate) fn with(&mut self, policy: &Policy) -> &[RuleSet] {
        let present = policy.rule_set();
        self.0.retain(|set| *set != present);
        self.0.push(present);
        let excess = self.0.len().saturating_sub(MAX_RULE_SETS);
        self.0.drain(..excess);
        &self.0
    }
}

#[cfg(test)]
mod tests;
