//! The byte order mark that some services write before their text: no part of it.
//!
//! It is passed over at the very start of an answer, however that is divided into pieces, and nowhere else.

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// How much of the mark has come.
#[derive(Clone, Copy, Default)]
pub(super) enum Start {
    #[default]
    Nothing,
    /// So many bytes that may be of a mark.
    Perhaps(usize),
    /// The text has begun.
    Over,
}

impl Start {
    /// The text of this piece: what was held back and turns out to be no mark, and the rest.
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
    fn a_mark_is_passed_over_at_the_start_only_and_all_else_is_text() {
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
