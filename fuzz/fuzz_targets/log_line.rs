//! Reads arbitrary bytes as an access log: combined, JSON or CSV, plain or compressed.
//!
//! Invariant: requests arrive in the order of their times, and every line is counted as a request or as skipped.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use tollgate_sim::Entry;
use tollgate_sim::log::{Input, Log, ReadOptions, Requests};

fuzz_target!(|bytes: &[u8]| {
    let input = Input::new("fuzz.log", Cursor::new(bytes.to_vec()));
    let Ok(mut log) = Log::open(vec![input], &ReadOptions::default()) else { return };
    let (mut entry, mut requests, mut latest) = (Entry::default(), 0, 0);
    loop {
        match log.next(&mut entry) {
            Ok(true) => {
                assert!(entry.at >= latest, "a request at {} after one at {latest}", entry.at);
                (latest, requests) = (entry.at, requests + 1);
            }
            Ok(false) => break,
            Err(_) => return,
        }
    }
    let tally = log.tally();
    assert_eq!(tally.lines - tally.skipped, requests);
});
