//! Reads access logs in several formats and yields their requests in the order of their times.
//!
//! [`Log::open`] takes [`Input`]s (a name and a reader each) and [`ReadOptions`], and implements [`Requests`].
//! The command line opens files and pipes and draws the progress bar: `tollgate-cli`, `replay/input.rs`.
//!
//! A line passes `source` (plain, gzip or zstd), `lines` (split, with a bounded length), `detect` (format),
//! `combined`, `json` or `csv` (fields) and `batch` (packing), on one thread per input. `sorter` (ordering) and
//! `merge` (several inputs) run on the thread of the caller.
//!
//! Apache can log host names instead of addresses. A host name is mapped to an address in `fd00::/8` that is derived
//! from the name, so that `by: ip` tells names apart. Bytes that are not UTF-8 become escapes such as `%FF`.
//!
//! Not here: files, choosing a compression by file name, clocks.
//!
//! Invariant: requests come in the order of their times; requests of the same time come in the order of inputs, then
//! of lines. It holds as long as no line is more than [`ReadOptions::reorder`] lines late. The tests of `sorter` and
//! `merge` compare with a sort.

mod address;
mod batch;
mod combined;
mod csv;
mod detect;
mod field_usage;
mod fields;
mod json;
mod lines;
mod merge;
mod names;
mod options;
mod reader;
mod row;
mod sorter;
mod source;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod time;

use std::io;

use crate::Entry;

pub use field_usage::FieldUsage;
pub use fields::{Field, FieldError, Fields};
pub use merge::Log;
pub use options::{Format, Input, ReadOptions, UnknownFormat, UnknownTimezone};

/// Counts of the lines and bytes that were read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines, without empty lines and the header of a CSV file.
    pub lines: u64,
    /// Lines that are not a request in the format of the log.
    pub skipped: u64,
    /// Requests that came after later ones had been yielded already; they count at the time of those.
    pub late: u64,
    /// Requests whose client is a host name instead of an address.
    pub named: u64,
    /// Bytes of the files, before decompression. A progress bar compares them with the file sizes.
    pub bytes: u64,
}

/// A line that is not a request in the format of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedLine {
    /// Name of the input.
    pub input: String,
    /// Line number, starting at 1.
    pub line: u64,
    /// Beginning of the line.
    pub text: String,
}

/// A source of requests in the order of their times.
pub trait Requests {
    /// Reads the next request into `entry`, whose buffers are reused. Returns `false` at the end.
    ///
    /// An error names the input and says what to do. No request follows an error.
    fn next(&mut self, entry: &mut Entry) -> io::Result<bool>;

    /// Returns the counts so far; they are complete after `next` returned `false`.
    fn tally(&self) -> Tally;

    /// Returns the first skipped line, so that messages can show an example.
    fn first_skipped(&self) -> Option<&SkippedLine> {
        None
    }
}
