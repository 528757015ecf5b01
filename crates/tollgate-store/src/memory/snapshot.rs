//! A snapshot of all states, with which another process continues.
//!
//! The store keeps hashes of keys and not the keys, so the snapshot contains the secrets of the hashes, and
//! each state with its place. It fits only a store of the same size.
//!
//! A state is meaningful on the clock that counted it. The restored store therefore continues the
//! monotonic time of the first one, plus the time that has passed in between, which the caller measures.
//! Windows of the wall clock need no conversion: their ends are dates.
//!
//! Writing takes no lock but that of one set of wide states at a time, and only reads the table of words,
//! so requests do not wait. A request that is decided meanwhile is in the snapshot or not. Slots are left
//! out: their requests end with the process.
//!
//! The bytes are read back only as they were written: the caller stores a checksum. Damaged bytes are an
//! error, or a store with other usage, and never a panic.
//!
//! Tested by `tests/snapshots.rs`.

use std::io::{self, Read, Write};

use tollgate_core::{State, Timestamp};

use super::floor::SavedFloors;
use super::hash::KeyHasher;
use super::table::Table;
use super::wide_table::{SavedEntry, WideTable};
use super::{CHANGE_LOCKS, MemoryStore, Mutex};
use crate::clock::Clock;

/// The start of a snapshot; the last byte is the version.
const MAGIC: [u8; 8] = *b"TGSTATE\x01";
/// The end of a list.
const END: u32 = u32::MAX;
/// The maximum size of one encoded state, larger than that of any log.
const MAX_STATE_BYTES: usize = 64 << 20;

/// Error returned when a snapshot cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It could not be read.
    #[error("it cannot be read")]
    Io(#[from] io::Error),
    /// It was written by another version of Tollgate, or not by Tollgate at all.
    #[error("it is not a snapshot that this version knows")]
    Unknown,
    /// The store that wrote it had another size.
    #[error("it is from a store of another size")]
    OtherSize,
    /// It contains a value that no store writes.
    #[error("it is damaged")]
    Damaged,
}

impl<C: Clock> MemoryStore<C> {
    /// Writes the states of all keys. Returns the number of states. `now` is a recent reading of the clock:
    /// the restored store continues from there.
    pub fn write_snapshot(&self, now: Timestamp, out: &mut impl Write) -> io::Result<u64> {
        self.table.set_wall_ahead(self.clock.wall_ahead(now));
        out.write_all(&MAGIC)?;
        put(out, now.as_micros())?;
        for secret in self.hasher.secrets() {
            put(out, secret)?;
        }
        put(out, self.table.lines.len() as u64)?;
        put(out, self.wide.set_count() as u64)?;
        put(out, self.table.base.as_micros())?;
        put(out, self.table.evictions())?;
        put(out, self.wide.evictions())?;
        let mut states = 0;
        for (line, tag, word) in self.table.saved(now) {
            put_place(out, line)?;
            put(out, tag)?;
            put(out, word)?;
            states += 1;
        }
        out.write_all(&END.to_le_bytes())?;
        for (region, floors) in self.table.floors.saved() {
            put_floors(out, region, &floors)?;
        }
        out.write_all(&END.to_le_bytes())?;
        for set in 0..self.wide.set_count() {
            let Some((entries, floors)) = self.wide.saved(set) else { break };
            for entry in entries {
                put_entry(out, set, &entry)?;
                states += 1;
            }
            for floors in floors {
                // Distinguished from an entry by its place.
                out.write_all(&(END - 1).to_le_bytes())?;
                put_floors(out, set, &floors)?;
            }
        }
        out.write_all(&END.to_le_bytes())?;
        Ok(states)
    }

    /// Creates a store for `max_keys` keys from a snapshot. `clock` returns the clock of the store from the
    /// time of the snapshot: it shows that time plus the time that has passed since.
    pub fn from_snapshot(
        max_keys: usize,
        input: &mut impl Read,
        clock: impl FnOnce(Timestamp) -> C,
    ) -> Result<Self, SnapshotError> {
        if array(input)? != MAGIC {
            return Err(SnapshotError::Unknown);
        }
        let clock = clock(Timestamp::from_micros(number(input)?));
        let mut secrets = [0; 10];
        for secret in &mut secrets {
            *secret = number(input)?;
        }
        let wide = WideTable::new(max_keys);
        let table = Table::of_snapshot(max_keys, number(input)?, clock.now());
        let table = table.ok_or(SnapshotError::OtherSize)?;
        if number(input)? != wide.set_count() as u64 {
            return Err(SnapshotError::OtherSize);
        }
        let base = Timestamp::from_micros(number(input)?);
        table.set_evictions(number(input)?);
        wide.set_evictions(number(input)?);
        while let Some(line) = place(input)? {
            let (tag, word) = (number(input)?, number(input)?);
            table.restore(line, tag, word, base).ok_or(SnapshotError::Damaged)?;
        }
        while let Some(region) = place(input)? {
            table.floors.restore(region, &floors(input)?).ok_or(SnapshotError::Damaged)?;
        }
        while let Some(at) = place(input)? {
            let restored = if at == (END - 1) as usize {
                let set = place(input)?.ok_or(SnapshotError::Damaged)?;
                wide.restore_floors(set, &floors(input)?)
            } else {
                wide.restore(at, entry(input)?)
            };
            restored.ok_or(SnapshotError::Damaged)?;
        }
        let changing: [_; CHANGE_LOCKS] = std::array::from_fn(|_| Mutex::new(()));
        Ok(Self { clock, hasher: KeyHasher::from_secrets(secrets), table, wide, changing })
    }
}

