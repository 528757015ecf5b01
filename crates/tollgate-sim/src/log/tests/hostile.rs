//! Arbitrary bytes: reading never panics, and every line is counted.

use proptest::prelude::*;

use super::*;
use crate::log::{Fields, Format};

/// Pieces of lines of every format, and bytes between.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..12),
        5 => proptest::sample::select(vec![
            "203.0.113.1", " - - ", "[17/May/2015:10:05:03 +0000]", " \"GET /a?b HTTP/1.1\" ", "200 1 ", "\"", "\\", "\\x2", "\n",
            "{\"ts\":1431857103,\"user\":\"a\"}\n", "{\"time\":", "\"ip\":[{", "}", "]", "time,ip\n", "1431857103,", ";", "\t",
            "2015-05-17T10:05:03", ".5", "+02:00", "\0", "\r\n", "\u{feff}", "http://", "[::1]:80",
        ])
        .prop_map(|it| it.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_panic_and_every_line_is_a_request_or_skipped(
        bytes in bytes(),
        format in proptest::sample::select(vec![None, Some(Format::Combined), Some(Format::Json), Some(Format::Csv)]),
        numbered in any::<bool>(),
    ) {
        let mut reading = ReadOptions::default();
        if let Some(format) = format {
            reading = reading.format(format);
        }
        if numbered && format != Some(Format::Combined) {
            reading = reading.fields(Fields::parse(&["time=1", "ip=2", "cost=3"]).unwrap());
        }
        // Input that is not a log, or looks compressed, is an error with a message.
        match read(one(bytes.clone()), &reading) {
            Ok(seen) => {
                prop_assert_eq!(seen.tally.lines, seen.entries.len() as u64 + seen.tally.skipped);
                prop_assert_eq!(seen.skipped.is_some(), seen.tally.skipped > 0);
                prop_assert_eq!(seen.tally.bytes, bytes.len() as u64);
                for entry in &seen.entries {
                    let _ = summary(entry);
                }
            }
            Err(error) => prop_assert!(error.to_string().starts_with("a.log "), "{}", error),
        }
    }
}
