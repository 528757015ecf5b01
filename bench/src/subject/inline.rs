//! A key without allocation and indirection.

use std::hash::{Hash, Hasher};

use crate::stream::LENGTHS;

/// Up to 40 bytes, inline. Unused bytes are zero, so equal keys have equal bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InlineKey {
    length: u8,
    bytes: [u8; *LENGTHS.end()],
}

impl From<&str> for InlineKey {
    fn from(key: &str) -> Self {
        let mut bytes = [0; *LENGTHS.end()];
        bytes[..key.len()].copy_from_slice(key.as_bytes());
        Self { length: u8::try_from(key.len()).unwrap_or(u8::MAX), bytes }
    }
}

impl Hash for InlineKey {
    /// Hashes as a `str` does: the used bytes, and an end mark.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.bytes[..usize::from(self.length)]);
        state.write_u8(0xff);
    }
}
