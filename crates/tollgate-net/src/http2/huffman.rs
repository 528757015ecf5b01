//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. The lengths therefore
//! determine it, and the tables are derived from them when this is compiled.

/// The lengths of the codes of all bytes, in bits.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26,
];

const MAX_LENGTH: usize = 30;
/// Codes of up to this many bits are looked up by their first bits.
const SHORT_BITS: u32 = 8;

/// The bytes are not a Huffman code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HuffmanError;

struct Tables {
    /// The byte and the length of the code that starts with these bits; a length of zero means a longer code.
    short: [(u8, u8); 1 << SHORT_BITS],
    /// The bytes in the order of their codes.
    bytes: [u8; 256],
    /// For each length: the first code, the number of shorter codes, and the end of its codes as the first of 32 bits.
    first: [u32; MAX_LENGTH + 1],
    shorter: [u32; MAX_LENGTH + 1],
    end: [u64; MAX_LENGTH + 1],
}

static TABLES: Tables = tables();

#[allow(clippy::cast_possible_truncation, reason = "symbols are bytes, and codes have at most 30 bits")]
const fn tables() -> Tables {
    let mut tables = Tables {
        short: [(0, 0); 1 << SHORT_BITS],
        bytes: [0; 256],
        first: [0; MAX_LENGTH + 1],
        shorter: [0; MAX_LENGTH + 1],
        end: [0; MAX_LENGTH + 1],
    };
    let (mut code, mut count, mut length) = (0_u32, 0, 1);
    while length <= MAX_LENGTH {
        code <<= 1;
        (tables.first[length], tables.shorter[length]) = (code, count);
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as usize == length {
                tables.bytes[count as usize] = symbol as u8;
                if length <= SHORT_BITS as usize {
                    let shift = SHORT_BITS as usize - length;
                    let mut rest = 0;
                    while rest < 1 << shift {
                        tables.short[(code as usize) << shift | rest] = (symbol as u8, length as u8);
                        rest += 1;
                    }
                }
                code += 1;
                count += 1;
            }
            symbol += 1;
        }
        tables.end[length] = (code as u64) << (32 - length);
        length += 1;
    }
    tables
}

/// Appends the decoded bytes.
pub(super) fn decode(input: &[u8], out: &mut Vec<u8>) -> Result<(), HuffmanError> {
    // The bits that are not decoded yet, from the highest one.
    let (mut bits, mut count) = (0_u64, 0_u32);
    let mut input = input.iter();
    loop {
        while count <= 56 {
            let Some(byte) = input.next() else { break };
            bits |= u64::from(*byte) << (56 - count);
            count += 8;
        }
        let (byte, length) = match TABLES.short[(bits >> 56) as usize] {
            (_, 0) => long(bits)?,
            (byte, length) => (byte, u32::from(length)),
        };
        if length > count {
            break;
        }
        out.push(byte);
        bits <<= length;
        count -= length;
    }
    // The rest is padding: the first bits of the end of string, which are ones.
    let is_padding = count < 8 && (count == 0 || bits >> (64 - count) == (1 << count) - 1);
    if is_padding { Ok(()) } else { Err(HuffmanError) }
}

/// Decodes a code of more than eight bits.
#[allow(clippy::cast_possible_truncation, reason = "the table has 256 bytes")]
fn long(bits: u64) -> Result<(u8, u32), HuffmanError> {
    let next = bits >> 32;
    let mut length = SHORT_BITS as usize + 1;
    while length <= MAX_LENGTH {
        if next < TABLES.end[length] {
            let place = (next as u32 >> (32 - length)) - TABLES.first[length] + TABLES.shorter[length];
            return Ok((TABLES.bytes[place as usize], length as u32));
        }
        length += 1;
    }
    // The end of string, which must not be encoded.
    Err(HuffmanError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::cast_possible_truncation, reason = "the remaining bits fit into a byte")]
    fn encode(text: &[u8]) -> Vec<u8> {
        let (mut out, mut bits, mut count) = (Vec::new(), 0_u64, 0_u32);
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let start = TABLES.shorter[length] as usize;
            let at = TABLES.bytes[start..].iter().position(|it| it == byte).unwrap();
            bits = bits << length | u64::from(TABLES.first[length] + u32::try_from(at).unwrap());
            count += u32::try_from(length).unwrap();
            while count >= 8 {
                count -= 8;
                out.push((bits >> count) as u8);
                bits &= (1 << count) - 1;
            }
        }
        if count > 0 {
            out.push((bits << (8 - count)) as u8 | 0xff >> count);
        }
        out
    }

    fn decoded(input: &[u8]) -> Result<Vec<u8>, HuffmanError> {
        let mut out = Vec::new();
        decode(input, &mut out).map(|()| out)
    }

    #[test]
    fn examples_of_the_standard_are_decoded() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
        };
        for (coded, text) in [
            ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
            ("a8eb10649cbf", "no-cache"),
            ("25a849e95ba97d7f", "custom-key"),
            ("25a849e95bb8e8b4bf", "custom-value"),
            ("d07abe941054d444a8200595040b8166e082a62d1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ] {
            assert_eq!(decoded(&hex(coded)).unwrap(), text.as_bytes());
        }
    }

    #[test]
    fn every_byte_is_decoded_at_every_offset() {
        for byte in 0..=255 {
            for before in 0..8 {
                let text = [vec![b'a'; before], vec![byte, b'e', byte]].concat();
                assert_eq!(decoded(&encode(&text)).unwrap(), text, "{byte} after {before}");
            }
        }
        assert_eq!(decoded(&[]).unwrap(), b"");
    }

    #[test]
    fn invalid_padding_and_the_end_of_string_are_refused() {
        // "a" is 00011.
        assert_eq!(decoded(&[0b0001_1111]).unwrap(), b"a");
        for invalid in [
            &[0b0001_1110][..],
            &[0b0001_1000],
            &[0b0001_1111, 0xff],
            &[0xff],
            &[0xff, 0xff, 0xff, 0xff],
            &[0xff, 0xff, 0xff, 0xfc],
        ] {
            assert_eq!(decoded(invalid), Err(HuffmanError), "{invalid:?}");
        }
    }
}
