//! Decodes header blocks (HPACK, RFC 7541).
//!
//! Invariant: the dynamic table has at most [`MAX_TABLE_BYTES`], whatever a block says, and no input causes a panic.
//! Blocks are decoded to their end even if their headers are too large: the table has to follow that of the client.
//! Only blocks that expand to many times the bound, two bytes of which can copy 4 KiB, are refused with their connection.

use std::collections::VecDeque;

use super::header_list::HeaderList;
use super::huffman;

/// The maximum size of the dynamic table: the default of HTTP/2, which is never raised.
pub(super) const MAX_TABLE_BYTES: usize = 4096;
/// The size that HPACK adds to each entry.
const ENTRY_OVERHEAD_BYTES: usize = 32;

/// The bytes are not a header block, or expand without bound. The connection cannot be used further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HpackError;

/// The decoder of a connection.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The newest entry first.
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name_length: usize,
}

impl Entry {
    const fn size(&self) -> usize {
        self.bytes.len() + ENTRY_OVERHEAD_BYTES
    }

    fn pair(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.name_length)
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size: MAX_TABLE_BYTES }
    }
}

impl Decoder {
    /// Decodes a block into a list.
    pub(super) fn decode(&mut self, mut block: &[u8], list: &mut HeaderList) -> Result<(), HpackError> {
        let mut may_resize = true;
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = read_integer(&mut block, 7)?;
                let (name, value) = self.indexed(index)?;
                list.push(name, value);
            } else if first & 0xc0 == 0x40 {
                let (start, value) = self.read_literal(&mut block, 6, list)?;
                self.insert(list.tail(start), value - start);
                list.commit(start, value);
            } else if first & 0xe0 == 0x20 {
                // A change of the size is permitted at the start of a block only.
                let size = read_integer(&mut block, 5)?;
                if !may_resize || size > MAX_TABLE_BYTES {
                    return Err(HpackError);
                }
                self.max_size = size;
                self.evict(0);
                continue;
            } else {
                let (start, value) = self.read_literal(&mut block, 4, list)?;
                list.commit(start, value);
            }
            if list.is_excessive() {
                return Err(HpackError);
            }
            may_resize = false;
        }
        Ok(())
    }

    /// The size of the dynamic table.
    pub(super) const fn table_bytes(&self) -> usize {
        self.size
    }

    fn indexed(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError)?;
        match STATIC_TABLE.get(index) {
            Some((name, value)) => Ok((name.as_bytes(), value.as_bytes())),
            None => self.entries.get(index - STATIC_TABLE.len()).map(Entry::pair).ok_or(HpackError),
        }
    }

    /// Writes a literal header to the end of the list, and returns the places of its name and its value.
    fn read_literal(
        &self,
        block: &mut &[u8],
        prefix: u32,
        list: &mut HeaderList,
    ) -> Result<(usize, usize), HpackError> {
        let start = list.end();
        match read_integer(block, prefix)? {
            0 => read_string(block, list.bytes_mut())?,
            index => {
                let (name, _) = self.indexed(index)?;
                list.bytes_mut().extend_from_slice(name);
            }
        }
        let value = list.end();
        read_string(block, list.bytes_mut())?;
        Ok((start, value))
    }

    fn insert(&mut self, bytes: &[u8], name_length: usize) {
        let size = bytes.len() + ENTRY_OVERHEAD_BYTES;
        self.evict(size);
        // An entry that is larger than the table empties it.
        if size <= self.max_size {
            self.size += size;
            self.entries.push_front(Entry { bytes: bytes.into(), name_length });
        }
    }

    /// Removes the oldest entries until there is room for this many bytes.
    fn evict(&mut self, room: usize) {
        while self.size + room > self.max_size {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size();
        }
    }
}

/// Reads an integer with a prefix of this many bits.
fn read_integer(block: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let (first, rest) = block.split_first().ok_or(HpackError)?;
    *block = rest;
    let max = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & max;
    if value < max {
        return Ok(value);
    }
    // Three bytes are enough for every index and for every length that fits a block.
    for shift in [0, 7, 14] {
        let (byte, rest) = block.split_first().ok_or(HpackError)?;
        *block = rest;
        value += usize::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Ok(value);
        }
    }
    Err(HpackError)
}

/// Reads a string to the end of `out`.
fn read_string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let is_coded = block.first().is_some_and(|it| it & 0x80 != 0);
    let length = read_integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(HpackError)?;
    *block = rest;
    if is_coded {
        return huffman::decode(text, out).map_err(|_| HpackError);
    }
    out.extend_from_slice(text);
    Ok(())
}

