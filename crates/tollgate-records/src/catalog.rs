//! The segments of a directory, and the rules by which they are opened and deleted.
//!
//! Opening reads the head of each index. A segment without a valid index was being written when its
//! process ended: it is read, and what a crash has cut off its end is removed. A segment that cannot be
//! read is reported, skipped, and deleted in its turn.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tollgate::{Span, Timestamp};

use crate::error::{RecordLogError, reason};
use crate::index::{self, IndexHead};
use crate::segment::{HEAD_BYTES, SegmentMap, index_path, log_path};

/// The unit in which file systems allocate space.
const BLOCK_BYTES: u64 = 4096;

/// Returns the space that a file takes.
pub(crate) const fn on_disk(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// The way in which the records of a segment are found.
#[derive(Debug)]
pub(crate) enum SegmentLookup {
    /// By its index.
    Index(IndexHead),
    /// In memory, because it has no index.
    Map(SegmentMap),
    /// Not at all.
    Damaged,
}

/// A segment that is not written to.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    pub(crate) lookup: SegmentLookup,
    pub(crate) oldest: Timestamp,
    pub(crate) newest: Timestamp,
    pub(crate) records: u64,
    /// The length of its valid part.
    pub(crate) bytes: u64,
    /// The space that its files take.
    pub(crate) space: u64,
    /// The time from which its age counts, in microseconds: that of its last record, unless the clock
    /// was ahead then.
    ages_from: AtomicU64,
    /// Whether damage was reported.
    reported: AtomicBool,
}

impl Segment {
    fn new(number: u64, lookup: SegmentLookup, times: (Timestamp, Timestamp), space: u64) -> Self {
        let (records, bytes) = match &lookup {
            SegmentLookup::Index(head) => (head.records, head.segment_bytes),
            SegmentLookup::Map(map) => (map.ids.len() as u64, map.bytes),
            SegmentLookup::Damaged => (0, 0),
        };
        let (oldest, newest) = times;
        let ages_from = AtomicU64::new(newest.as_micros());
        let reported = AtomicBool::new(false);
        Self { number, lookup, oldest, newest, records, bytes, space, ages_from, reported }
    }

    /// Whether all records are older than `age`. Records from the future are as old as if they were
    /// written now.
    pub(crate) fn is_older(&self, age: Span, now: Timestamp) -> bool {
        // Relaxed: only the thread that writes calls this.
        let before = self.ages_from.fetch_min(now.as_micros(), Ordering::Relaxed);
        now.since(Timestamp::from_micros(before.min(now.as_micros()))) >= age
    }

    /// Reports damage of a file, once for each segment.
    pub(crate) fn report(&self, path: &Path, error: &io::Error) {
        if !self.reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "the decision log cannot read {}: {}; its other files are used",
                path.display(),
                reason(error)
            );
        }
    }
}

/// The segment that is being written.
#[derive(Debug)]
pub(crate) struct ActiveSegment {
    pub(crate) number: u64,
    pub(crate) map: SegmentMap,
}

/// The segments of a directory.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    /// In the order of writing.
    pub(crate) sealed: Vec<Arc<Segment>>,
    pub(crate) active: Option<ActiveSegment>,
}

/// Whether a directory is opened to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Completes missing indexes and removes what a crash has left.
    Write,
    /// Changes nothing.
    Read,
}

impl Catalog {
    /// Reads the segments of a directory.
    pub(crate) fn open(dir: &Path, access: Access) -> Result<Self, RecordLogError> {
        let numbers = list(dir, access).map_err(RecordLogError::of(dir))?;
        let mut catalog = Self::default();
        let last = numbers.last().copied();
        for number in numbers {
            let path = log_path(dir, number);
            match catalog.add(dir, number, Some(number) == last, access) {
                Ok(()) => {}
                Err(error) if access == Access::Write && is_about_the_disk(&error) => {
                    return Err(RecordLogError::Io { path, error });
                }
                Err(error) => catalog.skip(&path, number, &error),
            }
        }
        Ok(catalog)
    }

