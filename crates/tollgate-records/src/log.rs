//! Reads a decision log: lookups by id, searches, history and status.
//!
//! Reading takes the lock for the list of segments only; files are read without it. A segment that is
//! deleted meanwhile is skipped.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate::{DecisionId, Timestamp};
use tollgate_telemetry::Record;

use crate::catalog::{Access, Catalog, Segment, SegmentLookup};
use crate::codec::{self, LimitDefinition, RecordHead};
use crate::error::RecordLogError;
use crate::frame::{self, Kind};
use crate::history::{History, Minutes};
use crate::query::{Cursor, RecordPage, RecordQuery};
use crate::segment::{Frames, HEAD_BYTES, index_path, log_path};
use crate::settings::RecordLogSettings;
use crate::status::RecordLogStatus;

/// The bytes that are searched for one page: a fraction of a second.
const MAX_SEARCHED_BYTES: u64 = 32 << 20;

/// A decision log that can be read. Clones share their state.
#[derive(Clone)]
pub struct RecordLog(pub(crate) Arc<Shared>);

/// The state that the writer and readers share.
pub(crate) struct Shared {
    pub(crate) settings: RecordLogSettings,
    pub(crate) catalog: Mutex<Catalog>,
    pub(crate) minutes: Mutex<Minutes>,
    /// The space that the files other than segments take.
    pub(crate) other_space: AtomicU64,
    pub(crate) written: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) failure: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn new(settings: RecordLogSettings) -> Self {
        Self {
            settings,
            catalog: Mutex::default(),
            minutes: Mutex::default(),
            other_space: AtomicU64::new(0),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            failure: Mutex::default(),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.settings.dir
    }

    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        locked(&self.catalog)
    }

    pub(crate) fn minutes(&self) -> MutexGuard<'_, Minutes> {
        locked(&self.minutes)
    }
}

/// Locks a mutex. The data behind it is consistent between any two statements, so a poisoned one is
/// usable.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stretch of a segment that is searched.
struct Stretch {
    number: u64,
    /// Offsets of frames, the first of each block.
    syncs: Vec<u32>,
    end: u64,
}