/// The static table of HPACK.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<(String, String)>, HpackError> {
        let mut list = HeaderList::default();
        list.reset(16_384, 100);
        decoder.decode(block, &mut list)?;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Ok(list.iter().map(|(name, value)| (text(name), text(value))).collect())
    }

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|it| *it != b' ').collect();
        digits.chunks(2).map(|it| u8::from_str_radix(std::str::from_utf8(it).unwrap(), 16).unwrap()).collect()
    }

    #[test]
    fn examples_of_the_standard_are_decoded() {
        let mut decoder = Decoder::default();
        let first = "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff";
        let read = decode(&mut decoder, &hex(first)).unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let common = [pair(":method", "GET"), pair(":scheme", "http"), pair(":path", "/")];
        assert_eq!(read, [&common[..], &[pair(":authority", "www.example.com")]].concat());
        let read = decode(&mut decoder, &hex("8286 84be 5886 a8eb 1064 9cbf")).unwrap();
        let more = [pair(":authority", "www.example.com"), pair("cache-control", "no-cache")];
        assert_eq!(read, [&common[..], &more].concat());
        let third = "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf";
        let read = decode(&mut decoder, &hex(third)).unwrap();
        assert_eq!(read.last(), Some(&pair("custom-key", "custom-value")));
        assert_eq!((decoder.entries.len(), decoder.size), (3, 164));
    }

    #[test]
    fn the_table_stays_within_its_size() {
        let mut decoder = Decoder::default();
        for number in 0..1_000 {
            let value = format!("{number:0100}");
            let block = [&[0x40, 1, b'x', 100][..], value.as_bytes()].concat();
            decode(&mut decoder, &block).unwrap();
            assert!(decoder.size <= MAX_TABLE_BYTES);
        }
        assert_eq!(decoder.size, decoder.entries.iter().map(Entry::size).sum::<usize>());
        // A smaller table drops the oldest entries, and an entry that does not fit drops all.
        decode(&mut decoder, &[0x3f, 0xa9, 1]).unwrap();
        assert!(decoder.size <= 200 && !decoder.entries.is_empty());
        let large = [&[0x40, 1, b'x', 0x7f, 0xc9, 1][..], &[b'y'; 328]].concat();
        decode(&mut decoder, &large).unwrap();
        assert_eq!((decoder.entries.len(), decoder.size), (0, 0));
        assert_eq!(decode(&mut decoder, &[0xbe]), Err(HpackError));
    }

    #[test]
    fn malformed_blocks_are_refused() {
        for block in [
            &[0x80][..],                     // index 0
            &[0xbe],                         // beyond both tables
            &[0xff, 0xff, 0xff, 0xff, 0x7f], // an integer that is too long
            &[0x82, 0x20],                   // a size update after a header
            &[0x3f, 0xe2, 0x1f],             // a table of 4,097 bytes
            &[0x40],                         // a literal without a name
            &[0x40, 5, b'x'],                // a name that is cut off
            &[0x00, 1, b'x'],                // no value
            &[0x00, 1, b'x', 0x81, 0x00],    // a value with invalid padding
            &[0x7e, 1, b'x'],                // a name beyond both tables
        ] {
            assert_eq!(decode(&mut Decoder::default(), block), Err(HpackError), "{block:02x?}");
        }
        assert_eq!(decode(&mut Decoder::default(), &[0x20, 0x3f, 0xe1, 0x1f]), Ok(vec![]));
    }

    #[test]
    fn random_blocks_keep_the_table_within_its_size() {
        // A linear congruential generator, so that a failure can be repeated.
        let mut seed = 20_261_118_u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33).to_le_bytes()[0]
        };
        let (mut decoder, mut list, mut valid) = (Decoder::default(), HeaderList::default(), 0);
        for _ in 0..100_000 {
            let block: Vec<u8> =
                (0..next() % 24).map(|_| if next() < 90 { next() % 8 } else { next() }).collect();
            list.reset(1_000, 10);
            valid += u32::from(decoder.decode(&block, &mut list).is_ok());
            assert!(decoder.size <= decoder.max_size && decoder.max_size <= MAX_TABLE_BYTES, "{block:02x?}");
            assert_eq!(decoder.size, decoder.entries.iter().map(Entry::size).sum::<usize>());
            assert!(list.iter().count() <= 10);
        }
        assert!(valid > 5_000, "{valid}");
    }

    #[test]
    fn a_list_that_is_too_large_is_decoded_to_its_end() {
        let mut decoder = Decoder::default();
        let block = [&[0x40, 1, b'a', 3][..], b"one", &[0x40, 1, b'b', 3], b"two"].concat();
        let mut list = HeaderList::default();
        list.reset(40, 100);
        decoder.decode(&block, &mut list).unwrap();
        assert!(list.is_too_large() && list.iter().count() == 1);
        assert_eq!(decoder.entries.len(), 2, "the table follows that of the client");
        list.reset(16_384, 1);
        decoder.decode(&block, &mut list).unwrap();
        assert!(list.is_too_large() && list.iter().count() == 1);
    }
}
