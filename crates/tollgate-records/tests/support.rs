//! Records and logs for tests.

use std::path::Path;
use std::sync::Arc;

use tollgate::{Call, DecisionId, Limiter, ManualClock, Span, Timestamp};
use tollgate_records::{RecordLog, RecordLogSettings, RecordWriter};
use tollgate_telemetry::{Record, WatchSettings, Watcher};

/// A time in 2026.
pub(crate) const NOW: Timestamp = Timestamp::from_secs(1_795_000_000);

/// Returns the records of two requests under a policy: the second one is refused by most.
pub(crate) fn records_of(policy: &str) -> Vec<Record> {
    let watcher = Watcher::new(&WatchSettings { trace_one_in: 1, ..WatchSettings::default() });
    let limiter = Limiter::from_policy(policy).unwrap().with_observer(watcher.clone());
    let call = Call::new("GET", "/api/v1/search")
        .ip([203, 0, 113, 9])
        .host("example.com")
        .header("x-api-key", "secret-key-of-ann")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    for _ in 0..2 {
        let _recorded = limiter.check(&call);
    }
    watcher.latest_records(10, false).iter().map(|it| Record::clone(it)).collect()
}

/// Returns a refusal.
pub(crate) fn refusal() -> Record {
    let policy = "limits: [{name: api, by: ip, bucket: 1/minute}]";
    records_of(policy).into_iter().find(|it| !it.allowed).unwrap()
}

/// Returns copies of a record with ids from `first`, one millisecond apart from `at`.
pub(crate) fn copies(record: &Record, first: u64, count: u64, at: Timestamp) -> Vec<Arc<Record>> {
    let copy = |number: u64| {
        let at = at + Span::from_millis(number);
        Arc::new(Record { id: id(first + number), at, counted_at: at, seq: first + number, ..record.clone() })
    };
    (0..count).map(copy).collect()
}

/// Returns the id with a number, spread as real ids are.
pub(crate) fn id(number: u64) -> DecisionId {
    DecisionId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
}

pub(crate) fn settings(dir: &Path) -> RecordLogSettings {
    RecordLogSettings { max_bytes: RecordLogSettings::MIN_BYTES, ..RecordLogSettings::new(dir) }
}

/// Opens a log on a manual clock.
pub(crate) fn open(settings: RecordLogSettings, clock: &ManualClock) -> (RecordLog, RecordWriter) {
    RecordWriter::start(settings, clock.clone()).unwrap()
}

/// Returns the text of a record without the hash that only its process knows.
pub(crate) fn shown(record: &Record) -> String {
    let mut record = record.clone();
    for limit in &mut record.limits {
        limit.key_hash = 0;
    }
    format!("{record:?}")
}

/// Returns the names of the files with an extension, in order.
pub(crate) fn files(dir: &Path, extension: &str) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let mut files: Vec<_> = all.filter(|it| it.extension().is_some_and(|it| it == extension)).collect();
    files.sort();
    files
}

/// Returns the space that the files of a directory take, in blocks as the file system counts them.
pub(crate) fn disk_space(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let all = std::fs::read_dir(dir).unwrap().filter_map(|it| it.ok()?.metadata().ok());
    all.map(|it| (it.blocks() * 512).max(it.len())).sum()
}
