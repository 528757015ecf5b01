//! Reads arbitrary bytes as RESP frames.
//!
//! Invariant: the same commands come out however the bytes are cut. The first byte is the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((piece_bytes, stream)) = bytes.split_first() else { return };
    let whole = tollgate_resp::fuzz::commands(stream, stream.len());
    let pieces = tollgate_resp::fuzz::commands(stream, usize::from(*piece_bytes));
    assert_eq!(whole, pieces, "in pieces of {piece_bytes} bytes");
});
