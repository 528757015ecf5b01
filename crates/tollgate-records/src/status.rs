//! The state of a decision log, for metrics and messages.

use tollgate::Timestamp;

/// The state of a decision log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordLogStatus {
    /// Records that were written since the start.
    pub written: u64,
    /// Records that were not written since the start: the queue was full, they were evicted before they
    /// were read, or the disk refused them.
    pub dropped: u64,
    /// Attempts to write that have failed.
    pub failures: u64,
    /// The reason why nothing is written at present.
    pub failure: Option<String>,
    /// The records in the log.
    pub records: u64,
    /// The segments in the log.
    pub segments: u64,
    /// The space that the log takes, in bytes.
    pub bytes: u64,
    /// The time of the oldest record.
    pub oldest: Option<Timestamp>,
}
