//! Decodes arbitrary header blocks, and compares them with the decoder of loona, which shares no code with ours.
//!
//! Both return the same headers, or both refuse the block. We may refuse more: integers of more than four bytes, a size
//! update after a header, and blocks that expand without bound. In the second mode, headers are encoded by the encoder of
//! loona and decoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate_net::http2::fuzz::{HeaderField, HpackDecoder};

/// The size of a dynamic table, and the size that HPACK adds to each header.
const MAX_TABLE_BYTES: usize = 4096;
const OVERHEAD_BYTES: usize = 32;
/// Blocks that expand to more than this many times the bound are refused.
const MAX_EXCESS: usize = 8;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    let (max_bytes, max_fields) =
        [(32 * 1024, 100), (200, 100), (32 * 1024, 3), (0, 0)][usize::from(mode >> 1 & 3)];
    if mode & 1 == 0 {
        compare(rest, max_bytes, max_fields);
    } else {
        round_trip(rest);
    }
});

/// Splits the input into blocks, each after its length, and decodes them on one connection. A length of 255 means the
/// rest.
fn compare(mut input: &[u8], max_bytes: usize, max_fields: usize) {
    let mut reference = loona_hpack::Decoder::new();
    reference.set_max_allowed_table_size(MAX_TABLE_BYTES);
    let mut decoder = HpackDecoder::default();
    while let Some((length, rest)) = input.split_first() {
        let length = if *length == u8::MAX { rest.len() } else { usize::from(*length) };
        let (block, rest) = rest.split_at(length.min(rest.len()));
        input = rest;
        let expected = reference.decode(block);
        let decoded = decoder.decode(block, max_bytes, max_fields);
        assert!(decoder.table_bytes() <= MAX_TABLE_BYTES);
        let shape = Shape::read(block);
        match (decoded, expected) {
            (Some((fields, is_too_large)), Ok(expected)) => {
                check_fields(&fields, is_too_large, &expected, max_bytes, max_fields)
            }
            (Some((fields, _)), Err(error)) => {
                // A block without headers that only changes the size is refused by loona.
                assert_eq!(error, loona_hpack::decoder::DecoderError::SizeUpdateAtEnd);
                assert!(fields.is_empty() && !shape.has_late_update);
                return;
            }
            (None, Ok(expected)) => {
                let is_excessive = size(&expected) / MAX_EXCESS > max_bytes;
                assert!(
                    is_excessive || shape.has_late_update || shape.has_long_integer,
                    "refused: {block:02x?}"
                );
                return;
            }
            (None, Err(_)) => return,
        }
    }
}

fn size(fields: &[HeaderField]) -> usize {
    fields.iter().map(|(name, value)| name.len() + value.len() + OVERHEAD_BYTES).sum()
}

fn check_fields(
    fields: &[HeaderField],
    is_too_large: bool,
    expected: &[HeaderField],
    max_bytes: usize,
    max_fields: usize,
) {
    let fits = size(expected) <= max_bytes && expected.len() <= max_fields;
    assert_eq!(is_too_large, !fits);
    assert_eq!(fields, &expected[..fields.len()]);
    assert!(size(fields) <= max_bytes && fields.len() <= max_fields);
    if fits {
        assert_eq!(fields.len(), expected.len());
    }
}

/// Encodes the headers of several blocks, and decodes them.
fn round_trip(input: &[u8]) {
    let (mut encoder, mut decoder) = (loona_hpack::Encoder::new(), HpackDecoder::default());
    for part in input.split(|it| *it == b'\n') {
        let fields: Vec<HeaderField> = part
            .split(|it| *it == b';')
            .map(|field| {
                let mut parts = field.splitn(2, |it| *it == b'=');
                let mut next = || parts.next().unwrap_or_default().to_vec();
                (next(), next())
            })
            .collect();
        let block = encoder.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
        let decoded = decoder.decode(&block, usize::MAX / 16, usize::MAX);
        assert_eq!(decoded, Some((fields, false)), "{block:02x?}");
    }
}

/// The properties of a block that permit us to refuse it.
#[derive(Default)]
struct Shape {
    has_late_update: bool,
    has_long_integer: bool,
}

impl Shape {
    /// Reads the representations of a block, as far as they are valid.
    fn read(mut block: &[u8]) -> Self {
        let (mut shape, mut has_header) = (Self::default(), false);
        while shape.skip_representation(&mut block, &mut has_header).is_some() {}
        shape
    }

    fn skip_representation(&mut self, block: &mut &[u8], has_header: &mut bool) -> Option<()> {
        let first = *block.first()?;
        if first & 0x80 != 0 {
            self.integer(block, 7)?;
        } else if first & 0xe0 == 0x20 {
            self.has_late_update |= *has_header;
            self.integer(block, 5)?;
            return Some(());
        } else {
            let prefix = if first & 0x40 != 0 { 6 } else { 4 };
            if self.integer(block, prefix)? == 0 {
                self.skip_string(block)?;
            }
            self.skip_string(block)?;
        }
        *has_header = true;
        Some(())
    }

    fn skip_string(&mut self, block: &mut &[u8]) -> Option<()> {
        let length = self.integer(block, 7)?;
        *block = block.get(usize::try_from(length).ok()?..)?;
        Some(())
    }

    fn integer(&mut self, block: &mut &[u8], prefix: u32) -> Option<u64> {
        let (first, rest) = block.split_first()?;
        *block = rest;
        let max = (1 << prefix) - 1;
        let mut value = u64::from(*first) & max;
        if value < max {
            return Some(value);
        }
        for (at, byte) in rest.iter().enumerate().take(8) {
            value += u64::from(byte & 0x7f) << (7 * at);
            self.has_long_integer |= at >= 3;
            if byte & 0x80 == 0 {
                *block = &rest[at + 1..];
                return Some(value);
            }
        }
        None
    }
}
