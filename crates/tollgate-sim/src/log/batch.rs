//! Packed requests: the text of all requests in one string, all other values in fixed-size records.
//!
//! Invariant: each record owns the text and the marks between the end of the record before it and its own end.

use std::net::IpAddr;

use super::address::Client;
use super::text;
use crate::Entry;
use crate::entry::Slot;

/// The most requests and bytes of text of a batch. It is small enough to be in the cache when the receiving thread
/// reads it.
const MAX_BATCH: (usize, usize) = (1_024, 256 << 10);

/// End and field of a text.
#[derive(Clone, Copy, Debug)]
struct Mark {
    slot: Slot,
    end: u32,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    at: u64,
    cost: Option<u64>,
    client: Option<IpAddr>,
    status: Option<u16>,
    text_end: u32,
    marks_end: u32,
}

/// The values of a line that are not text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) at: u64,
    pub(super) client: Client,
    pub(super) cost: Option<u64>,
    pub(super) status: Option<u16>,
}

/// A batch of requests in the order of their lines.
#[derive(Debug, Default)]
pub(super) struct Batch {
    text: String,
    marks: Vec<Mark>,
    records: Vec<Record>,
    /// Requests whose client is a host name.
    named: u64,
}

impl Batch {
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= MAX_BATCH.0 || self.text.len() >= MAX_BATCH.1
    }

    pub(super) fn named(&self) -> u64 {
        self.named
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.marks.clear();
        self.records.clear();
        self.named = 0;
    }

    /// Adds a text to the unfinished request.
    pub(super) fn put(&mut self, slot: Slot, bytes: &[u8]) {
        text::append(&mut self.text, bytes);
        self.mark(slot);
    }

    /// Adds a header to the unfinished request. The name must be in lower case.
    pub(super) fn put_header(&mut self, name: &str, value: &[u8]) {
        self.text.push_str(name);
        self.mark(Slot::HeaderName);
        self.put(Slot::HeaderValue, value);
    }

    fn mark(&mut self, slot: Slot) {
        // A batch ends soon after 256 KiB of text, and lines are at most 1 MiB long.
        self.marks.push(Mark { slot, end: small(self.text.len()) });
    }

    /// Completes the unfinished request.
    pub(super) fn finish(&mut self, facts: Facts) {
        self.named += u64::from(matches!(facts.client, Client::Name(_)));
        self.records.push(Record {
            at: facts.at,
            cost: facts.cost,
            client: facts.client.address(),
            status: facts.status,
            text_end: small(self.text.len()),
            marks_end: small(self.marks.len()),
        });
    }

    /// Discards the unfinished request.
    pub(super) fn abandon(&mut self) {
        let (text, marks) = self.start(self.records.len());
        self.text.truncate(text);
        self.marks.truncate(marks);
    }

    /// Returns the time of a request, in microseconds since 1970.
    pub(super) fn at(&self, index: usize) -> u64 {
        self.records[index].at
    }

    /// Returns the memory that a request takes in the batch.
    pub(super) fn bytes(&self, index: usize) -> usize {
        let ((text, marks), record) = (self.start(index), &self.records[index]);
        (record.text_end as usize - text)
            + (record.marks_end as usize - marks) * size_of::<Mark>()
            + size_of::<Record>()
    }

    /// Unpacks a request.
    pub(super) fn load(&self, index: usize, entry: &mut Entry) {
        let ((mut start, marks), record) = (self.start(index), &self.records[index]);
        entry.clear();
        (entry.at, entry.client) = (record.at, record.client);
        (entry.cost, entry.status) = (record.cost, record.status);
        for mark in &self.marks[marks..record.marks_end as usize] {
            entry.put(mark.slot, &self.text[start..mark.end as usize]);
            start = mark.end as usize;
        }
    }

    /// Appends a request of another batch.
    pub(super) fn copy(&mut self, from: &Self, index: usize) {
        let ((text, marks), record) = (from.start(index), &from.records[index]);
        let base = self.text.len();
        self.text.push_str(&from.text[text..record.text_end as usize]);
        let moved = |mark: &Mark| Mark { end: small(mark.end as usize - text + base), ..*mark };
        self.marks.extend(from.marks[marks..record.marks_end as usize].iter().map(moved));
        let (text_end, marks_end) = (small(self.text.len()), small(self.marks.len()));
        self.records.push(Record { text_end, marks_end, ..*record });
    }

    /// Returns the start of a record's text and marks.
    fn start(&self, index: usize) -> (usize, usize) {
        match index.checked_sub(1).and_then(|before| self.records.get(before)) {
            Some(before) => (before.text_end as usize, before.marks_end as usize),
            None => (0, 0),
        }
    }
}

fn small(length: usize) -> u32 {
    u32::try_from(length).expect("a batch ends long before 4 GiB")
}
