//! Access logs: lines in one of several formats, from readers, in the order of their times.
//!
//! For users: [`Log::open`] takes [`Input`]s (a name and a reader each) and how to read them ([`ReadOptions`]), and is
//! [`Requests`]. [`OrderedRequests`] is the same for requests at hand, for tests. The command line opens files, pipes and the
//! progress bar: `tollgate-cli`, `replay/input.rs`.
//!
//! The walk of a line: `source` (plain, gzip or zstd), `lines` (cut, bounded), `detect` (which format), `combined`,
//! `json` or `csv` (what it says), `batch` (packed); all that on a thread for each input. Then `sorter` (put in order)
//! and `merge` (several inputs), on the thread of whoever asks.
//!
//! A client that is no address (Apache can log names) is given one that no client has, made of the name, in
//! `fd00::/8`: so `by: ip` tells names apart. Bytes that are no UTF-8 become `%FF` and the like.
//!
//! Not here: files, compression by name, clocks.
//!
//! Invariant: requests come in the order of their times, those of one time in the order of inputs, then of lines, as
//! far as no line is more than [`ReadOptions::reorder`] lines late. Held by `sorter`'s and `merge`'s tests against a sort.

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

/// What was read so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lines, but for empty ones and the header of a CSV file.
    pub lines: u64,
    /// Of those, the ones that are no request in the log's format.
    pub skipped: u64,
    /// Requests that came so late that later ones had gone before; they count at the time of those.
    pub late: u64,
    /// Requests whose client is a name and no address.
    pub named: u64,
    /// Bytes of the files, compressed if they are: what a progress bar is drawn from.
    pub bytes: u64,
}

/// A line that is no request in the log's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedLine {
    /// Of which input.
    pub input: String,
    /// The number of the line, from one.
    pub line: u64,
    /// How it begins.
    pub text: String,
}

/// Requests in the order of their times.
pub trait Requests {
    /// Puts the next request into `entry`, whose buffers are used again. `false`: there are no more.
    ///
    /// An error names the input and says what to do; nothing comes after it.
    fn next(&mut self, entry: &mut Entry) -> io::Result<bool>;

    /// What was read so far. All of it, once there are no more.
    fn tally(&self) -> Tally;

    /// The first line that is no request, if there was one: what to show to whoever wonders why lines were skipped.
    fn first_skipped(&self) -> Option<&SkippedLine> {
        None
    }
}

/// Requests at hand, already in order.
#[derive(Debug)]
pub struct OrderedRequests {
    entries: std::vec::IntoIter<Entry>,
    given: u64,
}

impl OrderedRequests {
    /// These, as they come.
    pub fn new(entries: Vec<Entry>) -> Self {
        Self { entries: entries.into_iter(), given: 0 }
    }
}

impl Requests for OrderedRequests {
    fn next(&mut self, entry: &mut Entry) -> io::Result<bool> {
        let Some(next) = self.entries.next() else { return Ok(false) };
        *entry = next;
        self.given += 1;
        Ok(true)
    }

    fn tally(&self) -> Tally {
        Tally { lines: self.given, ..Tally::default() }
    }
}
