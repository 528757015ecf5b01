//! Records are found by id, and are read back as they were.

use tollgate::ManualClock;
use tollgate_records::RecordLog;
use tollgate_testkit::Scratch;

use crate::support::{NOW, copies, files, id, open, records_of, refusal, settings, shown};

#[test]
fn records_of_every_kind_are_read_back_as_they_were() {
    let policies = [
        "limits: [{name: api, by: ip, bucket: 1/minute}]",
        "limits: [{by: api_key, bucket: '1/minute, burst 1'}, {name: site, by: global, bucket: 100/s}]",
        "limits: [{name: day, by: ip, algorithm: fixed-window, align: calendar, timezone: Europe/Berlin, rate: 1/day}]",
        "limits: [{name: w, by: ip, algorithm: sliding-window, rate: 1/minute}]",
        "limits: [{name: l, by: ip, algorithm: sliding-log, rate: 1/minute}]",
        "limits: [{name: q, by: ip, algorithm: leaky-queue, rate: 1/minute, queue: {length: 5, wait: 1s}}]",
        "limits: [{name: slots, by: global, slots: 1}]",
        "limits: [{name: both, by: ip, windows: [1/minute, 5/hour]}]",
        "limits: [{name: shadow, by: ip, bucket: 1/minute, mode: shadow}]",
        "limits: [{name: denied, by: ip, bucket: 1/minute, count_denied: true}]",
        "limits: [{name: missing, by: user, missing: refuse, bucket: 1/minute}]",
        "{deny: [{ip: 203.0.113.9}], limits: [{by: ip, bucket: 1/minute}]}",
        "{allow: [{ip: 203.0.113.9}], limits: [{by: ip, bucket: 1/minute}]}",
        "{priorities: [{name: critical, endpoint: /pay/**}, {name: bulk}], limits: [{by: ip, bucket: 1/minute}]}",
        "{privacy: {keys: hashed}, limits: [{by: api_key, bucket: 1/minute}]}",
    ];
    let (files, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(files.path()), &clock);
    let mut all = Vec::new();
    for policy in policies {
        let records = records_of(policy);
        assert!(!records.is_empty(), "{policy}");
        writer.append(records.iter().cloned().map(Into::into).collect());
        all.extend(records.into_iter().map(|record| (policy, record)));
    }
    writer.flush();
    for (policy, record) in &all {
        let found = log.find(record.id).unwrap_or_else(|| panic!("{policy}: {record:?}"));
        assert_eq!(shown(&found), shown(record), "{policy}");
        assert_eq!(found.summary(), record.summary(), "{policy}");
    }
    drop(writer);
    let read = RecordLog::read_dir(files.path()).unwrap();
    assert!(all.iter().all(|(_, record)| read.find(record.id).is_some_and(|it| shown(&it) == shown(record))));
}

#[test]
fn records_of_sealed_segments_are_found_before_and_after_a_restart() {
    let (files_of, clock) = (Scratch::new(), ManualClock::at(NOW));
    let (log, writer) = open(settings(files_of.path()), &clock);
    let template = refusal();
    for batch in 0..20 {
        writer.append(copies(&template, batch * 1_000, 1_000, NOW));
        writer.flush();
    }
    assert!(files(files_of.path(), "idx").len() > 1, "{:?}", log.status());
    let check = |log: &RecordLog| {
        for number in (0..20_000).step_by(7) {
            assert_eq!(log.find(id(number)).map(|it| it.seq), Some(number));
        }
        assert!(log.find(id(20_000)).is_none());
        assert_eq!(log.status().records, 20_000);
    };
    check(&log);
    drop((log, writer));
    let (log, writer) = open(settings(files_of.path()), &clock);
    check(&log);
    writer.append(copies(&template, 50_000, 10, NOW));
    writer.flush();
    assert!(log.find(id(50_009)).is_some() && log.find(id(3)).is_some());
}

#[test]
fn a_restart_continues_the_last_segment() {
    let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
    for start in 0..10 {
        let (_log, writer) = open(settings(dir.path()), &clock);
        writer.append(copies(&refusal(), start * 10, 10, NOW));
    }
    assert_eq!(files(dir.path(), "log").len(), 1);
    let log = RecordLog::read_dir(dir.path()).unwrap();
    assert!((0..100).all(|number| log.find(id(number)).is_some()));
}

#[test]
fn no_raw_key_is_on_disk_if_privacy_hides_keys() {
    for (policy, is_hidden) in [
        ("{privacy: {keys: hashed}, limits: [{by: api_key, bucket: 1/minute}]}", true),
        ("{privacy: {keys: truncated}, limits: [{by: api_key, bucket: 1/minute}]}", true),
        ("{privacy: {keys: plain}, limits: [{by: ip, bucket: 1/minute}]}", false),
    ] {
        let (dir, clock) = (Scratch::new(), ManualClock::at(NOW));
        let (_log, writer) = open(settings(dir.path()), &clock);
        writer.append(records_of(policy).into_iter().map(Into::into).collect());
        drop(writer);
        let bytes = std::fs::read(&files(dir.path(), "log")[0]).unwrap();
        let has = |text: &str| bytes.windows(text.len()).any(|it| it == text.as_bytes());
        assert_eq!((has("secret-key-of-ann"), has("203.0.113.9")), (false, !is_hidden), "{policy}");
    }
}