impl RecordLog {
    /// Opens a directory to read it, while another process may write to it. Records that are written
    /// later are not seen.
    pub fn read_dir(dir: &Path) -> Result<Self, RecordLogError> {
        let shared = Shared::new(RecordLogSettings::new(dir));
        *locked(&shared.catalog) = Catalog::open(dir, Access::Read)?;
        *locked(&shared.minutes) = Minutes::read(dir).map_err(RecordLogError::of(dir))?;
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the record of a decision. Reads files: call it where blocking is permitted.
    pub fn find(&self, id: DecisionId) -> Option<Record> {
        let shared = &*self.0;
        let (active, sealed) = {
            let catalog = shared.catalog();
            let active = catalog.active.as_ref().and_then(|it| Some((it.number, it.map.find(id.0)?)));
            // A copy only if it is needed.
            (active, if active.is_some() { Vec::new() } else { catalog.sealed.clone() })
        };
        if let Some((number, offset)) = active {
            return self.record_at(number, offset.into(), id).ok().flatten();
        }
        sealed.iter().rev().find_map(|segment| {
            let path = index_path(shared.dir(), segment.number);
            let offset = match &segment.lookup {
                SegmentLookup::Damaged => None,
                SegmentLookup::Map(map) => map.find(id.0),
                SegmentLookup::Index(head) => match File::open(&path).and_then(|file| head.find(&file, id.0))
                {
                    Ok(offset) => offset,
                    Err(error) => {
                        report(segment, &path, &error);
                        None
                    }
                },
            }?;
            self.record_at(segment.number, offset.into(), id).unwrap_or_else(|error| {
                report(segment, &log_path(shared.dir(), segment.number), &error);
                None
            })
        })
    }

    /// Reads the record at an offset. `None` if it is that of another decision.
    fn record_at(&self, number: u64, offset: u64, id: DecisionId) -> io::Result<Option<Record>> {
        let file = File::open(log_path(self.0.dir(), number))?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a record is damaged");
        let bytes = frame::read_at(&file, offset)?.ok_or_else(damaged)?;
        let Some((Kind::Record, payload, _)) = frame::parse(&bytes) else { return Err(damaged()) };
        let define = |offset| definition_at(&file, offset).ok().flatten();
        let record = codec::record(payload, offset, define).map_err(|_| damaged())?;
        Ok(Some(record).filter(|record| record.id == id))
    }

    /// Returns a page of the records that match, the latest first. Reads files: call it where blocking
    /// is permitted.
    pub fn search(&self, query: &RecordQuery) -> RecordPage {
        let (mut page, mut searched) = (RecordPage::default(), 0);
        let most = query.most.max(1);
        for mut stretch in self.stretches(query) {
            let Ok(file) = File::open(log_path(self.0.dir(), stretch.number)) else { continue };
            let mut definitions = HashMap::new();
            while let Some(start) = stretch.syncs.pop() {
                let block = u64::from(start)..stretch.end;
                searched += block.end - block.start;
                stretch.end = start.into();
                let mut found = matching(&file, block.clone(), query, &mut definitions);
                while let Some((offset, record)) = found.pop_back() {
                    page.records.push(record);
                    if page.records.len() == most {
                        page.next = Some(Cursor { segment: stretch.number, offset });
                        return page;
                    }
                }
                if searched >= MAX_SEARCHED_BYTES {
                    page.next = Some(Cursor { segment: stretch.number, offset: block.start });
                    return page;
                }
            }
        }
        page
    }

    /// Returns the segments that may have matches, the latest first.
    fn stretches(&self, query: &RecordQuery) -> impl Iterator<Item = Stretch> {
        let (active, mut sealed) = {
            let catalog = self.0.catalog();
            let active = catalog.active.as_ref();
            let active = active
                .filter(|it| query.may_match(it.map.oldest, it.map.newest))
                .map(|it| Stretch { number: it.number, syncs: it.map.syncs.clone(), end: it.map.bytes });
            (active, catalog.sealed.clone())
        };
        sealed.retain(|it| query.may_match(it.oldest, it.newest));
        let (before, dir) = (query.before, self.0.dir().to_owned());
        let is_before = move |it: &Arc<Segment>| before.is_none_or(|before| it.number <= before.segment);
        let sealed = sealed.into_iter().rev().filter(is_before);
        let sealed = sealed.filter_map(move |segment| {
            let syncs = syncs_of(&dir, &segment)?;
            Some(Stretch { number: segment.number, syncs, end: segment.bytes })
        });
        active.into_iter().chain(sealed).filter_map(move |mut stretch| {
            match before {
                Some(before) if stretch.number > before.segment => return None,
                Some(before) if stretch.number == before.segment => {
                    stretch.end = stretch.end.min(before.offset);
                    stretch.syncs.retain(|it| u64::from(*it) < before.offset);
                }
                _ => {}
            }
            Some(stretch)
        })
    }

    /// Returns the counts of a stretch of time, in at most `max_steps` steps.
    pub fn history(&self, times: RangeInclusive<Timestamp>, max_steps: usize) -> History {
        self.0.minutes().between(times, max_steps)
    }

    /// Returns the time since which decisions are counted.
    pub fn history_since(&self) -> Option<Timestamp> {
        self.0.minutes().first()
    }

    /// Returns the settings.
    pub fn settings(&self) -> &RecordLogSettings {
        &self.0.settings
    }

    /// Returns the state of the log.
    pub fn status(&self) -> RecordLogStatus {
        let shared = &*self.0;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let failure = locked(&shared.failure).clone();
        let catalog = shared.catalog();
        RecordLogStatus {
            written: count(&shared.written),
            dropped: count(&shared.dropped),
            failures: count(&shared.failures),
            failure,
            records: catalog.records(),
            segments: catalog.sealed.len() as u64 + u64::from(catalog.active.is_some()),
            bytes: catalog.space() + count(&shared.other_space),
            oldest: catalog.oldest(),
        }
    }
}

/// Returns the last matching records of a block with their offsets, in the order of writing.
fn matching(
    file: &File,
    block: std::ops::Range<u64>,
    query: &RecordQuery,
    definitions: &mut HashMap<u64, LimitDefinition>,
) -> VecDeque<(u64, Record)> {
    let mut found = VecDeque::new();
    let mut frames = Frames::new(file, block.start, block.end);
    // An error ends the block: the segment was deleted or is damaged here.
    while let Ok(Some((kind, payload, offset))) = frames.next() {
        if kind == Kind::Definition {
            continue;
        }
        if !RecordHead::of(payload).is_ok_and(|head| query.covers(head.at)) {
            continue;
        }
        let define = |offset: u64| {
            if let Some(known) = definitions.get(&offset) {
                return Some(known.clone());
            }
            let read = definition_at(file, offset).ok().flatten()?;
            definitions.insert(offset, read.clone());
            Some(read)
        };
        if let Ok(record) = codec::record(payload, offset, define)
            && query.matches(&record)
        {
            if found.len() == query.most.max(1) {
                found.pop_front();
            }
            found.push_back((offset, record));
        }
    }
    found
}

/// Reads the definition at an offset. `None` if there is none.
fn definition_at(file: &File, offset: u64) -> io::Result<Option<LimitDefinition>> {
    if offset < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let bytes = frame::read_at(file, offset)?;
    Ok(bytes.as_deref().and_then(frame::parse).and_then(|(kind, payload, _)| match kind {
        Kind::Definition => codec::definition(payload).ok(),
        Kind::Record => None,
    }))
}

/// Returns the sync points of a segment.
fn syncs_of(dir: &Path, segment: &Segment) -> Option<Vec<u32>> {
    match &segment.lookup {
        SegmentLookup::Damaged => None,
        SegmentLookup::Map(map) => Some(map.syncs.clone()),
        SegmentLookup::Index(head) => {
            let path = index_path(dir, segment.number);
            match File::open(&path).and_then(|file| head.syncs(&file)) {
                // Without sync points, the segment is searched as one block.
                Ok(syncs) => Some(syncs.unwrap_or_else(|| vec![u32::try_from(HEAD_BYTES).unwrap_or(0)])),
                Err(error) => {
                    report(segment, &path, &error);
                    None
                }
            }
        }
    }
}

/// Reports an error, unless the segment was deleted meanwhile.
fn report(segment: &Segment, path: &Path, error: &io::Error) {
    if error.kind() != io::ErrorKind::NotFound {
        segment.report(path, error);
    }
}
