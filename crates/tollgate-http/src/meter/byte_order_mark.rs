//! Skips the UTF-8 byte order mark that some services write before their text.
//!
//! The mark is skipped only at the start of a response, however the response is divided into pieces.

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The part of the mark that has been read.
#[derive(Clone, Copy, Default)]
pub(super) enum Start {
    #[default]
    Nothing,
    /// This many bytes of a possible mark have been read.
    Perhaps(usize),
    /// The text has started.
    Over,
}

impl Start {
    /// Returns the text of this piece: bytes that were held back but are not a mark, then the rest.
    pub(super) fn text<'p>(&mut self, piece: &'p [u8]) -> [&'p [u8]; 2] {
        let held = match *self {
            Self::Over => return [&[], piece],
            Self::Nothing => 0,
            Self::Perhaps(held) => held,
        };
        let missing = &BYTE_ORDER_MARK[held..];
        let fits = piece.iter().zip(missing).take_while(|(byte, mark)| byte == mark).count();
        if fits == missing.len() {
            *self = Self::Over;
            [&[], &piece[fits..]]
        } else if fits == piece.len() {
            *self = Self::Perhaps(held + fits);
            [&[], &[]]
        } else {
            *self = Self::Over;
            [&BYTE_ORDER_MARK[..held], piece]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_skipped_only_at_the_start() {
        for (answer, expected) in [
            (&b"\xef\xbb\xbf{}"[..], &b"{}"[..]),
            (b"\xef\xbb\xbf\xef\xbb\xbf{}", b"\xef\xbb\xbf{}"),
            (b"{}\xef\xbb\xbf", b"{}\xef\xbb\xbf"),
            (b"\xef\xbb{}", b"\xef\xbb{}"),
            (b"\xef\xef\xbb\xbf", b"\xef\xef\xbb\xbf"),
            (b"\xef\xbb\xbf", b""),
            (b"", b""),
        ] {
            for size in 1..=answer.len().max(1) {
                let mut start = Start::default();
                let text: Vec<u8> =
                    answer.chunks(size).flat_map(|piece| start.text(piece)).flatten().copied().collect();
                assert_eq!(text, expected, "{answer:x?} in pieces of {size}");
            }
        }
    }
}
