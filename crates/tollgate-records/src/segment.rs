//! Segments: files of frames, appended to by one thread and read by any.
//!
//! A segment begins with a head of 32 bytes: a magic word, the version, the number of the segment and a
//! checksum. [`SegmentMap`] is the part of a segment that is in memory while it is written, and becomes
//! its index when it is sealed.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use tollgate::Timestamp;

use crate::codec::RecordHead;
use crate::frame::{self, Kind, read_up_to};
use crate::index::Content;

const MAGIC: &[u8; 8] = b"TGRECLOG";
const VERSION: u32 = 1;
/// The length of the head of a segment.
pub(crate) const HEAD_BYTES: usize = 32;
/// The distance of two sync points, at least.
const SYNC_BYTES: u64 = 64 << 10;
/// The number of bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// The path of a segment.
pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.log"))
}

/// The path of the index of a segment.
pub(crate) fn index_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016}.idx"))
}

/// Options for files that only this user may read. Does not follow links.
pub(crate) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Returns the head of a segment.
pub(crate) fn head(number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&number.to_le_bytes());
    let sum = crc32fast::hash(&head[..HEAD_BYTES - 4]);
    head[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The records of a segment: where they are, and from when.
#[derive(Clone, Debug)]
pub(crate) struct SegmentMap {
    /// The length of the valid part of the segment.
    pub(crate) bytes: u64,
    /// The ids of the records, in the order of writing, and their offsets.
    pub(crate) ids: Vec<u64>,
    pub(crate) offsets: Vec<u32>,
    /// Offsets of frames, about one per [`SYNC_BYTES`].
    pub(crate) syncs: Vec<u32>,
    pub(crate) oldest: Timestamp,
    pub(crate) newest: Timestamp,
}

impl SegmentMap {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: HEAD_BYTES as u64,
            ids: Vec::new(),
            offsets: Vec::new(),
            syncs: Vec::new(),
            oldest: Timestamp::from_micros(u64::MAX),
            newest: Timestamp::EPOCH,
        }
    }

    /// Adds a record.
    pub(crate) fn add(&mut self, head: RecordHead, offset: u64) {
        // A segment is smaller than 4 GiB.
        let Ok(offset) = u32::try_from(offset) else { return };
        self.ids.push(head.id);
        self.offsets.push(offset);
        if self.syncs.last().is_none_or(|last| u64::from(offset - last) >= SYNC_BYTES) {
            self.syncs.push(offset);
        }
        self.oldest = self.oldest.min(head.at);
        self.newest = self.newest.max(head.at);
    }

    /// Returns the offset of the record of a decision.
    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        // Recent decisions are asked for most.
        let at = self.ids.iter().rposition(|known| *known == id)?;
        self.offsets.get(at).copied()
    }

    /// Returns the size of the index that the segment will have.
    pub(crate) fn index_size(&self) -> u64 {
        crate::index::size(self.ids.len() as u64, self.syncs.len() as u64)
    }

    /// Returns the content of the index.
    pub(crate) fn content(&self) -> Content<'_> {
        Content {
            ids: &self.ids,
            offsets: &self.offsets,
            syncs: &self.syncs,
            segment_bytes: self.bytes,
            oldest: self.oldest,
            newest: self.newest,
        }
    }

    /// Reads a segment up to its end or to the first damaged frame. `None` if its head is damaged, or
    /// is that of another segment.
    pub(crate) fn read(file: &File, number: u64) -> io::Result<Option<Self>> {
        let mut first = [0; HEAD_BYTES];
        if read_up_to(file, &mut first, 0)? < HEAD_BYTES || first != head(number) {
            return Ok(None);
        }
        let mut map = Self::new();
        let mut frames = Frames::new(file, map.bytes, u64::MAX);
        while let Some((kind, payload, offset)) = frames.next()? {
            match (kind, RecordHead::of(payload)) {
                (Kind::Record, Ok(head)) => map.add(head, offset),
                (Kind::Record, Err(_)) => break,
                (Kind::Definition, _) => {}
            }
            map.bytes = frames.position();
        }
        Ok(Some(map))
    }
}

/// Reads frames one after the other.
pub(crate) struct Frames<'f> {
    file: &'f File,
    buffer: Vec<u8>,
    /// The offset of the buffer in the file, and of the next frame in the buffer.
    start: u64,
    at: usize,
    end: u64,
}

impl<'f> Frames<'f> {
    /// Reads the frames that begin in a range of offsets.
    pub(crate) const fn new(file: &'f File, start: u64, end: u64) -> Self {
        Self { file, buffer: Vec::new(), start, at: 0, end }
    }

    /// Returns the offset of the next frame.
    pub(crate) const fn position(&self) -> u64 {
        self.start + self.at as u64
    }

    /// Returns the next frame and its offset; `None` at the end, or if it is cut or damaged.
    pub(crate) fn next(&mut self) -> io::Result<Option<(Kind, &[u8], u64)>> {
        let offset = self.position();
        if offset >= self.end {
            return Ok(None);
        }
        let mut found = self.parse();
        if found.is_none() {
            self.refill()?;
            found = self.parse();
        }
        let Some((kind, length)) = found else { return Ok(None) };
        let payload = &self.buffer[self.at + frame::HEAD_BYTES..self.at + length];
        self.at += length;
        Ok(Some((kind, payload, offset)))
    }

    fn parse(&self) -> Option<(Kind, usize)> {
        frame::parse(&self.buffer[self.at..]).map(|(kind, _, length)| (kind, length))
    }

    /// Reads on, so that the buffer has the whole next frame.
    fn refill(&mut self) -> io::Result<()> {
        let offset = self.position();
        self.buffer.drain(..self.at);
        (self.start, self.at) = (offset, 0);
        let kept = self.buffer.len();
        let wanted = (frame::HEAD_BYTES + frame::MAX_PAYLOAD_BYTES).max(READ_BYTES);
        let wanted = wanted.min(usize::try_from(self.end - offset).unwrap_or(usize::MAX)).max(kept);
        self.buffer.resize(wanted, 0);
        let more = read_up_to(self.file, &mut self.buffer[kept..], offset + kept as u64)?;
        self.buffer.truncate(kept + more);
        Ok(())
    }
}