    fn add(&mut self, dir: &Path, number: u64, is_last: bool, access: Access) -> io::Result<()> {
        let (path, index) = (log_path(dir, number), index_path(dir, number));
        let length = fs::metadata(&path)?.len();
        if let Some((head, index_bytes)) = read_index(&index, length)? {
            let times = (head.oldest, head.newest);
            let space = on_disk(length) + on_disk(index_bytes);
            self.push(Segment::new(number, SegmentLookup::Index(head), times, space));
            return Ok(());
        }
        let file = File::open(&path)?;
        let map = match SegmentMap::read(&file, number)? {
            Some(map) => map,
            None if length < HEAD_BYTES as u64 && is_last => {
                // The process ended before it had written the head.
                if access == Access::Write {
                    fs::remove_file(&path)?;
                }
                return Ok(());
            }
            None => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "it does not begin as a segment does",
                ));
            }
        };
        if is_last && access == Access::Write {
            if length > map.bytes {
                let cut = length - map.bytes;
                tracing::info!(
                    "the decision log was not closed: {cut} bytes of an incomplete record are cut off {}",
                    path.display()
                );
                let file = crate::segment::private().open(&path)?;
                file.set_len(map.bytes)?;
                file.sync_all()?;
            }
            self.active = Some(ActiveSegment { number, map });
            return Ok(());
        }
        if length > map.bytes && !is_last {
            tracing::warn!(
                "the decision log is damaged in {}, from byte {}: the records after it are skipped",
                path.display(),
                map.bytes
            );
        }
        if map.ids.is_empty() && access == Access::Read {
            return Ok(());
        }
        let times = (map.oldest, map.newest);
        if access == Access::Read {
            self.push(Segment::new(number, SegmentLookup::Map(map), times, on_disk(length)));
            return Ok(());
        }
        index::write(&index, &map.content())?;
        let space = on_disk(length) + on_disk(map.index_size());
        let head = IndexHead::read(&File::open(&index)?)?;
        let lookup = head.map_or(SegmentLookup::Map(map), SegmentLookup::Index);
        self.push(Segment::new(number, lookup, times, space));
        Ok(())
    }

    fn push(&mut self, segment: Segment) {
        self.sealed.push(Arc::new(segment));
    }

    /// Keeps a segment that cannot be read, so that its space is counted and it is deleted in its turn.
    fn skip(&mut self, path: &Path, number: u64, error: &io::Error) {
        tracing::warn!("the decision log skips {}: {}", path.display(), reason(error));
        let metadata = fs::metadata(path).ok();
        let written = metadata.as_ref().and_then(|it| it.modified().ok());
        let written = written.and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok());
        let micros = written.and_then(|it| u64::try_from(it.as_micros()).ok()).unwrap_or(0);
        let at = Timestamp::from_micros(micros);
        let space = on_disk(metadata.map_or(0, |it| it.len()));
        self.push(Segment::new(number, SegmentLookup::Damaged, (at, at), space));
    }

    /// Returns the space that all segments take, with the index that the last one will have.
    pub(crate) fn space(&self) -> u64 {
        let sealed: u64 = self.sealed.iter().map(|it| it.space).sum();
        sealed + self.active.as_ref().map_or(0, |it| on_disk(it.map.bytes) + on_disk(it.map.index_size()))
    }

    /// Returns the number of records.
    pub(crate) fn records(&self) -> u64 {
        let active = self.active.as_ref().map_or(0, |it| it.map.ids.len() as u64);
        self.sealed.iter().map(|it| it.records).sum::<u64>() + active
    }

    /// Returns the time of the oldest record.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let sealed = self.sealed.iter().filter(|it| it.records > 0).map(|it| it.oldest);
        let active = self.active.iter().filter(|it| !it.map.ids.is_empty()).map(|it| it.map.oldest);
        sealed.chain(active).min()
    }

    /// Replaces the active segment by a sealed one, whose index was written.
    pub(crate) fn seal(&mut self, head: Option<IndexHead>) {
        let Some(ActiveSegment { number, map }) = self.active.take() else { return };
        let (times, space) = ((map.oldest, map.newest), on_disk(map.bytes) + on_disk(map.index_size()));
        let lookup = head.map_or(SegmentLookup::Map(map), SegmentLookup::Index);
        self.push(Segment::new(number, lookup, times, space));
    }

    /// Returns the number of the next segment.
    pub(crate) fn next_number(&self) -> u64 {
        let active = self.active.as_ref().map(|it| it.number);
        self.sealed.iter().map(|it| it.number).chain(active).max().map_or(1, |last| last + 1)
    }
}

/// Deletes the files of a segment.
pub(crate) fn delete(dir: &Path, number: u64) -> Result<(), RecordLogError> {
    // The index last: without the segment it is removed at the next start.
    for path in [log_path(dir, number), index_path(dir, number)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(RecordLogError::Io { path, error });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether an error is about the file system as a whole, and not about one damaged file.
fn is_about_the_disk(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
    )
}

/// Reads the head of an index, and its length. `None` if there is no valid index for the segment.
fn read_index(path: &PathBuf, segment_bytes: u64) -> io::Result<Option<(IndexHead, u64)>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let head = IndexHead::read(&file)?.filter(|head| head.segment_bytes <= segment_bytes);
    head.map(|head| Ok((head, file.metadata()?.len()))).transpose()
}

/// Returns the numbers of the segments in a directory, in order.
fn list(dir: &Path, access: Access) -> io::Result<Vec<u64>> {
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|it| it.to_str()).and_then(|it| it.parse::<u64>().ok());
        match (stem, path.extension().and_then(|it| it.to_str())) {
            (Some(number), Some("log")) if path == log_path(dir, number) => numbers.push(number),
            (Some(number), Some("idx" | "new")) => others.push((number, path)),
            _ => {}
        }
    }
    numbers.sort_unstable();
    if access == Access::Write {
        for (number, path) in others {
            // Left by a crash: an incomplete index, or the index of a deleted segment.
            if path.extension().is_some_and(|it| it == "new") || numbers.binary_search(&number).is_err() {
                fs::remove_file(path)?;
            }
        }
    }
    Ok(numbers)
}
