//! Damaged files: torn tails, changed bytes, missing and foreign files.

use std::fs;

use tollgate::ManualClock;
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, files, id, open, refusal, settings};

#[test]
fn a_tail_that_is_torn_at_any_byte_loses_only_its_record() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let lengths: Vec<_> = (0..3u64)
        .map(|number| {
            let (_log, writer) = open(settings(dir.path()), &clock);
            writer.append(copies(&refusal(), number, 1, NOW));
            drop(writer);
            fs::metadata(&files(dir.path(), "log")[0]).unwrap().len()
        })
        .collect();
    let path = files(dir.path(), "log").remove(0);
    let bytes = fs::read(&path).unwrap();
    let [_, second, third] = lengths[..] else { panic!("{lengths:?}") };
    for cut in second..third {
        fs::write(&path, &bytes[..usize::try_from(cut).unwrap()]).unwrap();
        let (log, writer) = open(settings(dir.path()), &clock);
        let found = [0, 1, 2].map(|number| log.find(id(number)).is_some());
        assert_eq!(found, [true, true, false], "cut at {cut}");
        assert_eq!(log.status().failure, None);
        // New records follow the last complete one.
        writer.append(copies(&refusal(), 9, 1, NOW));
        writer.flush();
        assert!(log.find(id(9)).is_some() && log.find(id(1)).is_some(), "cut at {cut}");
    }
}

#[test]
fn a_head_that_is_torn_at_any_byte_is_no_obstacle() {
    for length in 0..32 {
        let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
        fs::write(dir.path().join("0000000000000001.log"), vec![7; length]).unwrap();
        let (log, writer) = open(settings(dir.path()), &clock);
        writer.append(copies(&refusal(), 1, 1, NOW));
        writer.flush();
        assert!(log.find(id(1)).is_some(), "{length}: {:?}", log.status());
    }
}

/// Writes three segments, of which `damage` changes the second one. The records of the others are found,
/// and new ones are written.
fn check(damage: impl Fn(&std::path::Path, &std::path::Path)) -> (u64, u64) {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(dir.path()), &clock);
    let mut batches = 0;
    while files(dir.path(), "idx").len() < 2 {
        writer.append(copies(&refusal(), batches * 1_000, 1_000, NOW));
        writer.flush();
        batches += 1;
    }
    let total = log.status().records;
    drop((log, writer));
    damage(&files(dir.path(), "log")[1], &files(dir.path(), "idx")[1]);
    let (log, writer) = open(settings(dir.path()), &clock);
    assert_eq!(log.status().failure, None);
    assert!(log.find(id(0)).is_some() && log.find(id(total - 1)).is_some());
    writer.append(copies(&refusal(), 1_000_000, 10, NOW));
    writer.flush();
    assert!(log.find(id(1_000_003)).is_some());
    let lost = (0..total).filter(|number| log.find(id(*number)).is_none()).count() as u64;
    (lost, total)
}

#[test]
fn a_lost_or_damaged_index_is_written_again() {
    assert_eq!(check(|_, index| fs::remove_file(index).unwrap()).0, 0);
    assert_eq!(check(|_, index| fs::write(index, "x").unwrap()).0, 0);
    let shorten = |_: &std::path::Path, index: &std::path::Path| {
        let bytes = fs::read(index).unwrap();
        fs::write(index, &bytes[..bytes.len() / 2]).unwrap();
    };
    assert_eq!(check(shorten).0, 0);
}

#[test]
fn a_damaged_segment_is_skipped() {
    let (lost, total) = check(|log, index| {
        fs::remove_file(index).unwrap();
        fs::write(log, "not a segment").unwrap();
    });
    assert!(lost > 0 && lost < total);
    // With its index, only the records that changed are lost.
    let (lost, _) = check(|log, _| {
        let mut bytes = fs::read(log).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        fs::write(log, bytes).unwrap();
    });
    assert_eq!(lost, 1);
    // Without its index, the records after the damage are lost.
    let (lost, total) = check(|log, index| {
        fs::remove_file(index).unwrap();
        let mut bytes = fs::read(log).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        fs::write(log, bytes).unwrap();
    });
    assert!(lost > 1 && lost < total / 2, "{lost} of {total}");
}

#[test]
fn a_damaged_page_of_an_index_loses_its_segment_at_most() {
    let (lost, total) = check(|_, index| {
        let mut bytes = fs::read(index).unwrap();
        bytes[64 + 100] ^= 1;
        fs::write(index, bytes).unwrap();
    });
    assert!(lost > 0 && lost <= 340 && lost < total, "{lost}");
}

#[test]
fn random_bytes_cause_no_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    {
        let (_log, writer) = open(settings(dir.path()), &clock);
        writer.append(copies(&refusal(), 0, 50, NOW));
    }
    let path = files(dir.path(), "log").remove(0);
    let bytes = fs::read(&path).unwrap();
    for _ in 0..200 {
        let mut changed = bytes.clone();
        for _ in 0..rng.usize(1..20) {
            let at = rng.usize(..changed.len());
            changed[at] = rng.u8(..);
        }
        changed.truncate(rng.usize(..=changed.len()));
        fs::write(&path, &changed).unwrap();
        let log = tollgate_records::RecordLog::read_dir(dir.path()).unwrap();
        let query = tollgate_records::RecordQuery { most: 100, ..Default::default() };
        assert!(log.search(&query).records.len() <= 50);
        (0..50).for_each(|number| drop(log.find(id(number))));
    }
}
