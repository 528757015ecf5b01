//! A disk that is full, and one that is read-only: a message, a count, and writing again later.
//!
//! The test starts itself again in a mount namespace with a file system of two megabytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tollgate::{ManualClock, Span};
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, files, id, open, refusal, settings};

const DIR: &str = "TOLLGATE_TEST_DIR";

/// Runs a test of this file with a small file system at a directory.
fn run_with_small_disk(test: &str) {
    let dir = Scratch::new();
    let script = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$TOLLGATE_TEST_DIR\" && exec \"$0\" \"$@\"";
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(DIR, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{errors}");
}

fn dir() -> PathBuf {
    std::env::var(DIR).unwrap().into()
}

#[test]
fn a_full_disk_stops_the_log_until_there_is_room() {
    run_with_small_disk("full_disk::in_a_full_disk");
}

#[test]
#[ignore = "needs a small file system; the other test starts it"]
fn in_a_full_disk() {
    let (dir, clock) = (dir(), ManualClock::at(NOW));
    let (log, writer) = open(settings(&dir), &clock);
    let filler = dir.join("filler");
    fs::write(&filler, vec![0; 1 << 20]).unwrap();
    // The log would be 16 MiB, and the disk has one left.
    let (mut next, template) = (0, refusal());
    while log.status().failure.is_none() {
        writer.append(copies(&template, next, 1_000, NOW));
        writer.flush();
        next += 1_000;
        assert!(next < 100_000);
    }
    let status = log.status();
    let failure = status.failure.unwrap();
    assert!(failure.contains("there is no room left on the disk"), "{failure}");
    assert!(!failure.contains("os error"), "{failure}");
    assert_eq!(status.written + status.dropped, next);
    // Everything that was written is found; nothing is half written.
    assert_eq!((0..next).filter(|number| log.find(id(*number)).is_some()).count() as u64, status.written);
    // There is room again.
    fs::remove_file(&filler).unwrap();
    clock.advance(Span::from_secs(6));
    writer.append(copies(&template, next, 1_000, NOW));
    writer.flush();
    assert_eq!(log.status().failure, None);
    assert!(log.find(id(next + 7)).is_some() && log.find(id(3)).is_some());
    drop((log, writer));
    let (log, _writer) = open(settings(&dir), &clock);
    assert_eq!(log.status().records, status.written + 1_000);
}

#[test]
fn a_read_only_disk_stops_the_log_until_it_is_writable() {
    run_with_small_disk("full_disk::on_a_read_only_disk");
}

fn remount(dir: &Path, how: &str) {
    let status = Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(dir).status().unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "needs a file system of its own; the other test starts it"]
fn on_a_read_only_disk() {
    let (dir, clock) = (dir(), ManualClock::at(NOW));
    {
        let (_log, writer) = open(settings(&dir), &clock);
        writer.append(copies(&refusal(), 0, 10, NOW));
    }
    remount(&dir, "ro");
    let (log, writer) = open(settings(&dir), &clock);
    writer.append(copies(&refusal(), 10, 10, NOW));
    writer.flush();
    let failure = log.status().failure.unwrap();
    assert!(failure.contains("the disk is read-only"), "{failure}");
    assert_eq!(log.status().dropped, 10);
    remount(&dir, "rw");
    clock.advance(Span::from_secs(6));
    writer.append(copies(&refusal(), 20, 10, NOW));
    writer.flush();
    assert_eq!(log.status().failure, None);
    assert!(log.find(id(25)).is_some() && log.find(id(5)).is_some());
    assert_eq!(files(&dir, "log").len(), 1);
}
