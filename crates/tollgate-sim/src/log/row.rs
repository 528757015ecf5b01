//! The fields of one line of JSON or CSV.

use super::address::Client;
use super::batch::{Batch, Facts};
use super::fields::{Field, Fields};
use super::target::{put_host, put_request, put_target};
use super::time::Times;
use crate::entry::Slot;

/// A name to look for, the property that it supplies, and its rank among the names of that property.
#[derive(Clone, Debug)]
pub(super) struct FieldName {
    pub(super) name: String,
    cell: usize,
    rank: usize,
}

/// The text of a property, and the rank of the name that it came from.
#[derive(Clone, Copy, Debug)]
struct Cell {
    rank: usize,
    start: usize,
    end: usize,
}

/// The properties of one line. It is reused for every line.
#[derive(Debug)]
pub(super) struct Row {
    fields: Vec<Field>,
    cells: Vec<Option<Cell>>,
    text: Vec<u8>,
}

impl Row {
    /// Creates an empty row, and the names to look for.
    pub(super) fn new(fields: &Fields) -> (Self, Vec<FieldName>) {
        let all = fields.all();
        let wanted = all.iter().enumerate().flat_map(|(cell, (_, names))| {
            names.iter().enumerate().map(move |(rank, name)| FieldName { name: name.clone(), cell, rank })
        });
        let wanted = wanted.collect();
        let fields: Vec<Field> = all.into_iter().map(|(field, _)| field).collect();
        (Self { cells: vec![None; fields.len()], fields, text: Vec::new() }, wanted)
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(None);
        self.text.clear();
    }

    /// Stores the value of a name. An empty value does not replace a value of another name.
    pub(super) fn offer(&mut self, wanted: &FieldName, value: &[u8]) {
        let value = value.trim_ascii();
        if value.is_empty() || value == b"-" {
            return;
        }
        let cell = &mut self.cells[wanted.cell];
        if cell.is_none_or(|it| wanted.rank < it.rank) {
            let start = self.text.len();
            self.text.extend_from_slice(value);
            *cell = Some(Cell { rank: wanted.rank, start, end: self.text.len() });
        }
    }

    /// Whether a name supplies the time.
    pub(super) fn is_time(&self, wanted: &FieldName) -> bool {
        self.fields[wanted.cell] == Field::Time
    }

    /// Whether the line has a property other than the time.
    pub(super) fn says_something(&self) -> bool {
        self.fields.iter().zip(&self.cells).any(|(field, cell)| *field != Field::Time && cell.is_some())
    }

    /// Adds the request to a batch. Returns `false` if the line has no time and is therefore not a request.
    pub(super) fn finish(&self, times: &mut Times, batch: &mut Batch) -> bool {
        let Some(at) = self.get(&Field::Time).and_then(|text| times.read(text)) else { return false };
        if let Some(request) = self.get(&Field::Request) {
            put_request(batch, request);
        } else {
            if let Some(method) = self.get(&Field::Method) {
                batch.put(Slot::Method, method);
            }
            if let Some(path) = self.get(&Field::Path) {
                put_target(batch, path);
            }
        }
        if let Some(query) = self.get(&Field::Query) {
            batch.put(Slot::Query, query.strip_prefix(b"?").unwrap_or(query));
        }
        if let Some(host) = self.get(&Field::Host) {
            put_host(batch, host);
        }
        let who = [
            (Field::User, Slot::User),
            (Field::ApiKey, Slot::ApiKey),
            (Field::Tenant, Slot::Tenant),
            (Field::Plan, Slot::Plan),
        ];
        for (field, slot) in who {
            if let Some(value) = self.get(&field) {
                batch.put(slot, value);
            }
        }
        for (field, cell) in self.fields.iter().zip(&self.cells) {
            if let (Field::Header(name), Some(cell)) = (field, cell) {
                batch.put_header(name, &self.text[cell.start..cell.end]);
            }
        }
        let client = self.get(&Field::Ip).map_or(Client::Unknown, Client::read);
        let cost = self.get(&Field::Cost).and_then(rounded_up);
        let status = self.get(&Field::Status).and_then(rounded_up).and_then(|it| it.try_into().ok());
        batch.finish(Facts { at, client, cost, status });
        true
    }

    fn get(&self, field: &Field) -> Option<&[u8]> {
        let cell = self.fields.iter().position(|it| it == field).and_then(|at| self.cells[at])?;
        Some(&self.text[cell.start..cell.end])
    }
}

/// Parses a non-negative number and rounds it up to whole units.
fn rounded_up(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    whole.checked_add(u64::from(fraction.bytes().any(|byte| byte != b'0')))
}
