//! Entry points for the fuzz targets in `fuzz/`. Not part of the API.

use crate::frame::{Frames, Step};

/// Returns the commands in a byte stream that arrives in pieces, and the error that ends it.
pub fn commands(bytes: &[u8], piece_bytes: usize) -> (Vec<Vec<Vec<u8>>>, Option<String>) {
    let (mut frames, mut commands) = (Frames::default(), Vec::new());
    let (mut start, mut arrived) = (0, 0);
    loop {
        match frames.next(&bytes[start..arrived], false) {
            Ok(Step::Incomplete) if arrived == bytes.len() => return (commands, None),
            Ok(Step::Incomplete) => arrived = (arrived + piece_bytes.max(1)).min(bytes.len()),
            Ok(Step::Nothing(length)) => start += length,
            Ok(Step::Command(length)) => {
                let words = frames.words(&bytes[start..arrived]);
                commands.push(words.from(0).map(<[u8]>::to_vec).collect());
                start += length;
            }
            Err(error) => return (commands, Some(error.to_string())),
        }
    }
}
