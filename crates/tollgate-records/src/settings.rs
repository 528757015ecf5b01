//! The settings of the decision log, and the sizes that follow from them.

use std::path::PathBuf;

use tollgate::Span;

/// The number of segments that a full log has, which is the share that one deletion frees.
const SEGMENTS: u64 = 32;
/// The largest segment. The index of the segment being written is in memory: about 12 bytes per record.
const MAX_SEGMENT_BYTES: u64 = 128 << 20;

/// The settings of a decision log.
///
/// ```
/// # use tollgate::Span;
/// # use tollgate_records::RecordLogSettings;
/// let settings = RecordLogSettings::new("/var/lib/tollgate/records");
/// assert_eq!((settings.keep, settings.max_bytes), (Span::from_days(7), 2 << 30));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLogSettings {
    /// The directory, which belongs to one process.
    pub dir: PathBuf,
    /// The age at which records are deleted. A segment is deleted as a whole, so some of its records
    /// are deleted up to 1/32 of this time earlier.
    pub keep: Span,
    /// The maximum size of all files together, in bytes.
    pub max_bytes: u64,
}

impl RecordLogSettings {
    /// The smallest `max_bytes`.
    pub const MIN_BYTES: u64 = 16 << 20;

    /// Creates settings that keep records for seven days in at most 2 GiB.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), keep: Span::from_days(7), max_bytes: 2 << 30 }
    }

    /// Returns the size at which a segment is sealed.
    pub(crate) fn segment_bytes(&self) -> u64 {
        (self.max_bytes / SEGMENTS).min(MAX_SEGMENT_BYTES)
    }

    /// Returns the age at which a segment is sealed.
    pub(crate) fn segment_span(&self) -> Span {
        Span::from_micros(self.keep.as_micros() / SEGMENTS)
    }
}
