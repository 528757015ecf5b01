//! Directories that cannot be used, or only later.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use tollgate::{ManualClock, Span};
use tollgate_records::{RecordLogError, RecordWriter};
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, files, id, open, refusal, settings};

#[test]
fn a_directory_belongs_to_one_process() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let first = open(settings(dir.path()), &clock);
    let error = RecordWriter::start(settings(dir.path()), clock.clone()).map(drop).unwrap_err();
    assert!(matches!(error, RecordLogError::InUse(_)));
    assert!(error.to_string().contains("is in use by another process"), "{error}");
    drop(first);
    assert!(RecordWriter::start(settings(dir.path()), clock).is_ok());
}

#[test]
fn a_directory_that_everyone_may_write_to_is_refused() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let error = RecordWriter::start(settings(dir.path()), clock).map(drop).unwrap_err();
    assert!(error.to_string().contains("others may write"), "{error}");
}

#[test]
fn files_are_readable_for_their_owner_alone() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    let folder = dir.path().join("a/b");
    let (_log, writer) = open(settings(&folder), &clock);
    writer.append(copies(&refusal(), 0, 1, NOW));
    writer.flush();
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&files(&folder, "log")[0])), (0o700, 0o600));
}

#[test]
fn a_directory_that_cannot_be_used_is_tried_again() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    // A file in its place is refused for every user, root included.
    let folder = dir.path().join("records");
    fs::write(&folder, "").unwrap();
    let (log, writer) = open(settings(&folder), &clock);
    writer.append(copies(&refusal(), 0, 3, NOW));
    writer.flush();
    let status = log.status();
    let failure = status.failure.unwrap();
    assert!(failure.contains("records: there is a file of that name"), "{failure}");
    assert_eq!((status.written, status.dropped, log.find(id(0)).is_none()), (0, 3, true));
    fs::remove_file(&folder).unwrap();
    clock.advance(Span::from_secs(6));
    writer.append(copies(&refusal(), 10, 3, NOW));
    writer.flush();
    let status = log.status();
    assert_eq!((status.failure, status.written, status.dropped), (None, 3, 3));
    assert!(log.find(id(11)).is_some());
}
