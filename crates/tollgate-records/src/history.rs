//! Counts of decisions per minute, on disk.
//!
//! The file has slots of 48 bytes: the minute, four counts and a checksum. The slot of the current
//! minute is overwritten each second, so a crash loses the last second. Of several slots for one minute
//! the last one counts.
//!
//! The file is separate from the segments, because a flood of refusals fills the segments within
//! minutes, and must not shorten the history. It has 1,440 slots a day: half a megabyte a week.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use tollgate::{Span, Timestamp};

use crate::segment::private;

/// The name of the file.
const FILE: &str = "history";
const SLOT_BYTES: usize = 48;
/// The number of expired minutes after which the file is written anew.
const MAX_EXPIRED: usize = 60;
/// The lengths of a step, in minutes.
const STEPS: [u64; 13] = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 10_080];
const MICROS_PER_MINUTE: u64 = 60_000_000;

/// The counts of decisions in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MinuteCounts {
    /// Requests that passed.
    pub allowed: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that a limit in shadow mode would have refused.
    pub shadow_limited: u64,
    /// Requests that were decided without the store.
    pub degraded: u64,
}

impl MinuteCounts {
    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, other: &Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.refused = self.refused.saturating_add(other.refused);
        self.shadow_limited = self.shadow_limited.saturating_add(other.shadow_limited);
        self.degraded = self.degraded.saturating_add(other.degraded);
    }
}

/// Counts of decisions over time, in steps of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The start of the first step.
    pub from: Timestamp,
    /// The length of a step.
    pub step: Span,
    /// The counts of each step, the oldest first. The last step may be incomplete.
    pub steps: Vec<MinuteCounts>,
}

/// The counts of all minutes that are kept.
#[derive(Debug, Default)]
pub(crate) struct Minutes(BTreeMap<u64, MinuteCounts>);

/// Returns the number of the minute since 1970.
pub(crate) const fn minute_of(at: Timestamp) -> u64 {
    at.as_micros() / MICROS_PER_MINUTE
}

impl Minutes {
    fn add(&mut self, minute: u64, counts: &MinuteCounts) -> MinuteCounts {
        let sum = self.0.entry(minute).or_default();
        sum.add(counts);
        *sum
    }

    /// Returns the time of the first minute.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        self.0.keys().next().map(|minute| Timestamp::from_micros(minute * MICROS_PER_MINUTE))
    }

    /// Returns the counts of a stretch of time in at most `max_steps` steps.
    pub(crate) fn between(&self, times: RangeInclusive<Timestamp>, max_steps: usize) -> History {
        let (first, last) =
            (minute_of(*times.start()), minute_of(*times.end()).max(minute_of(*times.start())));
        let fits = |step: &u64| last / step - first / step < max_steps.max(1) as u64;
        let step = STEPS.into_iter().find(fits).unwrap_or((last - first + 1).max(1));
        let count = usize::try_from(last / step - first / step + 1).unwrap_or(0);
        let mut steps = vec![MinuteCounts::default(); count];
        let from = first / step * step;
        for (minute, counts) in self.0.range(from..=last) {
            let at = usize::try_from((minute - from) / step).unwrap_or(usize::MAX);
            if let Some(sum) = steps.get_mut(at) {
                sum.add(counts);
            }
        }
        History {
            from: Timestamp::from_micros(from * MICROS_PER_MINUTE),
            step: Span::from_minutes(step),
            steps,
        }
    }

    /// Reads the file of a directory. Slots that are damaged are skipped.
    pub(crate) fn read(dir: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        match File::open(dir.join(FILE)) {
            Ok(file) => _ = file.take(1 << 30).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Self(bytes.chunks_exact(SLOT_BYTES).filter_map(parse).collect()))
    }

    fn forget_before(&mut self, minute: u64) {
        self.0 = self.0.split_off(&minute);
    }

    fn expired(&self, minute: u64) -> usize {
        self.0.range(..minute).take(MAX_EXPIRED).count()
    }
}

fn slot(minute: u64, counts: &MinuteCounts) -> [u8; SLOT_BYTES] {
    let mut slot = [0; SLOT_BYTES];
    let numbers = [minute, counts.allowed, counts.refused, counts.shadow_limited, counts.degraded];
    for (place, number) in slot.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32fast::hash(&slot[..40]);
    slot[40..44].copy_from_slice(&sum.to_le_bytes());
    slot
}

fn parse(slot: &[u8]) -> Option<(u64, MinuteCounts)> {
    let number = |at: usize| Some(u64::from_le_bytes(*slot.get(8 * at..)?.first_chunk()?));
    let sum = u32::from_le_bytes(*slot.get(40..)?.first_chunk()?);
    (crc32fast::hash(&slot[..40]) == sum).then_some(())?;
    let [allowed, refused] = [number(1)?, number(2)?];
    let [shadow_limited, degraded] = [number(3)?, number(4)?];
    Some((number(0)?, MinuteCounts { allowed, refused, shadow_limited, degraded }))
}

/// The file of a process that writes.
pub(crate) struct HistoryFile {
    path: PathBuf,
    file: File,
    /// The number of slots, and the minute of the last one.
    slots: u64,
    last: Option<u64>,
    dirty: bool,
}

