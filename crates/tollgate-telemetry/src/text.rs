//! A short text that is stored inline.
//!
//! Tables that every refusal may write to store their texts in place, so that a write neither allocates nor frees
//! memory.

use crate::describe::fit;

/// A text of at most `N` bytes, stored inline. A longer text is truncated and ends in an ellipsis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<const N: usize> {
    length: u8,
    bytes: [u8; N],
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self { length: 0, bytes: [0; N] }
    }
}

impl<const N: usize> Text<N> {
    const FITS: () = assert!(N <= u8::MAX as usize, "the length is one byte");

    /// Keeps the longest prefix that fits, with an ellipsis if it was truncated.
    pub(crate) fn new(text: &str) -> Self {
        let () = Self::FITS;
        let (text, is_cut) = fit(text, N);
        let (mut bytes, mut length) = ([0; N], 0);
        for part in [text, if is_cut { "…" } else { "" }] {
            bytes[length..length + part.len()].copy_from_slice(part.as_bytes());
            length += part.len();
        }
        Self { length: u8::try_from(length).unwrap_or(0), bytes }
    }

    /// Returns the text as bytes, which are valid UTF-8.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }
}

impl<const N: usize> From<&Text<N>> for Box<str> {
    fn from(text: &Text<N>) -> Self {
        text.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_truncated_between_characters() {
        assert_eq!(Text::<6>::new("abcdef").as_str(), "abcdef");
        assert_eq!(Text::<6>::new("abcdefg").as_str(), "abc…");
        assert_eq!(Text::<5>::new("ééé").as_str(), "é…");
        assert_eq!(Text::<5>::default().as_str(), "");
    }
}
