//! Strings of JSON.

/// Appends a quoted and escaped string, as serde does. Almost no string needs an escape, and such a string is copied.
///
/// ```
/// # use tollgate_http::write_json_string;
/// let mut json = Vec::new();
/// write_json_string(&mut json, "a \"b\"");
/// assert_eq!(json, br#""a \"b\"""#);
/// ```
pub fn write_json_string(json: &mut Vec<u8>, text: &str) {
    if needs_escape(text.as_bytes()) {
        // Writing to memory does not fail.
        let _never = serde_json::to_writer(json, text);
        return;
    }
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
}

/// Appends a quoted string that needs no escape, such as a constant or hexadecimal digits.
pub fn write_plain_json_string(json: &mut Vec<u8>, text: &str) {
    debug_assert!(!needs_escape(text.as_bytes()), "{text:?} needs an escape");
    json.reserve(text.len() + 2);
    json.push(b'"');
    json.extend_from_slice(text.as_bytes());
    json.push(b'"');
}

/// Whether a JSON string with these bytes has an escape sequence: control characters, `"` and `\`.
fn needs_escape(text: &[u8]) -> bool {
    let Some(last) = text.last_chunk() else { return short_needs_escape(text) };
    let mut blocks = text.as_chunks::<BLOCK_BYTES>().0.iter();
    // The last block overlaps those before.
    blocks.any(block_needs_escape) || block_needs_escape(last)
}

/// The bytes that are compared together.
const BLOCK_BYTES: usize = 16;

/// Whether a byte of a block needs an escape. Without an early end, the block is compared by a few instructions.
#[inline]
fn block_needs_escape(block: &[u8; BLOCK_BYTES]) -> bool {
    block.iter().fold(false, |found, &byte| found | is_escaped(byte))
}

/// Whether a text that is shorter than a block needs an escape.
fn short_needs_escape(text: &[u8]) -> bool {
    match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(&first), Some(&last)) => {
            escaped_bytes(u64::from_le_bytes(first)) | escaped_bytes(u64::from_le_bytes(last)) != 0
        }
        _ => text.iter().any(|&byte| is_escaped(byte)),
    }
}

#[inline]
const fn is_escaped(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// Returns zero if none of eight bytes needs an escape sequence. (`x - n` borrows from the highest bit of a byte only if
/// the byte, or one below it, is less than `n`.)
const fn escaped_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGHS: u64 = ONES << 7;
    let (quotes, backslashes) = (word ^ (ONES * 0x22), word ^ (ONES * 0x5c));
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    let is_quote = quotes.wrapping_sub(ONES) & !quotes;
    let is_backslash = backslashes.wrapping_sub(ONES) & !backslashes;
    (is_control | is_quote | is_backslash) & HIGHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_written_as_by_serde() {
        let specials = ["", "\"", "\\", "\n", "\0", "\u{8}", "\u{1f}", " ", "!", "\u{7f}", "é", "…", "😀"];
        for special in specials {
            for (before, after) in [(0, 0), (0, 9), (3, 2), (7, 0), (7, 1), (8, 8), (15, 0), (17, 30)] {
                let text = format!("{}{special}{}", "a".repeat(before), "b".repeat(after));
                let mut json = Vec::new();
                write_json_string(&mut json, &text);
                assert_eq!(String::from_utf8(json).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }

    #[test]
    fn only_special_bytes_need_escapes() {
        for byte in 0..=255_u8 {
            let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
            for (length, at) in (1..50).flat_map(|length| (0..length).map(move |at| (length, at))) {
                for filler in [b'a', 0xff, b' '] {
                    let mut text = vec![filler; length];
                    text[at] = byte;
                    assert_eq!(needs_escape(&text), is_special, "{byte} at {at} of {length}");
                }
            }
        }
    }
}