impl HistoryFile {
    /// Opens the file of a directory.
    pub(crate) fn open(dir: &Path) -> io::Result<(Self, Minutes)> {
        let path = dir.join(FILE);
        let minutes = Minutes::read(dir)?;
        let file = private().create(true).truncate(false).open(&path)?;
        // An incomplete slot at the end is overwritten.
        let slots = file.metadata()?.len() / SLOT_BYTES as u64;
        Ok((Self { path, file, slots, last: None, dirty: false }, minutes))
    }

    /// Returns the size of the file, and of its copy while it is written anew.
    pub(crate) const fn size(&self) -> u64 {
        2 * (self.slots + 1) * SLOT_BYTES as u64
    }

    /// Adds counts to a minute.
    pub(crate) fn add(
        &mut self,
        minute: u64,
        counts: &MinuteCounts,
        minutes: &mut Minutes,
    ) -> io::Result<()> {
        let sum = minutes.add(minute, counts);
        if self.last != Some(minute) {
            self.slots += 1;
            self.last = Some(minute);
        }
        self.dirty = true;
        self.file.write_all_at(&slot(minute, &sum), (self.slots - 1) * SLOT_BYTES as u64)
    }

    /// Makes the counts durable.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.dirty) { self.file.sync_data() } else { Ok(()) }
    }

    /// Removes the minutes before `minute`, if there are many.
    pub(crate) fn expire(&mut self, minute: u64, minutes: &mut Minutes) -> io::Result<()> {
        if minutes.expired(minute) < MAX_EXPIRED {
            return Ok(());
        }
        minutes.forget_before(minute);
        let beside = self.path.with_extension("new");
        let mut file = private().create(true).truncate(true).open(&beside)?;
        let slots: Vec<u8> = minutes.0.iter().flat_map(|(minute, counts)| slot(*minute, counts)).collect();
        file.write_all(&slots)?;
        file.sync_all()?;
        fs::rename(&beside, &self.path)?;
        (self.file, self.slots) = (file, minutes.0.len() as u64);
        // The last slot is that of the latest minute, which is the current one unless the clock stepped.
        self.last = minutes.0.keys().next_back().copied();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_testkit::Scratch;

    fn refused(refused: u64) -> MinuteCounts {
        MinuteCounts { refused, ..MinuteCounts::default() }
    }

    #[test]
    fn counts_are_read_back_after_a_restart_in_the_same_minute() {
        let files = Scratch::new();
        for _ in 0..2 {
            let (mut file, mut minutes) = HistoryFile::open(files.path()).unwrap();
            for minute in [100, 100, 101, 99] {
                file.add(minute, &refused(1), &mut minutes).unwrap();
            }
        }
        let minutes = Minutes::read(files.path()).unwrap();
        let all: Vec<_> = minutes.0.iter().map(|(minute, counts)| (*minute, counts.refused)).collect();
        assert_eq!(all, [(99, 2), (100, 4), (101, 2)]);
    }

    #[test]
    fn a_damaged_slot_loses_its_minute_and_no_other() {
        let files = Scratch::new();
        let (mut file, mut minutes) = HistoryFile::open(files.path()).unwrap();
        for minute in 1..=3 {
            file.add(minute, &refused(minute), &mut minutes).unwrap();
        }
        let path = files.path().join(FILE);
        let mut bytes = fs::read(&path).unwrap();
        bytes[SLOT_BYTES + 9] ^= 1;
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert_eq!(Minutes::read(files.path()).unwrap().0.into_keys().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn expired_minutes_are_removed_from_the_file() {
        let files = Scratch::new();
        let (mut file, mut minutes) = HistoryFile::open(files.path()).unwrap();
        for minute in 1..=100 {
            file.add(minute, &refused(1), &mut minutes).unwrap();
        }
        file.expire(60, &mut minutes).unwrap();
        assert_eq!(minutes.0.len(), 100);
        file.expire(61, &mut minutes).unwrap();
        file.add(100, &refused(1), &mut minutes).unwrap();
        file.add(101, &refused(1), &mut minutes).unwrap();
        let read = Minutes::read(files.path()).unwrap();
        assert_eq!((read.0.len(), read.0[&100].refused, read.0[&101].refused), (41, 2, 1));
        assert_eq!(fs::metadata(files.path().join(FILE)).unwrap().len(), 41 * SLOT_BYTES as u64);
    }

    #[test]
    fn steps_are_as_short_as_their_number_permits() {
        let minutes = Minutes((0..1_440).map(|minute| (minute, refused(1))).collect());
        let time = |minute: u64| Timestamp::from_secs(60 * minute);
        for (range, most, step, expected) in [
            (time(0)..=time(59), 60, 1, vec![1; 60]),
            (time(0)..=time(59), 59, 2, vec![2; 30]),
            (time(7)..=time(12), 2, 5, vec![5, 3]),
            (time(1_438)..=time(1_441), 60, 1, vec![1, 1, 0, 0]),
        ] {
            let history = minutes.between(range, most);
            let counts: Vec<_> = history.steps.iter().map(|it| it.refused).collect();
            assert_eq!((history.step, counts), (Span::from_minutes(step), expected));
        }
    }
}
