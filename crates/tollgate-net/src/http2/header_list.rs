//! The decoded headers of a request, in one allocation that is used again.

/// The size that HTTP/2 adds to each header (RFC 9113, section 6.5.2).
const OVERHEAD_BYTES: usize = 32;

/// A block of headers of more than this many times the maximum size is not decoded further.
const MAX_EXCESS: usize = 8;

/// A list of headers, bounded in size and number.
#[derive(Debug, Default)]
pub(super) struct HeaderList {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The size as HTTP/2 defines it, with the headers that were left out.
    size: usize,
    max_size: usize,
    max_fields: usize,
    is_too_large: bool,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    name: usize,
    value: usize,
    end: usize,
}

impl HeaderList {
    /// Removes all headers, and sets the bounds of the next ones.
    pub(super) fn reset(&mut self, max_size: usize, max_fields: usize) {
        self.bytes.clear();
        self.fields.clear();
        *self = Self {
            bytes: std::mem::take(&mut self.bytes),
            fields: std::mem::take(&mut self.fields),
            size: 0,
            max_size,
            max_fields,
            is_too_large: false,
        };
    }

    /// Whether headers were left out because the list is full.
    pub(super) const fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Whether the headers, with those that were left out, are many times too large.
    pub(super) const fn is_excessive(&self) -> bool {
        self.size / MAX_EXCESS > self.max_size
    }

    /// Appends a header.
    pub(super) fn push(&mut self, name: &[u8], value: &[u8]) {
        if self.takes(name.len() + value.len()) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(name);
            self.bytes.extend_from_slice(value);
            self.add(start, start + name.len());
        }
    }

    /// The end of the bytes, where the next header is written.
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, to write a header at their end.
    pub(super) const fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The bytes from this place on.
    pub(super) fn tail(&self, start: usize) -> &[u8] {
        &self.bytes[start..]
    }

    /// Makes the bytes from `start` on a header, whose value starts at `value`.
    pub(super) fn commit(&mut self, start: usize, value: usize) {
        if self.takes(self.bytes.len() - start) {
            self.add(start, value);
        } else {
            self.bytes.truncate(start);
        }
    }

    fn takes(&mut self, bytes: usize) -> bool {
        self.size += bytes + OVERHEAD_BYTES;
        self.is_too_large |= self.size > self.max_size || self.fields.len() >= self.max_fields;
        !self.is_too_large
    }

    fn add(&mut self, name: usize, value: usize) {
        self.fields.push(Field { name, value, end: self.bytes.len() });
    }

    /// Returns all names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|it| (&self.bytes[it.name..it.value], &self.bytes[it.value..it.end]))
    }
}