fn put(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(&number.to_le_bytes())
}

fn put_place(out: &mut impl Write, place: usize) -> io::Result<()> {
    // There are fewer lines and sets than `END`.
    out.write_all(&u32::try_from(place).unwrap_or(END).to_le_bytes())
}

fn put_floors(out: &mut impl Write, place: usize, floors: &SavedFloors) -> io::Result<()> {
    put_place(out, place)?;
    put(out, floors.list.into())?;
    put(out, floors.closed_until)?;
    put(out, floors.kinds.len() as u64)?;
    for &(kind, units, until) in &floors.kinds {
        put(out, u64::from(kind) << 32 | u64::from(units))?;
        put(out, until)?;
    }
    Ok(())
}

fn put_entry(out: &mut impl Write, set: usize, entry: &SavedEntry) -> io::Result<()> {
    put_place(out, set)?;
    put(out, entry.hashes[0])?;
    put(out, entry.hashes[1])?;
    put(out, entry.forgettable)?;
    put(out, u64::from(entry.units) << 32 | u64::from(entry.share) << 16 | u64::from(entry.kind))?;
    let state = entry.state.encode();
    put(out, state.len() as u64)?;
    out.write_all(&state)
}

fn array<const N: usize>(input: &mut impl Read) -> Result<[u8; N], SnapshotError> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Damaged,
        _ => SnapshotError::Io(error),
    })?;
    Ok(bytes)
}

fn number(input: &mut impl Read) -> Result<u64, SnapshotError> {
    array(input).map(u64::from_le_bytes)
}

/// Reads a place, or the end of the list.
fn place(input: &mut impl Read) -> Result<Option<usize>, SnapshotError> {
    let place = u32::from_le_bytes(array(input)?);
    Ok((place != END).then_some(place as usize))
}

fn floors(input: &mut impl Read) -> Result<SavedFloors, SnapshotError> {
    let list = u8::try_from(number(input)?).map_err(|_| SnapshotError::Damaged)?;
    let closed_until = number(input)?;
    let mut kinds = Vec::new();
    for _ in 0..number(input)? {
        let (kind, until) = (number(input)?, number(input)?);
        kinds.push(((kind >> 32) as u16, kind as u32, until));
    }
    Ok(SavedFloors { list, closed_until, kinds })
}

fn entry(input: &mut impl Read) -> Result<SavedEntry, SnapshotError> {
    let hashes = [number(input)?, number(input)?];
    let (forgettable, usage) = (number(input)?, number(input)?);
    let length = usize::try_from(number(input)?).ok().filter(|&length| length <= MAX_STATE_BYTES);
    let length = length.ok_or(SnapshotError::Damaged)?;
    // Not allocated in advance: the length may be damaged.
    let mut bytes = Vec::new();
    input.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() != length {
        return Err(SnapshotError::Damaged);
    }
    let state = State::decode(&bytes).map_err(|_| SnapshotError::Damaged)?;
    let (units, share, kind) = ((usage >> 32) as u32, (usage >> 16) as u16, usage as u16);
    Ok(SavedEntry { hashes, state, forgettable, units, share, kind })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use tollgate_core::{Bucket, Rate, Rule};

    use super::*;
    use crate::clock::ManualClock;
    use crate::store::Check;

    #[test]
    fn a_snapshot_of_a_table_of_the_former_size_is_restored() {
        let now = Timestamp::from_secs(1_800_000_000);
        let mut store = MemoryStore::with_seed(1_000, ManualClock::at(now), 7);
        store.table = Table::former(1_000, now);
        let rule = Rule::new("hourly", Bucket::new(Rate::per_hour(1)).unwrap());
        let keys: Vec<String> = (0..1_000).map(|number| format!("key {number}")).collect();
        let take = |store: &MemoryStore<ManualClock>| {
            keys.iter()
                .filter(|key| store.decide_now(&[Check::new(&rule, key.as_bytes(), 1)]).admitted)
                .count()
        };
        assert_eq!(take(&store), 1_000);
        let mut bytes = Vec::new();
        store.write_snapshot(now, &mut bytes).unwrap();
        let restored = MemoryStore::from_snapshot(1_000, &mut &bytes[..], ManualClock::at).unwrap();
        assert_eq!(take(&restored), 0, "every key is still spent");
        let other = MemoryStore::from_snapshot(2_000, &mut &bytes[..], ManualClock::at);
        assert!(matches!(other, Err(SnapshotError::OtherSize)));
    }
}
